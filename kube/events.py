"""Builds core/v1 Events; every process that writes events uses this form."""

import hashlib
from typing import Any, Final, NamedTuple

from core.units import time_text
from kube.errors import printable

_COMPONENT: Final = "cardshare"
_MESSAGE_MAX: Final = 1024
_NAME_MAX: Final = 200


class About(NamedTuple):
    """The object of an event; namespace is "" if it has none."""

    kind: str
    name: str
    uid: str
    namespace: str
    api_version: str = "v1"


class EventBody(NamedTuple):
    """The content of an event: a reason for machines, a message for people, and the reporting process."""

    reason: str
    message: str
    warning: bool
    instance: str


def event(about: About, body: EventBody, *, name: str, namespace: str, at_s: float, count: int = 1) -> dict[str, Any]:
    """Return the body of event *name* in *namespace*, which happened *count* times, last at *at_s* (Unix seconds)."""
    now = time_text(at_s)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace},
        "involvedObject": {
            "apiVersion": about.api_version,
            "kind": about.kind,
            "name": about.name,
            "namespace": about.namespace,
            "uid": about.uid,
        },
        "type": "Warning" if body.warning else "Normal",
        "reason": body.reason,
        "message": message_text(body.message),
        "source": {"component": _COMPONENT},
        "reportingComponent": _COMPONENT,
        "reportingInstance": body.instance,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": count,
    }


def event_name(about: str, *parts: str) -> str:
    """Return a name for an event on the object *about*: the same for equal *parts*, also after a restart."""
    digest = hashlib.blake2s("\n".join(parts).encode(), digest_size=8).hexdigest()
    return f"{about[:_NAME_MAX].rstrip('.-')}.{digest}"


def message_text(text: str) -> str:
    """Return *text* in the form that an event's message allows."""
    return printable(text, _MESSAGE_MAX)
