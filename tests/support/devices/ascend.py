"""Nodes and pods with Ascend chips in HAMi mode; a test shows only what matters to it."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from core.dialects.ascend_hami.dialect import DIALECT as SPEC
from core.dialects.ascend_hami.dialect import AscendHami
from core.dialects.ascend_hami.pods import readable_request
from core.dialects.ascend_hami.table import AscendChip, AscendTable
from core.model import Container, Node, NodeName, Pod, PodUid
from core.port.cards import Offer, Placed
from core.port.handoff import Stamp
from core.settings import Policy, Tables
from core.sharing.account import Assignment
from core.sharing.card import Card
from core.sharing.request import Request

DIALECT = AscendHami()
assert SPEC.node_lock is not None
NODE_LOCK = SPEC.node_lock
TABLES = Tables()


def chip(word: str) -> AscendChip:
    """A chip type by its common word."""
    return next(one for one in TABLES.of(AscendTable).chips if one.named.type == word)


def device(uuid: str, index: int, word: str, **fields: Any) -> dict[str, Any]:
    """One device of a register; a field that is None is left out."""
    kind = chip(word)
    count = kind.allocatable_mib // kind.templates[0].memory_mib
    found = {"id": uuid, "index": index, "count": count, "devmem": kind.allocatable_mib, "devcore": kind.ai_core}
    found |= {"type": word, "health": True, "devicepairscore": {}}
    if word.startswith("Ascend910"):
        found["custominfo"] = {"NetworkID": index // 4}
    return {key: value for key, value in {**found, **fields}.items() if value is not None}


def node(word: str, uuids: Sequence[str] = ("U0",), *, soft: bool = False, name: str = "node-a", **each: Any) -> Node:
    """A node with one register; *each* maps an id to fields of its device."""
    core = {"devcore": 100} if soft else {}
    found = [device(uuid, at, word, **{**core, **each.get(uuid, {})}) for at, uuid in enumerate(uuids)]
    return Node(
        name=NodeName(name),
        annotations={f"hami.io/node-register-{word}": json.dumps(found), "hami-vnpu-core": str(soft).lower()},
        allocatable={chip(word).named.cards: str(8 * len(found))},
    )


def container(word: str, amounts: Sequence[int | str | None], name: str = "c", **fields: Any) -> Container:
    """A container that asks for (count, memory, cores), None for not given."""
    kind = chip(word)
    names = (kind.named.cards, kind.named.memory, kind.named.cores)
    limits = {key: str(value) for key, value in zip(names, amounts, strict=False) if value is not None}
    return Container(name=name, limits=limits, **fields)


def pod(word: str, *containers: Sequence[int | str | None], soft: bool = False, **fields: Any) -> Pod:
    """A pod whose containers ask for (count, memory, cores)."""
    notes = {**({"huawei.com/vnpu-mode": "hami-core"} if soft else {}), **fields.pop("annotations", {})}
    filled: dict[str, Any] = {"uid": PodUid("uid-p"), "namespace": "default", "name": "p", **fields}
    asking = tuple(container(word, one, f"c{at}") for at, one in enumerate(containers))
    return Pod(containers=asking, annotations=notes, **filled)


def holder(word: str, text: str, name: str = "held", **fields: Any) -> Pod:
    """A bound pod that holds *text*."""
    notes = {f"hami.io/{word}-devices-allocated": text, **fields.pop("annotations", {})}
    filled: dict[str, Any] = {
        "uid": PodUid(name),
        "namespace": "default",
        "name": name,
        "node_name": "node-a",
        **fields,
    }
    return Pod(annotations=notes, **filled)


def cards_of(found: Node, *holders: Pod, tables: Tables = TABLES) -> tuple[Card, ...]:
    """The cards of a node after *holders* took theirs."""
    offer = DIALECT.offer(found, tables)
    assert isinstance(offer, Offer), offer
    cards: tuple[Card, ...] = offer.cards
    for one in holders:
        held = DIALECT.held(one, cards, tables)
        if held is not None:
            cards = DIALECT.take(cards, held.assignment)
    return cards


def request(found: Pod, tables: Tables = TABLES) -> Request:
    """What a pod asks, where nothing is wrong with it."""
    asked = readable_request(found, tables)
    assert isinstance(asked, Request), asked
    return asked


def after(cards: tuple[Card, ...], answer: Placed[Assignment] | None) -> dict[str, list[int]]:
    """[shares, MiB, cores] by device once *answer* is in use."""
    assert answer is not None
    return usage(DIALECT.take(cards, answer.assignment))


def placed(cards: Sequence[Card], found: Pod, policy: Policy = Policy.BINPACK) -> Placed[Assignment] | None:
    """What a pod gets on *cards*."""
    return DIALECT.place(cards, request(found), policy)


def notes(answer: Placed[Assignment] | None, now_s: int = 1787303731) -> Mapping[str, str]:
    """What the Binding carries."""
    assert answer is not None
    return DIALECT.annotations(answer.assignment, Stamp(node=NodeName("node-a"), now_s=now_s, order=now_s), TABLES)


def text(answer: Placed[Assignment] | None, word: str) -> str | None:
    """The devices that a pod got, as the wire has them; None if it got none."""
    return None if answer is None else notes(answer)[f"hami.io/{word}-devices-allocated"]


def usage(cards: Sequence[Card]) -> dict[str, list[int]]:
    """[shares, MiB, cores] by device."""
    return {card.fixed.uuid: [card.used_slots, card.used_memory, card.used_cores] for card in cards}
