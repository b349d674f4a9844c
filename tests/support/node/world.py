"""What tests do on the real node: make pods and plugins, and compare what containers have with what was assigned."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from core.units import parse_amount
from sandbox.demo.outcomes import hami_shares, unseen, vgpu_devices
from sandbox.players.vgpu import CONFIG_KEY, CONFIG_MAP, CONFIG_NAMESPACES
from tests.support.node.api import RefusedError
from tests.support.node.cluster import NODE, Cluster
from tests.support.node.images import BUSYBOX
from tests.support.node.plugins import daemon_set
from tests.support.node.reached import until_answered
from tests.support.node.waiting import wait

Json = dict[str, Any]

_NODE: Final = f"/api/v1/nodes/{NODE}"
# Without a trap the first process of a container ignores SIGTERM, and kubelet waits 2 s.
_SLEEP: Final = "trap exit TERM; sleep 1000000 & wait"
_WHO: Final = "CARDSHARE_TEST_CONTAINER"
_ENVIRONMENTS: Final = (
    f"for one in $(grep -lsz '^{_WHO}=' /proc/[0-9]*/environ); do cat $one && echo; done 2>/dev/null; true"
)


def pod(name: str, limits: Mapping[str, int | str], *more: Mapping[str, int | str]) -> Json:
    """A pod with one container for each of the *limits*, which sleeps."""
    containers = [
        {
            "name": f"c{at}",
            "image": BUSYBOX,
            "imagePullPolicy": "Never",
            "command": ["sh", "-c", _SLEEP],
            "env": [
                {"name": "OWN_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
                {"name": _WHO, "value": f"$(OWN_UID)/c{at}"},
            ],
            "resources": {"limits": {key: str(value) for key, value in one.items()}},
        }
        for at, one in enumerate((limits, *more))
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": containers},
    }


def vgpu(memory_mib: int, cores_pct: int = 5, cards: int = 1) -> dict[str, int]:
    """The limits of one container in the dialect `vgpu`."""
    return {"volcano.sh/vgpu-number": cards, "volcano.sh/vgpu-memory": memory_mib, "volcano.sh/vgpu-cores": cores_pct}


@dataclass(slots=True, kw_only=True)
class World:
    """The node with cardshare installed, and one namespace for pods; memory_factor: MiB per unit of `vgpu-memory`."""

    cluster: Cluster
    namespace: str = "default"
    memory_factor: int = 1

    @property
    def path(self) -> str:
        """The pods of the namespace."""
        return f"/api/v1/namespaces/{self.namespace}/pods"

    def create(self, *pods: Json) -> None:
        """Make pods."""
        for one in pods:
            self.cluster.api.create(self.path, one)

    def read(self, *names: str) -> dict[str, Json]:
        """Pods of the namespace by name; all of them, or those that are there of *names*."""
        found = {one["metadata"]["name"]: one for one in self.cluster.api.get(self.path)["items"]}
        return {name: one for name, one in found.items() if name in names or not names}

    def running(self, *names: str) -> dict[str, Json]:
        """Wait until *names* run, compare what their containers have, and return them.

        Raises:
            AssertionError: they do not run in time, or have another thing than was assigned.
        """
        pods: dict[str, Json] = {}

        def missing() -> str:
            pods.update(self.read(*names))
            waiting = {name: _state(pods.get(name)) for name in names if not _runs(pods.get(name))}
            return ", ".join(f"{name}: {state}" for name, state in waiting.items())

        wait("pods", missing)

        def wrong() -> str:
            envs = self.environments()
            return "; ".join(
                said for one in self.read(*names).values() if (said := differences(one, envs, self.memory_factor))
            )

        # MindCluster's plugin reports some seconds later what it gave.
        wait("what containers have", wrong)
        return self.read(*names)

    def environments(self) -> dict[str, dict[str, str]]:
        """uid/container -> the variables of its process, as the kernel has them."""
        found = {}
        for line in self.cluster.there.run("sh", "-c", _ENVIRONMENTS).split("\0\n"):
            env = dict(one.split("=", 1) for one in line.split("\0") if "=" in one)
            if _WHO in env:
                found[env[_WHO]] = env
        return found

    def remove(self, *names: str, by_force: bool = True) -> None:
        """Delete pods, all of them if none is named, and wait until they are gone and their containers too."""
        gone = names or tuple(self.read())
        uids = {one["metadata"]["uid"] for one in self.read(*gone).values()} if gone else set()
        for name in gone:
            with suppress(RefusedError):
                self.cluster.api.delete(f"{self.path}/{name}", 0 if by_force else None)

        def left() -> str:
            there = set(self.read()) & set(gone)
            processes = {who for who in self.environments() if who.partition("/")[0] in uids}
            return ", ".join(sorted(there | processes))

        wait("pods to be gone", left)

    def kill(self, *pods: str) -> None:
        """Kill every process of the containers of *pods*, wherever these are; kubelet starts them again."""
        for name in pods:
            found = f"grep -lsz '^HOSTNAME={name}$' /proc/[0-9]*/environ"
            # With the first process of a container the others are gone.
            kill = "kill -KILL $(echo $one | cut -d/ -f3) 2>/dev/null"
            self.cluster.there.run("sh", "-c", f"for one in $({found}); do {kill}; done; true")

    def allocatable(self) -> dict[str, int]:
        """What the node offers of extended resources."""
        status = self.cluster.api.get(_NODE)["status"]["allocatable"]
        return {key: parse_amount(value, key) for key, value in status.items() if "/" in key}

    @contextmanager
    def plugin(
        self, kind: str, resources: Sequence[str], *, node_labels: Mapping[str, str] | None = None, **options: Any
    ) -> Iterator[None]:
        """A device plugin of *kind* that offers *resources*; gone afterwards, and the node is a new one.

        node_labels: what an operator writes to the node for it.
        """
        name = f"{kind}-device-plugin"
        self.cluster.api.patch(_NODE, {"metadata": {"labels": dict(node_labels or {})}})
        self.cluster.kubectl("apply", "-f", "-", text=json.dumps(daemon_set(kind, json.dumps(options))))
        try:
            wait(kind, lambda: _missing(self.allocatable(), resources))
            yield
        finally:
            self.cluster.kubectl("delete", "-n", "kube-system", "daemonset", name, "--cascade=foreground", "--wait")
            self._renew_node()

    @contextmanager
    def without_kubelet(self) -> Iterator[None]:
        """As that of the cluster; the node then offers devices only once the new kubelet has listed them."""
        with self.cluster.without_kubelet():
            yield
            capacity = self.cluster.api.get(_NODE)["status"]["capacity"]
            devices = dict.fromkeys(key for key in capacity if "/" in key)
            self.cluster.api.patch(f"{_NODE}/status", {"status": {"capacity": devices, "allocatable": devices}})

    @contextmanager
    def device_config(self) -> Iterator[None]:
        """`gpuMemoryFactor` of this world in the ConfigMap of Volcano's plugin, which cardshare reads too."""
        path = f"/api/v1/namespaces/{CONFIG_NAMESPACES[0]}/configmaps/{CONFIG_MAP}"
        before = self.cluster.api.get(path)["data"][CONFIG_KEY]
        changed, count = re.subn(r"(gpuMemoryFactor:) 1\b", rf"\1 {self.memory_factor}", before)
        assert count == 1, before
        self.cluster.api.patch(path, {"data": {CONFIG_KEY: changed}})
        try:
            yield
        finally:
            self.cluster.api.patch(path, {"data": {CONFIG_KEY: before}})

    @contextmanager
    def kubelet_gates(self, **gates: bool) -> Iterator[None]:
        """A kubelet with these feature gates."""
        before = dict(self.cluster.kubelet_gates)
        with self.without_kubelet():
            self.cluster.kubelet_gates.update(gates)
        try:
            yield
        finally:
            with self.without_kubelet():
                self.cluster.kubelet_gates = before

    def reboot(self) -> None:
        """End kubelet, containerd and every container at once, as a loss of power does, and start the first two."""
        with self.without_kubelet():
            self.cluster.restart_without_containers()

    @contextmanager
    def without_plugin(self, kind: str, resource: str) -> Iterator[None]:
        """Let the DaemonSet of *kind* run nowhere meanwhile; the node says that it offers no *resource*."""
        path = f"/apis/apps/v1/namespaces/kube-system/daemonsets/{kind}-device-plugin"

        def select(label: str | None) -> None:
            template = {"spec": {"nodeSelector": {"of-no-node": label}}}
            self.cluster.api.patch(path, {"spec": {"template": template}})

        select("true")
        wait("the node to say so", lambda: str(self.allocatable().get(resource) or ""))
        yield
        select(None)

    def _renew_node(self) -> None:
        """Make the node anew, as it was before any plugin: kubelet and cardshare remember devices for minutes."""
        with self.cluster.without_kubelet():
            self.cluster.there.run("rm", "-f", "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint")
            self.cluster.api.delete(_NODE)
        wait(NODE, self.cluster.node_not_ready)
        # Without its Node, pods are nobody's endpoints.
        until_answered(self.cluster)


def assignments(found: Mapping[str, Json]) -> dict[str, str]:
    """What was assigned, by name."""
    return {name: one["metadata"]["annotations"]["volcano.sh/vgpu-ids-new"] for name, one in found.items()}


def differences(one: Json, environments: Mapping[str, Mapping[str, str]], memory_factor: int) -> str:
    """What the containers of a running pod have otherwise than assigned or asked; "" if nothing."""
    uid, name = one["metadata"]["uid"], one["metadata"]["name"]
    envs = [environments.get(f"{uid}/{container['name']}") for container in one["spec"]["containers"]]
    if None in envs:
        return f"{name}: a container has no process"
    there = [env for env in envs if env is not None]
    if said := unseen(one, there) or _limits(one, there, memory_factor):
        return f"{name}: {said}"
    return ""


def _limits(one: Json, envs: Sequence[Mapping[str, str]], factor: int) -> str:
    """Memory and cores: each share's as assigned, and each container's as asked."""
    notes = one["metadata"].get("annotations", {})
    shares = [(share.mem * factor, share.cores) for share in vgpu_devices(notes)]
    shares += [(int(share.fields[2]), int(share.fields[3])) for share in hami_shares(notes)]
    if not shares:
        return ""
    seen = []
    for env, container in zip(envs, one["spec"]["containers"], strict=True):
        limits = container["resources"].get("limits", {})
        asked = next((limits[key] for key in ("volcano.sh/vgpu-memory", "nvidia.com/gpumem") if key in limits), None)
        memories = sorted((key, value) for key, value in env.items() if key.startswith("CUDA_DEVICE_MEMORY_LIMIT_"))
        if asked is not None and {value for _, value in memories} != {f"{parse_amount(asked, 'limits') * factor}m"}:
            return f"{container['name']} has {memories}, asked for {asked} times {factor} MiB"
        seen += [(int(value.removesuffix("m")), int(env["CUDA_DEVICE_SM_LIMIT"])) for _, value in memories]
    return "" if seen == shares else f"its containers have {seen}, assigned were {shares}"


def _runs(one: Json | None) -> bool:
    if one is None or one["status"].get("phase") != "Running":
        return False
    return all(status["ready"] for status in one["status"].get("containerStatuses", ()))


def _state(one: Json | None) -> str:
    if one is None:
        return "gone"
    status = one["status"]
    conditions = [c.get("message", "") for c in status.get("conditions", ()) if c["status"] == "False"]
    return " ".join(filter(None, (status.get("phase"), status.get("reason"), status.get("message"), *conditions[:1])))


def _missing(allocatable: Mapping[str, int], resources: Sequence[str]) -> str:
    return ", ".join(resource for resource in resources if not allocatable.get(resource))
