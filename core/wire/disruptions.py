"""PodDisruptionBudgets: from the API server's JSON to their pods and the number of allowed evictions."""

from typing import Final, NamedTuple

import msgspec

from core.model import Requirement
from core.wire import reading
from core.wire.selecting import Selector, selector_of


class DisruptionBudget(NamedTuple):
    """One PodDisruptionBudget.

    selector: None matches nothing. allowed: how many of its pods may be evicted now. disrupted: names of evicted pods
    that are already counted.
    """

    namespace: str
    name: str
    selector: tuple[Requirement, ...] | None
    allowed: int = 0
    disrupted: frozenset[str] = frozenset()


class _Meta(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    namespace: str = ""


class _Spec(msgspec.Struct, frozen=True, gc=False):
    selector: Selector | None = None


class _Status(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    disruptions_allowed: int | None = 0
    disrupted_pods: dict[str, msgspec.Raw] | None = None


class _Object(msgspec.Struct, frozen=True, gc=False):
    """The fields of a PodDisruptionBudget that are read. Source: Kubernetes API reference, policy/v1."""

    metadata: _Meta = _Meta()
    spec: _Spec | None = None
    status: _Status | None = None


def _value(found: _Object) -> DisruptionBudget:
    status = found.status or _Status()
    return DisruptionBudget(
        found.metadata.namespace,
        found.metadata.name,
        selector_of(found.spec.selector if found.spec is not None else None),
        status.disruptions_allowed or 0,
        frozenset(status.disrupted_pods or ()),
    )


decode_disruption_budget: Final = reading.reader("PodDisruptionBudget", _Object, _value)
