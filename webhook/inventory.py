"""What the webhook follows over its own, read-only connections: the cluster's cards and ResourceQuotas.

It is kept in memory, and dropped when it may be stale. Without current data, the webhook does not report which pods can
never fit, nor what quotas leave. Admission never depends on the data, and no review waits for it.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final

import structlog

from core.admission.rulebook import Rulebook
from core.device_lists import listed_on
from core.errors import InvalidRequestError
from core.inventory import Inventory, Stock, at_its_best, node_of
from core.model import Node, NodeName
from core.wire.nodes import decode_node
from core.wire.policies import ResourceQuota, decode_quota, salvage_quota
from kube.credentials import choose_source
from kube.errors import CredentialsError
from kube.reflector import EventKind, Reflector, Source
from kube.transport import Transport
from runtime.backoff import Backoff

_log: Final = structlog.get_logger()

_QUOTAS: Final = "/api/v1/resourcequotas"
_NODES: Final = "/api/v1/nodes"
# A watch delivers an event about once a minute. After two minutes without one, there may be unknown cards.
STALE_S: Final = 120.0
_AGAIN_S: Final = 30.0
_LOOK_S: Final = 1.0
# Reading a node takes up to 0.3 ms, and reviews must not wait long behind a full list.
_NODES_PER_TURN: Final = 8


class Cards:
    """What the nodes offer under one rulebook: a sink of `kube.reflector`."""

    def __init__(self, book: Rulebook) -> None:
        self.book: Final = book
        self.inventory: Final = Inventory()
        for kind in book.settings.node_kinds:
            self._put(node_of(kind))

    async def on_replace(self, objects: Sequence[Node], resource_version: str) -> None:
        """Replace all known nodes."""
        del resource_version
        self.inventory.keep(frozenset(node.name for node in objects))
        for at, node in enumerate(objects):
            self._put(node)
            if at % _NODES_PER_TURN == 0:
                await asyncio.sleep(0)

    async def on_event(self, kind: EventKind, value: Node) -> None:
        """Record that a node was added, changed or deleted."""
        if kind is EventKind.DELETED:
            self.inventory.remove(NodeName(value.name))
        else:
            self._put(value)

    def _put(self, node: Node) -> None:
        catalog, book = self.book.catalog, self.book
        offers, complaints = catalog.offers(at_its_best(node), book.tables, book.settings)
        self.inventory.put(node.name, offers, complaints, catalog.dialects, listed_on(node, book.resources))


class InventoryWatch:
    """Reports to *tell* what the cluster offers, or None while that is unknown or stale."""

    def __init__(
        self,
        *,
        book: Callable[[], Rulebook],
        tell: Callable[[Stock | None], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare; `follow` sends the first request.

        Args:
            book: returns the rulebook in force, which defines how cards are read.
            tell: receives each report.
            clock: monotonic seconds.
        """
        self._book = book
        self._tell = tell
        self._clock = clock
        self._told: tuple[int, int] | None = None
        self._missed = False

    async def follow(self, source: Source) -> None:
        """Watch through *source*. A change of the configuration reads all cards again."""
        try:
            while True:
                await self._follow_by(self._book(), source)
        finally:
            self._know(None)

    async def _follow_by(self, book: Rulebook, source: Source) -> None:
        """Watch through *source* while *book* is in force."""
        cards = Cards(book)
        reflector: Reflector[Node] = Reflector(
            source,
            _NODES,
            decode=decode_node,
            sink=cards,
            clock=self._clock,
        )
        async with asyncio.TaskGroup() as tasks:
            reflecting = tasks.create_task(reflector.run(), name="reflect nodes")
            while self._same(book):
                self._look(cards, reflector)
                await asyncio.sleep(_LOOK_S)
            reflecting.cancel()
        self._know(None)

    def _same(self, book: Rulebook) -> bool:
        now = self._book()
        return now.tables is book.tables and now.settings is book.settings

    def _look(self, cards: Cards, reflector: Reflector[Node]) -> None:
        fresh = self._clock() - reflector.last_seen_monotonic < STALE_S
        if not reflector.synced.is_set() or not fresh:
            if self._told is not None:
                _log.warning("inventory too old; pods that can never fit are not reported", reason=reflector.state)
            elif reflector.state and not self._missed:
                self._missed = True
                _log.warning("no inventory yet; pods that can never fit are not reported", reason=reflector.state)
            self._know(None)
        elif self._told != (id(cards), cards.inventory.version):
            self._know(cards.inventory.stock())
            self._told = (id(cards), cards.inventory.version)

    def _know(self, stock: Stock | None) -> None:
        if stock is not None or self._told is not None:
            self._tell(stock)
        self._told = None


class Budgets:
    """The quotas of extended resources, by namespace: a sink of `kube.reflector`."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Start empty; `follow` sends the first request."""
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

    async def follow(self, source: Source) -> None:
        """Watch through *source*."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The API server that *kubeconfig*, "" if none, or *environ* names (`kube.credentials.choose_source`)."""

    kubeconfig: str
    environ: Mapping[str, str]

    async def connect(self, stack: AsyncExitStack) -> Transport:
        """Return a connection; closing *stack* closes it.

        Raises:
            CredentialsError: no API server is named, or its credentials cannot be read.
        """
        source = choose_source(kubeconfig=self.kubeconfig, environ=self.environ)
        return await stack.enter_async_context(Transport(source, user_agent="cardshare-webhook"))

    async def follow(self, what: str, follow: Callable[[Transport], Awaitable[None]]) -> None:
        """Run *follow* over a connection until cancelled, and again after every failure, which is logged.

        Args:
            what: plural noun for the log.
            follow: follows the objects.
        """
        while True:
            try:
                async with AsyncExitStack() as stack:
                    await follow(await self._connected(stack))
            except Exception:  # noqa: BLE001 (the outermost frame of what admission must never depend on)
                _log.exception("watch failed; it is restarted", what=what)
                await asyncio.sleep(_AGAIN_S)

    async def _connected(self, stack: AsyncExitStack) -> Transport:
        """As `connect`, but wait until there are credentials."""
        backoff, told = Backoff(first_s=1.0, cap_s=_AGAIN_S, jitter=random.random), ""
        while True:
            try:
                return await self.connect(stack)
            except CredentialsError as e:
                if str(e) != told:
                    told = str(e)
                    _log.warning("no access to the cluster; give credentials, or --no-inventory", error=told)
                await asyncio.sleep(backoff.next_s())
