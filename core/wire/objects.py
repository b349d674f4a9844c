"""What objects of several kinds have in common, as far as it is read.

Source: Kubernetes API reference, meta/v1 ObjectMeta.
"""

from datetime import datetime
from typing import Annotated

import msgspec

Time = Annotated[datetime, msgspec.Meta(tz=True)]


class Presence(msgspec.Struct, frozen=True, gc=False):
    """An object of which only its presence matters."""


class Owner(msgspec.Struct, frozen=True, gc=False):
    """An owner reference."""

    kind: str = ""
    name: str = ""
    controller: bool | None = None


class HeadMeta(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Which object it is; namespace is "" for kinds without."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class Head(msgspec.Struct, frozen=True, gc=False):
    """What of an object is left where the rest cannot be read."""

    metadata: HeadMeta
