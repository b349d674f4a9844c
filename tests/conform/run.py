"""Run differential vectors: ``python -m tests.conform PATH... [--json] [--family GLOB] [--sample FOLDER]``.

Prints what failed and, family by family, what was checked; the last line is ``N passed, N failed``. Families that
the core does not speak yet are named with their numbers and count as neither. Exit status 1 if anything failed,
2 if nothing was judged.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from tests.conform import ascend_hami as ascend
from tests.conform import gpushare as share
from tests.conform import hami, mindcluster, sample, vendors
from tests.conform import vgpu_place as place
from tests.conform import vgpu_wire as wire
from tests.conform.records import Check, MismatchError, Record, is_configurations, load


def _check_node_score(record: Record) -> None:
    """``nodescore``: each record speaks of nodes of one vendor."""
    if place.is_vgpu_score(record):
        place.check_node_score(record)
    else:
        ascend.check_node_score(record)


# family -> op -> check. A family is a vector file's name, or what a longer name begins with.
CHECKS: Final[Mapping[str, Mapping[str, Check]]] = {
    "vgpu-register": {"register": wire.check_register, "node": wire.check_node},
    "vgpu-pod-devices": {"pod-decode": wire.check_pod_decode, "pod-encode": wire.check_pod_encode},
    "vgpu-plugin-view": {"plugin-decode": wire.check_plugin_decode, "plugin-oldest": wire.check_plugin_oldest},
    "vgpu-selectors": {"selector": wire.check_selector},
    "vgpu-mig-ids": {"mig-id": wire.check_mig_id},
    "vgpu-requests": {"requests": wire.check_requests},
    "vgpu-placement": {"place": place.check_place},
    "vgpu-sequences": {"sequence": place.check_sequence},
    "vgpu-exclusive-rules": {"exclusive": place.check_exclusive},
    "deviceshare-node-score": {"nodescore": _check_node_score},
    "ascend-hami-register": {"register": ascend.check_register, "node": ascend.check_node},
    "ascend-hami-pod-devices": {"pod-decode": ascend.check_pod_decode, "pod-encode": ascend.check_pod_encode},
    "ascend-hami-requests": {"trim": ascend.check_trim, "requests": ascend.check_requests},
    "ascend-hami-placement": {"place": ascend.check_place},
    "ascend-hami-sequences": {"sequence": ascend.check_sequence},
    "hami-register": {"register": hami.check_register, "register-text": hami.check_register},
    "hami-requests": {"requests": hami.check_requests},
    "hami-place": {"place": hami.check_place},
    "hami-annotations": {
        "annotations": hami.check_place,
        "annotations-old": hami.check_place,
        "pod-decode": hami.check_pod_decode,
    },
    "hami-plugin-view": {
        "plugin-decode": hami.check_plugin_decode,
        "plugin-calls": hami.check_plugin_calls,
        "reservations": hami.check_reservations,
    },
    **{f"vendors-{name}": vendors.CHECKS for name in vendors.TYPES},
    "gpushare-inventory": {"node": share.check_node},
    "gpushare-index": {"index": share.check_index, "encode": share.check_encode},
    "gpushare-requests": {"requests": share.check_requests},
    "gpushare-placement": {"place": share.check_place},
    "gpushare-sequences": {"sequence": share.check_sequence},
    "mindcluster-inventory": {"node": mindcluster.check_node},
    "mindcluster-annotation": {"annotation": mindcluster.check_annotation},
    "mindcluster-requests": {"requests": mindcluster.check_requests},
    "mindcluster-placement": {"place": mindcluster.check_place},
    "mindcluster-node-score": {"nodescore": mindcluster.check_node_score},
    "mindcluster-sequences": {"sequence": mindcluster.check_sequence},
}

# Records whose expected answer cannot be told wrong by a rule: id -> why it is passed over.
EXCEPTIONS: Final[Mapping[str, str]] = {}


@dataclass
class Tally:
    """What became of the records of one family."""

    passed: int = 0
    excepted: int = 0
    unsupported: int = 0
    failures: list[dict[str, str]] = field(default_factory=list)


def check_of(record: Record) -> Check | None:
    """The check for *record*; None if its family, its kind or its protocol is not supported yet."""
    named = [family for family in CHECKS if record.family.startswith(family) or record.id.startswith(family)]
    if not named:
        return None
    family = max(named, key=len)
    return CHECKS[family].get(record.op)


def run(records: Sequence[Record]) -> dict[str, Tally]:
    """Check every record; failures are kept by family."""
    tallies: dict[str, Tally] = {}
    for record in records:
        tally = tallies.setdefault(record.family, Tally())
        check = check_of(record)
        if check is None:
            tally.unsupported += 1
            continue
        if record.id in EXCEPTIONS:
            tally.excepted += 1
            continue
        problem = _problem(check, record)
        if problem:
            tally.failures.append({"id": record.id, "defect": str(record.raw.get("defect", "")), "problem": problem})
        else:
            tally.passed += 1
    return tallies


def _problem(check: Check, record: Record) -> str:
    try:
        check(record)
    except MismatchError as mismatch:
        return str(mismatch)
    except Exception as error:  # noqa: BLE001 (a crash of the core is a failure of the record, and the rest goes on)
        return f"crashed: {type(error).__name__}: {error}"
    return ""


def vector_files(paths: Sequence[Path], family: str) -> list[Path]:
    """The vector files among *paths*, folders opened, whose family matches the pattern *family*.

    Raises:
        FileNotFoundError: a path does not exist.
    """
    files: list[Path] = []
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(f"{path}: no such file or folder")
        files += sorted(path.glob("*.json")) if path.is_dir() else [path]
    return [path for path in files if not is_configurations(path) and fnmatchcase(path.stem, family)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status."""
    parser = argparse.ArgumentParser(prog="scripts/conform", description="Run differential vectors through the core.")
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="vector files, or folders of them")
    parser.add_argument("--json", action="store_true", help="list failures as JSON, one per line")
    parser.add_argument("--family", default="*", metavar="GLOB", help="only families that match, such as 'vgpu-*'")
    parser.add_argument("--sample", type=Path, metavar="FOLDER", help="write a sample of families that it lacks there")
    options = parser.parse_args(arguments)
    try:
        records = [record for path in vector_files(options.paths, options.family) for record in load(path)]
    except (OSError, ValueError) as error:
        print(f"conform: {error}", file=sys.stderr)
        return 2
    if options.sample is not None:
        sample.write(options.sample, records)
    tallies = run(records)
    for family, tally in tallies.items():
        for failure in tally.failures:
            if options.json:
                print(json.dumps({"family": family, **failure}, sort_keys=True))
            else:
                print(f"FAILED {failure['id']} [{failure['defect']}]: {failure['problem']}")
    if not options.json:
        for family, tally in tallies.items():
            print(_line(family, tally))
    total = Counter[str]()
    for tally in tallies.values():
        total["passed"] += tally.passed
        total["failed"] += len(tally.failures)
    print(f"{total['passed']} passed, {total['failed']} failed")
    if not total["passed"] and not total["failed"]:
        print(
            "conform: nothing was judged: name vector files that match --family, or a folder of them", file=sys.stderr
        )
        return 2
    return 1 if total["failed"] else 0


def _line(family: str, tally: Tally) -> str:
    parts = [f"{tally.passed} passed, {len(tally.failures)} failed"] if tally.passed or tally.failures else []
    if tally.excepted:
        parts.append(f"excepted: {tally.excepted} records")
    if tally.unsupported:
        parts.append(f"not supported: {tally.unsupported} records")
    return f"{family}: {'; '.join(parts)}"
