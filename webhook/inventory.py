"""The webhook's own, read-only watch of the cluster's cards, kept in memory and dropped when it may be stale.

Without current data, the webhook does not report which pods can never fit. No review waits for the data.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import structlog

from core.admission.rulebook import Rulebook
from core.device_lists import listed_on
from core.inventory import Inventory, Stock, at_its_best, node_of
from core.model import Node, NodeName
from core.wire.nodes import decode_node
from kube.objects import EventKind
from kube.reflector import Reflector, Source
from webhook.following import follow_once

_log: Final = structlog.get_logger()

_NODES: Final = "/api/v1/nodes"
# A watch delivers an event about once a minute. After two minutes without one, there may be unknown cards.
STALE_S: Final = 120.0
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
        kubeconfig: str,
        environ: Mapping[str, str],
        book: Callable[[], Rulebook],
        tell: Callable[[Stock | None], None],
        stale_s: float = STALE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare; `run` sends the first request.

        Args:
            kubeconfig: value of the flag, or "".
            environ: environment that may name the API server, see `kube.credentials.choose_source`.
            book: returns the rulebook in force, which defines how cards are read.
            tell: receives each report.
            stale_s: data is stale after this long without an event from the API server.
            clock: monotonic seconds.
        """
        self._kubeconfig = kubeconfig
        self._environ = environ
        self._book = book
        self._tell = tell
        self._stale_s = stale_s
        self._clock = clock
        self._told: tuple[int, int] | None = None
        self._missed = False

    async def run(self) -> None:
        """Watch until cancelled, and retry after every failure."""
        while True:
            await follow_once("nodes", self.follow, kubeconfig=self._kubeconfig, environ=self._environ)

    async def follow(self, source: Source) -> None:
        """Watch once through *source*. A change of the configuration reads all cards again."""
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
        fresh = self._clock() - reflector.last_seen_monotonic < self._stale_s
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
