"""Whole controllers in virtual time, judged from API objects alone: the command line; see `world`."""

# ruff: noqa: E402 (the clock comes first)
from tests.support.twin import clock

clock.install()

import argparse
import gc
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from tests.support.twin.clock import CLOCK
from tests.support.twin.directed import SCHEDULES
from tests.support.twin.gales import Gale
from tests.support.twin.squalls import SIDES, Breeze, Squall
from tests.support.twin.storms import SETTINGS, Storm
from tests.support.twin.world import World

_LIFE: Final = 4000
# What the names of lives begin with, by what happens in them.
_STORMS: Final[dict[str, Callable[..., Storm]]] = {
    "": Storm,
    "gale ": Gale,
    "breeze ": Breeze,
    **{f"{name} ": partial(Squall, name) for name in SIDES},
}


def parser() -> argparse.ArgumentParser:
    """What the command line may say."""
    found = argparse.ArgumentParser(
        prog="scripts/twin --controllers",
        description="Two whole controllers, an API server, kubelets, device plugins and users in virtual time. Writes "
        "arrive after any delay or never, processes are killed, stopped and cut off, etcd is restored. After every "
        "event a judge that knows API objects and process tables alone looks for cards over their total, containers "
        "with another pod's cards, pods that a plugin did not find, pods that are forgotten, and processes that ended "
        "by a mistake.",
    )
    found.add_argument("--controllers", action="store_true", help=argparse.SUPPRESS)
    found.add_argument(
        "--operations",
        type=int,
        default=300_000,
        help="how many: requests of controllers, and steps of "
        "kubelets, plugins, users and faults (default: %(default)s)",
    )
    found.add_argument("--seed", type=int, default=1, help="what happens follows from it (default: %(default)s)")
    found.add_argument(
        "--life",
        type=_life,
        action="append",
        default=[],
        help="only this life of the seed: a number, one of the words gale, breeze, "
        + ", ".join(SIDES)
        + " and a number, or a "
        "schedule's name; may be repeated",
    )
    found.add_argument("--without", default="", help="words of faults that are not to happen, separated by commas")
    found.add_argument("--trace", action="store_true", help="tell every change of a pod or a lease, and every log line")
    found.add_argument("--keep-going", action="store_true", help="go on with the next life after a find")
    return found


def _life(text: str) -> str:
    if text not in SCHEDULES and text.rstrip("0123456789") not in _STORMS:
        raise argparse.ArgumentTypeError(f"no life is called {text!r}; see --help")
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as the command line says; 0 if nothing was found."""
    chosen = parser().parse_args(arguments)
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Sets of names are gone through in the same order every time.
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.support.twin.run", *(sys.argv[1:] if arguments is None else arguments)],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    if not chosen.trace:
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    with tempfile.TemporaryDirectory() as folder:
        return _run(chosen, Path(folder) / "cardshare.yaml")


def _tell(text: str) -> None:
    sys.stdout.write(f"{CLOCK.now_s:.3f} {text}\n")


def _run(chosen: argparse.Namespace, settings: Path) -> int:
    counts: Counter[str] = Counter()
    found = lives = done = 0
    virtual_s = 0.0
    names = list(SCHEDULES) + [f"{kind}{number}" for number in range(chosen.operations) for kind in _STORMS]
    for name in chosen.life or names:
        if done >= chosen.operations:
            break
        settings.write_text(SETTINGS)
        world = World(f"{chosen.seed}/{name}", settings)
        if chosen.trace:
            world.trace = _tell
        begun_s = CLOCK.now_s
        if name in SCHEDULES:
            SCHEDULES[name](world)
        else:
            storm = _STORMS[name.rstrip("0123456789")]
            storm(world, tuple(filter(None, chosen.without.split(",")))).blow(min(_LIFE, chosen.operations - done))
        lives, done, virtual_s = lives + 1, done + world.operations, virtual_s + CLOCK.now_s - begun_s
        counts += world.counts
        for kind, text in world.finds:
            sys.stdout.write(f"{kind}: seed {chosen.seed}, life {name!r}: {text}\n")
            counts[f"found: {kind}"] += 1
        found += len(world.finds)
        is_found = bool(world.finds)
        # What this life left behind is finalized now, and not in the middle of another one.
        del world
        gc.collect()
        if is_found and name not in SCHEDULES and not chosen.keep_going:
            break
    for kind, count in sorted(counts.items()):
        sys.stdout.write(f"{count:>9,} {kind}\n")
    sys.stdout.write(
        f"{done:,} operations in {lives} lives, {virtual_s:,.0f} s of virtual time, {clock.cpu_s():.0f} s of CPU: "
        f"{found} found\n"
    )
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
