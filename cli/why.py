"""Fetches what happened to a pod: from the controller's record, or else from the pod's conditions and events."""

from __future__ import annotations

from typing import Final

from cli import cluster, controller
from cli.options import Controller
from cli.reads import Reads
from core.view.history import Why, why_by_api
from kube.calls import Calls

_INSTEAD: Final = "this is what the pod's conditions and events say, and events expire"
_NONE: Final = "--controller is missing"


async def fetch_why(transport: Reads, asked: Controller | None, namespace: str, name: str) -> Why:
    """Return what happened to the pods of that name; a note says why the controller did not answer.

    Raises:
        ApiError: the pod cannot be read, which is asked for only if the controller remembers nothing.
    """
    why = _NONE
    if asked is not None:
        try:
            found = await controller.ask_why(asked, namespace, name)
        except controller.NoAnswerError as e:
            why = str(e)
        else:
            if found.lives:
                return found
            why = "the controller remembers nothing of this pod"
    pod = await cluster.fetch_pod(Calls(transport), namespace, name)
    events = await cluster.fetch_events(transport, pod)
    return why_by_api(pod, events.items, (f"{why}; {_INSTEAD}", *filter(None, (events.unread,))))
