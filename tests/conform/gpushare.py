"""Conformance of the share plugin's two modes: inventory, index texts, requests, placements, sequences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from core.catalog import standard_catalog
from core.dialects.gpushare.cards import MAX_CARDS, MEMORY, NUMBER, capacity_of, cards_of
from core.dialects.gpushare.dialect import GpuMemory, GpuNumber
from core.dialects.gpushare.pods import decode_gpu_index, encode_gpu_index, held, readable_request, total_of
from core.errors import InvalidRequestError
from core.model import NodeName, Phase
from core.names import GPU_INDEX
from core.port.cards import Placed
from core.port.handoff import Stamp
from core.port.refusals import Reason
from core.settings import Policy, Settings, Tables
from core.sharing.account import Assignment, take
from core.sharing.card import Card
from core.sharing.request import Request
from tests.conform.records import Record, demand, node_of, pod_of, same

_PORTS: Final = {"memory": GpuMemory(), "number": GpuNumber()}
_MODES: Final = {"memory": MEMORY, "number": NUMBER}
_NODE: Final = "node-a"
_NO_TABLES: Final = Tables()


def check_node(record: Record) -> None:
    """``node``: memory per card, unhealthy cards left out (their list trimmed, S31)."""
    cards = _cards(record.input["node"], "memory")
    if cards is None:
        demand(record.output is None or _impossible(record.input["node"]), "a node with cards is not read")
        return
    listed = record.input["node"]["metadata"].get("annotations", {}).get("volcano.sh/gpu-unhealthy-ids", "")
    ours = [{"index": one.fixed.position, "memory": one.fixed.memory} for one in cards if one.fixed.fault is None]
    sick = {piece.strip() for piece in listed.split(",")}
    demand(all(str(one["index"]) not in sick for one in ours), "S31: an unhealthy card is offered")
    if not record.defects and not any(piece != piece.strip() for piece in listed.split(",")):
        same("cards", ours, record.output["cards"] if record.output else None)


def check_index(record: Record) -> None:
    """``index``: the cards that a pod's annotation names; upstream drops a list with one bad piece."""
    text = record.input["pod"]["metadata"].get("annotations", {}).get(GPU_INDEX)
    found = decode_gpu_index(text) if text is not None else None
    ours = None if found is None or None in found else found
    same("indices", ours, record.output["indices"])


def check_encode(record: Record) -> None:
    """``encode``: the annotation's text."""
    same("value", encode_gpu_index(record.input["indices"]), record.output["value"])


def check_requests(record: Record) -> None:
    """``requests``: pod totals, of what an API server admits; upstream's sums may wrap."""
    out = record.output
    if record.reachable and min(out["memory"], out["number"]) >= 0:
        pod = pod_of(record.input["pod"])
        memory, number = (total_of(pod, mode.resource) for mode in (MEMORY, NUMBER))
        same("totals", (memory, number), (out["memory"], out["number"]))
        modes = (out["has_request_memory_mode"], out["has_request_number_mode"])
        same("has request", (memory > 0, number > 0), modes)


def check_place(record: Record) -> None:
    """``place``: one pod on one node, in the record's mode whatever else the node offers."""
    given, out = record.input, record.output
    cards = _used(given["node"], given["pods"], given["mode"])
    if not out["has_request"]:
        demand(_request(given["pod"], given["mode"]) is None, "a request is seen where there is none")
        return
    if out["request_memory"] and out["request_number"]:
        asked = standard_catalog().request_of(pod_of(given["pod"]), _NO_TABLES, Settings())
        demand(isinstance(asked, tuple), "a pod that asks for memory and number is not refused (nvidia 10.8)")
        return
    placed = _place(cards, given["pod"], given["mode"])
    _properties(given["node"], given["pods"], given["pod"], given["mode"], placed)
    # A piece of an index list that cannot be read counts nowhere upstream; here it closes the node (nvidia 10.7).
    if record.defects - {"S30"} or cards is None or out.get("node_devices", "") is None:
        return
    if "S30" not in record.defects or out.get("gpu_index_random"):
        finished = any(pod.get("status", {}).get("phase") in ("Succeeded", "Failed") for pod in given["pods"])
        _same_usage("usage before", cards, out["usage_before"], given["mode"], count_pods=not finished)
        same("fits", placed is not None, out["fits"] and "allocate_error" not in out)
        if placed is not None:
            same("gpu_index", _text(placed), out["gpu_index"])


def check_sequence(record: Record) -> None:
    """``sequence``: pods come and go; every step goes on from the recorded outcome."""
    given, mode = record.input, record.input["mode"]
    live: dict[str, Mapping[str, Any]] = {}
    for op, step in zip(given["ops"], record.output["steps"], strict=True):
        if op["op"] == "delete":
            live.pop(op["name"], None)
            continue
        pods = list(live.values())
        placed = _place(_used(given["node"], pods, mode), op["pod"], mode)
        _properties(given["node"], pods, op["pod"], mode, placed)
        same(f"step {step['step']} fits", placed is not None, step["fits"])
        if placed is not None:
            same(f"step {step['step']} gpu_index", _text(placed), step["gpu_index"])
            meta = op["pod"]["metadata"]
            live[meta["name"]] = {**op["pod"], "metadata": {**meta, "annotations": {GPU_INDEX: step["gpu_index"]}}}
    final = _used(given["node"], list(live.values()), mode)
    demand(final is not None, "the node is not read")
    _same_usage("final usage", final or (), record.output["final_usage"], mode)


def _cards(node: Mapping[str, Any], mode: str) -> tuple[Card, ...] | None:
    """The cards of *node* in *mode*, forced: which of both modes a node offers is `offer`'s part."""
    try:
        capacity = capacity_of(node_of(node))
    except InvalidRequestError:
        return None
    if capacity is None or (mode == "memory" and capacity.memory is None):
        return None
    return cards_of(capacity, _MODES[mode])


def _impossible(node: Mapping[str, Any]) -> bool:
    """Whether a capacity cannot be right: negative, a fraction, or more cards than any machine has."""
    for text in node["status"].get("capacity", {}).values():
        try:
            if float(text) < 0 or float(text) != int(float(text)):
                return True
        except ValueError:
            continue
    number = node["status"].get("capacity", {}).get(NUMBER.resource, "0")
    return not number.isdigit() or int(number) > MAX_CARDS


def _used(node: Mapping[str, Any], pods: Sequence[Mapping[str, Any]], mode: str) -> tuple[Card, ...] | None:
    cards = _cards(node, mode)
    if cards is None:
        return None
    for found in pods:
        pod = pod_of(found, _NODE)
        holds = held(pod, cards, _MODES[mode])
        if holds is None or pod.phase in (Phase.SUCCEEDED, Phase.FAILED):
            continue
        if holds.closes:
            return None
        cards = take(cards, holds.assignment)
    return cards


def _request(pod: Mapping[str, Any], mode: str) -> Request | None:
    found = readable_request(pod_of(pod), _MODES[mode])
    return found if isinstance(found, Request) else None


def _place(cards: tuple[Card, ...] | None, pod: Mapping[str, Any], mode: str) -> Placed[Assignment] | None:
    request = _request(pod, mode)
    if cards is None or request is None:
        return None
    dialect = _PORTS[mode]
    placed = dialect.place(cards, request, Policy.INDEX)
    if placed is None:
        demand(bool(dialect.shortfalls(cards, request)), "refused without a reason")
        return None
    after = dialect.take(cards, placed.assignment)
    same("give_back undoes take", dialect.give_back(after, placed.assignment), cards)
    return placed


def _text(placed: Placed[Assignment]) -> str:
    stamp = Stamp(node=NodeName(_NODE), now_s=1, order=2)
    return _PORTS["memory"].annotations(placed.assignment, stamp, _NO_TABLES)[GPU_INDEX]


def _same_usage(what: str, cards: tuple[Card, ...], expected: Any, mode: str, *, count_pods: bool = True) -> None:
    """Compare usage; upstream goes on listing pods that have finished, though they hold nothing."""
    ours = [
        {
            "index": card.fixed.position,
            "used_mem": card.used_memory,
            "pods": card.used_slots,
            "free_mem": max(card.fixed.memory - card.used_memory, 0),
        }
        for card in cards
        if card.fixed.fault is None
    ]
    compared = ["index"]
    # The memory of cards that are sold whole is not looked at.
    compared += ["used_mem", "free_mem"] if mode == "memory" else []
    compared += ["pods"] if count_pods else []
    same(what, [{k: one[k] for k in compared} for one in ours], [{k: one[k] for k in compared} for one in expected])


def _properties(
    node: Mapping[str, Any],
    pods: Sequence[Mapping[str, Any]],
    pod: Mapping[str, Any],
    mode: str,
    placed: Placed[Assignment] | None,
) -> None:
    """Chosen cards are healthy and have room; a pod is refused only if none has."""
    cards = _used(node, pods, mode)
    if cards is None:
        demand(placed is None, "a node that cannot be read is used")
        return
    request = _request(pod, mode)
    if request is None:
        demand(placed is None, "cards are given to a pod that asks for none")
        return
    usable = [card for card in cards if card.fixed.fault is not Reason.UNHEALTHY]
    (ask,) = request.asks
    wanted = ask.number
    if mode == "memory":
        fitting = [c.fixed.position for c in usable if c.fixed.memory - c.used_memory >= ask.memory]
    else:
        fitting = [c.fixed.position for c in usable if not c.used_slots]
    if placed is None:
        demand(len(fitting) < wanted, f"refused although {len(fitting)} cards fit")
        return
    same("cards", [one.slot for one in placed.assignment.entries], fitting[:wanted])
