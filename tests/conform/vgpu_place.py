"""Conformance of vGPU decisions: placements, sequences, exclusive rules, node scores.

A record without a defect must be answered as upstream answered it. Every answer, and all that is left of a record
with a defect, is checked by properties: what the defects' "Do" asks, no card over its total, and no refusal
while enough cards fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from core import names
from core.dialects.vgpu import keys
from core.dialects.vgpu.dialect import Vgpu
from core.dialects.vgpu.pods import readable_request
from core.dialects.vgpu.table import VgpuTable
from core.model import NodeName, Phase
from core.port.cards import Offer
from core.port.handoff import Stamp
from core.settings import Policy
from core.sharing.account import Assignment
from core.sharing.card import Card
from core.sharing.request import Request
from core.sharing.slices import UNKNOWN, conflicting
from core.units import MAX_INT32
from tests.conform.records import Record, defects_of, demand, node_of, pod_of, same, same_score
from tests.conform.vgpu_cards import IDS, entries_of, plain_cards
from tests.conform.vgpu_properties import Answer, Case, check_properties, check_rules, clear_of_broken, notes_of
from tests.conform.vgpu_wire import configured

_VGPU: Final = Vgpu()
# Defects after which the rest of the answer still holds: the score alone, or the order and the positions of entries.
_FORM_ONLY: Final = frozenset({"S10", "S24", "S33"})
_NODE: Final = "node-a"
_TIMES: Final = (keys.TIME, keys.BIND_TIME)


def check_place(record: Record) -> None:
    """``place``: filter, score and assignment of one pod on one node."""
    given, out = record.input, record.output
    case = Case(record, given["node"], given["pods"], given["pod"])
    answer = _answer(case)
    if "panic" in out and "new:register-index-gap" not in record.defects:
        demand(answer.ids is None or clear_of_broken(case, answer.ids), "a card that cannot be counted is used")
        return
    if not out.get("has_request", True):
        demand(answer.request is None or _needs_completion(record, given["pod"]), "a request is seen without one")
        return
    if record.defects - _FORM_ONLY or "panic" in out or _untold(case, answer):
        return
    if out.get("node_devices", "") is None:
        demand(answer.ids is None or _five_fields(given["node"]), "a node without devices is used")
        return
    if _five_fields(given["node"]):
        return
    _same_usage("usage before", record, given["pods"], out.get("usage_before"))
    same("fits", answer.ids is not None, out["fits"])
    if answer.ids is None or answer.placed is None:
        return
    _same_annotations(case, answer.placed.assignment, out["annotations"])
    _same_usage(
        "usage after",
        record,
        [*given["pods"], _holding(given["pod"], answer.ids)],
        out.get("usage_after_recount"),
    )
    if "S10" not in record.defects:
        same_score(answer.placed.score, out["score"])


def check_exclusive(record: Record) -> None:
    """``exclusive``: the same under `deviceshare.GPUExclusiveRules`."""
    given, out = record.input, record.output
    case = Case(record, given["node"], given["pods"], given["pod"])
    answer = _answer(case)
    if answer.ids is not None:
        check_rules(case, answer.ids)
    # Health is no part of these records' tags: upstream's choice of a sick card is not ours to repeat (S1).
    if record.defects - _FORM_ONLY or _has_unhealthy(given["node"]) or any(map(_repeats, given["pods"])):
        return
    if _untold(case, answer):
        return
    same("fits", answer.ids is not None, out["fits"])
    if answer.ids is None or answer.placed is None:
        return
    same("ids", answer.ids, _in_form(case, out["ids"]))
    if "S10" not in record.defects and record.policy is not Policy.SPREAD:
        same_score(answer.placed.score, out["score"])
    if isinstance(answer.request, Request):
        rules = [int(one.removeprefix("rule ")) for one in answer.request.marks if one.startswith("rule ")]
        same("matched rules", rules, out["matched_rules"])


def check_sequence(record: Record) -> None:
    """``sequence``: pods come and go; every step goes on from the recorded outcome."""
    given, out = record.input, record.output
    live: dict[str, Mapping[str, Any]] = {}
    tainted = False
    for op, step in zip(given["ops"], out["steps"], strict=True):
        if op["op"] == "delete":
            live.pop(op["name"], None)
            continue
        pods = list(live.values())
        tainted = tainted or bool(defects_of(step) - _FORM_ONLY)
        case = Case(record, given["node"], pods, op["pod"])
        answer = _answer(case)
        if not tainted and not _untold(case, answer) and not any(map(_repeats, pods)):
            same(f"step {step['step']} fits", answer.ids is not None, step["fits"])
            if answer.ids is not None and answer.placed is not None:
                same(f"step {step['step']} ids", answer.ids, _in_form(case, step["ids"]))
                if record.policy is not Policy.SPREAD:
                    same_score(answer.placed.score, step["score"])
        # What upstream has once decided wrongly stays in its later steps, tagged or not.
        if step.get("fits"):
            live[op["pod"]["metadata"]["name"]] = _holding(op["pod"], step["ids"])
    if not tainted and not any(map(_repeats, live.values())):
        _same_usage("final usage", record, list(live.values()), out["final_usage"])


def check_node_score(record: Record) -> None:
    """``nodescore``: per node whether the pod fits and what the device score comes to."""
    given, out = record.input, record.output
    for node in given["nodes"]:
        name = node["metadata"]["name"]
        pods = [pod for pod in given["pods"] if pod.get("spec", {}).get("nodeName") == name]
        case = Case(record, node, pods, given["pod"])
        answer = _answer(case)
        want = out["nodes"][name]
        if record.defects - _FORM_ONLY or _has_unhealthy(node) or not want.get("device_request", True):
            continue
        if _untold(case, answer) or any(map(_repeats, pods)):
            continue
        same(f"{name} fits", answer.ids is not None, want["fits"])
        if answer.placed is not None and "S10" not in record.defects:
            # Upstream rounds half up (nvidia 3.13).
            score = int(answer.placed.score + 0.5)
            same(f"{name} score", score, want["device_score"])
            same(f"{name} weighted score", score * given["weight"], want["weighted_score"])


def is_vgpu_score(record: Record) -> bool:
    """Whether a node-score record speaks of vGPU nodes alone."""
    return all(names.VGPU_REGISTER in node["metadata"].get("annotations", {}) for node in record.input["nodes"])


# ---------------------------------------------------------------------- asking the core


def _answer(case: Case) -> Answer:
    """The core's answer, its properties checked."""
    answer = _asked(case)
    check_properties(case, answer)
    return answer


def _asked(case: Case) -> Answer:
    record = case.record
    cards = _used_cards(record, case.node, case.pods)
    request = readable_request(pod_of(case.pod), record.tables)
    if cards is None or not isinstance(request, Request):
        return Answer(request, None, None, cards or ())
    placed = _VGPU.place(cards, request, record.policy)
    if placed is None:
        demand(bool(_VGPU.shortfalls(cards, request)), "refused without a reason")
        return Answer(request, None, None, cards)
    same("give_back undoes take", _VGPU.give_back(_VGPU.take(cards, placed.assignment), placed.assignment), cards)
    return Answer(request, placed, _annotations(record, placed.assignment)[keys.IDS], cards)


def _used_cards(record: Record, node: Mapping[str, Any], pods: Sequence[Mapping[str, Any]]) -> tuple[Card, ...] | None:
    offer = _VGPU.offer(node_of(node), record.tables)
    if not isinstance(offer, Offer):
        return None
    cards = offer.cards
    for found in pods:
        pod = pod_of(found, _NODE)
        held = _VGPU.held(pod, cards, record.tables)
        if held is None or pod.phase in (Phase.SUCCEEDED, Phase.FAILED):
            continue
        if held.closes:
            return None
        cards = _VGPU.take(cards, held.assignment)
    return cards


def _annotations(record: Record, assignment: Assignment) -> Mapping[str, str]:
    return _VGPU.annotations(assignment, Stamp(node=NodeName(_NODE), now_s=7, order=8), record.tables)


def _holding(pod: Mapping[str, Any], ids: str) -> Mapping[str, Any]:
    meta = pod["metadata"]
    return {**pod, "metadata": {**meta, "annotations": {**meta.get("annotations", {}), IDS: ids}}}


# ---------------------------------------------------------------------- comparing with upstream


def _same_annotations(case: Case, assignment: Assignment, expected: Mapping[str, str]) -> None:
    ours = dict(_annotations(case.record, assignment))
    demand(ours[keys.TIME] == "8" and ours[keys.BIND_TIME] == "7", "times are not those of the stamp")
    text = _in_form(case, expected[keys.IDS])
    # Of several containers the plugin is shown the first; the rest is kept back in a key of our own (nvidia 2.8).
    shown = text if names.SEGMENT_QUEUE not in ours else ours[keys.TO_ALLOCATE]
    demand(text.startswith(shown), "devices-to-allocate is not the beginning of the assignment")
    wanted = {**expected, keys.IDS: text, keys.TO_ALLOCATE: shown}
    untimed = {key: value for key, value in ours.items() if key not in _TIMES and key not in names.PRIVATE_KEYS}
    same("annotations", untimed, {key: value for key, value in wanted.items() if key not in _TIMES})


def _in_form(case: Case, ids: str) -> str:
    """Upstream's text with one segment per container (S24) and entries in register order (S33)."""
    positions: dict[str, int] = {}
    for card in plain_cards(case.node, case.record.tables):
        positions.setdefault(card.uuid, card.position)
    asking = case.asking()
    segments = ids.split(";") if ids else []
    if len(segments) != len(asking):
        return ids
    written = [""] * (asking[-1] + 1) if asking else []
    for container, segment in zip(asking, segments, strict=True):
        entries = [piece for piece in segment.split(":") if piece]
        entries.sort(key=lambda entry: positions.get(entry.partition(",")[0].partition("[")[0], 0))
        written[container] = "".join(f"{entry}:" for entry in entries)
    return ";".join(written)


def _same_usage(what: str, record: Record, pods: Sequence[Mapping[str, Any]], expected: Any) -> None:
    if expected is None:
        return
    cards = _used_cards(record, record.input["node"], pods)
    if cards is None or any(map(_repeats, pods)) or any(card.unread or UNKNOWN in card.slices for card in cards):
        return
    ours = [
        {
            "index": card.fixed.position,
            "uuid": card.fixed.uuid,
            "used_num": card.used_slots,
            "used_mem": card.used_memory,
            "used_cores": card.used_cores,
        }
        for card in cards
    ]
    same(what, ours, [{key: one[key] for key in ours[0]} for one in expected] if ours else [])


def _untold(case: Case, answer: Answer) -> bool:
    """Whether a defect shows that only some records are tagged with; a rule tells it from the input alone.

    S19 to S21, S25: figures that must be refused, ignored or completed. S18: resources by configured names. 10.2,
    10.6: cards without memory or shares. A percentage never comes to nothing. 4.2: cards whose holders cannot be
    counted are closed.
    """
    asks, table = case.asks, case.record.tables.of(VgpuTable)
    if asks is None or _needs_completion(case.record, case.pod):
        return True
    if not configured(case.node, table):
        demand(answer.ids is None, "S18: a node without the configured resources is used")
        return True
    cards = plain_cards(case.node, case.record.tables)
    if any(not (0 < card.memory <= MAX_INT32 and 0 < card.count <= MAX_INT32) for card in cards):
        return True
    if any(ask["percent"] and card.memory * ask["percent"] < 100 for ask in asks for card in cards):
        return True
    return any(card.unread or conflicting(card.slices) for card in answer.cards)


def _needs_completion(record: Record, pod: Mapping[str, Any]) -> bool:
    """Whether a container asks with number 0 (S21), or with cores or a percentage alone (S25)."""
    table = record.tables.of(VgpuTable)
    for container in pod["spec"]["containers"]:
        found = container.get("resources", {}).get("limits", {})
        if found.get(table.named.cards) == "0":
            return True
        if not {table.named.cards, table.named.memory} & set(found) and (
            {table.named.cores, table.named.percentage} - {""}
        ) & set(found):
            return True
    return False


def _repeats(pod: Mapping[str, Any]) -> bool:
    """Whether a pod holds one card twice, of which upstream counts one (S2)."""
    uuids = [fields[0].partition("[")[0] for _, fields in entries_of(notes_of(pod).get(IDS, ""))]
    return len(set(uuids)) != len(uuids)


def _five_fields(node: Mapping[str, Any]) -> bool:
    text = node["metadata"].get("annotations", {}).get(names.VGPU_REGISTER, "")
    return any(piece.count(",") == 4 for piece in text.split(":"))


def _has_unhealthy(node: Mapping[str, Any]) -> bool:
    text = node["metadata"].get("annotations", {}).get(names.VGPU_REGISTER, "")
    return any(len(f := piece.split(",")) > 5 and f[4] != "true" for piece in text.split(":"))
