"""Pods that are changed: by people, by device plugins, and while they are being deleted."""

import json
from dataclasses import replace

import pytest

from core.admission.mutate import validate
from core.admission.rulebook import rulebook
from core.catalog import standard_catalog
from core.settings import AdmissionSettings, OnOtherNodes, Settings, Tables
from core.wire.reviews import decode_review
from tests.support.devices import vendors
from tests.support.devices.texts import device_tables
from tests.support.worlds.admission import (
    BOOK,
    CONTROLLER,
    INDEX,
    MODE,
    PLUGIN,
    VGPU,
    WISH,
    changed,
    create,
    on_node,
    pod,
    question,
    stored,
    update,
)

LAST = "kubectl.kubernetes.io/last-applied-configuration"


# Changing


def test_what_only_machines_write_is_not_written_through_a_status_either():
    old = on_node(changed(stored(), **{"volcano.sh/vgpu-ids-new": "GPU-0,NVIDIA,3000,50:"}), "n1")
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


@pytest.mark.parametrize("scheduler", ["default-scheduler", "cardshare"])
def test_a_choice_of_cards_that_the_default_scheduler_will_not_read_is_told(scheduler):
    old = pod({"nvidia.com/gpu": "1"}, scheduler=scheduler)
    answer = update(old, changed(old, **{"nvidia.com/use-gputype": "A100"}))
    assert answer.allowed
    told = (
        "CS116 annotation nvidia.com/use-gputype: found 'A100'; it has no effect, because the default scheduler places "
        "this pod and reads no choice of cards: delete the pod and create it again with this annotation"
    )
    assert [*answer.warnings] == ([told] if scheduler == "default-scheduler" else [])
    labelled = {**old, "metadata": {**old["metadata"], "labels": {"a": "b"}}}
    assert not update(old, labelled).warnings


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
    old = changed(on_node(waiting, "a"), **{INDEX: "2,0", "volcano.sh/predicate-time": "1"})
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
    assert all("was left unchanged; the pod is being deleted" in one for one in answer.warnings)
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
        live = changed(on_node(live, "a"), **{"volcano.sh/gpu-index": "2,0", "volcano.sh/vgpu-ids-new": "GPU"})
    sent = merged(live, manifest)
    for i, container in enumerate(manifest["spec"]["containers"]):
        found = live["spec"]["containers"][i]
        sent["spec"]["containers"][i] = merged(found, container)
    answer = update(live, sent)
    assert answer.allowed, answer.message
    assert answer.pod == live


MODULES = rulebook(
    Settings(),
    device_tables(
        "vnpus: {configs: [{chipName: Ascend910, commonWord: Ascend910C, resourceName: huawei.com/Ascend910C,"
        " resourceMemoryName: huawei.com/Ascend910C-memory, memoryAllocatable: 65536, memoryCapacity: 65536,"
        " aiCore: 20, superPod: true}]}"
    ),
    standard_catalog(),
)
VENDORS = rulebook(Settings(), vendors.TABLES, standard_catalog())


@pytest.mark.parametrize("named", [("limits",), ("requests",), ("limits", "requests")], ids="-".join)
@pytest.mark.parametrize(
    ("book", "amounts"),
    [
        pytest.param(MODULES, {"huawei.com/Ascend910C": "1"}, id="half a module"),
        pytest.param(VENDORS, {"kunlunxin.com/vxpu": "1", "kunlunxin.com/vxpu-memory": "20000"}, id="rounded memory"),
        pytest.param(VENDORS, {"iluvatar.ai/MR-V100-vgpu": "2", "iluvatar.ai/MR-V100.vCore": "100"}, id="all cores"),
    ],
)
def test_amounts_that_admission_raised_are_kept_at_the_second_apply(book, amounts, named):
    manifest = pod(**{"limits": None, **dict.fromkeys(named, amounts)})
    live = create(manifest, book=book).pod
    assert live["spec"]["containers"][0]["resources"]["limits"] != amounts
    sent = merged(live, manifest)
    sent["spec"]["containers"] = [merged(live["spec"]["containers"][0], manifest["spec"]["containers"][0])]
    for old in (live, on_node(live, "a")):
        answer = update(old, {**sent, "spec": {**sent["spec"], "nodeName": old["spec"].get("nodeName", "")}}, book=book)
        assert answer.allowed, answer.message
        assert answer.resources == live["spec"]["containers"][0]["resources"]


def test_an_amount_that_means_another_share_is_not_put_back():
    live = create(pod({"kunlunxin.com/vxpu": "1", "kunlunxin.com/vxpu-memory": "20000"}), book=VENDORS).pod
    more = {"kunlunxin.com/vxpu": "1", "kunlunxin.com/vxpu-memory": "30000"}
    sent = {**live, "spec": {**live["spec"], **pod(more, requests=more)["spec"]}}
    assert update(live, sent, book=VENDORS).resources["limits"] == more


def last_applied(manifest):
    kept = {"labels": manifest["metadata"].get("labels"), "annotations": manifest["metadata"]["annotations"]}
    return changed(manifest, **{LAST: json.dumps({"metadata": kept})})


@pytest.mark.parametrize("bound", [False, True], ids=["waiting", "bound"])
def test_a_manifest_with_an_assignment_is_applied_again_with_another_label(bound):
    manifest = MANIFESTS["forged"]
    live = create(last_applied(manifest)).pod
    if bound:
        live = changed(on_node(live, "a"), **{"volcano.sh/vgpu-ids-new": "GPU"})
    manifest = {**manifest, "metadata": {**manifest["metadata"], "labels": {"team": "b"}}}
    sent = {**merged(live, last_applied(manifest)), "spec": live["spec"]}
    answer = update(live, sent)
    assert answer.allowed, answer.message
    kept = live["metadata"]["annotations"]
    assert {key: answer.annotations.get(key) for key in kept if key != LAST} == {
        key: text for key, text in kept.items() if key != LAST
    }
    assert answer.annotations.keys() == kept.keys()
    other = changed(sent, **{"volcano.sh/vgpu-ids-new": "GPU-9"})
    assert update(live, other).codes == ["CS301"]


def managed(document, operation):
    """*document*, all of whose annotations one writer owns."""
    keys: dict[str, dict[str, object]] = {f"f:{key}": {} for key in document["metadata"].get("annotations", {})}
    entry = {
        "manager": "flux",
        "operation": operation,
        "apiVersion": "v1",
        "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {"f:annotations": {".": {}, **keys}}, "f:spec": {"f:containers": {}}},
    }
    return {**document, "metadata": {**document["metadata"], "managedFields": [entry]}}


@pytest.mark.parametrize("bound", [False, True], ids=["waiting", "bound"])
@pytest.mark.parametrize("operation", ["Apply", "Update"])
def test_a_manifest_with_an_assignment_is_applied_by_the_server_again_and_edited_by_nobody(operation, bound):
    manifest = MANIFESTS["forged"]
    live = create(manifest).pod
    if bound:
        live = changed(on_node(live, "a"), **{"volcano.sh/vgpu-ids-new": "GPU"})
    sent = managed({**merged(live, manifest), "spec": live["spec"]}, operation)
    answer = update(live, sent)
    if operation == "Update":
        assert set(answer.codes) == {"CS301"}
        return
    assert answer.allowed, answer.message
    assert answer.annotations == live["metadata"].get("annotations", {})
    assert any("volcano.sh/vgpu-ids-new was left unchanged" in one for one in answer.warnings)


COPIED = {INDEX: "1", "volcano.sh/predicate-time": "1787220672000000000", "volcano.sh/gpu-assigned": "true"}


@pytest.mark.parametrize("wished", [{}, {WISH: "0,1"}], ids=["any card", "two of them"])
@pytest.mark.parametrize("by", ["client", "server"])
@pytest.mark.parametrize("bound", [False, True], ids=["waiting", "bound"])
def test_the_manifest_of_a_copied_pod_is_applied_again(bound, by, wished):
    manifest = pod({"volcano.sh/gpu-memory": "1"}, annotations={**COPIED, **wished})
    manifest = last_applied(manifest) if by == "client" else manifest
    live = create(manifest).pod
    if bound:
        live = changed(on_node(live, "a"), **{INDEX: "0", "volcano.sh/predicate-time": "7"})
    sent = {**merged(live, manifest), "spec": live["spec"]}
    answer = update(live, managed(sent, "Apply") if by == "server" else sent)
    assert answer.allowed, answer.message
    assert answer.annotations == live["metadata"].get("annotations", {})
    assert any(f"{INDEX} was left unchanged" in one for one in answer.warnings)


@pytest.mark.parametrize("owners", ["x", [None], [{"operation": "Apply", "fieldsV1": {"f:metadata": 7}}], {}])
def test_owners_of_fields_that_cannot_be_read_allow_nothing(owners):
    manifest = MANIFESTS["forged"]
    live = create(manifest).pod
    sent = {**merged(live, manifest), "spec": live["spec"]}
    sent["metadata"] = {**sent["metadata"], "managedFields": owners}
    assert set(update(live, sent).codes) == {"CS301"}


# Hand-off of pods with several containers

QUEUE = "cardshare.io/segment-queue"
LEFT = "volcano.sh/devices-to-allocate"
KEPT_BACK = {LEFT: "GPU-a,NVIDIA,1,1:", QUEUE: "vgpu/1 ;GPU-b,NVIDIA,2,2:"}


def test_a_plugins_erasure_is_answered_with_the_next_segment():
    old = changed(stored(node="a"), **KEPT_BACK)
    answer = update(old, changed(old, **{LEFT: ""}), user=PLUGIN)
    assert answer.allowed
    assert answer.annotations[LEFT] == ";GPU-b,NVIDIA,2,2:"
    assert answer.annotations[QUEUE] == "vgpu/1 "
    assert update(old, answer.pod, user=PLUGIN).patch == []
    assert QUEUE not in update(answer.pod, changed(answer.pod, **{LEFT: ";"}), user=PLUGIN).annotations


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
    assert "its token is for node 'b'" in answer.message
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


def test_a_plugin_that_the_settings_add_may_write_beside_the_known_ones_each_on_its_node():
    own, added = AdmissionSettings(plugins_on_other_nodes=OnOtherNodes.DENY), "system:serviceaccount:mine:plugin"
    known = rulebook(Settings(admission=own), Tables(), standard_catalog())
    book = rulebook(Settings(admission=replace(own, plugin_accounts=(added,))), Tables(), standard_catalog())
    denied = served(book=known, **by(added, "a"))
    assert denied.codes == ["CS301"]
    assert f'if {added} is a device plugin, write accounts.plugins: {{"{added}": []}} into the values' in denied.message
    assert "is a device plugin" not in served(book=known, **by("dana", "a")).message
    for account in (added, PLUGIN):
        assert served(book=book, **by(account, "a")).allowed
        assert served(book=book, **by(account, "b")).codes == ["CS315"]
