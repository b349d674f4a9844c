"""Admission as the API server sees it: a review in, a pod out, applied by a library that is not ours."""

import json
import re
from dataclasses import replace
from typing import Any

import jsonpatch
import pytest

from core.admission.mutate import mutate, validate
from core.admission.rulebook import rulebook
from core.admission.verdict import NOTHING
from core.catalog import standard_catalog
from core.errors import InvalidRequestError
from core.settings import SHIPPED_CHIPS, AdmissionSettings, AscendTable, HamiTable, OnOtherNodes, Settings, Tables
from core.wire.reviews import decode_review

BOOK = rulebook(Settings(), Tables(), standard_catalog())
USER = "alice"
CONTROLLER = "system:serviceaccount:cardshare-system:cardshare-controller"
PLUGIN = "system:serviceaccount:kube-system:volcano-device-plugin"

VGPU = {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "3000"}
BOTH = {"limits": VGPU, "requests": VGPU}
MODE = "volcano.sh/vgpu-mode"
INDEX = "volcano.sh/gpu-index"
WISH = "cardshare.io/gpu-index"
LAST = "kubectl.kubernetes.io/last-applied-configuration"


def pod(
    limits=None, *, annotations=None, requests=None, node="", scheduler="default-scheduler", container=None, **meta
):
    resources = {}
    if limits is not None:
        resources["limits"] = dict(limits)
    if requests is not None:
        resources["requests"] = dict(requests)
    found: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "n", "uid": "u", **meta},
        "spec": {
            "schedulerName": scheduler,
            "containers": [{"name": "main", "image": "i", "resources": resources, **(container or {})}],
        },
    }
    if annotations is not None:
        found["metadata"]["annotations"] = dict(annotations)
    if node:
        found["spec"]["nodeName"] = node
    return found


class Answer:
    def __init__(self, verdict, patch, document):
        self.allowed = verdict.allowed
        self.message = verdict.message
        self.warnings = [str(one) for one in verdict.warnings]
        self.patch = json.loads(patch) if patch else []
        self.pod = jsonpatch.apply_patch(document, self.patch)

    @property
    def annotations(self):
        return self.pod["metadata"].get("annotations", {})

    @property
    def resources(self):
        return self.pod["spec"]["containers"][0]["resources"]

    @property
    def codes(self):
        return [one.split(" ")[0] for one in self.message.split("; ") if one.startswith("CS")]


def question(operation, new, old=None, user=USER, **fields):
    body = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "r1",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "operation": operation,
            "namespace": "n",
            "userInfo": {"username": user},
            "object": new,
            "oldObject": old,
            **fields,
        },
    }
    return json.dumps(body).encode()


def ask(operation, new, old=None, user=USER, book=BOOK, **fields):
    verdict, patch = mutate(decode_review(question(operation, new, old, user, **fields)), book)
    return Answer(verdict, patch, new)


def create(new, **fields):
    answer = ask("CREATE", new, **fields)
    if answer.allowed:
        again = ask("CREATE", answer.pod, **fields)
        assert again.patch == [], "asked again, there is nothing left to do"
    return answer


def update(old, new, **fields):
    return ask("UPDATE", new, old, **fields)


def stored(limits=VGPU, *, node="", annotations=None):
    """A pod as it is stored after its creation."""
    found = create(pod(limits, annotations=annotations)).pod
    return _bound(found, node) if node else found


def _bound(document, node):
    return {**document, "spec": {**document["spec"], "nodeName": node}}


def changed(document, **annotations):
    """*document* with annotations set by key (None = removed)."""
    found = {**document["metadata"].get("annotations", {})}
    for key, value in annotations.items():
        found.pop(key, None)
        if value is not None:
            found[key] = value
    return {**document, "metadata": {**document["metadata"], "annotations": found}}


# Completing


def test_a_pod_that_asks_for_nothing_is_left_alone():
    answer = create(pod({"cpu": "1"}, annotations={"a/b c": "d"}))
    assert (answer.allowed, answer.patch, answer.warnings) == (True, [], [])


def test_a_pod_with_shares_gets_our_scheduler_and_requests():
    answer = create(pod(VGPU))
    assert answer.pod["spec"]["schedulerName"] == "cardshare"
    assert answer.resources == {"limits": VGPU, "requests": VGPU}


@pytest.mark.parametrize(
    "limits",
    [{"volcano.sh/vgpu-memory": "1"}, {"volcano.sh/vgpu-cores": "10"}, {"volcano.sh/vgpu-memory-percentage": "50"}],
)
def test_a_share_without_a_number_is_one_card(limits):
    answer = create(pod(limits))
    assert answer.resources["limits"] == {**limits, "volcano.sh/vgpu-number": "1"}
    assert answer.resources["requests"] == answer.resources["limits"]


def test_limits_are_filled_from_requests():
    answer = create(pod(requests={"volcano.sh/gpu-memory": "1024"}))
    assert answer.resources["limits"] == {"volcano.sh/gpu-memory": "1024"}


def test_quantities_are_written_plainly():
    answer = create(pod({"volcano.sh/gpu-memory": "1k", "cpu": "1e3"}))
    assert answer.resources["limits"] == {"volcano.sh/gpu-memory": "1000", "cpu": "1e3"}


def test_missing_parents_are_made_once():
    document = pod(annotations={})
    document["spec"]["containers"][0].pop("resources")
    document["spec"]["containers"].append({"name": "b", "resources": {"requests": {"volcano.sh/vgpu-memory": "5"}}})
    answer = create(document)
    assert answer.pod["spec"]["containers"][1]["resources"]["limits"] == {
        "volcano.sh/vgpu-memory": "5",
        "volcano.sh/vgpu-number": "1",
    }
    assert "resources" not in answer.pod["spec"]["containers"][0]


@pytest.mark.parametrize(
    ("scheduler", "after"), [("", "cardshare"), ("cardshare", "cardshare"), ("volcano", "volcano"), ("mine", "mine")]
)
def test_only_the_default_scheduler_is_replaced(scheduler, after):
    assert create(pod(VGPU, scheduler=scheduler)).pod["spec"]["schedulerName"] == after


def test_an_absent_scheduler_name_is_added():
    document = pod(VGPU)
    del document["spec"]["schedulerName"]
    assert create(document).pod["spec"]["schedulerName"] == "cardshare"


@pytest.mark.parametrize(
    ("text", "after", "told"),
    [("MIG ", "mig", True), ("hami-core", "hami-core", False), ("", None, False), ("  ", None, False)],
)
def test_a_mode_is_trimmed_and_lower_cased(text, after, told):
    answer = create(pod(VGPU, annotations={MODE: text}))
    assert answer.annotations.get(MODE) == after
    assert bool(answer.warnings) is told


def test_the_namespaces_mode_is_the_default():
    settings = Settings(admission=AdmissionSettings(default_mode={"n": "mig"}))
    book = rulebook(settings, Tables(), standard_catalog())
    assert create(pod(VGPU), book=book).annotations[MODE] == "mig"
    assert create(pod(VGPU, annotations={MODE: "mps"}), book=book).annotations[MODE] == "mps"
    assert create(pod({"volcano.sh/gpu-memory": "1"}), book=book).annotations == {}


NPU = {"ring-controller.atlas": "ascend-310P"}
CHIP = {"huawei.com/Ascend310P": "1"}


@pytest.mark.parametrize(
    ("labels", "after"),
    [
        (NPU, {**NPU, "vnpu-level": "low", "vnpu-dvpp": "null"}),
        ({**NPU, "vnpu-level": "high"}, {**NPU, "vnpu-level": "high", "vnpu-dvpp": "null"}),
        ({**NPU, "vnpu-level": "low", "vnpu-dvpp": "null"}, {**NPU, "vnpu-level": "low", "vnpu-dvpp": "null"}),
    ],
    ids=["none", "one", "both"],
)
def test_a_slice_of_an_npu_says_by_labels_what_it_is(labels, after):
    answer = create(pod({"huawei.com/npu-core": "2"}, labels=labels))
    assert answer.pod["metadata"]["labels"] == after
    assert answer.warnings == []


def test_whole_npus_have_no_labels_to_choose_by():
    assert create(pod({"huawei.com/npu-core": "8"}, labels=NPU)).pod["metadata"]["labels"] == NPU


def with_runtime_class(name):
    chips = tuple(replace(one, runtime_class=name) for one in SHIPPED_CHIPS if one.common_word == "Ascend310P")
    return rulebook(Settings(), Tables(ascend=AscendTable(chips=chips)), standard_catalog())


def test_a_pod_with_chips_gets_the_runtime_class_of_its_chip_type():
    answer = create(pod(CHIP), book=with_runtime_class("ascend"))
    assert answer.pod["spec"]["runtimeClassName"] == "ascend"
    assert answer.warnings == [
        "CS117 spec.runtimeClassName: ascend was added, as device-config.yaml has it for Ascend310P"
    ]


def test_a_runtime_class_is_kept_and_none_is_made_up():
    own = pod(CHIP)
    own["spec"]["runtimeClassName"] = "mine"
    assert create(own, book=with_runtime_class("ascend")).pod["spec"]["runtimeClassName"] == "mine"
    assert "runtimeClassName" not in create(pod(CHIP)).pod["spec"]
    assert "runtimeClassName" not in create(pod(VGPU), book=with_runtime_class("ascend")).pod["spec"]


@pytest.mark.parametrize(
    "key", ["huawei.com/vnpu-mode", "hami.io/use-Ascend310P-uuid", "hami.io/no-use-Ascend310P-uuid"]
)
def test_what_a_pod_says_of_its_chips_is_free_while_it_waits_and_frozen_once_it_is_bound(key):
    old = create(pod(CHIP)).pod
    assert update(old, changed(old, **{key: "hami-core"})).allowed
    bound = _bound(old, "node-a")
    assert update(bound, changed(bound, **{key: "hami-core"})).codes == ["CS305"]


def test_an_ill_wish_for_chips_is_denied_while_the_pod_waits():
    old = create(
        pod({**CHIP, "huawei.com/Ascend310P-core": "20"}, annotations={"huawei.com/vnpu-mode": "hami-core"})
    ).pod
    assert update(old, changed(old, **{"huawei.com/vnpu-mode": None})).codes == ["CS208"]


HAMIS = rulebook(Settings(), Tables(hami=HamiTable(installed=True, runtime_class="nvidia")), standard_catalog())


@pytest.mark.parametrize(
    ("limits", "book", "name"),
    [(CHIP, with_runtime_class("ascend"), "ascend"), ({"nvidia.com/gpu": "1"}, HAMIS, "nvidia")],
)
def test_a_manifest_without_the_runtime_class_can_replace_the_pod(limits, book, name):
    old = create(pod(limits), book=book).pod
    assert update(old, pod(limits), book=book).pod["spec"]["runtimeClassName"] == name


# Protecting


def test_an_assignment_is_stripped_from_every_new_pod_and_named():
    forged = {"volcano.sh/vgpu-ids-new": "GPU-0,NVIDIA,1,1:", "hami.io/Ascend310P-devices-allocated": "x", "keep": "1"}
    answer = create(pod({"cpu": "1"}, annotations=forged))
    assert answer.annotations == {"keep": "1"}
    assert answer.warnings == [
        "CS301 removed, because only schedulers and device plugins write it: "
        "hami.io/Ascend310P-devices-allocated, volcano.sh/vgpu-ids-new"
    ]
    assert answer.pod["spec"]["schedulerName"] == "default-scheduler"


@pytest.mark.parametrize("key", [
    "volcano.sh/vgpu-node", "volcano.sh/vgpu-time", "volcano.sh/devices-to-allocate", "volcano.sh/bind-phase",
    "volcano.sh/bind-time", "volcano.sh/predicate-time", "volcano.sh/gpu-assigned", "predicate-time",
    "hami.io/vgpu-node", "hami.io/Ascend910B4-1-devices-to-allocate", "huawei.com/Ascend910A", "huawei.com/npu-core",
    "huawei.com/AscendReal", "huawei.com/kltDev", "cardshare.io/segment-queue",
])  # fmt: skip
def test_every_key_of_the_machines_is_protected(key):
    assert key not in create(pod(VGPU, annotations={key: "x"})).annotations
    assert update(stored(), changed(stored(), **{key: "x"})).codes == ["CS301"]


def test_a_wish_by_index_is_moved_to_the_users_key():
    answer = create(pod({"volcano.sh/gpu-number": "2"}, annotations={INDEX: "0,2"}))
    assert answer.annotations == {WISH: "0,2"}
    assert answer.warnings[0].startswith("CS311 annotation volcano.sh/gpu-index was moved")


def test_cards_to_avoid_are_moved_to_the_users_key():
    answer = create(pod({"volcano.sh/gpu-memory": "1"}, annotations={"volcano.sh/gpu-unhealthy-ids": "3"}))
    assert answer.annotations == {"cardshare.io/avoid-cards": "3"}


def test_an_index_on_a_pod_without_cards_is_stripped():
    assert create(pod({"cpu": "1"}, annotations={INDEX: "0"})).annotations == {}


def test_a_mirror_pod_is_admitted_whatever_it_asks():
    document = pod(VGPU, node="a", annotations={"kubernetes.io/config.mirror": "h", INDEX: "0"})
    answer = ask("CREATE", document, user="system:node:a")
    assert answer.allowed
    assert answer.pod["spec"] == document["spec"]
    assert answer.annotations == {"kubernetes.io/config.mirror": "h"}
    assert not ask("CREATE", document, user=USER).allowed


# Denying


@pytest.mark.parametrize(
    ("document", "code", "words"),
    [
        (pod(VGPU, annotations={MODE: "hami-cor"}), "CS104", "found 'hami-cor'; did you mean 'hami-core'?"),
        (pod({**VGPU, "volcano.sh/vgpu-cores": "150"}), "CS103", "found '150'"),
        (pod({**VGPU, "volcano.sh/vgpu-memory-percentage": "0"}), "CS102", "1 to 100"),
        (pod({**VGPU, "volcano.sh/vgpu-memory": "1500m"}), "CS101", 'container "main"'),
        (pod({"volcano.sh/gpu-memory": "1", **VGPU}), "CS201", "vgpu"),
        (pod(VGPU, annotations={INDEX: "0,x"}), "CS105", "found '0,x'"),
        (pod(VGPU, annotations={INDEX: "0", WISH: "1"}), "CS206", "write cardshare.io/gpu-index only"),
        (
            pod(VGPU, annotations={"nvidia.com/use-gputype": "A100,T4", "nvidia.com/nouse-gputype": "T4"}),
            "CS206",
            "found 'T4'",
        ),
        (pod(VGPU, annotations={"volcano.sh/vgpu-use-gpuuuid": "GPU-1;GPU-2"}), "CS107", "joined by ','"),
        (pod(VGPU, annotations={"nvidia.com/use-gputype": "A1\u001b00"}), "CS108", "\\x1b"),
        (pod(VGPU, requests={**VGPU, "volcano.sh/vgpu-memory": "1"}), "CS207", "request volcano.sh/vgpu-memory"),
        (pod(VGPU, node="node-a"), "CS302", "nodeSelector"),
        (pod(VGPU, container={"securityContext": {"privileged": True}}), "CS303", "privileged"),
        (pod(VGPU, container={"env": [{"name": "CUDA_DEVICE_SM_LIMIT", "value": "9"}]}), "CS304", "CUDA_DEVICE_SM"),
        (pod(VGPU, container={"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}), "CS304", "NVIDIA_VIS"),
    ],
    ids=lambda value: value if isinstance(value, str) and value.startswith("CS") else "",
)
def test_what_cannot_be_mended_is_denied_with_place_value_and_remedy(document, code, words):
    answer = create(document)
    assert not answer.allowed
    assert code in answer.codes
    assert words in answer.message


def test_every_violation_is_told_at_once():
    answer = create(pod({**VGPU, "volcano.sh/vgpu-cores": "150"}, node="a", annotations={MODE: "x"}))
    assert {"CS103", "CS104", "CS302"} <= set(answer.codes)


def test_settings_let_pass_what_evades_limits():
    admission = AdmissionSettings(allow_privileged=True, allow_limit_overrides=True)
    book = rulebook(Settings(admission=admission), Tables(), standard_catalog())
    container = {"securityContext": {"privileged": True}, "env": [{"name": "CUDA_DISABLE_CONTROL", "value": "1"}]}
    assert create(pod(VGPU, container=container), book=book).allowed
    assert not create(pod(VGPU, container=container)).allowed


def test_what_is_no_pod_is_an_error_with_its_place():
    with pytest.raises(InvalidRequestError, match=r"request\.object\.metadata\.name"):
        ask("CREATE", {"metadata": {"name": 5}})


def test_a_pod_without_a_namespace_has_the_reviews():
    book = rulebook(Settings(admission=AdmissionSettings(default_mode={"n": "mig"})), Tables(), standard_catalog())
    document = pod(VGPU)
    del document["metadata"]["namespace"]
    assert create(document, book=book).annotations[MODE] == "mig"


@pytest.mark.parametrize(
    "fields",
    [
        {"operation": "DELETE"},
        {"operation": "CONNECT"},
        {"kind": {"group": "apps", "version": "v1", "kind": "Deployment"}},
        {"kind": {"group": "", "version": "v1", "kind": "Binding"}, "subResource": "binding"},
    ],
    ids=["delete", "connect", "deployment", "binding"],
)
def test_what_no_rule_names_is_admitted(fields):
    operation = fields.pop("operation", "CREATE")
    answer = ask(operation, pod(VGPU, node="a"), **fields)
    assert (answer.allowed, answer.patch) == (True, [])


def test_a_share_beside_a_whole_gpu_is_denied_at_once_and_not_only_when_it_is_ours():
    answer = create(pod({"volcano.sh/vgpu-number": "1", "nvidia.com/gpu": "1"}))
    assert answer.codes == ["CS201"]


# Changing


def test_what_only_machines_write_is_not_written_through_a_status_either():
    old = _bound(changed(stored(), **{"volcano.sh/vgpu-ids-new": "GPU-0,NVIDIA,3000,50:"}), "n1")
    assert update(old, {**old, "status": {"phase": "Running"}}, subResource="status").allowed
    network = changed(old, **{"cni.example/podIP": "10.0.0.1"})
    assert update(old, network, subResource="status").allowed
    smaller = changed(old, **{"volcano.sh/vgpu-ids-new": "GPU-0,NVIDIA,1,0:"})
    assert not update(old, smaller, subResource="status").allowed
    plugin = "system:serviceaccount:kube-system:volcano-device-plugin"
    assert update(old, smaller, user=plugin, subResource="status").allowed


def test_a_forged_update_is_denied_for_people_and_admitted_for_machines():
    old = stored()
    new = changed(old, **{"volcano.sh/bind-phase": "success"})
    assert update(old, new).codes == ["CS301"]
    for account in (CONTROLLER, PLUGIN):
        answer = update(old, new, user=account)
        assert (answer.allowed, answer.patch) == (True, [])


def test_another_scheduler_writes_on_its_own_pods_only():
    volcano = "system:serviceaccount:volcano-system:volcano-scheduler"
    settings = Settings(admission=AdmissionSettings(other_schedulers={"volcano": volcano}))
    named = rulebook(settings, Tables(), standard_catalog())
    theirs = create(pod(VGPU, scheduler="volcano")).pod
    assert update(theirs, changed(theirs, **{"volcano.sh/vgpu-node": "a"}), book=named, user=volcano).allowed
    ours = stored()
    assert not update(ours, changed(ours, **{"volcano.sh/vgpu-node": "a"}), book=named, user=volcano).allowed


@pytest.mark.parametrize(
    ("scheduler", "account"),
    [
        ("volcano", "system:serviceaccount:volcano-system:volcano-scheduler"),
        ("hami-scheduler", "system:serviceaccount:kube-system:hami-scheduler"),
    ],
)
def test_who_made_the_namespace_of_a_scheduler_that_nobody_named_writes_nothing(scheduler, account):
    theirs = create(pod(VGPU, scheduler=scheduler)).pod
    for key in ("volcano.sh/vgpu-node", "volcano.sh/vgpu-ids-new", "huawei.com/Ascend910B3"):
        assert update(theirs, changed(theirs, **{key: "a"}), user=account).codes == ["CS301"]


def test_removing_an_assignment_is_denied_as_well():
    old = changed(stored(), **{"volcano.sh/vgpu-ids-new": "x"})
    assert update(old, stored()).codes == ["CS301"]


def test_a_waiting_pods_mode_may_be_changed_and_is_judged():
    old = stored()
    assert update(old, changed(old, **{MODE: "mig"})).allowed
    assert update(old, changed(old, **{MODE: "MIG"})).annotations[MODE] == "mig"
    assert update(old, changed(old, **{MODE: "migg"})).codes == ["CS104"]


def test_a_bound_pods_selectors_are_frozen():
    old = stored(node="a", annotations={MODE: "mig"})
    answer = update(old, changed(old, **{MODE: "mps"}))
    assert answer.codes == ["CS305"]
    assert "delete it and create it again" in answer.message
    assert update(old, changed(old, **{MODE: "MIG"})).annotations[MODE] == "mig"
    assert update(old, changed(old, **{MODE: None})).codes == ["CS305"]


def test_a_waiting_pods_wish_is_replaced_by_the_newest():
    old = stored({"volcano.sh/gpu-number": "1"}, annotations={INDEX: "0"})
    answer = update(old, changed(old, **{INDEX: "3"}))
    assert answer.annotations == {WISH: "3"}


def test_a_bound_pods_wish_is_dropped_when_equal_and_denied_otherwise():
    waiting = stored({"volcano.sh/gpu-number": "2"}, annotations={INDEX: "0, 2"})
    old = changed(_bound(waiting, "a"), **{INDEX: "2,0", "volcano.sh/predicate-time": "1"})
    same = update(old, changed(old, **{INDEX: "0, 2"}))
    assert (same.allowed, same.annotations) == (True, old["metadata"]["annotations"])
    assert update(old, changed(old, **{INDEX: "1,2"})).codes == ["CS305"]
    assert update(old, changed(old, **{INDEX: None})).codes == ["CS301"]


def test_only_what_differs_is_judged():
    old = changed(pod({**VGPU, "volcano.sh/vgpu-cores": "150"}), **{MODE: "wrong"})
    assert update(old, changed(old, note="x")).allowed
    assert update(old, changed(old, **{MODE: "worse"})).codes == ["CS104"]


def dying(document, *finalizers):
    """*document* while it is being deleted."""
    meta = {**document["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": list(finalizers)}
    return {**document, "metadata": meta}


@pytest.mark.parametrize("finalizers", [(), ("a/b",)], ids=["no-finalizer", "finalizer"])
@pytest.mark.parametrize(
    ("limits", "had", "wanted", "code"),
    [
        ({"volcano.sh/gpu-memory": "1000"}, {INDEX: "0"}, {INDEX: "1"}, "CS305"),
        ({"volcano.sh/gpu-memory": "1000"}, {INDEX: "0"}, {INDEX: None}, "CS301"),
        ({"volcano.sh/gpu-number": "1"}, {INDEX: "0", WISH: "0"}, {INDEX: "1"}, "CS305"),
        (VGPU, {"volcano.sh/devices-to-allocate": "x"}, {"volcano.sh/devices-to-allocate": ""}, "CS301"),
        (VGPU, {"volcano.sh/vgpu-ids-new": "x"}, {"volcano.sh/vgpu-ids-new": "y"}, "CS301"),
        (VGPU, {MODE: "mig"}, {MODE: "mps"}, "CS305"),
        ({"huawei.com/Ascend310P": "1"}, {"huawei.com/Ascend310P": "x"}, {"huawei.com/Ascend310P": None}, "CS301"),
    ],
    ids=["index", "index-removed", "wish", "queue", "ids", "mode", "chip"],
)
def test_a_pod_that_is_being_deleted_is_judged_like_a_bound_one(limits, had, wanted, code, finalizers):
    bound = changed(stored(limits, node="a"), **had)
    assert update(bound, changed(bound, **wanted)).codes == [code]
    old = dying(bound, *finalizers)
    assert update(old, changed(old, **wanted)).codes == [code]


def test_no_cards_are_chosen_any_more_for_a_waiting_pod_that_is_being_deleted():
    old = dying(stored({"volcano.sh/gpu-memory": "1000"}), "a/b")
    answer = update(old, changed(old, **{INDEX: "1"}))
    assert (answer.codes, "the pod is being deleted" in answer.message) == (["CS305"], True)
    assert update(old, changed(old, note="x")).patch == []


@pytest.mark.parametrize("node", ["", "a"], ids=["waiting", "bound"])
def test_who_takes_a_finalizer_is_admitted_and_changes_nothing_else_of_the_cards(node):
    limits = {"volcano.sh/gpu-memory": "1000"}
    old = dying(changed(stored(limits, node=node), **{INDEX: "0", "volcano.sh/gpu-assigned": "true"}), "a/b", "c/d")
    new = dying(changed(old, **{INDEX: "1", "volcano.sh/gpu-assigned": None, MODE: "mig", "note": "x"}), "c/d")
    answer = update(old, new)
    assert answer.allowed
    assert answer.annotations == {**old["metadata"]["annotations"], "note": "x"}
    assert answer.pod["metadata"]["finalizers"] == ["c/d"]
    assert all("was left as it is; the pod is being deleted" in one for one in answer.warnings)
    assert len(answer.warnings) == 3
    assert update(old, answer.pod).patch == []
    # Exchanging it for another one takes it as well; adding one does not.
    assert update(old, dying(changed(old, **{INDEX: "1"}), "a/b", "c/d", "e/f")).codes == ["CS305"]


def test_removing_a_finalizer_has_no_answer():
    old = stored(node="a")
    new = {**old, "metadata": {**old["metadata"], "finalizers": []}}
    assert update(old, new).patch == []


MANIFESTS = {
    "hami-core": pod(VGPU, annotations={MODE: "hami-core"}, scheduler="volcano"),
    "default-scheduler-spelled": pod(VGPU),
    "memory-only": pod({"volcano.sh/vgpu-memory": "3000"}),
    "requests-only": pod(requests={"volcano.sh/gpu-memory": "1024"}),
    "si-quantity": pod({"volcano.sh/gpu-memory": "1k"}),
    "upper-case-mode": pod(VGPU, annotations={MODE: "MIG"}),
    "empty-mode": pod(VGPU, annotations={MODE: ""}),
    "index": pod({"volcano.sh/gpu-number": "2"}, annotations={INDEX: "0,2"}),
    "avoid": pod({"volcano.sh/gpu-number": "2"}, annotations={"volcano.sh/gpu-unhealthy-ids": "1"}),
    "forged": pod(VGPU, annotations={"volcano.sh/vgpu-ids-new": "x", "volcano.sh/gpu-assigned": "true"}),
}


def merged(live, manifest):
    """What a client's apply sends the second time: the manifest's own fields over the live object."""
    if not isinstance(manifest, dict):
        return manifest
    return {
        **live,
        **{key: merged(live.get(key) or {}, value) for key, value in manifest.items() if key != "containers"},
    }


@pytest.mark.parametrize("bound", [False, True], ids=["waiting", "bound"])
@pytest.mark.parametrize("name", MANIFESTS)
def test_the_same_manifest_applied_twice_succeeds(name, bound):
    manifest = MANIFESTS[name]
    manifest = changed(
        manifest, **{LAST: json.dumps({"metadata": {"annotations": manifest["metadata"].get("annotations")}})}
    )
    live = create(manifest).pod
    if bound:
        live = changed(_bound(live, "a"), **{"volcano.sh/gpu-index": "2,0", "volcano.sh/vgpu-ids-new": "GPU"})
    sent = merged(live, manifest)
    for i, container in enumerate(manifest["spec"]["containers"]):
        found = live["spec"]["containers"][i]
        sent["spec"]["containers"][i] = merged(found, container)
    answer = update(live, sent)
    assert answer.allowed, answer.message
    assert answer.pod == live


# Hand-off of pods with several containers

QUEUE = "cardshare.io/segment-queue"
LEFT = "volcano.sh/devices-to-allocate"
KEPT_BACK = {LEFT: "GPU-a,NVIDIA,1,1:", QUEUE: "vgpu/1 ;GPU-b,NVIDIA,2,2:"}


def test_a_plugins_erasure_is_answered_with_the_next_segment():
    old = changed(stored(node="a"), **KEPT_BACK)
    answer = update(old, changed(old, **{LEFT: ""}), user=PLUGIN)
    assert answer.allowed
    assert answer.annotations[LEFT] == ";GPU-b,NVIDIA,2,2:"
    assert QUEUE not in answer.annotations
    assert update(old, answer.pod, user=PLUGIN).patch == []


@pytest.mark.parametrize("user", [CONTROLLER, "system:serviceaccount:volcano-system:volcano-scheduler"])
def test_nobody_but_a_plugin_is_answered_with_a_segment(user):
    old = changed(stored(node="a"), **KEPT_BACK)
    answer = update(old, changed(old, **{LEFT: ""}), user=user)
    assert answer.annotations.get(LEFT) != ";GPU-b,NVIDIA,2,2:"


def test_nobody_but_a_machine_writes_a_queue():
    old = stored(node="a")
    assert update(old, changed(old, **{QUEUE: "vgpu/1 x"})).codes == ["CS301"]
    assert QUEUE not in create(pod(VGPU, annotations={QUEUE: "vgpu/1 x"})).annotations


def test_the_final_state_of_a_plugins_write_is_never_denied():
    old = changed(stored(node="a"), **KEPT_BACK)
    review = decode_review(question("UPDATE", changed(old, **{LEFT: ""}), old, user=PLUGIN))
    assert validate(review, BOOK).allowed


def crowd(count, limits=VGPU, where="containers", **fields):
    new = pod({}, **fields)
    new["spec"][where] = [{"name": f"c{at}", "image": "i", "resources": {"limits": limits}} for at in range(count)]
    return new


@pytest.mark.parametrize("where", ["containers", "initContainers"])
def test_a_pod_with_cards_of_too_many_containers_is_denied_with_one_word(where):
    limits = {"huawei.com/Ascend310P": "1"} if where == "initContainers" else VGPU
    assert create(crowd(63, limits, where)).allowed
    answer = create(crowd(65, limits, where))
    assert answer.message.startswith("CS220 containers: found 6")
    assert answer.message.endswith("a pod with cards has no more than 64, init containers included; use more pods")
    # One that asks is enough.
    mixed = crowd(500, {"cpu": "1"})
    mixed["spec"]["containers"][499]["resources"] = {"requests": VGPU}
    assert create(mixed).message.startswith("CS220 containers: found 500")


def test_a_pod_of_many_containers_without_cards_of_ours_is_left_alone():
    assert create(crowd(500, {"cpu": "1"})).patch == []
    assert create(crowd(500, {"volcano.sh/vgpu-number": "0"})).allowed
    assert create(crowd(500, {"nvidia.com/gpu": "1"})).patch == []
    assert not create(crowd(500, {"nvidia.com/gpu": "1"}, scheduler="cardshare")).allowed


def of_many(*more, limits=VGPU):
    """A pod of more containers than are judged, which all but *more* ask for nothing."""
    new = crowd(30_000, {})
    new["spec"]["containers"] += [{"name": "x", "image": "i", "resources": {"requests": one}} for one in more]
    return new


@pytest.mark.parametrize(
    "new",
    [of_many(VGPU), of_many({"cpu": "1"}, {"volcano.sh/vgpu-number": "0"}), crowd(513, annotations={MODE: "mig"})],
    ids=["cards", "no cards", "a wish"],
)
def test_a_pod_of_more_containers_than_any_has_is_denied_if_it_speaks_of_cards(new):
    answer = create(new)
    assert re.match(r"CS100 spec.containers: found '\d+'; write no more than 512", answer.message)
    review = decode_review(question("CREATE", new))
    assert validate(review, BOOK).message == answer.message


@pytest.mark.parametrize("new", [crowd(513, {"cpu": "1"}), crowd(30_000, {}), of_many({"example.com/fpga": "1"})])
def test_a_pod_of_more_containers_than_any_has_that_asks_for_nothing_of_ours_is_the_api_servers_to_judge(new):
    answer = create(new)
    assert answer.allowed
    assert answer.patch == []
    assert validate(decode_review(question("CREATE", new)), BOOK) == NOTHING
    assert update(new, new).patch == []


def test_a_pod_that_has_more_containers_than_are_judged_can_still_be_changed():
    assert update(crowd(600, {"cpu": "1"}), crowd(600, {"cpu": "1"}, annotations={MODE: "mig"})).allowed
    assert update(crowd(600), crowd(600, annotations={"note": "1"})).allowed
    assert not update(crowd(600), crowd(601)).allowed


def test_of_a_hundred_forged_annotations_the_first_are_told_and_how_many_more_there_are():
    forged = {f"huawei.com/Ascend{at:03}": "x" for at in range(100)}
    answer = create(pod(VGPU, annotations=forged))
    assert answer.allowed
    assert not answer.annotations
    assert answer.warnings[0].endswith("huawei.com/Ascend014, huawei.com/Ascend015 and 84 more")
    old = stored()
    denied = update(old, changed(old, **forged))
    assert denied.message.count("CS301") == 17
    assert denied.message.endswith("the same goes for 84 more")


def test_of_a_hundred_variables_that_lift_limits_the_first_are_told():
    env = [{"name": f"CUDA_DEVICE_{at}", "value": "1"} for at in range(100)]
    message = create(pod(VGPU, container={"env": env})).message
    assert message.count("CS304") == 17
    assert message.endswith("the same goes for 84 more")


def test_a_list_of_too_many_items_is_denied():
    for key in ("volcano.sh/vgpu-use-gpuuuid", "nvidia.com/use-gputype"):
        assert create(pod(VGPU, annotations={key: ",".join(f"a{at}" for at in range(512))})).allowed
        answer = create(pod(VGPU, annotations={key: ",".join(f"a{at}" for at in range(513))}))
        assert "write no more than 512 items" in answer.message


# Device plugins and nodes

NODE_NAME = "authentication.kubernetes.io/node-name"
STRICT = rulebook(
    Settings(admission=AdmissionSettings(plugins_on_other_nodes=OnOtherNodes.DENY)), Tables(), standard_catalog()
)


def by(user, node=None):
    return {"userInfo": {"username": user, "extra": {} if node is None else {NODE_NAME: [node]}}}


def served(**request):
    old = changed(stored(node="a"), **KEPT_BACK)
    return update(old, changed(old, **{LEFT: ""}), **request)


@pytest.mark.parametrize("book", [BOOK, STRICT], ids=["warn", "deny"])
@pytest.mark.parametrize("writer", [by(PLUGIN, "a"), by(PLUGIN), by(CONTROLLER, "b")], ids=["own", "unknown", "ours"])
def test_a_plugin_writes_the_pods_of_its_own_node(book, writer):
    answer = served(book=book, **writer)
    assert (answer.allowed, answer.warnings) == (True, [])


def test_a_plugin_that_writes_a_pod_of_another_node_is_told_of():
    answer = served(**by(PLUGIN, "b"))
    assert answer.allowed
    assert answer.warnings == ["CS315 a device plugin of node 'b' wrote a pod that is on node 'a'"]
    # What its write has to carry besides is not held back.
    assert answer.annotations[LEFT] == ";GPU-b,NVIDIA,2,2:"


@pytest.mark.parametrize("node", ["a", ""], ids=["another node", "no node"])
def test_a_plugin_that_writes_a_pod_of_another_node_is_denied_where_it_is_so_set(node):
    old = changed(stored(node=node), **KEPT_BACK)
    new = changed(old, **{LEFT: ""})
    answer = update(old, new, book=STRICT, **by(PLUGIN, "b"))
    assert (answer.codes, answer.patch) == (["CS315"], [])
    assert "its token is of node 'b'" in answer.message
    assert not validate(decode_review(question("UPDATE", new, old, **by(PLUGIN, "b"))), STRICT).allowed
    assert not update(old, new, book=STRICT, **by(PLUGIN, "b"), subResource="status").allowed


def test_renamed_plugins_are_known_by_the_settings():
    own = AdmissionSettings(
        trusted_accounts=("system:serviceaccount:mine:plugin-1",),
        plugin_accounts=("system:serviceaccount:mine:plugin-*",),
        plugins_on_other_nodes=OnOtherNodes.DENY,
    )
    book = rulebook(Settings(admission=own), Tables(), standard_catalog())
    assert served(book=book, **by("system:serviceaccount:mine:plugin-1", "b")).codes == ["CS315"]
    assert served(book=book, **by("system:serviceaccount:mine:plugin-1", "a")).allowed
