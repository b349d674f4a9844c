"""Pods that `core.wire.pods` cannot read: the remaining fields by which they are counted."""

from collections.abc import Collection
from typing import Final

import msgspec

from core.model import Container, Phase, Pod, PodUid
from core.wire import reading
from core.wire.pods import PHASES


class _HeadMeta(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    # Unlike other objects, a pod is identified by its uid; without one it cannot be counted.
    name: str
    uid: str
    namespace: str = ""
    resource_version: str = ""


class _HeadSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    node_name: str | None = ""


class _HeadStatus(msgspec.Struct, frozen=True, gc=False):
    phase: str | None = ""


class _Head(msgspec.Struct, frozen=True, gc=False):
    """The readable part of a pod whose other fields are unreadable."""

    metadata: _HeadMeta
    spec: _HeadSpec | None = None
    status: _HeadStatus | None = None


_decode_head: Final = reading.reader("pod", _Head, lambda found: found)


def salvage_pod(text: bytes, resources: Collection[str]) -> Pod:
    """Return a pod that `decode_pod` cannot read: its identity, its node, and which of *resources* it mentions.

    It is never placed; on its node it counts as a pod with unknown cards.

    Raises:
        InvalidRequestError: even these are unreadable.
    """
    head = _decode_head(text)
    spec, status = head.spec or _HeadSpec(), head.status or _HeadStatus()
    named = {resource: "1" for resource in resources if resource.encode() in text}
    return Pod(
        uid=PodUid(head.metadata.uid),
        namespace=head.metadata.namespace,
        name=head.metadata.name,
        resource_version=head.metadata.resource_version,
        node_name=spec.node_name or "",
        phase=PHASES.get(status.phase or "", Phase.PENDING),
        containers=(Container(name="", limits=named),) if named else (),
    )
