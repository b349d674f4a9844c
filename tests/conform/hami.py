"""Conformance of HAMi's protocol for NVIDIA cards: registers, requests, placements, assignments, what the plugin sees.

A record without a defect must be answered as upstream answered it, in the form that is required (one segment per
container). Of every answer it is demanded that no card is overcommitted, that what is held is what was placed, and that
a refusal has reasons. Nothing else is asked where the record's defect, or a rule that is told from its input, says that
upstream decides wrongly: words that must be refused (unknown policies and modes, cores above 100), figures that close a
card instead of meaning no limit, quotas (which the webhook tells of and queues hold), and which node is best.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from core import hami_lock, names
from core.dialects.hami import keys, pods
from core.dialects.hami.cards import cards_of
from core.dialects.hami.dialect import Hami
from core.dialects.hami.table import HamiTable
from core.errors import InvalidRequestError
from core.model import Container, NodeName, Pod, ReviewedPod
from core.port.handoff import Stamp
from core.selection import CardSelection, decode_types
from core.settings import Policy, Tables
from core.sharing import order
from core.sharing.account import Unread, Written, decode_segments, wire_text
from core.sharing.card import HAMI_CORE, MIG, MODES, Card, without_cordoned
from core.sharing.request import Request
from core.units import MAX_INT32
from core.wire import hami_register as register
from core.wire import hami_reservations
from tests.conform.records import Record, demand, encoded, filled, node_of, pod_of, same, tables_of, with_policy

_DIALECT: Final = Hami()
_NODE: Final = "node-a"
_FIGURES: Final = ("count", "devmem", "devcore")


# ---------------------------------------------------------------------- registers


def check_register(record: Record) -> None:
    """``register``, ``register-text``: the cards of a register; a bad one closes itself alone (HN-16)."""
    text, out = record.input["value"], record.output
    try:
        found = register.decode_register(text, "value")
    except InvalidRequestError:
        demand("error" in out or not out.get("devices"), "a register that upstream reads is refused")
        return
    if "error" in out or "panic" in out:
        is_text = record.op == "register" and not text.startswith("[")
        whole = bool(record.defects) or is_text or all(one.problem for one in found) or ":" not in text
        demand(whole or any(one.problem for one in found), "a register that upstream refuses is read")
        return
    wanted = out["devices"] or []
    if not text.startswith("["):
        # A register of 7 fields tells no index: its order is the index's.
        short = [piece.count(",") == 6 for piece in text.split(":") if "," in piece]
        wanted = [
            {**one, "index": at} if few else one for at, (one, few) in enumerate(zip(wanted, short, strict=False))
        ]
    if any(one.problem for one in found):
        demand(_is_lenient(record), "a card that upstream reads is closed")
        return
    ours = [_plain(one) for one in found]
    same("devices", ours, sorted((_expected(one) for one in wanted), key=lambda one: (one["index"], one["id"])))
    _check_links(record, wanted)


def _is_lenient(record: Record) -> bool:
    """Whether upstream read what is no figure as 0, or a negative one: not to be guessed at."""
    return "lenient" in record.raw["upstream"] or any(
        min(one[key] for key in _FIGURES) < 0 for one in record.output["devices"] or ()
    )


def _check_links(record: Record, wanted: list[Mapping[str, Any]]) -> None:
    links = register.decode_links(record.input.get("scores", ""))
    for one in wanted:
        expected = dict(one.get("pair_scores") or {})
        if "pair_scores" in one:
            same(f"links of {one['id']}", dict(links.get(one["id"], {})), expected)


def _plain(one: register.Record) -> dict[str, Any]:
    profiles = [
        {
            "name": p.name,
            "memoryMB": p.memory_mib,
            "core": p.cores,
            "sliceCount": p.slices,
            "placements": [{"start": start, "size": size} for start, size in p.placements],
        }
        for p in one.profiles
    ]
    found = {"id": one.uuid, "index": one.position, "count": one.slots, "devmem": one.memory_mib}
    found |= {"devcore": one.cores, "type": one.type, "numa": one.numa, "mode": one.mode or HAMI_CORE}
    return found | {"health": one.healthy, "profiles": profiles}


def _expected(one: Mapping[str, Any]) -> dict[str, Any]:
    found = {key: one[key] for key in ("id", "index", "count", "devmem", "devcore", "type", "numa", "health")}
    return {**found, "mode": one["mode"] or HAMI_CORE, "profiles": one.get("mig_profiles") or []}


# ---------------------------------------------------------------------- requests


def check_requests(record: Record) -> None:
    """``requests``: what a pod asks as it is, and as our webhook completes it."""
    table, pod = _table(record), pod_of(record.input["pod"])
    out = record.output
    found = pods.readable_request(pod, table)
    if isinstance(found, tuple) and not isinstance(found, Request):
        demand(_is_refusable(pod, table) or not record.reachable, "a pod that upstream reads is refused")
        return
    _same_asks(pod, found, out["requests_without_webhook"], record)
    if not out["admission"]["allowed"] or "requests" not in out:
        return
    completed = _completed(pod, table)
    again = pods.readable_request(completed, table)
    if isinstance(again, tuple) and not isinstance(again, Request):
        demand(_is_refusable(completed, table), "a completed pod is refused")
        return
    # Where no count is filled in it is refused by name (CS203), and of other schedulers' pods nobody asks here.
    if "HN-11" in record.defects or record.input["config"] == "hami-no-default-count" or pod.scheduler_name:
        return
    _same_asks(completed, again, out["requests"], record)


def _same_asks(pod: Pod, found: object, wanted: list[Any], record: Record) -> None:
    if record.defects & {"HN-12"} or not record.reachable:
        return
    by_container = {ask.container: ask for ask in found.asks} if isinstance(found, Request) else {}
    ours: list[Any] = [None] * (len(pod.init_containers) + len(pod.containers))
    for at, ask in by_container.items():
        ours[at] = {"number": ask.number, "mem": ask.memory, "percent": ask.percent, "cores": ask.cores}
    expected = [
        None
        if one is None
        else {
            "number": one["number"],
            "mem": one["mem"],
            "percent": 0 if one["mem"] else one["mem_percentage"],
            "cores": one["cores"],
        }
        for one in wanted
    ]
    same("requests", ours, expected)


def _completed(pod: Pod, table: HamiTable) -> Pod:
    """*pod* with a count of 1 where only shares are given, and as the dialect completes it."""

    def counted(one: Container) -> Container:
        if table.named.cards in one.limits or one.limits.keys().isdisjoint(table.named.parts):
            return one
        return one._replace(limits={**one.limits, table.named.cards: "1"})

    reviewed = ReviewedPod(
        namespace=pod.namespace,
        labels=pod.labels,
        annotations=pod.annotations,
        scheduler_name=pod.scheduler_name,
        runtime_class=pod.runtime_class,
        containers=tuple(map(counted, pod.containers)),
        init_containers=tuple(map(counted, pod.init_containers)),
    )
    asked = pods.readable_request(reviewed, table)
    found = isinstance(asked, Request) and _DIALECT.completed(reviewed, asked, Tables(sections=(table,)))[0]
    return (found or reviewed).as_pod()


def _is_refusable(pod: Pod, table: HamiTable) -> bool:
    """Whether *pod* has a figure or a word that must be refused (hami 6)."""
    for one in (*pod.init_containers, *pod.containers):
        for key, most in (
            (table.named.cards, MAX_INT32),
            (table.named.memory, MAX_INT32 // table.named.mib_per_unit),
            (table.named.percentage, 100),
            (table.named.cores, 100),
        ):
            text = one.amount(key)
            if text is not None and not _is_figure(text, most):
                return True
    words = (
        (keys.MODE, MODES),
        (order.CARD_POLICY, order.CARD_WORDS),
        (order.NODE_POLICY, order.NODE_WORDS),
    )
    for key, known in words:
        items = [item.strip() for item in pod.annotations.get(key, "").split(",")]
        if any(item and item not in known for item in items):
            return True
    return order.WEIGHTS in pod.annotations


def _is_figure(text: str, most: int) -> bool:
    scales = {"k": 1000, "M": 10**6, "G": 10**9, "Ki": 1024, "Mi": 2**20, "Gi": 2**30}
    suffix = next((one for one in sorted(scales, key=len, reverse=True) if text.endswith(one)), "")
    digits = text.removesuffix(suffix)
    return digits.isdigit() and int(digits) * scales.get(suffix, 1) <= most


# ---------------------------------------------------------------------- placements


def check_place(record: Record) -> None:
    """``place``, ``annotations``, ``annotations-old``: which cards a pod gets on each node, and what is written."""
    given, out = record.input, record.output
    table = _table(record)
    if not out.get("has_request", True):
        demand(pods.readable_request(pod_of(given["pod"]), table) is None, "a request is seen where there is none")
        return
    pod, policy = with_policy(given["pod"], given.get("gpu_policy", "spread"))
    asked = pods.readable_request(pod, table)
    if asked is not None and not isinstance(asked, Request):
        demand(_is_refusable(pod, table), "a pod that upstream reads is refused")
        return
    demand(not out.get("error"), "what upstream refuses is read")
    for node in given["nodes"]:
        answered = _Answered(record, node, pod, asked, policy)
        answered.check_properties()
        if not record.defects and record.op != "annotations-old":
            answered.check_place()
            answered.check_usage()


class _Answered:
    """One node of a record, and our answer for it."""

    def __init__(self, record: Record, node: Mapping[str, Any], pod: Pod, asked: Request | None, policy: Policy):
        self.record, self.pod = record, pod
        self.name = node["metadata"]["name"]
        self.tables = Tables(sections=(_table(record),))
        annotations = node_of(node).annotations
        try:
            records = register.decode_register(annotations.get(keys.REGISTER, ""), keys.REGISTER)
        except InvalidRequestError:
            records = ()
        self.empty = without_cordoned(cards_of(records, annotations.get(keys.LINKS, "")), node_of(node))
        self.closed = False
        self.cards = self._used()
        self.asked = asked
        self.placed = None
        if asked is not None and self.cards and not self.closed:
            self.placed = _DIALECT.place(self.cards, asked, policy)

    def _used(self) -> tuple[Card, ...]:
        cards = self.empty
        for found in self.record.input["pods"]:
            pod = pod_of(found)
            if pod.finished or self._node_of(pod) != self.name:
                continue
            held = _DIALECT.held(pod, cards, self.tables)
            if held is None:
                continue
            self.closed = self.closed or bool(held.closes)
            after = _DIALECT.take(cards, held.assignment)
            same("give_back undoes take", _DIALECT.give_back(after, held.assignment), cards)
            cards = after
        return cards

    def _node_of(self, pod: Pod) -> str:
        return pod.node_name or pod.annotations.get(hami_lock.NODE, "")

    def check_properties(self) -> None:
        """What must be true of any answer."""
        if self.asked is None or not self.cards or self.closed:
            return
        if self.placed is None:
            demand(bool(_DIALECT.shortfalls(self.cards, self.asked)), "refused without a reason")
            return
        assignment = self.placed.assignment
        after = _DIALECT.take(self.cards, assignment)
        same("give_back undoes take", _DIALECT.give_back(after, assignment), self.cards)
        new = set(_DIALECT.overcommitted(after)) - set(_DIALECT.overcommitted(self.cards))
        demand(not new, f"overcommitted: {sorted(new)}")
        bound = pod_of(self.record.input["pod"], self.name, {**self.pod.annotations, **self._annotations()})
        held = _DIALECT.held(bound, self.cards, self.tables)
        same("what is held", held.assignment if held else None, assignment)

    def _annotations(self) -> Mapping[str, str]:
        assert self.placed is not None
        stamp = Stamp(node=NodeName(self.name), now_s=7, order=8)
        return _DIALECT.annotations(self.placed.assignment, stamp, self.tables)

    def check_place(self) -> None:
        """The cards of the node, and the text that names them."""
        told = self._upstream()
        if told is None:
            return
        same(f"{self.name} fits", self.placed is not None, told["fits"])
        if self.placed is None or "segments" not in told:
            return
        text = wire_text(self.placed.assignment, keys.NVIDIA)
        same(f"{self.name} text", filled(text), encoded(told["segments"]))
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
        if told is not None and "ResourceQuotaNotFit" in told.get("reason", ""):
            return None
        return told

    def _is_misjudged(self) -> bool:
        """Whether records are not tagged with what tells here.

        HN-7, HN-23, ids of older versions (hami 5.2), words with blanks around them and an empty mode (both of which
        upstream takes for unknown words).
        """
        annotations = self.pod.annotations
        if annotations.get(keys.MODE) == "" or annotations.get(order.CARD_POLICY, "").strip(" ") != annotations.get(
            order.CARD_POLICY, ""
        ):
            return True
        asks = self.asked.asks if self.asked is not None else ()
        whole = any(ask.percent == 100 for ask in asks) and any(card.fixed.kind.mode == MIG for card in self.cards)
        return whole or self._has_old_ids() or any(self._is_part_of_a_word(card) for card in self.cards)

    def _has_old_ids(self) -> bool:
        found = [pod["metadata"].get("annotations", {}).get(keys.ALLOCATED, "") for pod in self.record.input["pods"]]
        return any("[" in text for text in found)

    def _is_part_of_a_word(self, card: Card) -> bool:
        """Whether matching inside a word accepts, or refuses, *card* where whole words do not."""
        text = card.fixed.kind.type.upper()
        for key, wants in ((names.USE_GPU_TYPE, True), (names.NO_USE_GPU_TYPE, False)):
            items = [one.strip().upper() for one in self.pod.annotations.get(key, "").split(",") if one.strip()]
            if not items:
                continue
            inside = any(one in text for one in items) is wants
            types = decode_types(",".join(items), key)
            whole = CardSelection(use_types=types) if wants else CardSelection(no_use_types=types)
            if inside is not whole.accepts_type(card.fixed.words):
                return True
        return False

    def _check_annotations(self, expected: Mapping[str, str]) -> None:
        ours = dict(self._annotations())
        for key in (keys.TO_ALLOCATE, keys.ALLOCATED):
            same(key, filled(ours[key]), filled(expected[key]))
            demand(ours[key].count(";") == len(self.pod.init_containers) + len(self.pod.containers), "segments")
        same(hami_lock.NODE, ours[hami_lock.NODE], expected[hami_lock.NODE])
        reserved = ours.get(keys.RESERVATIONS, "null")
        same(
            keys.RESERVATIONS,
            [_place_of(one) for one in json.loads(reserved) or ()],
            [_place_of(one) for one in json.loads(expected.get(keys.RESERVATIONS, "null")) or ()],
        )

    def check_usage(self) -> None:
        """What is in use before the pod."""
        expected = self.record.output["usage_before"].get(self.name)
        if expected is None or self.closed or self._has_old_ids() or any(card.unread for card in self.cards):
            return
        ours = [
            {"id": c.fixed.uuid, "used": c.used_slots, "mem": c.used_memory, "cores": c.used_cores} for c in self.cards
        ]
        wanted = [{key: one[key] for key in ("id", "used", "mem", "cores")} for one in expected]
        same(f"{self.name} usage", _by_id(ours), _by_id(wanted))


def _by_id(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(found, key=lambda one: str(one["id"]))


def _place_of(one: Mapping[str, Any]) -> tuple[Any, ...]:
    return one["deviceIndex"], one["gpuUUID"], one["profile"], one["placement"]["start"], one["placement"]["size"]


# ---------------------------------------------------------------------- assignments, and what the plugin sees


def check_pod_decode(record: Record) -> None:
    """``pod-decode``: the segments of an assignment, and what they come to."""
    text, out = record.input["value"], record.output
    segments = decode_segments(text, "value")
    unread = [one for segment in segments for one in segment if isinstance(one, Unread)]
    pod = pod_of(record.input["pod"], _NODE, {keys.ALLOCATED: text})
    held = _DIALECT.held(pod, (), Tables(sections=(_table(record),)))
    if "error" in out:
        demand(bool(unread) or not any(segments), "what upstream refuses is read")
        return
    if unread:
        demand(all(not _is_plain(one.text) for one in unread), "an entry that upstream reads is not read")
        return
    ours = [
        [
            {"id": one.name, "type": one.type, "mem": one.memory, "cores": one.cores}
            for one in segment
            if isinstance(one, Written)
        ]
        for segment in segments
        if segment
    ]
    same("segments", ours, [kept for one in out["segments"] if (kept := [each for each in one if each["id"]])])
    if any(max(one.memory, one.cores) > MAX_INT32 // 2 for s in segments for one in s if isinstance(one, Written)):
        # Sums beyond 32 bits wrap upstream.
        return
    if record.defects or "effective" not in out:
        return
    charges = held.assignment.charges if held is not None else ()
    found = [{"id": c.uuid, "mem": c.memory, "cores": c.cores, "slots": c.slots} for c in charges]
    wanted = [one for one in out["effective"] if one["id"]]
    if not any("[" in one["id"] for one in wanted):
        same("usage", _by_id(found), _by_id(wanted))


def _is_plain(text: str) -> bool:
    fields = text.split(",")
    return len(fields) >= 4 and all(f.isascii() and f.isdigit() and int(f) <= MAX_INT32 for f in fields[2:4])


def check_plugin_decode(record: Record) -> None:
    """``plugin-decode``: what each version of the plugin pops; of ours it finds every card of its container."""
    text = record.input["value"]
    found = decode_segments(text, "value")
    upstream = record.output.get("next", {})
    ids = upstream.get("ids")
    first = next(([one.name for one in segment] for segment in found if segment), None)
    if ids is not None and all(ids) and not any(isinstance(one, Unread) for s in found for one in s):
        same("next", first, ids)
    after = record.output.get("after_erase")
    if after is not None:
        same("left", "," in after, sum(map(bool, _plugin_segments(text))) > 1)


def _plugin_segments(text: str) -> list[list[str]]:
    return [[piece for piece in segment.split(":") if "," in piece] for segment in text.split(";")]


def check_plugin_calls(record: Record) -> None:
    """``plugin-calls``: after each call we take for served, failed or waiting what the plugin takes for it."""
    pods = {f"{p['metadata']['namespace']}/{p['metadata']['name']}": p for p in record.input["pods"]}
    for step in record.output["steps"]:
        for key, notes in (step.get("pods_after") or {}).items():
            if key not in pods or not pods[key]["spec"].get("nodeName"):
                continue
            annotations = {**pods[key]["metadata"].get("annotations", {}), **{k: v for k, v in notes.items() if v}}
            flight = _DIALECT.in_flight(pod_of(pods[key], annotations=annotations), Tables())
            phase, left = annotations.get(hami_lock.BIND_PHASE), "," in annotations.get(keys.TO_ALLOCATE, "")
            status = pods[key].get("status", {}).get("phase", "Pending")
            if flight is None or status != "Pending":
                continue
            waits = phase == "allocating" or left
            same(f"{key} waits", flight.progress.value == "waiting", waits)


def check_reservations(record: Record) -> None:
    """``reservations``: the instances that are reserved for a pod."""
    found = hami_reservations.decode(record.input["value"])
    if "error" in record.output:
        demand(found is None, "reservations that upstream refuses are read")
        return
    demand(found is not None, "reservations that upstream reads are refused")
    wanted = [(one["containerIndex"], *_place_of(one)) for one in record.output["reservations"] or ()]
    same("reservations", [tuple(one) for one in (found or {}).values()], wanted)


def _table(record: Record) -> HamiTable:
    return tables_of(record.configs, str(record.input.get("config", "hami-default"))).of(HamiTable)
