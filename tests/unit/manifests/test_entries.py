"""Which reviews the webhook's entries ask for: by the keys, resources and accounts that the core knows."""

import json

import pytest

from core import names
from core.admission.mutate import judge_new
from core.admission.rulebook import MOVED
from core.admission.verdict import NOTHING
from core.configuration import OWN_MAP, SCHEDULER_MAP, device_maps, hami_map
from core.settings import CONTROLLER_ACCOUNT, Settings
from core.wire import templates as templates_wire
from core.wire.pods import decode_pod
from sandbox.api.webhooks import met
from tests.support.devices.reviewed import reviewed
from tests.support.devices.texts import PLUGIN_ACCOUNTS, TRUSTED_ACCOUNTS
from tests.support.pages.manifest_lists import prefixes_of, strange_prefixes, vendor_preferences, vendor_resources
from tests.support.pages.shipped import (
    CHIP,
    LOOP,
    MUTATING,
    NAMESPACE,
    OF_A_CHIP,
    VALIDATING,
    book,
    conditions,
    one,
    words,
)
from webhook import calls

TOUCHES_OR_NEARLY = "touches-cards-or-nearly-speaks-of-them"

ENTRIES = [(kind, hook["name"]) for kind in (MUTATING, VALIDATING) for hook in one(kind, "cardshare")["webhooks"]]
PREFIX_WORDS = {CHIP, "hami.io/", *OF_A_CHIP}
PLAIN_GPU = "nvidia.com/gpu"
# Plain GPUs are reviewed while HAMi's scheduler may bind pods, which the expression asks.
# Resources that mean HAMi's where it is installed: the other vendors' too.
OF_HAMI = vendor_resources(book())
ASKS_THE_AUTHORIZER = {"kube-system", "hami-scheduler", "", "pods", "binding", "create"}
HAMIS = {PLAIN_GPU} | ASKS_THE_AUTHORIZER | OF_HAMI
# By which keys that only look like ours are reviewed, of which only warnings come.
NEARLY = {"huawei.com/", "volcano.sh/", "cardshare.io/", "nvidia.com/use-", "nvidia.com/nouse-"}
NEARLY |= {"volcano.com/", "aliyun.com/gpu-", "volcano.sh/gpu-", "volcano.sh/vgpu-"} | prefixes_of(OF_HAMI)


def annotations() -> set[str]:
    """The annotations that are told by their whole name; what begins with CHIP needs no other word."""
    keys = {*book().protected, *vendor_preferences(), *MOVED}
    return {
        key for key in keys if not (key.startswith(CHIP) or (key.startswith("hami.io/") and key.endswith(OF_A_CHIP)))
    }


def resources() -> set[str]:
    """The resources told by their whole name; plain GPUs are left alone unless an annotation speaks of them."""
    return {name for name in book().resources if not name.startswith(CHIP)} - {PLAIN_GPU}


def test_new_pods_are_reviewed_for_exactly_the_resources_and_annotations_that_the_core_judges():
    (expression,) = conditions("create.pods.cardshare.io").values()
    assert words(expression) - PREFIX_WORDS == resources() | annotations() | HAMIS
    assert {name for name in book().resources if name.startswith(CHIP)}


def test_plain_gpus_are_reviewed_exactly_while_hamis_scheduler_may_bind_pods():
    """A condition may ask the authorizer twice before the API server takes it for too dear: so never in a loop."""
    # HAMi's chart names its configuration after the account of its scheduler.
    namespace, _, name = hami_map(Settings()).partition("/")
    account = f"authorizer.serviceAccount('{namespace}', '{name.removesuffix('-device')}')"
    asked = f"{account}.group('').resource('pods').subresource('binding') .check('create').allowed()"
    pod = {"metadata": {}, "spec": {"containers": [{"resources": {"limits": {PLAIN_GPU: "1"}}}]}}
    found = 0
    for kind, entry in ENTRIES:
        for expression in conditions(entry, kind).values():
            if PLAIN_GPU not in expression:
                continue
            found += 1
            assert on_one_line(expression).count(asked) == 1
            written = {"metadata": {}, "spec": {"template": pod}} if entry.startswith("templates.") else pod
            for may in (True, False):
                variables = {"object": written, "oldObject": written, "request": {}}
                is_sent = met([{"name": "c", "expression": expression}], variables, lambda *_, may=may: may)
                assert is_sent is (may is not entry.startswith("spelling."))
    assert found == 6


@pytest.mark.parametrize(
    ("key", "is_sent"),
    [("volcano.sh/vgpu-number", True), ("volcano.sh/gpu-memory", True), ("volcano.sh/job-name", False)],
)
def test_pods_that_annotate_resources_instead_of_asking_for_them_are_reviewed_for_a_warning(key: str, is_sent: bool):
    pod = {"metadata": {"annotations": {key: "1"}}, "spec": {"containers": [{"name": "c"}]}}
    variables = {"object": pod, "oldObject": pod, "request": {}}
    for entry, written in (("spelling", pod), ("templates", {"metadata": {}, "spec": {"template": pod}})):
        found = conditions(f"{entry}.{'pods.' if entry == 'spelling' else ''}cardshare.io", VALIDATING)
        listed = [{"name": name, "expression": text} for name, text in found.items()]
        assert met(listed, {**variables, "object": written}, lambda *_: False) is is_sent


def test_a_pod_that_asks_for_plain_gpus_is_left_alone_so_that_it_need_not_be_reviewed():
    container = {"name": "c", "image": "i", "resources": {"limits": {PLAIN_GPU: "1"}, "requests": {PLAIN_GPU: "1"}}}
    spec = {"containers": [container], "schedulerName": "default-scheduler"}
    manifest = {"metadata": {"name": "p", "namespace": "default", "uid": "u"}, "spec": spec}
    assert judge_new(reviewed(decode_pod(json.dumps(manifest).encode())), "somebody", book()).verdict == NOTHING


def test_changes_are_reviewed_for_exactly_the_annotations_that_the_core_judges():
    expression = conditions("update.pods.cardshare.io")["touches-cards"]
    assert words(expression) - PREFIX_WORDS == annotations()


@pytest.mark.parametrize("entry", ["create.pods.cardshare.io", "update.pods.cardshare.io"])
def test_keys_protected_by_their_beginning_are_reviewed_by_it(entry: str):
    expression = list(conditions(entry).values())[-1]
    assert words(expression) >= PREFIX_WORDS
    rules = book()
    for key in ("huawei.com/Ascend", "hami.io/x-devices-to-allocate", "hami.io/x-devices-allocated"):
        assert rules.is_protected(key)
    for key in ("hami.io/x", "x-devices-allocated", "huawei.com/ascend"):
        assert not rules.is_protected(key)


def test_writers_that_are_not_reviewed_are_those_that_the_settings_trust():
    expression = conditions("update.pods.cardshare.io")["writer-is-not-trusted-here"]
    trusted, plugins = expression.split("\n|| ")
    assert words(trusted) == {account.removesuffix("*") for account in TRUSTED_ACCOUNTS}
    of_a_node = {account.removesuffix("*") for account in PLUGIN_ACCOUNTS}
    # A plugin's write is completed where further segments are kept back, and told of where the pod is another node's.
    assert words(plugins) - {""} == of_a_node | {"authentication.kubernetes.io/node-name", names.SEGMENT_QUEUE}


def test_what_a_plugin_wrote_is_completed_before_it_is_final_and_not_judged_again():
    first, last = [conditions("update.pods.cardshare.io", kind) for kind in (MUTATING, VALIDATING)]
    kept_back = "oldObject.metadata.?annotations[?'cardshare.io/segment-queue'].orValue('') != '' || "
    mutated, validated = [" ".join(one["writer-is-not-trusted-here"].split()) for one in (first, last)]
    assert mutated.count(kept_back) == 1
    assert (
        mutated.replace(kept_back, "").replace("(request.userInfo.?extra", "request.userInfo.?extra")[:-1] == validated
    )


# Entries of which a denial may be told by an event.
TELLS_OF_ACCOUNTS = ("update.", "bind.")


def test_entries_hold_up_no_pod_of_the_system_and_answer_soon():
    for webhook in one("MutatingWebhookConfiguration", "cardshare")["webhooks"]:
        (excluded,) = webhook["namespaceSelector"]["matchExpressions"]
        assert (excluded["operator"], set(excluded["values"])) == ("NotIn", {"kube-system", NAMESPACE})
        assert webhook["failurePolicy"] == "Fail"
        assert webhook["sideEffects"] == ("NoneOnDryRun" if webhook["name"].startswith(TELLS_OF_ACCOUNTS) else "None")
        assert webhook["reinvocationPolicy"] == "IfNeeded"
        assert webhook["timeoutSeconds"] <= 5
        (rule,) = webhook["rules"]
        assert rule["resources"] == ["pods"]


# Large objects are sent once: what they had of keys that no name tells was seen before.
MANY_NEW = (
    "|| object.metadata.?annotations.orValue({}).size() > 256 || object.metadata.?annotations.orValue({}).exists("
)
FEW_NEW = (
    "|| (object.metadata.?annotations.orValue({}).size() <= 256 && object.metadata.?annotations.orValue({}).exists("
)
MANY_CHANGED = (
    "(object.metadata.?annotations.orValue({}).size() > 256 "
    "|| oldObject.metadata.?annotations.orValue({}).size() > 256 "
    "? object.metadata.?annotations != oldObject.metadata.?annotations : object.metadata"
)
FEW_CHANGED = (
    "(object.metadata.?annotations.orValue({}).size() <= 256 "
    "&& oldObject.metadata.?annotations.orValue({}).size() <= 256 "
    "&& (object.metadata"
)


def on_one_line(text: str) -> str:
    return " ".join(text.split())


def test_the_final_state_is_judged_of_what_was_completed():
    (first,), (last,) = [conditions("create.pods.cardshare.io", kind).values() for kind in (MUTATING, VALIDATING)]
    assert on_one_line(last) == on_one_line(first).replace(MANY_NEW, FEW_NEW) + ")"
    first = on_one_line(conditions("update.pods.cardshare.io")["touches-cards"])
    last = on_one_line(conditions("update.pods.cardshare.io", VALIDATING)[TOUCHES_OR_NEARLY])
    before, many, after = first.partition(MANY_CHANGED)
    annotations_end = after.index(" || object.spec.?schedulerName")
    assert many
    assert last.startswith(before + FEW_CHANGED + after[:annotations_end] + ")" + after[annotations_end:])


def test_the_entry_of_changes_that_never_holds_up_a_pod_is_the_one_after_it_was_judged():
    for kind, policy in ((MUTATING, "Fail"), (VALIDATING, "Ignore")):
        (entry,) = [one for one in one(kind, "cardshare")["webhooks"] if one["name"] == "update.pods.cardshare.io"]
        assert entry["failurePolicy"] == policy


def test_templates_are_reviewed_for_what_pods_are_reviewed_for_and_never_hold_up_a_workload():
    found = conditions("templates.cardshare.io", VALIDATING)["asks-for-cards-or-speaks-of-them"]
    assert words(found) - PREFIX_WORDS - NEARLY == resources() | annotations() | HAMIS
    assert words(found) >= NEARLY
    (entry,) = [one for one in one(VALIDATING, "cardshare")["webhooks"] if one["name"] == "templates.cardshare.io"]
    assert entry["failurePolicy"] == "Ignore"
    plurals = {(group, name) for rule in entry["rules"] for group in rule["apiGroups"] for name in rule["resources"]}
    assert plurals == {(group, f"{kind.lower()}s") for group, kind in templates_wire.KINDS}


def test_what_only_looks_like_ours_is_reviewed_of_pods_that_are_not_reviewed_anyway_and_holds_up_none():
    found = conditions("spelling.pods.cardshare.io", VALIDATING)
    assert words(found["nearly-speaks-of-cards"]) == NEARLY | ASKS_THE_AUTHORIZER
    (asks,) = conditions("create.pods.cardshare.io", VALIDATING).values()
    assert "".join(found["is-not-reviewed-anyway"].split()) == f"!({''.join(asks.split())})"
    (entry,) = [one for one in one(VALIDATING, "cardshare")["webhooks"] if one["name"].startswith("spelling.")]
    assert entry["failurePolicy"] == "Ignore"


def test_what_a_person_annotates_is_reviewed_for_the_prefixes_of_strange_keys():
    expression = on_one_line(conditions("update.pods.cardshare.io", VALIDATING)[TOUCHES_OR_NEARLY])
    _, told, nearly = expression.rpartition("|| (!request.userInfo.username.startsWith('system:') && ")
    assert told
    assert nearly.startswith("object.metadata.?annotations.orValue({}).size() <= 256 && ")
    assert words(nearly) == strange_prefixes()


@pytest.mark.parametrize(("kind", "entry"), ENTRIES, ids=[f"{kind[0]} {entry}" for kind, entry in ENTRIES])
def test_nothing_of_an_object_is_looped_over_before_its_size_was_asked(kind: str, entry: str):
    for expression in conditions(entry, kind).values():
        text = " ".join(expression.split())
        for found in LOOP.finditer(text):
            assert f"{found[1]}.size() " in text[: found.start()], (found[1], text)


@pytest.mark.parametrize("entry", ["debug.pods.cardshare.io", "resize.pods.cardshare.io"])
def test_running_pods_are_reviewed_for_the_resources_that_the_core_knows(entry: str):
    assert words(conditions(entry, VALIDATING)["asks-for-cards"]) - PREFIX_WORDS == resources() | HAMIS


def test_bindings_are_reviewed_only_if_they_assign_cards_and_never_the_controllers():
    found = conditions("bind.pods.cardshare.io", VALIDATING)
    assert words(found["writer-is-no-scheduler"]) == {CONTROLLER_ACCOUNT}
    protected = {key for key in annotations() if book().is_protected(key)}
    assert words(found["carries-an-assignment"]) - PREFIX_WORDS == protected
    (entry,) = [one for one in one(VALIDATING, "cardshare")["webhooks"] if one["name"].startswith("bind.")]
    assert entry["failurePolicy"] == "Fail"
    (rule,) = entry["rules"]
    assert (rule["operations"], rule["resources"]) == (["CREATE"], ["bindings", "pods/binding"])


EDITS = "configuration.cardshare.io"


def test_entries_that_judge_change_nothing_and_answer_soon():
    for webhook in one(VALIDATING, "cardshare")["webhooks"]:
        if webhook["name"] == EDITS:
            continue
        (excluded,) = webhook["namespaceSelector"]["matchExpressions"]
        assert (excluded["operator"], set(excluded["values"])) == ("NotIn", {"kube-system", NAMESPACE})
        assert webhook["clientConfig"]["service"]["path"] == "/validate"
        assert webhook["sideEffects"] == ("NoneOnDryRun" if webhook["name"].startswith(TELLS_OF_ACCOUNTS) else "None")
        assert webhook["timeoutSeconds"] <= 5


def test_exactly_the_config_maps_that_are_read_are_judged_and_mending_them_waits_for_nobody():
    read = {OWN_MAP, SCHEDULER_MAP, *device_maps(Settings()).values()}
    found = conditions(EDITS, VALIDATING)
    assert words(found["is-read-as-configuration"]) - {"/", ""} == read
    (entry,) = [one for one in one(VALIDATING, "cardshare")["webhooks"] if one["name"] == EDITS]
    (only,) = entry["namespaceSelector"]["matchExpressions"]
    assert (only["operator"], set(only["values"])) == ("In", {name.partition("/")[0] for name in read})
    (rule,) = entry["rules"]
    assert (rule["operations"], rule["resources"]) == (["CREATE", "UPDATE"], ["configmaps"])
    assert (entry["failurePolicy"], entry["sideEffects"]) == ("Ignore", "None")
    assert entry["clientConfig"]["service"]["path"] == calls.PATH
    assert entry["timeoutSeconds"] <= 5


MISTYPED: dict[str, object] = {"containers": [{"resources": {"limits": {"hygon.com/dcunumm": "1"}}}]}
PLAIN: dict[str, object] = {"containers": [{}]}


def is_sent(entry: str, new: object, old: object, *, may: bool = True, user: str = "dana") -> bool:
    asked = [{"name": name, "expression": text} for name, text in conditions(entry, VALIDATING).items()]
    variables = {"request": {"userInfo": {"username": user}}, "object": new, "oldObject": old}
    return met(asked, variables, lambda *_: may)


@pytest.mark.parametrize("may", [True, False])
def test_mistyped_resources_of_other_vendors_are_reviewed_where_hami_is_installed(may: bool):
    assert is_sent("spelling.pods.cardshare.io", {"metadata": {}, "spec": MISTYPED}, None, may=may) is may
    new, old = ({"metadata": {}, "spec": {"template": {"spec": one}}} for one in (MISTYPED, PLAIN))
    for before in (None, old):
        assert is_sent("templates.cardshare.io", new, before, may=may) is may


@pytest.mark.parametrize(("user", "sent"), [("dana", True), ("system:serviceaccount:a:b", False)])
def test_a_mistyped_annotation_of_another_vendor_is_reviewed_if_a_person_writes_it(user: str, sent: bool):
    old = {"metadata": {}, "spec": PLAIN}
    new = {"metadata": {"annotations": {"hygon.com/use-gpuuid": "a"}}, "spec": PLAIN}
    assert is_sent("update.pods.cardshare.io", new, old, user=user) is sent
