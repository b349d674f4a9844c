"""Namespaces: from the API server's JSON to their labels, by which pods select pods of other namespaces."""

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from core.wire import reading


class Namespace(NamedTuple):
    """One namespace with its labels."""

    name: str
    labels: Mapping[str, str]


class _Meta(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    labels: dict[str, str] | None = None


class NamespaceObject(msgspec.Struct, frozen=True, gc=False):
    """The fields of a Namespace that are read. Source: Kubernetes API reference, core/v1 Namespace."""

    metadata: _Meta = _Meta()


def namespace_of(found: NamespaceObject) -> Namespace:
    """Return the value of a decoded Namespace."""
    return Namespace(found.metadata.name, reading.labels(found.metadata.labels))


decode_namespace: Final = reading.reader("Namespace", NamespaceObject, namespace_of)
