"""Which Ascend chips a pod gets, what is counted, and what is said where it gets none."""

import json
from dataclasses import replace
from typing import Any

import pytest

from core.catalog import standard_catalog
from core.dialects.ascend_hami import keys
from core.dialects.ascend_hami.table import AscendTable
from core.ledger import Ledger
from core.model import Node, NodeName
from core.port.cards import Offer
from core.port.refusals import Complaint, Reason
from core.settings import Policy, Settings, Tables
from core.sharing.card import CORDON
from tests.support.devices import ascend
from tests.support.devices.ascend import DIALECT, TABLES

B2, B3, P = "Ascend910B2", "Ascend910B3", "Ascend310P"
EIGHT = [f"D{at}" for at in range(8)]


def reasons(cards, found):
    return {one.card: one.reason for one in DIALECT.shortfalls(cards, ascend.request(found))}


# ---------------------------------------------------------------------- what nodes offer


def test_a_node_without_a_register_offers_nothing():
    assert DIALECT.offer(Node(name=NodeName("n"), allocatable={"huawei.com/Ascend310P": "7"}), TABLES) is None


def test_a_register_without_allocatable_devices_is_complained_of():
    assert isinstance(DIALECT.offer(replace(ascend.node(P), allocatable={}), TABLES), Complaint)


@pytest.mark.parametrize("text", ["", "{}", "[null]", "[7]", "x", "[]", '[{"id":7}]', "[" * 99999], ids=lambda t: t[:9])
def test_a_register_that_cannot_be_read_sets_the_node_aside(text):
    found = replace(ascend.node(P), annotations={"hami.io/node-register-Ascend310P": text})
    assert isinstance(DIALECT.offer(found, TABLES), Complaint)


@pytest.mark.parametrize(("figure", "shown"), [("much", "much"), (10**4000, "1" + "0" * 62 + "\u2026")])
def test_a_figure_that_cannot_be_read_is_told_with_its_field(figure, shown):
    found = DIALECT.offer(ascend.node(P, U0={"devmem": figure}), TABLES)
    assert isinstance(found, Complaint)
    assert found.problem.endswith(f"writes its cards anew; it has '{shown}' for devmem")


def test_one_unreadable_register_leaves_the_other_chip_types():
    both = ascend.node(P)
    notes = {**both.annotations, "hami.io/node-register-Ascend910A": "x"}
    offer = DIALECT.offer(
        replace(both, annotations=notes, allocatable={**both.allocatable, "huawei.com/Ascend910A": "1"}), TABLES
    )
    assert isinstance(offer, Offer)
    assert [card.fixed.label for card in offer.cards] == [P]
    assert len(offer.complaints) == 1


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"health": None}, Reason.UNHEALTHY),
        ({"health": False}, Reason.UNHEALTHY),
        ({"type": "Ascend910B4"}, Reason.UNUSABLE),
        ({"devmem": 0}, Reason.UNUSABLE),
        ({"devmem": 99999}, Reason.UNUSABLE),
        ({"id": "U,0"}, Reason.UNUSABLE),
        ({"count": 0}, Reason.SLOTS),
    ],
    ids=str,
)
def test_a_device_that_cannot_be_used_takes_nothing(fields, reason):
    cards = ascend.cards_of(ascend.node(P, ["U0"], U0=fields))
    assert ascend.placed(cards, ascend.pod(P, [1])) is None
    assert set(reasons(cards, ascend.pod(P, [1])).values()) == {reason}


def test_a_node_that_two_plugins_serve_is_complained_of():
    found = ascend.node(P)
    offer = DIALECT.offer(replace(found, allocatable={**found.allocatable, "huawei.com/npu-core": "8"}), TABLES)
    assert isinstance(offer, Offer)
    assert [one.field for one in offer.complaints] == ["allocatable huawei.com/npu-core"]


def test_names_that_begin_alike_are_two_chip_types():
    cards = ascend.cards_of(ascend.node("Ascend910B4-1"))
    assert ascend.placed(cards, ascend.pod("Ascend910B4", [1])) is None
    assert reasons(cards, ascend.pod("Ascend910B4", [1])) == {"U0": Reason.TYPE}
    assert ascend.text(ascend.placed(cards, ascend.pod("Ascend910B4-1", [1])), "Ascend910B4-1") == (
        "U0,Ascend910B4-1,65536,0:;"
    )


def test_a_node_may_have_chips_of_several_types():
    first, second = ascend.node(P, ["U0"]), ascend.node("Ascend910A", ["V0"])
    both = replace(
        first,
        annotations={**first.annotations, **second.annotations},
        allocatable={**first.allocatable, **second.allocatable},
    )
    cards = ascend.cards_of(both)
    assert ascend.text(ascend.placed(cards, ascend.pod("Ascend910A", [1, 1])), "Ascend910A") == "V0,Ascend910A,2184,0:;"
    assert ascend.text(ascend.placed(cards, ascend.pod(P, [1, 1])), P) == "U0,Ascend310P,3072,0:;"


def test_a_chip_that_stands_in_two_registers_is_not_sold_twice():
    first, second = ascend.node("Ascend910B4", ["U0", "U1"]), ascend.node("Ascend910B4-1", ["U0"])
    both = replace(
        first,
        annotations={**first.annotations, **second.annotations},
        allocatable={**first.allocatable, **second.allocatable},
    )
    offer = DIALECT.offer(both, TABLES)
    assert isinstance(offer, Offer)
    assert [one.field for one in offer.complaints] == ["card 'U0'", "card 'U0'"]
    assert ascend.placed(offer.cards, ascend.pod("Ascend910B4-1", [1])) is None
    assert ascend.text(ascend.placed(offer.cards, ascend.pod("Ascend910B4", [1])), "Ascend910B4") == (
        "U1,Ascend910B4,32768,0:;"
    )


def test_registers_of_more_devices_than_a_machine_has_are_left_out_and_told():
    many = ascend.node(P, [f"U{at}" for at in range(257)])
    found = DIALECT.offer(many, TABLES)
    assert isinstance(found, Complaint)
    assert found.problem.endswith("no more than 256 cards are read, here are 257")
    first, second = (
        ascend.node("Ascend910B4", [f"U{at}" for at in range(200)]),
        ascend.node(B2, [f"V{at}" for at in range(57)]),
    )
    both = replace(
        second,
        annotations={**first.annotations, **second.annotations},
        allocatable={**first.allocatable, **second.allocatable},
    )
    offer = DIALECT.offer(both, TABLES)
    assert isinstance(offer, Offer)
    assert [one.field for one in offer.complaints] == ["annotation hami.io/node-register-Ascend910B4"]
    assert {card.fixed.label for card in offer.cards} == {B2}


@pytest.mark.parametrize("escape", ["\\ud800", "U\\udfff1", "\\ud83d\\ud83d"])
def test_an_id_with_half_a_character_is_set_aside_and_can_be_told(escape):
    whole = ascend.device("@", 0, P)
    register = json.dumps([whole, ascend.device("U1", 1, P)]).replace('"@"', f'"{escape}"')
    offer = DIALECT.offer(replace(ascend.node(P), annotations={"hami.io/node-register-Ascend310P": register}), TABLES)
    assert isinstance(offer, Offer)
    assert [card.fixed.fault for card in offer.cards] == [Reason.UNUSABLE, None]
    assert "cannot be written into an assignment" in offer.complaints[0].problem
    told = [
        *(f"{one.field}{one.problem}" for one in offer.complaints),
        *(one.card for one in DIALECT.tally(offer.cards)),
    ]
    assert "".join(told).encode()
    assert ascend.text(ascend.placed(offer.cards, ascend.pod(P, [1, 1])), P) == "U1,Ascend310P,3072,0:;"


# ---------------------------------------------------------------------- what fits


def test_ai_cpus_of_a_910b2_are_counted_beside_its_memory():
    # Six slices of one AI CPU fill the chip's six, though memory for two more is left (H-11).
    node = ascend.node(B2)
    cards = ascend.cards_of(node, *(ascend.holder(B2, f"U0,{B2},8192,0:;", name=str(n)) for n in range(6)))
    assert ascend.placed(cards, ascend.pod(B2, [1, 8192])) is None
    short = DIALECT.shortfalls(cards, ascend.request(ascend.pod(B2, [1, 8192])))[0]
    assert (short.reason, short.wanted, short.free, short.unit) == (Reason.TEMPLATE, 1, 0, "AI CPUs")


@pytest.mark.parametrize(
    "told", ['[{"UUID":"U0","temp":"vir03_1c_8g"}]', '[{"UUID":"U0"},{"UUID":"U0","temp":"vir03_1c_8g"}]']
)
def test_a_running_slice_counts_as_the_template_that_it_was_cut_by_whatever_its_memory_means_now(told):
    chips = TABLES.of(AscendTable).chips
    (chip,) = [one for one in chips if one.named.type == B2]
    smaller = [one._replace(memory_mib=7168) if one.name == "vir03_1c_8g" else one for one in chip.templates]
    edited = AscendTable(
        chips=tuple([replace(chip, templates=tuple(smaller)) if one is chip else one for one in chips])
    )
    running = ascend.holder(B2, f"U0,{B2},8192,0:;", annotations={f"huawei.com/{B2}": told})
    cut = next(one for one in chip.templates if one.name == "vir03_1c_8g")
    (card,) = ascend.cards_of(ascend.node(B2), running, tables=Tables(sections=(edited,)))
    assert (card.counted, card.used_memory) == (cut.counted, 8192)
    # Without that annotation, or without such a template, only its memory says what it is.
    for unnamed in ("", "x", "[" * 9999, '[{"UUID":"U0","temp":"vir99"}]', '[{"UUID":"U1","temp":"vir03_1c_8g"}]'):
        plain = running._replace(annotations={**running.annotations, f"huawei.com/{B2}": unnamed})
        (card,) = ascend.cards_of(ascend.node(B2), plain, tables=Tables(sections=(edited,)))
        assert card.counted > cut.counted


def test_free_memory_is_told_by_the_largest_template_that_still_fits():
    cards = ascend.cards_of(ascend.node(P), ascend.holder(P, f"U0,{P},6144,0:;"))
    short = DIALECT.shortfalls(cards, ascend.request(ascend.pod(P, [1])))[0]
    assert (short.reason, short.wanted, short.free) == (Reason.MEMORY, 21527, 12288)
    assert "15383 MiB free" in short.detail
    soft = ascend.holder(P, f"U0,{P},6144,0:;", annotations={"huawei.com/vnpu-mode": "hami-core"})
    held = ascend.cards_of(ascend.node(P, soft=True), soft)
    assert DIALECT.shortfalls(held, ascend.request(ascend.pod(P, [1], soft=True)))[0].free == 15383


def test_no_smaller_memory_is_advised_to_who_wants_several_chips():
    cards = ascend.cards_of(ascend.node(P, ["U0", "U1"]), ascend.holder(P, f"U0,{P},6144,0:;"))
    shorts = DIALECT.shortfalls(cards, ascend.request(ascend.pod(P, [2])))
    assert [(one.reason, one.wanted, one.free) for one in shorts] == [
        (Reason.CARD_COUNT, 2, 1),
        (Reason.EXCLUSIVE, 0, 0),
    ]


def test_the_device_lists_of_a_pod_are_kept():
    cards = ascend.cards_of(ascend.node(P, ["U0", "U1"]))
    only = ascend.pod(P, [1], annotations={"hami.io/use-Ascend310P-uuid": "U1"})
    assert ascend.text(ascend.placed(cards, only), P) == "U1,Ascend310P,21527,0:;"
    none = ascend.pod(P, [1], annotations={"hami.io/no-use-Ascend310P-uuid": "U0,U1"})
    assert reasons(cards, none) == {"U0": Reason.UUID, "U1": Reason.UUID}


def test_several_chips_come_from_the_ring_with_most_of_them():
    held = ascend.holder(B3, f"D0,{B3},65536,0:;")
    cards = ascend.cards_of(ascend.node(B3, EIGHT), held)
    answer = ascend.placed(cards, ascend.pod(B3, [4]))
    assert answer is not None
    assert [entry.uuid for entry in answer.assignment.entries] == ["D4", "D5", "D6", "D7"]
    assert answer.score == pytest.approx(10.0)


def test_chips_of_two_rings_score_less_than_those_of_one():
    cards = ascend.cards_of(ascend.node(B3, EIGHT))
    answer = ascend.placed(cards, ascend.pod(B3, [8]))
    assert answer is not None
    assert answer.score == pytest.approx(5.0)


def test_a_ring_that_is_no_number_is_no_ring():
    for value in ("0", None, True):
        each: dict[str, Any] = {uuid: {"custominfo": {"NetworkID": value}} for uuid in EIGHT}
        cards = ascend.cards_of(ascend.node(B3, EIGHT, **each))
        answer = ascend.placed(cards, ascend.pod(B3, [2]))
        assert answer is not None
        assert answer.score == 0.0


def test_soft_and_template_slices_never_share_a_chip():
    soft = ascend.node(P, soft=True)
    template = ascend.holder(P, f"U0,{P},3072,0:;")
    asked = ascend.pod(P, [1, 4096, 10], soft=True)
    assert reasons(ascend.cards_of(soft, template), asked) == {"U0": Reason.MODE}
    assert reasons(ascend.cards_of(ascend.node(P)), asked) == {"U0": Reason.MODE}
    assert reasons(ascend.cards_of(soft), ascend.pod(P, [1, 3072])) == {"U0": Reason.MODE}
    holder = ascend.holder(P, f"U0,{P},3072,10:;", annotations={"huawei.com/vnpu-mode": "hami-core"})
    assert reasons(ascend.cards_of(ascend.node(P), holder), ascend.pod(P, [1, 3072])) == {"U0": Reason.MODE}


def test_who_meets_nodes_that_slice_otherwise_is_told_the_annotation():
    (short,) = DIALECT.shortfalls(ascend.cards_of(ascend.node(P, soft=True)), ascend.request(ascend.pod(P, [1, 3072])))
    assert (
        short.detail
        == "the node slices softly; write annotation huawei.com/vnpu-mode: hami-core, or ask for whole chips"
    )
    soft = ascend.request(ascend.pod(P, [1, 4096, 10], soft=True))
    (short,) = DIALECT.shortfalls(ascend.cards_of(ascend.node(P)), soft)
    assert short.detail == "the node has no soft slicing; leave out annotation huawei.com/vnpu-mode, and cores"


@pytest.mark.parametrize("cores", [40, None], ids=["cores", "no cores"])
def test_a_soft_chip_of_which_all_cores_are_promised_has_no_room(cores):
    cards = ascend.cards_of(ascend.node(P, soft=True))
    for _ in range(2):
        answer = ascend.placed(cards, ascend.pod(P, [1, 4096, 50], soft=True))
        assert answer is not None
        cards = DIALECT.take(cards, answer.assignment)
    assert cards[0].used_memory < cards[0].fixed.memory
    assert ascend.placed(cards, ascend.pod(P, [1, 4096, *filter(None, [cores])], soft=True)) is None
    assert DIALECT.room(cards).free == []


def soft_after(cards, *cores):
    """*cards* after soft shares of 1024 MiB with *cores*, each of which is placed."""
    for one in cores:
        answer = ascend.placed(cards, ascend.pod(P, [1, 1024, one], soft=True))
        assert answer is not None
        cards = DIALECT.take(cards, answer.assignment)
    return cards


def test_a_chip_promises_more_than_its_cores_if_its_register_says_so():
    cards = soft_after(ascend.cards_of(ascend.node(P, soft=True, U0={"devcore": 150})), 30, 30, 30, 20)
    assert (cards[0].used_cores, DIALECT.overcommitted(cards)) == (110, ())
    assert reasons(cards, ascend.pod(P, [1, 1024, 50], soft=True)) == {"U0": Reason.CORES}
    assert ascend.cards_of(ascend.node(P, soft=True, U0={"devcore": 8}))[0].fixed.cores == 100


@pytest.mark.parametrize(
    ("first", "then", "why", "free"),
    [
        (100, 0, Reason.PROMISED, 0),
        (100, 10, Reason.PROMISED, 0),
        (100, 100, Reason.EXCLUSIVE, 99),
        (10, 100, Reason.EXCLUSIVE, 99),
        (0, 100, Reason.EXCLUSIVE, 99),
    ],
)
def test_who_asks_for_all_cores_is_alone_even_where_more_are_promised(first, then, why, free):
    asked = ascend.request(ascend.pod(P, [1, 1024, then], soft=True))
    cards = soft_after(ascend.cards_of(ascend.node(P, soft=True, U0={"devcore": 250})), first)
    (short,) = DIALECT.shortfalls(cards, asked)
    assert (short.reason, short.free) == (why, free)


def test_a_cordoned_chip_takes_nothing_new_and_what_is_cordoned_in_vain_is_told():
    found = ascend.node(P, ["U0", "U1"])
    offer = DIALECT.offer(replace(found, annotations={**found.annotations, CORDON: "U1, U9"}), TABLES)
    assert isinstance(offer, Offer)
    assert reasons(offer.cards, ascend.pod(P, [2]))["U1"] is Reason.CORDONED
    (told,) = offer.complaints
    assert told.problem.startswith("no card of the node has the UUID 'U9'")


def test_a_node_that_slices_by_enpu_takes_nothing_new_unless_it_is_soft_too():
    found = ascend.node(P)
    enpu = replace(found, annotations={**found.annotations, "hami.io/enpu": "true"})
    closed = DIALECT.offer(enpu, TABLES)
    assert isinstance(closed, Complaint)
    assert closed.problem.endswith(closed.remedy)
    assert "template or hami-core" in closed.remedy
    both = replace(enpu, annotations={**enpu.annotations, "hami-vnpu-core": "true"})
    assert ascend.cards_of(both)[0].fixed.kind.mode == "soft"
    tables = Tables(sections=(AscendTable(mode=keys.ENPU),))
    assert isinstance(DIALECT.offer(found, tables), Complaint)
    own = replace(found, annotations={**found.annotations, "hami.io/enpu": "false"})
    assert isinstance(DIALECT.offer(own, tables), Offer)


def test_a_whole_chip_may_be_had_on_a_soft_node_while_it_is_idle():
    cards = ascend.cards_of(ascend.node(P, soft=True))
    answer = ascend.placed(cards, ascend.pod(P, [1]))
    assert ascend.text(answer, P) == "U0,Ascend310P,21527,0:;"
    assert ascend.notes(answer)["huawei.com/Ascend310P"] == '[{"UUID":"U0"}]'


def test_the_configuration_answers_for_a_node_that_does_not_say_whether_it_is_soft():
    found = ascend.node(P)
    silent = replace(found, annotations={k: v for k, v in found.annotations.items() if k != "hami-vnpu-core"})
    tables = Tables(sections=(AscendTable(mode=keys.SOFT),))
    assert ascend.cards_of(silent, tables=tables)[0].fixed.kind.mode == "soft"
    assert ascend.cards_of(found, tables=tables)[0].fixed.kind.mode == "template"


# ---------------------------------------------------------------------- several containers


def test_two_containers_of_a_pod_get_two_chips():
    cards = ascend.cards_of(ascend.node(P, ["U0", "U1"]))
    assert ascend.text(ascend.placed(cards, ascend.pod(P, [1, 3072], [1, 3072])), P) == (
        "U0,Ascend310P,3072,0:;U1,Ascend310P,3072,0:;"
    )
    one = ascend.cards_of(ascend.node(P, ["U0"]))
    assert reasons(one, ascend.pod(P, [1, 3072], [1, 3072])) == {"U0": Reason.CONTAINERS}


def with_init(init, *containers):
    found = ascend.pod(P, *containers)
    return found._replace(init_containers=(ascend.container(P, init, "i"),))


def test_an_init_container_that_asks_otherwise_gets_a_chip_of_its_own():
    cards = ascend.cards_of(ascend.node(P, ["U0", "U1"]))
    answer = ascend.placed(cards, with_init([1, 6144], [1, 3072]))
    assert ascend.text(answer, P) == "U1,Ascend310P,6144,0:;U0,Ascend310P,3072,0:;"


def test_containers_that_ask_nothing_have_empty_segments():
    cards = ascend.cards_of(ascend.node(P))
    assert ascend.text(ascend.placed(cards, ascend.pod(P, [], [1, 3072], [])), P) == ";U0,Ascend310P,3072,0:;;"


# ---------------------------------------------------------------------- what is held


def test_every_segment_of_a_pod_is_counted():
    cards = ascend.cards_of(ascend.node(P, ["U0", "U1"]), ascend.holder(P, f"U0,{P},3072,0:;U1,{P},6144,0:;"))
    assert ascend.usage(cards) == {"U0": [1, 3072, 0], "U1": [1, 6144, 0]}


@pytest.mark.parametrize(
    ("written", "counted"),
    [
        ([{"UUID": "U0", "temp": "vir02"}], (2, 2)),
        ([{"UUID": "U0", "temp": "vir99"}], (4, 4)),
        ([{"UUID": "U1", "temp": "vir02"}], (4, 4)),
        ([7], (4, 4)),
        (7, (4, 4)),
    ],
    ids=["known", "unknown", "of another chip", "no object", "no list"],
)
def test_a_slice_stays_as_it_is_when_its_template_leaves_the_configuration(written, counted):
    chip = ascend.chip(P)
    less = replace(chip, templates=tuple(one for one in chip.templates if one.name != "vir02"))
    tables = Tables(sections=(AscendTable(chips=(less,)),))
    found = ascend.holder(P, f"U0,{P},6144,0:;", annotations={f"huawei.com/{P}": json.dumps(written)})
    (card,) = ascend.cards_of(ascend.node(P, ["U0"]), found, tables=tables)
    assert card.counted == counted


@pytest.mark.parametrize(
    ("sidecar", "text", "expected"),
    [
        (False, f"U0,{P},6144,0:;U0,{P},3072,0:;", [1, 6144, 0]),
        (True, f"U0,{P},6144,0:;U0,{P},3072,0:;", [2, 9216, 0]),
        (False, f"U0,{P},6144,0:;", [1, 6144, 0]),
    ],
    ids=["init", "sidecar", "volcano"],
)
def test_init_containers_count_by_their_peak(sidecar, text, expected):
    found = ascend.holder(P, text)
    found = found._replace(
        init_containers=(ascend.container(P, [1, 6144], "i", sidecar=sidecar),),
        containers=(ascend.container(P, [1, 3072]),),
    )
    assert ascend.usage(ascend.cards_of(ascend.node(P), found)) == {"U0": expected}


def test_an_init_container_that_has_ended_holds_nothing():
    found = ascend.holder(P, f"U0,{P},6144,0:;U1,{P},3072,0:;", init_done=True)
    found = found._replace(init_containers=(ascend.container(P, [1, 6144]),), containers=(ascend.container(P, [1]),))
    held = ascend.cards_of(ascend.node(P, ["U0", "U1"]), found)
    assert ascend.usage(held) == {"U0": [0, 0, 0], "U1": [1, 3072, 0]}


def test_cores_of_soft_shares_are_metered_of_each_chip():
    cards = ascend.cards_of(ascend.node(P, ["U0", "U1"], soft=True))
    answer = ascend.placed(cards, ascend.pod(P, [2, 4096, 60], soft=True))
    assert answer is not None
    resource = ascend.chip(P).named.cores
    assert DIALECT.metered(answer.assignment, TABLES)[resource] == 120
    assert DIALECT.sold(cards, TABLES)[resource] == 200
    assert DIALECT.sold(ascend.cards_of(ascend.node(P)), TABLES)[resource] == 0


def test_an_entry_that_cannot_be_read_and_names_no_chip_closes_the_node():
    held = DIALECT.held(ascend.holder(P, "X9,Ascend310P:;"), ascend.cards_of(ascend.node(P)), TABLES)
    assert held is not None
    assert "cannot be read" in held.closes


@pytest.mark.parametrize("text", ["x", "U0", "U0:;", ",,0,0:;"])
def test_an_assignment_without_a_chip_that_could_be_read_closes_the_node(text):
    ledger = Ledger(standard_catalog(), TABLES, Settings())
    ledger.set_node(ascend.node(P))
    ledger.count(ascend.holder(P, text)._replace(containers=(ascend.container(P, [1]),)))
    closed = ledger.states[NodeName("node-a")].closed
    assert "nothing says which cards it uses" in closed.get(DIALECT.name, "")


def test_an_assignment_without_a_chip_closes_the_node_beside_one_of_another_type():
    found = ascend.holder(P, f"U0,{P},3072,0:;", annotations={f"hami.io/{B3}-devices-allocated": "x"})
    found = found._replace(containers=(ascend.container(P, [1]), ascend.container(B3, [1])))
    held = DIALECT.held(found, ascend.cards_of(ascend.node(P)), TABLES)
    assert held is not None
    assert "nothing says which chips it uses" in held.closes


@pytest.mark.parametrize(("number", "problem"), [(128, ""), (129, "no more than 128 devices of one pod are read")])
def test_an_assignment_of_more_chips_than_a_pod_has_closes_the_node_unread(number, problem):
    held = DIALECT.held(ascend.holder(P, f"U0,{P},1,0:" * number + ";"), ascend.cards_of(ascend.node(P)), TABLES)
    assert held is not None
    assert held.closes.endswith(problem)
    assert bool(held.closes) is bool(problem)


def test_a_device_that_the_node_lost_is_kept_for_its_return():
    found = ascend.holder(P, f"U1,{P},3072,0:;")
    assert ascend.usage(ascend.cards_of(ascend.node(P, ["U0"]), found)) == {"U0": [0, 0, 0]}
    assert ascend.usage(ascend.cards_of(ascend.node(P, ["U0", "U1"]), found))["U1"] == [1, 3072, 0]


def test_what_huaweis_own_plugin_writes_under_the_same_name_is_not_read():
    found = ascend.holder(P, f"U0,{P},3072,0:;")
    static = found._replace(annotations={"huawei.com/Ascend310P": "Ascend310P-0,Ascend310P-1"})
    assert DIALECT.held(static, ascend.cards_of(ascend.node(P)), TABLES) is None
    assert DIALECT.in_flight(static, TABLES) is None


def test_a_chip_over_its_total_is_told_in_numbers():
    held = [ascend.holder(P, f"U0,{P},21527,0:;", name=name) for name in ("a", "b")]
    found = DIALECT.overcommitted(ascend.cards_of(ascend.node(P), *held))
    assert "U0 holds 43054 MiB of 21527 MiB" in found
    assert "U0 holds 14 AI CPUs of 7" in found


def test_soft_slices_are_told_by_memory_and_cores():
    cards = ascend.cards_of(ascend.node(P, soft=True))
    answer = ascend.placed(cards, ascend.pod(P, [1, 4096], soft=True))
    assert json.loads(ascend.notes(answer)["huawei.com/Ascend310P"]) == [{"UUID": "U0", "memory": 4096}]
    assert answer is not None
    assert [one[:2] for one in DIALECT.describe(answer.assignment, cards)] == [("U0", "4096 MiB")]


def test_without_a_policy_the_first_chips_are_taken():
    held = ascend.holder(P, f"U1,{P},3072,0:;")
    cards = ascend.cards_of(ascend.node(P, ["U0", "U1"]), held)
    for policy, uuid in ((Policy.INDEX, "U0"), (Policy.BINPACK, "U1"), (Policy.SPREAD, "U0")):
        assert ascend.text(ascend.placed(cards, ascend.pod(P, [1, 1]), policy), P) == f"{uuid},Ascend310P,3072,0:;"
