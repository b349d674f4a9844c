"""Selectors of nodes and labels in pods, volumes and storage, to requirements.

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
    """Return the terms of *required*, except terms without expressions and fields, which match no node."""
    return tuple(found for term in required.node_selector_terms or () if (found := requirements(term)))


def requirements(term: Term) -> tuple[Requirement, ...]:
    """Return the requirements of *term* on a node."""
    return tuple(
        Requirement(key=e.key, operator=e.operator, values=e.values or (), of_field=of_field)
        for of_field, found in ((False, term.match_expressions), (True, term.match_fields))
        for e in found or ()
    )


def selector_of(found: Selector | None) -> tuple[Requirement, ...] | None:
    """Return the sorted requirements on labels, which must all be met; None without a selector."""
    if found is None:
        return None
    labels = sorted((found.match_labels or {}).items())
    return (
        *(Requirement(key=key, operator="In", values=(value,)) for key, value in labels),
        *(Requirement(key=e.key, operator=e.operator, values=e.values or ()) for e in found.match_expressions or ()),
    )
