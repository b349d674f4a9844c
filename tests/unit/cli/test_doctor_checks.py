"""What ``kubectl cards doctor`` finds, one fault at a time, in a cluster that has no other."""

import dataclasses
import re
from dataclasses import replace
from pathlib import Path

import pytest

from cli import doctor_checks
from cli.doctor_checks import CODES, Finding, Level, Plugin, Report, examine, examine_nodes_and_pods
from core import settings
from core.model import NodeName, Phase, Requirement
from tests.support.worlds.doctor import (
    DAY_S,
    ENTRY,
    HAMI_OLD,
    HELD,
    LEASES,
    NOW_S,
    OF_VOLCANO,
    OTHERS,
    POLICIES,
    REGISTER,
    RENAMED,
    T4,
    TWO_SHARES,
    UNKNOWN_PLUGIN,
    VOLCANO,
    added,
    facts,
    node,
    pod,
    running,
)

PAGE = Path(__file__).parents[3] / "docs/operators/doctor.md"

NARROWED = replace(
    ENTRY,
    name="vgpu.hami.io",
    namespaces=(Requirement(key="kubernetes.io/metadata.name", operator="NotIn", values=("team",)),),
)


IN_OLD_UNIT = {"volcano.sh/vgpu-ids-new": "GPU-a,NVIDIA,1000,0:", "cardshare.io/memory-unit": "10:1536"}
LARGE = {"volcano.sh/vgpu-number": "10", "volcano.sh/vgpu-memory": "65536", "volcano.sh/vgpu-cores": "400"}
LISTING = replace(node(), kubelet_version="v1.36.1", capacity=LARGE, allocatable=LARGE)
MANY = pod(limits={**T4, "volcano.sh/vgpu-memory": "30000"}, node_name=NodeName("t4-a"))


def test_a_pod_whose_devices_are_too_many_to_be_listed_is_a_problem_while_it_is_pending():
    report = examine(facts(nodes=(LISTING,), pods=(MANY,)))
    assert [(one.code, one.subject) for one in report.findings] == [("CS618", "node t4-a"), ("CS619", "pod team/p")]
    assert "status lists 30001 devices" in report.findings[1].text
    for well in (MANY._replace(phase=Phase.RUNNING), MANY._replace(node_name=NodeName("other"))):
        assert [one.code for one in examine(facts(nodes=(LISTING,), pods=(well,))).findings] == ["CS618"]


def test_another_plugin_beside_a_known_one_is_not_taken_for_that_of_the_cards():
    known = replace(UNKNOWN_PLUGIN, account="system:serviceaccount:kube-system:volcano-device-plugin")
    assert examine(facts(plugins=(known,), others=(UNKNOWN_PLUGIN,))).findings == ()


def test_the_account_of_a_plugin_must_be_in_the_settings_and_in_the_policies():
    found = facts(others=(UNKNOWN_PLUGIN,))
    well = added(found)
    assert examine(well).findings == ()
    for half in (replace(well, settings=found.settings), replace(well, accounts=found.accounts)):
        assert [one.code for one in examine(half).findings] == ["CS637"]


def test_cards_that_are_switched_off_are_named_also_where_the_configuration_is_not_judged():
    found = facts(settings=settings.Settings(dialects=frozenset({settings.DialectName("gpu_memory")})))
    (one,) = [one for one in examine_nodes_and_pods(found) if one.code == "CS611"]
    assert one.remedy == "enable a way of sharing; vgpu is switched off; the cards of one node get no new pods by it"


def test_unknown_plugins_of_twice_as_many_nodes_cost_twice_as_much(monkeypatch):
    looks = list[str]()

    def is_named(name, patterns):
        looks.append(name)
        return settings.is_named(name, patterns)

    monkeypatch.setattr(doctor_checks, "is_named", is_named)
    many = 40
    for count in (many, 2 * many):
        names = [f"n{at}" for at in range(count)]
        others = tuple(replace(UNKNOWN_PLUGIN, node=name) for name in names)
        found = examine(facts(nodes=tuple(map(node, names)), others=others)).findings
        assert [one.code for one in found] == ["CS637"] * count
    assert len(looks) <= 3 * 3 * many


@pytest.mark.parametrize(
    ("found", "code", "subject", "says"),
    [
        (facts(unread=(("namespaces", "no"),)), "CS601", "namespaces", "not judged: no"),
        (facts(refused=("x: bad",)), "CS602", "configuration", "x: bad"),
        (
            facts(own=(running(), running(), running("c", component="controller", refused="policy: found 'x'"))),
            "CS602",
            "pod cardshare-system/c",
            "policy: found 'x'",
        ),
        (facts(notes=("action 'preempt' has no effect here",)), "CS603", "configuration", "preempt"),
        (facts(ahead_s=300.2), "CS604", "clock of this machine", "300 s ahead of the API server's, which counts"),
        (facts(ahead_s=-61), "CS604", "clock of this machine", "61 s behind the API server's, which counts"),
        (facts(nodes=()), "CS611", "nodes", "none of 0 offers cards"),
        (facts(nodes=(node(), node("bad", "nonsense:"))), "CS612", "node bad", "it names no card"),
        (
            facts(nodes=(replace(node(), labels={"nvidia.com/mig.config.state": "pending"}),)),
            "CS614",
            "node t4-a",
            "takes no new pods of vgpu: NVIDIA's MIG manager is changing the GPUs of the node: "
            "label nvidia.com/mig.config.state=pending",
        ),
        (
            facts(bound=(pod(limits=T4, node_name=NodeName("t4-a"), annotations=IN_OLD_UNIT),)),
            "CS614",
            "node t4-a",
            "takes no new pods on some cards: pod team/p counts memory in units of 10 MiB",
        ),
        (
            facts(plugins=(replace(running(), key="kube-system/plugin", ready=False),)),
            "CS615",
            "node t4-a",
            "not ready",
        ),
        (
            facts(swapping={"t4-a": "configmap kube-system/hami-device-plugin", "gone": "configmap x/y"}),
            "CS616",
            "node t4-a",
            "kube-system/hami-device-plugin sets enablegetpreferredallocation",
        ),
        (
            facts(plugins=(HAMI_OLD,), pods=(TWO_SHARES,)),
            "CS617",
            "pod team/p",
            "containers init, c have cards, and registry:5000/projecthami/hami:v2.8.3 on t4-a treats each as the first",
        ),
        (facts(nodes=(LISTING,)), "CS618", "node t4-a", "v1.36.1 lists each device"),
        (
            facts(nodes=(replace(node(), allocatable={**node().allocatable, "volcano.sh/vgpu-memory": "1536"}),)),
            "CS620",
            "node t4-a",
            "advertises 1536 volcano.sh/vgpu-memory, but its registered cards have 15360",
        ),
        (facts(unevicting={"system:serviceaccount:a:b": "evict pods"}), "CS638", "system:serviceaccount:a:b", "evict"),
        (facts(unbinding="system:serviceaccount:a:b"), "CS634", "system:serviceaccount:a:b", "it may not bind"),
        (
            facts(others=(UNKNOWN_PLUGIN, replace(UNKNOWN_PLUGIN, node="another"))),
            "CS637",
            "node t4-a",
            "it has cards of vgpu and no pod of a known plugin for them; cardshare-system/cardshare-webhook-0, which "
            "runs as system:serviceaccount:team:plugin, may be that plugin",
        ),
        (facts(unasked="forbidden"), "CS635", "subjectaccessreviews", "forbidden"),
        (facts(mutating={}), "CS621", "mutatingwebhookconfiguration cardshare", "does not exist"),
        (
            facts(validating={"cardshare": (ENTRY, replace(ENTRY, name="other", ends_s=()))}),
            "CS622",
            "validatingwebhookconfiguration cardshare",
            "has no certificate",
        ),
        (
            facts(mutating={"cardshare": (replace(ENTRY, ends_s=(NOW_S - 1, NOW_S)),)}),
            "CS622",
            "mutatingwebhookconfiguration cardshare",
            "has expired",
        ),
        (
            facts(mutating={"cardshare": (replace(ENTRY, ends_s=(NOW_S - 1, NOW_S + 3.5 * DAY_S)),)}),
            "CS623",
            "mutatingwebhookconfiguration cardshare",
            "expires in 3 days",
        ),
        (
            facts(own=(running(ready=False), running(component="controller"))),
            "CS624",
            "deployment cardshare-system/cardshare-webhook",
            "no pod of it is ready",
        ),
        (
            facts(own=(running(ready=False, waits="ImagePullBackOff: Back-off pulling image"),)),
            "CS624",
            "deployment cardshare-system/cardshare-webhook",
            "no pod of it is ready (i: ImagePullBackOff: Back-off pulling image): pods that request cards",
        ),
        (facts(own=(running(), running(ready=False))), "CS629", "deployment cardshare-system/cardshare-webhook", "one"),
        (
            facts(
                tables=RENAMED,
                nodes=(node(number="example.com/gpu"),),
                validating={"cardshare": (replace(ENTRY, conditions="'example.com/gpu'"),)},
            ),
            "CS625",
            "mutatingwebhookconfiguration cardshare",
            "example.com/gpu",
        ),
        (
            facts(mutating={"cardshare": (replace(ENTRY, fails_closed=False),)}),
            "CS626",
            "mutatingwebhookconfiguration cardshare",
            "pass without review",
        ),
        (
            facts(policies=POLICIES | {"pods.cardshare.io": False}),
            "CS627",
            "validatingadmissionpolicybinding pods.cardshare.io",
            "does not deny",
        ),
        (
            facts(policies={name: denies for name, denies in POLICIES.items() if name != "bindings.cardshare.io"}),
            "CS627",
            "validatingadmissionpolicy bindings.cardshare.io",
            "does not exist",
        ),
        (
            facts(policies=POLICIES | {"locks.nodes.cardshare.io": False}),
            "CS627",
            "validatingadmissionpolicybinding locks.nodes.cardshare.io",
            "more of a Node than locks",
        ),
        (
            facts(mutating={"cardshare": (ENTRY,), "hami-webhook": (replace(ENTRY, name="vgpu.hami.io"),)}),
            "CS628",
            "mutatingwebhookconfiguration hami-webhook",
            "names HAMi's scheduler on pods that ask for GPUs: up to HAMi v2.6 on all",
        ),
        (
            facts(settings=OF_VOLCANO, leases={**LEASES, "volcano-system/volcano": OTHERS}),
            "CS631",
            "lease volcano-system/volcano",
            "volcano-scheduler-7 renews it",
        ),
        (facts(settings=OF_VOLCANO, pods=(VOLCANO,)), "CS631", "pod volcano-system/p", "it runs"),
        (facts(leases={}), "CS632", "lease cardshare-system/cardshare-controller", "no controller holds it"),
        (
            facts(leases={"cardshare-system/cardshare-controller": replace(HELD, renewed_s=NOW_S - 20)}),
            "CS632",
            "lease cardshare-system/cardshare-controller",
            "no controller holds it",
        ),
        (
            facts(accounts=("system:serviceaccount:volcano-system:volcano-scheduler",)),
            "CS633",
            "validatingadmissionpolicy pods.cardshare.io",
            "anyone who can create namespace volcano-system",
        ),
        (
            facts(pods=(pod(limits={**T4, "volcano.sh/vgpu-memory": "80000"}),)),
            "CS641",
            "pod team/p",
            "no node could ever take it: no card has 80000 MiB; the largest is Tesla T4 with 15360 MiB",
        ),
        (facts(pods=(pod(limits={"volcano.sh/gpu-memory": "1"}),)), "CS641", "pod team/p", "offers volcano.sh/gpu"),
        (
            facts(pods=(pod(limits={"nvidia.com/gpus": "1"}),)),
            "CS641",
            "pod team/p",
            "no node offers nvidia.com/gpus; did you mean nvidia.com/gpu?",
        ),
        (facts(pods=(pod(limits=T4, scheduler="nobodys"),)), "CS642", "pod team/p", "'nobodys' has not reacted to it"),
        (
            facts(classes={"volcano.sh/vgpu-number": "gpus", "example.com/other": "x"}),
            "CS643",
            "deviceclass gpus",
            "it claims volcano.sh/vgpu-number",
        ),
    ],
)
def test_a_fault_is_found_and_nothing_else(found, code, subject, says):
    (one,) = examine(found).findings
    assert (one.code, one.level, one.subject) == (code, CODES[code], subject)
    assert says in one.text
    assert one.remedy


def test_a_card_that_shrank_under_its_pod_is_a_problem_and_one_whose_pod_cannot_be_told_a_risk():
    assigned = {
        "volcano.sh/vgpu-node": "t4-a",
        "volcano.sh/vgpu-ids-new": "GPU-a,NVIDIA,16000,0:",
        "volcano.sh/vgpu-time": "1",
        "volcano.sh/bind-phase": "success",
    }
    over = pod(limits=T4, node_name="t4-a", annotations=assigned)
    assert {one.code for one in examine(facts(bound=(over,))).findings} == {"CS613"}
    unknown = pod(limits=T4, node_name="t4-a")
    assert {one.code for one in examine(facts(bound=(unknown,))).findings} == {"CS614"}


def test_a_node_that_the_mig_manager_has_left_pending_gets_the_command_that_makes_it_try_again():
    recut = replace(node(), labels={"nvidia.com/mig.config.state": "pending"})
    unknown = pod(limits=T4, node_name="b")
    found = examine(facts(nodes=(recut, node("b")), bound=(unknown,))).findings
    remedies = {one.subject: one.remedy for one in found if one.code == "CS614"}
    command = "kubectl delete pod -A -l app=nvidia-mig-manager --field-selector spec.nodeName=t4-a"
    assert remedies["node t4-a"].endswith(f": {command}")
    assert "mig" not in remedies["node b"]


@pytest.mark.parametrize(
    "harmless",
    [
        facts(),
        facts(settings=OF_VOLCANO, leases={**LEASES, "volcano-system/volcano": HELD}),
        facts(leases={**LEASES, "volcano-system/volcano": OTHERS}, pods=(VOLCANO,)),
        facts(ahead_s=-59.0),
        facts(pods=(pod(limits=T4),)),
        facts(pods=(pod(limits=T4, scheduler="new", created_s=int(NOW_S) - 5),)),
        facts(pods=(pod(limits=T4, scheduler="volcano", scheduled_reason="Unschedulable"),)),
        facts(pods=(pod(limits={"cpu": "1"}, scheduler="nobodys"),)),
        facts(plugins=(replace(HAMI_OLD, image="projecthami/hami:v2.10.0"),), pods=(TWO_SHARES,)),
        facts(plugins=(replace(HAMI_OLD, image="registry:2.5/hami@sha256:0"),), pods=(TWO_SHARES,)),
        facts(plugins=(HAMI_OLD,), pods=(TWO_SHARES._replace(init_containers=()),)),
        facts(mutating={"cardshare": (replace(ENTRY, by_url=True),)}, own=()),
        facts(mutating={"cardshare": (replace(ENTRY, by_url=True, ends_s=()),)}, own=()),
        facts(mutating={"cardshare": (ENTRY,), "hami-webhook": (NARROWED,)}, pods=(pod(limits=T4),)),
        facts(mutating=None, validating=None, policies=None, leases=None, namespaces=None),
        facts(nodes=(replace(LISTING, kubelet_version="v1.35.4"),)),
        facts(nodes=(replace(node(), kubelet_version="v1.36.1"),)),
        facts(
            nodes=(
                replace(
                    LISTING,
                    annotations={
                        "volcano.sh/node-vgpu-register": "".join(
                            REGISTER.replace("GPU-a", f"GPU-{at}") for at in range(4)
                        )
                    },
                ),
            )
        ),
        facts(nodes=(LISTING,), unlisting=frozenset({"t4-a"})),
    ],
    ids=[
        "well",
        "our-lease",
        "beside-volcano",
        "clock-differs-a-little",
        "fits",
        "young",
        "told",
        "no-cards",
        "new-hami",
        "no-tag",
        "one-share",
        "webhook-elsewhere",
        "webhook-trusted-by-the-system",
        "hami-narrowed",
        "nothing-known",
        "kubelet-lists-none",
        "devices-are-few",
        "cards-are-small",
        "kubelet-s-gate-is-off",
    ],
)
def test_what_is_well_or_not_known_is_no_finding(harmless):
    report = examine(harmless)
    assert report.findings == ()
    assert report.worst is None


NONE = "no pod of it is ready"
ONE = "only one pod of it is ready"
CREATES, CHECKS = replace(ENTRY, fails_closed=False), replace(ENTRY, name="configuration.cardshare.io")


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (facts(own=()), f"{NONE}: pods that request cards are rejected"),
        (facts(own=(), mutating=None, validating=None), f"{NONE}: pods that request cards are rejected"),
        (facts(own=(), mutating={}, validating={}), NONE),
        (facts(own=(), mutating={"cardshare": (CREATES, CHECKS)}, validating={"cardshare": (CREATES,)}), NONE),
        (facts(own=(running(),)), f"{ONE}: if it ends, pods that request cards are rejected"),
        (facts(own=(running(),), mutating={}, validating={}), ONE),
    ],
    ids=["none", "unread", "not-installed", "open", "one", "one-not-installed"],
)
def test_pods_are_said_to_be_rejected_only_by_an_entry_that_fails_closed(found, says):
    texts = [one.text for one in examine(found).findings if one.code in ("CS624", "CS629")]
    assert texts == [says]


def test_where_no_pod_of_cardshare_is_the_namespace_may_be_another_one():
    (found,) = [one for one in examine(facts(own=(), namespace="other")).findings if one.code == "CS624"]
    assert found.remedy == "see kubectl -n other get deployments; if there is none, give the namespace with -n"
    alone = facts(own=(), leases={}, namespace="other")
    (found,) = [one for one in examine(alone).findings if one.code == "CS632"]
    assert found.remedy == (
        "see kubectl -n other logs -l app.kubernetes.io/component=controller; if there are no such pods, "
        "give the namespace with -n"
    )


def test_the_worst_level_decides_and_notes_do_not_count():
    assert examine(facts(notes=("n",))).worst is None
    assert examine(facts(unread=(("x", "y"),), notes=("n",))).worst is Level.UNKNOWN
    assert examine(facts(unread=(("x", "y"),), own=(running(),))).worst is Level.RISK
    assert examine(facts(mutating={}, own=(running(),))).worst is Level.PROBLEM


def test_plugins_are_counted_by_account_and_image():
    pods = tuple(replace(running(), account="p", image=f"plugin:{v}", node=f"n{i}") for i, v in enumerate((2, 1, 2)))
    found = [(one.image, one.nodes) for one in examine(facts(plugins=pods)).plugins]
    assert found == [("plugin:1", ("n1",)), ("plugin:2", ("n0", "n2"))]


def test_the_page_lists_every_code_with_its_level():
    rows = re.findall(r"^\| (CS6\d\d) \| (\w+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == [(code, str(level)) for code, level in CODES.items()]


def test_the_page_lists_every_field_and_no_other():
    table = PAGE.read_text(encoding="utf-8").split("| field of `doctor` | |\n|---|---|\n")[1].split("\n\n")[0]
    cells = " ".join(line.split(" | ")[0] for line in table.splitlines())
    listed = {part for name in re.findall(r"`([^`]+)`", cells) for part in re.findall(r"\w+", name)}
    assert listed == {field.name for kind in (Report, Finding, Plugin) for field in dataclasses.fields(kind)}
