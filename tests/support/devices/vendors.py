"""Nodes and pods of HAMi's other vendors, by their declarations."""

import json
import pkgutil
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from random import Random
from typing import Any, Final

from core import hami_lock
from core.catalog import standard_catalog
from core.dialects import hami_vendors
from core.dialects.hami_vendors.dialect import VENDORS
from core.dialects.hami_vendors.table import VendorNames
from core.dialects.hami_vendors.vendor import Capacity, Register, Vendor
from core.model import Container, Node, NodeName, Pod, PodUid
from core.port.handoff import Progress
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


# What types of one maker may have in common: they sell the same cards.
_OF_A_MAKER: Final = frozenset({"section.key", "limits.select", "limits.select_too", "limits.types"})
_RESOURCE: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?", re.ASCII)
_FORMS: Final = {
    "name": (re.compile(r"[a-z][a-z0-9_]*", re.ASCII), "lower-case letters, digits and '_'"),
    "word": (re.compile(r"[^,:;\s]+"), "a word without ',', ':' and ';', which separate entries of an assignment"),
    **dict.fromkeys(("limits.count", "limits.memory", "limits.cores"), (_RESOURCE, "a name with a domain")),
    "handoff.accounts": (
        re.compile(r"system:serviceaccount:kube-system:[-a-z0-9.]+", re.ASCII),
        "'system:serviceaccount:kube-system:NAME'",
    ),
}


def mistakes(vendors: Sequence[Vendor]) -> Iterator[str]:
    """What of *vendors* is not in its form or belongs to another, whose cards it would count, and what no lock sees."""
    owners: dict[str, tuple[Vendor | None, str]] = {
        key: (None, f"a name of the dialect {one.name}")
        for one in standard_catalog().specs
        if not hasattr(one.port, "vendor")
        for names in (one.port.names(TABLES),)
        for key in names.resources | names.assignment_keys - hami_lock.KEYS
    }
    sections: dict[str, Vendor] = {}
    for vendor in vendors:
        for field, text in _said(vendor):
            form, told = _FORMS.get(field, (None, ""))
            if form is not None and not form.fullmatch(text):
                yield f"{vendor.name}: {field} is {text!r}; write {told}"
            if field == "handoff.accounts":
                continue
            other, its = owners.setdefault(text if "/" in text else f"{field} {text.lower()}", (vendor, field))
            if other is None or (other is vendor and its != field):
                yield f"{vendor.name}: {field} is {text!r}, which is {its} too; write another"
            elif other is not vendor and not (other.maker == vendor.maker and {field, its} <= _OF_A_MAKER):
                yield f"{vendor.name}: {field} is {text!r}, which is {its} of {other.name} too; write two"
        like = sections.setdefault(vendor.maker, vendor)
        if like.section.key != vendor.section.key:
            yield f"{vendor.name}: maker is that of {like.name}, which has another section; write two, or one section"
        if vendor.handoff.locks and not _is_seen(vendor):
            yield (
                f"{vendor.name}: handoff.to_allocate is {vendor.handoff.to_allocate!r}, by which core/hami_lock.py "
                "does not see that a pod waits; write 'hami.io/NAME-devices-to-allocate', or locks=False"
            )


def unlisted() -> Iterator[str]:
    """Files with vendors that are in no list."""
    for found in pkgutil.iter_modules(hami_vendors.__path__, f"{hami_vendors.__name__}."):
        module = import_module(found.name)
        if any(one not in VENDORS for one in getattr(module, "VENDORS", (getattr(module, "VENDOR", VENDORS[0]),))):
            yield f"{found.name}: add it to VENDORS in core/dialects/hami_vendors/dialect.py"


def _said(vendor: Vendor) -> Iterator[tuple[str, str]]:
    """(field, text) of all that tells *vendor* from others."""
    limits, source, handoff = vendor.limits, vendor.cards.source, vendor.handoff
    words = {"section.key": f"{vendor.section.key} {vendor.section.word} {vendor.section.names[0]}"}
    words |= {"name": vendor.name, "word": vendor.word}
    words |= {"limits.count": limits.count, "limits.memory": limits.memory, "limits.cores": limits.cores}
    words |= {"cards.source": source.key if isinstance(source, Register) else source.word}
    words |= {"handoff.allocated": handoff.allocated, "handoff.to_allocate": handoff.to_allocate}
    yield from ((field, text) for field, text in words.items() if text)
    lists = {"limits.select": limits.select, "limits.select_too": limits.select_too, "limits.types": limits.types}
    yield from ((field, key) for field, keys in lists.items() for key in keys if key)
    yield from (("handoff.accounts", one) for one in handoff.accounts)


def _is_seen(vendor: Vendor) -> bool:
    """Whether a pod is in flight until the plugin has erased its devices."""
    left, erasable = vendor.handoff.to_allocate, {vendor.handoff.to_allocate}
    notes = {hami_lock.BIND_PHASE: hami_lock.SUCCESS, left: "a,b,1,1:;", vendor.handoff.allocated: "a,b,1,1:;"}
    erasable |= {vendor.handoff.allocated} if vendor.handoff.counts_either else set()
    pod = Pod(uid=PodUid("p"), namespace="ns", name="p", containers=(), node_name=NodeName("n"), annotations=notes)
    seen = [hami_lock.in_flight(pod)]
    seen += [hami_lock.in_flight(pod._replace(annotations={**notes, key: ";"})) for key in sorted(erasable)]
    return [one.progress if one else None for one in seen] == [Progress.WAITING] + [Progress.DONE] * len(erasable)
