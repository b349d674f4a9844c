"""docs/operators tells every rule of admission, and what it tells is so."""

import pytest

from tests.support.pages.rules import MESSAGES, SILENT, TABLE, Rule, codes_in_the_code, read_rules, table, verdict_of

RULES = read_rules()


def test_every_code_is_told_and_no_other():
    assert codes_in_the_code() == {rule.code for rule in RULES}


def test_the_table_is_what_the_rules_say():
    assert TABLE.read_text(encoding="utf-8") == table(RULES), "run scripts/rules"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_an_example_is_denied_exactly_where_its_rule_says_so(rule: Rule):
    verdict = verdict_of(rule)
    assert verdict.allowed is (rule.done != "denied")
    assert verdict.codes == (() if rule.code in SILENT else (rule.code,))


def test_there_is_an_output_for_every_rule():
    text = MESSAGES.read_text(encoding="utf-8")
    for rule in RULES:
        assert f"## {rule.code} ({rule.done}): {rule.rule}" in text, "run scripts/rules"
