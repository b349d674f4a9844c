"""What HAMi's scheduler writes of the devices of a pod besides their amounts: MIG instances, and templates of NPUs.

Source: protocol reference, hami 1.9, ascend 1.6.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Final, NamedTuple

import msgspec

from core.names import MAX_POD_ANNOTATION_BYTES
from core.wire.reading import DECODE_ERRORS

_MAX_SLICES: Final = 64
_Index = Annotated[int, msgspec.Meta(ge=0)]
_Name = Annotated[str, msgspec.Meta(min_length=1)]


class Instance(NamedTuple):
    """A profile of a card for one device of a container; start, size: its place, in slices."""

    container: int
    device: int
    uuid: str
    profile: str
    start: int
    size: int


class _Placement(msgspec.Struct, frozen=True, gc=False):
    start: _Index
    size: Annotated[int, msgspec.Meta(gt=0)]


class _Reserved(msgspec.Struct, frozen=True):
    """The last three are the plugin's: it writes all of them once it has made the instance."""

    container: _Index = msgspec.field(name="containerIndex")
    device: _Index = msgspec.field(name="deviceIndex")
    uuid: _Name = msgspec.field(name="gpuUUID")
    profile: _Name
    placement: _Placement
    mig_uuid: object = msgspec.field(name="migUUID", default=msgspec.UNSET)
    gpu_instance: object = msgspec.field(name="gpuInstanceID", default=msgspec.UNSET)
    compute_instance: object = msgspec.field(name="computeInstanceID", default=msgspec.UNSET)


class _Cut(msgspec.Struct, frozen=True, gc=False):
    uuid: str = msgspec.field(name="UUID", default="")
    template: str = msgspec.field(name="temp", default="")


_cuts_decoder: Final = msgspec.json.Decoder(list[_Cut] | None)
_decoder: Final = msgspec.json.Decoder(list[_Reserved] | None)


def decode(text: str) -> Mapping[tuple[int, int], Instance] | None:
    """Read reservations by container and device; None where anything of them cannot be read."""
    if len(text) > MAX_POD_ANNOTATION_BYTES:
        return None
    try:
        found = _decoder.decode(text) or ()
    except DECODE_ERRORS:
        return None
    read: dict[tuple[int, int], Instance] = {}
    for one in found:
        at, (start, size) = (one.container, one.device), (one.placement.start, one.placement.size)
        made = [field is not msgspec.UNSET for field in (one.mig_uuid, one.gpu_instance, one.compute_instance)]
        if at in read or start + size > _MAX_SLICES or any(made) != all(made):
            return None
        read[at] = Instance(*at, one.uuid, one.profile, start, size)
    return read


def encode(instances: Iterable[Instance]) -> str:
    """Write what the plugin must make."""
    found = [
        _Reserved(one.container, one.device, one.uuid, one.profile, _Placement(one.start, one.size))
        for one in instances
    ]
    return msgspec.json.encode(found).decode()


def templates(text: str) -> Mapping[str, str]:
    """Read the template that each device is cut by, by its UUID, as the plugin does: the last one counts (ascend 2.2).

    It is empty if anything cannot be read.
    """
    if not 0 < len(text) <= MAX_POD_ANNOTATION_BYTES:
        return {}
    try:
        found = _cuts_decoder.decode(text) or ()
    except DECODE_ERRORS:
        return {}
    return {one.uuid: one.template for one in found}
