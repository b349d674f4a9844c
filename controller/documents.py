"""What ConfigMaps say of nodes: each node's texts, and which nodes a change concerns.

Where they are, and how they are read, say the dialects (`core.port.spec.NodeDocuments`).
"""

from collections.abc import Iterable, Mapping
from typing import Final

import structlog

from core.catalog import Catalog
from core.errors import InvalidRequestError
from core.model import NodeName
from core.port.spec import NodeDocuments, Place
from core.wire.config_maps import ConfigMap

_log: Final = structlog.get_logger()

_NOTHING: Final[Mapping[str, str]] = {}


def places(catalog: Catalog) -> tuple[Place, ...]:
    """Where ConfigMaps speak of nodes."""
    return tuple(place for one in catalog.documents for place in one.places)


class Documents:
    """The texts of every node, by place and ConfigMap, so that what vanishes is dropped."""

    def __init__(self, catalog: Catalog) -> None:
        self._sources: Final = {place: one for one in catalog.documents for place in one.places}
        # Place -> ConfigMap -> node -> document -> text.
        self._said: dict[Place, dict[str, dict[NodeName, dict[str, str]]]] = {}

    def of(self, node: NodeName) -> Mapping[str, str]:
        """The documents of *node*, by name; of one that is there twice, the one read first counts."""
        found: dict[str, str] = {}
        for maps in self._said.values():
            for nodes in maps.values():
                found = {**nodes.get(node, _NOTHING), **found}
        return found

    def replace(self, place: Place, maps: Iterable[ConfigMap]) -> set[NodeName]:
        """These ConfigMaps, and no others, are at *place*; the nodes of which something else is said now."""
        before = self._said.get(place, {})
        now = {one.name: said for one in maps if (said := _said(self._sources[place], one))}
        self._said[place] = now
        changed: set[NodeName] = set()
        for name in before.keys() | now.keys():
            changed |= _differ(before.get(name, {}), now.get(name, {}))
        return changed

    def change(self, place: Place, found: ConfigMap, *, gone: bool) -> set[NodeName]:
        """One ConfigMap at *place* appeared, changed, or is *gone*; the nodes of which something else is said now."""
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
        _log.warning("a ConfigMap that speaks of nodes cannot be read", namespace=found.namespace, reason=str(e))
    return said


def _differ(before: Mapping[NodeName, Mapping[str, str]], now: Mapping[NodeName, Mapping[str, str]]) -> set[NodeName]:
    return {node for node in before.keys() | now.keys() if before.get(node) != now.get(node)}
