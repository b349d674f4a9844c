"""Kunlunxin's cards: which ones a container gets, and slices of them (hami-vendors 3.6)."""

import pytest

from core.admission.rulebook import rulebook
from core.catalog import standard_catalog
from core.model import Container, Pod, PodUid
from core.port.cards import CardWish
from core.port.refusals import Reason, Violation
from core.settings import Policy, Settings
from core.sharing.request import Ask, Request
from tests.support.devices.reviewed import reviewed
from tests.support.devices.vendors import TABLES, card, node_of, port_of

WHOLE, SLICES = port_of("kunlun"), port_of("kunlun_xpu")
COUNT, SLICE, MEMORY = WHOLE.vendor.limits.count, SLICES.vendor.limits.count, SLICES.vendor.limits.memory
KEY = WHOLE.vendor.handoff.allocated


def pod(*containers, annotations=None, init=()):
    def made(limits):
        text = {key: str(one) for key, one in limits.items()}
        return Container("c", limits=text, requests=text)

    return Pod(
        uid=PodUid("p"),
        namespace="default",
        name="p",
        containers=tuple(made(one) for one in containers),
        init_containers=tuple(made(one) for one in init),
        annotations=annotations or {},
    )


def cards_of(port, number=8):
    cards = [card(port.vendor, at) for at in range(number)]
    return port.offer(node_of(port.vendor, cards), TABLES).cards


def chosen(fitting, number, total=8):
    """The positions of the cards that a container gets of those at *fitting*."""
    ask = Ask(0, number, 1, 0, 0)
    found = WHOLE.rules.choose(cards_of(WHOLE, total), sorted(fitting, reverse=True), ask, Request((ask,), 1))
    return None if found is None else list(found)


@pytest.mark.parametrize(
    ("fitting", "number", "found"),
    [
        pytest.param(range(8), 8, [0, 1, 2, 3, 4, 5, 6, 7], id="all"),
        pytest.param(range(1, 8), 8, None, id="not all"),
        pytest.param({0, 1, 2, 3, 6}, 1, [6], id="one of the wing with one"),
        pytest.param({1, 2, 3, 4, 5}, 1, [1], id="of three rather than two"),
        pytest.param({2, 3, 4, 5, 6, 7}, 1, [2], id="of two rather than four"),
        pytest.param(range(8), 1, [0], id="the left wing"),
        pytest.param({0, 1, 2, 5, 6}, 2, [5, 6], id="two of the wing with two"),
        pytest.param({2, 6}, 2, [2, 6], id="a linked pair across"),
        pytest.param({2, 5}, 2, None, id="two that are not linked"),
        pytest.param({0, 1, 2, 4, 5, 6, 7}, 4, [4, 5, 6, 7], id="a wing"),
        pytest.param({0, 1, 2, 4, 5}, 4, [0, 1, 4, 5], id="two pairs across"),
        pytest.param({0, 1, 5, 6}, 4, None, id="four that are not linked"),
        pytest.param({0, 1, 2, 4, 5, 7}, 4, [0, 1, 4, 5], id="six of which none leaves a pair"),
        pytest.param({0, 1, 2, 4, 5, 6}, 4, [0, 1, 4, 5], id="six that leave a linked pair"),
        pytest.param({0, 1, 3, 5, 6, 7}, 4, [1, 3, 5, 7], id="only one four"),
    ],
)
def test_a_container_gets_linked_cards(fitting, number, found):
    assert chosen(fitting, number) == found


@pytest.mark.parametrize(
    ("fitting", "number", "found"),
    [
        pytest.param(range(8, 16), 8, [8, 9, 10, 11, 12, 13, 14, 15], id="the second eight, not the first"),
        pytest.param(range(4, 12), 8, None, id="eight of two eights"),
        pytest.param({3, 12}, 2, None, id="one of each eight"),
        pytest.param({0, 9, 10, 11}, 1, [0], id="one of the wing with one"),
    ],
)
def test_cards_of_several_eights_are_not_linked(fitting, number, found):
    assert chosen(fitting, number, 16) == found


def test_half_of_the_cards_are_at_the_second_numa_node():
    assert [one.fixed.numa for one in cards_of(WHOLE, 5)] == [0, 0, 1, 1, 1]


@pytest.mark.parametrize("number", [3, 5, 6, 7, 9])
@pytest.mark.parametrize("port", [WHOLE, SLICES])
def test_numbers_of_cards_that_never_fit_are_rejected(port, number):
    (found,) = port.request(pod({port.vendor.limits.count: number}), TABLES)
    assert isinstance(found, Violation)
    assert (found.code, found.remedy) == ("CS203", "write 1 or 2 or 4 or 8; no other fits")


def test_nobody_gets_less_memory_than_is_asked_for():
    assert not isinstance(SLICES.request(pod({SLICE: 1, MEMORY: 98304}), TABLES)[0], Violation)
    (found,) = SLICES.request(pod({SLICE: 1, MEMORY: 98305}), TABLES)
    assert (found.code, found.remedy) == ("CS101", "write at most 98304, which is all of a card")


def test_one_container_of_a_pod_has_whole_cards():
    assert [one.code for one in WHOLE.request(pod({COUNT: 1}, {COUNT: 1}), TABLES)] == ["CS204"]
    assert [one.code for one in WHOLE.request(pod({}, init=({COUNT: 1},)), TABLES)] == ["CS205"]


@pytest.mark.parametrize(
    ("memory", "found"), [(None, (98304, 100)), (0, (24576, 25)), (1, (24576, 25)), (49153, (98304, 100))]
)
def test_memory_becomes_that_of_a_slice_and_cores_follow(memory, found):
    asking = pod({SLICE: 1} if memory is None else {SLICE: 1, MEMORY: memory})
    request = SLICES.request(asking, TABLES)
    assert [(ask.memory, ask.cores) for ask in request.asks] == [found]
    completed, _ = SLICES.completed(reviewed(asking), request, TABLES)
    limits = completed.containers[0].limits
    assert limits == completed.containers[0].requests
    assert limits.get(MEMORY) == (None if memory is None else str(found[0]))
    assert SLICES.completed(completed, SLICES.request(completed, TABLES), TABLES)[0] == completed
    assert not list(SLICES.warnings(asking, request, TABLES))


@pytest.mark.parametrize(("wished", "found"), [(30_000, "49152"), (98_304, "98304"), (98_305, None)])
def test_nobody_is_told_to_ask_for_less_than_is_wished(wished, found):
    assert [one.limits[MEMORY] for one in SLICES.worded(CardWish(1, wished, None), TABLES)] == [found] * bool(found)


def taken(cards, *amounts):
    for memory in amounts:
        placed = SLICES.place(cards, SLICES.request(pod({SLICE: 1, MEMORY: memory}), TABLES), Policy.SPREAD)
        cards = SLICES.take(cards, placed.assignment)
    return cards


def test_all_slices_of_a_card_have_one_size():
    cards = taken(cards_of(SLICES, 1), 24576)
    asked = SLICES.request(pod({SLICE: 1, MEMORY: 49152}), TABLES)
    assert SLICES.place(cards, asked, Policy.SPREAD) is None
    (short,) = SLICES.shortfalls(cards, asked)
    assert short.reason is Reason.RULE
    assert short.detail == "its slices have 24576 MiB, and all slices of a card have one size"
    less = SLICES.relaxed(cards, asked, Reason.MEMORY, 24576)
    assert [(ask.memory, ask.cores) for ask in less.asks] == [(24576, 25)]
    assert SLICES.relaxed(cards, asked, Reason.MEMORY, 30000) is None
    assert SLICES.place(cards, less, Policy.SPREAD) is not None


def test_a_node_has_no_more_slices_than_handles():
    cards = taken(cards_of(SLICES, 8), *[24576] * 24)
    asked = SLICES.request(pod({SLICE: 1, MEMORY: 24576}), TABLES)
    assert SLICES.place(cards, asked, Policy.SPREAD) is None
    assert "would have 33 cards and slices; at most 32 are possible" in SLICES.shortfalls(cards, asked)[0].detail


@pytest.mark.parametrize(
    ("lists", "found"),
    [
        ({"hami.io/use-xpu-uuid": "a,b", "baidu.com/use-gpuuuid": "b,c"}, {"b"}),
        ({"hami.io/use-xpu-uuid": "a", "baidu.com/use-gpuuuid": "b"}, set()),
        ({"hami.io/use-xpu-uuid": "a,b", "baidu.com/nouse-gpuuuid": "b"}, {"a"}),
        ({"hami.io/no-use-xpu-uuid": "a", "baidu.com/nouse-gpuuuid": "b"}, {"c"}),
        ({"baidu.com/use-gpuuuid": "c"}, {"c"}),
    ],
)
def test_both_pairs_of_lists_count(lists, found):
    selection = WHOLE.request(pod({COUNT: 1}, annotations=lists), TABLES).selection
    assert {name for name in "abc" if selection.accepts((), name, 0) is None} == found


def test_lists_that_both_dialects_have_are_judged_once():
    book = rulebook(Settings(), TABLES, standard_catalog())
    assert len(book.card_lists) == len(set(book.card_lists))


def test_whole_cards_and_slices_of_a_node_are_the_same_cards():
    rivals = standard_catalog().rivals
    assert rivals[WHOLE.name] == {SLICES.name}
    assert rivals[SLICES.name] == {WHOLE.name}


def test_an_init_container_has_no_slice_of_another_size_beside_one_of_its_pod():
    asking = SLICES.request(pod({SLICE: 1, MEMORY: 24576}, init=({SLICE: 1, MEMORY: 49152},)), TABLES)
    assert SLICES.place(cards_of(SLICES, 1), asking, Policy.BINPACK) is None
    (short,) = SLICES.shortfalls(cards_of(SLICES, 1), asking)
    assert short.detail.endswith("all slices of a card have one size")
    placed = SLICES.place(cards_of(SLICES, 2), asking, Policy.BINPACK)
    assert len({one.uuid for one in placed.assignment.entries}) == 2
    alike = SLICES.request(pod({SLICE: 1, MEMORY: 24576}, init=({SLICE: 1, MEMORY: 24576},)), TABLES)
    assert len(SLICES.place(cards_of(SLICES, 1), alike, Policy.BINPACK).assignment.charges) == 1


def preferred(used, number, policy=Policy.BINPACK):
    """By how much a node with the cards at *used* in use is better for so many cards than one without preferences."""
    cards = cards_of(WHOLE)
    held = pod({COUNT: len(used)}, annotations={KEY: ":".join(f"node-a-kunlun-{at},kunlun,98304,100" for at in used)})
    if used:
        cards = WHOLE.take(cards, WHOLE.held(held._replace(node_name="node-a"), cards, TABLES).assignment)
    request = WHOLE.request(pod({COUNT: number}), TABLES)
    placed = WHOLE.place(cards, request, policy)
    assert WHOLE.bound(request, policy).idle_score(8) == float("inf")
    return placed.score - WHOLE.rules.idle_score(request, WHOLE.room(cards).idle, policy)


@pytest.mark.parametrize(
    ("used", "number", "found"),
    [
        pytest.param((), 1, 0, id="breaks a wing"),
        pytest.param((), 4, 2000, id="takes a wing"),
        pytest.param((), 8, 3000, id="takes both"),
        pytest.param((0,), 1, 2000, id="one wing is broken"),
        pytest.param((0, 4), 1, 3000, id="both are"),
        pytest.param((0, 1, 2, 3), 1, 0, id="breaks the other"),
    ],
)
def test_nodes_are_preferred_by_what_is_left_of_their_wings(used, number, found):
    assert preferred(used, number) == found
    assert preferred(used, number, Policy.SPREAD) == 3000 - found
    assert preferred(used, number, Policy.INDEX) == 0
