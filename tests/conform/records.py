"""Vector records as the conformance runner reads them, and what its checks share.

Source: the README beside the vectors ("Record format", "What must match").
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final

from core.dialects.vgpu.table import ExclusiveRules, VgpuTable
from core.model import Node, Pod
from core.settings import Policy, Tables
from core.sharing import order
from core.wire.nodes import node_from_object
from core.wire.pods import pod_from_object
from tests.support.devices.texts import device_tables

SCORE_TOLERANCE: Final = 1e-9
_CONFIGS_FILE: Final = "configs.json"


class MismatchError(Exception):
    """The core's answer is not what the record, or its defect's property, asks for."""


@dataclass(frozen=True)
class Record:
    """One record; configs holds the texts of device-config.yaml by name."""

    family: str
    raw: Mapping[str, Any]
    configs: Mapping[str, str] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """The record's own name."""
        return str(self.raw.get("id", "?"))

    @property
    def op(self) -> str:
        """The kind of record."""
        return str(self.raw.get("op", "?"))

    @property
    def input(self) -> Mapping[str, Any]:
        """What goes in."""
        found: Mapping[str, Any] = self.raw["input"]
        return found

    @property
    def output(self) -> Any:
        """What upstream answered."""
        return self.raw["output"]

    @cached_property
    def defects(self) -> frozenset[str]:
        """The defects that upstream's answer shows."""
        return defects_of(self.raw)

    @property
    def reachable(self) -> bool:
        """Whether an API server would let the input exist."""
        return self.raw.get("reachable") is not False

    @cached_property
    def tables(self) -> Tables:
        """The device configuration and the exclusive rules that the record names."""
        rules = tuple(rule for found in self.input.get("rules", ()) if (rule := exclusive_rule(found)) is not None)
        return tables_of(self.configs, str(self.input.get("config", "builtin")), rules)

    @cached_property
    def policy(self) -> Policy:
        """The card policy; any word that is none of ours is upstream's order by index."""
        word = str(self.input.get("policy", ""))
        return Policy(word) if word in (Policy.BINPACK, Policy.SPREAD) else Policy.INDEX


Check = Callable[[Record], None]


def defects_of(found: Mapping[str, Any]) -> frozenset[str]:
    """The tags of a record or a step."""
    return frozenset(tag for tag in str(found.get("defect", "")).split(",") if tag)


def tables_of(configs: Mapping[str, str], name: str, rules: tuple[frozenset[tuple[str, str]], ...] = ()) -> Tables:
    """The tables of a named configuration; ``builtin`` is upstream without one: no percentages, no geometries."""
    text = configs.get(name, "")
    if not text.strip():
        return Tables(
            sections=(
                VgpuTable(named=VgpuTable().named._replace(percentage=""), geometries=()),
                ExclusiveRules(rules=rules),
            )
        )
    return Tables(version=1, sections=(*_decoded(text).sections, ExclusiveRules(rules=rules)))


@cache
def _decoded(text: str) -> Tables:
    """A configuration, read once however many records name it."""
    return device_tables(text)


def exclusive_rule(found: Mapping[str, Any]) -> frozenset[tuple[str, str]] | None:
    """A rule as a configuration may have it; None for one that is refused: empty, or with a value that is no text.

    Upstream drops such labels instead, which widens the rule (S29).
    """
    if not found or not all(isinstance(value, str) for value in found.values()):
        return None
    return frozenset(found.items())


def pod_of(found: Mapping[str, Any], node_name: str = "", annotations: Mapping[str, str] | None = None) -> Pod:
    """A pod of a record as the core reads it, bound to *node_name* where that is given."""
    copy = json.loads(json.dumps(found))
    if node_name:
        copy.setdefault("spec", {})["nodeName"] = node_name
    if annotations is not None:
        copy.setdefault("metadata", {})["annotations"] = dict(annotations)
    return pod_from_object(copy)


def with_policy(found: Mapping[str, Any], word: str) -> tuple[Pod, Policy]:
    """(the pod, with a policy of HAMi's scheduler that is none of our settings' on it; the policy of the settings)."""
    pod = pod_of(found)
    if word in (order.BINPACK, order.SPREAD):
        return pod, Policy(word)
    annotations = dict(found["metadata"].get("annotations", {}))
    if not annotations.get(order.CARD_POLICY):
        annotations[order.CARD_POLICY] = word
    return pod_of(found, annotations=annotations), Policy.SPREAD


def node_of(found: Mapping[str, Any]) -> Node:
    """A node of a record as the core reads it."""
    return node_from_object(json.loads(json.dumps(found)))


def same(what: str, ours: object, expected: object) -> None:
    """Demand equality.

    Raises:
        MismatchError: naming *what* and both values.
    """
    if ours != expected:
        raise MismatchError(f"{what}: ours {_shown(ours)}, expected {_shown(expected)}")


def demand(holds: bool, what: str) -> None:
    """Demand a property.

    Raises:
        MismatchError: saying *what* does not hold.
    """
    if not holds:
        raise MismatchError(what)


def same_score(ours: float, expected: float | str) -> None:
    """Demand that scores agree to the tolerance of the vectors.

    Raises:
        MismatchError: naming both scores.
    """
    if isinstance(expected, str) or abs(ours - expected) > SCORE_TOLERANCE * max(1.0, abs(expected)):
        raise MismatchError(f"score: ours {ours}, expected {expected}")


def is_configurations(path: Path) -> bool:
    """Whether *path* holds configurations that records of a family name, and no records."""
    return path.name == _CONFIGS_FILE or path.stem.endswith("-configs")


def load(path: Path) -> list[Record]:
    """The records of one vector file, with the configurations that lie beside it.

    Raises:
        ValueError: the file is no array of records.
    """
    configs: dict[str, str] = {}
    for beside in sorted(path.parent.glob(f"*{_CONFIGS_FILE}")):
        configs |= json.loads(beside.read_text())
    found = json.loads(path.read_text())
    if not isinstance(found, list):
        raise ValueError(f"{path}: not a list of records")
    return [Record(family=path.stem, raw=one, configs=configs) for one in found]


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    return text if len(text) <= 400 else text[:400] + "…"


def filled(text: str) -> list[str]:
    """The segments of an assignment of HAMi's that hold something: upstream loses empty ones (HN-1, VN-1)."""
    return [one for one in text.split(";") if one]


def encoded(segments: list[list[Mapping[str, Any]]]) -> list[str]:
    """The same of upstream's devices, by container."""
    texts = ["".join(f"{d['id']},{d['type']},{d['mem']},{d['cores']}:" for d in segment) for segment in segments]
    return [one for one in texts if one]
