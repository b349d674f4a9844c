"""``scripts/bench NAME [options]``: one JSON object per line for every figure; ``--list`` names the benchmarks."""

import argparse
import importlib
import json
import sys
from collections.abc import Sequence
from types import ModuleType

from tests.support.worlds.cores import which_core

NAMES = (
    "admit",
    "backlog",
    "burst",
    "decide",
    "gang",
    "gate",
    "history",
    "packing",
    "place",
    "plan",
    "refused",
    "scale",
    "simulate",
    "soak",
    "start",
    "web",
)

# Options of which no benchmark can have 0; no number is below 0.
_NEEDED = frozenset({"nodes", "pods", "rounds", "shapes"})


def _bench(name: str) -> ModuleType:
    return importlib.import_module(f"tests.bench.{name}")


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line; exit if it names or sets what cannot be run, and after --list."""
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("--list", action="store_true", help="name the benchmarks and what each measures")
    benches = parser.add_subparsers(dest="name", metavar="NAME")
    firsts = {}
    for name in NAMES:
        try:
            module = _bench(name)
        except ModuleNotFoundError as e:
            if e.name != f"tests.bench.{name}":
                raise
            continue
        firsts[name] = (module.__doc__ or "").splitlines()[0]
        module.add_arguments(benches.add_parser(name, help=firsts[name], description=module.__doc__))
    args = parser.parse_args(argv)
    if args.list or args.name is None:
        for name, first in firsts.items():
            print(f"{name}: {first}")
        sys.exit(0 if args.list else 2)
    for option, value in vars(args).items():
        least = 1 if option in _NEEDED else 0
        if isinstance(value, int) and value < least:
            benches.choices[args.name].error(
                f"argument --{option.replace('_', '-')}: found {value}; write at least {least}"
            )
    return args


def main(argv: Sequence[str] | None = None) -> int:
    """Run one benchmark and print its figures."""
    args = arguments(argv)
    for result in _bench(args.name).run(args):
        line = {
            "bench": args.name,
            "core": which_core(),
            "params": dict(result.params),
            "metric": result.metric,
            "value": result.value,
            "unit": result.unit,
        }
        print(json.dumps(line), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
