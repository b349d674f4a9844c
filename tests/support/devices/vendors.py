"""Nodes and pods of HAMi's other vendors, by their declarations."""

import json
import re
from dataclasses import replace
from random import Random
from typing import Any, Final

from core.catalog import standard_catalog
from core.dialects.hami_vendors.table import VendorNames
from core.dialects.hami_vendors.vendor import Capacity, Register, Vendor
from core.model import Container, Node, NodeName, Pod
from core.settings import Tables
from core.sharing.request import Resources

PORTS: Final[tuple[Any, ...]] = tuple(one.port for one in standard_catalog().specs if hasattr(one.port, "vendor"))


# Where HAMi's configuration has all vendors, by the usual names.
TABLES: Final = Tables(sections=tuple(VendorNames(dialect=port.name) for port in PORTS))


def port_of(name: str) -> Any:
    """The dialect *name*."""
    return next(port for port in PORTS if port.name == name)


def most_mib(vendor: Vendor) -> int:
    """The memory of a whole card."""
    return vendor.limits.steps[-1] * vendor.limits.mib_per_unit if vendor.limits.rounds_up else 32768


def card(vendor: Vendor, at: int, **fields: Any) -> dict[str, Any]:
    """One card of a register, with *fields* of its own."""
    usual = {"id": f"{vendor.word}-{at}", "type": vendor.word, "health": True, "index": at, "numa": 0}
    return {**usual, "count": 4, "devmem": most_mib(vendor), "devcore": 100, **fields}


_PROFILES: Final = {"1g.6gb": "0", "2g.12gb": "1", "4g.24gb": "3"}
# MetaX's names of fields, by HAMi's and those of `any_node`.
_SGPU_FIELDS: Final = {
    "id": "uuid",
    "count": "totalDevCount",
    "devmem": "totalVRam",
    "devcore": "totalCompute",
    "health": "healthy",
    "numa": "numa",
    "policy": "qosPolicy",
    "zone": "linkZone",
}


def register_of(vendor: Vendor, cards: list[dict[str, Any]]) -> str:
    """The register of *cards* in the vendor's form."""
    assert isinstance(vendor.cards.source, Register)
    if vendor.word == "Metax-SGPU":
        return json.dumps([{_SGPU_FIELDS[key]: one[key] for key in one if key in _SGPU_FIELDS} for one in cards])
    if vendor.cards.slices:
        devices = [
            {"index": str(one["index"]), "minor": str(one["index"] + 1), "capacity": one["count"]} for one in cards
        ]
        return json.dumps({"devices": devices, "profiles": cards[0].get("profiles", _PROFILES)})
    if vendor.cards.source.has_json:
        return json.dumps(cards)
    keys = ("id", "count", "devmem", "devcore", "type", "numa", "health", "index")
    return "".join(f"{','.join(str(one[key]) for key in keys)},hami:".replace("True", "true") for one in cards)


def node_of(vendor: Vendor, cards: list[dict[str, Any]], name: str = "node-a", instance: str = "inf2") -> Node:
    """A node with *cards*; of those in its capacity there are as many, each with the memory of the first.

    *instance* is its type, where vendors ask for that.
    """
    have, notes = {vendor.limits.count: str(sum(one["count"] for one in cards))}, {}
    source = vendor.cards.source
    labels = dict.fromkeys(source.labels, instance) if isinstance(source, Capacity) else {}
    if isinstance(source, Register):
        notes = {source.key: register_of(vendor, cards)}
    elif source.has_cores:
        units = cards[0]["devmem"] // vendor.limits.mib_per_unit
        # No kubelet has their count.
        have = {vendor.limits.cores: str(len(cards) * source.cores), vendor.limits.memory: str(len(cards) * units)}
    else:
        have[vendor.limits.count] = str(len(cards))
        if source.shares_cores:
            have[vendor.limits.cores] = str(2 * len(cards))
    return Node(name=NodeName(name), annotations=notes, labels=labels, allocatable=have, capacity=have)


def any_node(vendor: Vendor, chance: Random, ill: float = 0.15) -> Node:
    """A node with some cards, each of them *ill* with this probability; otherwise only *chance* says how it is."""
    like = chance.random() < 0.5
    cards: list[dict[str, Any]] = []
    most = most_mib(vendor)
    for at in range(chance.randint(1, max((5, *vendor.limits.counts)))):
        fields: dict[str, Any] = {"count": chance.choice((1, 2, 4)), "devmem": chance.choice((most // 2, most))}
        if vendor.cards.by_share:
            fields["devcore"] = chance.choice((60, 104, 304))
        if vendor.cards.policy is not None:
            fields |= {"policy": chance.choice(("", *_POLICIES)), "zone": chance.choice((0, 1, 1, 2))}
        elif vendor.cards.group is not None:
            fields["custominfo"] = {"AIC": str(at // 2), "DeviceStrategy": "die"}
        own = ("custominfo", "policy", "zone")
        first = {} if not cards or not like else {key: cards[0][key] for key in fields if key not in own}
        is_ill = chance.random() < ill and isinstance(vendor.cards.source, Register)
        cards.append(card(vendor, at, **{**fields, **first}, numa=at // 2, health=not is_ill))
    made = node_of(vendor, cards, instance=chance.choice(("inf2", "trn1")))
    keys = vendor.cards.source.notes if isinstance(vendor.cards.source, Capacity) else ()
    told = {key: json.dumps({str(at): chance.choice((0, 40, 400)) for at in range(1, 4)}) for key in keys}
    # Some nodes have no ratings of their links.
    return replace(made, annotations={**made.annotations, **told}) if chance.random() < 0.7 else made


def any_container(vendor: Vendor, chance: Random, name: str) -> Container:
    """A container that asks for cards of *vendor* as it may."""
    number = chance.choice(vendor.limits.counts or (1, 1, 1, 2, 3))
    if vendor.cards.slices:
        return Container(name, limits={vendor.limits.count: chance.choice("1124")})
    limits = {vendor.limits.count: number}
    if vendor.limits.asks is not None and chance.random() < 0.5:
        return Container(name, limits={vendor.limits.cores: str(chance.choice((1, 1, 2, 4)))})
    is_whole = vendor.limits.asks is not None or (vendor.limits.several_are_whole and number > 1)
    if vendor.limits.memory and not is_whole and (vendor.limits.companions or chance.random() < 0.7):
        limits[vendor.limits.memory] = chance.choice(vendor.limits.steps or (1000, 4000, 9000, 16384)) // _unit(vendor)
    if vendor.limits.cores and not is_whole and (vendor.limits.companions or chance.random() < 0.5):
        limits[vendor.limits.cores] = chance.choice((10, 50, 100)) * vendor.limits.most_cores // 100
    return Container(name, limits={key: str(one) for key, one in limits.items()})


_POLICIES: Final = ("best-effort", "fixed-share", "burst-share")


def any_notes(vendor: Vendor, chance: Random, *, alone: bool) -> dict[str, str]:
    """What a pod of *vendor* may say besides; *alone*: its containers ask for one card each."""
    if vendor.cards.policy is None:
        return {}
    found = {"metax-tech.com/sgpu-qos-policy": chance.choice(_POLICIES)} if chance.random() < 0.8 else {}
    if chance.random() < 0.3:
        found["metax-tech.com/sgpu-topology-aware"] = "true"
    if alone and chance.random() < 0.5:
        found["metax-tech.com/sgpu-app-class"] = chance.choice(("online", "offline"))
    return found


def _unit(vendor: Vendor) -> int:
    return 1 if vendor.limits.steps else vendor.limits.mib_per_unit


def resources(vendor: Vendor) -> Resources:
    """The usual names of its resources."""
    return vendor.named(VendorNames())


_PART = re.compile(
    r"(?:at most )?(\d+) (\S+)(?: of (memory|cores))?(?: \(\d+ MiB\))?"
    r"(?: in one container| in each container(?: with cores)?)?"
)


def lowered(vendor: Vendor, pod: Pod, words: str) -> Pod:
    """*pod*, of which no container asks for more than *words* say, in the units of manifests."""
    containers = list(pod.containers)
    for part in re.split(r", | and ", words):
        found = _PART.fullmatch(part)
        assert found is not None, words
        key = {"memory": vendor.limits.memory, "cores": vendor.limits.cores}.get(found[3], vendor.limits.count)
        if vendor.limits.asks is not None:
            # Whoever asks by cores is told so many.
            key = vendor.limits.cores if found[2].startswith("core") else vendor.limits.count
            assert any(key in one.limits for one in containers), words
        # MetaX's figures without a suffix are GiB.
        scale, suffix = (
            (1024, "Mi") if key == vendor.limits.memory and vendor.limits.memory_mib is not None else (1, "")
        )
        for at, one in enumerate(containers):
            # What is absent, or 0 of memory, is all of a card, except of AWS.
            asked = scale * int(one.limits.get(key, "0"))
            if (not asked and vendor.limits.asks is None) or asked > int(found[1]):
                limits = {**one.limits, key: f"{found[1]}{suffix}"}
                containers[at] = one._replace(limits=limits, requests=limits)
    return pod._replace(containers=tuple(containers))
