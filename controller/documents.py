"""Documents about nodes in ConfigMaps: the texts for each node, and the nodes that a change affects.

The dialects define where they are and how they are read (`core.port.spec.NodeDocuments`).
"""

from collections.abc import Iterable, Mapping
from typing import Final

import structlog

from core.catalog import Catalog
from core.errors import InvalidRequestError
from core.model import NodeName
from core.port.spec import ConfigMapPlace, NodeDocuments
from core.wire.config_maps import ConfigMap

_log: Final = structlog.get_logger()

_NOTHING: Final[Mapping[str, str]] = {}


def places(catalog: Catalog) -> tuple[ConfigMapPlace, ...]:
    """Return the places of ConfigMaps about nodes."""
    return tuple(place for one in catalog.documents for place in one.places)


class Documents:
    """The texts of every node, by place and ConfigMap, so that texts of removed ConfigMaps are dropped."""

    def __init__(self, catalog: Catalog) -> None:
        self._sources: Final = {place: one for one in catalog.documents for place in one.places}
        # Place -> ConfigMap -> node -> document -> text.
        self._said: dict[ConfigMapPlace, dict[str, dict[NodeName, dict[str, str]]]] = {}

    def of(self, node: NodeName) -> Mapping[str, str]:
        """Return the documents of *node* by name; if one exists twice, the first one read counts."""
        found: dict[str, str] = {}
        for maps in self._said.values():
            for nodes in maps.values():
                found = {**nodes.get(node, _NOTHING), **found}
        return found

    def replace(self, place: ConfigMapPlace, maps: Iterable[ConfigMap]) -> set[NodeName]:
        """Replace all ConfigMaps at *place*; return the nodes whose documents changed."""
        before = self._said.get(place, {})
        now = {one.name: said for one in maps if (said := _said(self._sources[place], one))}
        self._said[place] = now
        changed: set[NodeName] = set()
        for name in before.keys() | now.keys():
            changed |= _differ(before.get(name, {}), now.get(name, {}))
        return changed

    def change(self, place: ConfigMapPlace, found: ConfigMap, *, gone: bool) -> set[NodeName]:
        """Add, change or (*gone*) remove one ConfigMap at *place*; return the nodes whose documents changed."""
        maps = self._said.setdefault(place, {})
        before = maps.pop(found.name, {})
        now = {} if gone else _said(self._sources[place], found)
        if now:
            maps[found.name] = now
        return _differ(before, now)


def _said(source: NodeDocuments, found: ConfigMap) -> dict[NodeName, dict[str, str]]:
    said: dict[NodeName, dict[str, str]] = {}
    try:
        for node, document, text in source.read(found.name, found.texts):
            said.setdefault(NodeName(node), {})[document] = text
    except InvalidRequestError as e:
        _log.warning("a ConfigMap with node data cannot be read", namespace=found.namespace, reason=str(e))
    return said


def _differ(before: Mapping[NodeName, Mapping[str, str]], now: Mapping[NodeName, Mapping[str, str]]) -> set[NodeName]:
    return {node for node in before.keys() | now.keys() if before.get(node) != now.get(node)}
