"""Laws of placing, in every mode that `modes` declares: which node, which cards, and why none."""

from random import Random

from hypothesis import strategies as st

from core.ledger import Ledger
from core.model import PodUid
from core.placing.candidates import Candidates
from core.placing.decide import NodePolicy, Shape, scan, shape_of
from core.port.refusals import WISHES, Reason
from core.settings import CARD_POLICIES, Policy, Settings
from tests.property.laws.world import filled, law, named, new
from tests.support.devices.catalogs import catalog_of
from tests.support.worlds.placed import reserve

# What figure of a request answers a shortfall.
FIGURES = {
    Reason.MEMORY: Reason.MEMORY,
    Reason.LAYOUT: Reason.MEMORY,
    Reason.CORES: Reason.CORES,
    Reason.EXCLUSIVE: Reason.CORES,
    Reason.CARD_COUNT: Reason.CARD_COUNT,
}


@law(cases=15)
def test_the_search_answers_what_looking_at_every_node_would(mode, seed, steps):
    chance = Random(seed)
    ledger = Ledger(catalog_of(mode.port), mode.tables, Settings())
    for number in range(chance.randint(1, 7)):
        ledger.set_node(named(mode.node(chance), number))
    rule = NodePolicy(chance.choice(CARD_POLICIES), chance.choice((1, 1, 3, 0)))
    candidates = Candidates(ledger, rule)
    asking = new(mode, chance)
    pods = [asking.wanting()[0] for _ in range(5)]
    placed: list[PodUid] = []
    for number in range(3 * steps):
        step = chance.random()
        if step < 0.2 and placed:
            ledger.release(placed.pop(chance.randrange(len(placed))))
        elif step < 0.25:
            ledger.set_node(named(mode.node(chance), chance.randrange(7)))
        else:
            pod = chance.choice(pods)
            shape = shape_of(pod, ledger)
            assert isinstance(shape, Shape)
            found = candidates.best(shape)
            assert found == scan(ledger, rule, shape)
            if found is not None and chance.random() < 0.6:
                placed.append(reserve(ledger, f"p{number}", shape, found))
            elif found is not None:
                # As a watch shows it, whoever bound it.
                bound = asking.bound(pod, found.placed.assignment, uid=PodUid(f"p{number}"), name=f"p{number}")
                told = mode.served(chance, bound.annotations) if mode.served is not None else {}
                ledger.count(bound._replace(node_name=found.node, annotations={**bound.annotations, **told}))
                placed.append(bound.uid)


@law()
def test_no_score_is_above_its_bound_and_no_node_that_fits_is_passed_over(mode, seed, steps):
    world = filled(mode, Random(seed), steps)
    port, cards = mode.port, world.cards
    room = port.room(cards)
    for _ in range(4):
        _, request = world.wanting()
        policy = world.policy
        placed = world.place(request, policy)
        if placed is None:
            continue
        kinds = room.kinds if room.narrow is None else room.narrow
        wants = [port.want(request, kind, policy) for kind in kinds]
        able = [
            (kind, want, free)
            for kind, want, free, spare in zip(room.kinds, wants, room.free, room.spare, strict=True)
            if want is not None and free >= want.free and spare >= want.spare
        ]
        bound = port.bound(request, policy)
        width = bound.width
        assert len(able) >= width
        if not bound.by_free:
            assert placed.score <= bound.idle_score(room.idle)
        elif width == 1:
            assert placed.score <= max(100.0 * (want.numerator - free) / want.total for _, want, free in able)
        elif len({kind for kind, _, _ in able}) == 1:
            least = sum(sorted(free for _, _, free in able)[:width])
            best = max(able, key=lambda one: one[1].numerator)[1]
            assert placed.score <= 100.0 * (best.numerator - least) / best.total


@law()
def test_a_node_takes_one_container_exactly_if_enough_of_its_cards_do(mode, seed, steps):
    world = filled(mode, Random(seed), steps)
    port = mode.port
    _, request = world.single()
    policy = world.policy
    number = port.bound(request, policy).width
    one = request if number == 1 else port.relaxed(world.cards, request, Reason.CARD_COUNT, 1)
    if one is None:
        return
    placed = world.place(request, policy)
    fitting = [card for card in world.cards if port.place((card,), one, policy) is not None]
    if mode.each_card:
        short = () if placed is not None else port.shortfalls(world.cards, request)
        apart = [one for one in short if one.reason is Reason.CARD_COUNT and one.detail]
        assert apart or (placed is not None) == (len(fitting) >= number)
    elif placed is not None:
        chosen = {share.whole for share in port.describe(placed.assignment, world.cards)}
        assert len(chosen) > number or chosen <= {port.tally((card,))[0].card for card in fitting}


@law()
def test_more_room_never_refuses_what_less_room_placed(mode, seed, steps):
    world = filled(mode, Random(seed), steps)
    _, request = world.single()
    policy = world.policy
    if world.place(request, policy) is None:
        return
    while world.held:
        world.give_back()
        assert world.place(request, policy) is not None


@law(lambda mode: mode.ties != "any", of=st.sampled_from((Policy.BINPACK, Policy.SPREAD)))
def test_of_cards_that_are_alike_the_same_one_is_taken(mode, seed, policy):
    world = new(mode, Random(seed))
    port, cards = mode.port, world.empty
    kinds = port.room(cards).kinds
    if len(kinds) != len(cards) or len(set(kinds)) > 1:
        return
    for _ in range(6):
        pod, request = world.plain()
        placed = world.place(request, policy)
        if placed is not None and len(pod.containers) == port.bound(request, Policy.BINPACK).width == 1:
            chosen = {one.whole for one in port.describe(placed.assignment, cards)}
            assert len(chosen) > 1 or chosen == {port.tally(cards)[0 if mode.ties == "first" else -1].card}


@law()
def test_the_order_of_cards_decides_nothing_but_ties(mode, seed, steps):
    world = filled(mode, Random(seed), steps)
    (_, request), policy = world.single(), world.policy
    placed = world.place(request, policy)
    mixed = tuple(world.chance.sample(world.cards, len(world.cards)))
    other = mode.port.place(mixed, request, policy)
    assert (placed is None) == (other is None)
    if (
        placed is not None
        and mode.port.bound(request, Policy.BINPACK).width == 1
        and len(set(mode.port.room(world.cards).kinds)) == 1
    ):
        assert placed.score == other.score


@law()
def test_shortfalls_name_every_card_or_count_those_that_fit(mode, seed, steps):
    world = filled(mode, Random(seed), steps)
    port = mode.port
    told = {one.card for one in port.tally(world.cards)}
    for _ in range(4):
        _, request = world.wanting()
        if world.place(request) is not None:
            continue
        short = port.shortfalls(world.cards, request)
        assert short
        named_here = {one.card for one in short if one.card}
        assert named_here <= told
        assert len(named_here) == len([one for one in short if one.card])
        counts = [one for one in short if one.reason is Reason.CARD_COUNT and not one.card and not one.detail]
        if all(one.card for one in short):
            assert named_here == told
        elif mode.each_card and counts:
            assert len(named_here) + counts[0].free == len(told)
        for one in short:
            is_short = one.wanted > one.free or one.reason is Reason.EXCLUSIVE
            assert is_short or (one.wanted, one.free) == (0, 0), one


@law()
def test_of_what_a_request_is_relaxed_no_card_is_short_any_more(mode, seed, steps):
    world = filled(mode, Random(seed), steps)
    port = mode.port
    # Where suffixes are read, any MiB can be asked for.
    unit = 1 if port.names(mode.tables).quantities else mode.mib_per_unit
    for _ in range(4):
        _, request = world.single()
        policy = world.policy
        if world.place(request, policy) is not None:
            continue
        for short in port.shortfalls(world.cards, request):
            assert short.reason is not Reason.MEMORY or short.mib_per_unit == unit
            figure = FIGURES.get(short.reason)
            wish = short.reason in WISHES
            amount = short.free - short.free % short.mib_per_unit
            if not wish and (figure is None or not 0 < amount < short.wanted):
                continue
            less = port.relaxed(world.cards, request, short.reason if wish else figure, 0 if wish else amount)
            if less is None:
                continue
            assert less != request
            left = port.shortfalls(world.cards, less) if world.place(less, policy) is None else ()
            assert not [one for one in left if (one.card, one.reason) == (short.card, short.reason)], (short, left)


@law()
def test_who_leaves_the_way_open_is_placed_where_one_of_the_ways_does(mode, seed, steps):
    world = filled(mode, Random(seed), steps)
    port, policy = mode.port, world.policy
    _, request = world.single()
    ways = port.ways(request)
    fitting = [word for word, held_to_it in ways if world.place(held_to_it, policy) is not None]
    placed = world.place(request, policy)
    if ways and port.bound(request, Policy.BINPACK).width == 1:
        assert (placed is None) == (not fitting)
        told = {one.card: one.mode for one in port.tally(world.cards)}
        assert placed is None or told[port.describe(placed.assignment, world.cards)[0].whole] in fitting


@law()
def test_what_is_left_of_a_card_is_what_is_told_of_it(mode, seed, steps):
    port = mode.port
    world = filled(mode, Random(seed), steps)
    _, request = world.single()
    cards = world.cards
    lefts = port.left(cards, request)
    if lefts is None:
        return
    alones = []
    for slot, left in enumerate(lefts):
        if left is None:
            continue
        one = port.alone(cards, request, slot)
        alones.append(one.assignment)
        after = port.holes(port.take(cards, one.assignment))
        expected = list(port.holes(cards))
        expected[slot] = left
        assert list(after) == expected
    placed = world.place(request)
    assert (placed is None) == (not alones)
    assert placed is None or placed.assignment in alones
