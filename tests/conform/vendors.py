"""Conformance of HAMi's other vendors: registers, requests, placements, assignments, each by its declaration.

A record without a defect must be answered as upstream answered it, in the form that is required (one segment per
container, only types that the pod asked for). Of every answer it is demanded that no card is overcommitted, that what
is held is what was placed, and that a refusal has reasons. Nothing else is asked where the record's defect, or a rule
that is told from its input, says that upstream decides wrongly: figures and words that must be refused, types that are
matched inside a word, quotas, and which node is best.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from core import hami_lock
from core.catalog import standard_catalog
from core.dialects.hami_vendors import cards as _cards
from core.dialects.hami_vendors import requests
from core.dialects.hami_vendors.vendor import Capacity, Register, Vendor
from core.model import Container, Node, NodeName, Pod
from core.port.cards import Offer
from core.port.handoff import Stamp
from core.selection import CardSelection, decode_types
from core.settings import Policy
from core.sharing import order, wishes
from core.sharing.card import Card
from core.sharing.request import Request
from core.sharing.wire import decode_segments, wire_text
from core.units import MAX_INT32
from core.wire.entries import Unread, Written
from tests.conform.records import Record, demand, encoded, filled, node_of, pod_of, same
from tests.support.devices.vendors import TABLES

_TABLES: Final = TABLES
_PORTS: Final[Mapping[str, Any]] = {
    one.port.vendor.word: one.port for one in standard_catalog().specs if hasattr(one.port, "vendor")
}
# The types of each vendor's records.
TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "amd": ("AMD",),
    "biren": ("Biren",),
    "cambricon": ("MLU",),
    "hygon": ("DCU",),
    "mthreads": ("Mthreads",),
    "vastai": ("Vastai",),
    "iluvatar": ("MR-V100", "MR-V50", "BI-V150", "BI-V100"),
}


def _ports(record: Record) -> Iterator[Any]:
    for word in TYPES[record.input["vendor"]]:
        yield _PORTS[word]


# ---------------------------------------------------------------------- registers


def check_register(record: Record) -> None:
    """``register``: the cards of a node; a bad one closes itself alone (HN-16)."""
    node = node_of(record.input["node"])
    for port in _ports(record):
        vendor: Vendor = port.vendor
        found = _cards.read(vendor, port.named(_TABLES), node)
        told = record.output["types"].get(vendor.word, {})
        wanted = _in_order(vendor, node, told.get("devices") or [])
        cards = found.cards if isinstance(found, Offer) else ()
        if any(card.fixed.problem and not card.fixed.label for card in cards):
            lenient = any(not 0 <= one[key] <= MAX_INT32 for one in wanted for key in _FIGURES)
            lenient = lenient or not all(one["id"] and vendor.word in one["type"] for one in wanted)
            demand(bool(record.defects) or not wanted or lenient, "a card that upstream reads is closed")
        elif not record.defects:
            keys = _PLAIN if vendor.whole is None else (*_PLAIN[:4],)
            ours = sorted((_plain(card, keys) for card in cards), key=_at)
            same(f"{vendor.word} devices", ours, sorted(({key: one[key] for key in keys} for one in wanted), key=_at))


def _in_order(vendor: Vendor, node: Node, wanted: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """*wanted*, where a register of 7 fields tells no index: its order is the index's."""
    source = vendor.source
    if not isinstance(source, Register) or source.has_json:
        return wanted
    pieces = [piece for piece in node.annotations.get(source.key, "").split(":") if "," in piece]
    return [
        {**one, "index": at} if piece.count(",") == 6 else one
        for at, (one, piece) in enumerate(zip(wanted, pieces, strict=False))
    ]


_FIGURES: Final = ("index", "count", "mem", "cores")


def _at(one: Mapping[str, Any]) -> tuple[int, str]:
    return one["index"], one["id"]


_PLAIN: Final = ("id", "index", "numa", "type", "count", "mem", "cores")


def _plain(card: Card, keys: tuple[str, ...]) -> dict[str, Any]:
    fixed = card.fixed
    figures = (fixed.uuid, fixed.position, fixed.numa, fixed.label, fixed.slots, fixed.memory, fixed.cores)
    found = dict(zip(_PLAIN, figures, strict=True))
    return {key: found[key] for key in keys}


# ---------------------------------------------------------------------- requests


def check_requests(record: Record) -> None:
    """``requests``: what a pod asks as it is."""
    pod = pod_of(record.input["pod"])
    for port in _ports(record):
        found = requests.readable_request(port.vendor, port.named(_TABLES), pod)
        if isinstance(found, tuple) and not isinstance(found, Request):
            demand(_is_refusable(port, pod) or not record.reachable, "a pod that upstream reads is refused")
            continue
        if record.defects or not record.reachable:
            continue
        wanted = [one and one.get(port.vendor.word) for one in record.output["requests_without_webhook"]]
        ours: list[Any] = [None] * (len(pod.init_containers) + len(pod.containers))
        for ask in found.asks if found is not None else ():
            ours[ask.container] = {"nums": ask.number, "mem": ask.memory, "cores": ask.cores}
        keys = ("nums", "mem", "cores") if port.vendor.whole is None else ("nums",)
        ours = [one and {key: one[key] for key in keys} for one in ours]
        # More than all cores of a card are all of them.
        most = {"cores": port.vendor.most_cores}
        expected = [one and {key: min(one[key], most.get(key, one[key])) for key in keys} for one in wanted]
        same(f"{port.vendor.word} requests", ours, expected)


def _is_refusable(port: Any, pod: Pod) -> bool:
    """Whether *pod* has a figure or a word that must be refused."""
    named = port.named(_TABLES)
    for one in (*pod.init_containers, *pod.containers):
        if any(not _is_figure(port, one, key) for key in (named.cards, *named.parts)):
            return True
    known = ((wishes.CARD_POLICY, order.CARD_WORDS), (wishes.NODE_POLICY, order.NODE_WORDS))
    for key, words in known:
        items = [item.strip() for item in pod.annotations.get(key, "").split(",")]
        if any(item and item not in words for item in items):
            return True
    return wishes.WEIGHTS in pod.annotations


def _is_figure(port: Any, one: Container, key: str) -> bool:
    text, named = one.amount(key), port.named(_TABLES)
    if text is None:
        return True
    least, most = 0, MAX_INT32
    if key == named.cores:
        least, most = port.vendor.least_cores, port.vendor.most_cores
        if port.vendor.several_are_whole and (one.amount(named.cards) or "").isdigit():
            most *= int(one.amount(named.cards) or "1")
    elif key == named.memory:
        most = MAX_INT32 // named.mib_per_unit
    scales = {"k": 1000, "M": 10**6, "G": 10**9, "Ki": 1024, "Mi": 2**20, "Gi": 2**30}
    suffix = next((one for one in sorted(scales, key=len, reverse=True) if text.endswith(one)), "")
    digits = text.removesuffix(suffix)
    return digits.isdigit() and least <= int(digits) * scales.get(suffix, 1) <= most


# ---------------------------------------------------------------------- placements


def check_place(record: Record) -> None:
    """``place``, ``annotations``: which cards a pod gets on each node, and what is written."""
    given, out = record.input, record.output
    whole = pod_of(given["pod"])
    asked = [port for port in _ports(record) if requests.readable_request(port.vendor, port.named(_TABLES), whole)]
    if not out.get("has_request", True):
        demand(not asked or any(_is_refusable(port, whole) for port in asked), "a request is seen where there is none")
        return
    if len(asked) != 1:
        demand(len(asked) > 1 or bool(record.defects), "no request is seen")
        return
    (port,) = asked
    pod, policy = _with_policy(given["pod"], given.get("gpu_policy", "spread"))
    request = requests.readable_request(port.vendor, port.named(_TABLES), pod)
    if not isinstance(request, Request):
        demand(_is_refusable(port, pod), "a pod that upstream reads is refused")
        return
    for node in given["nodes"]:
        answered = _Answered(record, port, node, pod, request, policy)
        answered.check_properties()
        if not record.defects - _TOLD_BY_TEXT:
            answered.check_place()
            answered.check_usage()


# Defects that change the positions of segments, or of keys, and nothing else: the cards are upstream's.
_TOLD_BY_TEXT: Final = frozenset({"VN-1", "VN-2", "VN-3"})


def _with_policy(found: Mapping[str, Any], word: str) -> tuple[Pod, Policy]:
    """(the pod, with a policy of HAMi's scheduler that is none of our settings' on it; the policy of the settings)."""
    pod = pod_of(found)
    if word in (order.BINPACK, order.SPREAD):
        return pod, Policy(word)
    annotations = dict(found["metadata"].get("annotations", {}))
    if not annotations.get(wishes.CARD_POLICY):
        annotations[wishes.CARD_POLICY] = word
    return pod_of(found, annotations=annotations), Policy.SPREAD


class _Answered:
    """One node of a record, and our answer for it."""

    def __init__(
        self, record: Record, port: Any, node: Mapping[str, Any], pod: Pod, asked: Request, policy: Policy
    ) -> None:
        self.record, self.port, self.pod, self.asked = record, port, pod, asked
        self.name, self.node = node["metadata"]["name"], node_of(node)
        found = _cards.read(port.vendor, port.named(_TABLES), node_of(node))
        self.empty = found.cards if isinstance(found, Offer) else ()
        self.closed = False
        self.cards = self._used()
        self.placed = None
        if self.cards and not self.closed:
            self.placed = port.place(self.cards, asked, policy)

    def _used(self) -> tuple[Card, ...]:
        cards = self.empty
        for found in self.record.input["pods"]:
            pod = pod_of(found)
            if pod.finished or (pod.node_name or pod.annotations.get(hami_lock.NODE, "")) != self.name:
                continue
            held = self.port.held(pod, cards, _TABLES)
            if held is None:
                continue
            self.closed = self.closed or bool(held.closes)
            after = self.port.take(cards, held.assignment)
            same("give_back undoes take", self.port.give_back(after, held.assignment), cards)
            cards = after
        return cards

    def check_properties(self) -> None:
        """What must be true of any answer."""
        if not self.cards or self.closed:
            return
        port = self.port
        if self.placed is None:
            demand(bool(port.shortfalls(self.cards, self.asked)), "refused without a reason")
            return
        assignment = self.placed.assignment
        after = port.take(self.cards, assignment)
        same("give_back undoes take", port.give_back(after, assignment), self.cards)
        new = set(port.overcommitted(after)) - set(port.overcommitted(self.cards))
        demand(not new, f"overcommitted: {sorted(new)}")
        bound = pod_of(self.record.input["pod"], self.name, {**self.pod.annotations, **self._annotations()})
        held = port.held(bound, self.cards, _TABLES)
        same("what is held", held.assignment if held else None, assignment)

    def _annotations(self) -> Mapping[str, str]:
        assert self.placed is not None
        stamp = Stamp(node=NodeName(self.name), now_s=7, order=8)
        found: Mapping[str, str] = self.port.annotations(self.placed.assignment, stamp, _TABLES)
        return found

    def check_place(self) -> None:
        """The cards of the node, and the text that names them."""
        told = self._upstream()
        if told is None:
            return
        is_free = self._is_free()
        if is_free and len(self.asked.asks) > 1:
            return
        same(f"{self.name} fits", self.placed is not None, told["fits"])
        if self.placed is None or is_free:
            return
        if "segments" in told:
            text = wire_text(self.placed.assignment, self.port.vendor.word, self.port.vendor.whole)
            same(f"{self.name} text", filled(text), encoded(told["segments"].get(self.port.vendor.word, [])))
        if self.record.output.get("chosen") == self.name and "annotations" in self.record.output:
            self._check_annotations(self.record.output["annotations"])

    def _upstream(self) -> Mapping[str, Any] | None:
        """What upstream answered for this node; None where it did not, or by its quotas."""
        out = self.record.output
        if self.record.input.get("quotas") or self._is_misjudged():
            return None
        if self.record.op == "annotations":
            return {"fits": out["chosen"] == self.name}
        told: Mapping[str, Any] | None = out.get("nodes", {}).get(self.name)
        if told is None or "ResourceQuotaNotFit" in told.get("reason", "") or self._lacks(told):
            return None
        return told

    def _lacks(self, told: Mapping[str, Any]) -> bool:
        """Whether upstream gives a container fewer cards than it asked for (VN-33)."""
        given = sum(len(one) for one in told.get("segments", {}).get(self.port.vendor.word, ()))
        return bool(told.get("fits")) and "segments" in told and given < sum(ask.number for ask in self.asked.asks)

    def _is_misjudged(self) -> bool:
        """Whether upstream reads words with blanks as unknown ones, or types in words (HN-23), or rounds up (VN-7)."""
        policy = self.pod.annotations.get(wishes.CARD_POLICY, "")
        if self._has_a_part_of_a_card():
            return True
        return policy.strip(" ") != policy or any(self._is_part_of_a_word(card) for card in self.cards)

    def _has_a_part_of_a_card(self) -> bool:
        source, named = self.port.vendor.source, self.port.named(_TABLES)
        if not isinstance(source, Capacity) or not source.has_cores:
            return False
        return bool(int(self.node.capacity.get(named.cores, "0")) % source.cores)

    def _is_free(self) -> bool:
        """Whether which card is taken is free.

        The request counts in the scores of unlike cards, or does not (HN-9); boards with equally many dies tie (VN-22).
        """
        sizes = Counter(card.fixed.group for card in self.cards if card.fixed.group and not card.used_slots)
        return len({card.fixed.kind for card in self.cards}) > 1 or len(set(sizes.values())) < len(sizes)

    def _is_part_of_a_word(self, card: Card) -> bool:
        """Whether matching inside a word accepts, or refuses, *card* where whole words do not."""
        text = card.fixed.kind.type.upper()
        types = self.port.vendor.types
        for key, wants in ((types.use, True), (types.avoid, False)):
            items = [one.strip().upper() for one in self.pod.annotations.get(key, "").split(",") if one.strip()]
            if not items:
                continue
            inside = any(one in text for one in items) is wants
            patterns = decode_types(",".join(items), key)
            whole = CardSelection(use_types=patterns) if wants else CardSelection(no_use_types=patterns)
            if inside is not whole.accepts_type(card.fixed.words):
                return True
        return False

    def _check_annotations(self, expected: Mapping[str, str]) -> None:
        ours, vendor = dict(self._annotations()), self.port.vendor
        containers = len(self.pod.init_containers) + len(self.pod.containers)
        for key in filter(None, (vendor.allocated, vendor.to_allocate)):
            same(key, filled(ours[key]), filled(expected[key]))
            demand(ours[key].count(";") == containers, "segments")
        for key in {hami_lock.NODE, *vendor.extra_keys} - _REQUIRED_BESIDE:
            same(key, _timeless(ours.get(key)), _timeless(expected.get(key)))
        unknown = expected.keys() - ours.keys()
        demand(not unknown, f"keys that are not written: {sorted(unknown)}")

    def check_usage(self) -> None:
        """What is in use before the pod."""
        expected = self.record.output.get("usage_before", {}).get(self.name)
        if expected is None or self.closed or any(card.unread for card in self.cards):
            return
        ours = {card.fixed.uuid: _used(self.port.vendor, card) for card in self.cards}
        known = {one["id"]: one for one in expected if one["id"] in ours}
        wanted = {
            uuid: (one["used"], one["mem"], one["cores"]) if self.port.vendor.whole is None else (one["used"], 0, 0)
            for uuid, one in known.items()
        }
        same(f"{self.name} usage", {uuid: ours[uuid] for uuid in known}, wanted)


# Keys that upstream does not write (VN-4).
_REQUIRED_BESIDE: Final = frozenset({"CAMBRICON_DSMLU_ASSIGHED"})


def _used(vendor: Vendor, card: Card) -> tuple[int, int, int]:
    return (card.used_slots, card.used_memory, card.used_cores) if vendor.whole is None else (card.used_slots, 0, 0)


def _timeless(text: str | None) -> str | None:
    return "<time>" if text is not None and (text.startswith("<unix") or text in ("7", "8", "7000000000")) else text


# ---------------------------------------------------------------------- assignments


def check_pod_decode(record: Record) -> None:
    """``pod-decode``: the segments of an assignment."""
    text, out = record.input["value"], record.output
    segments = decode_segments(text, "value")
    unread = [one for segment in segments for one in segment if isinstance(one, Unread)]
    if "error" in out:
        demand(bool(unread) or not any(segments), "what upstream refuses is read")
        return
    if unread:
        read = [one for segment in out["segments"] for one in segment]
        lenient = any(not 0 <= one[key] <= MAX_INT32 for one in read for key in ("mem", "cores"))
        demand(bool(record.defects) or lenient, "an entry that upstream reads is not read")
        return
    ours = [[_told(one) for one in segment if isinstance(one, Written)] for segment in segments if segment]
    wanted = [
        [{key: one[key] for key in ("id", "type", "mem", "cores")} for one in segment]
        for named in out["segments"]
        if (segment := [one for one in named if one["id"]])
    ]
    same("segments", ours, wanted)


def _told(one: Written) -> dict[str, Any]:
    return {"id": one.name, "type": one.type, "mem": one.memory, "cores": one.cores}


CHECKS: Final = {
    "register": check_register,
    "requests": check_requests,
    "place": check_place,
    "annotations": check_place,
    "pod-decode": check_pod_decode,
}
