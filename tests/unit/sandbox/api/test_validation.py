"""Objects are completed and refused by the rules that matter to shares."""

import pytest

from sandbox.api.defaults import complete, fresh
from sandbox.api.errors import StatusError
from sandbox.api.resources import Catalogue
from sandbox.api.validation import check_bindable, check_binding, check_create, check_update

CRDS = next(kind for kind in Catalogue() if kind.plural == "customresourcedefinitions")
PODS = next(kind for kind in Catalogue() if kind.resource == "pods")


def pod(limits=None, requests=None, **metadata):
    resources = {"limits": limits} if limits else {}
    if requests:
        resources["requests"] = requests
    obj = {
        "metadata": {"name": "p", "namespace": "default", **metadata},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]},
    }
    complete(PODS, obj)
    return obj


def refusal(obj):
    with pytest.raises(StatusError) as caught:
        check_create(PODS, obj)
    assert caught.value.code == 422
    return caught.value.message


def test_requests_are_filled_from_limits():
    resources = pod(limits={"volcano.sh/vgpu-number": 1, "cpu": "1000m"})["spec"]["containers"][0]["resources"]
    assert resources["requests"] == {"volcano.sh/vgpu-number": "1", "cpu": "1"} == resources["limits"]


def test_limits_are_not_filled_from_requests():
    message = refusal(pod(requests={"volcano.sh/gpu-memory": "1024"}))
    assert "Limit must be set for non overcommitable resources" in message


@pytest.mark.parametrize(
    ("limits", "requests", "expected"),
    [
        ({"volcano.sh/vgpu-number": "500m"}, None, "must be an integer"),
        ({"volcano.sh/vgpu-number": "-1"}, None, "must be greater than or equal to 0"),
        ({"volcano.sh/vgpu-number": "2"}, {"volcano.sh/vgpu-number": "1"}, "must be equal to volcano.sh/vgpu-number"),
        ({"cpu": "1"}, {"cpu": "2"}, "must be less than or equal to cpu limit"),
        ({"gpu": "1"}, None, "must be a standard resource"),
        ({"volcano.sh/vgpu memory": "1"}, None, "name part must consist of"),
    ],
)
def test_resources_that_the_real_server_refuses_are_refused(limits, requests, expected):
    assert expected in refusal(pod(limits=limits, requests=requests))


@pytest.mark.parametrize("quantity", ["1Ki", "1e3", "9223372036854775808", "1e308"])
def test_odd_quantities_that_the_real_server_accepts_are_accepted(quantity):
    check_create(PODS, pod(limits={"volcano.sh/vgpu-number": quantity}))


def test_annotations_of_262144_bytes_pass_and_one_more_does_not():
    check_create(PODS, pod(annotations={"k": "x" * (262_144 - 1)}))
    assert "may not be more than 262144 bytes" in refusal(pod(annotations={"k": "x" * 262_144}))


@pytest.mark.parametrize("key", ["bad key!", "a/b c", "/x", "x/", "a/b/c", "-x", "x" * 64])
def test_a_key_that_is_no_qualified_name_is_refused(key):
    assert "name part" in refusal(pod(annotations={key: ""}))


def test_a_null_annotation_becomes_empty():
    assert pod(annotations={"k": None})["metadata"]["annotations"] == {"k": ""}


@pytest.mark.parametrize(
    ("change", "allowed"),
    [
        (lambda spec: spec["containers"][0].update(image="other"), True),
        (lambda spec: spec["tolerations"].append({"key": "x", "operator": "Exists"}), True),
        (lambda spec: spec.update(nodeName="n1"), False),
        (lambda spec: spec.update(schedulerName="cardshare"), False),
        (lambda spec: spec["containers"][0]["resources"].update(limits={"cpu": "2"}, requests={"cpu": "2"}), False),
        (lambda spec: spec.update(schedulingGates=[{"name": "x/y"}]), False),
        (lambda spec: spec.update(nodeSelector={"a": "b"}), False),
        (lambda spec: spec.update(tolerations=[]), False),
    ],
    ids=["image", "toleration", "node", "scheduler", "resources", "gate", "selector", "toleration-gone"],
)
def test_a_pods_spec_hardly_changes(change, allowed):
    old = pod()
    old["spec"]["tolerations"] = [{"key": "kept", "operator": "Exists"}]
    new = fresh(old)
    change(new["spec"])
    if allowed:
        check_update(PODS, new, old)
        return
    with pytest.raises(StatusError) as caught:
        check_update(PODS, new, old)
    assert caught.value.code == 422


def test_a_gated_pods_selector_may_change():
    old = pod()
    old["spec"]["schedulingGates"] = [{"name": "x/y"}]
    new = fresh(old)
    new["spec"]["nodeSelector"] = {"a": "b"}
    del new["spec"]["schedulingGates"]
    check_update(PODS, new, old)


def binding(node="n1", **metadata):
    return {"metadata": {"name": "p", **metadata}, "target": {"kind": "Node", "name": node}}


def stored(spec=None, **metadata):
    return {"metadata": {"name": "p", "uid": "u1", "resourceVersion": "7", **metadata}, "spec": spec or {}}


def test_a_binding_names_the_node():
    assert check_binding(binding(), "p") == "n1"


@pytest.mark.parametrize(
    ("asked", "code", "words"),
    [
        (binding(node=""), 500, "target.name: Required value"),
        (binding(name="q"), 400, "name in URL does not match name in Binding object"),
        ({"metadata": {}, "target": {"name": "n1"}}, 400, "name in URL does not match name in Binding object"),
    ],
    ids=["no-target", "another-name", "no-name"],
)
def test_a_binding_is_judged_by_itself_as_measured(asked, code, words):
    with pytest.raises(StatusError) as caught:
        check_binding(asked, "p")
    assert (caught.value.code, caught.value.message) == (code, words)


def test_the_pod_that_is_meant_is_bound():
    check_bindable(stored(), binding(uid="u1", resourceVersion="7"), "p")


@pytest.mark.parametrize(
    ("found", "asked", "code", "words"),
    [
        (stored(), binding(uid="u2"), 409, "UID in precondition: u2"),
        (stored(), binding(resourceVersion="6"), 409, "ResourceVersion in precondition: 6"),
        (stored({"nodeName": "n0"}), binding(), 409, 'already assigned to node "n0"'),
        (stored({"schedulingGates": [{"name": "g"}]}), binding(), 409, "non-empty .spec.schedulingGates"),
        (stored(deletionTimestamp="2026-01-01T00:00:00Z"), binding(), 409, "is being deleted"),
        (None, binding(), 404, "not found"),
    ],
    ids=["uid", "version", "bound", "gated", "deleting", "no-pod"],
)
def test_a_binding_is_refused_as_measured(found, asked, code, words):
    with pytest.raises(StatusError) as caught:
        check_bindable(found, asked, "p")
    assert caught.value.code == code
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        pytest.param({"versions": None}, "must be given as text", id="another type"),
        pytest.param({"versions": []}, "at least one served version", id="no version"),
        pytest.param({"group": 5}, "must be given as text", id="no text"),
        pytest.param({"names": {"plural": "as"}}, "spec: Required value: kind", id="no kind"),
    ],
)
def test_a_definition_that_would_break_discovery_is_refused(changes, told):
    spec = {"group": "a.example", "names": {"kind": "A", "plural": "as"}, "versions": [{"name": "v1"}], **changes}
    with pytest.raises(StatusError, match=told):
        check_create(CRDS, {"metadata": {"name": "as.a.example"}, "spec": spec})


def test_every_404_has_details_because_kubectl_reads_them():
    assert StatusError(404, "NotFound", "no").status()["details"] == {}
    assert "details" not in StatusError(400, "BadRequest", "no").status()
