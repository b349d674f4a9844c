"""Quantities as Kubernetes means them, or refused with the text; never expensive."""

import time

import pytest

from core.errors import InvalidRequestError
from core.units import (
    MAX_AMOUNT,
    counted,
    parse_amount,
    parse_count,
    parse_int64,
    parse_memory,
    parse_milli,
    with_article,
)


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("0", 0),
        ("-0", 0),
        ("+1", 1),
        ("1e3", 1000),
        ("1E3", 1000),
        ("1E", 10**18),
        ("1k", 1000),
        ("1Ki", 1024),
        ("0.5Gi", 512 * 2**20),
        ("1500m", 2),
        ("1e-3", 1),
        ("1n", 1),
        (".5", 1),
        ("5.", 5),
        ("9223372036854775807", MAX_AMOUNT),
    ],
)
def test_an_amount_is_read_as_kubernetes_means_it_rounded_up(text, amount):
    assert parse_amount(text, "memory") == amount


@pytest.mark.parametrize(("text", "milli"), [("1", 1000), ("250m", 250), ("0.1", 100), ("1u", 1), ("2k", 2_000_000)])
def test_cpu_is_read_in_thousandths(text, milli):
    assert parse_milli(text, "cpu") == milli


NO_COUNTS = (
    *("", " 1", "1 ", "-1", "1.5", "500m", "1e-3", "1K", "inf", "nan", "0x10", "1_000", "1e", "e5", "."),
    *("\u0663", "\uff11\uff12", "\u00b2", "1ki", "1e1000000", "1e308", "100e306", "9" * 5000, str(2**63)),
    *("1Ei1", "--1", "\x00"),
)


@pytest.mark.parametrize("text", NO_COUNTS)
def test_what_is_no_whole_count_is_refused_with_the_field_and_the_text_and_costs_nothing(text):
    costs_s = []
    for _ in range(5):  # the collector may run in one of them
        began_s = time.thread_time()
        with pytest.raises(InvalidRequestError) as refused:
            parse_count(text, "limit volcano.sh/vgpu-number")
        costs_s.append(time.thread_time() - began_s)
        assert refused.value.field == "limit volcano.sh/vgpu-number"
        assert len(str(refused.value)) < 250
    assert min(costs_s) < 0.02


def test_a_count_above_its_maximum_is_refused():
    assert parse_count("3Ki", "f") == 3072
    assert parse_count("1e3", "f") == 1000
    with pytest.raises(InvalidRequestError, match="no larger than 2147483647"):
        parse_count("3Gi", "f")


@pytest.mark.parametrize("text", ["9223372036854775807", "1E", "9223372036854776", "1e1000000"])
def test_too_much_cpu_is_told_with_the_most_that_can_be_written(text):
    with pytest.raises(InvalidRequestError, match=r"no larger than 9223372036854775$"):
        parse_milli(text, "cpu")
    assert parse_milli("9223372036854775", "cpu") == 9223372036854775000


def test_one_is_told_as_one():
    assert [counted(count, "cards") for count in (0, 1, 2)] == ["0 cards", "1 card", "2 cards"]
    assert [with_article(word) for word in ("Ascend910B4", "Tesla T4")] == ["an Ascend910B4", "a Tesla T4"]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("10", 10),
        ("+10", 10),
        ("-0", 0),
        ("-10", -10),
        ("0" * 5000 + "7", 7),
        (str(2**63 - 1), 2**63 - 1),
        (str(-(2**63)), -(2**63)),
        (str(2**63), None),
        (str(-(2**63) - 1), None),
        ("9" * 5000, None),
        ("1_0", None),
        (" 10", None),
        ("10\n", None),
        ("++1", None),
        ("0x10", None),
        ("1e1", None),
        ("\uff11\uff10", None),
        ("\u0663", None),
        ("", None),
        ("-", None),
    ],
)
def test_numbers_are_read_as_gos_parse_int_reads_them(text, number):
    assert parse_int64(text) == number


@pytest.mark.parametrize(
    ("text", "factor", "told"),
    [
        ("4Gi", 1, "MiB already; write a whole number such as '4096'"),
        ("5000000Ki", 10, "10 MiB already; write a whole number such as '489'"),
        ("8Ei", 1, "MiB already; write a whole number such as '8192'"),
        ("-1Gi", 1, "MiB already; write a whole number such as '8192'"),
        ("i", 1, "MiB already; write a whole number such as '8192'"),
    ],
)
def test_memory_with_a_suffix_is_told_in_units(text, factor, told):
    with pytest.raises(InvalidRequestError) as caught:
        parse_memory(text, "limit x", 1000, factor)
    assert caught.value.remedy == f"the unit is {told}"


def test_memory_without_a_suffix_is_read_as_a_number():
    assert parse_memory("12", "limit x") == 12
    with pytest.raises(InvalidRequestError, match="no larger than 10"):
        parse_memory("12", "limit x", 10)
