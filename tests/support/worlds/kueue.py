"""Kueue's kinds and objects, as far as an admission check meets them, and the part of Kueue that scenarios play.

Source: kubernetes-sigs/kueue v0.17, apis/kueue/v1beta1 and v1beta2.
"""

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP = "kueue.x-k8s.io"
OURS = "cardshare.io/fits"
AT = "2026-11-25T10:00:00Z"
_KINDS = {
    "workloads": ("Workload", "Namespaced"),
    "admissionchecks": ("AdmissionCheck", "Cluster"),
    "resourceflavors": ("ResourceFlavor", "Cluster"),
}


def definitions(version):
    """The CustomResourceDefinitions, served in *version*."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {"name": version, "served": True, "storage": True, "subresources": {"status": {}}}
    for plural, (kind, scope) in _KINDS.items():
        yield {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.{GROUP}"},
            "spec": {
                "group": GROUP,
                "scope": scope,
                "names": {"kind": kind, "plural": plural},
                "versions": [{**served, "schema": {"openAPIV3Schema": schema}}],
            },
        }


def condition(kind, status="True", at=AT):
    """A condition of a Workload."""
    return {"type": kind, "status": status, "reason": kind, "message": "", "lastTransitionTime": at}


def check(state="Pending", *, name="fits", at=AT, **more):
    """The entry of an admission check in a Workload's status."""
    return {"name": name, "state": state, "message": "", "lastTransitionTime": at, **more}


def workload(name, limits, *, pods=1, version="v1beta2", namespace="default", **spec):
    """A Workload of *pods* pods, each with *limits*, that has no quota yet."""
    container = {"name": "main", "image": "i", "resources": {"limits": limits}}
    template = {"metadata": {}, "spec": {"containers": [container], **spec}}
    return {
        "apiVersion": f"{GROUP}/{version}",
        "kind": "Workload",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"podSets": [{"name": "main", "count": pods, "template": template}], "active": True},
    }


def reserved(*checks, pods=1, flavor="any", more=()):
    """The status of a Workload that has quota of *flavor* for *pods* pods."""
    assigned = {"name": "main", "count": pods, "flavors": {"volcano.sh/vgpu-number": flavor}}
    return {
        "admission": {"clusterQueue": "q", "podSetAssignments": [assigned]},
        "conditions": [condition("QuotaReserved"), *more],
        "admissionChecks": list(checks or (check(),)),
    }


class Kueue:
    """The part of Kueue in a scenario, at the API server of *world*."""

    def __init__(self, world, version="v1beta2"):
        self._client = world.client
        self._world = world
        self._api = f"/apis/{GROUP}/{version}"
        self._version = version

    async def install(self, **flavors):
        """Serve its kinds, and make an AdmissionCheck of ours and flavors with these node labels."""
        for definition in definitions(self._version):
            await self._client.create(CRDS, definition)
        for plural in _KINDS:
            await self._world.served(f"{self._api}/{plural}")
        for name, labels in {"any": {}, **flavors}.items():
            await self._make("resourceflavors", name, nodeLabels=labels)
        await self._make("admissionchecks", "fits", controllerName=OURS)

    async def _make(self, plural, name, **spec):
        kind, _ = _KINDS[plural]
        body = {"apiVersion": f"{GROUP}/{self._version}", "kind": kind, "metadata": {"name": name}, "spec": spec}

        await self._client.create(f"{self._api}/{plural}", body)

    def _path(self, name):
        return f"{self._api}/namespaces/default/workloads/{name}"

    async def active(self):
        """The condition by which the check of ours says that it is answered."""

        async def said():
            found = await self._client.get(f"{self._api}/admissionchecks/fits")
            return next(iter(found.get("status", {}).get("conditions", ())), None)

        return await self._world.until(said)

    async def reserve(self, name, limits, *, pods=1, flavor="any", **spec):
        """Make a Workload, and give it quota."""
        made = workload(name, limits, pods=pods, version=self._version, **spec)
        await self._client.create(self._path("").rstrip("/"), made)
        await self.write(name, reserved(pods=pods, flavor=flavor))

    async def write(self, name, status):
        """Write *status* of a Workload."""
        await self._client.patch(f"{self._path(name)}/status", {"status": status})

    async def told(self, name, state):
        """The entry of the check of a Workload once it is in *state*."""

        async def said():
            found = (await self._client.get(self._path(name)))["status"]["admissionChecks"][0]
            return found if found["state"] == state else None

        return await self._world.until(said)
