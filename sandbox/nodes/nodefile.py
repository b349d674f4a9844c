"""The nodes of the embedded cluster and their device plugins, as the demo and tests describe them.

A list of mappings, each ``{name, labels, annotations, capacity, allocatable, taints, images, plugin: {kind, ...}}``; a
node may have a list ``plugins`` instead. ``images`` are those of a node's status, each ``{names: [...],
sizeBytes: N}``. ``count: N`` with ``{i}`` in the name makes N nodes, and the number also replaces ``{i}`` in other
texts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec

from sandbox.api.quantities import canonical

# The defaults of a node: large enough that cards are the limit, not processors.
_DEFAULT_CAPACITY: Final = {"cpu": "64", "memory": "256Gi", "ephemeral-storage": "1000Gi", "pods": "110"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginSpec:
    """A device plugin of a node: its kind, and the options for that kind's player."""

    kind: str
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """One node to play."""

    name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    capacity: Mapping[str, str]
    allocatable: Mapping[str, str]
    taints: tuple[Mapping[str, Any], ...] = ()
    unschedulable: bool = False
    images: tuple[Mapping[str, Any], ...] = ()
    plugins: tuple[PluginSpec, ...] = ()


class _Image(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    names: tuple[str, ...]
    size_bytes: int


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A node, or several."""

    name: Annotated[str, msgspec.Meta(min_length=1)]
    count: Annotated[int, msgspec.Meta(ge=1)] = 1
    labels: dict[str, Any] | None = None
    annotations: dict[str, Any] | None = None
    capacity: dict[str, Any] | None = None
    allocatable: dict[str, Any] | None = None
    taints: tuple[dict[str, Any], ...] | None = None
    unschedulable: bool = False
    images: tuple[_Image, ...] | None = None
    plugin: dict[str, Any] | None = None
    plugins: tuple[dict[str, Any], ...] | None = None


def read(entries: Sequence[Mapping[str, Any]]) -> tuple[NodeSpec, ...]:
    """Return the nodes that *entries* describe.

    Raises:
        msgspec.ValidationError: an entry has an unknown key, or a value of another form.
    """
    return tuple(
        _node(msgspec.convert(_numbered(entry, i), _Entry))
        for entry in entries
        for i in range(msgspec.convert(entry, _Entry).count)
    )


def _numbered(value: Any, i: int) -> Any:
    if isinstance(value, str):
        return value.replace("{i}", str(i))
    if isinstance(value, Mapping):
        return {key: _numbered(inner, i) for key, inner in value.items()}
    if isinstance(value, list):
        return [_numbered(inner, i) for inner in value]
    return value


def _node(entry: _Entry) -> NodeSpec:
    capacity = {**_DEFAULT_CAPACITY, **_quantities(entry.capacity)}
    several = entry.plugins or ((entry.plugin,) if entry.plugin else ())
    return NodeSpec(
        name=entry.name,
        labels=_texts(entry.labels),
        annotations=_texts(entry.annotations),
        capacity=capacity,
        allocatable={**capacity, **_quantities(entry.allocatable)},
        taints=entry.taints or (),
        unschedulable=entry.unschedulable,
        images=tuple(msgspec.to_builtins(image) for image in entry.images or ()),
        plugins=tuple(
            PluginSpec(kind=plugin["kind"], options={key: value for key, value in plugin.items() if key != "kind"})
            for plugin in several
        ),
    )


def _texts(found: Mapping[str, Any] | None) -> dict[str, str]:
    return {str(key): str(value) for key, value in (found or {}).items()}


def _quantities(found: Mapping[str, Any] | None) -> dict[str, str]:
    return {name: canonical(text) for name, text in _texts(found).items()}
