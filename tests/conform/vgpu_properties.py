"""What must hold of every vGPU decision, whatever upstream said: the defects' "Do", told from the JSON alone.

Chosen cards are sound and accepted, no card is over its total, entries have their form, and a pod with one asking
container is refused only if fewer cards fit than it wants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from core.dialects.vgpu import keys
from core.dialects.vgpu.table import ExclusiveRules, VgpuTable
from core.port.cards import Placed
from core.settings import Policy
from core.sharing.account import Assignment
from core.sharing.card import Card
from core.sharing.request import Request
from tests.conform.records import Record, demand, same, same_score
from tests.conform.vgpu_cards import IDS, PlainCard, count, entries_of, free_slice, plain_cards, sizes
from tests.conform.vgpu_wire import expected_asks, type_wanted

_GROUP_KEYS: Final = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
_FINISHED: Final = ("Succeeded", "Failed")


@dataclass(frozen=True)
class Case:
    """One question: a pod, a node, and the pods on it."""

    record: Record
    node: Mapping[str, Any]
    pods: Sequence[Mapping[str, Any]]
    pod: Mapping[str, Any]

    @property
    def factor(self) -> int:
        """MiB per register unit."""
        return max(self.record.tables.of(VgpuTable).named.mib_per_unit, 1)

    @property
    def asks(self) -> list[dict[str, int]] | None:
        """What the pod's containers ask; None if it must be refused."""
        return expected_asks(self.pod, self.record.tables.of(VgpuTable))

    @property
    def notes(self) -> Mapping[str, str]:
        """The pod's annotations."""
        return notes_of(self.pod)

    def cards(self) -> list[PlainCard]:
        """The node's cards with what its unfinished pods hold."""
        cards = plain_cards(self.node, self.record.tables)
        for one in self.pods:
            if one.get("status", {}).get("phase") not in _FINISHED:
                count(cards, notes_of(one).get(IDS, ""), self.factor)
        return cards

    def asking(self) -> list[int]:
        """The positions of the containers that ask for cards."""
        table = self.record.tables.of(VgpuTable)
        containers = self.pod["spec"]["containers"]
        return [i for i, one in enumerate(containers) if expected_asks({"spec": {"containers": [one]}}, table) != []]


@dataclass(frozen=True)
class Answer:
    """What the core says of a pod on a node; ids None = refused, request None = not a pod of this protocol."""

    request: Any
    placed: Placed[Assignment] | None
    ids: str | None
    cards: tuple[Card, ...]


def notes_of(pod: Mapping[str, Any]) -> Mapping[str, str]:
    """The annotations of a pod as JSON."""
    found: Mapping[str, str] = pod["metadata"].get("annotations", {})
    return found


def check_properties(case: Case, answer: Answer) -> None:
    """What must hold of every answer.

    Raises:
        MismatchError: naming the defect whose "Do" is not done.
    """
    asks = case.asks
    if asks is None:
        demand(answer.ids is None, "S19, S20: figures out of range are placed")
        return
    cards = case.cards()
    if answer.ids is None:
        if isinstance(answer.request, Request) and len(asks) == 1 and answer.cards:
            fitting = sum(_fits(case, card, cards, asks[0]) for card in cards)
            demand(fitting < asks[0]["number"], f"refused although {fitting} cards fit")
        return
    _form(case, asks, answer.ids)
    before = {card.uuid: card.number for card in cards}
    named = {fields[0].partition("[")[0] for _, fields in entries_of(answer.ids)}
    chosen = [card for card in cards if card.uuid in named]
    for card in chosen:
        demand(card.sound, f"S1: {card.uuid} is not sound and is used")
        demand(not card.broken, f"S32: {card.uuid} cannot be counted and is used")
        demand(_mode_allows(case, card, cards), f"S6, S7, S8, S23: {card.uuid} in mode {card.mode} is used")
        demand(type_wanted(case.notes, card.type), f"S22: {card.type} is used")
    count(cards, answer.ids, case.factor)
    for card in chosen:
        demand(not card.overcommitted and not card.broken, f"{card.uuid} is over its total")
    _sizes(case, answer.ids, cards, asks)
    if case.record.policy is Policy.SPREAD and len(asks) == 1 and answer.placed is not None:
        empty = sum(not before[card.uuid] for card in chosen)
        same_score(answer.placed.score, 100.0 * empty)


def _form(case: Case, asks: Sequence[Mapping[str, int]], ids: str) -> None:
    """One segment per container (S24), as many different cards as asked, in register order (S33)."""
    positions = {card.uuid: card.position for card in plain_cards(case.node, case.record.tables)}
    by_container: dict[int, list[str]] = {}
    for container, fields in entries_of(ids):
        by_container.setdefault(container, []).append(fields[0].partition("[")[0])
    same("S24: containers with entries", sorted(by_container), case.asking())
    for uuids, ask in zip((by_container[key] for key in sorted(by_container)), asks, strict=True):
        demand(len(uuids) == len(set(uuids)) == ask["number"], f"{len(uuids)} entries for {ask['number']} cards")
        order = [positions[uuid] for uuid in uuids]
        demand(order == sorted(order), "S33: entries are not in register order")


def _mode_allows(case: Case, card: PlainCard, cards: Sequence[PlainCard]) -> bool:
    if (card.mode == "mig") != (cards[-1].mode == "mig") or (card.mode == "mig" and card.geometry is None):
        return False
    asked = case.notes.get(keys.MODE, "").strip()
    match asked:
        case "":
            return True
        case "hami-core":
            return card.mode != "mig"
        case _:
            return card.mode == asked


def _sizes(case: Case, ids: str, cards: Sequence[PlainCard], asks: Sequence[Mapping[str, int]]) -> None:
    """Every entry says what was asked of its card; a slice is large enough for it."""
    by_uuid = {card.uuid: card for card in reversed(cards)}
    containers = sorted({container for container, _ in entries_of(ids)})
    for container, fields in entries_of(ids):
        ask = asks[containers.index(container)]
        card = by_uuid[fields[0].partition("[")[0]]
        same(
            "entry",
            (fields[1], int(fields[2]), int(fields[3])),
            ("NVIDIA", _wanted(ask, card, case.factor), ask["cores"]),
        )
        if card.geometry is not None:
            group, _, position = fields[0].partition("[")[2].rstrip("]").rpartition("-")
            demand(sizes(card.geometry, group)[int(position)] >= int(fields[2]) * case.factor, "the slice is too small")


def _wanted(ask: Mapping[str, int], card: PlainCard, factor: int) -> int:
    if not ask["percent"]:
        return ask["memory"]
    whole = card.memory
    if ask["percent"] == 100 and card.geometry is not None:
        largest = max(size for group in card.geometry.layout for size in sizes(card.geometry, group.name))
        return min(whole, largest // factor)
    return max(whole * ask["percent"] // 100, 1)


def _fits(case: Case, card: PlainCard, cards: Sequence[PlainCard], ask: Mapping[str, int]) -> bool:
    """As nvidia 3.5 says, with the defects' "Do", told once more."""
    first = next(one for one in cards if one.uuid == card.uuid) is card
    if not (first and card.sound and not card.broken and _mode_allows(case, card, cards)):
        return False
    if not type_wanted(case.notes, card.type) or not _uuid_wanted(case.notes, card.uuid) or kept_out(case, card):
        return False
    wanted = _wanted(ask, card, case.factor)
    return (
        card.number < card.count
        and card.used + wanted <= card.memory
        and card.cores + ask["cores"] <= 100
        and not (card.number and ask["cores"] == 100)
        and not (card.cores == 100 and ask["cores"] == 0)
        and not card.overcommitted
        and (card.mode != "mig" or free_slice(card, wanted * case.factor))
    )


def _uuid_wanted(notes: Mapping[str, str], uuid: str) -> bool:
    def listed(key: str) -> set[str]:
        return {item.strip() for item in notes.get(key, "").split(",")} - {""}

    allowed = listed(keys.USE_UUID)
    return uuid not in listed(keys.NO_USE_UUID) and (not allowed or uuid in allowed)


def kept_out(case: Case, card: PlainCard) -> bool:
    """Whether the pod group or an exclusive rule keeps the pod off *card*."""
    group = _group(case.pod) if case.notes.get(keys.GROUP_POLICY) == "spread" else ""
    for other in case.pods:
        if other.get("status", {}).get("phase") in _FINISHED:
            continue
        ids = notes_of(other).get(IDS, "")
        on_card = [fields for _, fields in entries_of(ids) if fields[0].partition("[")[0] == card.uuid]
        if on_card and group and _group(other) == group:
            return True
        if on_card and card.mode != "mig" and _share_a_rule(case, other):
            return True
    return False


def _group(pod: Mapping[str, Any]) -> str:
    notes = notes_of(pod)
    name = next((notes[key] for key in _GROUP_KEYS if notes.get(key)), "")
    return f"{pod['metadata'].get('namespace', '')}/{name}" if name else ""


def _share_a_rule(case: Case, other: Mapping[str, Any]) -> bool:
    def matched(one: Mapping[str, Any]) -> set[int]:
        labels = one["metadata"].get("labels", {}).items()
        return {i for i, rule in enumerate(case.record.tables.of(ExclusiveRules).rules) if rule <= set(labels)}

    return not matched(case.pod).isdisjoint(matched(other))


def check_rules(case: Case, ids: str) -> None:
    """No card of *ids* holds another pod of a rule or group that the pod matches (MIG nodes are exempt from rules).

    Raises:
        MismatchError: naming the card.
    """
    cards = {card.uuid: card for card in reversed(plain_cards(case.node, case.record.tables))}
    for _, fields in entries_of(ids):
        card = cards[fields[0].partition("[")[0]]
        demand(not kept_out(case, card), f"S29: {card.uuid} is shared with a pod of the same rule or group")


def clear_of_broken(case: Case, ids: str) -> bool:
    """Whether *ids* keeps off the cards whose holders cannot be counted."""
    broken = {card.uuid for card in case.cards() if card.broken}
    return not any(fields[0].partition("[")[0] in broken for _, fields in entries_of(ids))
