"""Watches the cluster, and sends each reader of the page the changes since its last message."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from cli import watching
from cli.claims import Keeping, unread
from cli.cluster import NODES, PODS, Holdings
from cli.waiting import UNBOUND, fetch_lines, is_ours, is_shown
from core.groups import GroupKey
from core.images import Images
from core.ledger import Ledger
from core.model import NodeName, Pod, PodUid
from core.store import Store
from core.view.cards import VERSION, Node, Total, cards_of, totals_of
from core.view.kinds import Kind, kinds_of
from core.view.waiting import Lines, Waiting, waiting, waits
from core.wire.pods import decode_pod
from kube.calls import namespace_path
from kube.errors import ApiError, ApiForbiddenError, UndecodableError
from kube.reflector import Reflector
from kube.transport import Transport

# Changes within this time form one message.
_GATHER_S: Final = 0.3
# Computing the order of waiting pods needs lists: a tenth of the time at most, and with many pods at this interval.
_REST_PER_LOOK: Final = 9.0
_LINES_EVERY_S: Final = 5.0
_FEW_PODS: Final = 200
_ONE: Final = {"limit": "1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sees:
    """What the user may see. nodes: whether cards are visible. namespace: only its pods are visible, "" for all.

    home: the user's own namespace.
    """

    nodes: bool
    namespace: str
    home: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """The changes since the reader's last message; the first one has everything.

    nodes: the changed nodes. gone: names of removed nodes. totals, kinds: over all nodes.
    waiting: None if no waiting pod changed. notes: what could not be read.
    stale: why the data may be old, "" while all watches run.
    """

    version: int = VERSION
    sees: Sees
    nodes: tuple[Node, ...] = ()
    gone: tuple[NodeName, ...] = ()
    totals: tuple[Total, ...] = ()
    kinds: tuple[Kind, ...] = ()
    waiting: Waiting | None = None
    notes: tuple[str, ...] = ()
    stale: str = ""


@dataclass(slots=True, kw_only=True)
class _Reader:
    """The changes that one reader has not received; a slow reader misses nothing."""

    nodes: set[NodeName]
    has_waiting: bool = True
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class Feed:
    """The visible part of the cluster; sees: what that is."""

    def __init__(self, transport: Transport, holdings: Holdings, sees: Sees) -> None:
        """Follow what *sees* allows; *holdings* has a ledger without nodes."""
        self._transport: Final = transport
        self._ledger: Final = holdings.ledger
        self._notes: Final = holdings.notes
        self.sees: Final = sees
        self._nodes: Final[dict[NodeName, Node]] = {}
        self._pods: Final[dict[PodUid, Pod]] = {}
        self._pods_changed: Final = asyncio.Event()
        self._waiting: Waiting | None = None
        self._placed: Final[dict[PodUid, GroupKey]] = {}
        self._has_nodes: Final = asyncio.Event()
        self._stale: Final = {"nodes": "", "waiting": ""}
        self._claims: tuple[str, ...] = ()
        self._readers: Final[list[_Reader]] = []

    async def run(self) -> None:
        """Follow until cancelled.

        Raises:
            ApiError: the pods may not be listed.
        """
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_waiting(), name="waiting pods")
            if self.sees.nodes:
                await self._follow_nodes()

    async def updates(self) -> AsyncIterator[Update]:
        """Yield the whole state, and then changes, which are combined for a slow reader.

        Before the state is complete, only the reasons for the delay are sent.
        """
        with self._reading() as reader:
            while True:
                await reader.changed.wait()
                reader.changed.clear()
                if self._waiting is None and not any(self._stale.values()):
                    continue
                names, reader.nodes = reader.nodes, set()
                has_waiting, reader.has_waiting = reader.has_waiting, False
                yield self._update(names, has_waiting=has_waiting)
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
        """Return the pods of *namespace* with cards on nodes."""
        held = (self._ledger.counted(uid) for name in self._ledger.states for uid in self._ledger.holders(name))
        return [pod for pod in held if pod is not None and pod.namespace == namespace]

    @contextmanager
    def _reading(self) -> Iterator[_Reader]:
        reader = _Reader(nodes={*self._nodes})
        reader.changed.set()
        self._readers.append(reader)
        try:
            yield reader
        finally:
            self._readers.remove(reader)

    def _update(self, names: set[NodeName], *, has_waiting: bool) -> Update:
        every = self._nodes.values()
        waiting_notes = self._waiting.notes if self._waiting is not None else ()
        return Update(
            sees=self.sees,
            nodes=tuple(self._nodes[name] for name in sorted(names) if name in self._nodes),
            gone=tuple(sorted(names - self._nodes.keys())),
            totals=totals_of(card for node in every for card in node.cards),
            kinds=kinds_of(every),
            waiting=self._waiting if has_waiting else None,
            notes=tuple(dict.fromkeys((*self.notes, *waiting_notes))),
            stale=" ".join(filter(None, dict.fromkeys(self._stale.values()))),
        )

    def _tell(self, nodes: Sequence[NodeName] = (), *, has_waiting: bool = False) -> None:
        for reader in self._readers:
            reader.nodes.update(nodes)
            reader.has_waiting |= has_waiting
            reader.changed.set()

    def _complain(self, of: str, state: str) -> None:
        self._stale[of] = state
        self._tell()

    def _note_claims(self, state: str) -> None:
        self._claims = (unread(state),) if state else ()
        self._tell()

    async def _follow_nodes(self) -> None:
        complain = partial(self._complain, "nodes")
        following = watching.changes(
            self._transport, self._ledger, "", complain, complain_of_claims=self._note_claims, placed=self._placed
        )
        async for names in following:
            there = [name for name in names if name in self._ledger.states]
            # Not taken from *names*: after very many changes it has only the existing nodes.
            gone = [name for name in self._nodes if name not in self._ledger.states]
            for name in gone:
                del self._nodes[name]
            # Without names, `cards_of` returns all nodes.
            if there:
                self._nodes.update((NodeName(node.name), node) for node in cards_of(self._ledger, there).nodes)
            self._tell([*there, *gone])
            self._has_nodes.set()

    async def _follow_waiting(self) -> None:
        namespace = self.sees.namespace
        path = f"{namespace_path(namespace)}/pods" if namespace else PODS
        store = Store(self._put, lambda pod: self._pods.pop(pod.uid, None), self._pods.values, lambda pod: pod.uid)
        pods = Reflector(
            self._transport, path, decode=decode_pod, sink=Keeping(store, self._pods_changed.set), selectors=UNBOUND
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(pods.run(), name="unbound pods")
            tasks.create_task(watching.complaints((pods,), partial(self._complain, "waiting")), name="complaints")
            await pods.synced.wait()
            if self.sees.nodes:
                await self._has_nodes.wait()  # places depend on members that are on nodes
            while True:
                self._pods_changed.clear()
                begun_s = time.monotonic()
                await self._look_at_waiting()
                took_s = time.monotonic() - begun_s
                await self._pods_changed.wait()
                least_s = _LINES_EVERY_S if len(self._pods) > _FEW_PODS else _GATHER_S
                await asyncio.sleep(max(least_s, _REST_PER_LOOK * took_s))

    def _put(self, pod: Pod) -> None:
        self._pods[pod.uid] = pod

    async def _look_at_waiting(self) -> None:
        ledger, namespace = self._ledger, self.sees.namespace

        shown = [pod for pod in self._pods.values() if waits(pod) and is_shown(pod, ledger)]
        notes: list[str] = []
        placed = self._placed.values() if self.sees.nodes else None
        try:
            lines = await fetch_lines(self._transport, shown, namespace, notes, placed=placed)
        except (ApiError, UndecodableError) as e:
            notes.append(f"places in line are not known ({e})")
            lines = Lines(is_complete=False)
        self._waiting = waiting(shown, lines, is_ours=partial(is_ours, ledger=ledger), namespace=namespace, notes=notes)
        self._tell(has_waiting=True)


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
