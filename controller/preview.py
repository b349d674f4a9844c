"""Where a pod would go now, or why nowhere: the answer of /v1/preview. Nothing is reserved, nothing is remembered."""

import asyncio
from typing import Any

from controller.answers import Explain, refused_answer, where
from controller.inbox import Inbox
from controller.owner import Owner
from controller.plan import Waits, read_wish
from core import explain
from core.decide import NotAsked, decide, shape_of
from core.wire.pods import decode_pod


async def preview(owner: Owner, inbox: Inbox, explain_shape: Explain, text: bytes) -> dict[str, Any]:
    """The decision on the pod in *text*, JSON, were it created now.

    Raises:
        InvalidRequestError: *text* is no pod.
    """
    pod = decode_pod(text)
    await inbox.settled()
    if pod.scheduler_name not in owner.ledger.settings.scheduler_names or isinstance(
        shape_of(pod, owner.ledger), NotAsked
    ):
        return {"state": "not ours", "text": "it asks for no cards of ours"}
    shape = read_wish(pod, owner.ledger)
    if isinstance(shape, Waits):
        return {"state": "waits", "text": shape.text}
    for _ in owner.planner.candidates.prepare(shape):
        await asyncio.sleep(0)
    await inbox.settled()
    placement = decide(owner.planner.candidates, pod, shape)
    if placement is not None:
        found: dict[str, Any] = {"state": "fits", "text": explain.placed(owner.ledger, placement)}
        return found | where(owner, placement)
    refused, _ = await explain_shape(shape)
    return {"state": "refused", **refused_answer(refused), "text": explain.sentence(refused)}
