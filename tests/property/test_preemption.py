"""Who leaves for another is what the documents say, found by trying everybody's staying and leaving on every node.

The twin has arithmetic of its own: cards and cpu as lists of free amounts, pods as tuples.
"""

from itertools import product
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.cardless import request_of
from core.ledger import Ledger
from core.model import Container, Node, NodeName, Pod, PodUid, Requirement
from core.placing.crowd import Crowd, Occupant
from core.placing.decide import NodePolicy, Shape
from core.placing.gang import Member, Unit
from core.placing.minimums import Minimum
from core.placing.preemption import FoundOnNodes, victims_for
from core.settings import Policy, Settings, Tables
from core.wire.policies import DisruptionBudget
from tests.support.devices.catalogs import catalog_of
from tests.support.devices.toy import HELD, Toy, ToyRequest
from tests.support.judging.asking import asking

MEMORY, CPU, MINE = 8, 6, 5
RULE = NodePolicy(Policy.BINPACK, 1)

# node, card, memory, cpu, priority, start, group (0: none), label
pods = st.tuples(
    st.integers(0, 2), st.integers(0, 1), st.integers(0, 8), st.integers(0, 4), st.integers(3, 6), st.integers(0, 3),
    st.sampled_from((0, 0, 0, 1, 2)), st.sampled_from("aab"),
)  # fmt: skip
clusters = st.lists(pods, max_size=7)
# Of each label, how many may be evicted; None: no budget.
budgets = st.fixed_dictionaries({label: st.sampled_from((None, 0, 1)) for label in "ab"})
asked = st.tuples(st.integers(0, 8), st.integers(0, 6))


def fitting(cluster):
    """Those of *cluster* that fit beside those before them, as (node, card, memory, cpu, ...)."""
    found: list[Any] = []
    for one in cluster:
        free, cpu = left([*found, one], one[0])
        if free[one[1]] >= 0 and cpu >= 0:
            found.append(one)
    return found


def left(there, node):
    """The free memory of each card of *node*, and its cpu, beside *there*."""
    on = [one for one in there if one[0] == node]
    return [MEMORY - sum(one[2] for one in on if one[1] == at) for at in (0, 1)], CPU - sum(one[3] for one in on)


def takes(there, node, wanted):
    free, cpu = left(there, node)
    return max(free) >= wanted[0] and cpu >= wanted[1]


def ledger_of(cluster):
    ledger = Ledger(catalog_of(Toy()), Tables(), Settings())
    for number in range(3):
        amounts = {"cpu": str(CPU), "pods": "99"}
        cards = {"toy.example/cards": f"a:{MEMORY},a:{MEMORY}"}
        ledger.set_node(Node(name=NodeName(f"n{number}"), annotations=cards, allocatable=amounts))
    for number, (node, card, memory, cpu, _, _, _, label) in enumerate(cluster):
        ledger.count(
            Pod(
                uid=PodUid(f"p{number}"), namespace="d", name=f"p{number}", node_name=f"n{node}",
                labels={"app": label}, annotations={HELD: f"{card}/{memory}/0"} if memory else {},
                containers=(Container(name="c", requests={"cpu": str(cpu)}),),
            )
        )  # fmt: skip
    return ledger


def crowd_of(cluster, allowed):
    blocks: dict[int, list[PodUid]] = {}
    for number, one in enumerate(cluster):
        blocks.setdefault(one[6], []).append(PodUid(f"p{number}"))
    found = tuple(
        DisruptionBudget("d", label, (Requirement(key="app", operator="In", values=(label,)),), many)
        for label, many in allowed.items()
        if many is not None
    )
    occupants = {
        PodUid(f"p{number}"): Occupant(priority=one[4], start_s=one[5], block=one[6] or None)
        for number, one in enumerate(cluster)
    }
    return Crowd(occupants, {group: uids for group, uids in blocks.items() if group}, found)


def member(number, wanted):
    memory, cpu = wanted
    shape = Shape(
        dialect=Toy.name if memory else None,
        request=ToyRequest(memory) if memory else None,
        amounts=(("cpu", cpu * 1000), ("pods", 1)) if cpu else (("pods", 1),),
        asked=asking(),
    )
    if not memory:
        shape = shape.asking(request_of(shape.amounts))
    return Member(pod=Pod(uid=PodUid(f"m{number}"), namespace="d", name=f"m{number}", priority=MINE), shape=shape)


def search(ledger, unit, crowd, priority=MINE, known=None):
    found = victims_for(ledger, RULE, unit, crowd, priority=priority, known=known)
    while True:
        try:
            next(found)
        except StopIteration as end:
            return end.value


class Book:
    """Who may leave, by what Kubernetes' documentation says, and what that costs."""

    def __init__(self, cluster, allowed):
        self.cluster, self.allowed = cluster, allowed
        groups: dict[Any, list[int]] = {}
        for number, one in enumerate(cluster):
            groups.setdefault((one[6], None if one[6] else number), []).append(number)
        self.blocks = [some for some in groups.values() if all(cluster[at][4] < MINE for at in some)]

    def important(self, block):
        """What sorts a block: the higher priority first, then who began first, then by name."""
        first = min((-self.cluster[at][4], self.cluster[at][5], f"d/p{at}") for at in block)
        return -max(self.cluster[at][4] for at in block), min(self.cluster[at][5] for at in block), first[2]

    def in_turn(self, block):
        return sorted(block, key=lambda at: (-self.cluster[at][4], self.cluster[at][5], f"d/p{at}"))

    def broken(self, blocks):
        """By block, how many of it go against a budget, if they go in this order."""
        gone = dict.fromkeys(self.allowed, 0)
        found = []
        for block in blocks:
            many = 0
            for at in self.in_turn(block):
                label = self.cluster[at][7]
                gone[label] += 1
                many += self.allowed[label] is not None and gone[label] > self.allowed[label]
            found.append(many)
        return found

    def without(self, gone):
        away = {at for block in gone for at in block}
        return [one for at, one in enumerate(self.cluster) if at not in away]

    def on(self, node, wanted):
        """(cost, victims) of *node*, or None; of all ways to let some stay the one that lets the first stay."""
        blocks = sorted((b for b in self.blocks if any(self.cluster[at][0] == node for at in b)), key=self.important)
        broken = self.broken(blocks)
        turn = sorted(range(len(blocks)), key=lambda at: (broken[at] == 0, at))
        best = None
        for stays in product((True, False), repeat=len(blocks)):
            gone = [blocks[turn[at]] for at, stay in enumerate(stays) if not stay]
            if takes(self.without(gone), node, wanted) and (best is None or stays > best):
                best = stays
        if best is None:
            return None
        away = [turn[at] for at, stay in enumerate(best) if not stay]
        pods = [self.cluster[at] for number in away for at in blocks[number]]
        if not pods:
            return (0, -99, 0, 0, 0, node), set()
        highest = max(one[4] for one in pods)
        began = min(one[5] for one in pods if one[4] == highest)
        cost = (
            sum(self.broken([blocks[n] for n in sorted(away)])),
            highest,
            sum(one[4] + 2**31 for one in pods),
            len(pods),
            -began,
            node,
        )
        return cost, {at for number in away for at in blocks[number]}


@settings(max_examples=400, deadline=None)
@given(clusters, budgets, asked)
@example([(0, 0, 8, 0, 3, 0, 0, "a"), (0, 1, 8, 0, 4, 0, 0, "a"), (1, 0, 8, 0, 4, 0, 0, "b")], {"a": 0, "b": 1}, (8, 0))
def test_who_leaves_for_a_pod_is_what_trying_everything_finds(cluster, allowed, wanted):
    cluster = fitting(cluster)
    ledger, crowd = ledger_of(cluster), crowd_of(cluster, allowed)
    states = dict(ledger.states)
    answer = search(ledger, Unit(members=(member(0, wanted),)), crowd)
    assert ledger.states == states
    assert all(ledger.states[name] is state for name, state in states.items())
    book = Book(cluster, allowed)
    found = [one for node in range(3) if (one := book.on(node, wanted)) is not None]
    if not found:
        assert answer is None
        return
    cost, victims = min(found)
    if not victims:
        assert answer.victims == ()
        return
    assert {int(uid[1:]) for uid in answer.victims} == victims
    (placement,) = answer.placements
    assert placement.node == f"n{cost[5]}"
    # Nobody of our priority or above is among them, and their going is enough.
    for uid in answer.victims:
        assert cluster[int(uid[1:])][4] < MINE
        ledger.release(uid)
    ledger.reserve(placement)
    assert not ledger.overcommitted(placement.node)


# What happens between two searches: a pod goes, leaves, stays or comes back, or how many of a label may be evicted.
events = st.one_of(
    st.tuples(st.sampled_from(("gone", "leaving", "stays", "back")), st.integers(0, 6)),
    st.tuples(st.just("budgets"), budgets),
)
searches = st.tuples(
    st.lists(st.sampled_from(((8, 0), (5, 1))), min_size=1, max_size=2),
    st.sampled_from((MINE, 6)),
    st.lists(events, max_size=2),
)


@settings(max_examples=400, deadline=None)
@given(clusters, budgets, st.lists(searches, min_size=2, max_size=6))
# The second member is searched for when the first has spent what the budget allows; the next search begins anew.
@example(
    [
        (node, card, 8, 0, 4 if card or node == 2 else 3, 0, 0, "b" if card or node == 2 else "a")
        for node in range(3)
        for card in range(2)
    ],
    {"a": 1, "b": None},
    [([(8, 0), (5, 1)], MINE, [("stays", 0)]), ([(5, 1)], MINE, [])],
)
def test_what_former_searches_found_changes_no_answer(cluster, allowed, turns):
    cluster = fitting(cluster)
    ledger, crowd, known = ledger_of(cluster), crowd_of(cluster, allowed), FoundOnNodes()
    counted = [ledger.counted(PodUid(f"p{number}")) for number in range(len(cluster))]
    for wanted, priority, changes in turns:
        members = tuple(member(number, one) for number, one in enumerate(wanted))
        unit = Unit(members=members, minimum=Minimum(members=len(members)))
        assert search(ledger, unit, crowd, priority, known) == search(ledger, unit, crowd, priority)
        for what, which in changes:
            if what == "budgets":
                crowd = crowd._replace(budgets=crowd_of(cluster, which).budgets)
            elif which < len(cluster):
                uid, occupants = PodUid(f"p{which}"), dict(crowd.occupants)
                if what == "gone":
                    ledger.release(uid)
                elif what == "back" and counted[which] is not None and ledger.node_of(uid) is None:
                    ledger.count(counted[which])
                occupants[uid] = occupants[uid]._replace(leaving=what == "leaving", stays=what == "stays")
                crowd = crowd._replace(occupants=occupants)


def room_for(there, nodes, wanted):
    """How many members that ask *wanted* these nodes take."""
    memory, cpu = wanted
    found = 0
    for node in nodes:
        free, spare = left(there, node)
        cards = sum(one // memory for one in free) if memory else 99
        found += min(cards, spare // cpu if cpu else 99)
    return found


@settings(max_examples=300, deadline=None)
@given(clusters, budgets, st.tuples(st.integers(2, 8), st.integers(0, 3)), st.integers(2, 4))
def test_for_a_gang_nobody_leaves_in_vain(cluster, allowed, wanted, many):
    cluster = fitting(cluster)
    ledger, crowd = ledger_of(cluster), crowd_of(cluster, allowed)
    states = dict(ledger.states)
    members = tuple(member(number, wanted) for number in range(many))
    answer = search(ledger, Unit(members=members, minimum=Minimum(members=many)), crowd)
    assert all(ledger.states[name] is state for name, state in states.items())
    book = Book(cluster, allowed)
    if answer is None:
        assert room_for(book.without(book.blocks), range(3), wanted) < many
        return
    gone = {int(uid[1:]) for uid in answer.victims}
    blocks = [block for block in book.blocks if gone & set(block)]
    assert gone == {at for block in blocks for at in block}
    assert len(answer.placements) == many
    nodes = {int(placement.node[1:]) for placement in answer.placements}
    # With any of them staying, not all members find room where they go.
    for stays in blocks:
        assert room_for(book.without([block for block in blocks if block is not stays]), nodes, wanted) < many
    for uid in answer.victims:
        ledger.release(uid)
    for placement in answer.placements:
        ledger.reserve(placement)
        assert not ledger.overcommitted(placement.node)
    assert all(left(book.without(blocks), node)[1] >= 0 for node in nodes)
