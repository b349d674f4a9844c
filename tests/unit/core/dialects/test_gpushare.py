"""The two modes of the share plugin, where the worked examples do not look."""

from typing import Any

import pytest

from core.catalog import standard_catalog
from core.dialects.gpushare.dialect import GpuMemory, GpuNumber
from core.model import Container, NodeName, Phase, PodUid
from core.port.cards import Offer
from core.port.handoff import Progress, Stamp
from core.port.refusals import Complaint, Reason, Shortfall
from core.settings import DialectName, Policy, Settings, Tables
from tests.support.devices.cards import pod, share_node

# What a dialect answers is its own; tests look inside as the port's other users may not.
MEMORY: Any = GpuMemory()
NUMBER: Any = GpuNumber()
TABLES = Tables()
MEM, NUM = "volcano.sh/gpu-memory", "volcano.sh/gpu-number"
IN_USE = "the pod needs a card that no other pod uses"
UNWELL = "the device plugin says that it is unhealthy"


def asks(resource: str, amount: int | str, name: str = "c") -> Container:
    return Container(name=name, limits={resource: str(amount)})


def cards(dialect, capacity, unhealthy=None):
    offer = dialect.offer(share_node(capacity, unhealthy), TABLES)
    assert isinstance(offer, Offer), offer
    return offer.cards


def held(dialect, found, *pods):
    for one in pods:
        holds = dialect.held(one, found, TABLES)
        assert holds is not None
        found = dialect.take(found, holds.assignment)
    return found


def bound(index: str, resource: str = MEM, amount: int = 1000, **fields):
    return pod(asks(resource, amount), node_name="node-a", annotations={"volcano.sh/gpu-index": index}, **fields)


def index_of(dialect, found, request, policy=Policy.INDEX):
    placed = dialect.place(found, request, policy)
    return None if placed is None else tuple(one.slot for one in placed.assignment.entries)


def test_a_node_with_memory_to_share_sells_no_whole_cards():
    node = share_node({MEM: 8000, NUM: 2})
    assert isinstance(MEMORY.offer(node, TABLES), Offer)
    assert NUMBER.offer(node, TABLES) is None
    for capacity in ({MEM: 0, NUM: 2}, {NUM: 2}):
        assert MEMORY.offer(share_node(capacity), TABLES) is None
        assert isinstance(NUMBER.offer(share_node(capacity), TABLES), Offer)


@pytest.mark.parametrize("capacity", [{NUM: "-1"}, {NUM: 10**6}, {NUM: 2, MEM: "-5"}, {NUM: 2, MEM: "x"}])
def test_a_capacity_that_cannot_be_is_a_complaint(capacity):
    assert isinstance(NUMBER.offer(share_node(capacity), TABLES), Complaint)
    assert isinstance(MEMORY.offer(share_node(capacity), TABLES), Complaint)


def test_policies_order_the_cards_that_fit():
    found = held(MEMORY, cards(MEMORY, {MEM: 30000, NUM: 3}), bound("1", amount=4000), bound("2", amount=9000))
    request = MEMORY.request(pod(asks(MEM, 2000)), TABLES)
    assert index_of(MEMORY, found, request) == (0,)
    assert index_of(MEMORY, found, request, Policy.SPREAD) == (0,)
    assert index_of(MEMORY, found, request, Policy.BINPACK) == (1,)
    placed = MEMORY.place(found, request, Policy.BINPACK)
    want = MEMORY.want(request, found[1].fixed.kind, Policy.BINPACK)
    assert placed is not None
    assert want is not None
    assert placed.score == 60.0 == 100.0 * (want.numerator - 6000) / want.total
    spread = MEMORY.place(found, request, Policy.SPREAD)
    assert spread is not None
    assert spread.score == 100.0


def test_wishes_and_what_is_to_be_avoided_are_honoured():
    found = cards(MEMORY, {MEM: 3000, NUM: 3})
    for notes, expected in (
        ({"cardshare.io/gpu-index": "2"}, (2,)),
        ({"cardshare.io/avoid-cards": "0"}, (1,)),
        ({"cardshare.io/gpu-index": "7"}, None),
    ):
        request = MEMORY.request(pod(asks(MEM, 10), annotations=notes), TABLES)
        assert index_of(MEMORY, found, request) == expected


def test_a_list_of_positions_for_whole_cards_names_as_many_as_are_asked():
    def ask(notes):
        return NUMBER.request(pod(asks(NUM, 2), annotations=notes), TABLES)

    assert index_of(NUMBER, cards(NUMBER, {NUM: 4}), ask({"cardshare.io/gpu-index": "3,1"})) == (1, 3)
    assert [one.code for one in ask({"cardshare.io/gpu-index": "1"})] == ["CS106"]
    assert [one.code for one in ask({"cardshare.io/gpu-index": "a"})] == ["CS105"]


def test_what_the_plugin_cannot_serve_is_refused():
    init = pod(asks(NUM, 1), init_containers=(asks(NUM, 1, "i"),))
    assert [one.code for one in NUMBER.request(init, TABLES)] == ["CS205"]
    assert [one.code for one in MEMORY.request(pod(asks(MEM, "1.5")), TABLES)] == ["CS101"]


def test_memory_with_a_suffix_is_told_that_its_unit_is_mib_already():
    (found,) = MEMORY.request(pod(asks(MEM, "4Gi")), TABLES)
    assert (found.code, found.found) == ("CS101", "'4Gi'")
    assert found.remedy == "the unit is MiB already; write a whole number such as '4096'"


def test_a_pod_that_asks_for_memory_and_whole_cards_is_refused():
    both = pod(Container(name="c", limits={MEM: "1", NUM: "1"}))
    found = standard_catalog().request_of(both, TABLES, Settings())
    assert isinstance(found, tuple)
    assert [one.code for one in found] == ["CS201"]


def test_a_piece_that_cannot_be_read_closes_the_node_and_the_rest_counts():
    found = cards(MEMORY, {MEM: 8000, NUM: 2})
    holds = MEMORY.held(bound("1,x"), found, TABLES)
    assert holds is not None
    assert "default/p" in holds.closes
    assert MEMORY.take(found, holds.assignment)[1].used_memory == 1000


def test_a_card_named_twice_holds_the_pod_once():
    found = held(MEMORY, cards(MEMORY, {MEM: 8000, NUM: 2}), bound("1,1,9"))
    assert [(card.used_memory, card.used_slots) for card in found] == [(0, 0), (1000, 1)]


def test_a_pod_of_either_resource_makes_a_whole_card_busy():
    found = held(NUMBER, cards(NUMBER, {NUM: 2}), bound("0", MEM), bound("1", NUM, 1))
    request = NUMBER.request(pod(asks(NUM, 1)), TABLES)
    assert NUMBER.place(found, request, Policy.INDEX) is None
    assert NUMBER.shortfalls(found, request) == (
        Shortfall("", Reason.CARD_COUNT, 1, 0, "idle cards"),
        Shortfall("GPU 0", Reason.BUSY, detail=IN_USE),
        Shortfall("GPU 1", Reason.BUSY, detail=IN_USE),
    )


def test_an_unhealthy_card_is_told_and_not_used():
    found = cards(MEMORY, {MEM: 8000, NUM: 2}, unhealthy="0, 1")
    request = MEMORY.request(pod(asks(MEM, 5000)), TABLES)
    assert MEMORY.shortfalls(found, request) == (
        Shortfall("GPU 0", Reason.UNHEALTHY, detail=UNWELL),
        Shortfall("GPU 1", Reason.UNHEALTHY, detail=UNWELL),
    )


def test_shortfalls_say_how_much_is_free():
    found = held(MEMORY, cards(MEMORY, {MEM: 4000, NUM: 1}), bound("0"))
    request = MEMORY.request(pod(asks(MEM, 3500)), TABLES)
    assert MEMORY.shortfalls(found, request) == (Shortfall("GPU 0", Reason.MEMORY, 3500, 3000, "MiB"),)


def test_cards_held_twice_are_told():
    memory = held(MEMORY, cards(MEMORY, {MEM: 1000, NUM: 1}), bound("0"), bound("0"))
    assert MEMORY.overcommitted(memory) == ("GPU 0 holds 2000 MiB of 1000 MiB",)
    number = held(NUMBER, cards(NUMBER, {NUM: 1}), bound("0", NUM), bound("0", NUM))
    assert NUMBER.overcommitted(number) == ("GPU 0 is held whole by 2 pods",)


def test_a_pod_without_its_node_is_claimed_by_the_mode_it_asks_for():
    assert MEMORY.held(bound("0", NUM, 1), (), TABLES) is None
    assert NUMBER.held(bound("0", NUM, 1), (), TABLES) is not None
    assert MEMORY.held(bound("0", MEM), (), TABLES) is not None


def test_the_binding_carries_the_index_and_the_time():
    request = NUMBER.request(pod(asks(NUM, 2)), TABLES)
    placed = NUMBER.place(cards(NUMBER, {NUM: 3}), request, Policy.SPREAD)
    assert placed is not None
    stamp = Stamp(node=NodeName("n"), now_s=1, order=5)
    assert NUMBER.annotations(placed.assignment, stamp, TABLES) == {
        "volcano.sh/gpu-index": "0,1",
        "volcano.sh/predicate-time": "5",
    }


@pytest.mark.parametrize(
    ("fields", "notes", "progress"),
    [
        ({}, {}, Progress.WAITING),
        ({}, {"volcano.sh/gpu-assigned": "false"}, Progress.WAITING),
        ({}, {"volcano.sh/gpu-assigned": "true"}, Progress.DONE),
        ({"started": True}, {}, Progress.DONE),
        ({"phase": Phase.RUNNING}, {}, Progress.DONE),
        ({"phase": Phase.FAILED}, {}, Progress.FAILED),
        ({"deleting": True}, {}, Progress.WAITING),
        ({"status_reason": "UnexpectedAdmissionError"}, {}, Progress.FAILED),
    ],
)
def test_a_pod_is_in_flight_as_the_plugin_sees_it(fields, notes, progress):
    found = MEMORY.in_flight(pod(asks(MEM, 7), node_name="n", annotations=notes, **fields), TABLES)
    assert found is not None
    assert found.progress is progress
    same = MEMORY.confusable(MEMORY.request(pod(asks(MEM, 7)), TABLES))
    assert found.confusable == (same if progress is Progress.WAITING else frozenset())


def test_an_unbound_pod_and_one_of_another_mode_are_never_served():
    assert MEMORY.in_flight(pod(asks(MEM, 7)), TABLES) is None
    assert MEMORY.in_flight(pod(asks(NUM, 7), node_name="n"), TABLES) is None


def test_the_order_is_in_nanoseconds_above_every_pod_still_to_be_served():
    def timed(time, **notes):
        return pod(uid=PodUid("x"), annotations={"volcano.sh/predicate-time": time, **notes})

    assert MEMORY.next_stamp([], 3) == 3_000_000_001
    assert MEMORY.next_stamp([timed("4000000000")], 3) == 4_000_000_001
    assert MEMORY.next_stamp([timed("4000000000", **{"volcano.sh/gpu-assigned": "true"})], 3) == 3_000_000_001
    assert MEMORY.next_stamp([timed("x"), timed(str(2**63))], 3) == 3_000_000_001


def test_dialects_are_named_as_settings_name_them():
    assert (MEMORY.name, NUMBER.name) == (DialectName("gpu_memory"), DialectName("gpu_number"))


@pytest.mark.parametrize(
    ("amount", "left"),
    [(15000, (1000, 5000, 9000)), (9000, (1000, 4000, 4000)), (3, (1, 1, 1)), (2, None)],
)
def test_less_for_a_pod_is_parted_among_its_containers_and_none_is_left_without(amount, left):
    found = cards(MEMORY, {MEM: 9000, NUM: 1})
    request = MEMORY.request(pod(asks(MEM, 9000, "a"), asks(MEM, 1000, "b"), asks(MEM, 5000, "c")), TABLES)
    (short,) = MEMORY.shortfalls(found, request)
    assert (short.wanted, short.free, short.unit) == (15000, 9000, "MiB in all")
    less = MEMORY.relaxed(found, request, Reason.MEMORY, amount)
    assert (None if less is None else tuple(sorted(less.asks[0].parts))) == left
    if less is not None:
        assert less.asks[0].memory == sum(left)
        assert MEMORY.confusable(less) == {(MEM, part) for part in left}


def test_positions_are_not_lowered_with_the_number_of_cards():
    found = cards(NUMBER, {NUM: 3})
    for notes, fits in (({}, True), ({"cardshare.io/gpu-index": "0,1"}, False)):
        request = NUMBER.request(pod(asks(NUM, 2), annotations=notes), TABLES)
        assert (NUMBER.relaxed(found, request, Reason.CARD_COUNT, 1) is not None) == fits


def test_a_figure_that_cannot_be_read_does_not_hide_those_of_other_containers():
    found = cards(MEMORY, {MEM: 8000, NUM: 2})
    mixed = pod(asks(MEM, "x", "a"), asks(MEM, 700, "b"), node_name="n", annotations={"volcano.sh/gpu-index": "0"})
    assert held(MEMORY, found, mixed)[0].used_memory == 700


def test_the_cards_of_two_nodes_have_no_name_in_common():
    assert MEMORY.identities(cards(MEMORY, {MEM: 8000, NUM: 2})) == ()
