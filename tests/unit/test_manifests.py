"""What deploy/ says is what the code means: keys, accounts, arguments, rights, and the posture of every pod."""

import copy
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from certs import options as certs_options
from certs.options import EnsureInCluster, Run
from controller import config as controller_config
from controller.documents import places
from controller.reporting.serve import EXPLAIN, PREVIEW, SHADOW
from controller.run import DRAIN_S, RELEASE_S
from core import hami_lock, names
from core.admission.mutate import judge_new
from core.admission.rulebook import MOVED, Rulebook, rulebook
from core.admission.verdict import NOTHING
from core.catalog import standard_catalog
from core.configuration import CHIPS_MAP, OWN_MAP, SCHEDULER_MAP, device_map
from core.dialects.ascend_hami import keys as hami_keys
from core.dialects.mindcluster import keys as chip_keys
from core.dialects.vgpu import keys as vgpu_keys
from core.port.optional import Locking
from core.settings import CONTROLLER_ACCOUNT, AdmissionSettings, Settings
from core.tables import Tables
from core.wire import templates as templates_wire
from core.wire.pods import decode_pod
from tests.support.devices.reviewed import reviewed
from tests.support.devices.texts import PLUGIN_ACCOUNTS, TRUSTED_ACCOUNTS, decode_settings
from webhook import edits
from webhook import options as webhook_options

DEPLOY = Path(__file__).parents[2] / "deploy"
NAMESPACE = "cardshare-system"

Json = dict[str, Any]


def base() -> tuple[Json, ...]:
    """Every object of deploy/base, as its kustomization lists them."""
    listed = yaml.safe_load((DEPLOY / "base/kustomization.yaml").read_text())["resources"]
    return tuple(doc for name in listed for doc in yaml.safe_load_all((DEPLOY / "base" / name).read_text()))


OBJECTS = base()


def one(kind: str, name: str, namespace: str | None = None) -> Json:
    (found,) = [
        obj
        for obj in OBJECTS
        if obj["kind"] == kind
        and obj["metadata"]["name"] == name
        and namespace in {None, obj["metadata"].get("namespace")}
    ]
    return found


def templates() -> Iterator[tuple[str, Json]]:
    for obj in OBJECTS:
        spec = obj.get("spec", {})
        if obj["kind"] == "CronJob":
            yield "CronJob", spec["jobTemplate"]["spec"]["template"]
        elif "template" in spec:
            yield f"{obj['kind']} {obj['metadata']['name']}", spec["template"]


TEMPLATES = dict(templates())


def container(title: str) -> Json:
    (found,) = TEMPLATES[title]["spec"]["containers"]
    return dict(found)


def test_every_file_of_the_base_is_listed():
    listed = {*yaml.safe_load((DEPLOY / "base/kustomization.yaml").read_text())["resources"], "kustomization.yaml"}
    assert {path.name for path in (DEPLOY / "base").iterdir()} == listed


def test_workloads_are_the_five_that_there_should_be():
    assert sorted(TEMPLATES) == [
        "CronJob",
        "Deployment cardshare-certs-keeper",
        "Deployment cardshare-controller",
        "Deployment cardshare-webhook",
        "Job cardshare-certs",
    ]


# Keys and accounts that stand in CEL

TOUCHES_OR_NEARLY = "touches-cards-or-nearly-speaks-of-them"

MUTATING = "MutatingWebhookConfiguration"
VALIDATING = "ValidatingWebhookConfiguration"


def conditions(entry: str, kind: str = MUTATING) -> Mapping[str, str]:
    webhooks = one(kind, "cardshare")["webhooks"]
    (found,) = [webhook for webhook in webhooks if webhook["name"] == entry]
    return {condition["name"]: condition["expression"] for condition in found["matchConditions"]}


def words(expression: str) -> set[str]:
    """Every text constant of a CEL expression."""
    return set(re.findall(r"'([^']*)'", expression))


CHIP = "huawei.com/Ascend"
OF_A_CHIP = ("-devices-to-allocate", "-devices-allocated", "-uuid")
PREFIX_WORDS = {CHIP, "hami.io/", *OF_A_CHIP}
PLAIN_GPU = "nvidia.com/gpu"
# By which keys that only look like ours are reviewed, of which only warnings come.
NEARLY = {"huawei.com/", "volcano.sh/", "cardshare.io/", "nvidia.com/use-", "nvidia.com/nouse-"}


def book() -> Rulebook:
    return rulebook(Settings(), Tables(), standard_catalog())


def annotations() -> set[str]:
    """The annotations that are told by their whole name; what begins with CHIP needs no other word."""
    keys = {*book().protected, *book().preferences, *MOVED}
    return {key for key in keys if not key.startswith(CHIP) and not key.endswith(OF_A_CHIP)}


def resources() -> set[str]:
    """The resources told by their whole name; plain GPUs are left alone unless an annotation speaks of them."""
    return {name for name in book().resources if not name.startswith(CHIP)} - {PLAIN_GPU}


def test_new_pods_are_reviewed_for_exactly_the_resources_and_annotations_that_the_core_judges():
    (expression,) = conditions("create.pods.cardshare.io").values()
    assert words(expression) - PREFIX_WORDS == resources() | annotations()
    assert {name for name in book().resources if name.startswith(CHIP)}


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


# Policies


POLICIES = [found["metadata"]["name"] for found in OBJECTS if found["kind"] == "ValidatingAdmissionPolicy"]
# Variables that say who and what, and nothing of how it is judged: what an operator edits.
NAMED = ("trustedAccounts", "pluginAccounts", "schedulerAccounts", "phaseAccounts", "pluginNodeKeys", "locks")


def policy(name: str) -> Json:
    return dict(one("ValidatingAdmissionPolicy", name)["spec"])


def policy_expressions(name: str) -> dict[str, str]:
    """Every expression of a policy, on one line."""
    spec = policy(name)
    found = {each["name"]: each["expression"] for each in (*spec["matchConditions"], *spec.get("variables", ()))}
    found |= {f"validation {i}": each["expression"] for i, each in enumerate(spec["validations"])}
    return {key: " ".join(text.split()) for key, text in found.items()}


def entries(spec: Json, variable: str) -> list[str]:
    """The list that a variable of a policy is."""
    (expression,) = [one["expression"] for one in spec["variables"] if one["name"] == variable]
    return re.findall(r"'([^']*)'", expression)


def protected_words() -> set[str]:
    return {*book().protected, CHIP, "hami.io/", "-devices-to-allocate", "-devices-allocated"}


def test_the_accounts_of_the_policies_are_those_that_the_settings_trust():
    for name in ("pods.cardshare.io", "bindings.cardshare.io"):
        trusted, plugins = entries(policy(name), "trustedAccounts"), entries(policy(name), "pluginAccounts")
        assert sorted([*trusted, *plugins]) == sorted(TRUSTED_ACCOUNTS)
        assert (trusted, sorted(plugins)) == ([CONTROLLER_ACCOUNT], sorted(PLUGIN_ACCOUNTS))
        assert (policy_expressions(name)["schedulerAccounts"], Settings().admission.other_schedulers) == ("[]", {})
    assert entries(policy("pods.cardshare.io"), "pluginsOnOtherNodes") == [Settings().admission.plugins_on_other_nodes]


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_has_no_parameters_and_names_accounts_in_lists_alone(name: str):
    """An API server that loses its last policy with a ConfigMap as parameter follows none until it starts anew."""
    assert "paramKind" not in policy(name)
    for variable, expression in policy_expressions(name).items():
        assert "params" not in expression
        named = [word for word in words(expression) if word.startswith("system:serviceaccount")]
        if variable not in NAMED and named:
            assert variable in {each["name"] for each in policy(name)["matchConditions"]}
            assert set(named) in ({CONTROLLER_ACCOUNT}, set(PLUGIN_ACCOUNTS))
    bound = one("ValidatingAdmissionPolicyBinding", name)["spec"]
    # What device plugins write of Nodes is told before it is denied.
    does = "Warn" if name == "nodes.cardshare.io" else "Deny"
    assert (bound["policyName"], bound["validationActions"]) == (name, [does, "Audit"])
    assert "paramRef" not in bound


def test_every_device_plugin_owns_what_the_core_reads_of_its_nodes():
    owned = [entry.partition("=") for entry in entries(policy("nodes.cardshare.io"), "pluginNodeKeys")]
    assert {account for account, _, _ in owned} == set(PLUGIN_ACCOUNTS)
    read = {
        vgpu_keys.REGISTER,
        vgpu_keys.HANDSHAKE,
        names.GPU_UNHEALTHY,
        hami_keys.NODE_SOFT,
        hami_lock.LOCK,
        hami_keys.register("*"),
        chip_keys.BASE_DEVICES,
        chip_keys.SERVER_TYPE,
        chip_keys.CHIP_NAME,
    }
    assert read <= {key for _, _, key in owned}


def test_the_controller_writes_of_nodes_the_locks_of_the_dialects_and_nothing_else():
    found = policy("locks.nodes.cardshare.io")
    (condition,) = found["matchConditions"]
    assert words(condition["expression"]) == {CONTROLLER_ACCOUNT}
    specs = standard_catalog().specs
    ports: list[object] = [one.port for one in specs]
    locks = {port.lock_key for port in ports if isinstance(port, Locking)}
    locks |= {one.time_lock for one in specs} - {""}
    assert set(entries(found, "locks")) == locks


def test_policies_protect_exactly_the_keys_that_the_core_protects():
    pods, bindings = policy_expressions("pods.cardshare.io"), policy_expressions("bindings.cardshare.io")
    assert words(pods["changed"]) == protected_words()
    assert words(bindings["carries-an-assignment"]) == protected_words()


def test_a_policy_asks_before_it_judges_exactly_what_it_judges():
    found = policy_expressions("pods.cardshare.io")
    judged = ("changed", "frozen", "unseen", "ended", "elsewhere")
    # Conditions have no variables.
    listed = found["plugin"].replace("variables.pluginAccounts", found["pluginAccounts"])
    found["elsewhere"] = found["elsewhere"].replace("variables.plugin", listed)
    assert found["touches-what-is-guarded"] == " || ".join(f"({found[each]})" for each in judged)


def test_a_policy_keeps_what_a_bound_pod_says_of_its_cards_by_the_keys_that_the_core_freezes():
    frozen = words(policy_expressions("pods.cardshare.io")["frozen"]) - {"status", ""}
    assert frozen == {*book().preferences, *MOVED} - book().protected


def test_a_policy_knows_a_pod_that_holds_cards_by_the_resources_and_keys_that_the_core_knows():
    plain = {name for name in book().resources if not name.startswith(CHIP)}
    assert words(policy_expressions("pods.cardshare.io")["cards"]) == {*plain, *book().protected, CHIP, ""}


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_loops_over_nothing_of_an_object_before_its_size_was_asked(name: str):
    for text in policy_expressions(name).values():
        for found in LOOP.finditer(text):
            assert f"{found[1]}.size() " in text[: found.start()], (found[1], text)


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
    assert words(found) - PREFIX_WORDS - NEARLY == resources() | annotations()
    assert words(found) >= NEARLY
    (entry,) = [one for one in one(VALIDATING, "cardshare")["webhooks"] if one["name"] == "templates.cardshare.io"]
    assert entry["failurePolicy"] == "Ignore"
    plurals = {(group, name) for rule in entry["rules"] for group in rule["apiGroups"] for name in rule["resources"]}
    assert plurals == {(group, f"{kind.lower()}s") for group, kind in templates_wire.KINDS}


def test_what_only_looks_like_ours_is_reviewed_of_pods_that_are_not_reviewed_anyway_and_holds_up_none():
    found = conditions("spelling.pods.cardshare.io", VALIDATING)
    assert words(found["nearly-speaks-of-cards"]) == NEARLY
    (asks,) = conditions("create.pods.cardshare.io", VALIDATING).values()
    assert "".join(found["is-not-reviewed-anyway"].split()) == f"!({''.join(asks.split())})"
    (entry,) = [one for one in one(VALIDATING, "cardshare")["webhooks"] if one["name"].startswith("spelling.")]
    assert entry["failurePolicy"] == "Ignore"


def test_what_a_person_annotates_is_reviewed_for_the_prefixes_of_strange_keys():
    expression = on_one_line(conditions("update.pods.cardshare.io", VALIDATING)[TOUCHES_OR_NEARLY])
    _, told, nearly = expression.rpartition("|| (!request.userInfo.username.startsWith('system:') && ")
    assert told
    assert nearly.startswith("object.metadata.?annotations.orValue({}).size() <= 256 && ")
    assert words(nearly) == set(book().key_prefixes)


# What of an object is looped over: a list that stands in the expression itself has the length that is seen.
LOOP = re.compile(r"((?:object|oldObject|c|t)\.[\w.?]+(?:\.orValue\([^)]*\))?)\)?\.(?:exists|all|map|filter)\(")
ENTRIES = [(kind, hook["name"]) for kind in (MUTATING, VALIDATING) for hook in one(kind, "cardshare")["webhooks"]]


@pytest.mark.parametrize(("kind", "entry"), ENTRIES, ids=[f"{kind[0]} {entry}" for kind, entry in ENTRIES])
def test_nothing_of_an_object_is_looped_over_before_its_size_was_asked(kind: str, entry: str):
    for expression in conditions(entry, kind).values():
        text = " ".join(expression.split())
        for found in LOOP.finditer(text):
            assert f"{found[1]}.size() " in text[: found.start()], (found[1], text)


@pytest.mark.parametrize("entry", ["debug.pods.cardshare.io", "resize.pods.cardshare.io"])
def test_running_pods_are_reviewed_for_the_resources_that_the_core_knows(entry: str):
    assert words(conditions(entry, VALIDATING)["asks-for-cards"]) - PREFIX_WORDS == resources()


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
    read = {OWN_MAP, SCHEDULER_MAP, CHIPS_MAP, device_map(Settings())}
    found = conditions(EDITS, VALIDATING)
    assert words(found["is-read-as-configuration"]) - {"/", ""} == read
    (entry,) = [one for one in one(VALIDATING, "cardshare")["webhooks"] if one["name"] == EDITS]
    (only,) = entry["namespaceSelector"]["matchExpressions"]
    assert (only["operator"], set(only["values"])) == ("In", {name.partition("/")[0] for name in read})
    (rule,) = entry["rules"]
    assert (rule["operations"], rule["resources"]) == (["CREATE", "UPDATE"], ["configmaps"])
    assert (entry["failurePolicy"], entry["sideEffects"]) == ("Ignore", "None")
    assert entry["clientConfig"]["service"]["path"] == edits.PATH
    assert entry["timeoutSeconds"] <= 5


def test_settings_that_are_shipped_are_for_the_version_that_they_are_shipped_with():
    labels = one("ConfigMap", "cardshare-settings")["metadata"]["labels"]
    assert labels["app.kubernetes.io/version"] == names.VERSION


# Rights

STORAGE = ("storageclasses", "csinodes", "csidrivers", "csistoragecapacities", "volumeattachments")
DYNAMIC = ("resourceclaims", "resourceslices")
EXPECTED_RIGHTS = {
    "cardshare-controller": {
        ("", "nodes", "get"), ("", "nodes", "list"), ("", "nodes", "watch"), ("", "nodes", "patch"),
        ("", "pods", "get"), ("", "pods", "list"), ("", "pods", "watch"), ("", "pods", "patch"),
        ("", "pods/status", "patch"), ("", "pods/binding", "create"),
        ("", "namespaces", "list"), ("", "namespaces", "watch"),
        ("", "resourcequotas", "list"), ("", "resourcequotas", "watch"),
        ("", "persistentvolumeclaims", "list"), ("", "persistentvolumeclaims", "watch"),
        ("", "persistentvolumeclaims", "patch"), ("", "persistentvolumes", "patch"),
        ("", "persistentvolumes", "list"), ("", "persistentvolumes", "watch"),
        *(("storage.k8s.io", kind, verb) for kind in STORAGE for verb in ("list", "watch")),
        *(("resource.k8s.io", kind, verb) for kind in DYNAMIC for verb in ("list", "watch")),
        ("", "events", "get"), ("", "events", "create"), ("", "events", "patch"),
        ("", "configmaps", "list"), ("", "configmaps", "watch"), ("", "configmaps", "patch"),
        ("scheduling.volcano.sh", "podgroups", "list"), ("scheduling.volcano.sh", "podgroups", "watch"),
        ("scheduling.volcano.sh", "queues", "list"), ("scheduling.volcano.sh", "queues", "watch"),
        ("scheduling.k8s.io", "podgroups", "list"), ("scheduling.k8s.io", "podgroups", "watch"),
        ("scheduling.k8s.io", "podgroups/status", "patch"),
        ("scheduling.x-k8s.io", "podgroups", "list"), ("scheduling.x-k8s.io", "podgroups", "watch"),
        ("coordination.k8s.io", "leases", "get"), ("coordination.k8s.io", "leases", "create"),
        ("coordination.k8s.io", "leases", "patch"),
        ("authentication.k8s.io", "tokenreviews", "create"),
        ("authorization.k8s.io", "subjectaccessreviews", "create"),
    },
    # Only what `cardshare-explain` may ask of the controller: see below.
    "cardshare-explain": set(),
    "cardshare-certs": {
        ("", "secrets", "get"), ("", "secrets", "create"), ("", "secrets", "patch"),
        ("", "pods", "get"), ("", "pods/status", "patch"),
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations", "get"),
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations", "patch"),
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations", "get"),
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations", "patch"),
    },
    "cardshare-webhook": {
        ("", "nodes", "list"), ("", "nodes", "watch"), ("", "events", "create"),
        ("", "resourcequotas", "list"), ("", "resourcequotas", "watch"),
        ("", "configmaps", "list"), ("", "configmaps", "watch"),
    },
}  # fmt: skip


def rules_of(account: str) -> Iterator[tuple[str, Json]]:
    """(where: a namespace or "" for everywhere, rule) of *account*."""
    for binding in OBJECTS:
        if binding["kind"] not in {"RoleBinding", "ClusterRoleBinding"}:
            continue
        for subject in binding["subjects"]:
            assert (subject["kind"], subject["namespace"]) == ("ServiceAccount", NAMESPACE)
            if subject["name"] == account:
                where = binding["metadata"].get("namespace", "")
                reference = binding["roleRef"]
                for rule in one(reference["kind"], reference["name"], where or None)["rules"]:
                    yield where, rule


@pytest.mark.parametrize("account", EXPECTED_RIGHTS)
def test_an_account_has_the_rights_that_are_used_and_no_others(account: str):
    assert one("ServiceAccount", account, NAMESPACE)
    found = {
        (group, resource, verb)
        for _, rule in rules_of(account)
        for group in rule.get("apiGroups", ())
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert found == EXPECTED_RIGHTS[account]


def test_previews_are_the_webhooks_and_explanations_their_own_accounts_with_tokens_made_for_them():
    asking = [
        (account, rule["verbs"], rule["nonResourceURLs"])
        for account in EXPECTED_RIGHTS
        for _, rule in rules_of(account)
        if "nonResourceURLs" in rule
    ]
    assert sorted(asking) == [
        ("cardshare-explain", ["get"], [f"{EXPLAIN}/*"]),
        ("cardshare-webhook", ["post"], [PREVIEW]),
    ]
    (volume,) = [v for v in TEMPLATES["Deployment cardshare-webhook"]["spec"]["volumes"] if v["name"] == "token"]
    (source,) = volume["projected"]["sources"]
    assert source["serviceAccountToken"]["audience"] == controller_config.AUDIENCE


def test_previews_are_asked_where_they_are_served_and_certified():
    args = container("Deployment cardshare-webhook")["args"]
    (url,) = [arg.partition("=")[2] for arg in args if arg.startswith("--preview-url=")]
    host, port = url.removeprefix("https://").split(":")
    (served,) = one("Service", "cardshare-controller")["spec"]["ports"]
    named = {found["name"]: found["containerPort"] for found in container("Deployment cardshare-controller")["ports"]}
    assert (host, int(port)) == (f"cardshare-controller.{NAMESPACE}.svc", served["port"])
    assert f"--preview-listen=:{named[served['targetPort']]}" in container("Deployment cardshare-controller")["args"]
    options = certs_options.parse(arguments("Job cardshare-certs"), {})
    assert isinstance(options, EnsureInCluster)
    _, asked = options.place.pairs
    assert (asked.secret, asked.wanted.dns_names) == (certs_of("controller")["secretName"], (host,))


def test_secrets_and_configuration_are_reached_by_their_names_alone():
    for account in EXPECTED_RIGHTS:
        for where, rule in rules_of(account):
            if {"secrets", "configmaps"} & set(rule.get("resources", ())):
                # Namespaces of others need not exist, so that no Role can stand there.
                assert where or rule["resources"] == ["configmaps"], rule
                assert rule.get("resourceNames"), rule
            if "admissionregistration.k8s.io" in rule.get("apiGroups", ()):
                assert rule["resourceNames"] == ["cardshare"]


@pytest.mark.parametrize("account", ["cardshare-controller", "cardshare-webhook"])
def test_both_processes_may_follow_every_config_map_of_the_configuration(account: str):
    settings = Settings()
    named = {
        (where, name)
        for where, rule in rules_of(account)
        for name in rule.get("resourceNames", ())
        if {"list", "watch"} <= set(rule["verbs"])
    }
    assert (settings.device_config_namespace, settings.device_config_name) in named
    for place in (SCHEDULER_MAP, CHIPS_MAP):
        assert ("", place.partition("/")[2]) in named


# Posture of the pods


@pytest.mark.parametrize("title", TEMPLATES)
def test_a_pod_runs_restricted_on_a_read_only_root(title: str):
    assert one("Namespace", NAMESPACE)["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    spec = TEMPLATES[title]["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] == spec["securityContext"]["runAsGroup"] == 65532
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    context = container(title)["securityContext"]
    assert context["allowPrivilegeEscalation"] is False
    assert context["readOnlyRootFilesystem"] is True
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert all("hostPath" not in volume for volume in spec.get("volumes", ()))
    resources = container(title)["resources"]
    assert {"cpu", "memory"} <= set(resources["requests"])
    assert "memory" in resources["limits"]


@pytest.mark.parametrize("title", TEMPLATES)
def test_a_pod_has_a_token_exactly_where_its_account_has_rights(title: str):
    spec = TEMPLATES[title]["spec"]
    assert spec["automountServiceAccountToken"] is bool(EXPECTED_RIGHTS[spec["serviceAccountName"]])


@pytest.mark.parametrize(
    "title", [f"Deployment cardshare-{each}" for each in ("webhook", "controller", "certs-keeper")]
)
def test_a_process_is_probed_on_its_plain_port(title: str):
    found = container(title)
    ports = {port["name"]: port["containerPort"] for port in found["ports"]}
    (plain,) = [arg for arg in found["args"] if arg.startswith(("--metrics-listen", "--listen")) and "844" not in arg]
    assert plain.endswith(f":{ports['plain']}")
    assert found["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "plain"}
    assert found["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "plain"}


def certs_of(component: str) -> Json:
    """The Secret that a Deployment mounts."""
    volumes = TEMPLATES[f"Deployment cardshare-{component}"]["spec"]["volumes"]
    (found,) = [volume["secret"] for volume in volumes if "secret" in volume]
    return dict(found)


@pytest.mark.parametrize("component", ["webhook", "controller"])
def test_who_serves_gets_its_pair_and_nothing_else(component: str):
    secret = certs_of(component)
    assert secret["secretName"] == f"cardshare-{component}-tls"
    assert {item["key"] for item in secret["items"]} == {"tls.crt", "tls.key", "ca.crt"}
    assert all(item["key"] == item["path"] for item in secret["items"])


def test_no_pod_mounts_the_key_that_signs_and_no_account_but_one_reads_a_secret():
    mounted = {
        v["secret"]["secretName"]
        for each in TEMPLATES.values()
        for v in each["spec"].get("volumes", ())
        if "secret" in v
    }
    assert mounted == {"cardshare-webhook-tls", "cardshare-controller-tls"}
    readers = {who for who in EXPECTED_RIGHTS for _, rule in rules_of(who) if "secrets" in rule.get("resources", ())}
    assert readers == {"cardshare-certs"}


def test_every_secret_is_shipped_empty():
    options = certs_options.parse(arguments("Deployment cardshare-certs-keeper"), {})
    assert isinstance(options, Run)
    secrets = {found["metadata"]["name"]: found for found in OBJECTS if found["kind"] == "Secret"}
    assert secrets.keys() == set(options.place.secrets)
    assert all(found.keys() == {"apiVersion", "kind", "metadata"} for found in secrets.values())


def test_no_admission_call_is_lost_when_a_node_is_drained():
    webhook = one("Deployment", "cardshare-webhook")
    assert webhook["spec"]["replicas"] == 2
    assert webhook["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    budget = one("PodDisruptionBudget", "cardshare-webhook")["spec"]
    assert budget["minAvailable"] == 1
    labels = webhook["spec"]["template"]["metadata"]["labels"]
    assert budget["selector"]["matchLabels"] == labels == webhook["spec"]["selector"]["matchLabels"]
    assert one("Service", "cardshare-webhook")["spec"]["selector"] == labels
    spec = webhook["spec"]["template"]["spec"]
    drain_s = webhook_options.parse(arguments("Deployment cardshare-webhook"), {}).drain_s
    assert drain_s + 10 < spec["terminationGracePeriodSeconds"]


def test_a_second_controller_stands_by_for_the_lease_that_its_rights_name():
    spec = one("Deployment", "cardshare-controller")["spec"]
    assert (spec["replicas"], spec["strategy"]["rollingUpdate"]["maxUnavailable"]) == (2, 0)
    budget = one("PodDisruptionBudget", "cardshare-controller")["spec"]
    labels = spec["template"]["metadata"]["labels"]
    assert budget["selector"]["matchLabels"] == labels == spec["selector"]["matchLabels"]
    assert budget["minAvailable"] == 1
    lease = controller_config.parse(arguments("Deployment cardshare-controller"), {}).lease
    assert lease is not None
    named = [
        (where, rule["resourceNames"])
        for where, rule in rules_of("cardshare-controller")
        if "leases" in rule["resources"] and "resourceNames" in rule
    ]
    assert named == [(lease.namespace, [lease.name])]


def test_a_controller_has_time_to_end_its_writes_and_release_its_lease():
    grace_s = TEMPLATES["Deployment cardshare-controller"]["spec"]["terminationGracePeriodSeconds"]
    assert grace_s > DRAIN_S + RELEASE_S + 10


# Arguments, as the processes read them


def arguments(title: str) -> list[str]:
    """The arguments; paths of mounted files lead to this test's folder, which exists."""
    return [re.sub(r"=/etc/cardshare/.*", f"={DEPLOY}", arg) for arg in container(title)["args"]]


def test_the_webhook_understands_its_arguments():
    options = webhook_options.parse(arguments("Deployment cardshare-webhook"), {})
    ports = {port["name"]: port["containerPort"] for port in container("Deployment cardshare-webhook")["ports"]}
    assert (options.listen.port, options.metrics_listen.port) == (ports["https"], ports["plain"])
    # The account may read nodes: see EXPECTED_RIGHTS.
    assert options.inventory is True


def test_the_controller_understands_its_arguments():
    config = controller_config.parse(arguments("Deployment cardshare-controller"), {})
    port = next(found for found in container("Deployment cardshare-controller")["ports"] if found["name"] == "plain")
    assert config.listen.port == port["containerPort"]


@pytest.mark.parametrize(("title", "account"), [("controller", "controller"), ("certs-keeper", "certs")])
def test_a_process_is_told_its_pod_and_may_write_that_pods_status(title: str, account: str):
    found = {one["name"]: one for one in container(f"Deployment cardshare-{title}")["env"]}
    fields = {name: one["valueFrom"]["fieldRef"]["fieldPath"] for name, one in found.items() if "valueFrom" in one}
    assert fields == {"POD_NAMESPACE": "metadata.namespace", "POD_NAME": "metadata.name"}
    told = found["CARDSHARE_POD"]["value"].replace("$(POD_NAMESPACE)", "n").replace("$(POD_NAME)", "p")
    own = arguments(f"Deployment cardshare-{title}")
    environ = {"CARDSHARE_POD": told}
    options = certs_options.parse(own, environ) if account == "certs" else controller_config.parse(own, environ)
    assert not isinstance(options, certs_options.Ensure | EnsureInCluster | certs_options.Status)
    assert options.pod == ("n", "p")
    rights = EXPECTED_RIGHTS[f"cardshare-{account}"]
    assert {("", "pods", "get"), ("", "pods/status", "patch")} <= rights


def test_both_processes_read_every_key_of_the_settings_config_map():
    for title in ("Deployment cardshare-webhook", "Deployment cardshare-controller"):
        mounts = {mount["name"]: mount["mountPath"] for mount in container(title)["volumeMounts"]}
        assert f"--settings={mounts['settings']}" in container(title)["args"]
        (volume,) = [v for v in TEMPLATES[title]["spec"]["volumes"] if v["name"] == "settings"]
        assert volume == {"name": "settings", "configMap": {"name": "cardshare-settings"}}


@pytest.mark.parametrize("title", TEMPLATES)
def test_what_keeps_a_container_from_starting_is_shown_with_its_pod(title: str):
    assert container(title)["terminationMessagePolicy"] == "FallbackToLogsOnError"


@pytest.mark.parametrize("title", ["Job cardshare-certs", "CronJob", "Deployment cardshare-certs-keeper"])
def test_certificates_are_made_for_the_service_that_the_entries_name(title: str):
    options = certs_options.parse(arguments(title), {})
    assert isinstance(options, EnsureInCluster | Run)
    assert options.place.webhooks == ("cardshare",)
    (volume,) = [v for v in TEMPLATES["Deployment cardshare-webhook"]["spec"]["volumes"] if v["name"] == "certs"]
    first, _ = options.place.pairs
    assert first.secret == volume["secret"]["secretName"]
    for webhook in one("MutatingWebhookConfiguration", "cardshare")["webhooks"]:
        service = webhook["clientConfig"]["service"]
        assert (service["namespace"], service["name"]) == (options.place.namespace, options.place.service)
        assert f"{service['name']}.{service['namespace']}.svc" in first.wanted.dns_names
        assert service["path"] == "/mutate"
    secrets = [
        rule for _, rule in rules_of("cardshare-certs") if "get" in rule["verbs"] and "secrets" in rule["resources"]
    ]
    assert [rule["resourceNames"] for rule in secrets] == [list(options.place.secrets)]


def test_the_same_certificates_are_made_at_first_and_every_day():
    assert TEMPLATES["CronJob"]["spec"] == TEMPLATES["Job cardshare-certs"]["spec"]


def test_settings_as_shipped_are_the_defaults():
    assert decode_settings(one("ConfigMap", "cardshare-settings")["data"]["cardshare.yaml"]) == Settings()


def patched(document: Json, operations: Iterable[Json]) -> Json:
    """*document* after JSON patch operations."""
    found: Any = copy.deepcopy(document)
    for each in operations:
        *way, last = [int(part) if part.isdigit() else part for part in each["path"].strip("/").split("/")]
        place = found
        for part in way:
            place = place[part]
        if each["op"] == "test":
            assert place[last] == each["value"], each
        elif each["op"] == "add":
            place.insert(last, each["value"])
        else:
            assert (each["op"], last in place) == ("replace", True), each
            place[last] = each["value"]
    return dict(found)


def installed(overlay: str, kind: str, name: str) -> Json:
    """An object as an overlay has it."""
    kustomization = yaml.safe_load((DEPLOY / "overlays" / overlay / "kustomization.yaml").read_text())
    below = kustomization["resources"][0].removeprefix("../")
    found = installed(below, kind, name) if below in OVERLAYS else one(kind, name)
    for patch in kustomization["patches"]:
        target = patch.get("target", {"kind": "", "name": ""})
        if target["kind"] == kind and re.fullmatch(target["name"], name) and "patch" in patch:
            found = patched(found, yaml.safe_load(patch["patch"]))
        if patch.get("path") == "settings.yaml" and name == "cardshare-settings":
            (found,) = yaml.safe_load_all((DEPLOY / "overlays" / overlay / "settings.yaml").read_text())
    return found


OVERLAYS = sorted(path.name for path in (DEPLOY / "overlays").iterdir())
HAMI = {"hami-scheduler": "system:serviceaccount:kube-system:hami-scheduler"}
VOLCANO = {"volcano": "system:serviceaccount:volcano-system:volcano-scheduler"}


@pytest.mark.parametrize(
    ("overlay", "placed", "others"),
    [
        ("default", ["cardshare"], HAMI),
        ("volcano-name", ["cardshare", "volcano"], HAMI),
        ("beside-volcano", ["cardshare"], HAMI | VOLCANO),
    ],
)
def test_an_overlay_says_who_assigns_cards_beside_us_to_webhook_conditions_and_policies_alike(
    overlay: str, placed: list[str], others: dict[str, str]
):
    settings = decode_settings(installed(overlay, "ConfigMap", "cardshare-settings")["data"]["cardshare.yaml"])
    expected = Settings(scheduler_names=tuple(placed), admission=AdmissionSettings(other_schedulers=others))
    assert settings == expected
    for name in ("pods.cardshare.io", "bindings.cardshare.io"):
        judges = installed(overlay, "ValidatingAdmissionPolicy", name)["spec"]
        assert dict(entry.split("=", 1) for entry in entries(judges, "schedulerAccounts")) == others
        judges["variables"][2]["expression"] = "[]"
        assert judges == policy(name)
    for kind in (MUTATING, VALIDATING):
        found = installed(overlay, kind, "cardshare")["webhooks"]
        (update,) = [each for each in found if each["name"] == "update.pods.cardshare.io"]
        (condition,) = [each for each in update["matchConditions"] if each["name"] == "writer-is-not-its-scheduler"]
        expression = condition["expression"]
        pairs = re.findall(
            r"username == '([^']+)'\s*&& oldObject.spec.\?schedulerName.orValue\(''\) == '([^']+)'", expression
        )
        assert {scheduler: account for account, scheduler in pairs} == others
        assert len(pairs) * 2 == len(re.findall("==", expression))
        assert expression.startswith("!(")
        update["matchConditions"].remove(condition)
        for each in [each for each in found if each["name"] == "bind.pods.cardshare.io"]:
            found_names = words(each["matchConditions"][0]["expression"])
            assert found_names == {CONTROLLER_ACCOUNT, *others.values()}
            each["matchConditions"][0] = one(kind, "cardshare")["webhooks"][3]["matchConditions"][0]
        assert found == one(kind, "cardshare")["webhooks"]


def test_nobody_beside_us_assigns_cards_unreviewed_where_no_overlay_says_so():
    for kind in (MUTATING, VALIDATING):
        for each in one(kind, "cardshare")["webhooks"]:
            for condition in each.get("matchConditions", ()):
                found = {word for word in words(condition["expression"]) if word.startswith("system:serviceaccount:")}
                assert found <= {account.removesuffix("*") for account in TRUSTED_ACCOUNTS}, condition["name"]


def test_no_account_is_believed_of_a_namespace_that_a_tenant_could_make():
    for account in TRUSTED_ACCOUNTS:
        assert account.split(":")[2] in {"kube-system", "cardshare-system"}


# The image


def test_the_image_holds_the_packages_that_the_manifests_run_and_runs_them_as_their_user():
    text = (DEPLOY.parent / "Dockerfile").read_text()
    for title in TEMPLATES:
        assert container(title)["image"] == "cardshare"
        python, flag, module = container(title)["command"]
        assert (python, flag) == ("python", "-m")
        assert f"COPY {module} /app/{module}\n" in text
    assert "USER 65532:65532" in text
    assert "--require-hashes" in text
    assert "PYTHONSAFEPATH=1" in text


def test_the_image_is_built_from_nothing_that_is_kept_out_of_its_build():
    text = (DEPLOY.parent / "Dockerfile").read_text()
    let_in = {line[1:] for line in (DEPLOY.parent / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert set(re.findall(r"^COPY ([^-]\S*) ", text, re.MULTILINE)) == let_in


def test_the_image_has_core_compiled_unless_it_is_built_with_another_word():
    text = (DEPLOY.parent / "Dockerfile").read_text()
    assert text.index("ARG CORE=compiled\n") < text.index("FROM ")
    stages = dict(re.findall(r"^FROM (\S+) AS (core-\w+)$", text, re.MULTILINE))
    assert stages == {"packages": "core-interpreted", "core-interpreted": "core-compiled"}
    compiling = text.partition(" AS core-compiled\n")[2].partition("\nFROM ")[0]
    assert "-r /packages/requirements-compile.lock" in compiling
    assert "--require-hashes" in compiling
    assert compiling.rstrip().endswith(" /scripts/building/compile_core.py --in-place /app")
    last = text.rpartition("\nFROM ")[2]
    assert "FROM core-${CORE} AS core\n" in text
    assert "COPY --from=core /app /app\n" in last
    assert not re.search(r"apt-get|mypy|compile_core", last)


def test_the_image_holds_all_rooms_that_its_commands_import():
    copied = set(re.findall(r"^COPY (\S+) /app/", (DEPLOY.parent / "Dockerfile").read_text(), re.MULTILINE))
    rooms = "|".join(("core", "runtime", "kube", "webhook", "controller", "certs", "cli", "sandbox"))
    for room in copied:
        for path in (DEPLOY.parent / room).rglob("*.py"):
            used = re.findall(rf"^\s*(?:from|import) ({rooms})\b", path.read_text(), re.MULTILINE)
            assert set(used) <= copied, path


def test_the_controller_may_list_what_mindcluster_says_where_it_says_it():
    role, *bindings = yaml.safe_load_all((DEPLOY / "mindcluster.yaml").read_text())
    assert [(rule["resources"], rule["verbs"]) for rule in role["rules"]] == [(["configmaps"], ["list", "watch"])]
    assert {binding["metadata"]["namespace"] for binding in bindings} == {
        place.namespace for place in places(standard_catalog())
    }
    for binding in bindings:
        assert binding["roleRef"]["name"] == role["metadata"]["name"]
        (subject,) = binding["subjects"]
        assert one(subject["kind"], subject["name"], subject["namespace"])


def test_who_evicts_for_others_may_do_that_and_no_more():
    role, binding = yaml.safe_load_all((DEPLOY / "preemption.yaml").read_text())
    rights = [(rule["apiGroups"], rule["resources"], rule["verbs"]) for rule in role["rules"]]
    assert rights == [
        ([""], ["pods/eviction"], ["create"]),
        (["policy"], ["poddisruptionbudgets"], ["list", "watch"]),
    ]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    (subject,) = binding["subjects"]
    assert one(subject["kind"], subject["name"], subject["namespace"])


def test_a_shadow_stands_apart_reads_alone_and_runs_restricted():
    found = list(yaml.safe_load_all((DEPLOY / "shadow.yaml").read_text()))
    apart = {obj["metadata"].get("namespace") for obj in found if "namespace" in obj["metadata"]}
    assert apart == {"cardshare-shadow"}
    (role,) = [obj for obj in found if obj["kind"] == "ClusterRole"]
    stored = {(what, verb) for rule in role["rules"] for what in rule.get("resources", ()) for verb in rule["verbs"]}
    writes = {(what, verb) for what, verb in stored if verb not in {"list", "watch"}}
    assert writes == {("tokenreviews", "create"), ("subjectaccessreviews", "create")}
    controllers = [rule for _, rule in rules_of("cardshare-controller")]
    reads = {(what, verb) for rule in controllers for what in rule["resources"] for verb in rule["verbs"]}
    assert stored - writes == {(what, verb) for what, verb in reads if verb in {"list", "watch"}}
    (url,) = [rule for rule in role["rules"] if "nonResourceURLs" in rule]
    assert (url["nonResourceURLs"], url["verbs"]) == ([SHADOW], ["get"])
    pod = found[-1]["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == role["metadata"]["name"]
    assert pod["securityContext"]["runAsNonRoot"]
    for container in (*pod["initContainers"], *pod["containers"]):
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert not container["securityContext"]["allowPrivilegeEscalation"]
    (container,) = pod["containers"]
    config = controller_config.parse(container["args"], {})
    assert (config.shadow, config.scheduler_names, config.settings_file) == (True, ("volcano",), "")
    assert config.trusted == {"kube-system", "volcano-system"}
    (certs,) = pod["initContainers"]
    made = certs_options.parse(certs["args"], {})
    assert isinstance(made, certs_options.Ensure)
    assert str(made.directory) == config.cert_dir
    assert "localhost" in made.wanted.dns_names


# Whose configuration is believed


@pytest.mark.parametrize(
    ("folder", "trusted"),
    [
        ("default", {"kube-system"}),
        ("volcano-name", {"kube-system", "volcano-system"}),
        ("beside-volcano", {"kube-system", "volcano-system"}),
    ],
)
def test_only_an_overlay_says_whose_configuration_is_believed_and_both_processes_believe_the_same(
    folder: str, trusted: set[str]
):
    name = "CARDSHARE_TRUST_NAMESPACES"
    patch = yaml.safe_load((DEPLOY / "overlays" / folder / "trust.yaml").read_text())
    for deployment in ("cardshare-controller", "cardshare-webhook"):
        environ = {each["name"]: each.get("value", "") for each in container(f"Deployment {deployment}")["env"]}
        assert controller_config.parse([], {name: environ[name]}).trusted == frozenset()
        found = patched(one("Deployment", deployment), patch)
        (set_here,) = [
            each["value"] for each in found["spec"]["template"]["spec"]["containers"][0]["env"] if each["name"] == name
        ]
        assert controller_config.parse([], {name: set_here}).trusted == trusted
        assert webhook_options.parse(["--cert-dir", "c"], {name: set_here}).trusted == trusted
    listed = yaml.safe_load((DEPLOY / "overlays" / folder / "kustomization.yaml").read_text())["patches"]
    target = {"kind": "Deployment", "name": "cardshare-(controller|webhook)"}
    assert {"path": "trust.yaml", "target": target} in listed
