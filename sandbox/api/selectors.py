"""Label and field selectors: the text of a query, and selector objects inside other objects."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sandbox.api.errors import bad_request

Json = dict[str, Any]

# Selectable fields by resource; every resource also has the two of its metadata. Source: the registries'
# ToSelectableFields and AddFieldLabelConversionFunc.
_POD: Final = "nodeName restartPolicy schedulerName serviceAccountName hostNetwork"
_INVOLVED: Final = "kind namespace name uid apiVersion resourceVersion fieldPath"
SELECTABLE: Final[Mapping[str, frozenset[str]]] = {
    "pods": frozenset({f"spec.{name}" for name in _POD.split()})
    | {"status.phase", "status.podIP", "status.podIPs", "status.nominatedNodeName"},
    "nodes": frozenset({"spec.unschedulable"}),
    "namespaces": frozenset({"status.phase"}),
    "secrets": frozenset({"type"}),
    "jobs.batch": frozenset({"status.successful"}),
    "events": frozenset({f"involvedObject.{name}" for name in _INVOLVED.split()})
    | {"reason", "reportingComponent", "source", "type"},
}
_ALWAYS: Final = frozenset({"metadata.name", "metadata.namespace"})
_SET_TERM: Final = re.compile(r"^\s*(\S+)\s+(in|notin)\s*\(([^)]*)\)\s*$")
_NOT_IN_PARENTHESES: Final = re.compile(r",(?![^(]*\))")


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelTerm:
    """One requirement on labels; *operator* is In, NotIn, Exists or DoesNotExist."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether *labels* satisfy it; an absent key satisfies NotIn, as in the real server."""
        match self.operator:
            case "In":
                return labels.get(self.key) in self.values
            case "NotIn":
                return labels.get(self.key) not in self.values
            case "Exists":
                return self.key in labels
            case _:
                return self.key not in labels


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldTerm:
    """``path = value`` or its negation."""

    path: str
    value: str
    equal: bool

    def matches(self, obj: Mapping[str, Any]) -> bool:
        """Return whether the object's field, "" if absent, satisfies it."""
        return (field_text(obj, self.path) == self.value) is self.equal


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The objects of a collection that a request selects."""

    namespace: str = ""
    labels: tuple[LabelTerm, ...] = ()
    fields: tuple[FieldTerm, ...] = ()

    @property
    def everything(self) -> bool:
        """Whether neither labels nor fields restrict it."""
        return not self.labels and not self.fields

    def matches(self, obj: Mapping[str, Any]) -> bool:
        metadata = obj["metadata"]
        if self.namespace and metadata.get("namespace") != self.namespace:
            return False
        if self.fields and not all(term.matches(obj) for term in self.fields):
            return False
        if not self.labels:
            return True
        labels = metadata.get("labels") or {}
        return all(term.matches(labels) for term in self.labels)

    def exactly(self, path: str) -> str | None:
        """Return the value that *path* must have, if the selection requires one."""
        return next((term.value for term in self.fields if term.equal and term.path == path), None)


def field_text(obj: Mapping[str, Any], path: str) -> str:
    """Return the value at a dotted *path* as a field selector sees it: text, "" if absent."""
    if path == "source":
        path = "source.component"
    value: Any = obj
    for step in path.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    if value is None:
        return "false" if path in ("spec.unschedulable", "spec.hostNetwork") else ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def read_labels(text: str) -> tuple[LabelTerm, ...]:
    """Read a ``labelSelector``.

    Raises:
        StatusError: 400, *text* is invalid.
    """
    return tuple(_label_term(part.strip()) for part in _NOT_IN_PARENTHESES.split(text) if part.strip())


def _label_term(part: str) -> LabelTerm:
    if found := _SET_TERM.match(part):
        values = frozenset(value.strip() for value in found[3].split(","))
        return LabelTerm(key=found[1], operator="In" if found[2] == "in" else "NotIn", values=values)
    for sign, operator in (("!=", "NotIn"), ("==", "In"), ("=", "In")):
        key, found_sign, value = part.partition(sign)
        if found_sign:
            if not key.strip():
                raise bad_request(f"unable to parse requirement: found '{sign}', expected: identifier")
            return LabelTerm(key=key.strip(), operator=operator, values=frozenset({value.strip()}))
    if re.search(r"[\s()<>]", part):
        raise bad_request(f"unable to parse requirement: found '{part}', expected a label selector")
    if part.startswith("!"):
        return LabelTerm(key=part[1:].strip(), operator="DoesNotExist")
    return LabelTerm(key=part, operator="Exists")


def read_fields(text: str, resource: str) -> tuple[FieldTerm, ...]:
    """Read a ``fieldSelector`` for *resource* (``pods``, ``jobs.batch``).

    Raises:
        StatusError: 400, *text* is invalid or names an unsupported field.
    """
    allowed = SELECTABLE.get(resource, frozenset()) | _ALWAYS
    terms = []
    for part in text.split(","):
        if not part.strip():
            continue
        equal = "!=" not in part
        path, sign, value = part.partition("!=" if not equal else "==" if "==" in part else "=")
        if not sign:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        if path.strip() not in allowed:
            raise bad_request(f"field label not supported: {path.strip()}")
        terms.append(FieldTerm(path=path.strip(), value=value.strip(), equal=equal))
    return tuple(terms)


def label_matcher(selector: Mapping[str, Any] | None) -> Callable[[Mapping[str, str]], bool]:
    """Return a predicate for a LabelSelector object (``matchLabels``, ``matchExpressions``); absent or empty = all."""
    terms = [
        LabelTerm(key=key, operator="In", values=frozenset({value}))
        for key, value in ((selector or {}).get("matchLabels") or {}).items()
    ]
    terms += [
        LabelTerm(key=term["key"], operator=term["operator"], values=frozenset(term.get("values") or ()))
        for term in (selector or {}).get("matchExpressions") or ()
    ]
    return lambda labels: all(term.matches(labels) for term in terms)
