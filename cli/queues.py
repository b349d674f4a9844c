"""Fetches the data for ``kubectl cards queues``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from cli.cluster import PODS, fetch_holdings
from cli.reads import Reads
from cli.waiting import UNBOUND, fetch_lines, is_ours, is_shown, list_objects
from core.errors import InvalidRequestError
from core.groups import QueueSpec
from core.view.queues import Queues, queues_of
from core.view.waiting import waiting, waits
from core.wire.pods import decode_pod
from core.wire.queues import decode_queue, salvage_queue
from kube.errors import ApiNotFoundError
from kube.groups import QUEUES_PATH


async def fetch_queues(transport: Reads) -> Queues:
    """The queues, what their pods hold, and who waits.

    Raises:
        ApiError: queues, nodes or pods may not be listed, or the server does not answer.
    """
    specs = await _fetch_specs(transport)
    holdings = await fetch_holdings(transport)
    notes = list(holdings.notes)
    unbound = await list_objects(transport, PODS, decode_pod, UNBOUND)
    pods = [pod for pod in unbound if waits(pod) and is_shown(pod, holdings.ledger)]
    lines = await fetch_lines(transport, pods, "", notes, bound=holdings.pods)
    found = waiting(pods, lines, is_ours=partial(is_ours, ledger=holdings.ledger))
    return queues_of(specs, holdings.ledger, holdings.pods, lines=lines, waiting=found, notes=notes)


async def _fetch_specs(transport: Reads) -> Sequence[QueueSpec]:
    """Return all queues; none if Volcano's kinds are not installed."""
    try:
        return await list_objects(transport, QUEUES_PATH, queue_from)
    except ApiNotFoundError:
        return ()


def queue_from(text: bytes) -> QueueSpec:
    """Return a queue; of an unreadable one, what can be read."""
    try:
        return decode_queue(text)
    except InvalidRequestError:
        return salvage_queue(text)
