"""The webhook's own watch of ResourceQuotas. It reports quotas only while the watch is up to date."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from core.errors import InvalidRequestError
from core.wire.quotas import ResourceQuota, decode_quota, salvage_quota
from kube.objects import EventKind
from kube.reflector import Reflector, Source
from webhook.following import follow_once
from webhook.inventory import STALE_S

_QUOTAS: Final = "/api/v1/resourcequotas"


class Budgets:
    """The quotas of extended resources, by namespace: a sink of `kube.reflector`."""

    def __init__(
        self, *, kubeconfig: str, environ: Mapping[str, str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Start empty; `run` sends the first request. `webhook.inventory.InventoryWatch` describes the arguments."""
        self._kubeconfig: Final = kubeconfig
        self._environ: Final = environ
        self._clock: Final = clock
        self._quotas: Final[dict[str, dict[str, ResourceQuota]]] = {}
        self._reflector: Reflector[ResourceQuota] | None = None

    def of(self, namespace: str) -> tuple[ResourceQuota, ...]:
        """Return the quotas of *namespace*, or none while the data may be stale."""
        found = self._quotas.get(namespace)
        if not found or self._reflector is None:
            return ()
        is_fresh = self._clock() - self._reflector.last_seen_monotonic < STALE_S
        return tuple(found.values()) if is_fresh else ()

    async def run(self) -> None:
        """Watch until cancelled, and retry after every failure."""
        while True:
            await follow_once("ResourceQuotas", self.follow, kubeconfig=self._kubeconfig, environ=self._environ)

    async def follow(self, source: Source) -> None:
        """Watch once through *source*."""
        self._quotas.clear()
        self._reflector = Reflector(
            source,
            _QUOTAS,
            decode=_read,
            sink=self,
            clock=self._clock,
        )
        await self._reflector.run()

    async def on_replace(self, objects: Sequence[ResourceQuota], resource_version: str) -> None:
        """Replace all known quotas."""
        del resource_version
        self._quotas.clear()
        for one in objects:
            self._put(one)

    async def on_event(self, kind: EventKind, value: ResourceQuota) -> None:
        """Record that a quota was added, changed or deleted."""
        if kind is EventKind.DELETED or not value.hard:
            of = self._quotas.get(value.namespace, {})
            of.pop(value.name, None)
            if not of:
                self._quotas.pop(value.namespace, None)
        else:
            self._put(value)

    def _put(self, quota: ResourceQuota) -> None:
        if quota.hard:
            self._quotas.setdefault(quota.namespace, {})[quota.name] = quota


def _read(text: bytes) -> ResourceQuota:
    """Decode a quota. An unreadable one sets no limits here; the controller reports it."""
    try:
        return decode_quota(text)
    except InvalidRequestError:
        return salvage_quota(text)
