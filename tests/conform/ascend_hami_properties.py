"""What must hold of every decision on Ascend chips, whatever upstream said: told once more, from the JSON alone.

Chosen chips are sound and accepted, of two containers never the same, none is over its total in memory, shares, cores,
AI cores or AI CPUs, and a pod with one asking container is refused only if fewer chips fit than it wants.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from core.dialects.ascend_hami.keys import SOFT
from core.dialects.ascend_hami.table import AscendChip, AscendTable
from core.port.cards import Placed
from core.settings import Policy, Tables
from core.sharing.account import Assignment
from tests.conform.records import Record, demand, same, same_score

_FINISHED: Final = ("Succeeded", "Failed")
_MAX_INT32: Final = 2**31 - 1
_SUFFIXES: Final = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "k": 10**3, "M": 10**6, "E": 10**18, "m": 1e-3, "": 1}
_SOFT: Final = {"huawei.com/vnpu-mode": "hami-core"}


@dataclass
class PlainChip:
    """One chip of a node, and what its unfinished pods hold of it; soft, cuts: shares of either way of slicing."""

    found: Mapping[str, Any]
    node_soft: bool
    ringed: bool
    slots: int = 0
    memory: int = 0
    cores: int = 0
    ai_core: int = 0
    ai_cpu: int = 0
    cuts: int = 0
    broken: bool = False

    @property
    def uuid(self) -> str:
        """Its id."""
        return str(self.found.get("id", ""))

    @property
    def total(self) -> int:
        """Its memory in MiB."""
        return int(self.found.get("devmem", 0))

    @property
    def sound(self) -> bool:
        """Whether the plugin says that it is healthy (H-2)."""
        return self.found.get("health") is True


@dataclass(frozen=True)
class Wanted:
    """What one container asks: number of chips, MiB of each (0 = all of it) and cores."""

    number: int
    memory: int
    cores: int


@dataclass(frozen=True)
class Case:
    """One question: a pod, a node, and the pods on it."""

    word: str
    tables: Tables
    policy: Policy
    node: Mapping[str, Any]
    pods: Sequence[Mapping[str, Any]]
    pod: Mapping[str, Any]

    @property
    def chip(self) -> AscendChip:
        """The chip type in question."""
        return chip_of(self.tables, self.word)

    @property
    def soft(self) -> bool:
        """Whether the pod asks for soft slices."""
        return is_soft(self.pod)

    @property
    def wants(self) -> list[Wanted] | None:
        """What the pod's containers ask, in order; None if it must be refused."""
        return wanted_of(self.pod, self.chip)

    def chips(self) -> list[PlainChip]:
        """The node's chips with what its unfinished pods hold."""
        chips = plain_chips(self.node, self.word, self.tables)
        for one in self.pods:
            if one.get("status", {}).get("phase") not in _FINISHED:
                book(chips, text_of(one, self.word), self.chip, soft=is_soft(one))
        return chips


@dataclass(frozen=True)
class Answer:
    """What the core says; text None = refused."""

    request: Any
    placed: Placed[Assignment] | None
    text: str | None
    cards: tuple[Any, ...] = field(default=())


def case_of(record: Record, node: Any, pods: Any, pod: Any) -> Case:
    """The question of *record* on one of its nodes."""
    return Case(str(record.input["type"]), record.tables, record.policy, node, pods, pod)


def chip_of(tables: Tables, word: str) -> AscendChip:
    """A chip type by its common word."""
    return next(chip for chip in tables.of(AscendTable).chips if chip.named.type == word)


def notes_of(found: Mapping[str, Any]) -> Mapping[str, str]:
    """The annotations of an object as JSON."""
    notes: Mapping[str, str] = found["metadata"].get("annotations") or {}
    return notes


def is_soft(pod: Mapping[str, Any]) -> bool:
    """Whether a pod asks for soft slices."""
    return _SOFT.items() <= notes_of(pod).items()


def text_of(pod: Mapping[str, Any], word: str) -> str:
    """What a pod holds, as its annotation has it."""
    return notes_of(pod).get(f"hami.io/{word}-devices-allocated", "")


def wanted_of(pod: Mapping[str, Any], chip: AscendChip) -> list[Wanted] | None:
    """What the app containers ask; None if any figure must be refused (H-3, H-8, H-14, several parts of chips)."""
    found: list[Wanted] = []
    for container in pod["spec"]["containers"]:
        amounts = container.get("resources", {})
        given = {**amounts.get("requests", {}), **amounts.get("limits", {})}
        texts = [given.get(name) for name in (chip.named.cards, chip.named.memory, chip.named.cores)]
        if texts[0] is None and texts[1] is None:
            continue
        figures = [_figure(text) for text in texts]
        if None in figures:
            return None
        number, memory, cores = (int(figure or 0) for figure in figures)
        number = 1 if texts[0] is None else number
        if not number and not memory:
            continue
        if not number or memory > chip.capacity_mib or (is_soft(pod) and cores > 100):
            return None
        template = not is_soft(pod) and memory and trimmed(chip, memory)[1]
        if number > 1 and template:
            return None
        found.append(Wanted(number, memory, cores))
    return found


def _figure(text: str | None) -> int | None:
    """A figure of a manifest, 0 for none; None for one that must be refused."""
    if text is None:
        return 0
    suffix = next(one for one in _SUFFIXES if text.endswith(one))
    try:
        value = float(text[: len(text) - len(suffix)]) * _SUFFIXES[suffix]
    except ValueError:
        return None
    return int(value) if 0 <= value <= _MAX_INT32 and value == int(value) else None


def trimmed(chip: AscendChip, memory: int) -> tuple[int, str, int, int]:
    """(MiB, template, AI cores, AI CPUs) of a request (ascend 4.3)."""
    for one in sorted(chip.templates, key=lambda template: template.memory_mib):
        if memory <= one.memory_mib:
            return one.memory_mib, one.name, one.counted[0], one.counted[1]
    return chip.allocatable_mib, "", chip.ai_core, chip.ai_cpu


def plain_chips(node: Mapping[str, Any], word: str, tables: Tables) -> list[PlainChip]:
    """The chips of a register, nothing held."""
    notes = notes_of(node)
    found = json.loads(notes.get(f"hami.io/node-register-{word}", "[]"))
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        return []
    word_soft = notes.get("hami-vnpu-core")
    soft = tables.of(AscendTable).mode == SOFT if word_soft is None else word_soft == "true"
    rings = [(one.get("custominfo") or {}).get("NetworkID") for one in found]
    ringed = word.startswith("Ascend910") and all(type(ring) in (int, float) for ring in rings)
    return [PlainChip(one, soft, ringed) for one in {str(one.get("id", "")): one for one in found}.values()]


def entries_of(text: str) -> Iterable[tuple[int, list[str]]]:
    """(segment, fields) of every entry."""
    for segment, piece in enumerate(text.split(";")):
        for entry in piece.split(":"):
            if entry.strip():
                yield segment, entry.split(",")


def book(chips: Sequence[PlainChip], text: str, chip: AscendChip, *, soft: bool) -> None:
    """Count what *text* holds (H-1: every segment)."""
    by_id = {one.uuid: one for one in chips}
    for _, fields in entries_of(text):
        held = by_id.get(fields[0])
        if held is None:
            continue
        if len(fields) < 4 or not (fields[2].isdigit() and fields[3].isdigit()) or int(fields[2]) > _MAX_INT32:
            held.broken = True
            continue
        held.slots += 1
        held.memory += int(fields[2])
        held.cores += int(fields[3])
        if not soft:
            _, _, core, cpu = trimmed(chip, int(fields[2]))
            held.ai_core += core
            held.ai_cpu += cpu
            held.cuts += 1


def over(one: PlainChip, chip: AscendChip) -> bool:
    """Whether a chip holds more than it has (H-11: AI cores and CPUs too, where the configuration tells them)."""
    cores = max(int(one.found.get("devcore", 0)), 100 if one.node_soft else 0)
    return (
        one.memory > one.total
        or one.slots > int(one.found.get("count", 0))
        or one.cores > cores
        or (bool(chip.ai_core) and one.ai_core > chip.ai_core)
        or (bool(chip.ai_cpu) and one.ai_cpu > chip.ai_cpu)
    )


def short_of_ai(case: Case) -> bool:
    """Whether AI cores or CPUs refuse a chip that has the memory: upstream does not count them (H-11, untagged)."""
    wants, chip = case.wants, case.chip
    if case.soft or not wants:
        return False
    for one in case.chips():
        for want in wants:
            memory, _, core, cpu = trimmed(chip, want.memory or one.total)
            if one.memory + memory <= one.total and (
                (chip.ai_core and one.ai_core + core > chip.ai_core) or (chip.ai_cpu and one.ai_cpu + cpu > chip.ai_cpu)
            ):
                return True
    return False


def check_properties(case: Case, answer: Answer) -> None:
    """What must hold of every answer.

    Raises:
        MismatchError: naming what does not hold.
    """
    wants = case.wants
    if wants is None:
        demand(answer.text is None, "H-3, H-8, H-14: figures that must be refused are placed")
        return
    chips = case.chips()
    if answer.text is None:
        if answer.request is not None and len(wants) == 1 and answer.cards:
            fitting = [one for one in chips if fits(case, one, wants[0])]
            demand(len(fitting) < wants[0].number, f"refused although {len(fitting)} chips fit")
        return
    _form(case, wants, answer.text)
    before = {one.uuid: (one.memory, one.slots) for one in chips}
    for _, fields in entries_of(answer.text):
        one = next(chip for chip in chips if chip.uuid == fields[0])
        demand(one.sound, f"H-2: {one.uuid} is not healthy and is used")
        demand(_accepted(case, one.uuid), f"H-15: {one.uuid} is used")
        demand(not one.broken, f"{one.uuid} cannot be counted and is used")
        demand(not case.soft or one.node_soft, "a soft pod is on a node without soft slicing")
        demand(not one.slots or (one.cuts == 0) == case.soft, f"H-12: {one.uuid} is sliced both ways")
    if len(wants) == 1 and wants[0].number == 1:
        _best(case, chips, wants[0], answer.text)
    book(chips, answer.text, case.chip, soft=case.soft)
    named = {fields[0] for _, fields in entries_of(answer.text)}
    for one in chips:
        demand(one.uuid not in named or not over(one, case.chip), f"{one.uuid} is over its total")
    if answer.placed is not None:
        same_score(answer.placed.score, score_of(case, chips, before, answer.text))


def _form(case: Case, wants: Sequence[Wanted], text: str) -> None:
    """One segment per container of the spec; as many different chips as asked; the share that was asked."""
    spec = case.pod["spec"]
    demand(text.endswith(";"), "the last segment is not closed")
    same("segments", text.count(";"), len(spec.get("initContainers", ())) + len(spec["containers"]))
    by_segment: dict[int, list[list[str]]] = {}
    for segment, fields in entries_of(text):
        by_segment.setdefault(segment, []).append(fields)
    totals = {one.uuid: one.total for one in plain_chips(case.node, case.word, case.tables)}
    segments = [by_segment[key] for key in sorted(by_segment) if key >= len(spec.get("initContainers", ()))]
    same("containers with entries", len(segments), len(wants))
    ids = [fields[0] for entries in segments for fields in entries]
    demand(len(set(ids)) == len(ids), "two containers share a chip")
    for entries, want in zip(segments, wants, strict=True):
        same("devices", len(entries), want.number)
        for fields in entries:
            memory = want.memory or totals[fields[0]]
            booked = memory if case.soft else trimmed(case.chip, memory)[0]
            same("entry", fields[1:], [case.word, str(booked), str(want.cores)])


def fits(case: Case, one: PlainChip, want: Wanted) -> bool:
    """As ascend 4.4 says, with the defects' fixes, told once more."""
    memory, template, core, cpu = trimmed(case.chip, want.memory or one.total)
    cores = int(one.found.get("devcore", 0))
    if case.soft:
        memory, template, core, cpu, cores = want.memory or one.total, "", 0, 0, 100
        if not one.node_soft or one.cuts:
            return False
    elif one.slots > one.cuts or (one.node_soft and template) or (want.number > 1 and template):
        return False
    if one.found.get("type") != case.word or not one.sound or one.broken or not _accepted(case, one.uuid):
        return False
    chip = case.chip
    return (
        one.slots < int(one.found.get("count", 0))
        and one.memory + memory <= one.total
        and one.cores + want.cores <= cores
        and not (cores == 100 and want.cores == 100 and one.slots)
        and not (cores and one.cores == cores and not want.cores)
        and not (chip.ai_core and one.ai_core + core > chip.ai_core)
        and not (chip.ai_cpu and one.ai_cpu + cpu > chip.ai_cpu)
    )


def ring_before_policy(case: Case, answer: Answer) -> bool:
    """Whether upstream takes some container's one chip from another ring, because more chips fit there (H-16)."""
    wants, left = case.wants, {one.uuid: one for one in case.chips()}
    if not wants or not answer.text or not all(one.ringed for one in left.values()):
        return False
    segments: dict[int, list[str]] = {}
    for segment, fields in entries_of(answer.text):
        segments.setdefault(segment, []).append(fields[0])
    for want, ids in zip(wants, segments.values(), strict=True):
        rings = [_ring(one) for one in left.values() if fits(case, one, want)]
        if want.number == 1 and _ring(left[ids[0]]) != min(rings, key=lambda ring: (-rings.count(ring), ring)):
            return True
        for uuid in ids:
            left.pop(uuid)
    return False


def _ring(one: PlainChip) -> int:
    return int((one.found.get("custominfo") or {})["NetworkID"])


def _accepted(case: Case, uuid: str) -> bool:
    def listed(key: str) -> set[str]:
        return {item.strip() for item in notes_of(case.pod).get(key, "").split(",")} - {""}

    allowed = listed(f"hami.io/use-{case.word}-uuid")
    return uuid not in listed(f"hami.io/no-use-{case.word}-uuid") and (not allowed or uuid in allowed)


def _best(case: Case, chips: Sequence[PlainChip], want: Wanted, text: str) -> None:
    """One chip is chosen by policy alone (H-5, H-16)."""
    chosen = next(fields[0] for _, fields in entries_of(text))
    scores = {one.uuid: _policy_score(case, one.memory, one.slots, one.total) for one in chips if fits(case, one, want)}
    same("H-5, H-16: policy score of the chip", scores.get(chosen), max(scores.values()))


def _policy_score(case: Case, memory: int, slots: int, total: int) -> float:
    if case.policy is Policy.BINPACK:
        return 100.0 * memory / total
    return 100.0 if case.policy is Policy.SPREAD and not slots else 0.0


def score_of(case: Case, chips: Sequence[PlainChip], before: Mapping[str, tuple[int, int]], text: str) -> float:
    """As ascend 4.8 over all chips of every container (H-9): policy by the mean of each, rings over all of them."""
    by_id = {one.uuid: one for one in chips}
    segments: dict[int, list[float]] = {}
    rings: list[int] = []
    ringed = True
    for segment, fields in entries_of(text):
        one = by_id[fields[0]]
        segments.setdefault(segment, []).append(_policy_score(case, *before[one.uuid], one.total))
        ringed = ringed and one.ringed
        if ringed:
            rings.append(_ring(one))
    score = sum(sum(scores) / len(scores) for scores in segments.values())
    return score + (10.0 * max(map(rings.count, rings)) / len(rings) if ringed else 0.0)
