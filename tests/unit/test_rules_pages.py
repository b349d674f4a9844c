"""docs/operators tells every rule of admission, and what it tells is so."""

import re

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


# What the policies of the API server refuse as the webhook does, for when the webhook is away.
_BOTH = {"CS301", "CS302", "CS305", "CS315"}


def test_every_code_of_a_policy_is_told_and_is_the_webhooks_only_where_it_says_the_same():
    root = TABLE.parents[2]
    in_policies = set(re.findall(r"\bCS\d{3}\b", (root / "deploy/base/policy.yaml").read_text(encoding="utf-8")))
    told = (root / "docs/operators/security.md").read_text(encoding="utf-8")
    assert in_policies
    assert {code for code in in_policies if code not in told} == set()
    assert in_policies & codes_in_the_code() == _BOTH
