"""What device plugins do to a bound pod's annotations, by their own protocol functions and without an API server.

Each plugin finds its pod by itself, as it does in the field; that it finds the one that kubelet admits is asserted.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from core.dialects.hami_vendors.vendor import Vendor
from core.model import NodeName, Phase, Pod, PodUid
from sandbox.players import ascend_hami_protocol as hami
from sandbox.players import gpushare
from sandbox.players import mindcluster_protocol as mindcluster
from sandbox.players import vgpu_protocol as vgpu
from tests.support.devices import vendors

Json = dict[str, Any]
Notes = Mapping[str, str]

_CORES_PER_CHIP = 8
_CARDS = 64


class Plugins:
    """The plugins of all nodes; those of MindCluster remember what they cut. chips: healthy ones by node."""

    def __init__(self, chips: Mapping[NodeName, int]) -> None:
        self._chips = chips
        self._cut: dict[NodeName, dict[PodUid, list[mindcluster.Device]]] = defaultdict(dict)
        self._next_id = 100

    def serve(self, pod: Pod, pods: Iterable[Pod]) -> Notes:
        """The annotations of *pod* once its containers have their cards; *pods* are all, in any order."""
        beside = [one for one in pods if one.node_name == pod.node_name]
        other = next((port.vendor for port in vendors.PORTS if port.vendor.handoff.allocated in pod.annotations), None)
        if other is not None:
            return {**pod.annotations, **self._vendor(pod, beside, other)}
        for key, plugin in (
            (vgpu.TO_ALLOCATE, self._vgpu),
            (gpushare.PREDICATE_TIME, self._gpushare),
            (hami.BIND_PHASE, self._hami),
            (mindcluster.ASSIGNED, self._mindcluster),
        ):
            if key in pod.annotations:
                return {**pod.annotations, **plugin(pod, beside)}
        return pod.annotations

    def report(self, pod: Pod) -> Notes:
        """The annotations of a served *pod* once the plugin has told what it gave, where it does that afterwards."""
        made = self._cut[NodeName(pod.node_name)].get(pod.uid)
        return {**pod.annotations, mindcluster.REAL: mindcluster.real_names(made)} if made else pod.annotations

    def _vgpu(self, pod: Pod, pods: list[Pod]) -> Notes:
        segments = vgpu.decode(pod.annotations[vgpu.TO_ALLOCATE])
        _is(pod, vgpu.oldest(_objects(pods), pod.node_name, vgpu.device_count(segments)))
        vgpu.next_request(segments, [one.name for one in pod.containers])
        return {
            vgpu.TO_ALLOCATE: vgpu.erase(segments),
            vgpu.BIND_PHASE: "success",
            vgpu.TIME: str(vgpu.DONE_TIME),
        }

    def _gpushare(self, pod: Pod, pods: list[Pod]) -> Notes:
        (asked,) = (gpushare.amount(one) for one in _object(pod)["spec"]["containers"])
        _is(pod, gpushare.candidate(_objects(one for one in pods if one.phase is Phase.PENDING), asked))
        gpushare.indices(_object(pod), _CARDS)
        return {gpushare.ASSIGNED: "true"}

    def _hami(self, pod: Pod, pods: list[Pod]) -> Notes:
        _is(pod, hami.guess(_objects(pods), pod.node_name))
        (word,) = (word for key in pod.annotations if (word := _word(key)))
        segments = hami.decode(pod.annotations[hami.to_allocate(word)])
        position, _, devices = hami.next_request(segments, [one.name for one in pod.containers])
        resource = "nvidia.com/gpu" if word == "vgpu" else f"huawei.com/{word}"
        assert len(devices) == int(pod.containers[position].limits[resource]), pod.annotations
        if word == "vgpu":
            return {hami.to_allocate(word): hami.erase(segments, position), hami.BIND_PHASE: "success"}
        infos = hami.decode_runtime_info(pod.annotations[hami.runtime_info(word)])
        assert infos.keys() == {device.id for device in devices}, pod.annotations
        return {hami.to_allocate(word): hami.erase(segments, position), hami.BIND_PHASE: "success"}

    def _vendor(self, pod: Pod, pods: list[Pod], vendor: Vendor) -> Notes:
        """HAMi's other vendors: those without its lock know their pod by itself."""
        if not vendor.handoff.locks:
            return dict.fromkeys(vendor.handoff.served_keys, "true")
        _is(pod, hami.guess(_objects(pods), pod.node_name))
        segments = hami.decode(pod.annotations[vendor.handoff.to_allocate])
        position, _, devices = hami.next_request(segments, [one.name for one in pod.containers])
        assert len(devices) == int(pod.containers[position].limits[vendor.limits.count]), pod.annotations
        return {vendor.handoff.to_allocate: hami.erase(segments, position), hami.BIND_PHASE: "success"}

    def _mindcluster(self, pod: Pod, pods: list[Pod]) -> Notes:
        node = NodeName(pod.node_name)
        (asked,) = (int(one.limits[mindcluster.CORES]) for one in pod.containers)
        _is(pod, mindcluster.candidate(_objects(pods), node, asked, _CORES_PER_CHIP))
        assigned = mindcluster.decode(pod.annotations[mindcluster.ASSIGNED])
        assert assigned is not None, pod.annotations
        # What no pod uses is destroyed before anything is cut; a chip that cannot be cut so is a SegmentError.
        alive = {one.uid for one in pods if not one.finished}
        cut = self._cut[node] = {uid: made for uid, made in self._cut[node].items() if uid in alive}
        there = [device for made in cut.values() for device in made]
        chips = range(self._chips[node])
        cut[pod.uid] = mindcluster.cut(there, assigned, chips, _CORES_PER_CHIP, self._next_id)
        self._next_id += 1
        return {mindcluster.PREDICATE_TIME: mindcluster.SERVED}


def _is(pod: Pod, taken: Mapping[str, Any] | None) -> None:
    assert taken is not None, f"the plugin finds no pod for {pod.name}: {pod.annotations}"
    assert taken["metadata"]["uid"] == pod.uid, f"the plugin serves {taken['metadata']['name']} for {pod.name}"


def _word(key: str) -> str:
    rest = key.removeprefix("hami.io/")
    return rest.removesuffix("-devices-to-allocate") if rest != key and rest.endswith("-devices-to-allocate") else ""


def _objects(pods: Iterable[Pod]) -> list[Json]:
    return [_object(one) for one in pods]


def _object(pod: Pod) -> Json:
    containers = [{"name": one.name, "resources": {"limits": dict(one.limits)}} for one in pod.containers]
    return {
        "metadata": {
            "name": pod.name,
            "namespace": pod.namespace,
            "uid": pod.uid,
            "annotations": dict(pod.annotations),
        },
        "spec": {"nodeName": pod.node_name, "containers": containers},
        "status": {"phase": pod.phase.value},
    }
