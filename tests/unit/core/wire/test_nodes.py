import pytest

from core.errors import InvalidRequestError
from core.model import Taint
from core.wire.config_maps import decode_config_map
from core.wire.nodes import decode_node, node_from_object


def test_everything_that_placing_needs_is_read():
    node = node_from_object(
        {
            "metadata": {
                "name": "a",
                "uid": "u",
                "resourceVersion": "3",
                "labels": {"l": "1"},
                "annotations": {"x": "y"},
            },
            "spec": {"unschedulable": True, "taints": [{"key": "gpu", "effect": "NoSchedule"}]},
            "status": {
                "capacity": {"cpu": "8"},
                "allocatable": {"cpu": "7500m", "volcano.sh/vgpu-number": 40},
                "conditions": [{"type": "Ready", "status": "Unknown"}, {"type": "DiskPressure", "status": "False"}],
            },
        }
    )
    assert (node.name, node.uid, node.resource_version) == ("a", "u", "3")
    assert (node.labels, node.annotations) == ({"l": "1"}, {"x": "y"})
    assert node.capacity == {"cpu": "8"}
    assert node.allocatable == {"cpu": "7500m", "volcano.sh/vgpu-number": "40"}
    assert node.taints == (Taint(key="gpu", effect="NoSchedule"),)
    assert node.unschedulable
    assert not node.ready


def test_a_node_that_says_nothing_of_itself_is_judged_by_its_taints():
    assert decode_node(b'{"metadata":{"name":"a"}}').ready


@pytest.mark.parametrize("text", [b"", b"[]", b'{"status":{"allocatable":[]}}'])
def test_what_is_no_node_is_refused(text):
    with pytest.raises(InvalidRequestError):
        decode_node(text)


def test_a_config_map_is_names_and_texts():
    found = decode_config_map(b'{"metadata":{"name":"c","namespace":"n","resourceVersion":"1"},"data":{"k":"v"}}')
    assert (found.namespace, found.name, found.resource_version, found.texts) == ("n", "c", "1", {"k": "v"})
    assert decode_config_map(b'{"metadata":{"name":"c"}}').texts == {}


def test_when_a_node_was_made_and_that_it_is_being_deleted_are_read():
    meta = {"name": "a", "creationTimestamp": "2027-01-15T08:00:00Z"}
    found = node_from_object({"metadata": meta})
    assert (found.created_s, found.deleting) == (1_800_000_000, False)
    assert node_from_object({"metadata": meta | {"deletionTimestamp": "2027-01-15T08:00:00Z"}}).deleting
