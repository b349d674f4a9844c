import json

from controller.documents import Documents, places
from core.catalog import standard_catalog
from core.model import NodeName
from core.wire.config_maps import ConfigMap
from core.wire.mindcluster import CLUSTER_DEVICES, DIRECT_DEVICES, SEPARATED
from tests.support.worlds.world import World, node

CHIPS, _, CLUSTER = places(standard_catalog())
A, B, NPU = NodeName("a"), NodeName("b"), NodeName("npu")
ILL = json.dumps({"DeviceInfo": {"DeviceList": {"huawei.com/Ascend310P-Unhealthy": "Ascend310P-1"}}})


def chips_of(name, text=ILL):
    texts = {"DeviceInfoCfg": text, "ManuallySeparateNPU": ""}
    return ConfigMap(namespace="kube-system", name=f"mindx-dl-deviceinfo-{name}", texts=texts)


def of_cluster(**nodes):
    text = json.dumps({f"mindx-dl-deviceinfo-{name}": {"DeviceList": devices} for name, devices in nodes.items()})
    return ConfigMap(namespace="mindx-dl", name="cluster-info-device-0", texts={"cluster-info-device-0": text})


def test_a_node_has_what_all_maps_say_of_it():
    documents = Documents(standard_catalog())
    assert documents.replace(CHIPS, [chips_of("a"), chips_of("b")]) == {"a", "b"}
    assert documents.change(CLUSTER, of_cluster(a={"x": "y"}), gone=False) == {"a"}
    assert documents.of(A) == {DIRECT_DEVICES: ILL, SEPARATED: "", CLUSTER_DEVICES: '{"DeviceList": {"x": "y"}}'}
    assert documents.of(B) == {DIRECT_DEVICES: ILL, SEPARATED: ""}


def test_only_nodes_of_which_something_else_is_said_are_told():
    documents = Documents(standard_catalog())
    documents.change(CLUSTER, of_cluster(a={"x": "1"}, b={"x": "1"}), gone=False)
    assert documents.change(CLUSTER, of_cluster(a={"x": "1"}, b={"x": "2"}), gone=False) == {"b"}
    assert documents.replace(CLUSTER, []) == {"a", "b"}
    assert documents.of(A) == {}


def test_a_map_that_cannot_be_read_says_nothing_and_spoils_no_other():
    documents = Documents(standard_catalog())
    broken = ConfigMap(namespace="mindx-dl", name="cluster-info-device-0", texts={"cluster-info-device-0": "["})
    assert documents.replace(CLUSTER, [broken]) == set()
    assert documents.replace(CHIPS, [chips_of("a")]) == {"a"}


def npu_node(version="1"):
    have = {"huawei.com/npu-core": "16", "pods": "110"}
    labels = {"accelerator": "huawei-Ascend310P", "servertype": "Ascend310P-8", "node.kubernetes.io/npu.chip.name": "n"}
    base = json.dumps({f"Ascend310P-{at}": {} for at in range(2)})
    notes = {"baseDeviceInfos": base}
    return node("npu", version=version, labels=labels, annotations=notes, capacity=have, allocatable=have)


def documents_of(world):
    found = world.ledger.node(NPU)
    assert found is not None
    return found.documents


def test_documents_reach_their_node_before_and_after_it_and_leave_it_when_they_vanish():
    world = World()
    list(world.scheduler.nodes.documents_replaced(CHIPS, [chips_of("npu")]))
    world.scheduler.nodes.changed(npu_node())
    assert documents_of(world)[DIRECT_DEVICES] == ILL
    before = world.ledger.states[NPU].offers
    list(world.scheduler.nodes.documents_changed(CHIPS, chips_of("npu"), gone=True))
    assert documents_of(world) == {}
    assert world.ledger.states[NPU].offers != before
    world.scheduler.nodes.changed(npu_node("2"))
    assert documents_of(world) == {}
    list(world.scheduler.nodes.documents_changed(CHIPS, chips_of("npu")))
    assert world.ledger.states[NPU].offers == before
