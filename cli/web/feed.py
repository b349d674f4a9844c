"""Watches the cluster, and sends each reader of the page the changes since its last message."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Final, NamedTuple

from cli import watching
from cli.cluster import NODES, PODS, Holdings, Keeping, claims_unread
from cli.waiting import UNBOUND, is_ours, is_shown
from cli.web.followed import Examining, Findings, Groups, Remembering
from core.constraints.images import Images
from core.ledger import Ledger
from core.model import NodeName, Pod, PodUid, group_of
from core.store import Store
from core.view.card_log import CardHistory, CardLog
from core.view.cards import VERSION, Kind, Node, Total, cards_of, kinds_of, node_for, totals_of
from core.view.fits import Place
from core.view.mine import Mine, mine_of
from core.view.queues import Queues, queues_for, queues_of
from core.view.trend import Trend, trend_for
from core.view.waiting import Waiting, waiting, waiting_for, waits
from core.wire.history import HISTORY_MAP
from core.wire.pods import decode_pod
from kube.calls import namespace_path
from kube.errors import ApiForbiddenError
from kube.reflector import Reflector
from kube.transport import Transport

# Changes within this time form one message.
_GATHER_S: Final = 0.3
# Computing the order of waiting pods takes a tenth of the time at most, and with many pods this interval.
_REST_PER_LOOK: Final = 9.0
_LINES_EVERY_S: Final = 5.0
_FEW_PODS: Final = 200
_ONE: Final = {"limit": "1"}
# Nodes in one message, so that little is held for a reader who is slow to take it.
_NODES_MAX: Final = 500
_NARROWED: Final = ("pods of other namespaces are counted and not named; warnings about nodes are not shown",)
_STALE: Final = "the server of this page does not follow the cluster now"
_NO_QUOTAS: Final = "you may not list ResourceQuotas in namespace {}, so what they leave is not shown"
_NO_HISTORY: Final = "the history cannot be read now"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sees:
    """What a reader may see. nodes: whether cards are visible. namespace: only its pods are visible, "" for all.

    home: the reader's own namespace, "" if unknown. queues, quotas: whether queues, and ResourceQuotas of *home*, are
    visible.
    """

    nodes: bool
    namespace: str
    home: str
    queues: bool = True
    quotas: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """The changes since the reader's last message; the first ones have everything.

    nodes: the changed nodes, at most 500. gone: names of removed nodes. totals, kinds: over all nodes.
    waiting, queues, mine, findings, trend: None if nothing in them changed, or if they are not seen. mine: the reader's
    own namespace. notes: what could not be read. stale: why the data may be old, "" while all watches run.
    """

    version: int = VERSION
    sees: Sees
    nodes: tuple[Node, ...] = ()
    gone: tuple[NodeName, ...] = ()
    totals: tuple[Total, ...] = ()
    kinds: tuple[Kind, ...] = ()
    waiting: Waiting | None = None
    queues: Queues | None = None
    mine: Mine | None = None
    findings: Findings | None = None
    trend: Trend | None = None
    notes: tuple[str, ...] = ()
    stale: str = ""


class _Home(NamedTuple):
    """Whose pods are shown, and what of the rest of the cluster may be shown with them."""

    namespace: str
    nodes: bool
    queues: bool
    quotas: bool


@dataclass(slots=True, kw_only=True)
class _Reader:
    """What one reader may see, and the changes that it has not received; a slow reader misses nothing.

    news: the parts of an `Update` that changed.
    """

    sees: Sees
    nodes: set[NodeName]
    news: set[str] = field(default_factory=lambda: {"waiting", "queues", "mine", "findings", "trend"})
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def home(self) -> _Home:
        """Return whose pods are shown to the reader as its own."""
        return _Home(self.sees.home, self.sees.nodes, self.sees.queues, self.sees.quotas)


class Feed:
    """The visible part of the cluster, of which each reader sees all or less; sees: what is visible."""

    def __init__(self, transport: Transport, holdings: Holdings, sees: Sees, history_map: str = HISTORY_MAP) -> None:
        """Follow what *sees* allows; *holdings* has a ledger without nodes.

        history_map: the ConfigMap in which the controller stores its history, NAMESPACE/NAME.
        """
        self._transport: Final = transport
        self._ledger: Final = holdings.ledger
        self._notes: Final = holdings.notes
        self.sees: Final = sees
        self._nodes: Final[dict[NodeName, Node]] = {}
        self._sums: tuple[tuple[Total, ...], tuple[Kind, ...]] | None = None
        self._pods: Final[dict[PodUid, Pod]] = {}
        self._pods_changed: Final = asyncio.Event()
        self._waiting: Waiting | None = None
        self._waiting_in: Final[dict[str, Waiting]] = {}
        # Pods on nodes: those with a group, and those that are shown.
        self._kept: Final[dict[PodUid, Pod]] = {}
        self._bound: Final[dict[PodUid, Pod]] = {}
        # Pods that wait and are shown.
        self._shown: Sequence[Pod] = ()
        self._groups: Final = Groups(transport, sees.namespace, sees.home, self._pods_changed.set)
        self._queues: Queues | None = None
        self._mine: Final[dict[_Home, Mine]] = {}
        self._cards: Final = CardLog(time.time())
        self.history: Final = Remembering(transport, history_map)
        self._examining: Final = Examining(transport, holdings.ledger.catalog)
        self._has_nodes: Final = asyncio.Event()
        self._stale: Final = {"nodes": "", "waiting": ""}
        self._claims: tuple[str, ...] = ()
        self._readers: Final[list[_Reader]] = []
        self._is_over = False

    def reasons(self) -> list[str]:
        """Return why the data is missing or may be old, one line each."""
        reasons = [*filter(None, dict.fromkeys(self._stale.values()))]
        return reasons or ([] if self._waiting is not None else ["the cluster is not listed yet"])

    async def run(self) -> None:
        """Follow until cancelled; this ends all `updates`.

        Raises:
            ApiError: the pods may not be listed.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._follow_waiting(), name="waiting pods")
                tasks.create_task(self._groups.run(), name="groups")
                if self.sees.nodes:
                    examining = self._examining.run(self.ledger, self._pods.values, partial(self._tell, "findings"))
                    tasks.create_task(examining, name="findings")
                    tasks.create_task(self.history.run(partial(self._tell, "trend")), name="history")
                    await self._follow_nodes()
        finally:
            self._is_over = True
            self._tell()

    async def updates(self, sees: Sees | None = None) -> AsyncGenerator[Update, None]:
        """Yield the whole state, and then changes, which are combined for a slow reader.

        Before the state is complete, only the reasons for the delay are sent. *sees*: what the reader may see; None for
        everything.
        """
        with self._reading(sees or self.sees) as reader:
            while True:
                await reader.changed.wait()
                reader.changed.clear()
                if self._is_over:
                    return
                if self._waiting is None and not any(self._stale.values()):
                    continue
                names = sorted(reader.nodes)[:_NODES_MAX]
                reader.nodes.difference_update(names)
                update = self._update(reader, names)
                reader.news.clear()
                yield update
                if reader.nodes:
                    reader.changed.set()
                else:
                    await asyncio.sleep(_GATHER_S)

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what could not be read of cards and their use."""
        return (*self._notes, *self._claims)

    def ledger(self) -> Ledger | None:
        """Return a copy of the ledger, for another thread; None before the nodes are read, or if they are not seen."""
        if not self._has_nodes.is_set():
            return None
        copy = self._ledger.fork()
        copy.images = Images()  # not shared with the thread
        return copy

    def bound(self, namespace: str) -> list[Pod]:
        """Return the pods of *namespace* on nodes with cards."""
        held = (self._ledger.counted(uid) for name in self._ledger.states for uid in self._ledger.holders(name))
        return [pod for pod in held if pod is not None and pod.namespace == namespace]

    def card(self, node: str, card: str, protocol: str, sees: Sees) -> CardHistory | None:
        """Return what *sees* allows of how a card was; None if there is no such card."""
        there = self._nodes.get(NodeName(node)) if sees.nodes else None
        cards = there.cards if there is not None else ()
        found = next((one for one in cards if (one.id, one.protocol) == (card, protocol)), None)
        return self._cards.of(node, found, sees.namespace) if found is not None else None

    @contextmanager
    def _reading(self, sees: Sees) -> Iterator[_Reader]:
        reader = _Reader(sees=sees, nodes={*self._nodes} if sees.nodes else set())
        reader.changed.set()
        self._readers.append(reader)
        try:
            yield reader
        finally:
            self._readers.remove(reader)

    def _update(self, reader: _Reader, names: Sequence[NodeName]) -> Update:
        sees, news = reader.sees, reader.news
        is_narrowed = sees.namespace != self.sees.namespace
        nodes = [self._nodes[name] for name in names if name in self._nodes]
        totals, kinds = self._summed() if sees.nodes else ((), ())
        waiting_notes = self._waiting.notes if self._waiting is not None else ()
        stale = " ".join(filter(None, dict.fromkeys(self._stale.values())))
        notes = tuple(dict.fromkeys((*self.notes, *self._groups.notes, *waiting_notes)))
        unseen = () if sees.quotas or not sees.home else (_NO_QUOTAS.format(sees.home),)
        return Update(
            sees=sees,
            nodes=tuple(node_for(node, sees.namespace) if is_narrowed else node for node in nodes),
            gone=tuple(name for name in names if name not in self._nodes),
            totals=totals,
            kinds=kinds,
            waiting=self._waiting_of(sees) if "waiting" in news else None,
            queues=self._queues_of(sees) if "queues" in news else None,
            mine=self._mine_of(reader.home) if "mine" in news and sees.home and self._waiting is not None else None,
            findings=self._examining.found if "findings" in news and sees.nodes and not is_narrowed else None,
            trend=self._trend_of(sees) if "trend" in news else None,
            # Notes and reasons could name objects of other namespaces.
            notes=(*(_NARROWED if is_narrowed else notes), *unseen),
            stale=_STALE if is_narrowed and stale else stale,
        )

    def _summed(self) -> tuple[tuple[Total, ...], tuple[Kind, ...]]:
        if self._sums is None:
            every = self._nodes.values()
            self._sums = totals_of(card for node in every for card in node.cards), kinds_of(every)
        return self._sums

    def _waiting_of(self, sees: Sees) -> Waiting | None:
        if self._waiting is None or sees.namespace == self.sees.namespace:
            return self._waiting
        found = self._waiting_in.get(sees.namespace)
        if found is None:
            found = self._waiting_in[sees.namespace] = waiting_for(self._waiting, sees.namespace)
        return found

    def _queues_of(self, sees: Sees) -> Queues | None:
        if self._queues is None or not sees.queues:
            return None
        is_narrowed = sees.namespace != self.sees.namespace
        return queues_for(self._queues, sees.namespace) if is_narrowed else self._queues

    def _trend_of(self, sees: Sees) -> Trend | None:
        found = self.history.found
        if found is None or not sees.nodes:
            return None
        is_narrowed = sees.namespace != self.sees.namespace
        notes = (_NO_HISTORY,) if is_narrowed and found.notes else found.notes
        return trend_for(found, queues=sees.queues, notes=notes)

    def _tell(self, *news: str, nodes: Sequence[NodeName] = ()) -> None:
        for reader in self._readers:
            if reader.sees.nodes:
                reader.nodes.update(nodes)
            reader.news.update(news)
            reader.changed.set()

    def _complain(self, of: str, state: str) -> None:
        self._stale[of] = state
        self._tell()

    def _note_claims(self, state: str) -> None:
        self._claims = (claims_unread(state),) if state else ()
        self._tell()

    async def _follow_nodes(self) -> None:
        complain = partial(self._complain, "nodes")
        following = watching.changes(
            self._transport, self._ledger, "", complain, complain_of_claims=self._note_claims, told=self._told
        )
        async with aclosing(following):
            async for names in following:
                there = [name for name in names if name in self._ledger.states]
                # Not taken from *names*: after very many changes it has only the existing nodes.
                gone = [name for name in self._nodes if name not in self._ledger.states]
                changed: dict[NodeName, Node | None] = dict.fromkeys(gone)
                # Without names, `cards_of` returns all nodes.
                if there:
                    changed.update((NodeName(node.name), node) for node in cards_of(self._ledger, there).nodes)
                self._put_nodes(changed)
                self._tell(nodes=[*there, *gone])
                self._has_nodes.set()
                self._pods_changed.set()  # pods that hold cards count in queues

    def _put_nodes(self, changed: Mapping[NodeName, Node | None]) -> None:
        """Take in what nodes are now, None if they are gone."""
        now_s = time.time()
        for name, node in changed.items():
            if self._has_nodes.is_set():  # else it is the first that is known of all nodes
                self._cards.note(now_s, self._nodes.get(name), node)
            if node is None:
                del self._nodes[name]
            else:
                self._nodes[name] = node
        self._sums = None

    async def _follow_waiting(self) -> None:
        namespace = self.sees.namespace
        path = f"{namespace_path(namespace)}/pods" if namespace else PODS
        store = Store(self._put, self._drop, lambda: chain(self._pods.values(), self._on_nodes()), lambda pod: pod.uid)
        # Pods on nodes come with the nodes; if these are not seen, they come here, for their own holders.
        selectors = UNBOUND if self.sees.nodes else {}
        sink = Keeping(store, self._pods_changed.set)
        pods = Reflector(self._transport, path, decode=decode_pod, sink=sink, selectors=selectors)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(pods.run(), name="unbound pods")
            tasks.create_task(watching.complaints((pods,), partial(self._complain, "waiting")), name="complaints")
            await pods.synced.wait()
            if self.sees.nodes:
                await self._has_nodes.wait()  # places depend on members that are on nodes
            await self._groups.settled()
            while True:
                self._pods_changed.clear()
                begun_s = time.monotonic()
                self._look_at_waiting()
                took_s = time.monotonic() - begun_s
                await self._pods_changed.wait()
                least_s = _LINES_EVERY_S if len(self._pods) > _FEW_PODS else _GATHER_S
                await asyncio.sleep(max(least_s, _REST_PER_LOOK * took_s))

    def _put(self, pod: Pod) -> None:
        if not pod.node_name:
            self._pods[pod.uid] = pod
        elif not self.sees.nodes:
            self._pods.pop(pod.uid, None)
            self._ledger.count(pod)
            self._keep(pod.uid, pod)

    def _drop(self, pod: Pod) -> None:
        self._pods.pop(pod.uid, None)
        if not self.sees.nodes:
            self._ledger.release(pod.uid)
            self._keep(pod.uid, None)

    def _on_nodes(self) -> Sequence[Pod]:
        return () if self.sees.nodes else [*self._bound.values()]

    def _told(self, uid: PodUid, pod: Pod | None) -> None:
        self._examining.told(uid, pod)
        self._keep(uid, pod)

    def _keep(self, uid: PodUid, pod: Pod | None) -> None:
        """Take in a pod on a node, None if it is gone."""
        for kept, is_kept in (
            (self._kept, pod is not None and group_of(pod) is not None),
            (self._bound, pod is not None and (not self.sees.nodes or is_shown(pod, self._ledger))),
        ):
            if pod is not None and is_kept:
                kept[uid] = pod
            elif kept.pop(uid, None) is None:
                continue
            self._pods_changed.set()

    def _look_at_waiting(self) -> None:
        self._examining.changed.set()
        ledger, namespace = self._ledger, self.sees.namespace
        shown = [pod for pod in self._pods.values() if waits(pod) and is_shown(pod, ledger)]
        notes: list[str] = []
        lines = self._groups.lines(shown, self._kept.values(), notes)
        found = waiting(shown, lines, is_ours=partial(is_ours, ledger=ledger), namespace=namespace, notes=notes)
        queues = self._look_at_queues(shown, found)
        before = self._waiting, self._queues
        self._waiting, self._queues, self._shown = found, queues, shown
        self._waiting_in.clear()
        self._look_at_mine()
        if before != (found, queues):
            now = {"waiting": found, "queues": queues}
            self._tell(*(part for part, was in zip(now, before, strict=True) if was != now[part]))

    def _look_at_queues(self, shown: Sequence[Pod], found: Waiting) -> Queues | None:
        specs, kept = self._groups.queues, self._kept.values()
        if not self.sees.nodes or specs is None:
            return None
        notes: list[str] = []
        lines = self._groups.lines([*shown, *kept], kept, notes)
        return queues_of(specs, self._ledger, kept, lines=lines, waiting=found, notes=notes)

    def _look_at_mine(self) -> None:
        """Compute anew what readers see of their own namespaces, and tell those for whom it differs."""
        before = dict(self._mine)
        self._mine.clear()
        for reader in self._readers:
            if reader.sees.home and self._mine_of(reader.home) != before.get(reader.home):
                reader.news.add("mine")
                reader.changed.set()

    def _mine_of(self, home: _Home) -> Mine:
        found = self._mine.get(home)
        if found is None:
            found = self._mine[home] = self._computed(home)
        return found

    def _computed(self, home: _Home) -> Mine:
        ledger, namespace = self._ledger, home.namespace
        bound = [pod for pod in self._bound.values() if pod.namespace == namespace and is_shown(pod, ledger)]
        if not home.nodes and self.sees.nodes:
            # Of pods of others, and of nodes, it would show more than may be seen.
            ledger = Ledger(ledger.catalog, ledger.tables, ledger.settings)
            for pod in bound:
                ledger.count(pod)
        pods = [*bound, *(pod for pod in self._shown if pod.namespace == namespace)]
        lines = self._groups.lines(pods, (), [])
        own = {queue for pod in pods if is_ours(pod, ledger) and (queue := lines.queue(pod)) is not None}
        quotas = self._groups.quotas(namespace) if home.quotas else ()
        queues = self._queues if home.queues else None
        return mine_of(Place(ledger, namespace, quotas, pods), queues=queues, own=own, nodes_are_read=home.nodes)


async def what_is_seen(transport: Transport, namespace: str) -> Sees:
    """Return what the user may see: all cards if nodes and all pods may be listed, else the pods of *namespace*.

    Raises:
        ApiError: not even these may be listed, or the server does not answer.
    """
    try:
        for path in (NODES, PODS):
            await transport.request("GET", path, params=_ONE)
    except ApiForbiddenError:
        await transport.request("GET", f"{namespace_path(namespace)}/pods", params=_ONE)
        return Sees(nodes=False, namespace=namespace, home=namespace)
    return Sees(nodes=True, namespace="", home=namespace)
