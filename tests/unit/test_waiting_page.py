"""docs/operators/waiting.md has every cause as the code has it."""

import re
from pathlib import Path

from core.waiting import Cause, Wait, code_in, is_ours

PAGE = Path(__file__).parents[2] / "docs/operators/waiting.md"


def test_the_table_is_what_the_code_says():
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| `CS")]
    told = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines]
    rows = [cause.value for cause in Cause]
    assert told == [(f"`{row.code}`", f"`{row.reason}`", row.when, row.remedy) for row in rows]


def test_codes_and_reasons_are_told_apart_and_have_the_form_that_kubernetes_wants():
    assert len({cause.code for cause in Cause}) == len({cause.reason for cause in Cause}) == len(Cause)
    assert all(re.fullmatch(r"CS5\d\d", cause.code) for cause in Cause)
    assert all(re.fullmatch(r"([A-Z][a-z]+)+", cause.reason) for cause in Cause)
    assert sorted(cause.code for cause in Cause) == [cause.code for cause in Cause]


def test_one_cause_alone_has_the_reason_that_autoscalers_buy_on():
    assert [cause for cause in Cause if cause.reason == "Unschedulable"] == [Cause.UNSCHEDULABLE]


def test_the_code_of_a_message_is_found_again():
    assert code_in(Wait(Cause.NODE_RESTS, "why").message) == Cause.NODE_RESTS.code
    assert [code_in(text) for text in ("", "CS", "CS599 why", "0/4 nodes are available")] == ["", "", "", ""]
    assert (is_ours("NodeRests"), is_ours("SchedulingGated")) == (True, False)
