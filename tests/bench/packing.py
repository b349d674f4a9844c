"""How much of a cluster's GPU is sold at the end under a policy, on a public trace; simulated by `core.placing.pack`.

The published experiment: every task of a list once in random order, then tasks drawn from it until what they ask comes
to 130 % of the cluster; they are offered one after another, none ever leaves, and what fits nowhere is dropped. Among
equal nodes the first by name is taken, among the cards of a node that fit the fullest. Figures:

  percent      GPU that is allocated, of all that the cluster has
  dropped      tasks that found no room
  decision_us  CPU time of the simulator for each task, tables included

The trace is not part of the project: --trace names a folder with `openb_node_list_gpu_node.csv` and
`openb_pod_list_NAME.csv` of alibaba/clusterdata, cluster-trace-gpu-v2023.
"""

import argparse
import csv
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from core import names
from core.placing.pack import NOTHING_KNOWN, Asked, Mix, steps_asked, steps_free
from tests.bench.results import Result

_CARD: Final = 1000
_LOAD: Final = 1.3
_NEAR: Final = 1e-9
_POLICIES: Final = ("pack", "binpack")


class Task(NamedTuple):
    """What one task asks: of each of *cards* cards *milli*; models: those that it accepts, () for any."""

    cpu_milli: int
    memory_mib: int
    cards: int
    milli: int
    models: frozenset[str]

    @property
    def asked(self) -> Asked:
        """The same as the tables count it."""
        amounts = ((names.CPU, self.cpu_milli), (names.MEMORY, self.memory_mib))
        return Asked(steps_asked(self.milli, _CARD) if self.cards else 0, self.cards, amounts)


class Machine:
    """One node: what is left of it, and of each of its cards."""

    def __init__(self, name: str, cpu_milli: int, memory_mib: int, cards: int, model: str) -> None:
        self.name: Final = name
        self.model: Final = model
        self.left: Final = {names.CPU: cpu_milli, names.MEMORY: memory_mib}
        self.free: Final = [_CARD] * cards

    def fitting(self, task: Task) -> list[int] | None:
        """Which cards *task* gets, the fullest that fit; None if it does not fit."""
        if self.left[names.CPU] < task.cpu_milli or self.left[names.MEMORY] < task.memory_mib:
            return None
        if task.cards and task.models and self.model not in task.models:
            return None
        found = sorted((free, card) for card, free in enumerate(self.free) if free >= task.milli)[: task.cards]
        return [card for _, card in found] if len(found) == task.cards else None

    def take(self, task: Task, cards: Sequence[int]) -> None:
        """Let *task* have *cards*."""
        self.left[names.CPU] -= task.cpu_milli
        self.left[names.MEMORY] -= task.memory_mib
        for card in cards:
            self.free[card] -= task.milli

    def steps(self) -> list[int]:
        """The free steps of each card."""
        return [steps_free(free, _CARD) for free in self.free]


class Cluster:
    """All nodes by name, what each would score for a task, and the tables."""

    def __init__(self, machines: list[Machine], policy: str) -> None:
        self._machines: Final = sorted(machines, key=lambda one: one.name)
        self._packs: Final = policy == "pack"
        self._cards: Final = sum(len(one.free) for one in machines)
        self._have: Final = {name: sum(one.left[name] for one in machines) for name in (names.CPU, names.MEMORY)}
        self._mix: Final = Mix((names.CPU, names.MEMORY))
        self._tables = NOTHING_KNOWN
        # Task -> what each node scores, as of so many placements.
        self._scores: Final[dict[Task, tuple[list[float], int]]] = {}
        self._changed: Final[list[int]] = []

    def offer(self, task: Task) -> bool:
        """Place *task* if it fits anywhere."""
        if self._mix.add(task.asked):
            tables = self._mix.tables(self._have, self._cards)
            if not tables.is_like(self._tables):
                self._tables = tables
                self._scores.clear()
        scores = self._scored(task)
        best = max(scores)
        if best == -float("inf"):
            return False
        at = next(at for at, score in enumerate(scores) if score >= best - _NEAR)
        machine = self._machines[at]
        machine.take(task, machine.fitting(task) or ())
        self._changed.append(at)
        return True

    def _scored(self, task: Task) -> list[float]:
        scores, since = self._scores.get(task, ([-float("inf")] * len(self._machines), -1))
        changed = range(len(self._machines)) if since < 0 else set(self._changed[since:])
        for at in changed:
            scores[at] = self._score(task, self._machines[at])
        self._scores[task] = scores, len(self._changed)
        return scores

    def _score(self, task: Task, machine: Machine) -> float:
        cards = machine.fitting(task)
        if cards is None:
            return -float("inf")
        if not self._packs:
            return sum(100.0 * (_CARD - machine.free[card] + task.milli) / _CARD for card in cards)
        before, after = machine.steps(), machine.steps()
        for card in cards:
            after[card] = steps_free(machine.free[card] - task.milli, _CARD)
        left = machine.left
        left_after = {
            names.CPU: left[names.CPU] - task.cpu_milli,
            names.MEMORY: left[names.MEMORY] - task.memory_mib,
        }
        return self._tables.score(before, left, after, left_after)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--trace", type=Path, required=True, help="folder with the trace")
    parser.add_argument("--list", dest="task_list", default="default", help="which list of tasks (default default)")
    parser.add_argument("--policy", choices=_POLICIES, default="pack")
    parser.add_argument("--seed", type=int, default=42, help="of the order of tasks (default 42)")


def run(args: argparse.Namespace) -> Iterator[Result]:
    """Measure and yield the figures that the module's text lists."""
    params = {"list": args.task_list, "policy": args.policy, "seed": args.seed}
    machines = _machines(args.trace)
    capacity = _CARD * sum(len(one.free) for one in machines)
    offered = _offered(_tasks(args.trace, args.task_list), capacity, args.seed)
    cluster = Cluster(machines, args.policy)
    began_s = time.process_time()
    dropped = sum(not cluster.offer(task) for task in offered)
    took_s = time.process_time() - began_s
    sold = capacity - sum(sum(one.free) for one in machines)
    yield Result(metric="percent", value=round(100.0 * sold / capacity, 3), unit="%", params=params)
    yield Result(metric="dropped", value=dropped, unit="", params=params)
    yield Result(metric="decision_us", value=round(took_s / len(offered) * 1e6, 1), unit="us", params=params)


def _machines(trace: Path) -> list[Machine]:
    with (trace / "openb_node_list_gpu_node.csv").open(encoding="utf-8") as file:
        return [
            Machine(row["sn"], int(row["cpu_milli"]), int(row["memory_mib"]), int(row["gpu"]), row["model"])
            for row in csv.DictReader(file)
        ]


def _tasks(trace: Path, name: str) -> list[Task]:
    with (trace / f"openb_pod_list_{name}.csv").open(encoding="utf-8") as file:
        return [_task(row) for row in csv.DictReader(file)]


def _task(row: dict[str, str]) -> Task:
    cards = int(row["num_gpu"])
    milli = int(row["gpu_milli"] or 0) if cards == 1 else _CARD
    # Not every list has that column.
    models = frozenset((row.get("gpu_spec") or "").split("|")) - {""}
    return Task(int(row["cpu_milli"]), int(row["memory_mib"]), cards, milli, models)


def _offered(tasks: list[Task], capacity: int, seed: int) -> list[Task]:
    """Every task once, then some again, until they ask for `_LOAD` of *capacity*."""
    chance = random.Random(seed)
    offered = chance.sample(tasks, len(tasks))
    asked = sum(one.cards * one.milli for one in offered)
    while True:
        task = chance.choice(tasks)
        if asked + (task.milli if task.cards else 0) > _LOAD * capacity:
            return offered
        offered.append(task)
        asked += task.cards * task.milli
