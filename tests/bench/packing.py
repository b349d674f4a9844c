"""How much of a cluster's GPU is sold at the end under a policy, on a public trace, by what the controller runs.

The published experiment: every task of a list once in random order, then tasks drawn from it until what they ask comes
to 130 % of the cluster; they are offered one after another, none ever leaves, and what fits nowhere is dropped. Nodes
and tasks are put in the words of the vGPU plugin, a thousandth of a card as a MiB. Figures:

  percent      GPU that is allocated, of all that the cluster has
  dropped      tasks that found no room
  decision_us  CPU time of a decision and its promise, what is learnt included

The trace is not part of the project: --trace names a folder with `openb_node_list_gpu_node.csv` and
`openb_pod_list_NAME.csv` of alibaba/clusterdata, cluster-trace-gpu-v2023.
"""

import argparse
import csv
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from core.catalog import standard_catalog
from core.ledger import Ledger
from core.model import Container, Node, NodeName, Pod, PodUid
from core.placing.candidates import Candidates
from core.placing.decide import Shape, decide, node_policy, shape_of
from core.placing.learning import Learning
from core.settings import DialectName, Policy, Settings, Tables
from tests.bench.results import Result

CARD: Final = 1000
_LOAD: Final = 1.3
_POLICIES: Final = ("pack", "binpack", "spread")


class Task(NamedTuple):
    """What one task asks: of each of *cards* cards *milli*; models: those that it accepts, () for any."""

    cpu_milli: int
    memory_mib: int
    cards: int
    milli: int
    models: frozenset[str]

    def pod(self, number: int) -> Pod:
        """The same as a pod."""
        asked = {"cpu": f"{self.cpu_milli}m", "memory": f"{self.memory_mib}Mi"}
        if self.cards:
            asked |= {"volcano.sh/vgpu-number": str(self.cards), "volcano.sh/vgpu-memory": str(self.milli)}
        return Pod(
            uid=PodUid(f"task-{number}"),
            namespace="bench",
            name=f"task-{number}",
            annotations={"nvidia.com/use-gputype": ",".join(sorted(self.models))} if self.models else {},
            containers=(Container(name="c", limits=asked, requests=asked),),
        )


class Machine(NamedTuple):
    """One node of the trace."""

    name: str
    cpu_milli: int
    memory_mib: int
    cards: int
    model: str

    def node(self) -> Node:
        """The same as the vGPU plugin registers it; a card may be shared by as many as there are thousandths."""
        register = "".join(
            f"{self.name}-{card},{CARD},{CARD},NVIDIA-{self.model},true,hami-core:" for card in range(self.cards)
        )
        amounts = {
            "cpu": f"{self.cpu_milli}m",
            "memory": f"{self.memory_mib}Mi",
            "pods": "10000",
            "volcano.sh/vgpu-number": str(self.cards * CARD),
            "volcano.sh/vgpu-memory": str(self.cards * CARD),
            "volcano.sh/vgpu-cores": str(self.cards * 100),
        }
        annotations = {"volcano.sh/node-vgpu-register": register}
        return Node(name=NodeName(self.name), annotations=annotations, capacity=amounts, allocatable=amounts)


class Cluster:
    """All nodes as the controller knows them, and what it decides by.

    Attributes:
        policy: how nodes are chosen.
        ledger: who holds what.
    """

    def __init__(self, machines: list[Machine], policy: Policy) -> None:
        """Begin with nothing in use, and nothing learnt."""
        settings = Settings(policy=policy)
        self.ledger: Final = Ledger(standard_catalog(), Tables(), settings)
        for machine in sorted(machines):
            self.ledger.set_node(machine.node())
        self.policy = node_policy(settings)
        self._candidates: Final = Candidates(self.ledger, self.policy)
        self._learning: Final = Learning(self.ledger)
        self._shapes: Final[dict[Task, Shape]] = {}
        self._offered = 0

    def offer(self, task: Task) -> bool:
        """Place *task* if it fits anywhere."""
        pod, shape = task.pod(self._offered), self.shape(task)
        self._offered += 1
        if self.policy.tables is not None:
            self._learn(pod, shape)
        placement = decide(self._candidates, pod, shape)
        if placement is not None:
            self.ledger.reserve(placement)
        return placement is not None

    def shape(self, task: Task) -> Shape:
        """What *task* asks."""
        shape = self._shapes.get(task)
        if shape is None:
            found = shape_of(task.pod(0), self.ledger)
            assert isinstance(found, Shape), found
            shape = self._shapes[task] = found
        return shape

    def _learn(self, pod: Pod, shape: Shape) -> None:
        """What the controller does with a pod that it has not seen before."""
        self._learning.saw(pod.uid, shape)
        if self._learning.is_due and list(self._learning.learn())[-1]:
            self.policy = replace(self.policy, tables=self._learning.tables)
            self._candidates.judge_anew(self.policy)

    @property
    def sold(self) -> int:
        """Thousandths of cards that are in use."""
        vgpu = self.ledger.catalog.dialects[_VGPU]
        return sum(one.used for state in self.ledger.states.values() for one in vgpu.tally(state.cards(_VGPU)))


_VGPU: Final = DialectName("vgpu")


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
    machines = machines_of(args.trace)
    capacity = CARD * sum(one.cards for one in machines)
    tasks = offered(tasks_of(args.trace, args.task_list), capacity, args.seed)
    cluster = Cluster(machines, Policy(args.policy))
    began_s = time.process_time()
    dropped = sum(not cluster.offer(task) for task in tasks)
    took_s = time.process_time() - began_s
    yield Result(metric="percent", value=round(100.0 * cluster.sold / capacity, 3), unit="%", params=params)
    yield Result(metric="dropped", value=dropped, unit="", params=params)
    yield Result(metric="decision_us", value=round(took_s / len(tasks) * 1e6, 1), unit="us", params=params)


def machines_of(trace: Path) -> list[Machine]:
    """The nodes of *trace*."""
    with (trace / "openb_node_list_gpu_node.csv").open(encoding="utf-8") as file:
        return [
            Machine(row["sn"], int(row["cpu_milli"]), int(row["memory_mib"]), int(row["gpu"]), row["model"])
            for row in csv.DictReader(file)
        ]


def tasks_of(trace: Path, name: str) -> list[Task]:
    """The tasks of list *name* of *trace*."""
    with (trace / f"openb_pod_list_{name}.csv").open(encoding="utf-8") as file:
        return [_task(row) for row in csv.DictReader(file)]


def _task(row: dict[str, str]) -> Task:
    cards = int(row["num_gpu"])
    milli = int(row["gpu_milli"] or 0) if cards == 1 else CARD
    # Not every list has that column.
    models = frozenset((row.get("gpu_spec") or "").split("|")) - {""}
    return Task(int(row["cpu_milli"]), int(row["memory_mib"]), cards, milli, models)


def offered(tasks: list[Task], capacity: int, seed: int) -> list[Task]:
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
