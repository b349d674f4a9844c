"""Behind a stream of small pods, gangs and large pods wait for ever; not if nodes are kept free for them.

The cluster of the twin is a list of ends: when each card is free again. Small pods take what is free at once, and there
are always more of them.
"""

from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.groups import GroupSpec
from core.model import GroupKey, GroupKind, Phase
from tests.support.worlds.world import World, node, pod

MIB = 10_000
GROUP = "scheduling.k8s.io/group-name"
AFTER_S, FOR_S = 20, 40


@dataclass
class Stream:
    """Nodes with as many cards each; small pods of one card that end after a time, and more of them always wait."""

    nodes: int
    cards: int
    seed: int
    longest_s: int
    keep_free_for_s: float = FOR_S
    number: int = 0
    ends: dict[str, int] = field(default_factory=dict)

    def __post_init__(self):
        self.chance = Random(self.seed)
        made = [node(f"n{at}", cards=self.cards, memory=MIB, slots=1) for at in range(self.nodes)]
        self.world = World(
            *made,
            keep_free_after_s=AFTER_S,
            keep_free_for_s=self.keep_free_for_s,
            bind_in_flight_max=1024,
        )
        # For how many seconds on end a card of each node was free while small pods waited.
        self.idle = dict.fromkeys((f"n{at}" for at in range(self.nodes)), 0)
        self.idle_max = 0
        self.kept_s = 0
        self.second = 0
        # How many small pods there were before the one that waits long, and when one that came after it was placed.
        self.before: int | None = None
        self.overtaken_s: int | None = None

    def small(self):
        self.number += 1
        self.world.adds(pod(f"s{self.number}", memory=MIB, created_s=1_800_000_000 + self.second))

    def waiting(self):
        return sum(one.name.startswith("s") and not one.node_name for one in self.world.pods.values())

    def holders(self, name):
        return sum(one.node_name == name for one in self.world.pods.values())

    def passes(self):
        """One second: pods end, others come, and all that can be is placed and started."""
        self.second += 1
        for name in [name for name, end in self.ends.items() if end <= self.second]:
            del self.ends[name]
            self.world.gone(name)
        while self.waiting() < self.nodes * self.cards:
            self.small()
        self.world.passes(1.0)
        for _ in range(3):
            for bind in self.world.binds():
                self.world.accepts(bind)
                self.world.serves(bind.pod.name)
                if bind.pod.name.startswith("s"):
                    if self.overtaken_s is None and self.before is not None and int(bind.pod.name[1:]) > self.before:
                        self.overtaken_s = self.second
                    self.ends[bind.pod.name] = self.second + self.chance.randint(1, self.longest_s)
            self.world.passes(0.0)
        for name in self.idle:
            self.idle[name] = self.idle[name] + 1 if self.cards - self.taken(name) > 0 else 0
        self.idle_max = max(self.idle_max, *self.idle.values())
        self.kept_s += self.world.scheduler.reservations.keeping_free.kept is not None

    def taken(self, name):
        found = 0
        for one in self.world.pods.values():
            if one.node_name == name:
                found += int(one.containers[0].limits["volcano.sh/vgpu-number"])
        return found

    def fill(self):
        for _ in range(3):
            self.passes()

    def large(self):
        self.before = self.number
        self.world.adds(pod("large", memory=MIB, number=self.cards, created_s=1_800_000_000 + self.second))

    def gang(self, members):
        self.before = self.number
        key = GroupKey(GroupKind.VOLCANO, "default", "g")
        self.world.groups_are(GroupSpec(key=key, uid="uid-g", resource_version="1", min_member=members))
        created_s = 1_800_000_000 + self.second
        for at in range(members):
            self.world.adds(pod(f"g{at}", memory=MIB, annotations={GROUP: "g"}, created_s=created_s))

    def is_placed(self, prefix):
        mine = [one for one in self.world.pods.values() if one.name.startswith(prefix)]
        return all(one.node_name for one in mine)

    def until_placed(self, prefix, seconds):
        """After how many seconds all of *prefix* are placed; None if they are not after so many."""
        for second in range(seconds):
            self.passes()
            if self.is_placed(prefix):
                return second + 1
        return None


class Twin:
    """The same without anything but counting: per node when each card is free again; the next small one has it then."""

    def __init__(self, nodes, cards, chance, longest_s):
        self.ends = [[chance.randint(1, longest_s) for _ in range(cards)] for _ in range(nodes)]
        self.chance, self.longest_s = chance, longest_s

    def ever_has(self, on_one_node, in_all, seconds):
        """Whether so many cards of one node, or of all, were free in the same second before small ones had them."""
        for now in range(1, seconds):
            free = [sum(end <= now for end in cards) for cards in self.ends]
            if max(free) >= on_one_node or sum(free) >= in_all:
                return True
            for cards in self.ends:
                cards[:] = [end if end > now else now + self.chance.randint(1, self.longest_s) for end in cards]
        return False


@pytest.mark.parametrize("kind", ["large", "gang"])
def test_without_nodes_kept_free_they_wait_for_ever_and_with_them_they_do_not(kind):
    nodes, cards, longest_s, seconds = 3, 8, 30, 250
    twin = Twin(nodes, cards, Random(5), longest_s)
    assert not twin.ever_has(cards, nodes * cards // 2, seconds)
    for keep_free_for_s, starves in ((0.0, True), (FOR_S, False)):
        stream = Stream(nodes, cards, 5, longest_s, keep_free_for_s)
        stream.fill()
        if kind == "large":
            stream.large()
        else:
            stream.gang(nodes * cards // 2)
        placed = stream.until_placed(kind[0] if kind == "gang" else "large", seconds)
        assert (placed is None) is starves
        # Kept free once it has waited so long; then the longest-lived pod there has to end.
        assert placed is None or placed <= AFTER_S + longest_s + 5


@settings(max_examples=12, deadline=None)
@given(st.integers(1, 3), st.integers(2, 6), st.integers(2, FOR_S - 5), st.integers(0, 2**16), st.data())
def test_nobody_waits_for_ever_whose_predecessors_end_in_time(nodes, cards, longest_s, seed, data):
    stream = Stream(nodes, cards, seed, longest_s)
    stream.fill()
    members = data.draw(st.integers(1, nodes * cards))
    if members == 1:
        stream.large()
    else:
        stream.gang(members)
    began = stream.second
    # Those that run, then those that came before it, may last so long; who is not overtaken has no nodes kept free.
    placed = stream.until_placed("large" if members == 1 else "g", max(AFTER_S, 2 * longest_s) + longest_s + 6)
    assert placed is not None
    if stream.overtaken_s is not None:
        assert placed <= max(AFTER_S, stream.overtaken_s - began) + longest_s + 6
    assert stream.world.metrics.kept_free.labels("in_vain")._value.get() == 0
    # What is kept free goes back to the others at once.
    stream.passes()
    assert stream.world.scheduler.reservations.keeping_free.kept is None


@settings(max_examples=6, deadline=None)
@given(st.integers(1, 2), st.integers(2, 4), st.integers(0, 2**16))
def test_no_card_idles_for_longer_than_the_bound_where_it_is_in_vain(nodes, cards, seed):
    stream = Stream(nodes, cards, seed, 10)
    stream.fill()
    # One small pod of each node never ends.
    for name in stream.idle:
        one = next(one for one in stream.world.pods.values() if one.node_name == name)
        stream.ends[one.name] = 10**9
    stream.large()
    seconds = 3 * (AFTER_S + FOR_S)
    assert stream.until_placed("large", seconds) is None
    assert stream.world.metrics.kept_free.labels("in_vain")._value.get() >= 2
    assert stream.idle_max <= FOR_S + 2
    assert stream.kept_s <= seconds * FOR_S / (AFTER_S + FOR_S) + 2 * FOR_S / 3


def test_who_is_of_a_higher_priority_goes_where_nodes_are_kept_free():
    stream = Stream(2, 4, 1, 30)
    stream.fill()
    stream.large()
    while stream.world.scheduler.reservations.keeping_free.kept is None:
        stream.passes()
    assert stream.world.scheduler.reservations.keeping_free.kept is not None
    stream.world.adds(pod("urgent", memory=MIB, priority=1))
    for _ in range(40):
        stream.passes()
        if stream.is_placed("urgent"):
            break
    assert stream.is_placed("urgent")


def test_what_one_needs_is_chosen_alike_whatever_the_order_in_which_nodes_and_pods_were_seen():
    chosen = set()
    for turn in range(4):
        names = ["n0", "n1", "n2", "n3"]
        Random(turn).shuffle(names)
        world = World(
            *[node(name, cards=2, memory=MIB, slots=1) for name in names], keep_free_after_s=1.0, keep_free_for_s=9.0
        )
        # All cards are in use; on n2 by one pod, where it is two on the others.
        held = [(name, cards) for name in names for cards in (("01",) if name == "n2" else ("0", "1"))]
        Random(turn + 9).shuffle(held)
        for name, cards in held:
            ids = {"volcano.sh/vgpu-ids-new": "".join(f"{name}-{card},NVIDIA,{MIB},0:" for card in cards)}
            world.adds(
                pod(f"x-{name}-{cards}", memory=MIB, node_name=name, annotations=ids, started=True, phase=Phase.RUNNING)
            )
        world.adds(pod("large", memory=MIB, number=2))
        world.plan()
        world.scheduler.nodes.changed(node("tiny", memory=MIB, slots=1))
        world.adds(pod("small", memory=MIB, created_s=2_000_000_000))
        world.passes(2.0)
        world.passes(2.0)
        kept = world.scheduler.reservations.keeping_free.kept
        assert kept is not None
        chosen.add(kept.nodes)
    assert chosen == {frozenset({"n2"})}


def test_others_come_first_after_one_for_whom_it_was_in_vain():
    world = World(
        node("n0", cards=4, memory=MIB, slots=1),
        node("n1", cards=2, memory=MIB, slots=1),
        keep_free_after_s=5.0,
        keep_free_for_s=10.0,
    )
    for name, cards in (("n0", 4), ("n1", 2)):
        for card in range(cards - 1):
            ids = {"volcano.sh/vgpu-ids-new": f"{name}-{card},NVIDIA,{MIB},0:"}
            world.adds(pod(f"x-{name}-{card}", memory=MIB, node_name=name, annotations=ids, started=True))
    world.adds(pod("four", memory=MIB, number=4, created_s=1), pod("two", memory=MIB, number=2, created_s=2))
    world.plan()
    world.adds(pod("small", memory=MIB))
    kept: list[str] = []
    for _ in range(60):
        world.passes(1.0)
        found = world.scheduler.reservations.keeping_free.kept
        if found is not None and (not kept or kept[-1] != found.uid):
            kept.append(found.uid)
    assert kept == ["uid-four", "uid-two", "uid-four", "uid-two"]
