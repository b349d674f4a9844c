"""``scripts/chaos --minutes M --seed S [--real]``: everything goes wrong for some minutes, then it is judged what held.

Two controllers, two webhooks, 200 nodes with pods of every protocol. Every 2 to 5 s a fault that the seed draws:
processes killed and stopped, calls lost, late, halved and refused, watches held and doubled, histories compacted,
certificates rotated, plugins and nodes that fail, settings edited. In two of three seeds pods of a lower priority are
evicted for others. Exit status: 0 if all held, 1 if not.
With --interpreted before all else, on core as it is written; otherwise compiled, where that can be had.
"""

import argparse
import asyncio
import logging
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.chaos.run import Outcome, Wanted, run
from tests.support.worlds.cores import which_core

# How long capacity of evicted pods is reserved, by the seed: not at all, less long than some take to end, and longer.
_WAITS_S: Final = (0, 15, 60)


def table(outcome: Outcome) -> str:
    """What happened, for people; the last line counts the invariants."""
    lines = [f"core: {which_core()}", f"faults: {outcome.faults.total()}"]
    lines += [f"  {count:5}  {kind.value}" for kind, count in sorted(outcome.faults.items(), key=lambda one: one[0])]
    lines += ["what went on"]
    lines += [f"  {count:5}  {what}" for what, count in outcome.counts.items()]
    lines += ["what processes held when they were warm, and in the end"]
    lines += [f"         {text}" for text in outcome.growth]
    lines += ["what must hold"]
    for one in outcome.invariants:
        lines.append(f"  {len(one.broken):5}  {one.name}{f' ({one.note})' if one.note else ''}")
        lines += [f"           {text}" for text in one.broken[:20]]
    failed = sum(bool(one.broken) for one in outcome.invariants)
    return "\n".join([*lines, f"{len(outcome.invariants) - failed} passed, {failed} failed"])


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line; exit if it cannot be run."""
    parser = argparse.ArgumentParser(
        prog="scripts/chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=1.0, help="of faults (default 1); calm follows")
    parser.add_argument("--seed", type=int, default=1, help="what goes wrong, and what is asked for (default 1)")
    parser.add_argument("--real", action="store_true", help="on a real kube-apiserver with etcd instead of the double")
    parser.add_argument("--nodes", type=int, default=200, help="how many (default 200)")
    parser.add_argument("--pods-per-s", type=float, default=4.0, help="pods created a second (default 4)")
    parser.add_argument(
        "--logs", type=Path, help="where to make a folder for logs and files (default: where temporary files go)"
    )
    parser.add_argument(
        "--preemption-wait-s",
        type=int,
        help="how long capacity of evicted pods is reserved; 0: none is evicted (default: by the seed: 0, 15, 60)",
    )
    return parser.parse_args(argv)


def main() -> int:
    """The command; see `--help`."""
    options = arguments()
    if options.logs is not None:
        options.logs.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"cardshare-chaos-{options.seed}-", dir=options.logs))
    wanted = Wanted(
        seconds=60.0 * options.minutes,
        seed=options.seed,
        nodes=options.nodes,
        pods_per_s=options.pods_per_s,
        real=options.real,
        preemption_wait_s=(
            _WAITS_S[options.seed % len(_WAITS_S)] if options.preemption_wait_s is None else options.preemption_wait_s
        ),
    )
    # A proxy that cuts connections off is told so each time.
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
    outcome = asyncio.run(run(wanted, folder))
    print(table(outcome))
    print(f"logs: {folder}", file=sys.stderr)
    return 1 if any(one.broken for one in outcome.invariants) else 0


if __name__ == "__main__":
    sys.exit(main())
