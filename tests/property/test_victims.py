"""Who leaves for units of up to four pods, judged by trying all sets of victims in small clusters.

The judge has arithmetic of its own: cards and cpu as numbers, members put on nodes in every way. Where the search tries
only some ways, as for members that differ, it may miss a way; how often is bounded.
"""

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import NamedTuple

import pytest

from core.ledger import Ledger
from core.model import Container, Node, NodeName, PeerTerm, PeerTerms, Pod, PodUid, Requirement
from core.placing.crowd import Crowd, Occupant
from core.placing.decide import NodePolicy, Shape, shape_of
from core.placing.domains import LabelTiers, Near
from core.placing.gang import Member, Unit
from core.placing.minimums import Minimum
from core.placing.preemption import FoundOnNodes, victims_for
from core.placing.queues import Reclaim
from core.settings import Policy, Settings, Tables
from core.wire.policies import DisruptionBudget
from tests.support.devices.catalogs import catalog_of
from tests.support.devices.toy import HELD, MEMORY, Toy

RULE = NodePolicy(Policy.BINPACK, 1)
CARD, MINE, NEVER = 8, 5, -1 << 62
PATHS = {"x": ("x",), "y": ("y",), "z": ("y", "z")}
RESOURCES = ("memory", "cpu")
APPS = {label: (Requirement(key="app", operator="In", values=(label,)),) for label in "ab"}
MINES = (Requirement(key="app", operator="In", values=("mine",)),)
CASES = 80


class There(NamedTuple):
    """A pod on a node; group 0: none."""

    node: int
    card: int
    memory: int
    cpu: int
    priority: int
    start: int
    group: int
    label: str
    queue: str
    leaving: bool
    stays: bool
    pending: bool = False
    ready: bool = True


class Block(NamedTuple):
    """Numbers of pods that leave together; is_lower: for their priority, not only because their queue returns them."""

    pods: tuple[int, ...]
    is_lower: bool


class Cluster:
    """Nodes with cards and cpu, pods on them, and a unit that waits."""

    def __init__(self, seed: str, *, takes_back: bool) -> None:
        chance = self.chance = random.Random(seed)
        nodes = range(chance.randint(2, 4))
        self.cards = [chance.choice((0, 1, 1, 1, 2, 3)) for _ in nodes]
        self.cpu = [chance.choice((3, 4, 5, 6, 8)) for _ in nodes]
        self.zones = [chance.choice("ab") for _ in nodes]
        self.there: list[There] = []
        queue_of = {group: chance.choice(("x", "y", "z", "")) for group in (1, 2)}
        for number in range(chance.randint(3, 8)):
            one = self._some(number if number < len(nodes) else chance.choice(nodes))
            one = one._replace(queue=queue_of.get(one.group, one.queue))
            if self.has_room([*self.there, one]):
                self.there.append(one)
        allowed = {label: chance.choice((None, None, 0, 1)) for label in "ab"}
        kinds = [(chance.choice((0, 8, 8, 8, 4, 5, 2)), chance.choice((1, 1, 2, 3))) for _ in range(2)]
        kinds = kinds[: chance.choice((1, 1, 2))]
        self.members = [chance.choice(kinds) for _ in range(chance.randint(1, 4))]
        is_many = len(self.members) > 1
        self.is_apart = is_many and chance.random() < 0.15
        self.is_near = is_many and not self.is_apart and chance.random() < 0.15
        self.is_in_domain = is_many and not self.is_apart and chance.random() < 0.2
        self.priority = chance.choice((MINE, MINE - 1, NEVER)) if takes_back else MINE
        self.reclaim = self._reclaim() if takes_back else None
        self.there = [one._replace(pending=chance.random() < 0.1, ready=chance.random() < 0.8) for one in self.there]
        # Of each label, what each of its budgets allows, and whether it lets pods that are not ready go uncounted.
        self.budgets = {
            label: [(many, chance.random() < 0.5)] * chance.choice((1, 1, 1, 2)) if many is not None else []
            for label, many in allowed.items()
        }
        self.chosen = {number for number, one in enumerate(self.there) if not one.leaving and chance.random() < 0.08}

    def _some(self, node: int) -> There:
        chance = self.chance
        has_card = self.cards[node] and chance.random() < 0.75
        return There(
            node=node,
            card=chance.randrange(self.cards[node]) if has_card else 0,
            memory=chance.choice((8, 8, 8, 4, 4, 2, 5)) if has_card else 0,
            cpu=chance.choice((0, 0, 1, 2, 3) if has_card else (1, 1, 2, 3)),
            priority=chance.randint(3, 6),
            start=chance.randint(0, 3),
            group=chance.choice((0, 0, 0, 1, 2)),
            label=chance.choice("aab"),
            queue=chance.choice(("x", "y", "z", "")),
            leaving=chance.random() < 0.06,
            stays=chance.random() < 0.06,
        )

    def _reclaim(self) -> Reclaim:
        chance, held = self.chance, Counter[tuple[str, str]]()
        asked = [one for at, one in enumerate(RESOURCES) if any(member[at] for member in self.members)]
        known = {number: one for number, one in enumerate(self.there) if one.queue and not one.leaving}
        for number in known:
            held.update(self.losses((number,)))
        importance = {name: chance.randint(0, 1) for name in PATHS}
        may_go = {number: PATHS[one.queue] for number, one in known.items() if not one.stays}
        return Reclaim(
            paths={PodUid(f"p{number}"): path for number, path in may_go.items()},
            queues={PodUid(f"p{number}"): tuple(map(importance.__getitem__, path)) for number, path in may_go.items()},
            amounts=lambda uid: self.amounts(int(uid[1:])),
            resources=frozenset(asked),
            over={
                name: {one: float(held[name, one] - chance.choice((0, 0, 1, 2, 4, 8, 8, 16))) for one in asked}
                for name in PATHS
            },
            spare={
                name: {one: max(0, held[name, one] - chance.choice((0, 1, 2, 4, 8))) for one in RESOURCES}
                if chance.random() < 0.2
                else {}
                for name in PATHS
            },
            room={},
        )

    # ------------------------------------------------------------------ arithmetic

    def amounts(self, number: int) -> dict[str, int]:
        return {"memory": self.there[number].memory, "cpu": self.there[number].cpu}

    def losses(self, numbers: tuple[int, ...]) -> Counter[tuple[str, str]]:
        """What queues lose if these leave."""
        found = Counter[tuple[str, str]]()
        for number in numbers:
            for name in PATHS.get(self.there[number].queue, ()):
                found.update({(name, one): amount for one, amount in self.amounts(number).items()})
        return found

    def free(self, there: list[There]) -> tuple[dict[tuple[int, int], int], list[int]]:
        memory = {(node, card): CARD for node, cards in enumerate(self.cards) for card in range(cards)}
        cpu = [*self.cpu]
        for one in there:
            cpu[one.node] -= one.cpu
            if one.memory:
                memory[one.node, one.card] -= one.memory
        return memory, cpu

    def has_room(self, there: list[There]) -> bool:
        memory, cpu = self.free(there)
        return min(memory.values(), default=0) >= 0 and min(cpu) >= 0

    def without(self, gone: set[int]) -> list[There]:
        return [one for number, one in enumerate(self.there) if number not in gone and not one.leaving]

    def fits(self, gone: set[int], nodes: set[int] | None = None) -> bool:
        """Whether all members fit without *gone* and those who leave anyway, put on *nodes* in every way."""
        memory, cpu = self.free(self.without(gone))
        return self._put(memory, cpu, 0, [], range(len(self.cards)) if nodes is None else sorted(nodes))

    def _put(
        self, memory: dict[tuple[int, int], int], cpu: list[int], nth: int, where: list[int], nodes: range | list[int]
    ) -> bool:
        if nth == len(self.members):
            return True
        wants, needs = self.members[nth]
        for node in nodes:
            if cpu[node] < needs or not self.may_share([*where, node]):
                continue
            rooms = {memory[node, card]: (node, card) for card in range(self.cards[node])}
            places = [at for room, at in rooms.items() if room >= wants] if wants else [None]
            for at in places:
                cpu[node] -= needs
                if at is not None:
                    memory[at] -= wants
                found = self._put(memory, cpu, nth + 1, [*where, node], nodes)
                cpu[node] += needs
                if at is not None:
                    memory[at] += wants
                if found:
                    return True
        return False

    def may_share(self, nodes: list[int]) -> bool:
        """Whether members may be on these nodes together."""
        zones = [self.zones[node] for node in nodes]
        if self.is_apart and len(set(zones)) < len(zones):
            return False
        return not (self.is_near or self.is_in_domain) or len(set(zones)) <= 1

    # ------------------------------------------------------------------ who may leave

    def blocks(self) -> list[Block]:
        """Those who may leave, as far as that does not depend on who else does."""
        groups: dict[tuple[int, int], list[int]] = {}
        for number, one in enumerate(self.there):
            if not one.leaving:
                groups.setdefault((one.group, 0 if one.group else number), []).append(number)
        found = []
        for numbers in groups.values():
            pods = [self.there[number] for number in numbers]
            is_lower = all(one.priority < self.priority for one in pods)
            is_of_queue = self.reclaim is not None and all(one.queue or one.priority < self.priority for one in pods)
            if (is_lower or is_of_queue) and not any(one.stays for one in pods):
                found.append(Block(tuple(numbers), is_lower))
        return found

    def may_leave(self, blocks: tuple[Block, ...]) -> bool:
        """Whether all of *blocks* may leave: the lower ones first, and then the others in some order."""
        lost = Counter[tuple[str, str]]()
        for block in blocks:
            if block.is_lower:
                lost.update(self.losses(block.pods))
        return self._may_follow([one for one in blocks if not one.is_lower], lost)

    def _may_follow(self, blocks: list[Block], lost: Counter[tuple[str, str]]) -> bool:
        return not blocks or any(
            self._lets_go(block, lost)
            and self._may_follow([one for one in blocks if one is not block], lost + self.losses(block.pods))
            for block in blocks
        )

    def _lets_go(self, block: Block, lost: Counter[tuple[str, str]]) -> bool:
        assert self.reclaim is not None
        over, spare, losses = self.reclaim.over, self.reclaim.spare, self.losses(block.pods)
        for name in {name for number in block.pods for name in PATHS[self.there[number].queue]}:
            if not any(losses[name, one] and amount > lost[name, one] for one, amount in over[name].items()):
                return False
            if any(losses[name, one] + lost[name, one] > amount for one, amount in spare[name].items()):
                return False
        return True

    def violations(self, blocks: tuple[Block, ...]) -> int:
        """How many evictions the API server refuses, after those of *chosen*."""
        left = {label: budgets[0][0] for label, budgets in self.budgets.items() if budgets}
        self._refused(self.chosen, left)
        return self._refused([number for block in blocks for number in block.pods], left)

    def _refused(self, numbers: Iterable[int], left: dict[str, int]) -> int:
        refused = 0
        for number in numbers:
            one = self.there[number]
            budgets = self.budgets[one.label]
            if one.pending or not budgets or (len(budgets) == 1 and budgets[0][1] and not one.ready):
                continue
            if len(budgets) == 1 and left[one.label]:
                left[one.label] -= 1
            else:
                refused += 1
        return refused

    def choices(self) -> Iterator[tuple[Block, ...]]:
        """All sets of those who may leave together."""
        blocks = self.blocks()
        for many in range(len(blocks) + 1):
            yield from (some for some in combinations(blocks, many) if self.may_leave(some))

    # ------------------------------------------------------------------ what is searched

    def ledger(self) -> Ledger:
        ledger = Ledger(catalog_of(Toy()), Tables(), Settings())
        for number, cards in enumerate(self.cards):
            ledger.set_node(
                Node(
                    name=NodeName(f"n{number}"),
                    annotations={"toy.example/cards": ",".join([f"a:{CARD}"] * cards)} if cards else {},
                    labels={"zone": self.zones[number]},
                    allocatable={"cpu": str(self.cpu[number]), "pods": "99"},
                )
            )
        for number, one in enumerate(self.there):
            ledger.count(
                Pod(
                    uid=PodUid(f"p{number}"),
                    namespace="d",
                    name=f"p{number}",
                    node_name=f"n{one.node}",
                    labels={"app": one.label},
                    annotations={HELD: f"{one.card}/{one.memory}/0"} if one.memory else {},
                    containers=(Container(name="c", requests={"cpu": str(one.cpu)}),),
                )
            )
        return ledger

    def unit(self, ledger: Ledger) -> Unit:
        term, members = PeerTerm(topology_key="zone", selector=MINES), []
        for number, (memory, cpu) in enumerate(self.members):
            limits = {"cpu": str(cpu)} | ({MEMORY: str(memory)} if memory else {})
            pod = Pod(
                uid=PodUid(f"m{number}"),
                namespace="d",
                name=f"m{number}",
                priority=MINE,
                labels={"app": "mine"},
                peers=PeerTerms(affinity=(term,) * self.is_near, anti_affinity=(term,) * self.is_apart),
                containers=(Container(name="c", requests=limits, limits=limits),),
            )
            shape = shape_of(pod, ledger)
            assert isinstance(shape, Shape)
            members.append(Member(pod=pod, shape=shape))
        near = Near(LabelTiers(("zone",)), 1) if self.is_in_domain else None
        return Unit(members=tuple(members), minimum=Minimum(members=len(members)), topology=near)

    def crowd(self) -> Crowd:
        blocks: dict[int, list[PodUid]] = {}
        for number, one in enumerate(self.there):
            blocks.setdefault(one.group, []).append(PodUid(f"p{number}"))
        return Crowd(
            {
                PodUid(f"p{number}"): Occupant(
                    one.priority, one.start, one.group or None, one.leaving, one.stays, one.pending, one.ready
                )
                for number, one in enumerate(self.there)
            },
            {group: uids for group, uids in blocks.items() if group},
            tuple(
                DisruptionBudget("d", label, APPS[label], many, frees_unready=frees)
                for label, budgets in self.budgets.items()
                for many, frees in budgets
            ),
            [PodUid(f"p{number}") for number in sorted(self.chosen)],
        )


def judged(cluster: Cluster) -> str:
    """Search, and check what is found; return what was missed, "" if nothing."""
    ledger = cluster.ledger()
    unit, crowd, known = cluster.unit(ledger), cluster.crowd(), FoundOnNodes()
    states = dict(ledger.states)
    answers = []
    for kept in (None, known, known):
        steps = victims_for(ledger, RULE, unit, crowd, priority=cluster.priority, reclaim=cluster.reclaim, known=kept)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                answers.append(end.value)
                break
        assert all(ledger.states[name] is state for name, state in states.items())
    answer = answers[0]
    assert answers == [answer] * 3
    if answer is None:
        helps = any(cluster.fits({number for one in some for number in one.pods}) for some in cluster.choices())
        if helps and cluster.reclaim is None and len(set(cluster.members)) == 1:
            # Where the first of those goes that must be near each other, the others have to go, too.
            assert cluster.is_near
        return "a way" if helps else ""
    gone = {int(uid[1:]) for uid in answer.victims}
    blocks = tuple(one for one in cluster.blocks() if gone & set(one.pods))
    assert sorted(number for one in blocks for number in one.pods) == sorted(int(uid[1:]) for uid in answer.victims)
    assert cluster.may_leave(blocks)
    assert answer.violations == cluster.violations(blocks)
    # All have a place.
    there, nodes = cluster.without(gone), []
    for placement in answer.placements:
        memory, cpu = cluster.members[int(placement.pod[1:])]
        nodes.append(int(placement.node[1:]))
        card = placement.assignment[0][0] if memory else 0
        there.append(There(nodes[-1], card, memory, cpu, 0, 0, 0, "", "", False, False))
    assert sorted(one.pod for one in answer.placements) == sorted(one.pod.uid for one in unit.members)
    assert cluster.has_room(there)
    assert cluster.may_share(nodes)
    # Nobody leaves in vain.
    are_alike = len(set(cluster.members)) == 1
    is_one_spare = any(cluster.fits(gone - set(block.pods), set(nodes)) for block in blocks)
    is_nobody_needed = any(one.leaving for one in cluster.there) and cluster.fits(set())
    if blocks and (is_one_spare or (is_nobody_needed and not cluster.is_near)):
        assert not are_alike
        return "a victim to spare"
    if answer.violations:
        for some in cluster.choices():
            if not cluster.violations(some) and cluster.fits({number for one in some for number in one.pods}):
                return "a budget"
    return ""


@pytest.mark.parametrize("takes_back", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_who_leaves_for_a_unit_is_right_by_trying_everything(seed, takes_back):
    missed = Counter(judged(Cluster(f"{seed}/{number}", takes_back=takes_back)) for number in range(CASES))
    assert missed.total() - missed[""] <= CASES // 80
