"""Selectors of nodes and of labels, as pods, volumes and storage have them, to requirements.

Source: Kubernetes API reference, core/v1 NodeSelector and meta/v1 LabelSelector.
"""

import msgspec

from core.model import Alternatives, Requirement


class _Expression(msgspec.Struct, frozen=True, gc=False):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class Term(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A NodeSelectorTerm."""

    match_expressions: tuple[_Expression, ...] | None = None
    match_fields: tuple[_Expression, ...] | None = None


class Terms(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A NodeSelector."""

    node_selector_terms: tuple[Term, ...] | None = None


class Selector(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A LabelSelector."""

    match_labels: dict[str, str] | None = None
    match_expressions: tuple[_Expression, ...] | None = None


def alternatives(required: Terms) -> Alternatives:
    """The terms of *required* that match any node at all: one without expressions and fields matches none."""
    return tuple(found for term in required.node_selector_terms or () if (found := requirements(term)))


def requirements(term: Term) -> tuple[Requirement, ...]:
    """All that a node is to meet for *term*."""
    return tuple(
        Requirement(key=e.key, operator=e.operator, values=e.values or (), of_field=of_field)
        for of_field, found in ((False, term.match_expressions), (True, term.match_fields))
        for e in found or ()
    )


def selector_of(found: Selector | None) -> tuple[Requirement, ...] | None:
    """What labels must meet all of, sorted; None without a selector."""
    if found is None:
        return None
    labels = sorted((found.match_labels or {}).items())
    return (
        *(Requirement(key=key, operator="In", values=(value,)) for key, value in labels),
        *(Requirement(key=e.key, operator=e.operator, values=e.values or ()) for e in found.match_expressions or ()),
    )
