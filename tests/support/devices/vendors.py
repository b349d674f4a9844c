"""Nodes and pods of HAMi's other vendors, by their declarations."""

import json
from random import Random
from typing import Any, Final

from core.catalog import standard_catalog
from core.dialects.hami_vendors.table import VendorNames
from core.dialects.hami_vendors.vendor import Capacity, Register, Vendor
from core.model import Container, Node, NodeName
from core.sharing.resources import Resources
from core.tables import Tables

PORTS: Final[tuple[Any, ...]] = tuple(one.port for one in standard_catalog().specs if hasattr(one.port, "vendor"))


# Where HAMi's configuration has all vendors, by the usual names.
TABLES: Final = Tables(sections=tuple(VendorNames(dialect=port.name) for port in PORTS))


def port_of(name: str) -> Any:
    """The dialect *name*."""
    return next(port for port in PORTS if port.name == name)


def card(vendor: Vendor, at: int, **fields: Any) -> dict[str, Any]:
    """One card of a register, with *fields* of its own."""
    usual = {"id": f"{vendor.word}-{at}", "index": at, "count": 4, "devmem": 32768, "devcore": 100, "numa": 0}
    return {**usual, "type": vendor.word, "health": True, **fields}


def register_of(vendor: Vendor, cards: list[dict[str, Any]]) -> str:
    """The register of *cards* in the vendor's form."""
    assert isinstance(vendor.source, Register)
    if vendor.source.has_json:
        return json.dumps(cards)
    keys = ("id", "count", "devmem", "devcore", "type", "numa", "health", "index")
    return "".join(f"{','.join(str(one[key]) for key in keys)},hami:".replace("True", "true") for one in cards)


def node_of(vendor: Vendor, cards: list[dict[str, Any]], name: str = "node-a") -> Node:
    """A node with *cards*; of those in its capacity there are as many, each with the memory of the first."""
    have, notes = {vendor.count: str(sum(one["count"] for one in cards))}, {}
    source = vendor.source
    if isinstance(source, Register):
        notes = {source.key: register_of(vendor, cards)}
    elif source.has_cores:
        units = cards[0]["devmem"] // vendor.mib_per_unit
        # No kubelet has their count.
        have = {vendor.cores: str(len(cards) * source.cores), vendor.memory: str(len(cards) * units)}
    else:
        have[vendor.count] = str(len(cards))
    return Node(name=NodeName(name), annotations=notes, allocatable=have, capacity=have)


def any_node(vendor: Vendor, chance: Random) -> Node:
    """A node with some cards, not all of them well."""
    like = chance.random() < 0.5
    cards: list[dict[str, Any]] = []
    for at in range(chance.randint(1, 5)):
        fields: dict[str, Any] = {"count": chance.choice((1, 2, 4)), "devmem": chance.choice((16384, 32768))}
        if vendor.by_share:
            fields["devcore"] = chance.choice((60, 104, 304))
        if vendor.group is not None:
            fields["custominfo"] = {"AIC": str(at // 2), "DeviceStrategy": "die"}
        first = {} if not cards or not like else {key: cards[0][key] for key in fields if key != "custominfo"}
        ill = isinstance(vendor.source, Register) and chance.random() < 0.15
        cards.append(card(vendor, at, **{**fields, **first}, numa=at // 2, health=not ill))
    return node_of(vendor, cards)


def any_container(vendor: Vendor, chance: Random, name: str) -> Container:
    """A container that asks for cards of *vendor* as it may."""
    number = chance.choice(vendor.counts or (1, 1, 1, 2, 3))
    limits = {vendor.count: number}
    is_whole = vendor.several_are_whole and number > 1
    if vendor.memory and not is_whole and (vendor.companions or chance.random() < 0.7):
        limits[vendor.memory] = chance.choice(vendor.steps or (1000, 4000, 9000, 16384)) // _unit(vendor)
    if vendor.cores and not is_whole and (vendor.companions or chance.random() < 0.5):
        limits[vendor.cores] = chance.choice((10, 50, 100)) * vendor.most_cores // 100
    return Container(name, limits={key: str(one) for key, one in limits.items()})


def _unit(vendor: Vendor) -> int:
    return 1 if vendor.steps else vendor.mib_per_unit


def resources(vendor: Vendor) -> Resources:
    """The usual names of its resources."""
    return vendor.named(VendorNames())


def has_capacity(vendor: Vendor) -> bool:
    """Whether its cards come from the capacity of the node."""
    return isinstance(vendor.source, Capacity)
