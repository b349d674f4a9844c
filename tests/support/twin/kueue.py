"""Kueue, as an admission check and pods with scheduling gates meet it.

It grants quota by numbers of cards alone, so also to pods that fit nowhere; takes it back from whoever is answered
Retry, and at times from whoever runs; and starts the pods of whom all checks are ready: gated ones it lets go, those of
a Job it has created. All that it decides by is in the Workloads, so it goes on after etcd was restored.
Source: groups 8; kubernetes-sigs/kueue v0.17.
"""

from typing import Any, Final

from tests.support.twin.api import Json, Target
from tests.support.twin.clock import CLOCK
from tests.support.twin.machines import ENDED, Kind, Steps

WORKLOAD: Final = "kueue.x-k8s.io/workload"
MANAGED: Final = "kueue.x-k8s.io/managed"
POD_SET: Final = "kueue.x-k8s.io/podset"
FITS, OTHER = "fits", "other"
_CONTROLLERS: Final = {FITS: "cardshare.io/fits", OTHER: "example.com/other"}
_BACKOFF_S: Final = 20.0


def conditions_of(workload: Json) -> set[str]:
    """The types of its conditions that are True."""
    found = workload.get("status", {}).get("conditions", ())
    return {one["type"] for one in found if one["status"] == "True"}


def checks_of(workload: Json) -> dict[str, Json]:
    """The entries of its admission checks, by name."""
    return {one["name"]: one for one in workload.get("status", {}).get("admissionChecks", ())}


def template_of(workload: Json) -> Json:
    """Its pods, as far as cards matter."""
    found: Json = workload["spec"]["podSets"][0]["template"]
    return found


def count_of(workload: Json) -> int:
    """How many pods it has."""
    return int(workload["spec"]["podSets"][0]["count"])


def wants_quota(workload: Json) -> int:
    """How many cards it takes of the quota."""
    limits = [one["resources"]["limits"] for one in template_of(workload)["spec"]["containers"]]
    words = {kind.resource for kind in Kind}
    return count_of(workload) * sum(int(one.get(word, 0)) for one in limits for word in words)


class Kueue:
    """One ClusterQueue. quota: in cards, of whatever kind."""

    def __init__(self, world: Any, quota: int) -> None:
        self.quota = quota
        # Whether it takes quota back from none but those who were answered Retry.
        self.is_calm = False
        self._world = world
        self._names = 0
        # By uid: until when none is asked for again, and which pods of a Job were created.
        self._rests_until_s: dict[str, float] = {}
        self._made: dict[str, set[str]] = {}
        for name, controller in _CONTROLLERS.items():
            world.api.create("admissionchecks", {"metadata": {"name": name}, "spec": {"controllerName": controller}})
        world.api.create("resourceflavors", {"metadata": {"name": "any"}, "spec": {}})
        world.spawn(self._run())

    @property
    def workloads(self) -> dict[str, Json]:
        """All Workloads, by key."""
        found: dict[str, Json] = self._world.api.objects["workloads"]
        return found

    def pods_of(self, workload: Json) -> dict[str, Json]:
        """Its pods that are there, by key."""
        names = set(workload["metadata"]["annotations"]["pods"].split())
        pods = self._world.api.objects["pods"]
        return {key: pods[key] for key in sorted(pods) if key.partition("/")[2] in names}

    def submit(self, spec: Json, many: int, *, is_job: bool) -> None:
        """Somebody creates a Job of *many* pods, or so many pods of a group, which are gated."""
        world, draw = self._world, self._world.draw
        self._names += 1
        name = f"w{self._names}"
        pods = [f"{name}-{at}" for at in range(many)]
        owners = [{"kind": "Job", "name": f"j-{name}", "uid": f"j-{name}"}] if is_job else []
        if not is_job:
            gated = {**spec, "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}
            for pod in pods:
                made = world.create_pod(pod, gated, labels={MANAGED: "true"})
                owners.append({"kind": "Pod", "name": pod, "uid": made["metadata"]["uid"]})
        checks = draw.choice(((FITS,), (FITS,), (OTHER, FITS)))
        notes = {"pods": " ".join(pods), "job": "yes" if is_job else "", "checks": " ".join(checks), "round": "0"}
        meta = {"name": name, "annotations": notes, "ownerReferences": owners}
        sets = [{"name": "main", "count": many, "template": {"metadata": {}, "spec": spec}}]
        body = {"podSets": sets, "priority": spec["priority"], "active": True}
        world.api.create("workloads", {"metadata": meta, "spec": body, "status": {}}, "default")

    # ------------------------------------------------------------------ what it does

    def _run(self) -> Steps:
        while True:
            yield 0.2 + self._world.draw.expovariate(1.0)
            for key, workload in sorted(self.workloads.items()):
                self._go_on(key, workload)

    def _go_on(self, key: str, workload: Json) -> None:
        draw, there = self._world.draw, conditions_of(workload)
        if draw.random() < 0.3:
            return
        is_job = bool(workload["metadata"]["annotations"]["job"])
        if "Finished" in there:
            self._world.api.delete(Target("workloads", "default", key.partition("/")[2], ""), {})
        elif not is_job and not self.pods_of(workload):
            self._finish(key)
        elif "Admitted" in there:
            self._start(key, workload, is_job=is_job)
        elif "QuotaReserved" in there:
            self._check(key, workload)
        elif CLOCK.now_s >= self._rests_until_s.get(workload["metadata"]["uid"], 0.0):
            self._reserve(key, workload)

    def _set(self, key: str, on: dict[str, bool], **status: Any) -> None:
        at = self._world.now_text()
        told = [
            {"type": one, "status": "True" if yes else "False", "reason": one, "message": "", "lastTransitionTime": at}
            for one, yes in on.items()
        ]
        self._world.api.write("workloads", key, {"status": {"conditions": told, **status}})

    def _finish(self, key: str) -> None:
        self._set(key, {"Finished": True})

    def _entry(self, name: str, **more: Any) -> Json:
        return {"name": name, "state": "Pending", "message": "", "lastTransitionTime": self._world.now_text(), **more}

    def _reserve(self, key: str, workload: Json) -> None:
        used = sum(wants_quota(one) for one in self.workloads.values() if "QuotaReserved" in conditions_of(one))
        if used + wants_quota(workload) > self.quota:
            return
        self._world.counts["Kueue: quota reserved"] += 1
        (main,) = workload["spec"]["podSets"]
        assigned = {"name": main["name"], "count": main["count"], "flavors": {"cards": "any"}}
        names = workload["metadata"]["annotations"]["checks"].split()
        before = checks_of(workload)
        checks = [before.get(name) or self._entry(name) for name in names]
        admission = {"clusterQueue": "q", "podSetAssignments": [assigned]}
        self._set(key, {"QuotaReserved": True, "Evicted": False}, admission=admission, admissionChecks=checks)

    def _check(self, key: str, workload: Json) -> None:
        """Look at the answers, and let others come in."""
        draw, checks = self._world.draw, checks_of(workload)
        states = {one["state"] for one in checks.values()}
        if "Retry" in states:
            self._world.counts["Kueue: answered Retry"] += 1
            self._evict(key, workload)
        elif states == {"Ready"}:
            self._world.counts["Kueue: admitted"] += 1
            self._set(key, {"Admitted": True})
        elif draw.random() < 0.01 and not self.is_calm:
            self._evict(key, workload)
        elif OTHER in checks and checks[OTHER]["state"] == "Pending" and draw.random() < 0.3:
            said = [
                self._entry(OTHER, state="Ready", message="by another") if n == OTHER else c for n, c in checks.items()
            ]
            self._world.api.write("workloads", key, {"status": {"admissionChecks": said}})

    def _evict(self, key: str, workload: Json) -> None:
        """Take the quota back; its pods are removed if they were started, and gated ones then do not come again."""
        again = [
            self._entry(
                name,
                message=f"Reset to Pending after eviction. Previously: {one['state']}",
                retryCount=one.get("retryCount", 0) + (one["state"] == "Retry"),
            )
            for name, one in checks_of(workload).items()
        ]
        was_admitted = "Admitted" in conditions_of(workload)
        off = {"Evicted": True, "QuotaReserved": False, "Admitted": False}
        self._set(key, off, admission=None, admissionChecks=again)
        uid = workload["metadata"]["uid"]
        self._rests_until_s[uid] = CLOCK.now_s + _BACKOFF_S * self._world.draw.random() ** 2
        if not was_admitted:
            return
        self._world.counts["Kueue: evicted"] += 1
        for pod in self.pods_of(workload):
            self._world.delete(pod)
        notes = workload["metadata"]["annotations"]
        if notes["job"]:
            number = int(notes["round"]) + 1
            pods = " ".join(f"{key.partition('/')[2]}-r{number}-{at}" for at in range(count_of(workload)))
            changed = {"round": str(number), "pods": pods}
            self._world.api.write("workloads", key, {"metadata": {"annotations": changed}})

    def _start(self, key: str, workload: Json, *, is_job: bool) -> None:
        draw, pods = self._world.draw, self.pods_of(workload)
        notes, made = workload["metadata"]["annotations"], self._made.setdefault(workload["metadata"]["uid"], set())
        if draw.random() < 0.01 and not self.is_calm:
            self._evict(key, workload)
            return
        for name, pod in pods.items():
            if pod["spec"].get("schedulingGates") and draw.random() < 0.7:
                named = {WORKLOAD: key.partition("/")[2]} if draw.random() < 0.5 else {}
                meta = {"annotations": named, "labels": {POD_SET: "main"}}
                self._world.api.write("pods", name, {"metadata": meta, "spec": {"schedulingGates": None}})
        names = notes["pods"].split() if is_job else []
        for name in [one for one in names if one not in made and draw.random() < 0.7]:
            made.add(name)
            if self._world.pod(f"default/{name}") is None:
                owner = {"kind": "Job", "name": f"j-{key.partition('/')[2]}", "uid": "j", "controller": True}
                labels = {MANAGED: "true", POD_SET: "main"}
                self._world.create_pod(name, template_of(workload)["spec"], ownerReferences=[owner], labels=labels)
        is_made = made.issuperset(names)
        if is_made and all(one["status"].get("phase") in ENDED for one in self.pods_of(workload).values()):
            self._finish(key)
