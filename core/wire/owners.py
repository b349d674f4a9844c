"""What the owner of pods asks of their group: the API server's JSON of a ReplicaSet, a Job or the like to a number."""

from typing import Final

import msgspec

from core.groups import MIN_MEMBER
from core.units import parse_int64
from core.wire import reading


class _Meta(msgspec.Struct, frozen=True, gc=False):
    annotations: dict[str, str] | None = None


class _Object(msgspec.Struct, frozen=True, gc=False):
    """Source: Kubernetes API reference, meta/v1 ObjectMeta."""

    metadata: _Meta = _Meta()


def _min_member(found: _Object) -> int:
    """How many pods are placed together; 0 if that is not said, or is no number, as in Volcano (groups 3)."""
    return max(parse_int64((found.metadata.annotations or {}).get(MIN_MEMBER, "")) or 0, 0)


decode_min_member: Final = reading.reader("owner", _Object, _min_member)
