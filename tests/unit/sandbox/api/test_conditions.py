from pathlib import Path
from typing import Any

import pytest

from sandbox.api.webhooks import ConditionError, met

SHIPPED = Path(__file__).parents[4] / "deploy" / "base" / "admission.yaml"


def judged(*expressions, **variables):
    given = {"object": {"metadata": {"name": "p"}}, "oldObject": None, "request": {}, **variables}
    return met([{"name": f"c{i}", "expression": text} for i, text in enumerate(expressions)], given)


@pytest.mark.parametrize(
    ("expressions", "expected"),
    [
        pytest.param((), True, id="none"),
        pytest.param(("true", "object.metadata.name == 'p'"), True, id="all-true"),
        pytest.param(("object.spec.x == 1", "false"), False, id="a-false-one-decides"),
        pytest.param(("object.?spec.x.orValue(1) == 1",), True, id="optional"),
    ],
)
def test_conditions_are_met_when_all_are_true(expressions, expected):
    assert judged(*expressions) is expected


def test_what_cannot_be_evaluated_is_told_by_name():
    with pytest.raises(ConditionError, match=r'condition c1: .*"spec"'):
        judged("true", "object.spec.x == 1")


def test_the_authorizer_is_asked_what_a_service_account_may_do():
    what = ".group('').resource('pods').subresource('binding').check('create').allowed()"
    condition = {"name": "c", "expression": f"authorizer.serviceAccount('ns', 'other'){what}"}
    given: dict[str, Any] = {"object": {}, "oldObject": None, "request": {}}
    asked = {"namespace": "ns", "name": "other", "group": "", "resource": "pods", "subresource": "binding"}
    assert met([condition], given, lambda found: found == {**asked, "check": "create"})
    assert not met([condition], given, lambda found: found == {**asked, "check": "get"})
    assert not met([condition], given)


@pytest.mark.parametrize("text", ["object.", "thing == 1", "'a'", "object.metadata.name", "'a' == 1"])
def test_what_says_neither_yes_nor_no_is_no_expression(text):
    with pytest.raises(ConditionError):
        judged(text)
