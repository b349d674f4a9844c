"""Follows nodes and bound pods for ``kubectl cards get --watch``, and reports repeatedly which nodes changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, Final, NoReturn, TypeVar

from cli.cluster import BOUND, NODES, PODS, Keeping, following, selecting
from core.ledger import Ledger
from core.model import NodeName, Pod, PodUid
from core.store import Store
from core.wire.nodes import decode_node
from core.wire.pods import decode_pod
from kube.reflector import Reflector
from kube.transport import Transport

_T = TypeVar("_T")
# Combines a pod's binding and its device plugin's writes into one displayed change.
_GATHER_S: Final = 0.5


# Takes a pod's uid, and the pod, None if it is gone.
Telling = Callable[[PodUid, Pod | None], None]


def _tell_nobody(uid: PodUid, pod: Pod | None) -> None:
    del uid, pod


async def changes(
    transport: Transport,
    ledger: Ledger,
    selector: str,
    complain: Callable[[str], None],
    *,
    complain_of_claims: Callable[[str], None] | None = None,
    told: Telling = _tell_nobody,
) -> AsyncGenerator[list[NodeName], None]:
    """Keep *ledger* up to date; yield the names of changed nodes, first of all nodes.

    A caller that stops early closes it, so that its tasks end.

    Args:
        transport: connection to the API server.
        ledger: without nodes.
        selector: a label selector of nodes, "" for all.
        complain: gets why what is shown may be old, in one line, once for each reason, and "" when it is no more.
        complain_of_claims: gets the same of resource claims; without it, *complain* does.
        told: is called with each pod on a node that is new or changed, also with ones that have ended.
    """
    changed = asyncio.Event()
    known: dict[PodUid, Pod] = {}

    def count(pod: Pod) -> None:
        ledger.count(pod)
        known[pod.uid] = pod
        told(pod.uid, pod)

    def forget(pod: Pod) -> None:
        ledger.release(pod.uid)
        known.pop(pod.uid, None)
        told(pod.uid, None)

    node_store = Store(
        ledger.set_node, lambda node: ledger.remove_node(node.name), ledger.nodes, lambda node: node.name
    )
    pod_store = Store(count, forget, known.values, lambda pod: pod.uid)
    node_sink, pod_sink = Keeping(node_store, changed.set), Keeping(pod_store, changed.set)
    nodes = Reflector(transport, NODES, decode=decode_node, sink=node_sink, selectors=selecting(selector))
    pods = Reflector(transport, PODS, decode=decode_pod, sink=pod_sink, selectors=BOUND)
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
        except GeneratorExit:
            return  # a task group would report it as a failure
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
