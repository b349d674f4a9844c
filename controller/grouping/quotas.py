"""ResourceQuotas that limit cards in HAMi's spelling, from the watch (hami 5.4).

Quotas with scopes are ignored: HAMi counts all pods for them, Kubernetes only some.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from core.constraints.quota import QUOTA, Account
from core.wire.quotas import ResourceQuota

_LIMITS: Final = "limits."
_NONE: Final[Mapping[str, Mapping[str, int]]] = {}


class Quotas:
    """Limits of namespaces on the resources of cards."""

    def __init__(self, changed: Callable[[Account], None]) -> None:
        """Begin with none; *changed*: called for every quota whose limits changed."""
        self._changed: Final = changed
        self._limits: Final[dict[str, dict[str, Mapping[str, int]]]] = {}
        # All of them, also those that limit no cards.
        self._all: Final[dict[tuple[str, str], ResourceQuota]] = {}

    def all_of(self, namespace: str) -> list[ResourceQuota]:
        """Return the quotas of *namespace*."""
        return [one for (where, _), one in self._all.items() if where == namespace]

    def of(self, namespace: str) -> Mapping[str, Mapping[str, int]]:
        """Return the limits by quota of *namespace*, by resource."""
        return self._limits.get(namespace, _NONE)

    def names(self) -> list[tuple[str, str]]:
        """Return (name, namespace) of all quotas with limits."""
        return [(name, namespace) for namespace, names in self._limits.items() for name in names]

    def replaced(self, quotas: Sequence[ResourceQuota]) -> None:
        """Replace all quotas."""
        there = {(one.namespace, one.name) for one in quotas}
        for name, namespace in self.names():
            if (namespace, name) not in there:
                self._put(namespace, name, {})
        self._all.clear()
        for one in quotas:
            self.changed(one)

    def changed(self, quota: ResourceQuota) -> None:
        """Record that a quota was added or changed."""
        self._all[quota.namespace, quota.name] = quota
        limits = {
            key.removeprefix(_LIMITS): amount
            for key, amount in sorted(quota.hard.items())
            if key.startswith(_LIMITS) and not quota.scoped
        }
        self._put(quota.namespace, quota.name, limits)

    def gone(self, quota: ResourceQuota) -> None:
        """Record that a quota was deleted."""
        self._all.pop((quota.namespace, quota.name), None)
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
