"""The file that defines the nodes of the embedded cluster and their device plugins.

Format: a list of mappings (or ``nodes:`` with that list), each ``{name, labels, annotations, capacity, allocatable,
taints, images, plugin: {kind, ...}}``; a node may have a list ``plugins`` instead. ``images`` are those of a node's
status, each ``{names: [...], sizeBytes: N}``. ``count: N`` with ``{i}`` in the name makes N nodes, and the number also
replaces ``{i}`` in other texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml

from sandbox.api.quantities import QuantityError, canonical

# The defaults of a node: large enough that cards are the limit, not processors.
_DEFAULT_CAPACITY: Final = {"cpu": "64", "memory": "256Gi", "ephemeral-storage": "1000Gi", "pods": "110"}
_KNOWN: Final = frozenset(
    {
        "name",
        "count",
        "labels",
        "annotations",
        "capacity",
        "allocatable",
        "taints",
        "unschedulable",
        "images",
        "plugin",
        "plugins",
    }
)


class NodeFileError(ValueError):
    """The node file is invalid; the text lists every problem."""


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


def read_text(text: str) -> tuple[NodeSpec, ...]:
    """Read a node file.

    Raises:
        NodeFileError: lists every problem.
    """
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as e:
        raise NodeFileError(f"the node file is no YAML: {e}") from e
    return read(found)


def read(found: Any) -> tuple[NodeSpec, ...]:
    """Read the parsed content of a node file.

    Raises:
        NodeFileError: lists every problem.
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
    if not isinstance(entry, Mapping):
        problems.append(f"{where}: found {entry!r}; write a mapping with at least 'name'")
        return []
    if unknown := sorted(str(key) for key in entry if key not in _KNOWN):
        problems.append(f"{where}: unknown {', '.join(unknown)}; known are {', '.join(sorted(_KNOWN))}")
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        problems.append(f"{where}: 'name' is missing")
        return []
    count = entry.get("count", 1)
    if not isinstance(count, int) or count < 1 or (count > 1 and "{i}" not in name):
        problems.append(f"{where}: count {count!r} needs a whole number above 0 and a name that holds '{{i}}'")
        return []
    return [_node(_numbered(entry, i), where, problems) for i in range(count)]


def _numbered(value: Any, i: int) -> Any:
    if isinstance(value, str):
        return value.replace("{i}", str(i))
    if isinstance(value, Mapping):
        return {key: _numbered(inner, i) for key, inner in value.items()}
    if isinstance(value, list):
        return [_numbered(inner, i) for inner in value]
    return value


def _node(entry: Mapping[str, Any], where: str, problems: list[str]) -> NodeSpec:
    capacity = {**_DEFAULT_CAPACITY, **_quantities(entry, "capacity", where, problems)}
    return NodeSpec(
        name=entry["name"],
        labels=_texts(entry, "labels", where, problems),
        annotations=_texts(entry, "annotations", where, problems),
        capacity=capacity,
        allocatable={**capacity, **_quantities(entry, "allocatable", where, problems)},
        taints=tuple(entry.get("taints") or ()),
        unschedulable=entry.get("unschedulable") is True,
        images=_images(entry, where, problems),
        plugins=_plugins(entry, where, problems),
    )


def _plugins(entry: Mapping[str, Any], where: str, problems: list[str]) -> tuple[PluginSpec, ...]:
    several = entry.get("plugins") or ([entry["plugin"]] if entry.get("plugin") else [])
    plugins = []
    for plugin in several:
        if not isinstance(plugin, Mapping) or not isinstance(plugin.get("kind"), str):
            problems.append(f"{where}: a plugin needs a 'kind' (found {plugin!r})")
            continue
        options = {key: value for key, value in plugin.items() if key != "kind"}
        plugins.append(PluginSpec(kind=plugin["kind"], options=options))
    return tuple(plugins)


def _images(entry: Mapping[str, Any], where: str, problems: list[str]) -> tuple[Mapping[str, Any], ...]:
    found = entry.get("images") or ()
    for image in found:
        known = isinstance(image, Mapping) and image.keys() == {"names", "sizeBytes"}
        if not known or not isinstance(image["names"], list) or not isinstance(image["sizeBytes"], int):
            problems.append(f"{where}: an image needs 'names', a list, and 'sizeBytes', a number (found {image!r})")
    return tuple(found)


def _texts(entry: Mapping[str, Any], field: str, where: str, problems: list[str]) -> dict[str, str]:
    found = entry.get(field) or {}
    if not isinstance(found, Mapping):
        problems.append(f"{where}: {field} must be a mapping")
        return {}
    return {str(key): value if isinstance(value, str) else str(value) for key, value in found.items()}


def _quantities(entry: Mapping[str, Any], field: str, where: str, problems: list[str]) -> dict[str, str]:
    read_quantities = {}
    for name, text in _texts(entry, field, where, problems).items():
        try:
            read_quantities[name] = canonical(text)
        except QuantityError as e:
            problems.append(f"{where}: {field}.{name}: found {text!r}: {e}")
    return read_quantities
