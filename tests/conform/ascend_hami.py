"""Conformance of the HAMi protocol for Ascend: registers, assignments, requests, placements, sequences, node scores.

A record without a defect must be answered as upstream answered it, in the form that is required (one segment per
container). Every answer is checked by the properties of `conform_ascend_hami_properties`; where a rule tells from the
input that upstream decides wrongly although the record has no tag, nothing else is asked of it: H-1 (a pod of several
containers, or with one chip twice, is on the node), H-9 (scores of several chips), H-11 (AI cores and CPUs), H-16 in
sequences and node scores (one chip from the larger ring).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from core import hami_lock
from core.dialects.ascend_hami import cards as chips
from core.dialects.ascend_hami import keys
from core.dialects.ascend_hami.dialect import AscendHami
from core.dialects.ascend_hami.pods import readable_request
from core.dialects.ascend_hami.table import WHOLE_CHIP, AscendTable
from core.errors import InvalidRequestError
from core.model import NodeName, Phase
from core.port.cards import Offer
from core.port.handoff import Stamp
from core.sharing.account import Unread, Written, encode_segments, segments_of
from core.sharing.card import Card
from core.sharing.request import Request
from core.units import MAX_INT32
from core.wire.hami_register import Record as Registered
from core.wire.hami_register import decode_whole_register
from tests.conform.ascend_hami_properties import (
    Answer,
    Case,
    case_of,
    check_properties,
    chip_of,
    entries_of,
    is_soft,
    notes_of,
    plain_chips,
    ring_before_policy,
    short_of_ai,
    text_of,
    wanted_of,
)
from tests.conform.records import Record, defects_of, demand, node_of, pod_of, same, same_score

_DIALECT: Final = AscendHami()
_NODE: Final = "node-a"
_COMPARED: Final = ("id", "index", "count", "devmem", "devcore", "soft")
_TIMES: Final = (hami_lock.TIME, hami_lock.BIND_TIME, keys.PREDICATE_TIME)
# Where upstream's float does not say which side of a half it is on (both agree to 1e-9).
_HALF: Final = 1e-9


def check_register(record: Record) -> None:
    """``register``: the devices of a register, or that it cannot be read."""
    try:
        found = decode_whole_register(record.input["value"], "value")
    except InvalidRequestError:
        demand("error" in record.output, "a register that upstream reads is refused")
        return
    demand("error" not in record.output, "a register that upstream refuses is read")
    devices = record.output["devices"] or ()
    same("devices", [one._replace(numa=0, mode="", info=()) for one in found], [_expected(one) for one in devices])


def check_node(record: Record) -> None:
    """``node``: per chip type the devices, and whether they are sliced softly."""
    offer = _DIALECT.offer(node_of(record.input["node"]), record.tables)
    if "panic" in record.output:
        demand(offer is not None and not isinstance(offer, Offer), "a node that cannot be read is used")
        return
    ours: dict[str, list[dict[str, Any]]] = {}
    for card in offer.cards if isinstance(offer, Offer) else ():
        fixed = card.fixed
        one = {"id": fixed.uuid, "index": fixed.position, "count": fixed.slots, "devmem": fixed.memory}
        soft = fixed.kind.mode == "soft"
        # Soft shares have percent of the cores, whatever the register says (ascend 4.4).
        demand(not soft or fixed.cores == 100, "the cores of a soft node are not counted in percent")
        ours.setdefault(fixed.label, []).append({**one, "soft": soft, **({} if soft else {"devcore": fixed.cores})})
    expected = {
        word: [{key: one[key] for key in _COMPARED if key != "devcore" or not one["soft"]} for one in found]
        for word, found in record.output["types"].items()
        # Without a configuration upstream knows one chip type, here all that the plugin ships are known.
    }
    if record.input["config"] == "builtin":
        ours = {word: found for word, found in ours.items() if word in expected}
    same("types", {w: _by_id(f) for w, f in ours.items()}, {w: _by_id(f) for w, f in expected.items()})


def check_pod_decode(record: Record) -> None:
    """``pod-decode``: the segments of an assignment; what cannot be read is no device."""
    found = segments_of(record.input["value"], "value")
    unreadable = [one for segment in found for one in segment if isinstance(one, Unread)]
    readable = [[one for one in segment if isinstance(one, Written)] for segment in found if segment]
    if "segments_error" in record.output:
        demand(bool(unreadable), "what upstream refuses is read")
        return
    if unreadable:
        demand(all(_odd(one.text) for one in unreadable), "an entry that upstream reads is not read")
        return
    ours = [
        [{"id": a.name, "type": a.type, "mem": a.memory, "cores": a.cores} for a in segment] for segment in readable
    ]
    same("segments", ours, record.output["nonempty_segments"])


def check_pod_encode(record: Record) -> None:
    """``pod-encode``: the text of segments."""
    segments = [
        [Written(one["id"], one["type"], one["mem"], one["cores"]) for one in segment]
        for segment in record.input["segments"]
    ]
    same("value", encode_segments(segments), record.output["value"])


def check_trim(record: Record) -> None:
    """``trim``: memory rounded up to a template; 0 without one is what must be refused."""
    cut = chips.trim(chip_of(record.tables, record.input["type"]), record.input["mem"])
    ours = (0, "") if cut is None else (cut.charge, "" if cut.name == WHOLE_CHIP else cut.name)
    same("trimmed", ours, (record.output["mem"], record.output["template"]))


def check_requests(record: Record) -> None:
    """``requests``: what a pod asks; pods that must be refused are, with a reason."""
    chip, pod = chip_of(record.tables, record.input["type"]), pod_of(record.input["pod"])
    wants = wanted_of(record.input["pod"], chip)
    found, asked = readable_request(pod, record.tables), _DIALECT.request(pod, record.tables)
    if wants is None or (isinstance(found, tuple) and not isinstance(found, Request)):
        demand(not isinstance(asked, Request), "H-3, H-8, H-14: figures that must be refused are admitted")
        out = record.output["requests"]
        told = (
            bool(record.defects) or not record.reachable or wants is None or any("verify_error" in one for one in out)
        )
        demand(told or _asked_of_init(record), "a pod that upstream reads is refused")
        return
    if "H-4" in record.defects:
        demand(not isinstance(asked, Request), "H-4: memory without a count is admitted")
    inits = len(pod.init_containers)
    asks = [ask for ask in found.asks if ask.container >= inits] if isinstance(found, Request) else []
    if "H-10" in record.defects:
        places = isinstance(found, Request) and len(found.asks) > len(asks)
        demand(places or not isinstance(asked, Request), "H-10: an init container is not placed")
    if record.defects - {"H-4", "H-10"} or not record.reachable:
        return
    soft = is_soft(record.input["pod"])
    whole = chips.trim(chip, record.input["devmem"])
    own = record.input["devmem"] if soft or whole is None else whole.charge
    ours = [{"number": a.number, "mem": own if a.percent else a.memory, "cores": a.cores} for a in asks]
    same("requests", ours, [{key: one[key] for key in ("number", "mem", "cores")} for one in record.output["requests"]])


def check_place(record: Record) -> None:
    """``place``: filter, score and assignment of one pod on one node."""
    given, out = record.input, record.output
    case = case_of(record, given["node"], given["pods"], given["pod"])
    answer = _answer(case)
    if not out.get("has_request", True):
        demand(answer.request is None, "a request is seen where there is none")
        return
    if record.defects or "panic" in out or _undecided(case):
        return
    if not _misbooked(case):
        _same_usage("usage before", case, out["usage_before"])
    same("fits", answer.text is not None, out["fits"])
    if answer.text is None or answer.placed is None:
        return
    _same_annotations(case, answer, out["annotations"])
    _same_score(answer, out)


def check_sequence(record: Record) -> None:
    """``sequence``: pods come and go; every step goes on from the recorded outcome."""
    given, out = record.input, record.output
    live: dict[str, Mapping[str, Any]] = {}
    for op, step in zip(given["ops"], out["steps"], strict=True):
        if op["op"] == "delete":
            live.pop(op["name"], None)
            continue
        case = case_of(record, given["node"], list(live.values()), op["pod"])
        answer = _answer(case)
        if not _untold(case) and not defects_of(step) and not ring_before_policy(case, answer):
            same(f"step {step['step']} fits", answer.text is not None, step["fits"])
            if answer.text is not None:
                same(f"step {step['step']} allocated", answer.text, _in_form(case, step["allocated"]))
                # Of several containers upstream's score may be that of another random outcome (ascend 10.5).
                if len(case.wants or ()) == 1 or not step.get("random_choice"):
                    _same_score(answer, step)
        if step["fits"]:
            live[op["pod"]["metadata"]["name"]] = _holding(case, step["allocated"])
    last = case_of(record, given["node"], list(live.values()), {"metadata": {}, "spec": {"containers": []}})
    if not _untold(last):
        _same_usage("final usage", last, out["final_usage"])


def check_node_score(record: Record) -> None:
    """``nodescore``: per node whether the pod fits and what the device score comes to."""
    given, out = record.input, record.output
    if out.get("random"):
        return
    for node in given["nodes"]:
        name = node["metadata"]["name"]
        pods = [pod for pod in given["pods"] if pod.get("spec", {}).get("nodeName") == name]
        want = out["nodes"][name]
        # A node has one chip type here; one that does not have the pod's fits nothing.
        case = Case(_word(given["pod"], record), record.tables, record.policy, node, pods, given["pod"])
        answer = _answer(case)
        if want.get("random") or _untold(case) or _unhealthy(case) or ring_before_policy(case, answer):
            continue
        same(f"{name} fits", answer.text is not None, want["fits"])
        if answer.placed is not None and "device_score" in want and _one_chip_each(answer):
            score = int(answer.placed.score + _HALF + 0.5)
            same(f"{name} score", score, want["device_score"])
            same(f"{name} weighted score", score * given["weight"], want["weighted_score"])


# ---------------------------------------------------------------------- asking the core


def _answer(case: Case) -> Answer:
    """The core's answer, its properties checked."""
    answer = _asked(case)
    check_properties(case, answer)
    return answer


def _asked(case: Case) -> Answer:
    cards = _used_cards(case)
    request = readable_request(pod_of(case.pod), case.tables)
    if not isinstance(request, Request):
        return Answer(request, None, None, cards or ())
    if cards is None:
        return Answer(None, None, None)
    placed = _DIALECT.place(cards, request, case.policy)
    if placed is None:
        demand(bool(_DIALECT.shortfalls(cards, request)), "refused without a reason")
        return Answer(request, None, None, cards)
    after = _DIALECT.take(cards, placed.assignment)
    same("give_back undoes take", _DIALECT.give_back(after, placed.assignment), cards)
    notes = _annotations(case, placed.assignment)
    same("both device annotations", notes[keys.to_allocate(case.word)], notes[keys.allocated(case.word)])
    bound = pod_of(case.pod, _NODE, {**notes_of(case.pod), **notes})
    held = _DIALECT.held(bound, cards, case.tables)
    same("what is held", held.assignment if held else None, placed.assignment)
    return Answer(request, placed, notes[keys.allocated(case.word)], cards)


def _used_cards(case: Case) -> tuple[Card, ...] | None:
    offer = _DIALECT.offer(node_of(case.node), case.tables)
    if not isinstance(offer, Offer):
        return None
    cards = offer.cards
    for found in case.pods:
        pod = pod_of(found, _NODE)
        held = _DIALECT.held(pod, cards, case.tables)
        if held is None or pod.phase in (Phase.SUCCEEDED, Phase.FAILED):
            continue
        if held.closes:
            return None
        cards = _DIALECT.take(cards, held.assignment)
    return cards


def _annotations(case: Case, assignment: Any) -> Mapping[str, str]:
    return _DIALECT.annotations(assignment, Stamp(node=NodeName(_NODE), now_s=7, order=8), case.tables)


def _holding(case: Case, text: str) -> Mapping[str, Any]:
    meta = case.pod["metadata"]
    notes = {**meta.get("annotations", {}), keys.allocated(case.word): text}
    return {**case.pod, "metadata": {**meta, "annotations": notes}}


# ---------------------------------------------------------------------- comparing with upstream


def _same_annotations(case: Case, answer: Answer, expected: Mapping[str, str]) -> None:
    ours = dict(_annotations(case, answer.placed.assignment if answer.placed else None))
    demand(all(ours[key] == "7" for key in _TIMES), "times are not those of the stamp")
    wanted = dict(expected)
    for key in (keys.to_allocate(case.word), keys.allocated(case.word)):
        wanted[key] = _in_form(case, expected[key])
    info = keys.runtime_info(case.word)
    same("runtime info", json.loads(ours.pop(info)), json.loads(wanted.pop(info)))
    untimed = {key: value for key, value in ours.items() if key not in _TIMES}
    same("annotations", untimed, {key: value for key, value in wanted.items() if key not in _TIMES})


def _same_score(answer: Answer, out: Mapping[str, Any]) -> None:
    if answer.placed is not None and _one_chip_each(answer) and "score" in out:
        same_score(answer.placed.score, out["score"])


def _one_chip_each(answer: Answer) -> bool:
    """Whether every container has one chip: else upstream counts the first alone (H-9, untagged)."""
    segments = [segment for segment, _ in entries_of(answer.text or "")]
    return len(set(segments)) == len(segments)


def _in_form(case: Case, text: str) -> str:
    """Upstream's text with one segment per container of the spec (ascend 4.7)."""
    pieces = [piece for piece in text.split(";") if piece]
    spec = case.pod["spec"]
    written = [""] * (len(spec.get("initContainers", ())) + len(spec["containers"]))
    offset = len(spec.get("initContainers", ()))
    asking = [
        offset + at
        for at, one in enumerate(spec["containers"])
        if wanted_of({**case.pod, "spec": {"containers": [one]}}, case.chip)
    ]
    if len(asking) != len(pieces):
        return text
    for at, piece in zip(asking, pieces, strict=True):
        written[at] = piece
    return "".join(f"{piece};" for piece in written)


def _same_usage(what: str, case: Case, expected: Sequence[Mapping[str, Any]]) -> None:
    ours = [
        {"id": c.fixed.uuid, "used": c.used_slots, "mem": c.used_memory, "cores": c.used_cores}
        for c in _used_cards(case) or ()
    ]
    same(what, _by_id(ours), _by_id(expected))


def _untold(case: Case) -> bool:
    """Whether a defect shows that the records are not tagged with; a rule tells it from the input alone."""
    return _undecided(case) or _misbooked(case)


def _undecided(case: Case) -> bool:
    """Whether the pod must be refused, AI cores or CPUs are short (H-11), or an assignment must not be guessed at."""
    return case.wants is None or short_of_ai(case) or any(chip.broken for chip in case.chips())


def _misbooked(case: Case) -> bool:
    """Whether upstream's count of the node is not what its pods hold (H-1), for all that it need not decide by it."""
    for pod in case.pods:
        entries = list(entries_of(text_of(pod, case.word)))
        if any(segment for segment, _ in entries) or len({fields[0] for _, fields in entries}) < len(entries):
            return True
    return False


def _unhealthy(case: Case) -> bool:
    return any(not chip.sound for chip in plain_chips(case.node, case.word, case.tables))


def _word(pod: Mapping[str, Any], record: Record) -> str:
    text = json.dumps(pod)
    return max((c.named.type for c in record.tables.of(AscendTable).chips if f'"{c.named.cards}' in text), key=len)


def _asked_of_init(record: Record) -> bool:
    pod = record.input["pod"]
    spec = {"containers": pod["spec"].get("initContainers", [])}
    return wanted_of({**pod, "spec": spec}, chip_of(record.tables, record.input["type"])) is None


def _odd(text: str) -> bool:
    """Whether an entry must not be guessed at: too few fields, or figures that are none or out of range."""
    fields = text.split(",")
    return len(fields) < 4 or any(not (f.isascii() and f.isdigit() and int(f) <= MAX_INT32) for f in fields[2:4])


def _expected(one: Mapping[str, Any]) -> Registered:
    ring = (one.get("custominfo") or {}).get("NetworkID")
    return Registered(
        uuid=one.get("id", ""),
        position=one.get("index", 0),
        slots=one.get("count", 0),
        memory_mib=one.get("devmem", 0),
        cores=one.get("devcore", 0),
        type=one.get("type", ""),
        healthy=one.get("health", False),
        ring=int(ring) if isinstance(ring, int | float) and not isinstance(ring, bool) else None,
    )


def _by_id(found: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return sorted(found, key=lambda one: str(one["id"]))
