"""Common parts of objects of several kinds: identity, times, owners, and selectors of nodes and labels.

Source: Kubernetes API reference, meta/v1 ObjectMeta and LabelSelector, core/v1 NodeSelector.
"""

from datetime import datetime
from typing import Annotated

import msgspec

from core.model import Alternatives, Requirement

Time = Annotated[datetime, msgspec.Meta(tz=True)]


class Presence(msgspec.Struct, frozen=True, gc=False):
    """An object whose content is not read."""


class Owner(msgspec.Struct, frozen=True, gc=False):
    """An owner reference."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class ObjectMeta(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The metadata of an object of any kind; a field that an object lacks costs nothing."""

    name: str = ""
    generate_name: str | None = ""
    namespace: str | None = ""
    uid: str | None = ""
    resource_version: str | None = ""
    generation: int | None = 0
    creation_timestamp: Time | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    finalizers: tuple[str, ...] | None = None
    owner_references: tuple[Owner, ...] | None = None

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.namespace or ''}/{self.name}"

    def annotation(self, key: str) -> str:
        """Return the annotation, "" if it is absent."""
        return (self.annotations or {}).get(key, "")


class NamedMeta(ObjectMeta, frozen=True, gc=False, kw_only=True, rename="camel"):
    """The metadata of an object that cannot be read without its name."""

    name: str


class PartialObjectMetadata(msgspec.Struct, frozen=True, gc=False):
    """An object of which only the metadata is read."""

    metadata: ObjectMeta = ObjectMeta()


class HeadMeta(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The identity of an object whose other fields are unreadable; namespace is "" for cluster-scoped kinds."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class Head(msgspec.Struct, frozen=True, gc=False):
    """What is read of an object whose other fields are unreadable."""

    metadata: HeadMeta


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
