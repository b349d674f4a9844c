"""Memory of the controller's state where thousands of shapes are refused on thousands of nodes.

N nodes x 8 cards, each with a share in use and three other pods; S pods of as many shapes, of 64 sets of constraints,
each asking for more CPU than any node has left, so that every node is judged for each and refuses. One process, without
an API server: what the planner keeps is its own, whatever it is fed by.

  peak_rss_mib, rss_mib         at the highest, and in the end
  before_rss_mib                with nodes and bound pods alone
  vector_mib, kept_shapes       what is remembered in the end, as the controller counts it
  cpu_ms_per_shape              until all are refused
  release_cpu_ms                a pod ends on one node: until every shape has been asked about that node
  again_cpu_s                   in the `refused_retry_s` after that: all are asked again, and nothing else happens

Time passes only when nothing is left to do: 50 ms between one pod and the next, whatever the machine. The default size
is 20 million judgements of a node: a minute or more.
"""

import argparse
import gc
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from controller.deciding.scheduler import Scheduler
from controller.metrics import Metrics
from core.catalog import standard_catalog
from core.model import Container, NodeConstraints, Phase, Pod, PodUid, Toleration
from core.settings import Settings
from tests.bench.fleets import FLEETS
from tests.bench.results import Result, peak_rss_mib

_SETS: Final = 64
_OTHERS: Final = 3
_RELEASES: Final = 10
# Between one pod and the next.
_PACE_S: Final = 0.05
_FLEET: Final = FLEETS["vgpu"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--nodes", type=int, default=5000, help="nodes of 8 cards each (default 5000)")
    parser.add_argument("--shapes", type=int, default=4096, help="shapes refused (default 4096)")


def run(args: argparse.Namespace) -> Iterator[Result]:
    """Measure and yield the figures that the module's text lists."""
    clock = _Clock()
    scheduler = Scheduler(
        standard_catalog(), _FLEET.tables, Settings(), metrics=Metrics(), clock=clock.now, wall=time.time
    )
    gc.set_threshold(20_000, 10, 1000)  # as the controller does
    _fill(scheduler, args.nodes)
    _work(scheduler, clock, 1.0)
    before_mib, cpu_s = _rss_mib(), time.process_time()
    for number in range(args.shapes):
        scheduler.pod_changed(_waiting(number, args.shapes))
        _work(scheduler, clock, _PACE_S)
    cpu_s = time.process_time() - cpu_s
    refused = len(scheduler.cluster.queue.refused_asks())
    if refused != args.shapes:
        raise RuntimeError(f"{refused} of {args.shapes} shapes are refused")
    release_s = time.process_time()
    for number in range(_RELEASES):
        scheduler.pod_gone(PodUid(f"other-{number}-0"))
        _work(scheduler, clock, 1.0)
    release_s = time.process_time() - release_s
    again_s = time.process_time()
    _work(scheduler, clock, scheduler.cluster.settings.refused_retry_s)
    again_s = time.process_time() - again_s
    kept = scheduler.cluster.search.candidates.remembered
    params = {"nodes": args.nodes, "shapes": args.shapes}
    for metric, value, unit in (
        ("peak_rss_mib", peak_rss_mib(), "MiB"),
        ("rss_mib", _rss_mib(), "MiB"),
        ("before_rss_mib", before_mib, "MiB"),
        ("vector_mib", round(kept.size_bytes / 2**20, 1), "MiB"),
        ("kept_shapes", kept.shapes, ""),
        ("cpu_ms_per_shape", round(cpu_s / args.shapes * 1000, 2), "ms"),
        ("release_cpu_ms", round(release_s / _RELEASES * 1000, 2), "ms"),
        ("again_cpu_s", round(again_s, 2), "s"),
    ):
        yield Result(metric=metric, value=value, unit=unit, params=params)


def _fill(scheduler: Scheduler, nodes: int) -> None:
    for number in range(nodes):
        node = _FLEET.node(number)
        scheduler.nodes.changed(replace(node, resource_version="1"))
        name = str(node.name)
        held = {"volcano.sh/vgpu-ids-new": f"GPU-{number:05d}-0,NVIDIA,{1000 + number % 50},10:"}
        scheduler.pod_changed(_bound(f"share-{number}", name, "2", held))
        for at in range(_OTHERS):
            scheduler.pod_changed(_bound(f"other-{number}-{at}", name, "2", {}))


class _Clock:
    """Seconds that pass only when nothing is left to do."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def now(self) -> float:
        return self._now_s

    def skip_to(self, at_s: float) -> None:
        self._now_s = max(self._now_s, at_s)


def _work(scheduler: Scheduler, clock: _Clock, for_s: float) -> None:
    """Have all decided and asked that is due now and within the next *for_s*."""
    until_s = clock.now() + for_s
    while scheduler.cycle.plan(until_s) or scheduler.cycle.next_due_s() <= until_s:
        clock.skip_to(min(scheduler.cycle.next_due_s(), until_s))
    clock.skip_to(until_s)
    scheduler.cluster.actions.clear()
    scheduler.cluster.unreported.clear()
    scheduler.cluster.requeue.unreported.clear()


def _bound(name: str, node: str, cpu: str, annotations: dict[str, str]) -> Pod:
    limits = {"cpu": cpu}
    return Pod(
        uid=PodUid(name),
        namespace="bench",
        name=name,
        resource_version="1",
        node_name=node,
        phase=Phase.RUNNING,
        started=True,
        annotations=annotations,
        containers=(Container(name="main", limits=limits, requests=limits),),
    )


def _waiting(number: int, shapes: int) -> Pod:
    """A pod of a shape of its own; those of one set of constraints come one after the other."""
    limits = {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": str(1000 + number), "cpu": "126"}
    tolerated = Toleration(key=f"team-{number * _SETS // shapes}", operator="Exists")
    return Pod(
        uid=PodUid(f"waits-{number}"),
        namespace="bench",
        name=f"waits-{number}",
        resource_version="1",
        scheduler_name="cardshare",
        constraints=NodeConstraints(tolerations=(tolerated,)),
        containers=(Container(name="main", limits=limits, requests=limits),),
    )


def _rss_mib() -> float:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return round(int(status.partition("VmRSS:")[2].split()[0]) / 1024, 1)
