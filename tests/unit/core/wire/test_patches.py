import json

import jsonpatch
import pytest

from core.wire.patches import Edit, encode_patch, pointer, present_in
from core.wire.reviewed_pods import PodObject
from core.wire.reviewed_pods import present_in as present_in_pod


def apply(document, *edits):
    patch = encode_patch(edits, present_in(document))
    return jsonpatch.apply_patch(document, json.loads(patch) if patch else [])


def test_nothing_to_do_is_no_patch():
    assert encode_patch([], present_in({})) == b""


def test_missing_parents_are_made_with_all_that_belongs_into_them():
    edits = [
        Edit(("a", "b"), {"x/y": "1", "z~": "2", "gone": None}),
        Edit(("a",), {"c": "3"}),
        Edit(("d",), {"e": None}),
    ]
    patch = json.loads(encode_patch(edits, present_in({})))
    assert patch == [{"op": "add", "path": "/a", "value": {"b": {"x/y": "1", "z~": "2"}, "c": "3"}}]


def test_what_is_there_is_replaced_and_what_is_not_is_added():
    edits = [Edit(("a",), {"x": "1", "y": "2"})]
    assert [one["op"] for one in json.loads(encode_patch(edits, present_in({"a": {"x": "0"}})))] == ["replace", "add"]


def test_what_is_absent_is_not_removed():
    assert apply({"a": {"x": "0"}}, Edit(("a",), {"x": None, "y": None}), Edit(("b",), {"c": None})) == {"a": {}}


def test_null_is_absent():
    assert apply({"a": None}, Edit(("a",), {"x": "1"})) == {"a": {"x": "1"}}


def test_lists_are_walked():
    assert apply({"a": [{"b": {}}]}, Edit(("a", "0", "b"), {"c": "1"})) == {"a": [{"b": {"c": "1"}}]}


@pytest.mark.parametrize(("name", "shown"), [("a/b", "/a~1b"), ("~", "/~0"), ("~1", "/~01"), ("", "/")])
def test_names_are_escaped(name, shown):
    assert pointer((name,)) == shown


def test_a_decoded_pod_answers_as_its_json():
    document = {
        "metadata": {"annotations": {"k": "v"}},
        "spec": {"containers": [{"name": "a"}, {"name": "b", "resources": {"limits": {"x": "1"}}}]},
    }
    import msgspec

    by_pod, by_json = present_in_pod(msgspec.convert(document, PodObject)), present_in(document)
    for path, names in (
        (("metadata", "annotations"), "k no"),
        (("spec",), "schedulerName"),
        (("spec", "initContainers", "0", "resources", "limits"), "x"),
        (("spec", "containers", "0", "resources", "limits"), "x"),
        (("spec", "containers", "1", "resources", "limits"), "x y"),
        (("spec", "containers", "1", "resources", "requests"), "x"),
    ):
        pod, plain = by_pod(path), by_json(path)
        assert pod.depth == plain.depth, path
        assert all((name in pod.names) == (name in plain.names) for name in names.split()), path
