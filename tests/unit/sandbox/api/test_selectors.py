"""Selectors select what the real server's select."""

import pytest

from sandbox.api.errors import StatusError
from sandbox.api.selectors import Selection, label_matcher, read_fields, read_labels

POD = {
    "metadata": {"name": "p", "namespace": "ns", "labels": {"app": "web", "tier": "front"}},
    "spec": {"nodeName": "n1"},
    "status": {"phase": "Running"},
}


@pytest.mark.parametrize(
    ("text", "selected"),
    [
        ("app=web", True),
        ("app==web,tier!=back", True),
        ("app!=web", False),
        ("app in (db, web),tier", True),
        ("app notin (web)", False),
        ("!missing", True),
        ("missing", False),
        ("missing notin (a)", True),
        ("missing!=a", True),
    ],
)
def test_a_label_selector_selects(text, selected):
    assert Selection(labels=read_labels(text)).matches(POD) is selected


@pytest.mark.parametrize(
    ("text", "selected"),
    [
        ("spec.nodeName=n1", True),
        ("spec.nodeName!=", True),
        ("status.phase!=Running", False),
        ("metadata.name=p,metadata.namespace=ns", True),
        ("spec.hostNetwork=false", True),
    ],
)
def test_a_field_selector_selects(text, selected):
    assert Selection(fields=read_fields(text, "pods")).matches(POD) is selected


def test_a_field_that_the_resource_does_not_select_by_is_refused():
    with pytest.raises(StatusError, match=r"field label not supported: spec\.hostname"):
        read_fields("spec.hostname=a", "pods")


@pytest.mark.parametrize("text", ["a b", "a in b", "(x)", "a>1", "a<1"])
def test_a_text_that_is_no_selector_is_refused(text):
    with pytest.raises(StatusError):
        read_labels(text)


def test_a_selector_object_needs_all_its_terms():
    matches = label_matcher(
        {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}
    )
    assert matches({"app": "web"})
    assert not matches({"app": "web", "x": ""})
    assert label_matcher(None)({})
