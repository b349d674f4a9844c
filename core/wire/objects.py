"""Common fields of objects of several kinds.

Source: Kubernetes API reference, meta/v1 ObjectMeta.
"""

from datetime import datetime
from typing import Annotated

import msgspec

Time = Annotated[datetime, msgspec.Meta(tz=True)]


class Presence(msgspec.Struct, frozen=True, gc=False):
    """An object whose content is not read."""


class Owner(msgspec.Struct, frozen=True, gc=False):
    """An owner reference."""

    kind: str = ""
    name: str = ""
    controller: bool | None = None


class HeadMeta(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The identity of an object; namespace is "" for cluster-scoped kinds."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class Head(msgspec.Struct, frozen=True, gc=False):
    """The identity of an object whose other fields are unreadable."""

    metadata: HeadMeta
