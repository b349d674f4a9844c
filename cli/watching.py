"""Follows nodes and bound pods for ``kubectl cards get --watch``, and reports repeatedly which nodes changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final, NoReturn, TypeVar

from cli.claims import following
from cli.cluster import BOUND, NODES, PODS, selecting
from core.ledger import Ledger
from core.model import Node, NodeName, Pod, PodUid
from core.wire.nodes import decode_node
from core.wire.pods import decode_pod
from kube.objects import EventKind
from kube.reflector import Reflector
from kube.transport import Transport

_T = TypeVar("_T")
# Combines a pod's binding and its device plugin's writes into one displayed change.
_GATHER_S: Final = 0.5


# Takes a pod's uid, and the pod, None if it is gone.
Telling = Callable[[PodUid, Pod | None], None]


def _tell_nobody(uid: PodUid, pod: Pod | None) -> None:
    del uid, pod


class _Nodes:
    """`kube.reflector.Sink` of nodes."""

    def __init__(self, ledger: Ledger, changed: asyncio.Event) -> None:
        self._ledger, self._changed = ledger, changed

    async def on_replace(self, objects: Sequence[Node], resource_version: str) -> None:
        del resource_version
        for name in self._ledger.states.keys() - {node.name for node in objects}:
            self._ledger.remove_node(name)
        for node in objects:
            self._ledger.set_node(node)
        self._changed.set()

    async def on_event(self, kind: EventKind, value: Node) -> None:
        if kind is EventKind.DELETED:
            self._ledger.remove_node(value.name)
        else:
            self._ledger.set_node(value)
        self._changed.set()


class _Pods:
    """`kube.reflector.Sink` of bound pods."""

    def __init__(self, ledger: Ledger, changed: asyncio.Event, told: Telling) -> None:
        self._ledger, self._changed, self._told = ledger, changed, told
        self._known: set[PodUid] = set()

    async def on_replace(self, objects: Sequence[Pod], resource_version: str) -> None:
        del resource_version
        for uid in self._known - {pod.uid for pod in objects}:
            self._forget(uid)
        for pod in objects:
            self._count(pod)
        self._known = {pod.uid for pod in objects}
        self._changed.set()

    async def on_event(self, kind: EventKind, value: Pod) -> None:
        if kind is EventKind.DELETED:
            self._forget(value.uid)
            self._known.discard(value.uid)
        else:
            self._count(value)
            self._known.add(value.uid)
        self._changed.set()

    def _count(self, pod: Pod) -> None:
        self._ledger.count(pod)
        self._told(pod.uid, pod)

    def _forget(self, uid: PodUid) -> None:
        self._ledger.release(uid)
        self._told(uid, None)


async def changes(
    transport: Transport,
    ledger: Ledger,
    selector: str,
    complain: Callable[[str], None],
    *,
    complain_of_claims: Callable[[str], None] | None = None,
    told: Telling = _tell_nobody,
) -> AsyncIterator[list[NodeName]]:
    """Keep *ledger* up to date; yield the names of changed nodes, first of all nodes.

    Args:
        transport: connection to the API server.
        ledger: without nodes.
        selector: a label selector of nodes, "" for all.
        complain: gets why what is shown may be old, in one line, once for each reason, and "" when it is no more.
        complain_of_claims: gets the same of resource claims; without it, *complain* does.
        told: is called with each pod on a node that is new or changed, also with ones that have ended.
    """
    changed = asyncio.Event()
    nodes = Reflector(transport, NODES, decode=decode_node, sink=_Nodes(ledger, changed), selectors=selecting(selector))
    pods = Reflector(transport, PODS, decode=decode_pod, sink=_Pods(ledger, changed, told), selectors=BOUND)
    async with asyncio.TaskGroup() as tasks:
        # Resource claims may be unserved, or the user may lack the right to see them.
        uses = following(transport, ledger, changed.set)
        running = [tasks.create_task(one.run()) for one in (nodes, pods, *uses)]
        running.append(tasks.create_task(complaints((nodes, pods), complain)))
        running.append(tasks.create_task(complaints(uses, complain_of_claims or complain)))
        try:
            await nodes.synced.wait()
            await pods.synced.wait()
            cursor, is_first = 0, True
            while True:
                changed.clear()
                names = ledger.changes_since(cursor)
                cursor = ledger.cursor
                found = sorted(ledger.states if names is None else set(names))
                if found or is_first:
                    yield found
                is_first = False
                await changed.wait()
                await asyncio.sleep(_GATHER_S)
        finally:
            for one in running:
                one.cancel()


async def complaints(reflectors: Sequence[Reflector[Any]], complain: Callable[[str], None]) -> NoReturn:
    """Call *complain* once with each reason why the data of *reflectors* may be old, and with "" when none is left."""
    said = ""
    while True:
        state = next((one.state for one in reflectors if one.state), "")
        if state != said:
            complain(state)
        said = state
        await asyncio.sleep(_GATHER_S)
