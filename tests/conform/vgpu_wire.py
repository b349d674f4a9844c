"""Conformance of the vGPU protocol's texts: register, assignments, ids, selectors, requests, the plugin's view."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from core.dialects.vgpu import pods
from core.dialects.vgpu.cards import cards_of, layout_of
from core.dialects.vgpu.dialect import Vgpu
from core.dialects.vgpu.pods import decode_pod_devices, readable_request
from core.dialects.vgpu.table import VgpuTable
from core.errors import InvalidRequestError
from core.model import Container, Pod, PodUid
from core.names import NO_USE_GPU_TYPE, USE_GPU_TYPE, VGPU_REGISTER
from core.port.cards import Offer
from core.port.refusals import Reason, Violation
from core.selection import type_words
from core.sharing.account import Written, encode_segments
from core.sharing.card import HAMI_CORE, MIG, Card
from core.sharing.request import Request
from core.sharing.slices import profile_at
from core.units import MAX_INT32, parse_amount
from core.wire.vgpu_register import Record as RegisterRecord
from core.wire.vgpu_register import decode_register
from sandbox.players import vgpu_protocol as plugin
from tests.conform.records import MismatchError, Record, demand, node_of, pod_of, same

_VGPU: Final = Vgpu()
_NOT_GIVEN: Final = 101


def check_register(record: Record) -> None:
    """``register``: the cards of a register's text."""
    text = record.input["value"]
    try:
        records = decode_register(text)
    except InvalidRequestError:
        same("register", None, record.output)
        return
    _same_cards(record, records, record.output)


def check_node(record: Record) -> None:
    """``node``: the same, after the gate on the three allocatable resources (by their configured names, S18)."""
    node = node_of(record.input["node"])
    offer = _VGPU.offer(node, record.tables)
    if not isinstance(offer, Offer):
        if "S18" in record.defects:
            demand(
                not configured(record.input["node"], record.tables.of(VgpuTable)),
                "S18: a node with the configured resources is not offered",
            )
        else:
            same("node", None, record.output)
        return
    demand(
        configured(record.input["node"], record.tables.of(VgpuTable)),
        "a node without the configured resources is offered",
    )
    if "S18" not in record.defects:
        _same_cards(record, decode_register(node.annotations[VGPU_REGISTER]), record.output)


def configured(node: Mapping[str, Any], table: VgpuTable) -> bool:
    """Whether *node* has the three resources by the names of the configuration (S18)."""
    allocatable = node["status"].get("allocatable", {})
    wanted = (table.named.cards, table.named.memory, table.named.cores)
    return all(parse_amount(str(allocatable.get(name, "0")), name) > 0 for name in wanted)


def _same_cards(record: Record, records: tuple[RegisterRecord, ...], expected: Any) -> None:
    cards = cards_of(records, record.tables.of(VgpuTable))
    short = any(one.healthy is None for one in records)
    if expected is None and short:
        # Upstream drops nodes with records of five fields; a new controller takes them (nvidia 7.4).
        modes = {card.fixed.kind.mode for card in _known_short(cards, records)}
        demand(modes <= {HAMI_CORE}, "five fields are hami-core")
        return
    demand(expected is not None, "a register is taken that upstream rejects")
    # The node's mode is that of its last record, and mig only where the geometry is known.
    last = cards[-1].fixed if cards else None
    in_mig = last is not None and last.kind.mode == MIG and bool(last.kind.layout)
    if "S7" in record.defects:
        _one_mode(cards)
    else:
        same("mode", MIG if in_mig else HAMI_CORE, expected["mode"])
    same("number of cards", len(records), len(expected["devices"]))
    for one, card, want in zip(records, cards, expected["devices"], strict=True):
        outside = not (0 <= want["count"] <= MAX_INT32 and 0 <= want["memory"] <= MAX_INT32)
        ours: dict[str, Any] = {
            "uuid": one.uuid,
            "index": one.position,
            "type": one.type,
            "health": one.healthy,
            "count": one.slots,
            "memory": one.memory,
        }
        if outside or want["count"] == 0 or want["memory"] == 0:
            demand(card.fixed.fault is Reason.UNUSABLE, f"card {one.uuid} has impossible figures and is usable")
        compared = [key for key in ours if not (outside and key in ("count", "memory"))]
        same(f"card {one.position}", {k: ours[k] for k in compared}, {k: want[k] for k in compared})
        if in_mig and "S7" not in record.defects:
            same("groups", [group.name for group in card.fixed.kind.layout], want.get("mig_groups", []))


def _known_short(cards: tuple[Card, ...], records: tuple[RegisterRecord, ...]) -> list[Card]:
    return [card for card, one in zip(cards, records, strict=True) if one.healthy is None]


def _one_mode(cards: tuple[Card, ...]) -> None:
    usable = {card.fixed.kind.mode == MIG for card in cards if card.fixed.fault is None}
    demand(len(usable) <= 1, "S7: cards of both modes are usable on one node")


def check_pod_decode(record: Record) -> None:
    """``pod-decode``: the entries of an assignment, and the text they are written as."""
    read = decode_pod_devices(record.input["value"])
    # Upstream's scheduler skips what it cannot read.
    segments = [[entry for entry in segment if isinstance(entry, Written)] for segment in read]
    ours = [[{"id": a.name, "type": a.type, "mem": a.memory, "cores": a.cores} for a in s] for s in segments]
    same("segments", ours, record.output["segments"])
    same("reencoded", encode_segments(segments).removesuffix(";"), record.output["reencoded"])


def check_pod_encode(record: Record) -> None:
    """``pod-encode``: the text of segments."""
    segments = [
        [Written(one["id"], one["type"], one["mem"], one["cores"]) for one in segment]
        for segment in record.input["segments"]
    ]
    same("value", encode_segments(segments).removesuffix(";"), record.output["value"])


def check_mig_id(record: Record) -> None:
    """``mig-id``: what a slice's id means on a card of a type; outside the group it means nothing (S32)."""
    named = pods.decode_slice_id(record.input["value"])
    expected = record.output
    if "error" in expected and named is None:
        return
    layout = layout_of(record.input["card_type"], record.tables.of(VgpuTable))
    profile = profile_at(layout, named) if named is not None else None
    if "error" in expected or expected.get("profile_index", -1) == -1:
        demand(profile is None, f"{record.input['value']} names a slice that does not exist")
        return
    if named is None or profile is None:
        raise MismatchError(f"{record.input['value']} is not understood")
    ours = {"group": named.group, "position": named.start, "slot": profile.places.index(named)}
    same("slice", ours, {key: expected[key] for key in ours if key in expected})
    same("profile", profile.name, expected["profile"])
    same("slice_mem", profile.memory_mib, expected["slice_mem"])


def check_selector(record: Record) -> None:
    """``selector``: whether a card's type and uuid are accepted; types by whole words (S22)."""
    annotations = record.input["annotations"]
    pod = Pod(
        uid=PodUid("p"),
        namespace="default",
        name="p",
        annotations=annotations,
        containers=(Container(name="c", limits={record.tables.of(VgpuTable).named.cards: "1"}),),
    )
    request = readable_request(pod, record.tables)
    if not isinstance(request, Request):
        raise MismatchError(f"selectors are refused: {request}")
    selection = request.selection
    words = type_words(record.input["card_type"])
    ours_type = selection.accepts_type(words)
    uuids = selection._replace(use_types=frozenset(), no_use_types=frozenset())
    ours_uuid = uuids.accepts(words, record.input["card_uuid"], 0) is None
    same("uuid_accepted", ours_uuid, record.output["uuid_accepted"])
    by_words = type_wanted(annotations, record.input["card_type"])
    same("type_accepted by whole words", ours_type, by_words)
    if not record.defects & {"S22", "S22-substring"}:
        same("type_accepted", ours_type, record.output["type_accepted"])


def type_wanted(annotations: Mapping[str, str], card_type: str) -> bool:
    """S22 told once more, by regular expressions: whole words in a row, blank items dropped, the refusal wins."""

    def listed(key: str) -> list[str]:
        return [item.strip() for item in annotations.get(key, "").split(",") if item.strip(" -_\t")]

    def named(item: str) -> bool:
        words = [re.escape(word) for word in re.split(r"[-_\s]+", item.rstrip("*")) if word]
        end = "" if item.endswith("*") else r"(?=$|[-_\s])"
        return re.search(r"(?:^|[-_\s])" + r"[-_\s]+".join(words) + end, card_type, re.IGNORECASE) is not None

    allowed, denied = listed(USE_GPU_TYPE), listed(NO_USE_GPU_TYPE)
    return not any(map(named, denied)) and (not allowed or any(map(named, allowed)))


def check_requests(record: Record) -> None:
    """``requests``: what the containers of a pod ask for."""
    wanted = expected_asks(record.input["pod"], record.tables.of(VgpuTable))
    request = readable_request(pod_of(record.input["pod"]), record.tables)
    if not record.reachable:
        return
    if wanted is None:
        demand(isinstance(request, tuple) and all(isinstance(one, Violation) for one in request), "not refused")
        return
    ours = [] if request is None else _asked(request)
    if not record.defects:
        expected = [
            {
                "number": one["number"],
                "percent": one["mem_percentage"] if one["mem_percentage"] != _NOT_GIVEN else 0,
                "memory": one["mem"] if one["mem_percentage"] == _NOT_GIVEN else 0,
                "cores": one["cores"],
            }
            for one in record.output["requests"]
        ]
        same("requests", ours, expected)
        same("is_vgpu_pod", request is not None, record.output["is_vgpu_pod"])
    same("requests by the rules", ours, wanted)


def _asked(request: Any) -> list[dict[str, int]]:
    demand(isinstance(request, Request), f"refused: {request}")
    return [
        {"number": ask.number, "percent": ask.percent, "memory": ask.memory, "cores": ask.cores} for ask in request.asks
    ]


def expected_asks(pod: Mapping[str, Any], table: VgpuTable) -> list[dict[str, int]] | None:
    """As nvidia 3.1 says, with S19 to S21 and S25, told once more from the JSON; None if the pod must be refused."""
    asks: list[dict[str, int]] = []
    for container in pod["spec"]["containers"]:
        resources = container.get("resources", {})
        found = {**resources.get("requests", {}), **resources.get("limits", {})}
        texts = {
            "number": found.get(table.named.cards),
            "memory": found.get(table.named.memory),
            "percent": found.get(table.named.percentage) if table.named.percentage else None,
            "cores": found.get(table.named.cores),
        }
        if all(text is None for text in texts.values()):
            continue
        try:
            figures = {name: parse_amount(str(text), name) for name, text in texts.items() if text is not None}
        except InvalidRequestError:
            return None
        if figures.get("number") == 0:
            continue
        percent = figures.get("percent")
        if (
            any(figure > MAX_INT32 for figure in figures.values())
            or figures.get("cores", 0) > 100
            or (percent is not None and not 1 <= percent <= 100)
        ):
            return None
        if percent is None and not figures.get("memory"):
            percent = 100
        asks.append(
            {
                "number": figures.get("number", 1),
                "percent": percent or 0,
                "memory": 0 if percent else figures["memory"],
                "cores": figures.get("cores", 0),
            }
        )
    return asks


def check_plugin_decode(record: Record) -> None:
    """``plugin-decode``: what the plugin's player makes of ``devices-to-allocate``, its panics included."""
    expected = record.output
    try:
        segments = plugin.decode(record.input["value"])
        ours: dict[str, Any] = {
            "segments": [[{"id": d.id, "type": d.type, "mem": d.mem, "cores": d.cores} for d in s] for s in segments],
            "device_count": plugin.device_count(segments),
        }
        try:
            container, devices = plugin.next_request(segments, record.input["containers"])
            served = [{"id": d.id, "type": d.type, "mem": d.mem, "cores": d.cores} for d in devices]
            ours["next"] = {"container": container, "devices": served}
        except plugin.VgpuRequestError as error:
            ours["next"] = {"error": str(error)}
        ours["after_erase"] = plugin.erase(segments)
    except plugin.PluginPanicError:
        demand("panic" in str(expected), "the player panics where the plugin does not")
        return
    demand("panic" not in expected, "the plugin panics where the player does not")
    for key in ("segments", "device_count", "next", "after_erase"):
        if key in expected:
            same(key, ours[key], expected[key])


def check_plugin_oldest(record: Record) -> None:
    """``plugin-oldest``: which pod the plugin's player takes."""
    found = plugin.oldest(record.input["pods"], record.input["node"], record.input["amount"])
    same("pod", found["metadata"]["name"] if found is not None else None, record.output["pod"])
