"""Reads a whole cluster into memory once, with the same lists and decoders as the controller's own start."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from enum import IntEnum
from typing import Any, Final, NamedTuple

import msgspec

from controller.actions import Inbox
from controller.documents import places
from controller.scheduler_names import SchedulerNames
from controller.simulating.cluster import SimulatedCluster
from controller.watches import Watches
from core.configuration import Text
from core.errors import InvariantError
from core.ledger import Ledger
from core.model import NodeName, PodUid
from core.port.spec import ConfigMapPlace
from core.settings import Settings, Tables
from core.wire.changes import Change
from kube.calls import Requester
from kube.reflector import Reflector
from kube.transport import Response

_SLICE_S: Final = 0.01
_LOOK_S: Final = 0.01
_NEEDED: Final = ("nodes", "pods")
# Every API server has these, and the controller waits for them.
_EVERYWHERE: Final = ("resource-quotas",)


class Promised(NamedTuple):
    """The place of a pod whose Binding is not written yet, and the annotations that the Binding has."""

    uid: PodUid
    node: NodeName
    annotations: dict[str, str]


class SimulationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What to simulate, and how.

    What a process gives to the child that simulates for it: the change, and all that only that process knows.

    texts: the configuration in force. scheduler_names: whose pods are placed. hami_config: from the command line.
    trusted: namespaces whose ConfigMaps are trusted. kubeconfig: "" for the pod's own credentials. limit_s: after which
    the child ends. memory_bytes: the most that it may use.
    """

    change: Change
    texts: tuple[Text, ...]
    scheduler_names: tuple[str, ...]
    hami_config: str
    trusted: tuple[str, ...]
    promised: tuple[Promised, ...]
    kubeconfig: str
    limit_s: int
    memory_bytes: int


class ExitStatus(IntEnum):
    """The exit status of the child; after `OK` its output is the answer, otherwise a line with the reason."""

    OK = 0
    UNUSABLE = 3
    UNREADABLE = 4
    NO_MEMORY = 5
    TOO_LONG = 6


class UnreadableClusterError(Exception):
    """Nodes or pods cannot be listed; the text says why."""


class _Once:
    """Answers lists, and never a watch."""

    def __init__(self, source: Requester) -> None:
        self._source: Final = source

    async def request(self, verb: str, path: str, **sending: Any) -> Response:
        """See `Requester`."""
        if verb != "GET":
            raise InvariantError(f"a simulation has called {verb} {path}")
        return await self._source.request(verb, path, **sending)

    @asynccontextmanager
    async def stream(
        self, path: str, params: Mapping[str, str], *, silence_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Wait for ever."""
        del path, params, silence_s
        await asyncio.Event().wait()
        yield _nothing()


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield b""


async def read(
    source: Requester,
    tables: Tables,
    settings: Settings,
    *,
    wall_s: float,
    trusted: frozenset[str] | None = None,
    promised: Iterable[Promised] = (),
) -> tuple[SimulatedCluster, tuple[str, ...]]:
    """Return the cluster, with nothing in progress, and notes on what could not be read.

    Args:
        source: an API server, or what answers lists as one.
        tables: device configuration.
        settings: the operator's.
        wall_s: the time of the cluster, Unix seconds.
        trusted: namespaces whose ConfigMaps about nodes are trusted; None: all, because the user trusts the texts of
            the cluster, as other commands do.
        promised: places of pods that wait in the cluster, and are to be bound there.

    Raises:
        UnreadableClusterError: nodes or pods cannot be listed.
    """
    cluster = SimulatedCluster(tables, settings, wall_s=wall_s)
    inbox = Inbox(time.monotonic)
    if trusted is None:
        trusted = frozenset(place.namespace for place in places(cluster.scheduler.cluster.ledger.catalog))
    watches = Watches(cluster.scheduler, inbox, None, trusted, SchedulerNames(()))
    async with asyncio.TaskGroup() as tasks:
        running = [
            tasks.create_task(_take_in(inbox), name="take in"),
            tasks.create_task(_follow(watches, _Once(source)), name="read"),
        ]
        try:
            await _listed(watches, is_preempting=cluster.scheduler.preempting.is_on)
        finally:
            for task in running:
                task.cancel()
    states = {name: one.state for name, one in watches.reflectors.items() if one.state}
    for name, state in states.items():
        if _is_fatal(name, state):
            raise UnreadableClusterError(_why_fatal(state))
    for one in promised:
        cluster.promise(one.uid, one.node, one.annotations)
    cluster.begin()
    needed = {place.title: place for place in _places_needed(cluster.scheduler.cluster.ledger)}
    others = {place.title for place in places(cluster.scheduler.cluster.ledger.catalog)} - needed.keys()
    return cluster, tuple(_note(needed.get(name), state) for name, state in states.items() if name not in others)


def _places_needed(ledger: Ledger) -> Iterator[ConfigMapPlace]:
    """Yield the places of documents about nodes whose device plugin needs them."""
    offered = {resource for node in ledger.nodes() for resource in node.capacity}
    for spec in ledger.catalog.specs:
        if spec.documents is not None and not offered.isdisjoint(ledger.resources_of(spec.name)):
            yield from spec.documents.places


def _note(place: ConfigMapPlace | None, state: str) -> str:
    kind, said = _parts(state)
    what = kind if place is None else f"ConfigMaps of namespace {place.namespace} with label {place.selector}"
    return f"{what} are not read and do not count: {said}"


def _why_fatal(state: str) -> str:
    kind, said = _parts(state)
    remedy = "; give this account the right to list them, or use other credentials"
    return f"{kind} cannot be listed: {said}{remedy if state.startswith('forbidden') else ''}"


def _parts(state: str) -> tuple[str, str]:
    """Return the kind that could not be listed, and the reason; *state* is that of a `Reflector`."""
    doing, _, said = state.partition(": ")[2].partition(": ")
    return doing.rpartition(" ")[2], said


async def _follow(watches: Watches, source: _Once) -> None:
    async with asyncio.TaskGroup() as tasks:
        await watches.cluster(tasks, source)


async def _take_in(inbox: Inbox) -> None:
    while True:
        inbox.filled.clear()
        if inbox.work(time.monotonic() + _SLICE_S):
            await asyncio.sleep(0)
        else:
            await inbox.filled.wait()


async def _listed(watches: Watches, *, is_preempting: bool) -> None:
    """Wait until each kind was listed or refused, or one cannot be read for another reason."""
    wanted = {*_NEEDED, *(("disruption-budgets",) if is_preempting else ())}
    while True:
        found = watches.reflectors
        if any(_is_fatal(name, one.state) for name, one in found.items()):
            return
        if wanted <= found.keys() and all(map(_is_over, found.values())):
            return
        await asyncio.sleep(_LOOK_S)  # reflectors have no event for a failure


def _is_fatal(name: str, state: str) -> bool:
    """Return whether nothing can be told because reflector *name* is in *state*."""
    may_be = ("forbidden",) if name in _EVERYWHERE else ("forbidden", "not found")
    return bool(state) and (name in _NEEDED or not state.startswith(may_be))


def _is_over(reflector: Reflector[Any]) -> bool:
    return reflector.synced.is_set() or bool(reflector.state)
