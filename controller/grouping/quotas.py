"""ResourceQuotas as far as they limit cards in HAMi's spelling, as the watch shows them (hami 5.4).

Quotas with scopes are passed over: HAMi counts all pods by them, and Kubernetes some.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from core.placing.fairness import QUOTA, Account
from core.wire.quotas import ResourceQuota

_LIMITS: Final = "limits."
_NONE: Final[Mapping[str, Mapping[str, int]]] = {}


class Quotas:
    """What namespaces may have of cards' resources in all."""

    def __init__(self, changed: Callable[[Account], None]) -> None:
        """Begin with none; *changed* is told of every quota that limits something else than before, or nothing."""
        self._changed: Final = changed
        self._limits: Final[dict[str, dict[str, Mapping[str, int]]]] = {}

    def of(self, namespace: str) -> Mapping[str, Mapping[str, int]]:
        """By quota of *namespace*, so much of each resource."""
        return self._limits.get(namespace, _NONE)

    def names(self) -> list[tuple[str, str]]:
        """Name and namespace of all that limit something."""
        return [(name, namespace) for namespace, names in self._limits.items() for name in names]

    def replaced(self, quotas: Sequence[ResourceQuota]) -> None:
        """These quotas, and no others, exist."""
        there = {(one.namespace, one.name) for one in quotas}
        for name, namespace in self.names():
            if (namespace, name) not in there:
                self._put(namespace, name, {})
        for one in quotas:
            self.changed(one)

    def changed(self, quota: ResourceQuota) -> None:
        """A quota appeared or changed."""
        limits = {
            key.removeprefix(_LIMITS): amount
            for key, amount in sorted(quota.hard.items())
            if key.startswith(_LIMITS) and not quota.scoped
        }
        self._put(quota.namespace, quota.name, limits)

    def gone(self, quota: ResourceQuota) -> None:
        """A quota does not exist any more."""
        self._put(quota.namespace, quota.name, {})

    def _put(self, namespace: str, name: str, limits: Mapping[str, int]) -> None:
        known = self._limits.get(namespace, {})
        if known.get(name, {}) == limits:
            return
        if limits:
            self._limits[namespace] = known | {name: limits}
        elif len(known) > 1:
            del known[name]
        else:
            del self._limits[namespace]
        self._changed(Account(QUOTA, name, namespace))
