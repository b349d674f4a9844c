"""Laws of accounts, in every mode that `modes` declares: what is in use, by whom, and what is told of it."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields as fields_of
from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import strategies as st

from core.catalog import Catalog, standard_catalog
from core.model import Container, Image, Node, Phase, Pod, Taint
from core.names import GROUP_NAME_KEYS
from core.node_state import offers_alike
from core.port.cards import Offer
from core.port.handoff import Progress
from core.port.refusals import CardFault, Complaint, Reason, Violation
from core.port.spec import DialectSpec
from core.settings import Policy
from tests.property.laws.modes import MODES
from tests.property.laws.world import STAMP, filled, law, new

# Text that means trouble to somebody who splits at the separators of these protocols.
ugly = st.one_of(
    st.text(max_size=200),
    st.lists(
        st.sampled_from([*",:;[]- \x00\u0663", "GPU-0", "NVIDIA", "group1", "9" * 40, "-1", "1e9", "1k", "4Ki"]),
        max_size=60,
    ).map("".join),
    st.sampled_from(("," * 16_000, ":" * 16_000, "GPU-0,NVIDIA,1,1:" * 900, "a," * 20_000, "9" * 16_000, "[" * 16_000)),
)
# By which pods ask for cards in any mode, and for cards of NVIDIA's plugin under other names.
RESOURCES = (
    *sorted({name for mode in MODES for name in mode.port.names(mode.tables).resources}),
    "nvidia.com/mig-1g.5gb",
    "nvidia.com/gpu.shared",
)


def test_every_dialect_is_declared():
    assert {mode.port.name for mode in MODES} > standard_catalog().dialects.keys()


@law(cases=60)
def test_no_card_holds_more_than_it_has_and_all_that_is_given_back_leaves_no_trace(mode, seed, steps):
    world = new(mode, Random(seed))
    port = mode.port
    for _ in range(steps):
        world.step()
        assert port.overcommitted(world.cards) == ()
        _, request = world.wanting()
        policy, before = world.policy, world.cards
        placed = world.place(request, policy)
        assert world.place(request, policy) == placed
        assert world.cards == before
        if placed is not None:
            after = port.take(before, placed.assignment)
            assert port.overcommitted(after) == ()
            assert port.give_back(after, placed.assignment) == before
    again = world.empty
    held = [assignment for _, assignment in world.held]
    for assignment in world.chance.sample(held, len(held)):
        again = port.take(again, assignment)
    assert again == world.cards
    while world.held:
        world.give_back()
    assert world.cards == world.empty


@law(cases=60)
def test_a_promise_stands_whoever_comes_after_it(mode, seed, steps):
    world, port = new(mode, Random(seed)), mode.port
    promised: list[tuple[Any, Any]] = []
    for _ in range(steps):
        _, request = world.wanting()
        placed = world.place(request)
        if placed is not None:
            world.cards = port.take(world.cards, placed.assignment)
            promised.append((request, placed.assignment))
        if promised and world.chance.random() < 0.2:
            _, gone = promised.pop(world.chance.randrange(len(promised)))
            world.cards = port.give_back(world.cards, gone)
        for asked, assignment in promised:
            assert port.stands(world.cards, asked, assignment)


@law()
def test_a_promise_falls_once_its_cards_are_unhealthy_or_hold_too_much(mode, seed, steps):
    world, port = filled(mode, Random(seed), steps), mode.port
    _, request = world.wanting()
    placed = world.place(request)
    if placed is None:
        return
    cards = port.take(world.cards, placed.assignment)
    assert port.stands(cards, request, placed.assignment)
    while not port.overcommitted(cards):
        cards = port.take(cards, placed.assignment)
    assert not port.stands(cards, request, placed.assignment)
    sick = port.kept_out(world.empty, dict.fromkeys(port.well(world.empty) or (), CardFault(Reason.UNSTEADY, "")))
    if sick != world.empty:
        assert not port.stands(port.take(sick, placed.assignment), request, placed.assignment)


UNREAD: dict[str, Any] = {
    "uid": "another",
    "resource_version": "another",
    "taints": (Taint(key="k", value="v", effect="NoSchedule"),),
    "unschedulable": True,
    "ready": False,
    "deleting": True,
    "created_s": 7,
    "joining": True,
    "unserved": frozenset({"vgpu"}),
    "images": (Image(("i",), 1),),
    "features": ("f",),
    "kubelet_version": "v1.36.1",
}
READ = {"name", "labels", "annotations", "capacity", "allocatable", "documents"}


def test_every_field_of_a_node_is_compared_or_no_dialect_reads_it():
    assert {one.name for one in fields_of(Node)} == READ | UNREAD.keys()


@law(cases=15)
def test_a_node_that_counts_as_unchanged_offers_the_same_cards(mode, seed, steps):
    world, scaling = new(mode, Random(seed)), mode.spec.scaling

    def offered(node):
        found = mode.port.offer(node, mode.tables)
        return found, scaling.of_node(node, world.empty, mode.tables) if scaling is not None else None

    node = replace(world.node, annotations={**world.node.annotations, "volcano.sh/node-vgpu-handshake": "Reported 1"})
    signs = {"hami.io/mutex.lock": "now,a,b", "volcano.sh/node-vgpu-handshake": "Reported 2"}
    unread = replace(node, annotations={**node.annotations, **signs}, **UNREAD)
    assert offers_alike(node, unread)
    assert offers_alike(unread, node)
    assert offered(unread) == offered(node)
    # And whatever else is different: if the cards are, the node counts as changed.
    others = [new(mode, Random(seed + 1)).node]
    for part in ("annotations", "labels", "allocatable", "capacity"):
        texts: dict[str, str] = getattr(node, part)
        for key, text in texts.items():
            left = {name: one for name, one in texts.items() if name != key}
            changed: list[dict[str, Any]] = [{part: left}, {part: {**left, key: f"{text}0"}}]
            others += [replace(node, **one) for one in changed]
    for other in others:
        if offered(other) != offered(node):
            assert not offers_alike(node, other)
            assert not offers_alike(other, node)


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
    marks = mode.spec.marks
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


@law(cases=60)
def test_a_pod_takes_of_a_card_what_its_worst_moment_takes(mode, seed, steps):
    """An init container ends before the next one in the list starts; a sidecar starts in its place and stays."""
    world = new(mode, Random(seed))
    port, policy = mode.port, world.policy
    # Containers that run together may need a card each.
    cards = world.empty[: 1 if mode.adds_up else world.chance.choice((1, 2))]
    if len(set(port.room(cards).kinds)) > 1:
        return

    def used(assignment: Any) -> int:
        return sum(one.used for one in port.tally(port.take(cards, assignment)))

    for _ in range(1 + steps // 2):
        pod = world.beginning(world.single()[0], world.chance.randint(1, 4))
        request = world.asked(pod)
        if request is None:
            return  # no init container may ask in this mode
        placed = port.place(cards, request, policy)
        found = [port.place(cards, world.asked(moment), policy) for moment in moments(pod)]
        assert (placed is not None) == (None not in found) or (mode.one_size and placed is None)
        if placed is None:
            continue
        at_once = [used(one.assignment) for one in found]
        assert used(placed.assignment) == max(at_once)
        # Once they have ended, a protocol may count init containers still.
        seen = port.held(world.bound(pod, placed.assignment, init_done=True, started=True), cards, mode.tables)
        assert seen is not None
        assert at_once[-1] <= used(seen.assignment) <= max(at_once)


def moments(pod: Pod) -> Iterator[Pod]:
    """*pod* with the containers that run together, at every moment of its life."""
    beside: list[Container] = []
    for one in pod.init_containers:
        yield pod._replace(init_containers=(), containers=(*beside, one._replace(sidecar=False)))
        if one.sidecar:
            beside.append(one._replace(sidecar=False))
    yield pod._replace(init_containers=(), containers=(*pod.containers, *beside))


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
    keys = port.names(mode.tables).assignment_keys
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


@law(of=ugly, cases=20)
def test_any_text_gives_an_answer(mode, seed, text):
    world = new(mode, Random(seed))
    port, tables = mode.port, mode.tables
    pod, request = world.plain()
    placed = world.place(request)
    if placed is not None:
        pod = world.bound(pod, placed.assignment)
    wishes = port.names(tables).preferences
    for key in port.names(tables).assignment_keys | wishes | pod.annotations.keys() | {GROUP_NAME_KEYS[0]}:
        odd = pod._replace(node_name="node-a", annotations={**pod.annotations, key: text})
        asked = port.request(odd, tables)
        if is_refused(asked):
            assert all(len(str(one)) < 600 for one in asked)
        else:
            port.place(world.empty, asked, Policy.BINPACK)
        port.in_flight(odd, tables)
        port.next_stamp([odd], 1)
        for cards in (world.empty, ()):
            seen = port.held(odd, cards, tables)
            if seen is not None:
                assert port.give_back(port.take(cards, seen.assignment), seen.assignment) == cards
    limits = dict.fromkeys(pod.containers[0].limits, text)
    asked = port.request(pod._replace(containers=(Container("c", limits=limits),)), tables)
    assert not is_refused(asked) or all(one.code and one.remedy for one in asked)
    for part in ("annotations", "labels", "allocatable", "capacity", "documents"):
        for key in getattr(world.node, part):
            changed: dict[str, Any] = {part: {**getattr(world.node, part), key: text}}
            found = port.offer(replace(world.node, **changed), tables)
            assert found is None or isinstance(found, Offer | Complaint)


def is_refused(asked: Any) -> bool:
    """Whether *asked* are violations."""
    return isinstance(asked, tuple) and bool(asked) and isinstance(asked[0], Violation)


@law(lambda mode: mode.port.well(()) is not None)
def test_what_is_unhealthy_takes_nothing_and_healing_it_refuses_nobody(mode, seed, steps):
    port = mode.port
    world = new(mode, Random(seed))
    well = port.well(world.empty)
    assert len(well) == sum(one.healthy for one in port.tally(world.empty))
    assert all(one.healthy for one in port.tally(port.healed(world.empty)))
    best = port.at_best(world.empty)
    assert port.at_best(best) == best
    sick = port.kept_out(world.empty, dict.fromkeys(sorted(well)[:1], CardFault(Reason.UNSTEADY, "it fails")))
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


@law()
def test_a_plugin_mistakes_a_bound_pod_by_what_its_request_said_and_the_next_one_comes_after_it(mode, seed, steps):
    world = filled(mode, Random(seed), steps)
    port = mode.port
    for pod, assignment in world.held:
        bound = world.bound(pod, assignment)
        flight = port.in_flight(bound, mode.tables)
        if flight is not None:
            assert flight.progress is Progress.WAITING
            assert flight.confusable == port.confusable(world.asked(pod))
        if str(STAMP.order) in bound.annotations.values():
            assert port.next_stamp([bound], STAMP.now_s) > STAMP.order


@law(lambda mode: mode.port.names(mode.tables).budgeted)
def test_what_is_metered_of_a_pod_is_what_its_cards_lose(mode, seed, steps):
    world = filled(mode, Random(seed), steps)
    port = mode.port
    _, request = world.wanting()
    placed = world.place(request)
    if placed is None or not port.names(mode.tables).memories:
        # Where the plugin itself advertises all that pods ask, kubelet's account is right.
        assert placed is None or not port.metered(placed.assignment, mode.tables)
        return
    after = port.take(world.cards, placed.assignment)
    lost = sum(one.used for one in port.tally(after)) - sum(one.used for one in port.tally(world.cards))
    metered = port.metered(placed.assignment, mode.tables)
    (memory,) = {metered[key] for key in port.names(mode.tables).memories.values() if key in metered}
    # A part of a unit counts as a whole one; of a card that is cut, what was asked may be less than its slice.
    is_cut = any(one.mode == "mig" for one in port.tally(after))
    assert memory * mode.mib_per_unit < lost + mode.mib_per_unit
    assert is_cut or memory * mode.mib_per_unit >= lost
    sold = port.sold(port.healed(world.empty), mode.tables)
    assert is_cut or all(
        0 <= metered[key] <= sold[key] + 1 for key in metered.keys() & port.names(mode.tables).memories.values()
    )


@law(lambda mode: mode.spec.scaling)
def test_a_scale_is_read_as_it_was_told(mode, seed, steps):
    world = filled(mode, Random(seed), steps)
    scaling = mode.spec.scaling
    scale = scaling.of_node(world.node, world.cards, mode.tables)
    for pod, assignment in world.held:
        told = scaling.told(assignment, scale)
        bound = world.bound(pod, assignment)
        bound = bound._replace(annotations={**bound.annotations, **told})
        assert scaling.read(bound, assignment, scale) == scale
        assert scaling.rescaled(assignment, scale, scale) == (scale, assignment, "")


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


@law(cases=10)
def test_a_pod_that_does_not_concern_a_dialect_holds_nothing_there_and_is_never_served(mode, seed, steps):
    """By every part of what its Binding, its plugin and its request name; `core.catalog` asks no other dialect."""
    chance = Random(seed)
    world = filled(mode, chance, steps)
    others = [one for one in standard_catalog().specs if one.name != mode.port.name]
    catalog = Catalog((DialectSpec(port=mode.port, cards=""), *others))
    keys = sorted(catalog.assignment_keys(mode.tables) | {"hami.io/Ascend910X-devices-allocated"})
    for pod, assignment in world.held:
        bound = world.bound(pod, assignment)
        served = mode.served(chance, bound.annotations) if mode.served is not None else {}
        bound = bound._replace(annotations={**bound.annotations, **served})
        for one in (bound, *(_altered(bound, chance, keys) for _ in range(4))):
            concerned = catalog.concerned(one, mode.tables)
            for name, port in catalog.dialects.items():
                if name not in concerned:
                    assert port.held(one, world.cards if port is mode.port else (), mode.tables) is None
                    assert port.in_flight(one, mode.tables) is None


def _altered(pod: Pod, chance: Random, keys: Sequence[str]) -> Pod:
    """*pod* with some of its annotations and resources, and some of *keys* and of others' resources."""
    texts = (*pod.annotations.values(), "x")
    notes = {**pod.annotations, **{key: chance.choice(texts) for key in chance.sample(keys, 2)}}
    named = {**pod.containers[0].limits, chance.choice(RESOURCES): "1"}
    return pod._replace(
        annotations={key: text for key, text in notes.items() if chance.random() < 0.5},
        containers=(Container("c", limits={key: text for key, text in named.items() if chance.random() < 0.5}),),
    )
