"""Every remedy of ``kubectl cards doctor`` is followed: its finding is gone then, and no other one has come."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.doctor_checks import CODES, Facts, Finding, Level, Webhook, examine
from core.ledger import Ledger
from core.model import Node, NodeName, Pod, PodUid, Requirement
from tests.support.worlds import doctor
from tests.support.worlds.doctor import ENTRY, HELD, NOW_S, POLICIES, T4, facts, node, pod, running

HAMI = replace(ENTRY, name="vgpu.hami.io")
LEASE = "cardshare-system/cardshare-controller"
OUR_LOG = (
    r"see kubectl -n cardshare-system (describe pods|"
    r"logs -l app\.kubernetes\.io/component=controller(; if there are no such pods, give the namespace with -n)?|"
    r"get deployments; if there is none, give the namespace with -n)"
)


LESS = {**node().allocatable, "volcano.sh/vgpu-memory": "1536"}
LARGE = {**node().allocatable, "volcano.sh/vgpu-memory": "65536"}
LISTING = replace(node("listing"), kubelet_version="v1.36.1", capacity=LARGE, allocatable=LARGE)
_TOLD = {
    "volcano.sh/vgpu-node": "listing",
    "volcano.sh/vgpu-ids-new": "GPU-a,NVIDIA,15000,0:",
    "volcano.sh/vgpu-time": "1",
    "volcano.sh/bind-phase": "success",
}
_MANY = {**T4, "volcano.sh/vgpu-memory": "30000"}
LISTED = pod(limits=_MANY, node_name="listing", annotations=_TOLD)._replace(uid=PodUid("many"), name="many")
_CARD = {"id": "GPU-h", "count": 10, "devmem": 15360, "devcore": 100, "type": "NVIDIA-Tesla T4", "health": True}
OF_HAMI = Node(
    name=NodeName("hamis"),
    ready=True,
    labels={"gpu": "on"},
    annotations={"hami.io/node-nvidia-register": json.dumps([_CARD])},
    capacity={"nvidia.com/gpu": "10"},
    allocatable={"nvidia.com/gpu": "10"},
)
ONE = {"nvidia.com/gpu": "1"}
OF_NVIDIA = replace(OF_HAMI, name=NodeName("nvidias"), capacity=ONE, allocatable=ONE)


def holding(name: str, memory: int | None) -> Pod:
    """A pod on the node, whose assignment nobody can tell if *memory* is None."""
    told = {
        "volcano.sh/vgpu-node": "t4-a",
        "volcano.sh/vgpu-ids-new": f"GPU-a,NVIDIA,{memory},0:",
        "volcano.sh/vgpu-time": "1",
        "volcano.sh/bind-phase": "success",
    }
    annotations = told if memory is not None else {}
    return pod(limits=T4, node_name="t4-a", annotations=annotations)._replace(uid=PodUid(name), name=name)


def waiting(name: str, limits: Mapping[str, str], scheduler: str = "cardshare") -> Pod:
    return pod(limits=limits, scheduler=scheduler)._replace(uid=PodUid(name), name=name)


# ---------------------------------------------------------------------- what goes wrong, each by itself

Change = Callable[[Facts], Facts]


def entries(found: Facts, change: Callable[[Webhook], Webhook]) -> Facts:
    return replace(found, mutating={**(found.mutating or {}), "cardshare": tuple(map(change, _ours(found)))})


def _ours(found: Facts) -> tuple[Webhook, ...]:
    return (found.mutating or {}).get("cardshare", ())


def with_pods(found: Facts, *pods: Pod) -> Facts:
    return replace(found, pods=(*found.pods, *pods))


FAULTS: tuple[Change, ...] = (
    lambda found: replace(found, unread=(("namespaces", "forbidden"),)),
    lambda found: replace(found, refused=("x: bad",)),
    lambda found: replace(found, plugins=(replace(running(), key="kube-system/plugin", ready=False),)),
    lambda found: replace(found, swapping={"t4-a": "configmap kube-system/hami-device-plugin"}),
    lambda found: with_pods(replace(found, plugins=(doctor.HAMI_OLD,)), doctor.TWO_SHARES),
    lambda found: replace(found, mutating={}),
    lambda found: entries(found, lambda one: replace(one, ends_s=())),
    lambda found: entries(found, lambda one: replace(one, ends_s=(NOW_S - 1,))),
    lambda found: entries(found, lambda one: replace(one, ends_s=(NOW_S + 3 * doctor.DAY_S,))),
    lambda found: entries(found, lambda one: replace(one, fails_closed=False)),
    lambda found: replace(found, own=()),
    lambda found: replace(found, own=(running(),)),
    lambda found: replace(found, policies={"pods.cardshare.io": False}),
    lambda found: replace(found, mutating={**(found.mutating or {}), "hami-webhook": (HAMI,)}),
    lambda found: replace(
        found, settings=doctor.OF_VOLCANO, leases={**(found.leases or {}), "volcano-system/volcano": doctor.OTHERS}
    ),
    lambda found: with_pods(replace(found, settings=doctor.OF_VOLCANO), doctor.VOLCANO),
    lambda found: replace(found, leases={LEASE: replace(HELD, renewed_s=NOW_S - 60)}),
    lambda found: replace(found, accounts=("system:serviceaccount:gone:volcano-scheduler",)),
    lambda found: replace(found, classes={"volcano.sh/vgpu-number": "gpus"}),
    lambda found: with_pods(found, waiting("large", {**T4, "volcano.sh/vgpu-memory": "80000"})),
    lambda found: with_pods(found, waiting("wrong", {**T4, "volcano.sh/vgpu-cores": "150"})),
    lambda found: with_pods(found, waiting("nobodys", T4, "nobodys")),
    lambda found: with_nodes(found, ()),
    lambda found: with_nodes(found, (node(), node("bad", "nonsense:"))),
    lambda found: with_pods(found, holding("a", 9000), holding("b", 9000), holding("c", 9000)),
    lambda found: with_pods(found, holding("untold", None)),
    lambda found: with_nodes(found, (node(), LISTING)),
    lambda found: with_pods(with_nodes(found, (node(), LISTING)), LISTED),
    lambda found: with_nodes(found, (node(), OF_NVIDIA)),
    lambda found: with_nodes(found, (node(), replace(node("less"), allocatable=LESS))),
    lambda found: replace(found, unbinding="system:serviceaccount:kube-system:hami-scheduler"),
    lambda found: replace(found, unevicting={"system:serviceaccount:cardshare-system:cardshare-controller": "evict"}),
    lambda found: with_nodes(
        replace(found, plugins=(*found.plugins, replace(doctor.HAMI_OLD, node="other"))), (node(), OF_HAMI)
    ),
    lambda found: replace(found, others=(doctor.UNKNOWN_PLUGIN,)),
)


def with_nodes(found: Facts, nodes: tuple[Node, ...]) -> Facts:
    ledger = Ledger(found.catalog, found.tables, found.settings)
    for one in nodes:
        ledger.set_node(one)
    return counted(replace(found, ledger=ledger))


def counted(found: Facts) -> Facts:
    """*found* with a ledger of its pods."""
    ledger = Ledger(found.catalog, found.tables, found.settings)
    for one in found.ledger.nodes():
        ledger.set_node(one)
    for each in found.pods:
        if each.node_name:
            ledger.count(each)
    return replace(found, ledger=ledger)


# ---------------------------------------------------------------------- who follows


def followed(found: Facts, finding: Finding) -> Facts:
    """*found* after somebody did what *finding* says, in each way that its words name."""
    subject, named = finding.subject.split(" ")[-1], finding.remedy
    match finding.code:
        case "CS601":
            assert named == "bind your account to the ClusterRole cardshare-viewer"
            return replace(found, unread=())
        case "CS602":
            return replace(found, refused=())
        case "CS611":
            assert named.startswith("install a device plugin")
            return with_nodes(found, (node(),))
        case "CS612":
            if subject == OF_NVIDIA.name:
                assert named == (
                    "leave the node to NVIDIA's plugin (kubectl label node nvidias gpu- && kubectl annotate node "
                    "nvidias hami.io/node-nvidia-register-), or remove that one from it and restart HAMi's there"
                )
                alone = replace(OF_NVIDIA, allocatable=OF_HAMI.allocatable)
                restarted = with_nodes(
                    found, tuple(alone if one.name == subject else one for one in found.ledger.nodes())
                )
                assert finding not in examine(restarted).findings
                return unlabelled(found, subject)
            assert named == "see the device plugin's log on that node, and restart it"
            return with_nodes(
                found, tuple(node(one.name) if one.name == subject else one for one in found.ledger.nodes())
            )
        case "CS613":
            assert named == "delete pods that kubectl cards get shows on it, until it holds no more than it has"
            while found.ledger.overcommitted(next(iter(found.ledger.states))):
                first = next(one for one in found.pods if one.node_name == subject and one.annotations)
                found = counted(replace(found, pods=tuple(one for one in found.pods if one is not first)))
            return found
        case "CS614":
            assert named == f"delete what kubectl cards get {subject} names, or wait until that ends"
            closed = "".join(found.ledger.states[next(iter(found.ledger.states))].closed.values())
            return counted(replace(found, pods=tuple(one for one in found.pods if one.key not in closed)))
        case "CS615":
            assert named == f"see kubectl describe pod {found.plugins[0].key}"
            return replace(found, plugins=tuple(replace(one, ready=True) for one in found.plugins))
        case "CS616":
            assert named == "set it to false, and restart the plugin's pod there"
            return replace(found, swapping={})
        case "CS617":
            assert named == "upgrade HAMi's device plugin to v2.9 or later"
            return replace(found, plugins=tuple(replace(one, image="hami:v2.9.0") for one in found.plugins))
        case "CS618":
            assert named.endswith(
                "or switch the kubelet's gates ResourceHealthStatus and ResourceHealthStatusMessage off"
            )
            return replace(found, unlisting=found.unlisting | {subject})
        case "CS619":
            assert named.startswith("delete it by force, then ")
            return counted(replace(found, pods=tuple(one for one in found.pods if one.key != subject)))
        case "CS620":
            assert named.startswith("restart the device plugin there; if it advertises as little then")
            return with_nodes(
                found, tuple(node(one.name) if one.name == subject else one for one in found.ledger.nodes())
            )
        case "CS621":
            assert named == "install cardshare again; if its objects have another prefix, give it with --name"
            return replace(found, mutating={**(found.mutating or {}), "cardshare": (ENTRY,)})
        case "CS622" | "CS623":
            assert named.startswith("see the log of the Deployment cardshare-certs-keeper")
            return entries(found, lambda one: replace(one, ends_s=ENTRY.ends_s))
        case "CS624" | "CS629":
            assert named == "run two" or re.fullmatch(OUR_LOG, named)
            return replace(found, own=(running(), running("cardshare-webhook-1")))
        case "CS626":
            assert named == "set its failurePolicy to Fail"
            return entries(found, lambda one: replace(one, fails_closed=True))
        case "CS627":
            assert named == "apply your overlay again, or run helm upgrade with the values of the installation"
            return replace(found, policies=POLICIES)
        case "CS628":
            assert (
                named == "remove it, or narrow its namespaceSelector to namespaces whose pods cardshare does not place"
            )
            theirs = Requirement(key="placed-by", operator="In", values=("hami",))
            narrowed = {"hami-webhook": (replace(HAMI, namespaces=(theirs,)),)}
            assert not [one for one in examine(replace(found, mutating=narrowed)).findings if one.code == "CS628"], (
                "narrowed"
            )
            return replace(found, mutating={"cardshare": _ours(found)})
        case "CS631":
            assert named == "kubectl -n volcano-system scale deployment volcano-scheduler --replicas=0"
            left = tuple(one for one in found.pods if one.namespace != "volcano-system")
            # Nobody renews its Lease then, until it ends.
            return replace(found, pods=left, leases={LEASE: (found.leases or {})[LEASE]})
        case "CS632":
            assert re.fullmatch(OUR_LOG, named)
            return replace(found, leases={**(found.leases or {}), LEASE: HELD})
        case "CS633":
            assert named == "take it out"
            return replace(found, accounts=())
        case "CS634":
            assert named.startswith("let it create pods/binding in all namespaces")
            return replace(found, unbinding="")
        case "CS636":
            assert named == (
                "check again after a minute; then start HAMi's plugin there, or leave the node to NVIDIA's: "
                f"kubectl label node {subject} gpu- && kubectl annotate node {subject} hami.io/node-nvidia-register-"
            )
            started = replace(found, plugins=(*found.plugins, replace(doctor.HAMI_OLD, node=subject)))
            assert finding not in examine(started).findings
            return unlabelled(found, subject)
        case "CS637":
            account = doctor.UNKNOWN_PLUGIN.account
            assert f'write accounts.plugins: {{"{account}": []}} into the values of the chart' in named
            assert f'plugin_accounts: ["{account}"] under admission in cardshare.yaml' in named
            return doctor.added(found)
        case "CS638":
            assert named == "grant it ClusterRole cardshare-preemption of deploy/preemption.yaml, or switch both off"
            return replace(found, unevicting={})
        case "CS641":
            assert named == "correct the pod and create it again"
            return replace(
                found, pods=tuple(corrected(one, finding) if one.key == subject else one for one in found.pods)
            )
        case "CS642":
            assert named == "correct its schedulerName, or leave it out"
            return replace(
                found,
                pods=tuple(
                    one._replace(scheduler_name="cardshare") if one.key == subject else one for one in found.pods
                ),
            )
        case "CS643":
            assert named == "take its extendedResourceName out"
            return replace(found, classes={})
    raise AssertionError(finding)


def unlabelled(found: Facts, name: str) -> Facts:
    """*found* with a node that HAMi's plugin has left, and its register and label too."""
    nodes = found.ledger.nodes()
    return with_nodes(
        found, tuple(replace(one, annotations={}, labels={}) if one.name == name else one for one in nodes)
    )


def corrected(one: Pod, finding: Finding) -> Pod:
    """*one* with the figure that *finding* names."""
    if least := re.search(r"ask for (\d+) MiB or less", finding.text):
        return waiting(one.name, {**T4, "volcano.sh/vgpu-memory": least[1]})
    if most := re.search(r"a whole number no larger than (\d+)", finding.text):
        return waiting(one.name, {**T4, "volcano.sh/vgpu-cores": most[1]})
    assert "no node of this cluster offers" in finding.text
    return waiting(one.name, {})


def _key(finding: Finding) -> tuple[str, str]:
    return finding.code, finding.subject


@given(st.lists(st.sampled_from(FAULTS), min_size=1, max_size=5))
def test_whoever_follows_what_doctor_says_is_rid_of_it(faults):
    found = facts()
    for fault in faults:
        found = counted(fault(found))
    for _ in range(40):
        asking = [one for one in examine(found).findings if one.level is not Level.NOTE]
        if not asking:
            return
        before = {_key(one) for one in asking}
        found = followed(found, asking[0])
        left = [one for one in examine(found).findings if one.level is not Level.NOTE]
        after = {_key(one) for one in left}
        # Of two pods that close a node, one finding tells; the other is told when the first is gone.
        assert asking[0] not in left, asking[0]
        # A node that has come, or can be read again, may be one that another finding is about.
        assert asking[0].code in ("CS611", "CS612") or after <= before, (asking[0], after - before)
    pytest.fail(f"no end of findings: {examine(found).findings}")


def test_every_code_that_asks_for_somebody_is_followed():
    seen = {one.code for fault in FAULTS for one in examine(counted(fault(facts()))).findings}
    renamed = {"CS625"}  # of renamed resources: `test_a_fault_is_found_and_nothing_else`
    assert seen | renamed == {code for code, level in CODES.items() if level is not Level.NOTE}
