"""The answer of /v1/preview: where a pod would go now, or why nowhere. It reserves and remembers nothing.

Every node is judged, in slices between which the scheduler runs, within a time limit. Callers can send pods of any
shape, so results are not cached as they are for shapes in the cluster.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

from controller.deciding.scheduler import Scheduler
from controller.inbox import Inbox
from controller.reporting.answers import Explain, coded, refused_answer, where
from controller.reporting.work import Work
from core.constraints.quota import over_wait
from core.explaining import explain
from core.explaining.asked import read_wish
from core.ledger import Placement
from core.placing.decide import look_around
from core.placing.shape import Shape
from core.waiting import Wait
from core.wire.pods import decode_pod

# Less than the webhook's timeout. A thousand nodes take 10 to 30 ms of it.
LIMIT_S: Final = 0.4
LATE: Final = "late"


async def preview(
    scheduler: Scheduler,
    inbox: Inbox,
    explain_shape: Explain,
    text: bytes,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Any]:
    """Return the decision for the pod in *text*, JSON, if it were created now; *clock*: monotonic seconds.

    Raises:
        InvalidRequestError: *text* is not a pod.
    """
    pod = decode_pod(text)
    try:
        async with asyncio.timeout(LIMIT_S):
            await inbox.settled()
            if pod.scheduler_name not in scheduler.cluster.ledger.settings.scheduler_names:
                return {"state": "not ours", "text": "it names another scheduler"}
            shape = read_wish(pod, scheduler.cluster.ledger)
            if isinstance(shape, Wait):
                return {"state": "waits", **coded(shape)}
            tables = scheduler.cluster.ledger.tables
            kept = scheduler.reservations.to_new(scheduler.cluster.groups.standing(pod).priority)
            placement = await Work(clock).result(
                look_around(scheduler.cluster.ledger, scheduler.cluster.search.policy, pod, shape, kept)
            )
            await inbox.settled()
            if scheduler.cluster.ledger.tables is not tables:
                return {"state": LATE, "text": "the configuration changed meanwhile; ask again"}
            over = scheduler.cluster.over(pod, placement) if placement is not None else ()
            if over:
                return {"state": "waits", **coded(over_wait(over))}
            return await _told(scheduler, explain_shape, shape, placement)
    except TimeoutError:
        return {"state": LATE, "text": f"not every node could be checked within {LIMIT_S} s; create the pod to see"}


async def _told(
    scheduler: Scheduler, explain_shape: Explain, shape: Shape, placement: Placement | None
) -> dict[str, Any]:
    if placement is not None and placement.node in scheduler.cluster.ledger.states:
        found: dict[str, Any] = {"state": "fits", "text": explain.placed(scheduler.cluster.ledger, placement)}
        return found | where(scheduler.cluster.ledger, placement)
    refused, _ = await explain_shape(shape)
    wait = coded(explain.wait(refused))
    return {"state": "refused", **refused_answer(refused), **wait, "text": explain.sentence(refused)}
