"""Catalogs of some dialects only."""

from core.catalog import Catalog
from core.port.dialect import AnyDialect
from core.port.spec import DialectSpec


def catalog_of(*ports: AnyDialect) -> Catalog:
    """These dialects, which sell the same cards; nothing else is known of them."""
    return Catalog(tuple(DialectSpec(port=port, cards="some") for port in ports))
