"""Laws of accounts, in every mode that `modes` declares: what is in use, by whom, and what is told of it."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

from core.catalog import standard_catalog
from core.model import Container, Phase, Pod
from core.names import GROUP_NAME_KEYS
from core.port.cards import Offer
from core.port.optional import Healing, Marking, Metering, Reading, Scaled
from core.port.refusals import Complaint, Fault, Reason
from tests.property.laws.modes import MODES
from tests.property.laws.world import filled, law, new
from tests.property.strategies import ugly


def test_every_dialect_is_declared():
    assert {mode.port.name for mode in MODES} > standard_catalog().dialects.keys()


@law()
def test_no_card_holds_more_than_it_has_and_all_that_is_given_back_leaves_no_trace(mode, seed, steps):
    world = new(mode, Random(seed))
    port = mode.port
    for _ in range(steps):
        if world.held and world.chance.random() < 0.25:
            world.give_back()
            continue
        pod, request = world.wanting()
        policy, before = world.policy, world.cards
        placed = world.place(request, policy)
        assert world.place(request, policy) == placed
        assert world.cards == before
        if placed is not None:
            world.take(pod, placed)
            assert port.overcommitted(world.cards) == ()
            assert port.give_back(world.cards, placed.assignment) == before
    again = world.empty
    held = [assignment for _, assignment in world.held]
    for assignment in world.chance.sample(held, len(held)):
        again = port.take(again, assignment)
    assert again == world.cards
    while world.held:
        world.give_back()
    assert world.cards == world.empty


@law()
def test_what_a_binding_says_is_what_was_placed(mode, seed, steps):
    """Whoever reads it, and however far the pod is."""
    world = filled(mode, Random(seed), steps)
    port, before = mode.port, world.cards
    pod, request = world.wanting()
    placed = world.place(request)
    if placed is None:
        return
    world.take(pod, placed)
    marks = port.marks() if isinstance(port, Marking) else frozenset()
    for fields in (
        {"phase": Phase.PENDING},
        {"phase": Phase.RUNNING, "started": True},
        {"phase": Phase.RUNNING, "deleting": True, "scheduler_name": "volcano"},
    ):
        bound = world.bound(pod, placed.assignment, **fields)
        unmarked = bound._replace(annotations={k: v for k, v in bound.annotations.items() if k not in marks})
        for one in (bound, unmarked):
            for cards in (before, world.cards):
                seen = port.held(one, cards, mode.tables)
                assert seen is not None
                assert (seen.assignment, seen.closes) == (placed.assignment, "")


@law()
def test_a_pod_takes_of_a_card_what_its_worst_moment_takes(mode, seed, steps):
    """An init container ends before the next one in the list starts; a sidecar starts in its place and stays."""
    world = new(mode, Random(seed))
    port, card, policy = mode.port, world.empty[:1], world.policy
    pod = world.beginning(world.plain()[0], steps % 5)
    request = world.asked(pod)
    if request is None:
        return
    placed = port.place(card, request, policy)
    found = [port.place(card, world.asked(moment), policy) for moment in moments(pod)]
    assert (placed is not None) == (None not in found)
    if placed is None:
        return
    used = [port.tally(port.take(card, one.assignment))[0].used for one in found]
    assert port.tally(port.take(card, placed.assignment))[0].used == max(used)
    # Once they have ended, a protocol may count init containers still.
    bound = world.bound(pod, placed.assignment, init_done=True, started=True)
    seen = port.held(bound, card, mode.tables)
    assert seen is not None
    assert used[-1] <= port.tally(port.take(card, seen.assignment))[0].used <= max(used)


def moments(pod: Pod) -> Iterator[Pod]:
    """*pod* with the containers that run together, at every moment of its life."""
    beside: list[Container] = []
    for one in pod.init_containers:
        yield pod._replace(init_containers=(), containers=(*beside, one._replace(sidecar=False)))
        if one.sidecar:
            beside.append(one._replace(sidecar=False))
    yield pod._replace(init_containers=(), containers=(*beside, *pod.containers))


@law()
def test_who_holds_cards_that_are_gone_holds_nothing_of_others(mode, seed, steps):
    world = filled(mode, Random(seed), steps)
    other = new(mode, Random(seed + 1))
    port = mode.port
    for pod, assignment in world.held:
        bound = world.bound(pod, assignment)
        for cards in (other.empty, other.empty[:1], ()):
            seen = port.held(bound, cards, mode.tables)
            assert seen is not None
            after = port.take(cards, seen.assignment)
            assert port.give_back(after, seen.assignment) == cards
            assert port.give_back(port.take(cards, assignment), assignment) == cards


@law()
def test_what_cannot_be_read_of_a_pod_closes_its_cards_or_its_node(mode, seed, steps):
    if mode.unreadable is None:
        return
    world = filled(mode, Random(seed), steps)
    port = mode.port
    pod, request = world.wanting()
    policy = world.policy
    placed = world.place(request, policy)
    if placed is None:
        return
    bound = world.bound(pod, placed.assignment)
    keys = port.assignment_keys(mode.tables)
    notes = {key: mode.unreadable(text) if key in keys else text for key, text in bound.annotations.items()}
    seen = port.held(bound._replace(annotations=notes), world.cards, mode.tables)
    assert seen is not None
    after = port.take(world.cards, seen.assignment)
    assert port.give_back(after, seen.assignment) == world.cards
    if not seen.closes:
        chosen = {one.whole for one in port.describe(placed.assignment, world.cards)}
        for card in after:
            if port.tally((card,))[0].card in chosen:
                assert not any(port.place((card,), world.wanting()[1], policy) for _ in range(3))


@law(of=ugly, cases=40)
def test_any_text_gives_an_answer(mode, seed, text):
    world = new(mode, Random(seed))
    port, tables, chance = mode.port, mode.tables, world.chance
    pod, request = world.plain()
    placed = world.place(request)
    if placed is not None:
        pod = world.bound(pod, placed.assignment)
    wishes = port.preferences(tables) if isinstance(port, Reading) else frozenset()
    key = chance.choice(sorted(port.assignment_keys(tables) | wishes | pod.annotations.keys() | {GROUP_NAME_KEYS[0]}))
    odd = pod._replace(node_name="node-a", annotations={**pod.annotations, key: text})
    port.request(odd, tables)
    port.in_flight(odd, tables)
    for cards in (world.empty, ()):
        seen = port.held(odd, cards, tables)
        if seen is not None:
            assert port.give_back(port.take(cards, seen.assignment), seen.assignment) == cards
    limits = dict.fromkeys(pod.containers[0].limits, text)
    asked = port.request(pod._replace(containers=(Container("c", limits=limits),)), tables)
    assert asked is None or hasattr(asked, "_fields") or all(one.code and one.remedy for one in asked)
    for part in ("annotations", "labels", "allocatable", "capacity", "documents"):
        for key in getattr(world.node, part):
            odd_node: dict[str, Any] = {part: {**getattr(world.node, part), key: text}}
            found = port.offer(replace(world.node, **odd_node), tables)
            assert found is None or isinstance(found, Offer | Complaint)


@law(Healing)
def test_what_is_unhealthy_takes_nothing_and_healing_it_refuses_nobody(mode, seed, steps):
    port = mode.port
    world = new(mode, Random(seed))
    well = port.well(world.empty)
    assert len(well) == sum(one.healthy for one in port.tally(world.empty))
    sick = port.kept_out(world.empty, dict.fromkeys(sorted(well)[:1], Fault(Reason.UNSTEADY, "it fails")))
    assert sum(one.healthy for one in port.tally(sick)) == max(len(well) - 1, 0)
    for _ in range(4):
        _, request = world.plain()
        policy = world.policy
        for cards in (world.empty, sick):
            for card, told in zip(cards, port.tally(cards), strict=True):
                assert told.healthy or port.place((card,), request, policy) is None
            placed = port.place(cards, request, policy)
            if placed is not None:
                chosen = {one.whole for one in port.describe(placed.assignment, cards)}
                assert chosen <= {one.card for one in port.tally(cards) if one.healthy}
                for better in (port.healed(cards), port.at_best(cards)):
                    assert port.place(better, request, policy) is not None


@law()
def test_figures_for_people_add_up(mode, seed, steps):
    world = filled(mode, Random(seed), steps)
    port = mode.port
    used: Counter[str] = Counter()
    cores: Counter[str] = Counter()
    for _, assignment in world.held:
        for one in port.describe(assignment, world.cards):
            used[one.whole] += one.amount or 0
            cores[one.whole] += one.cores_pct or 0
    # What runs one after the other takes the most of it.
    at_once = not any(pod.init_containers for pod, _ in world.held)
    for told in port.tally(world.cards):
        assert told.used == used[told.card] if at_once else told.used <= used[told.card]
        if told.cores_pct is not None and told.unit == "MiB":
            assert told.cores_pct == cores[told.card] if at_once else told.cores_pct <= cores[told.card]


@law(Metering)
def test_no_more_memory_is_metered_than_is_sold(mode, seed, steps):
    port = mode.port
    world = filled(mode, Random(seed), steps)
    sold = port.sold(port.healed(world.empty), mode.tables)
    for key in port.memories(mode.tables).values():
        metered = [port.metered(assignment, mode.tables).get(key, 0) for _, assignment in world.held]
        # A part of a unit counts as a whole one of each pod.
        assert sum(metered) <= sold.get(key, 0) + len(metered)


@law(Scaled)
def test_a_scale_is_read_as_it_was_told(mode, seed, steps):
    port = mode.port
    world = filled(mode, Random(seed), steps)
    scale = port.scale(world.node, world.cards, mode.tables)
    for pod, assignment in world.held:
        told = port.scale_told(assignment, scale)
        bound = world.bound(pod, assignment)
        bound = bound._replace(annotations={**bound.annotations, **told})
        assert port.scale_read(bound, assignment, scale) == scale
        assert port.rescaled(assignment, scale, scale) == (scale, "")


@law()
def test_nothing_that_is_kept_is_a_float(mode, seed, steps):
    world = filled(mode, Random(seed), steps)
    kept = [world.cards, [one for _, one in world.held], world.wanting()[1]]
    assert not any(isinstance(one, float) for one in numbers_of(kept))


def numbers_of(value: Any) -> Any:
    """Every value that is no container in *value*."""
    if isinstance(value, (tuple, list, set, frozenset)):
        for one in value:
            yield from numbers_of(one)
    else:
        yield value
