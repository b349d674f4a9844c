"""A sample of records: few of a family, which show all that the whole family does."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.conform.records import Record, defects_of


def traits(record: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """What a record is there to show: its kind, its defects alone and together, its configuration, its extremes."""
    yield "op", record["op"]
    yield "defects", defects_of(record)
    yield "config", record["input"].get("config")
    yield "reachable", record.get("reachable", True)
    output = record["output"] if isinstance(record["output"], dict) else {}
    yield "panic", "panic" in output
    for step in output.get("steps", ()):
        yield from (("defect of a step", tag) for tag in defects_of(step))


def sample_of(records: Sequence[Record]) -> list[Mapping[str, Any]]:
    """The smallest record and a middling one of each kind and defects, and the smallest with each further trait."""
    by_size = sorted((one.raw for one in records), key=lambda raw: (len(json.dumps(raw)), raw["id"]))
    alike: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for raw in by_size:
        alike.setdefault((raw["op"], defects_of(raw)), []).append(raw)
    chosen = {raw["id"]: raw for some in alike.values() for raw in (some[0], some[len(some) // 2])}
    shown = {trait for raw in chosen.values() for trait in traits(raw)}
    for raw in by_size:
        if not shown.issuperset(traits(raw)):
            chosen[raw["id"]] = raw
            shown.update(traits(raw))
    return [chosen[key] for key in sorted(chosen)]


def write(folder: Path, records: Sequence[Record]) -> None:
    """Write the sample of each family of *records* into *folder*, unless it has one."""
    for family in dict.fromkeys(one.family for one in records):
        path = folder / f"{family}.json"
        if not path.exists():
            found = sample_of([one for one in records if one.family == family])
            text = ",\n".join(json.dumps(raw, sort_keys=True) for raw in found)
            path.write_text(f"[\n{text}\n]\n", encoding="utf-8")
