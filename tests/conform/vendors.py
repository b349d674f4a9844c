"""Conformance of HAMi's other vendors: registers, requests, placements, assignments, each by its declaration.

A record without a defect must be answered as upstream answered it, in the form that is required (one segment per
container, only types that the pod asked for). Of every answer it is demanded that no card is overcommitted, that what
is held is what was placed, and that a refusal has reasons. Nothing else is asked where the record's defect, or a rule
that is told from its input, says that upstream decides wrongly: figures and words that must be refused, types that are
matched inside a word, quotas, and which node is best.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from core import hami_lock
from core.catalog import standard_catalog
from core.dialects.hami_vendors import cards as _cards
from core.dialects.hami_vendors import pods
from core.dialects.hami_vendors.vendor import Capacity, Register, Vendor
from core.model import Container, Node, NodeName, Pod, container_names
from core.port.cards import Offer
from core.port.handoff import Stamp
from core.selection import CardSelection, decode_types
from core.settings import Policy
from core.sharing import order
from core.sharing.account import Unread, Written, decode_segments
from core.sharing.card import Card
from core.sharing.request import Request, Resources
from core.units import MAX_INT32
from tests.conform.records import Record, demand, encoded, filled, node_of, pod_of, same, with_policy
from tests.support.devices.vendors import TABLES

_TABLES: Final = TABLES
_PORTS: Final[Mapping[str, Any]] = {
    one.port.vendor.word: one.port for one in standard_catalog().specs if hasattr(one.port, "vendor")
}


def _types() -> dict[str, list[str]]:
    """The words of the types of each vendor's records, which are called like its section, or an item of that."""
    found: dict[str, list[str]] = {}
    for word, port in _PORTS.items():
        section = port.vendor.section
        found.setdefault(section.key.removesuffix("s") if section.word else section.key, []).append(word)
    return found


TYPES: Final[Mapping[str, Sequence[str]]] = _types()


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
            keys = _PLAIN[: 5 if vendor.handoff.codec is not None else 7 if vendor.cards.whole is None else 4]
            ours = sorted((_plain(card, keys) for card in cards), key=_at)
            same(f"{vendor.word} devices", ours, sorted(({key: one[key] for key in keys} for one in wanted), key=_at))


def _in_order(vendor: Vendor, node: Node, wanted: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """*wanted*, where a register of 7 fields tells no index: its order is the index's."""
    source = vendor.cards.source
    if not isinstance(source, Register) or source.has_json or source.read is not None:
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
        found = pods.readable_request(port.vendor, port.named(_TABLES), pod)
        if isinstance(found, tuple) and not isinstance(found, Request):
            is_denied = record.output["admission"].get("allowed") is False
            told = "a pod that upstream reads is refused"
            demand(_is_refusable(port, pod) or is_denied or not record.reachable, told)
            continue
        if record.defects or not record.reachable:
            continue
        wanted = [one and one.get(port.vendor.word) for one in record.output["requests_without_webhook"]]
        ours: list[Any] = [None] * (len(pod.init_containers) + len(pod.containers))
        for ask in found.asks if found is not None else ():
            memory = ask.memory if port.vendor.limits.memory else 0
            ours[ask.container] = {"nums": ask.number, "mem": memory, "cores": ask.cores}
        keys = ("nums", "mem", "cores")[
            : 2 if port.vendor.cards.slices else 3 if port.vendor.cards.whole is None else 1
        ]
        ours = [one and {key: one[key] for key in keys} for one in ours]
        # More than all cores of a card are all of them.
        most = {"cores": port.vendor.limits.most_cores if any(ask.cores for ask in found.asks) else 0} if found else {}
        expected = [one and {key: min(one[key], most.get(key, one[key])) for key in keys} for one in wanted]
        same(f"{port.vendor.word} requests", ours, expected)


def _is_refusable(port: Any, pod: Pod) -> bool:
    """Whether *pod* has a figure or a word that must be refused."""
    named = port.named(_TABLES)
    for one in (*pod.init_containers, *pod.containers):
        if any(not _is_figure(port, one, key) for key in (named.cards, *named.parts)):
            return True
    if port.vendor.limits.asks is not None and _mixes(named, pod):
        return True
    known = ((order.CARD_POLICY, order.CARD_WORDS), (order.NODE_POLICY, order.NODE_WORDS))
    for key, words in known:
        items = [item.strip() for item in pod.annotations.get(key, "").split(",")]
        if any(item and item not in words for item in items):
            return True
    return order.WEIGHTS in pod.annotations


def _mixes(named: Resources, pod: Pod) -> bool:
    """Whether containers ask for cards and others for cores (VN-30), or for cores that are no whole devices."""
    cores = [0 if int(one.amount(named.cards) or 0) else int(one.amount(named.cores) or 0) for one in _all(pod)]
    cards = [one for one in _all(pod) if int(one.amount(named.cards) or 0)]
    return bool(cards and any(cores)) or any(one % 2 and one > 1 for one in cores)


def _all(pod: Pod) -> tuple[Container, ...]:
    return (*pod.init_containers, *pod.containers)


def _is_figure(port: Any, one: Container, key: str) -> bool:
    text, named = one.amount(key), port.named(_TABLES)
    if text is None:
        return True
    least, most = 0, MAX_INT32
    if key == named.cores:
        least, most = port.vendor.limits.least_cores, port.vendor.limits.most_cores
        if port.vendor.limits.several_are_whole and (one.amount(named.cards) or "").isdigit():
            most *= int(one.amount(named.cards) or "1")
    elif key == named.memory and port.vendor.limits.memory_mib is not None:
        # GiB, or whole MiB with a suffix (VN-21).
        digits, mib = text.removesuffix("Mi").removesuffix("Gi"), 1 if text.endswith("Mi") else 1024
        return digits.isdigit() and int(digits) * mib <= MAX_INT32
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
    if any(_is_uncounted(port, whole) for port in _ports(record)):
        demand(any(isinstance(port.request(whole, _TABLES), tuple) for port in _ports(record)), "VN-27 is not refused")
        return
    asked = [port for port in _ports(record) if pods.readable_request(port.vendor, port.named(_TABLES), whole)]
    if not out.get("has_request", True):
        demand(not asked or any(_is_refusable(port, whole) for port in asked), "a request is seen where there is none")
        return
    if len(asked) != 1:
        demand(len(asked) > 1 or bool(record.defects), "no request is seen")
        return
    (port,) = asked
    pod, policy = with_policy(given["pod"], given.get("gpu_policy", "spread"))
    request = pods.readable_request(port.vendor, port.named(_TABLES), pod)
    if not isinstance(request, Request):
        demand(_is_refusable(port, pod), "a pod that upstream reads is refused")
        return
    for node in given["nodes"]:
        answered = _Answered(record, port, node, pod, request, policy)
        answered.check_properties()
        if not record.defects - _TOLD_BY_TEXT:
            answered.check_place()
            answered.check_usage()


def _is_uncounted(port: Any, pod: Pod) -> bool:
    """Whether a container asks for a part of a card that is asked for by slices, and for no slice (VN-27)."""
    named = port.named(_TABLES)
    return port.vendor.cards.slices and any(
        one.amount(named.cards) is None and any(one.amount(key) is not None for key in named.parts)
        for one in (*pod.init_containers, *pod.containers)
    )


# Defects that change the positions of segments, or of keys, and nothing else: the cards are upstream's.
_TOLD_BY_TEXT: Final = frozenset({"VN-1", "VN-2", "VN-3"})


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
        stamp = Stamp(node=NodeName(self.name), now_s=7, order=8, containers=container_names(self.pod))
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
            text = pods.text(self.port.vendor, self.placed.assignment)
            same(f"{self.name} text", filled(text), encoded(told["segments"].get(self.port.vendor.word, [])))
            self._check_preference(told.get("score", 0.0), request_policy=self.record.input.get("node_policy", ""))
        if self.record.output.get("chosen") == self.name and "annotations" in self.record.output:
            self._check_annotations(self.record.output["annotations"])

    def _check_preference(self, score: float, request_policy: str) -> None:
        """What makes the node better besides what is free of its cards, of which upstream counts at most 30."""
        rules, asked = self.port.rules, self.asked
        if rules.prefers(asked) and request_policy != order.SPREAD and not self.port.overcommitted(self.cards):
            assert self.placed is not None
            ours = rules.preference(self.cards, self.placed.assignment.entries, asked, order.BINPACK)
            demand(0 <= score - ours <= 30, f"{self.name} is preferred by {ours}, upstream's score is {score}")

    def _upstream(self) -> Mapping[str, Any] | None:
        """What upstream answered for this node; None where it did not, or by its quotas."""
        out = self.record.output
        if self.record.input.get("quotas") or self._is_misjudged() or self._sells_twice():
            return None
        if self.record.op == "annotations":
            return {"fits": out["chosen"] == self.name}
        told: Mapping[str, Any] | None = out.get("nodes", {}).get(self.name)
        if told is not None and self.port.vendor.cards.slices and "InsufficientCore" in told.get("reason", ""):
            # Percent that are rounded up do not fill a card (VN-24).
            return None
        if told is None or "ResourceQuotaNotFit" in told.get("reason", "") or self._lacks(told):
            return None
        return told

    def _sells_twice(self) -> bool:
        """Whether upstream gives cores of a device that it counts as given, because its list is in another order."""
        before = {one["id"]: one["cores"] for one in self.record.output.get("usage_before", {}).get(self.name, ())}
        told = self.record.output.get("nodes", {}).get(self.name, {}).get("segments", {})
        word, has_bits = self.port.vendor.word, self.port.vendor.limits.asks is not None
        return has_bits and any(before[d["id"]] & d["cores"] for one in told.get(word, ()) for d in one)

    def _lacks(self, told: Mapping[str, Any]) -> bool:
        """Whether upstream gives a container fewer cards than it asked for (VN-33)."""
        given = sum(len(one) for one in told.get("segments", {}).get(self.port.vendor.word, ()))
        return bool(told.get("fits")) and "segments" in told and given < sum(ask.number for ask in self.asked.asks)

    def _is_misjudged(self) -> bool:
        """Whether upstream reads words with blanks as unknown ones, or types in words (HN-23), or rounds up (VN-7)."""
        policy = self.pod.annotations.get(order.CARD_POLICY, "")
        if self._has_a_part_of_a_card() or any(self._is_of_another_policy(card) for card in self.cards):
            return True
        return policy.strip(" ") != policy or any(self._is_part_of_a_word(card) for card in self.cards)

    def _is_of_another_policy(self, card: Card) -> bool:
        """Whether the register of MetaX lets the pod join others of another policy than its own (VN-20)."""
        if self.port.vendor.cards.policy is None or not self.asked.marks[0].startswith(("/", "offline")):
            return False
        own = self.asked.marks[0].partition("/")[2]
        others = {mark.partition("/")[2] for mark in card.marks if not mark.startswith("online")} - {"", own}
        return bool(others) and card.fixed.policy in ("", own) and any(ask.cores < 100 for ask in self.asked.asks)

    def _has_a_part_of_a_card(self) -> bool:
        source, named = self.port.vendor.cards.source, self.port.named(_TABLES)
        if not isinstance(source, Capacity) or not source.has_cores:
            return False
        return bool(int(self.node.capacity.get(named.cores, "0")) % source.cores)

    def _is_free(self) -> bool:
        """Whether which card is taken is free.

        The request counts in the scores of unlike cards, or does not (HN-9); equally large groups tie (VN-22), which
        records of placements say themselves.
        """
        if len({card.fixed.kind for card in self.cards}) > 1:
            return True
        if self.record.op == "place":
            return bool(self.record.output.get("random_choice"))
        sizes = Counter(card.fixed.group for card in self.cards if card.fixed.group and not card.used_slots)
        return len(set(sizes.values())) < len(sizes)

    def _is_part_of_a_word(self, card: Card) -> bool:
        """Whether matching inside a word accepts, or refuses, *card* where whole words do not."""
        text = card.fixed.kind.type.upper()
        types = self.port.vendor.limits.types
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
        for key in filter(None, (vendor.handoff.allocated, vendor.handoff.to_allocate)):
            same(key, filled(ours[key]), filled(expected[key]))
            demand(ours[key].count(";") == containers, "segments")
        for key in {hami_lock.NODE, *vendor.handoff.extra_keys} - _REQUIRED_BESIDE:
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
            uuid: (one["used"], one["mem"], one["cores"]) if _is_measured(self.port.vendor) else (one["used"], 0, 0)
            for uuid, one in known.items()
        }
        same(f"{self.name} usage", {uuid: ours[uuid] for uuid in known}, wanted)


# Keys that HAMi's scheduler does not write: one that a plugin needs (VN-4), and one that HAMi's webhook writes.
_REQUIRED_BESIDE: Final = frozenset({"CAMBRICON_DSMLU_ASSIGHED", "mthreads.com/request-gpu-num"})


def _used(vendor: Vendor, card: Card) -> tuple[int, int, int]:
    if vendor.limits.asks is not None:
        return card.used_slots, 0, sum(((1 << one.size) - 1) << one.start for one in card.slices)
    return (card.used_slots, card.used_memory, card.used_cores) if _is_measured(vendor) else (card.used_slots, 0, 0)


def _is_measured(vendor: Vendor) -> bool:
    return vendor.cards.whole is None and not vendor.cards.slices


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
