"""Which cards a pod accepts."""

import pytest

from core.errors import InvalidRequestError
from core.port.refusals import Reason
from core.selection import ANY_CARD, CardSelection, avoided, decode_indices, decode_items, decode_types, type_words

A100 = "NVIDIA-NVIDIA A100-SXM4-80GB"


@pytest.mark.parametrize(
    ("item", "card", "matches"),
    [
        pytest.param("A100", A100, True, id="one word"),
        pytest.param("a100-sxm4", A100, True, id="two words, other case"),
        pytest.param("A100 SXM4", A100, True, id="a blank parts as a dash does"),
        pytest.param("A100_SXM4_80GB", A100, True, id="an underscore too"),
        pytest.param("A10", A100, False, id="never the beginning of a word"),
        pytest.param("100", A100, False, id="never the end of a word"),
        pytest.param("A100-80GB", A100, False, id="words must stand in a row"),
        pytest.param("A10*", A100, True, id="a star makes the last word a beginning"),
        pytest.param("A100-SX*", A100, True, id="a star after two words"),
        pytest.param("SXM4-A*", A100, False, id="a star keeps the order"),
        pytest.param("*", A100, True, id="a star alone is every type"),
        pytest.param("NVIDIA", A100, True, id="the maker is every type"),
        pytest.param("L4", "NVIDIA-NVIDIA L40", False, id="L4 is not L40"),
        pytest.param("V10", "NVIDIA-Tesla V100-SXM2-32GB", False, id="V10 is not V100"),
    ],
)
def test_types_are_matched_by_whole_words(item, card, matches):
    selection = CardSelection(use_types=decode_types(item, "f"))
    assert selection.accepts_type(type_words(card)) is matches


def test_items_are_trimmed_and_empty_ones_dropped():
    assert decode_items(" GPU-a ,, GPU-b,", "f") == {"GPU-a", "GPU-b"}
    assert decode_types("A100 , ,", "f") == decode_types("A100", "f")


@pytest.mark.parametrize("text", ["", " , ", "-", "_ -"])
def test_a_blank_list_asks_for_nothing(text):
    assert decode_types(text, "f") == frozenset()


def test_the_refusal_wins():
    both = decode_types("A100", "f")
    assert not CardSelection(use_types=both, no_use_types=both).accepts_type(type_words(A100))
    uuids = frozenset({"GPU-a"})
    assert CardSelection(use_uuids=uuids, no_use_uuids=uuids).accepts((), "GPU-a", 0) is Reason.UUID


def test_each_part_refuses_by_its_own_name():
    words = type_words(A100)
    assert ANY_CARD.accepts(words, "GPU-a", 0) is None
    assert CardSelection(use_uuids=frozenset({"GPU-b"})).accepts(words, "GPU-a", 0) is Reason.UUID
    assert CardSelection(indices=frozenset({0, 2})).accepts(words, "GPU-a", 1) is Reason.INDEX
    assert CardSelection(avoided_indices=frozenset({1})).accepts(words, "GPU-a", 1) is Reason.INDEX
    assert CardSelection(use_types=decode_types("T4", "f")).accepts(words, "GPU-a", 1) is Reason.TYPE


def test_a_card_without_a_name_may_be_one_of_those_refused():
    assert CardSelection(no_use_uuids=frozenset({"GPU-b"})).accepts((), "", 0) is Reason.UUID


def test_positions_are_whole_numbers_each_named_once():
    assert decode_indices("0, 2", "f") == {0, 2}
    assert decode_indices(" , ", "f") == frozenset()
    for text in ("a", "-1", "1.5", "0,0", "00000", "0,00", "٣"):
        with pytest.raises(InvalidRequestError):
            decode_indices(text, "f")


def test_cards_to_avoid_are_uuids_or_positions():
    assert avoided("GPU-a, 3", "f") == (frozenset({"GPU-a"}), frozenset({3}))


def test_a_list_longer_than_an_annotation_is_refused_unread():
    for decode in (decode_items, decode_types, decode_indices, avoided):
        with pytest.raises(InvalidRequestError):
            decode("1," * 10_000, "f")


@pytest.mark.parametrize("text", ["12345", "GPU-a,99999", "\uff11\uff12", "\u0663", "\u00b2", "0,10000"])
def test_a_number_that_is_no_position_is_refused_and_not_passed_over(text):
    with pytest.raises(
        InvalidRequestError, match="write positions of cards from 0 to 9999 such as '0,2', or their ids"
    ):
        avoided(text, "annotation cardshare.io/avoid-cards")
