"""A unit is placed whole or not at all, and refused only where a search through everything finds no room either.

The twin has arithmetic of its own: nodes as lists of free amounts, members as tuples, and every assignment tried.
"""

from collections import Counter
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.groups import HyperNode, Members, NetworkTopology
from core.ledger import Ledger
from core.model import Container, Node, NodeName, Pod, PodUid
from core.placing.candidates import Candidates
from core.placing.decide import NodePolicy, Rooms, Shape, placed_on, try_decide
from core.placing.domains import HyperNodes, LabelTiers, Near, by_label, near
from core.placing.gang import Inner, Member, Refused, Unit, place
from core.placing.minimums import Minimum, of_tasks
from core.settings import Policy, Settings, Tables
from tests.support.devices.catalogs import catalog_of
from tests.support.devices.toy import HELD, Toy, ToyRequest
from tests.support.judging.asking import asking

MEMORY, CPU, CORES = 8, 4, 100

# Per node: what pods there use of each card.
nodes = st.lists(st.lists(st.integers(0, 8), min_size=1, max_size=3), min_size=1, max_size=3)
# memory, cores, cards, cpu
asked = st.tuples(st.integers(1, 8), st.sampled_from((0, 50)), st.sampled_from((1, 1, 1, 2)), st.integers(0, 2))
alone = st.tuples(st.integers(1, 8), st.sampled_from((0, 50)), st.just(1), st.integers(0, 2))


def ledger_of(used, racks=(), blocks=()):
    ledger = Ledger(catalog_of(Toy()), Tables(), Settings())
    for number, cards in enumerate(used):
        register = ",".join(f"a:{MEMORY}" for _ in cards)
        amounts = {"cpu": str(CPU), "pods": "99"}
        labels = {key: of[number] for key, of in (("rack", racks), ("block", blocks)) if of}
        ledger.set_node(
            Node(
                name=NodeName(f"n{number}"),
                labels=labels,
                annotations={"toy.example/cards": register},
                allocatable=amounts,
            )
        )
        for at, memory in enumerate(cards):
            if memory:
                uid = f"old-{number}-{at}"
                ledger.count(
                    Pod(
                        uid=PodUid(uid), namespace="d", name=uid, node_name=f"n{number}",
                        annotations={HELD: f"{at}/{memory}/0"}, containers=(Container(name="c"),),
                    )
                )  # fmt: skip
    return ledger


def member(number, what, task=""):
    memory, cores, cards, cpu = what
    shape = Shape(
        dialect=Toy.name,
        request=ToyRequest(memory, cores, cards),
        amounts=(("cpu", cpu * 1000), ("pods", 1)),
        asked=asking(),
    )
    return Member(
        pod=Pod(uid=PodUid(f"m{number}"), namespace="d", name=f"m{number}"), shape=shape, parts=(task,) if task else ()
    )


class Twin:
    """Free amounts as lists: per node the cards' memory and cores, and its cpu."""

    def __init__(self, used):
        self.free = [[MEMORY - memory for memory in cards] for cards in used]
        self.spare = [[CORES for _ in cards] for cards in used]
        self.cpu = [CPU for _ in used]

    def take(self, node, what, cards, sign=1):
        memory, cores, _, cpu = what
        for at in cards:
            self.free[node][at] -= sign * memory
            self.spare[node][at] -= sign * cores
        self.cpu[node] -= sign * cpu

    def places(self, what):
        """Every (node, cards) that *what* could get now; of its cards the first alone where one is asked."""
        memory, cores, count, cpu = what
        for node, (free, spare, left) in enumerate(zip(self.free, self.spare, self.cpu, strict=True)):
            fitting = [at for at in range(len(free)) if free[at] >= memory and spare[at] >= cores]
            if left >= cpu and len(fitting) >= count:
                yield from ((node, cards) for cards in {tuple(sorted(c)) for c in permutations(fitting, count)})

    def most(self, wanted):
        """How many of *wanted* fit at once, at the most, by trying everything."""
        if not wanted:
            return 0
        best = self.most(wanted[1:])
        for node, cards in list(self.places(wanted[0])):
            if best == len(wanted):
                break
            self.take(node, wanted[0], cards)
            best = max(best, 1 + self.most(wanted[1:]))
            self.take(node, wanted[0], cards, -1)
        return best


def settle(used, members, least, policy, minimums=None, held=None):
    ledger = ledger_of(used)
    candidates = Candidates(ledger, NodePolicy(policy, 1))
    tasks = of_tasks(minimums or {})
    root = Minimum(members=least, parts=(tasks,), least=1)
    held = {(task,) if task else (): many for task, many in (held or {}).items()}
    unit = Unit(members=tuple(members), minimum=root, held=held)
    before = dict(ledger.states)
    holders = {name: list(ledger.holders(name).items()) for name in before}
    answer = place(ledger, candidates, unit)
    if isinstance(answer, Refused):
        assert all(ledger.states[name] is state for name, state in before.items())
        assert {name: list(ledger.holders(name).items()) for name in before} == holders
    return ledger, unit, answer


def check_placed(used, unit, answer, whats):
    """Whether what was promised is really there, by the twin's arithmetic."""
    twin = Twin(used)
    assert len({one.pod for one in answer}) == len(answer)
    for one in answer:
        what = whats[one.pod]
        cards = tuple(entry[0] for entry in one.assignment)
        assert (int(one.node[1:]), cards) in set(twin.places(what))
        twin.take(int(one.node[1:]), what, cards)
    return twin


policies = st.sampled_from((Policy.BINPACK, Policy.SPREAD, Policy.INDEX))


@settings(max_examples=200, deadline=None)
@given(nodes, alone, st.integers(1, 6), st.integers(0, 6), policies)
@example([[0, 0, 0], [0, 0, 0]], (8, 0, 1, 0), 6, 6, Policy.BINPACK)
@example([[0, 0, 0], [0, 1, 0]], (8, 0, 1, 0), 6, 6, Policy.BINPACK)
def test_equal_members_are_refused_only_where_they_do_not_fit(used, what, count, least, policy):
    least = min(least, count)
    members = [member(number, what) for number in range(count)]
    ledger, unit, answer = settle(used, members, least, policy)
    most = Twin(used).most([what] * count)
    if isinstance(answer, Refused):
        assert most < least
        assert answer.fitting == len(answer.placements) == most
        assert [(part.members, part.fitting) for part in answer.parts] == [(count, most)]
    else:
        assert len(answer) == most >= least
        check_placed(used, unit, answer, {one.pod.uid: what for one in members})
        assert all(ledger.node_of(one.pod) == one.node for one in answer)


@settings(max_examples=200, deadline=None)
@given(nodes, st.lists(st.tuples(asked, st.sampled_from("ab")), min_size=1, max_size=5), st.data())
def test_a_unit_is_placed_whole_or_not_at_all(used, wanted, data):
    least = data.draw(st.integers(0, len(wanted) + 1))
    tasks = [task for _, task in wanted]
    minimums = {task: data.draw(st.integers(0, tasks.count(task))) for task in sorted(set(tasks))}
    held = data.draw(st.dictionaries(st.sampled_from("ab"), st.integers(0, 2)))
    members = [member(number, what, task) for number, (what, task) in enumerate(wanted)]
    whats = {f"m{number}": what for number, (what, _) in enumerate(wanted)}
    _, unit, answer = settle(used, members, least, data.draw(policies), minimums, held)
    if isinstance(answer, Refused):
        assert answer.fitting == sum(held.values()) + len(answer.placements)
        check_placed(used, unit, answer.placements, whats)
        return
    twin = check_placed(used, unit, answer, whats)
    placed = [tasks[int(one.pod[1:])] for one in answer]
    assert sum(held.values()) + len(placed) >= least
    assert all(held.get(task, 0) + placed.count(task) >= many for task, many in minimums.items())
    # Who is left over has no room beside those that were placed.
    left = whats.keys() - {one.pod for one in answer}
    assert not any(list(twin.places(whats[uid])) for uid in left)


def fits_one_by_one(used, members, policy):
    """Whether all of *members*, in this order, find a node by looking at every one of them each time."""
    ledger = ledger_of(used)
    for one in members:
        placement = try_decide(ledger, NodePolicy(policy, 1), one.pod, one.shape)
        if placement is None:
            return False
        ledger.reserve(placement)
    return True


@settings(max_examples=300, deadline=None)
@given(nodes, st.lists(asked, min_size=1, max_size=5), policies)
def test_a_unit_is_not_refused_where_one_pod_after_the_other_would_fit(used, wanted, policy):
    members = [member(number, what) for number, what in enumerate(wanted)]
    _, _, answer = settle(used, members, len(members), policy)

    def size(one):
        memory, _, cards, cpu = wanted[int(one.pod.uid[1:])]
        return memory * cards, cpu

    for order in (members, sorted(members, key=size, reverse=True), sorted(members, key=size)):
        if fits_one_by_one(used, order, policy):
            assert not isinstance(answer, Refused)


def test_larger_members_go_first_where_smaller_ones_would_take_their_room():
    small, large = (4, 0, 1, 0), (8, 0, 1, 0)
    members = [member(0, small), member(1, small), member(2, large)]
    _, _, answer = settle([[0], [0]], members, 3, Policy.SPREAD)
    assert not isinstance(answer, Refused)


def test_a_refusal_counts_what_fits_and_names_who_is_missing():
    members = [member(number, (8, 0, 1, 0), "worker") for number in range(4)]
    _, _, answer = settle([[0, 0], [0]], members, 5, Policy.BINPACK, {"worker": 4}, {"ps": 1})
    assert isinstance(answer, Refused)
    assert answer.first is not None
    assert (answer.fitting, answer.first.parts, answer.first.members, answer.first.fitting) == (4, ("worker",), 4, 3)


def test_members_that_are_on_a_node_count():
    members = [member(0, (8, 0, 1, 0))]
    _, _, answer = settle([[0]], members, 3, Policy.BINPACK, held={"": 2})
    assert not isinstance(answer, Refused)


def partitions(sizes, size, least, start=0):
    """The minimum of a group of so many members in each subgroup, of which *least* must be whole."""
    names = tuple(f"s{at}" for at in range(start, start + len(sizes)))
    wholes = tuple(Minimum(name=name, members=size, whole=True) for name in names)
    policy = Minimum(name=f"subgroups {start}", parts=wholes, least=least)
    return names, Minimum(parts=(policy,), least=1)


def settle_tree(used, members, root, held=None):
    ledger = ledger_of(used)
    before = dict(ledger.states)
    unit = Unit(members=members, minimum=root, held=held or {})
    answer = place(ledger, Candidates(ledger, NodePolicy(Policy.BINPACK, 1)), unit)
    assert not isinstance(answer, Refused) or all(ledger.states[name] is state for name, state in before.items())
    return unit, answer


@settings(max_examples=200, deadline=None)
@given(nodes, st.integers(1, 8), st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(1, 3), st.data())
def test_equal_subgroups_are_placed_whole_and_refused_only_where_too_few_fit(used, memory, sizes, size, data):
    what = (memory, 0, 1, 0)
    least = data.draw(st.integers(1, len(sizes)))
    names, root = partitions(sizes, size, least)
    of = [name for name, many in zip(names, sizes, strict=True) for _ in range(many)]
    of = data.draw(st.permutations(of))
    members = tuple(Member(pod=one.pod, shape=one.shape, parts=(name,))
                    for one, name in ((member(at, what), name) for at, name in enumerate(of)))  # fmt: skip
    whole = sum(many >= size for many in sizes)
    most = min(whole, Twin(used).most([what] * (size * whole)) // size)
    unit, answer = settle_tree(used, members, root)
    assert unit.is_complete is (whole >= least)
    if isinstance(answer, Refused):
        assert most < least
        assert answer.missing <= size * (least - most)
        return
    assert most >= least
    check_placed(used, unit, answer, {one.pod.uid: what for one in members})
    counts = Counter(of[int(one.pod[1:])] for one in answer)
    assert all(many >= size for many in counts.values())
    assert least <= len(counts) <= most


@settings(max_examples=200, deadline=None)
@given(
    nodes, st.lists(st.tuples(alone, st.sampled_from(("s0", "s1", "s2", "t", ""))), min_size=1, max_size=6), st.data()
)
def test_a_tree_of_minimums_holds_whole_or_nothing(used, wanted, data):
    size, least, task = (data.draw(st.integers(low, 2)) for low in (1, 0, 0))
    names, root = partitions([0, 0, 0], size, least)
    root = Minimum(
        members=data.draw(st.integers(0, 4)), parts=(of_tasks({"t": task}), *root.parts), least=2, apart=False
    )
    held = {(name,): data.draw(st.integers(0, size)) for name in names}
    members = tuple(
        Member(pod=one.pod, shape=one.shape, parts=(part,) if part else ())
        for one, part in ((member(at, what), part) for at, (what, part) in enumerate(wanted))
    )
    unit, answer = settle_tree(used, members, root, held)
    assert unit.needed <= len(unit.wanted()) or not unit.is_complete
    if isinstance(answer, Refused):
        assert not unit.is_met
        check_placed(used, unit, answer.placements, {f"m{at}": what for at, (what, _) in enumerate(wanted)})
        return
    check_placed(used, unit, answer, {f"m{at}": what for at, (what, _) in enumerate(wanted)})
    placed = Counter(wanted[int(one.pod[1:])][1] for one in answer)
    full = {name: held[name,] + placed[name] for name in names}
    assert all(full[name] >= size or not placed[name] for name in names)
    assert sum(many >= size for many in full.values()) >= least
    assert placed["t"] >= task
    assert sum(held.values()) + placed.total() >= root.members


def test_what_a_subgroup_that_did_not_fit_took_is_left_to_others():
    small, large = (4, 0, 1, 0), (8, 0, 1, 0)
    whats = [large, large, small, small]
    names, root = partitions([2, 2], 2, 1)
    members = tuple(
        Member(pod=one.pod, shape=one.shape, parts=(names[at // 2],))
        for at, one in enumerate(member(at, what) for at, what in enumerate(whats))
    )
    _, answer = settle_tree([[0]], members, root)
    assert not isinstance(answer, Refused)
    assert {one.pod for one in answer} == {"m2", "m3"}


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 8), min_size=1, max_size=2), min_size=1, max_size=5),
    st.lists(st.sampled_from(("a", "b", "")), min_size=5, max_size=5),
    alone, st.integers(1, 4), st.sets(st.integers(0, 4), max_size=1),
)  # fmt: skip
def test_a_gang_lies_in_one_domain_and_is_refused_only_where_no_domain_takes_it(used, racks, what, count, home):
    ledger = ledger_of(used, racks)
    members = tuple(member(at, what) for at in range(count))
    home = frozenset(NodeName(f"n{at}") for at in home if at < len(used))
    unit = Unit(members=members, minimum=Minimum(members=count), topology=by_label("rack"), home=home)
    answer = place(ledger, Candidates(ledger, NodePolicy(Policy.BINPACK, 1)), unit)
    takes = {}
    for rack in "ab":
        at = [one for one in range(len(used)) if racks[one] == rack]
        if home <= {f"n{one}" for one in at}:
            takes[rack] = Twin([used[one] for one in at]).most([what] * count) if at else 0
    if isinstance(answer, Refused):
        assert all(many < count for many in takes.values())
        assert len(answer.placements) == max(takes.values(), default=0)
        assert answer.domain is None or answer.domain.name.removeprefix("rack=") in takes
        return
    check_placed(used, unit, answer, {one.pod.uid: what for one in members})
    (rack,) = {racks[int(one.node[1:])] for one in answer} | {racks[int(one[1:])] for one in home}
    sizes = {one: racks[: len(used)].count(one) for one, many in takes.items() if many == count}
    assert sizes[rack] == min(sizes.values())


# Per node: its rack, and its block, "" for none.
spots_of_nodes = st.lists(st.tuples(st.sampled_from("aab"), st.sampled_from(("1", "2", ""))), min_size=5, max_size=5)


def domains_of(spots):
    """The nodes of each rack within its block, tier 1, and of each block, tier 2."""
    tiers = {1: spots, 2: [block for _, block in spots]}
    return [
        (tier, one, frozenset(NodeName(f"n{at}") for at, other in enumerate(of) if other == one))
        for tier, of in tiers.items()
        for one in dict.fromkeys(of)
        if one
    ]


@pytest.mark.interpreted(reason="a class that is not compiled cannot be made of one that is")
@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 8), min_size=1, max_size=2), min_size=2, max_size=6),
    st.lists(st.sampled_from("abc"), min_size=6, max_size=6),
    alone, st.integers(1, 5), st.lists(st.tuples(st.integers(0, 5), st.integers(1, 8)), max_size=3), policies,
)  # fmt: skip
def test_a_domain_that_is_only_counted_is_answered_as_one_that_is_tried(used, racks, what, count, later, policy):
    def asked(number):
        members = tuple(member(f"{number}-{at}", what) for at in range(count))
        return Unit(members=members, minimum=Minimum(members=count), topology=by_label("rack"))

    class Trying(Rooms):
        """Counts nothing, so that each domain is tried."""

        def counts(self, shape, pods):
            return False

    rule = NodePolicy(policy, 1)
    ledger = ledger_of(used, racks)
    counting = Candidates(ledger, rule)
    for number, (at, memory) in enumerate([*later, (0, 8)]):
        trying = Candidates(ledger, rule)
        trying.rooms = Trying(ledger, rule)
        unit = asked(number)
        with ledger.trial():
            expected = place(ledger, trying, unit)
        with ledger.trial():
            assert place(ledger, counting, unit) == expected
        placement = placed_on(
            ledger, rule, (one := member(number, (memory, 0, 1, 0))).pod, one.shape, NodeName(f"n{at}")
        )
        if placement is not None:
            ledger.reserve(placement)


def test_a_gang_that_is_refused_again_costs_what_changed_and_not_all_domains():
    racks = [f"r{at // 2}" for at in range(80)]
    ledger = ledger_of([[0]] * 80, racks)
    candidates = Candidates(ledger, NodePolicy(Policy.BINPACK, 1))
    unit = Unit(
        members=tuple(member(at, (8, 0, 1, 0)) for at in range(3)),
        minimum=Minimum(members=3),
        topology=by_label("rack"),
    )
    answer = place(ledger, candidates, unit)
    assert isinstance(answer, Refused)
    assert answer.fitting == 2
    before = ledger.cursor
    assert place(ledger, candidates, unit) == answer
    assert ledger.cursor - before <= 4


def hyper_nodes_of(spots):
    """The same domains: racks by the names of nodes and a pattern, blocks by the racks in them."""
    found = domains_of(spots)
    for tier, one, nodes in found:
        first, *others = sorted(nodes)
        inner = [Members(name="".join(rack), is_inner=True) for _, rack, of in found if tier == 2 and of < nodes]
        named = [Members(pattern=f"^{first}$"), *(Members(name=name) for name in others)]
        yield HyperNode(name="".join(one), tier=tier, members=tuple(inner or named))


@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 8), min_size=1, max_size=2), min_size=1, max_size=5), spots_of_nodes,
    alone, st.integers(1, 4), st.sets(st.integers(0, 4), max_size=1), st.integers(1, 3), st.booleans(), st.booleans(),
)  # fmt: skip
def test_a_gang_lies_in_the_smallest_domain_that_takes_it_of_the_tiers_that_it_allows(
    used, spots, what, count, home, highest, is_hard, by_labels
):
    spots = spots[: len(used)]
    racks, blocks = zip(*spots, strict=True)
    ledger = ledger_of(used, racks, blocks)
    members = tuple(member(at, what) for at in range(count))
    home = frozenset(NodeName(f"n{at}") for at in home if at < len(used))
    network = LabelTiers(("rack", "block")) if by_labels else HyperNodes(hyper_nodes_of(spots))
    asked = near(NetworkTopology(is_hard, highest), network)
    unit = Unit(members=members, minimum=Minimum(members=count), topology=asked, home=home)
    answer = place(ledger, Candidates(ledger, NodePolicy(Policy.BINPACK, 1)), unit)
    top = 2 if by_labels or any(blocks) else 1
    everything = (3, "", frozenset(ledger.states))
    allowed = [one for one in domains_of(spots) if one[0] <= highest or not is_hard]
    takes = {
        (tier, len(nodes), nodes): Twin([used[int(one[1:])] for one in sorted(nodes)]).most([what] * count) == count
        for tier, _, nodes in (*allowed, *((everything,) if highest > top or not is_hard else ()))
        if home <= nodes
    }
    if isinstance(answer, Refused):
        assert not any(takes.values())
        return
    check_placed(used, unit, answer, {one.pod.uid: what for one in members})
    best = min(domain[:2] for domain, takes_it in takes.items() if takes_it)
    placed = home | {one.node for one in answer}
    assert any(placed <= nodes for *which, nodes in takes if tuple(which) == best)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 8), min_size=1, max_size=2), min_size=1, max_size=5), spots_of_nodes,
    st.integers(1, 8), st.lists(st.integers(1, 4), min_size=1, max_size=3), st.integers(1, 3), st.booleans(),
    st.booleans(), st.data(),
)  # fmt: skip
def test_equal_subgroups_lie_in_one_domain_each_and_are_refused_only_where_too_few_fit(
    used, spots, memory, sizes, size, in_one, is_hard, data
):
    what = (memory, 0, 1, 0)
    least = data.draw(st.integers(1, len(sizes)))
    names, root = partitions(sizes, size, least)
    spots = spots[: len(used)]
    ledger = ledger_of(used, *zip(*spots, strict=True))
    of = [name for name, many in zip(names, sizes, strict=True) for _ in range(many)]
    members = tuple(
        replace(member(at, what), parts=(name,), subgroup=name)
        for at, name in enumerate(data.draw(st.permutations(of)))
    )
    network = LabelTiers(("rack", "block"))
    inner = dict.fromkeys(names, Inner(Near(network, 1, hard=is_hard)))
    unit = Unit(members=members, minimum=root, topology=Near(network, 2) if in_one else None, inner=inner)
    answer = place(ledger, Candidates(ledger, NodePolicy(Policy.BINPACK, 1)), unit)

    def fitting(nodes):
        return Twin([used[int(one[1:])] for one in sorted(nodes)]).most([what] * len(of)) // size

    found = domains_of(spots)
    racks = [nodes for tier, _, nodes in found if tier == 1]
    wide = [nodes for _, _, nodes in found] if in_one else [frozenset(ledger.states)]
    whole = sum(many >= size for many in sizes)
    fits = [sum(fitting(rack) for rack in racks if rack <= nodes) if is_hard else fitting(nodes) for nodes in wide]
    if isinstance(answer, Refused):
        assert min(whole, max(fits, default=0)) < least
        return
    check_placed(used, unit, answer, {one.pod.uid: what for one in members})
    subgroup_of = {one.pod.uid: one.subgroup for one in members}
    for name in names:
        placed = [one.node for one in answer if subgroup_of[one.pod] == name]
        assert not placed or len(placed) >= size
        assert not is_hard or any(rack.issuperset(placed) for rack in racks)
    assert any(nodes.issuperset(one.node for one in answer) for nodes in wide)
