"""The file that defines the nodes of the embedded cluster and their device plugins.

Format: a list of mappings (or ``nodes:`` with that list), each ``{name, labels, annotations, capacity, allocatable,
taints, images, plugin: {kind, ...}}``; a node may have a list ``plugins`` instead. ``images`` are those of a node's
status, each ``{names: [...], sizeBytes: N}``. ``count: N`` with ``{i}`` in the name makes N nodes, and the number also
replaces ``{i}`` in other texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec
import yaml

from sandbox.api.quantities import QuantityError, canonical

# The defaults of a node: large enough that cards are the limit, not processors.
_DEFAULT_CAPACITY: Final = {"cpu": "64", "memory": "256Gi", "ephemeral-storage": "1000Gi", "pods": "110"}


class NodeFileError(ValueError):
    """The node file is invalid; the text names a problem of each wrong node."""


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
    """A node, or several, in the file."""

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


def read_text(text: str) -> tuple[NodeSpec, ...]:
    """Read a node file.

    Raises:
        NodeFileError: names a problem of each wrong node.
    """
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as e:
        raise NodeFileError(f"the node file is no YAML: {e}") from e
    return read(found)


def read(found: Any) -> tuple[NodeSpec, ...]:
    """Read the parsed content of a node file.

    Raises:
        NodeFileError: names a problem of each wrong node.
    """
    entries = found.get("nodes") if isinstance(found, Mapping) else found
    if not isinstance(entries, list):
        raise NodeFileError("the node file must be a list of nodes, or have one under 'nodes'")
    problems: list[str] = []
    nodes = [node for i, entry in enumerate(entries) for node in _expand(entry, f"node {i + 1}", problems)]
    names = [node.name for node in nodes]
    problems += [
        f"node {name!r} is named twice; names must differ" for name in {n for n in names if names.count(n) > 1}
    ]
    if problems:
        raise NodeFileError("; ".join(problems))
    return tuple(nodes)


def _expand(entry: Any, where: str, problems: list[str]) -> list[NodeSpec]:
    try:
        found = msgspec.convert(entry, _Entry)
        if found.count > 1 and "{i}" not in found.name:
            raise NodeFileError(f"count {found.count} needs a name that has '{{i}}'")
        return [_node(msgspec.convert(_numbered(entry, i), _Entry)) for i in range(found.count)]
    except msgspec.ValidationError as e:
        problems.append(f"{where}: {e}; a node may have {', '.join(_Entry.__struct_fields__)}")
    except NodeFileError as e:
        problems.append(f"{where}: {e}")
    return []


def _numbered(value: Any, i: int) -> Any:
    if isinstance(value, str):
        return value.replace("{i}", str(i))
    if isinstance(value, Mapping):
        return {key: _numbered(inner, i) for key, inner in value.items()}
    if isinstance(value, list):
        return [_numbered(inner, i) for inner in value]
    return value


def _node(entry: _Entry) -> NodeSpec:
    capacity = {**_DEFAULT_CAPACITY, **_quantities("capacity", entry.capacity)}
    several = entry.plugins or ((entry.plugin,) if entry.plugin else ())
    if not all(isinstance(plugin.get("kind"), str) for plugin in several):
        raise NodeFileError("a plugin needs a 'kind'")
    return NodeSpec(
        name=entry.name,
        labels=_texts(entry.labels),
        annotations=_texts(entry.annotations),
        capacity=capacity,
        allocatable={**capacity, **_quantities("allocatable", entry.allocatable)},
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


def _quantities(field: str, found: Mapping[str, Any] | None) -> dict[str, str]:
    read_quantities = {}
    for name, text in _texts(found).items():
        try:
            read_quantities[name] = canonical(text)
        except QuantityError as e:
            raise NodeFileError(f"{field}.{name}: found {text!r}: {e}") from e
    return read_quantities
