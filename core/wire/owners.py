"""The group size in the owner of pods: from the API server's JSON of a ReplicaSet, a Job or the like to a number."""

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
    """Return how many pods are placed together; 0 if absent or not a number, as in Volcano (groups 3)."""
    return max(parse_int64((found.metadata.annotations or {}).get(MIN_MEMBER, "")) or 0, 0)


decode_min_member: Final = reading.reader("owner", _Object, _min_member)
