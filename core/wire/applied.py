"""The manifest of the last `kubectl apply`, which kubectl stores on the object."""

from collections.abc import Mapping
from typing import Final

import msgspec

from core.wire import reading

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


class _Meta(msgspec.Struct, frozen=True, gc=False):
    annotations: dict[str, str] | None = None


class _Applied(msgspec.Struct, frozen=True, gc=False):
    metadata: _Meta = _Meta()


_decoder: Final = msgspec.json.Decoder(_Applied)


def applied_annotations(annotations: Mapping[str, str]) -> Mapping[str, str]:
    """Return the annotations of the last applied manifest; {} if it is missing or unreadable."""
    try:
        return _decoder.decode(annotations.get(LAST_APPLIED, "{}")).metadata.annotations or {}
    except reading.DECODE_ERRORS:
        return {}
