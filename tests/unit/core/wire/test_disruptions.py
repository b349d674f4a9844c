"""A PodDisruptionBudget says whom it speaks of and how many of them may go; one that says nothing lets nobody go."""

import json

import pytest

from core.errors import InvalidRequestError
from core.model import Requirement
from core.wire.policies import DisruptionBudget, decode_disruption_budget


def read(spec=None, status=None):
    found = {"metadata": {"name": "b", "namespace": "d", "uid": "u"}, "spec": spec, "status": status}
    return decode_disruption_budget(json.dumps(found).encode())


def test_whom_it_speaks_of_and_how_many_may_go():
    status = {"disruptionsAllowed": 2, "disruptedPods": {"p": "2026-01-01T00:00:00Z"}, "currentHealthy": 3}
    found = read({"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}, status)
    selector = (Requirement(key="app", operator="In", values=("x",)),)
    assert found == DisruptionBudget("d", "b", selector, 2, frozenset({"p"}))
    assert read({"unhealthyPodEvictionPolicy": "AlwaysAllow"}).frees_unready
    assert read({"selector": {}}) == DisruptionBudget("d", "b", ())
    assert read({}) == read() == DisruptionBudget("d", "b", None)


@pytest.mark.parametrize(("desired", "current", "frees"), [(2, 2, True), (2, 1, False), (0, 1, False)])
def test_one_with_as_many_healthy_pods_as_it_needs_frees_those_that_are_not_ready(desired, current, frees):
    status = {"desiredHealthy": desired, "currentHealthy": current}
    assert read({"unhealthyPodEvictionPolicy": "IfHealthyBudget"}, status).frees_unready is frees


@pytest.mark.parametrize("text", [b"[]", b'{"status": {"disruptionsAllowed": "many"}}', b"{"])
def test_what_is_none_is_refused(text):
    with pytest.raises(InvalidRequestError):
        decode_disruption_budget(text)
