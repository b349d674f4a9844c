"""What the policies of deploy/ protect, whom they trust, and that they cost little."""

import json

import pytest

from core import hami_lock, names
from core.admission.mutate import judge_new
from core.admission.rulebook import MOVED, rulebook
from core.catalog import standard_catalog
from core.dialects.ascend_hami import keys as hami_keys
from core.dialects.hami.table import HamiTable
from core.dialects.mindcluster import keys as chip_keys
from core.dialects.vgpu import keys as vgpu_keys
from core.settings import CONTROLLER_ACCOUNT, Settings, Tables
from core.wire.pods import decode_pod
from tests.support.devices.reviewed import reviewed
from tests.support.devices.texts import PLUGIN_ACCOUNTS, TRUSTED_ACCOUNTS
from tests.support.pages.manifest_lists import vendor_preferences
from tests.support.pages.shipped import CHIP, LOOP, OBJECTS, book, denials, entries, one, policy, words

POLICIES = [found["metadata"]["name"] for found in OBJECTS if found["kind"] == "ValidatingAdmissionPolicy"]
BY_DANA = {"userInfo": {"username": "dana", "groups": []}}
# Variables that say who and what, and nothing of how it is judged: what an operator edits.
NAMED = ("trustedAccounts", "pluginAccounts", "schedulerAccounts", "phaseAccounts", "pluginNodeKeys", "locks")


def policy_expressions(name: str) -> dict[str, str]:
    """Every expression of a policy, on one line."""
    spec = policy(name)
    found = {each["name"]: each["expression"] for each in (*spec["matchConditions"], *spec.get("variables", ()))}
    found |= {f"validation {i}": each["expression"] for i, each in enumerate(spec["validations"])}
    return {key: " ".join(text.split()) for key, text in found.items()}


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
        names.VGPU_REGISTER,
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
    locks = {one.node_lock.lock_key for one in specs if one.node_lock}
    locks |= {one.time_lock for one in specs} - {""}
    assert set(entries(found, "locks")) == locks


def test_policies_protect_exactly_the_keys_that_the_core_protects():
    pods, bindings = policy_expressions("pods.cardshare.io"), policy_expressions("bindings.cardshare.io")
    assert words(pods["changed"]) == protected_words()
    assert words(bindings["carries-an-assignment"]) == protected_words()


def test_a_policy_asks_before_it_judges_exactly_what_it_judges():
    found = policy_expressions("pods.cardshare.io")
    judged = ("changed", "frozen", "unseen", "ended", "elsewhere", "unplaced")
    # Conditions have no variables.
    listed = found["plugin"].replace("variables.pluginAccounts", found["pluginAccounts"])
    found["elsewhere"] = found["elsewhere"].replace("variables.plugin", listed)
    assert found["touches-what-is-guarded"] == " || ".join(f"({found[each]})" for each in judged)


def test_a_policy_keeps_what_a_bound_pod_says_of_its_cards_by_the_keys_that_the_core_freezes():
    frozen = words(policy_expressions("pods.cardshare.io")["frozen"]) - {"status", ""}
    assert frozen == {*vendor_preferences(), *MOVED} - book().protected


@pytest.mark.parametrize(
    "key", ["metax-tech.com/sgpu-qos-policy", "metax-tech.com/sgpu-app-class", "amd.com/use-gputype"]
)
def test_what_a_bound_pod_says_of_the_cards_of_a_vendor_stays(key):
    held = {"hami.io/metax-sgpu-devices-allocated": "GPU-0,Metax-SGPU,4096,10:;", key: "fixed-share"}

    def written(notes, node):
        return {"metadata": {"annotations": notes}, "spec": {**node, "containers": [{"name": "main"}]}}

    for notes in ({**held, key: "best-effort"}, {name: held[name] for name in held if name != key}):
        for node, denied in (({"nodeName": "a"}, ["CS305"]), ({}, [])):
            new, old = written(notes, node), written(held, node)
            assert denials("pods.cardshare.io", object=new, oldObject=old, request=BY_DANA) == denied


def test_a_policy_knows_a_pod_that_holds_cards_by_the_resources_and_keys_that_the_core_knows():
    plain = {name for name in book().resources if not name.startswith(CHIP)}
    assert words(policy_expressions("pods.cardshare.io")["cards"]) == {*plain, *book().protected, CHIP, ""}


PLAIN = {"nvidia.com/gpu": "1"}
MEMORY = {**PLAIN, "nvidia.com/gpumem": "1000"}


@pytest.mark.parametrize(
    "limits",
    [PLAIN, MEMORY, {"volcano.sh/vgpu-number": "1"}, {"cpu": "1"}, {"nvidia.com/gpu": "0"}],
    ids=["cards", "memory", "volcano", "none", "no-cards"],
)
@pytest.mark.parametrize("scheduler", ["", "default-scheduler", "cardshare", "hami-scheduler"])
@pytest.mark.parametrize("node", ["", "node-a"])
@pytest.mark.parametrize("labels", [{}, {"hami.io/webhook": "ignore"}], ids=["", "ignored"])
@pytest.mark.parametrize("initial", [False, True], ids=["", "init"])
def test_what_the_webhook_completes_or_denies_of_hamis_pods_a_policy_denies_while_it_is_away(
    limits, scheduler, node, labels, initial
):
    asking = {"name": "c", "image": "i", "resources": {"limits": limits, "requests": limits}}
    spec = {"containers": [{"name": "main", "image": "i"}], "nodeName": node, "schedulerName": scheduler}
    spec["initContainers" if initial else "containers"] = [asking]
    written = {"metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": labels}, "spec": spec}
    judged = denials("pods.cardshare.io", lambda *_: True, object=written, request=BY_DANA)
    assert denials("pods.cardshare.io", object=written, request=BY_DANA) == []
    if "nvidia.com/gpu" not in limits:
        assert judged == []
        return
    hamis = rulebook(Settings(), Tables(sections=(HamiTable(installed=True),)), standard_catalog())
    verdict = judge_new(reviewed(decode_pod(json.dumps(written).encode())), "dana", hamis).verdict
    if not verdict.allowed:
        # The webhook writes all that is wrong; the policy, what takes the cards of others.
        assert judged == (["CS302"] if node else ["CS321"] if scheduler in ("", "default-scheduler") else [])
        return
    is_placed = any("schedulerName" in one.values for one in verdict.edits)
    assert judged == (["CS321"] if is_placed else [])


def test_a_kubelets_picture_of_a_static_pod_is_no_policys_business():
    limits = {"resources": {"limits": PLAIN}}
    mirror = {"annotations": {"kubernetes.io/config.mirror": "x"}}
    written = {"metadata": mirror, "spec": {"nodeName": "node-a", "containers": [limits]}}
    for user, denied in (("system:node:node-a", []), ("dana", ["CS302"])):
        request = {"userInfo": {"username": user, "groups": []}}
        assert denials("pods.cardshare.io", lambda *_: True, object=written, request=request) == denied


@pytest.mark.parametrize(
    ("user", "groups", "denied"),
    [
        ("system:node:node-a", ["system:nodes"], []),
        ("system:node:node-b", ["system:nodes"], ["CS316"]),
        ("system:node:", ["system:nodes"], ["CS316"]),
        ("system:node:node-a", [], ["CS316"]),
        ("system:kube-controller-manager", [], []),
        ("dana", [], ["CS316"]),
    ],
    ids=["its-kubelet", "another-kubelet", "no-kubelet", "a-name-alone", "control-plane", "somebody"],
)
def test_only_its_own_kubelet_and_the_control_plane_end_a_pod_that_holds_cards(user, groups, denied):
    container = {"name": "c", "resources": {"limits": {"volcano.sh/vgpu-number": "1"}}}
    old = {"metadata": {"name": "p"}, "spec": {"nodeName": "node-a", "containers": [container]}}
    request = {"subResource": "status", "userInfo": {"username": user, "groups": groups}}
    new = {**old, "status": {"phase": "Failed"}}
    assert denials("pods.cardshare.io", object=new, oldObject=old, request=request) == denied


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_loops_over_nothing_of_an_object_before_its_size_was_asked(name: str):
    for text in policy_expressions(name).values():
        for found in LOOP.finditer(text):
            assert f"{found[1]}.size() " in text[: found.start()], (found[1], text)
