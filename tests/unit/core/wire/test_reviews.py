import base64
import json

import pytest

from core.errors import InvalidRequestError
from core.wire.reviews import ObjectKind, Operation, UnreadableObjectError, admit, decode_review, deny, encode_answer


def body(**request):
    found = {
        "uid": "r1",
        "kind": {"group": "apps", "version": "v1", "kind": "Deployment"},
        "operation": "UPDATE",
        "subResource": "scale",
        "namespace": "n",
        "name": "x",
        "userInfo": {"username": "alice", "groups": ["a"]},
        "object": {"a": 1},
        "oldObject": None,
        "dryRun": True,
        "options": {},
    } | request
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": found}


def test_a_review_is_read():
    found = decode_review(json.dumps(body()).encode())
    assert (found.uid, found.operation) == ("r1", Operation.UPDATE)
    assert found.kind == ObjectKind(group="apps", version="v1", kind="Deployment")
    assert (found.sub_resource, found.namespace, found.name, found.user_name) == ("scale", "n", "x", "alice")
    assert found.dry_run


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}',
        json.dumps(body(uid="")).encode(),
        json.dumps(body(uid=5)).encode(),
        json.dumps(body(operation="PATCH")).encode(),
        json.dumps(body() | {"apiVersion": "admission.k8s.io/v1beta1"}).encode(),
        json.dumps(body() | {"kind": "Pod"}).encode(),
        json.dumps(body()).encode() + b"{}",
        b"\xef\xbb\xbf" + json.dumps(body()).encode(),
        b"[" * 200_000,
        b'{"request":{"object":' + b'{"a":' * 200_000,
        b'{"apiVersion":"\xff"}',
    ],
    ids=lambda text: text[:12].hex(),
)
def test_what_is_no_review_is_refused(text):
    with pytest.raises(InvalidRequestError):
        decode_review(text)


PODS = {"kind": {"version": "v1", "kind": "Pod"}, "subResource": "", "dryRun": None}


def test_the_pods_of_a_review_are_read():
    new, old = {"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}
    found = decode_review(json.dumps(body(**PODS, object=new, oldObject=old)).encode())
    assert found.is_changed_pod
    assert found.object
    assert found.old_object
    assert (found.object.metadata.name, found.old_object.metadata.name) == ("a", "b")


@pytest.mark.parametrize(
    ("objects", "place"),
    [
        ({"object": None}, "object"),
        ({"object": {}, "oldObject": None}, "oldObject"),
        ({"object": {"metadata": {"name": 5}}}, "request.object.metadata.name"),
        ({"object": "text"}, "request.object"),
    ],
)
def test_an_object_that_is_no_pod_leaves_a_uid_to_answer_to(objects, place):
    with pytest.raises(UnreadableObjectError) as caught:
        decode_review(json.dumps(body(**PODS, **objects)).encode())
    assert caught.value.uid == "r1"
    assert place in str(caught.value)


def test_objects_of_other_kinds_are_not_judged():
    found = decode_review(json.dumps(body(object={"metadata": 5}, operation="CREATE")).encode())
    assert not found.is_new_pod
    assert found.object is None


BINDING = {"kind": {"version": "v1", "kind": "Binding"}, "operation": "CREATE", "dryRun": None}


@pytest.mark.parametrize("sub_resource", ["binding", ""])
def test_a_binding_is_read_as_far_as_its_metadata_go(sub_resource):
    sent = {"metadata": {"name": "p", "annotations": {"a": "b"}}, "target": {"kind": "Node", "name": "n"}}
    found = decode_review(json.dumps(body(**BINDING, subResource=sub_resource, object=sent)).encode())
    assert (found.is_binding, found.is_new_pod) == (True, False)
    assert found.object
    assert found.object.metadata.annotations == {"a": "b"}


@pytest.mark.parametrize("sent", [None, {"metadata": {"annotations": ["a"]}}], ids=["none", "unreadable"])
def test_a_binding_that_cannot_be_read_leaves_a_uid_to_answer_to(sent):
    with pytest.raises(UnreadableObjectError) as caught:
        decode_review(json.dumps(body(**BINDING, subResource="binding", object=sent)).encode())
    assert caught.value.uid == "r1"


def test_an_admitting_answer_carries_its_patch():
    answer = json.loads(encode_answer("u", admit(b'[{"op":"add"}]', ["w"])))
    assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response = answer["response"]
    assert (response["uid"], response["allowed"], response["patchType"]) == ("u", True, "JSONPatch")
    assert base64.b64decode(response["patch"]) == b'[{"op":"add"}]'
    assert response["warnings"] == ["w"]


def test_an_answer_without_a_patch_names_no_patch_type():
    assert json.loads(encode_answer('u"\n', admit()))["response"] == {"uid": 'u"\n', "allowed": True}


def test_a_denying_answer_tells_why():
    response = json.loads(encode_answer("u", deny("because", warnings=["w"])))["response"]
    assert response == {
        "uid": "u",
        "allowed": False,
        "warnings": ["w"],
        "status": {"message": "because", "reason": "Invalid", "code": 422},
    }


def test_warnings_are_one_short_line_each():
    reply = admit(warnings=["a\nb\x1b[31m" + "x" * 5_000] * 50)
    warnings = json.loads(encode_answer("u", reply))["response"]["warnings"]
    assert len(warnings) * 256 < 4_096
    assert all(len(one) <= 256 and one.isprintable() for one in warnings)
