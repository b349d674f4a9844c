"""Patches do what the real server's do with them."""

from typing import Any

import pytest

from sandbox.api.errors import StatusError
from sandbox.api.patching import json_patch, merge_patch, strategic_merge

POD: dict[str, Any] = {
    "metadata": {"name": "p", "labels": {"a": "1"}, "finalizers": ["x/one"]},
    "spec": {"containers": [{"name": "a", "image": "1", "env": [{"name": "E", "value": "1"}]}, {"name": "b"}]},
    "status": {"conditions": [{"type": "Ready", "status": "False"}]},
}


def containers(patched):
    return [c["name"] for c in patched["spec"]["containers"]]


def test_a_merge_patch_removes_by_null_and_replaces_lists():
    patched = merge_patch(POD, {"metadata": {"labels": {"a": None, "b": "2"}}, "spec": {"containers": []}})
    assert patched["metadata"]["labels"] == {"b": "2"}
    assert patched["spec"]["containers"] == []
    assert POD["metadata"]["labels"] == {"a": "1"}


def test_a_strategic_patch_merges_lists_by_their_keys():
    patch = {"spec": {"containers": [{"name": "a", "env": [{"name": "F", "value": "2"}]}, {"name": "c"}]}}
    patched = strategic_merge(POD, patch)
    assert containers(patched) == ["a", "b", "c"]
    assert patched["spec"]["containers"][0] == {
        "name": "a",
        "image": "1",
        "env": [{"name": "E", "value": "1"}, {"name": "F", "value": "2"}],
    }


def test_conditions_are_told_apart_by_type():
    patch = {
        "status": {"conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}]}
    }
    assert strategic_merge(POD, patch)["status"]["conditions"] == [
        {"type": "Ready", "status": "True"},
        {"type": "PodScheduled", "status": "True"},
    ]


def test_directives_delete_and_replace():
    deleted = strategic_merge(POD, {"spec": {"containers": [{"name": "a", "$patch": "delete"}]}})
    replaced = strategic_merge(POD, {"metadata": {"labels": {"$patch": "replace", "z": "9"}}})
    assert containers(deleted) == ["b"]
    assert replaced["metadata"]["labels"] == {"z": "9"}


def test_values_of_a_merged_list_are_added_and_deleted():
    added = strategic_merge(POD, {"metadata": {"finalizers": ["x/two"]}})
    gone = strategic_merge(POD, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["x/one"]}})
    assert added["metadata"]["finalizers"] == ["x/one", "x/two"]
    assert gone["metadata"]["finalizers"] == []


def test_a_list_without_a_merge_key_is_replaced():
    node = {"spec": {"taints": [{"key": "a"}]}}
    assert strategic_merge(node, {"spec": {"taints": [{"key": "b"}]}})["spec"]["taints"] == [{"key": "b"}]


def test_an_element_without_its_key_is_refused():
    with pytest.raises(StatusError, match="merge key"):
        strategic_merge(POD, {"spec": {"containers": [{"image": "2"}]}})


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/metadata/name", "value": "q"},
        {"op": "remove", "path": "/metadata/annotations/x"},
        {"op": "add", "path": "/nowhere/at/all", "value": 1},
        {"op": "fly", "path": "/metadata"},
        {"op": "add"},
        "no operation",
    ],
)
def test_a_json_patch_that_does_not_apply_is_invalid_and_no_conflict(operation):
    with pytest.raises(StatusError) as caught:
        json_patch(POD, [operation])
    assert (caught.value.code, caught.value.reason) == (422, "Invalid")
