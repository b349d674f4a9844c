"""Lets a cluster live through random operations, with a twin that looks for cards sold twice; see `twin_world`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

from core.settings import DialectName
from tests.support.devices.gang_world import GangWorld
from tests.support.devices.texts import WORDS
from tests.support.devices.twin_shifts import ShiftingWorld
from tests.support.devices.twin_world import World
from tests.support.worlds.world import made

# After so many operations another cluster begins, so that one that is stuck does not spend the rest.
_LIFE = 20_000
_GANG_LIFE = 1_000
_TOLD = 20


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as the command line says; 0 if no card was sold twice."""
    parser = argparse.ArgumentParser(
        prog="scripts/twin",
        description="Places pods of every protocol while plugins restart, fail and are swapped, nodes come and go and "
        "the configuration changes; an independent twin reads from the objects alone whether a card is sold twice. "
        "The last line counts placements that were right, and those that were not.",
    )
    parser.add_argument("--operations", type=int, default=1_000_000, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="what happens follows from it (default: %(default)s)")
    parser.add_argument(
        "--gangs",
        action="store_true",
        help="groups, queues, parts of cards, evictions, restarts and refused Bindings instead: gangs are whole or "
        "nothing, queues within their capability, and nobody waits who fits",
    )
    parser.add_argument(
        "--controllers",
        action="store_true",
        help="two whole controllers in virtual time instead, with all that befalls them; see --controllers --help",
    )
    given = sys.argv[1:] if arguments is None else list(arguments)
    if "--controllers" in given:
        # A process of its own: its clock is replaced before anything keeps it.
        os.execv(sys.executable, [sys.executable, "-m", "tests.support.twin.run", *given])
    chosen = parser.parse_args(given)
    passed, failed = (run_gangs if chosen.gangs else run)(chosen.operations, chosen.seed)
    sys.stdout.write(f"{passed} passed, {failed} failed\n")
    return 1 if failed else 0


def run(operations: int, seed: int) -> tuple[int, int]:
    """(right placements, wrong ones): with those that contradict themselves, and ledgers that drifted."""
    passed = failed = 0
    placed = dict.fromkeys(WORDS.dialects, 0)
    for life, begun in enumerate(range(0, operations, _LIFE)):
        # Of two lives, one is on machines that change.
        world = ShiftingWorld(f"{seed}/{life}") if life % 2 else World(f"{seed}/{life}")
        for _ in range(min(_LIFE, operations - begun)):
            world.step()
        wrong = [*world.faults, *world.contradictions, *world.drifts]
        for text in wrong[: max(_TOLD - failed, 0)]:
            sys.stdout.write(f"seed {seed}, life {life}: {text}\n")
        failed += len(wrong)
        for name, count in world.placed.items():
            placed[DialectName(name)] += count
            passed += count
    sys.stdout.write("placed: " + ", ".join(f"{count} {name}" for name, count in sorted(placed.items())) + "\n")
    return passed, failed


def run_gangs(operations: int, seed: int) -> tuple[int, int]:
    """(Operations after which all was as it must be, faults), in many clusters; each processor has one at a time."""
    passed = failed = 0
    lives = [min(_GANG_LIFE, operations - begun) for begun in range(0, operations, _GANG_LIFE)]
    with ProcessPoolExecutor() as pool:
        found = pool.map(_gang_life, [f"{seed}/{life}" for life in range(len(lives))], lives)
        for life, (right, faults) in enumerate(found):
            for text in faults[: max(_TOLD - failed, 0)]:
                sys.stdout.write(f"seed {seed}, life {life}: {text}\n")
                sys.stdout.flush()  # a million operations take an hour or more
            passed += right
            failed += len(faults)
            if life % 50 == 49:
                sys.stderr.write(f"{passed} passed so far\n")
    return passed, failed


def _gang_life(seed: str, operations: int) -> tuple[int, list[str]]:
    world = GangWorld(seed)
    passed = 0
    while passed < operations and not world.faults:
        world.step()
        if passed % 50 == 49:
            world.settle()
        passed += not world.faults
    made.clear()  # no test ends here that would look at them
    return passed, world.faults


if __name__ == "__main__":
    raise SystemExit(main())
