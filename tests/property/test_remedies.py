"""Every remedy that a waiting pod is told is tried: whoever follows it is placed, now or once its wait is over."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from core.dialects.vgpu.table import VgpuTable
from core.explaining import explain
from core.ledger import Ledger
from core.model import Node, NodeConstraints, Pod, PodUid, Taint, Toleration
from core.placing.decide import Shape, node_policy, scan, shape_of, try_decide
from core.settings import Policy, Settings, Tables
from core.waiting import Said, said_in
from tests.support.devices.following import asking, wished, with_limits, without
from tests.support.devices.selling import (
    CATALOG,
    CORES,
    KINDS,
    MEMORY,
    REGISTER,
    TABLES,
    cluster,
    shares,
    wishing,
)

ROOM = {"pods": "20", "memory": "64Gi"}
IN_TENS = Tables(sections=(replace(TABLES.of(VgpuTable), named=VgpuTable().named._replace(mib_per_unit=10)),))
RED = Taint(key="red", value="yes", effect="NoSchedule")
NEVER = "Not even an empty node of this cluster could take it"
# Where nothing, or nothing of the pod, was named.
UNTRIED = ("it would then wait", "label a node", "ask the cluster's operator", "no node offers", "change what the pod")


@dataclass(frozen=True)
class Drawn:
    """A cluster with pods on it, and a pod that it refuses."""

    chance: Random
    nodes: tuple[Node, ...]
    best: tuple[Node, ...]
    ledger: Ledger
    pod: Pod


def in_tens(node: Node) -> Node:
    """*node* as its plugin registers it if memory is counted in units of 10 MiB."""
    register = re.sub(
        r"(,\d+,)(\d+),", lambda found: f"{found[1]}{int(found[2]) // 10},", node.annotations.get(REGISTER, "")
    )
    if not register:
        return node
    amounts = [{**have, MEMORY: str(int(have[MEMORY]) // 10)} for have in (node.capacity, node.allocatable)]
    annotations = {**node.annotations, REGISTER: register}
    return replace(node, annotations=annotations, capacity=amounts[0], allocatable=amounts[1])


def asked_in_tens(pod: Pod) -> Pod:
    containers = []
    for one in pod.containers:
        memory = one.limits.get(MEMORY)
        containers.append(one if memory is None else with_limits(one, **{MEMORY: str(-(-int(memory) // 10))}))
    return pod._replace(containers=tuple(containers))


def ledger_of(nodes: tuple[Node, ...], tables: Tables) -> Ledger:
    made = Ledger(CATALOG, tables, Settings())
    for one in nodes:
        made.set_node(one)
    return made


def takes(ledger: Ledger, asked: Pod) -> bool:
    shape = shape_of(asked, ledger)
    return isinstance(shape, Shape) and scan(ledger, node_policy(Settings()), shape) is not None


def kept_off(chance: Random, node: Node) -> Node:
    """*node* as something of it keeps pods off, now and then."""
    more = {**ROOM, "cpu": chance.choice(("4", "16"))}
    node = replace(node, allocatable={**node.allocatable, **more}, labels={**node.labels, "zone": chance.choice("ab")})
    match chance.choice("       acrt"):
        case "a" if MEMORY in node.allocatable:
            # Its plugin advertises less than its cards have.
            figure = chance.choice((MEMORY, CORES))
            less = str(1 + int(node.allocatable[figure]) // chance.choice((2, 3, 8)))
            return replace(node, allocatable={**node.allocatable, figure: less})
        case "c":
            return replace(node, unschedulable=True)
        case "r":
            return replace(node, ready=False)
        case "t":
            return replace(node, taints=(RED,))
        case _:
            return node


def repaired(node: Node, well: Node) -> Node:
    more = {key: node.allocatable[key] for key in (*ROOM, "cpu")}
    return replace(well, allocatable={**well.allocatable, **more}, labels=node.labels, ready=True)


def is_behind(node: Node, well: Node) -> bool:
    """Whether the plugin of *node* advertises something, and less than its cards have."""
    return any(0 < int(node.allocatable.get(one, "0")) < int(well.allocatable.get(one, "0")) for one in (MEMORY, CORES))


def drawn(seed: int) -> Drawn | None:
    chance = Random(seed)
    plain, _, best = cluster(chance, (*KINDS, shares))
    if not plain:
        return None
    tables = chance.choice((TABLES, TABLES, IN_TENS))
    if tables is IN_TENS:
        plain, best = [in_tens(one) for one in plain], [in_tens(one) for one in best]
    by_name = {one.name: one for one in best}
    nodes = tuple(kept_off(chance, one) for one in plain)
    well = tuple(repaired(one, by_name[one.name]) for one in nodes)
    ledger = ledger_of(nodes, tables)
    unit = asked_in_tens if tables is IN_TENS else lambda pod: pod
    for at in range(chance.choice((0, 0, 3, 8, 20))):
        holder = unit(wishing(chance, list(well))[0])._replace(uid=PodUid(f"h{at}"), name=f"h{at}")
        shape = shape_of(holder, ledger)
        found = try_decide(ledger, node_policy(Settings()), holder, shape) if isinstance(shape, Shape) else None
        if found is not None:
            ledger.reserve(found)
    pod = unit(wishing(chance, list(well))[0])
    if len(pod.containers) > 1 and any(map(is_behind, nodes, well)):
        return None  # what kubelet charges several containers with is not worked out for an advice
    if chance.random() < 0.2:
        first, *rest = pod.containers
        cpu = {"cpu": chance.choice(("2", "6", "20"))}
        first = first._replace(limits={**first.limits, **cpu}, requests={**first.requests, **cpu})
        pod = pod._replace(containers=(first, *rest))
    if chance.random() < 0.15:
        pod = pod._replace(constraints=NodeConstraints(selector=(("zone", chance.choice("abc")),)))
    shape = shape_of(pod, ledger)
    if not isinstance(shape, Shape) or scan(ledger, node_policy(Settings()), shape) is not None:
        return None
    return Drawn(chance, nodes, well, ledger, pod)


# ---------------------------------------------------------------------- what is told, piece by piece


def pieces(remedy: str) -> Iterator[str]:
    """The alternatives of *remedy*."""
    yield from re.split(
        r", or (?=ask|accept|tolerate|wait|leave|correct|use|label|until)|; (?=with|it would then)", remedy
    )


def unwished(pod: Pod, words: str, chance: Random) -> Pod:
    """*pod* after it followed *words*, one of those that are joined by "also"."""
    if words.startswith("accept an existing type"):
        listed = re.search(r"\((.*)\)", words)
        assert listed is not None
        return wished(without(pod, "nouse-gputype"), "nvidia.com/use-gputype", listed[1])
    if words.startswith("leave out the list of types"):
        return without(pod, "gputype")
    if words.startswith(("use existing cards", "leave out the list of cards")):
        # A list of cards to avoid may hold ids and positions.
        return without(pod, "uuid", "avoid")
    if words.startswith(("use an existing position", "leave out the list of positions")):
        return without(pod, "index", "avoid")
    if words.startswith(("leave out the mode", "use one that a card has")):
        return without(pod, "mode")
    if words == "leave out their list":
        return without(pod, "uuid", "index", "avoid")
    assert words.startswith("ask for "), words
    return asking(pod, words.removeprefix("ask for "), chance)


def check(world: Drawn) -> str:
    answer = explain.refused(world.ledger, shape_of(world.pod, world.ledger), Policy.BINPACK)  # type: ignore[arg-type]  # it asks
    text, remedy, kinds = explain.sentence(answer), answer.remedy, []
    wait, nearest = explain.wait(answer), explain._nearest_card(answer.nearest)
    assert "…" in text or said_in(wait.message) == Said(nearest, remedy or wait.cause.value.remedy), text
    best = ledger_of(world.best, world.ledger.tables)
    opened = tuple(replace(one, taints=(), unschedulable=False, ready=True) for one in world.nodes)
    emptied = ledger_of(opened, world.ledger.tables)
    if NEVER in text and "with its usable cards" not in text:
        assert not takes(best, world.pod), text
    for piece in pieces(remedy) if remedy else ():
        words = piece[:1].lower() + piece[1:]
        if "; also " in words or words.startswith(("accept", "use", "leave")):
            pod = world.pod
            for part in words.split("; also "):
                pod = unwished(pod, part, world.chance)
            assert takes(best, pod), text
            kinds.append("; ".join(part[:22] for part in words.split("; also ")))
        elif words.startswith("ask for "):
            later = "it would then wait" in remedy or "it would be placed now" in remedy
            pod = asking(world.pod, words.removeprefix("ask for "), world.chance)
            assert takes(emptied if later else world.ledger, pod), (text, pod.containers)
            kinds.append("ask")
        elif words.startswith("with ") and words.endswith(" it would be placed now"):
            pod = asking(world.pod, words[len("with ") : -len(" it would be placed now")], world.chance)
            assert takes(world.ledger, pod), text
            kinds.append("with")
        elif words.startswith("tolerate "):
            some = (Toleration(key="red", operator="Exists"),)
            pod = world.pod._replace(constraints=replace(world.pod.constraints, tolerations=some))
            assert takes(world.ledger, pod), text
            kinds.append("tolerate")
        elif words.startswith(("wait until", "until")):
            mended = (
                "healthy again",
                "is valid",
                "become usable",
                "keep the order",
                "allocatable again",
                "registered",
                "advertises as much",
            )
            repaired_first = any(one in words for one in mended)
            assert takes(best if repaired_first else emptied, world.pod), text
            kinds.append("wait")
        elif words.startswith("correct the pod's node selector"):
            assert takes(best, world.pod._replace(constraints=NodeConstraints())), text
            kinds.append("selector")
        elif words == "let fewer containers of one pod ask for cards":
            assert any(takes(best, world.pod._replace(containers=(one,))) for one in world.pod.containers), text
            kinds.append("fewer")
        elif words.startswith(UNTRIED):
            kinds.append(words.split(" ")[0])
        else:
            raise AssertionError(f"{words!r} in {text!r}")
    return " ".join(kinds) or ("never: " if answer.never else "") + "nothing"


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 2**40))
def test_whoever_follows_a_remedy_is_placed(seed):
    world = drawn(seed)
    if world is not None:
        check(world)
