"""How much more of a full cluster is sold after few moves, against a full repack, on a public trace.

The cluster of `packing` at 130 % is taken as it is at the end. Then `core.moving` plans for each task with a GPU that
found no room, largest first, each plan is carried out, and no more than `--share` of the pods move in all. A full
repack begins with an empty cluster and all pods that have a place, largest first, then offers it the others; of the
policies the best that loses no pod counts. Figures:

  percent         GPU that is allocated before, of all that the cluster has
  plan_percent    the same after all plans
  repack_percent  the same after the full repack
  of_repack       what the plans let in, of what the full repack lets in; absent if that lets in nothing
  let_in          tasks that plans let in
  moved_percent   pods that moved, of all
  moves           moves of a plan, mean
  plan_ms         CPU time of a search, mean

The trace is not part of the project; see `packing`.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from typing import Final

from core.model import PodUid
from core.moving.places import MovePlaces
from core.moving.search import Limits, Movable, search
from core.moving.units import unit_of
from core.settings import Policy
from core.waiting import Wait
from tests.bench import packing
from tests.bench.packing import CARD, Cluster, Machine, Task
from tests.bench.results import Result

_REPACKS: Final = ("pack", "binpack")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    packing.add_arguments(parser)
    parser.set_defaults(policy="binpack")
    parser.add_argument("--share", type=float, default=5.0, help="percent of the pods that may move (default 5)")
    parser.add_argument("--moves", type=int, default=10, help="most moves of a plan (default 10)")


def run(args: argparse.Namespace) -> Iterator[Result]:
    """Measure and yield the figures that the module's text lists."""
    params = {"list": args.task_list, "policy": args.policy, "seed": args.seed, "share": args.share}
    machines = packing.machines_of(args.trace)
    capacity = CARD * sum(one.cards for one in machines)
    offered = packing.offered(packing.tasks_of(args.trace, args.task_list), capacity, args.seed)
    cluster = Cluster(machines, Policy(args.policy))
    is_placed = [cluster.offer(task) for task in offered]
    placed = {PodUid(f"task-{at}"): task for at, task in enumerate(offered) if is_placed[at]}
    dropped = sorted((task for at, task in enumerate(offered) if not is_placed[at]), key=_size, reverse=True)
    before = cluster.sold
    repacked = _repacked(machines, list(placed.values()), dropped)
    let_in, moved, looked, cpu_s = _planned(cluster, placed, dropped, args)

    def figure(metric: str, value: float, unit: str) -> Result:
        return Result(metric=metric, value=round(value, 3), unit=unit, params=params)

    yield figure("percent", 100 * before / capacity, "%")
    yield figure("plan_percent", 100 * cluster.sold / capacity, "%")
    yield figure("repack_percent", 100 * repacked / capacity, "%")
    if repacked > before:
        yield figure("of_repack", (cluster.sold - before) / (repacked - before), "")
    yield figure("let_in", let_in, "")
    yield figure("moved_percent", 100 * len(moved) / len(placed), "%")
    yield figure("moves", len(moved) / max(let_in, 1), "")
    yield figure("plan_ms", 1000 * cpu_s / max(looked, 1), "ms")


def _size(task: Task) -> tuple[int, int, int]:
    return task.cards * task.milli, task.milli, task.cpu_milli


def _repacked(machines: list[Machine], placed: Sequence[Task], dropped: Sequence[Task]) -> int:
    """What is sold after the best full repack under which all of *placed* have a place."""
    best = 0
    for policy in _REPACKS:
        cluster = Cluster(machines, Policy(policy))
        lost = sum(not cluster.offer(task) for task in sorted(placed, key=_size, reverse=True))
        for task in dropped:
            cluster.offer(task)
        best = max(best, cluster.sold) if not lost else best
    return best


def _planned(
    cluster: Cluster, placed: dict[PodUid, Task], dropped: Sequence[Task], args: argparse.Namespace
) -> tuple[int, set[PodUid], int, float]:
    """Carry out plans; (tasks let in, pods moved, searches, CPU seconds of them)."""
    ledger = cluster.ledger
    movable = {}
    for at, (uid, task) in enumerate(placed.items()):
        pod = task.pod(at)._replace(uid=uid, namespace=f"n{at}")
        movable[uid] = Movable(pod, cluster.shape(task))
    places = MovePlaces(ledger, cluster.policy)
    left, let_in, looked = int(len(placed) * args.share / 100), 0, 0
    moved, hopeless = set[PodUid](), set[Task]()
    began_s = time.process_time()
    for at, task in enumerate(dropped):
        if not task.cards or task in hopeless or len(moved) >= left:
            continue
        unit = unit_of([task.pod(len(placed) + len(dropped) + at)], ledger)
        assert not isinstance(unit, Wait)
        limits = Limits(moves=min(args.moves, left - len(moved)), per_namespace=args.moves)
        found = search(ledger, cluster.policy, unit, movable, limits, places=places).found
        looked += 1
        if found is None:
            hopeless.add(task)
            continue
        for move in found.moves:
            ledger.release(move.pod.uid)
            moved.add(move.pod.uid)
        for placement in (*found.placements, *(move.placement for move in found.moves)):
            ledger.reserve(placement)
        let_in += 1
    return let_in, moved, looked, time.process_time() - began_s
