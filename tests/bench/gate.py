"""Decisions, reviews and placed pods in small, each beside plain work of the same run: what became slower shows.

decide_binpack, decide_spread: CPU of a decision, 500 nodes x 8 cards, over that of one turn of a fixed loop, which is
timed before and after; the median of --rounds. review_seen, review_unseen: of one answer in process, likewise.
place_cpu_ratio: the controller's CPU for a pod over the bare client's, on the double, 100 nodes, 200 pods.

mark: what it was when it was last written down; slower: whether it is more than half as much again. A report, no judge:
exit status 0 either way.
"""

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from types import ModuleType
from typing import Final

from core.admission.rulebook import rulebook
from core.catalog import standard_catalog
from core.settings import Settings, Tables
from tests.bench import admission_load, decide, place
from tests.bench.results import Result
from tests.support.worlds.cores import which_core
from webhook.metrics import Metrics
from webhook.reviews import Path, Reviewer

# By the core that ran. Written down by hand, after a look at why it moved. That of placing was taken interpreted only.
MARKS: Final[Mapping[str, Mapping[str, float]]] = {
    "compiled": {
        "decide_binpack": 19.0,
        "decide_spread": 14.0,
        "review_seen": 4.5,
        "review_unseen": 31.0,
        "place_cpu_ratio": 5.0,
    },
    "interpreted": {
        "decide_binpack": 39.0,
        "decide_spread": 29.0,
        "review_seen": 4.9,
        "review_unseen": 38.0,
        "place_cpu_ratio": 5.0,
    },
}
# Below what two runs of one commit differ by on a machine that others use, a figure says nothing.
_SLOWER: Final = 1.5
_LOOP_TURNS: Final = 4_000
_REVIEWS: Final = 1_500


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--rounds", type=int, default=3, help="of each, of which the median counts (default 3)")
    parser.add_argument("--no-place", action="store_true", help="only what runs in this process")


def run(args: argparse.Namespace) -> Iterator[Result]:
    """Measure and yield what the module says."""
    marks = MARKS[which_core()]
    for metric, work in _WORK.items():
        value = median(_beside_loop(work) for _ in range(args.rounds))
        yield _judged(metric, value, "loops", marks)
    if not args.no_place:
        found = _figures(place, ["--nodes", "100", "--pods", "200", "--rounds", "1", "--brief"])
        value = found["controller_cpu_ms_per_pod"] / found["bare_cpu_ms_per_pod"]
        yield _judged("place_cpu_ratio", value, "", marks)


def _judged(metric: str, value: float, unit: str, marks: Mapping[str, float]) -> Result:
    mark = marks[metric]
    params = {"mark": mark, "slower": value > mark * _SLOWER}
    return Result(metric=metric, value=round(value, 2), unit=unit, params=params)


def _beside_loop(work: Callable[[], float]) -> float:
    """What *work* says it took, in turns of the loop around it."""
    before_us = _loop_us()
    took_us = work()
    return took_us / ((before_us + _loop_us()) / 2)


def _loop_us() -> float:
    """CPU microseconds of one turn of what any Python does: tuples, dictionaries, sorting, text."""
    began = time.process_time()
    for turn in range(_LOOP_TURNS):
        cards = {f"card-{number}": (number * turn % 7, number) for number in range(8)}
        by_free = sorted(cards.items(), key=lambda one: one[1])
        sum(free for _, (free, _) in by_free[:4])
    return (time.process_time() - began) / _LOOP_TURNS * 1e6


def _decision_us(policy: str) -> float:
    return _figures(decide, ["--nodes", "500", "--shapes", "50", "--policy", policy])["cpu_us_per_decision"]


def _review_us(workloads: int) -> float:
    """CPU of one answer, to pods of so many workloads in turn."""
    bodies = [admission_load.review_of(admission_load.share_pod(number)) for number in range(workloads)]
    reviewer = Reviewer(rulebook(Settings(), Tables(), standard_catalog()), Metrics())
    began = time.process_time()
    for number in range(_REVIEWS):
        reviewer.answer(Path.MUTATE, bodies[number % workloads])
    return (time.process_time() - began) / _REVIEWS * 1e6


_WORK: Final[Mapping[str, Callable[[], float]]] = {
    "decide_binpack": lambda: _decision_us("binpack"),
    "decide_spread": lambda: _decision_us("spread"),
    "review_seen": lambda: _review_us(32),
    "review_unseen": lambda: _review_us(_REVIEWS),
}


def _figures(bench: ModuleType, options: Sequence[str]) -> Mapping[str, float]:
    """What *bench* yields with *options*, by metric."""
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    return {result.metric: result.value for result in bench.run(parser.parse_args(options))}
