"""Fetches what happened to a pod: from the controller's record, or else from the pod's conditions and events."""

from __future__ import annotations

from typing import Final

from cli import cluster, controller
from cli.history import History
from cli.options import Controller
from cli.reads import Reads
from core.history.pods import NAMESAKES_MAX
from core.view.history import Why, why, why_by_api
from kube.calls import Calls

_INSTEAD: Final = "this is what the pod's conditions and events say, and events expire"
_NONE: Final = "--controller is missing"
_NOTHING: Final = "the controller remembers nothing of this pod"


async def fetch_why(transport: Reads, asked: Controller | None, namespace: str, name: str) -> Why:
    """Return what happened to the pods of that name; a note says why the controller did not answer.

    Raises:
        ApiError: the pod cannot be read, which is asked for only if the controller remembers nothing.
    """
    reason = _NONE
    if asked is not None:
        try:
            found = await controller.ask_why(asked, namespace, name)
        except controller.NoAnswerError as e:
            reason = str(e)
        else:
            if found.lives:
                return found
            reason = _NOTHING
    if reason != _NOTHING:
        found = await stored_why(History(transport), namespace, name)
        if found.lives:
            return found
    return await why_of_api(transport, namespace, name, reason)


async def stored_why(history: History, namespace: str, name: str) -> Why:
    """Return what the stored record says of the pods of that name, the last one last; notes say why not all of it."""
    stored, pod = await history.stored(), f"{namespace}/{name}"
    lives = [life for life in reversed(stored.lives) if life.pod == pod]
    return why(pod, lives[-NAMESAKES_MAX:], as_of_s=stored.at_s or None, notes=stored.notes)


async def why_of_api(
    transport: Reads, namespace: str, name: str, reason: str = _NOTHING, *, reads_events: bool = True
) -> Why:
    """Return what the conditions of a pod say, and its events if they may be read; *reason*: why that is shown.

    Raises:
        ApiError: the pod cannot be read.
    """
    pod = await cluster.fetch_pod(Calls(transport), namespace, name)
    events = await cluster.fetch_events(transport, pod) if reads_events else cluster.Events(())
    return why_by_api(pod, events.items, (f"{reason}; {_INSTEAD}", *filter(None, (events.unread,))))
