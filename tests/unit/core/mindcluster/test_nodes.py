"""What a node offers, from whatever its plugin, ClusterD and NodeD say of it."""

import json
from dataclasses import replace
from typing import Any

import pytest

from core.dialects.mindcluster.dialect import MindCluster
from core.dialects.mindcluster.table import MindClusterTable
from core.errors import InvalidRequestError
from core.model import Node, NodeName
from core.port.cards import Offer
from core.port.refusals import Complaint, Reason
from core.settings import Tables
from core.wire.mindcluster import node_documents
from tests.support.devices.mindcluster import CORES, npu_chips, npu_node

DIALECT: Any = MindCluster()


def ids(node: Node, tables: Tables = Tables()) -> list[int]:  # noqa: B008 (a frozen value)
    return [one.fixed.id for one in npu_chips(node, tables) if one.there]


def complaint(node: Node, tables: Tables = Tables()) -> Complaint:  # noqa: B008 (a frozen value)
    found = DIALECT.offer(node, tables)
    assert isinstance(found, Complaint), found
    return found


def test_a_node_without_ai_cores_speaks_another_protocol():
    assert DIALECT.offer(Node(name=NodeName("n")), Tables()) is None
    assert DIALECT.offer(npu_node(0), Tables()) is None


def test_unhealthy_and_manually_separated_chips_take_nothing():
    assert ids(npu_node(3, unhealthy=(1,))) == [0, 2]
    node = npu_node(3)
    assert ids(replace(node, documents={**node.documents, "manually-separated": "Ascend310P-2"})) == [0, 1]
    assert npu_chips(npu_node(3, unhealthy=(1,)))[1].fixed.fault is Reason.UNHEALTHY


@pytest.mark.parametrize("status", ["PreSeparate", "UnHealthy"])
def test_a_node_that_noded_reports_as_ill_is_set_aside(status):
    assert status in complaint(npu_node(2, status=status)).problem
    assert ids(npu_node(2, status="Healthy")) == [0, 1]


def test_a_chip_that_carried_slices_when_the_plugin_started_is_still_there():
    node = npu_node(2, base={"Ascend310P-2c-100-0": {}, "Ascend310P-1": {}}, devices={"huawei.com/Ascend310P": ""})
    assert ids(node) == [0, 1]


def test_the_device_list_stands_in_for_an_annotation_that_cannot_be_read():
    assert ids(npu_node(2, base="x")) == [0, 1]
    assert ids(npu_node(2, base="null")) == [0, 1]


def test_a_device_list_without_free_chips_is_no_fault():
    assert ids(npu_node(2, devices={})) == [0, 1]


def test_chips_beyond_the_nodes_number_are_told_of_and_left_out():
    found = DIALECT.offer(npu_node(2, base={"Ascend310P-0": {}, "Ascend310P-9": {}}), Tables())
    assert isinstance(found, Offer)
    assert [one.field for one in found.complaints] == ["NPU 9"]
    assert [one.fixed.id for one in found.cards] == [0, 1]


def test_without_any_list_all_chips_are_taken_for_healthy_only_if_all_cores_are_allocatable():
    node = replace(npu_node(2), documents={})
    assert ids(node) == [0, 1]
    assert "ConfigMap" in complaint(replace(npu_node(2, unhealthy=(0,)), documents={})).problem


def test_self_maintenance_switched_off_takes_the_free_list_alone():
    node = npu_node(3, devices={"huawei.com/Ascend310P": "Ascend310P-2", "huawei.com/Ascend310P-Unhealthy": ""})
    assert ids(node) == [0, 1, 2]
    assert ids(node, Tables(sections=(MindClusterTable(self_maintain_available_card=False),))) == [2]


def test_the_plugins_own_configmaps_are_read_where_the_cluster_manager_is_not_used():
    own = {"DeviceInfo": {"DeviceList": {"huawei.com/Ascend310P-Unhealthy": "Ascend310P-1"}, "UpdateTime": 1}}
    node = npu_node(2)
    documents = {
        **node.documents,
        "mindx-dl-deviceinfo": json.dumps(own),
        "mindx-dl-nodeinfo": json.dumps({"NodeInfo": {"NodeStatus": "PreSeparate"}}),
    }
    node = replace(node, documents=documents)
    assert "PreSeparate" in complaint(node).problem
    documents = {key: text for key, text in documents.items() if key != "mindx-dl-nodeinfo"}
    node = replace(node, documents=documents)
    assert ids(node) == [0, 1]
    assert ids(node, Tables(sections=(MindClusterTable(use_cluster_info_manager=False),))) == [0]


@pytest.mark.parametrize(
    ("key", "value", "field"),
    [
        ("accelerator", "Ascend310P", "label accelerator"),
        ("accelerator", "huawei-Ascend910", "label accelerator"),
        ("accelerator", None, "label accelerator"),
        ("servertype", "soc", "label servertype"),
        ("servertype", "Ascend310P-16", "label servertype"),
        ("servertype", "Ascend310P-0", "label servertype"),
        ("servertype", None, "label servertype"),
        ("node.kubernetes.io/npu.chip.name", None, "label node.kubernetes.io/npu.chip.name"),
    ],
)
def test_a_label_that_cannot_be_used_is_named(key, value, field):
    node = npu_node(2)
    labels = {k: v for k, v in node.labels.items() if k != key}
    found = complaint(replace(node, labels=labels if value is None else {**labels, key: value}))
    assert found.field == field


def test_cores_that_are_no_whole_chips_are_a_complaint():
    assert complaint(replace(npu_node(2), capacity={CORES: "15"})).field == f"capacity {CORES}"
    assert complaint(replace(npu_node(2), capacity={CORES: "-8"})).field == f"capacity {CORES}"
    assert complaint(replace(npu_node(2), capacity={CORES: "99999999"})).field == f"capacity {CORES}"


@pytest.mark.parametrize("text", ["x", "[]", "[1", '{"DeviceList": 3}', "[" * 100_000, '{"DeviceList": {"a": {}}}'])
def test_a_device_list_that_cannot_be_read_is_a_complaint(text):
    assert complaint(replace(npu_node(2), documents={"cluster-info-device": text})).field.startswith("cluster-info-")


def test_ten_core_chips_have_seven_ai_cpus():
    assert [(one.free_cores, one.free_cpus) for one in npu_chips(npu_node(2, per_chip=10))] == [(10, 7)] * 2


def test_configmaps_are_taken_apart_by_node():
    devices = {"mindx-dl-deviceinfo-n-1": {"DeviceList": {"a": "b"}}, "mindx-dl-deviceinfo-n-2": {}, "else": 1}
    found = list(node_documents("cluster-info-device-0", {"cluster-info-device-0": json.dumps(devices)}))
    assert found == [("n-1", "cluster-info-device", '{"DeviceList": {"a": "b"}}'), ("n-2", "cluster-info-device", "{}")]
    own = list(node_documents("mindx-dl-deviceinfo-n-1", {"DeviceInfoCfg": "{}", "ManuallySeparateNPU": "x"}))
    assert own == [("n-1", "mindx-dl-deviceinfo", "{}"), ("n-1", "manually-separated", "x")]
    assert list(node_documents("cluster-info-node-cm", {"cluster-info-node-cm": ""})) == []
    status = {"cluster-info-node-cm": '{"mindx-dl-nodeinfo-n-1":{"NodeStatus":"Healthy"}}'}
    assert list(node_documents("cluster-info-node-cm", status)) == [
        ("n-1", "cluster-info-node", '{"NodeStatus":"Healthy"}')
    ]
    assert list(node_documents("mindx-dl-nodeinfo-n-1", {"NodeInfo": "{}"})) == [("n-1", "mindx-dl-nodeinfo", "{}")]
    assert list(node_documents("another", {"a": "b"})) == []
    with pytest.raises(InvalidRequestError):
        list(node_documents("cluster-info-device-0", {"cluster-info-device-0": "[]"}))


@pytest.mark.parametrize("key", ["huawei.com/Ascend310P", "huawei.com/Ascend310P-Unhealthy"])
def test_a_list_of_more_devices_than_a_machine_has_sets_the_node_aside(key):
    names = ",".join(f"Ascend310P-{at}" for at in range(513))
    found = complaint(npu_node(devices={"huawei.com/Ascend310P": "Ascend310P-0", key: names}))
    assert found.field == key
    assert found.problem == "it names more than 512 devices; no longer list is read"
    assert complaint(npu_node(base={name: {} for name in names.split(",")})).field == "annotation baseDeviceInfos"
    separated = npu_node()
    separated = replace(separated, documents={**separated.documents, "manually-separated": names})
    assert complaint(separated).field == "manually-separated"
