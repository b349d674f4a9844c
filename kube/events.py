"""core/v1 events as they are written: one form for everybody who tells users of an object."""

import hashlib
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from kube.errors import printable

_COMPONENT: Final = "cardshare"
_MESSAGE_MAX: Final = 1024
_NAME_MAX: Final = 200


class About(NamedTuple):
    """The object that an event is about; namespace "" where it has none."""

    kind: str
    name: str
    uid: str
    namespace: str
    api_version: str = "v1"


class EventBody(NamedTuple):
    """What an event says: a word for machines and a sentence for people, by which process."""

    reason: str
    message: str
    warning: bool
    instance: str


def event(about: About, body: EventBody, *, name: str, namespace: str, at_s: float, count: int = 1) -> dict[str, Any]:
    """The body of an event *name* in *namespace*, which happened *count* times up to *at_s*."""
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
    """A name for an event about the object *about*: the same for the same *parts*, also after a restart."""
    digest = hashlib.blake2s("\n".join(parts).encode(), digest_size=8).hexdigest()
    return f"{about[:_NAME_MAX].rstrip('.-')}.{digest}"


def message_text(text: str) -> str:
    """*text* as an event may have it."""
    return printable(text, _MESSAGE_MAX)


def time_text(at_s: float) -> str:
    """Unix seconds as an event has them."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
