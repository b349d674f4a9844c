"""How long the core takes to place a gang, or to refuse it: every member at once, on a cluster that is busy besides.

N nodes x 8 cards, each used by a pod or two, but for as many as the gang has members: each member wants all cards of
its node, whole. To have it refused, one of those nodes is used too: all members but one fit. Before every gang pods of
other shapes come and go, so that there is something to catch up with. --kinds makes the members differ, so that more
orders are tried; --domains has the gang lie in one domain, which is that of the empty nodes; with --empty all nodes
are empty, in domains of one size that are too small, and nothing is placed. Seeded: the same gangs are asked of the
same cluster every time.
"""

import argparse
import gc
import random
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Final

from core.catalog import standard_catalog
from core.ledger import Ledger
from core.model import Container, NodeName, Pod, PodUid
from core.placing.candidates import Candidates
from core.placing.decide import Shape, decide, node_policy, shape_of
from core.placing.domains import by_label
from core.placing.gang import Member, Refused, Unit, place
from core.placing.minimums import Minimum
from core.settings import Policy, Settings
from tests.bench.fleets import FLEETS
from tests.bench.results import Result, peak_rss_mib, quantile

# Pods that come, and pods that go, between two gangs.
_CHURN: Final = 20
_CARDS: Final = 8
_DOMAIN: Final = "example.com/domain"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.add_argument("--nodes", type=int, default=1000, help="nodes of 8 cards each (default 1000)")
    parser.add_argument(
        "--members", "--size", type=int, default=64, help="members of a gang, of 8 cards each (default 64)"
    )
    parser.add_argument("--kinds", type=int, default=1, help="shapes that the members are of, in turn (default 1)")
    parser.add_argument("--domains", type=int, default=0, help="domains of nodes, the largest of the empty (default 0)")
    parser.add_argument("--empty", action="store_true", help="all nodes are empty, and no domain takes a gang")
    parser.add_argument("--policy", choices=("binpack", "spread"), default="binpack")
    parser.add_argument("--rounds", type=int, default=100, help="gangs placed, and as many refused (default 100)")
    parser.add_argument("--seed", type=int, default=1)


def run(args: argparse.Namespace) -> Iterator[Result]:
    """Measure and yield p50_ms, p99_ms, first_ms, cpu_ms (of half of them less), the same of refusals, peak_rss_mib."""
    rig = _Rig(args)
    gc.set_threshold(20_000, 10, 1000)  # as the controller does
    placed: list[float] = []
    refused: list[float] = []
    placed_cpu: list[float] = []
    refused_cpu: list[float] = []
    gc.collect()
    gc.freeze()
    for number in range(args.rounds):
        if not args.empty:
            rig.churn()
            gang = rig.gang(f"fits-{number}")
            start, start_cpu = time.perf_counter(), time.process_time()
            answer = place(rig.ledger, rig.candidates, gang)
            placed.append((time.perf_counter() - start) * 1e3)
            placed_cpu.append((time.process_time() - start_cpu) * 1e3)
            if isinstance(answer, Refused):
                raise TypeError(f"{answer.fitting} of {args.members} members fit")
            for one in answer:
                rig.ledger.release(one.pod)
        rig.churn()
        with nullcontext() if args.empty else rig.one_node_less():
            gang = rig.gang(f"waits-{number}")
            start, start_cpu = time.perf_counter(), time.process_time()
            answer = place(rig.ledger, rig.candidates, gang)
            refused.append((time.perf_counter() - start) * 1e3)
            refused_cpu.append((time.process_time() - start_cpu) * 1e3)
        if not isinstance(answer, Refused):
            raise TypeError("all members fit on too few nodes")
    options = ("nodes", "members", "kinds", "domains", "empty", "policy", "rounds")
    params = {key: getattr(args, key) for key in options}
    for kind, times, cpu in (("", placed, placed_cpu), ("refused_", refused, refused_cpu)):
        figures = (
            {}
            if not times
            else {
                "p50_ms": quantile(sorted(times), 0.5),
                "p99_ms": quantile(sorted(times), 0.99),
                "first_ms": times[0],
                "cpu_ms": quantile(sorted(cpu), 0.5),
            }
        )
        for metric, value in figures.items():
            yield Result(metric=kind + metric, value=round(value, 2), unit="ms", params=params)
    yield Result(metric="peak_rss_mib", value=peak_rss_mib(), unit="MiB", params=params)


class _Rig:
    """A cluster on which just as many nodes are empty as a gang needs."""

    def __init__(self, args: argparse.Namespace) -> None:
        fleet = FLEETS["vgpu"]
        settings = Settings(policy=Policy(args.policy))
        self.ledger: Final = Ledger(standard_catalog(), fleet.tables, settings)
        self.candidates: Final = Candidates(self.ledger, node_policy(settings))
        self._chance: Final = random.Random(args.seed)
        self._members: Final = args.members
        self._topology: Final = by_label(_DOMAIN) if args.domains else None
        self._kinds: Final = args.kinds
        self._empty: Final = {
            NodeName(f"node-{number:05d}") for number in self._chance.sample(range(args.nodes), args.members)
        }
        for number in range(args.nodes):
            node = fleet.node(number)
            is_apart = node.name not in self._empty and bool(args.domains)
            domain = number % args.domains if args.empty else 1 + number % (args.domains - 1) if is_apart else 0
            self.ledger.set_node(replace(node, labels={**node.labels, _DOMAIN: str(domain)}))
        args.selective = False
        pods = [fleet.pod(number, args, self._chance) for number in range(100)]
        self._small: Final = [(pod, shape) for pod in pods if isinstance(shape := shape_of(pod, self.ledger), Shape)]
        self._running: Final[list[PodUid]] = []
        self._made = 0
        bare = [name for name in self.ledger.states if name not in self._empty]
        for at, name in enumerate(() if args.empty else bare):
            for _ in range(1 + (at % 3 == 0)):
                self._running.append(self.use(name))

    def gang(self, name: str) -> Unit:
        """As many members as nodes are empty, each of them with all cards of one."""
        return Unit(
            members=tuple(self._member(f"{name}-{at}", at % self._kinds) for at in range(self._members)),
            minimum=Minimum(members=self._members),
            topology=self._topology,
        )

    def _member(self, name: str, kind: int) -> Member:
        limits = {
            "cpu": str(8 + kind),
            "volcano.sh/vgpu-number": str(_CARDS),
            "volcano.sh/vgpu-memory": str(30000 - 1000 * kind),
            "volcano.sh/vgpu-cores": "100",
        }
        containers = (Container(name="c", limits=limits, requests=limits),)
        pod = Pod(uid=PodUid(name), namespace="bench", name=name, containers=containers)
        shape = shape_of(pod, self.ledger)
        if not isinstance(shape, Shape):
            raise TypeError(f"{pod.key} is no shape: {shape}")
        return Member(pod=pod, shape=shape)

    def churn(self) -> None:
        """Some pods go, and others come, on nodes that are not empty."""
        for _ in range(_CHURN if self._running else 0):
            at = self._chance.randrange(len(self._running))
            uid = self._running[at]
            name = self.ledger.node_of(uid)
            if name is not None and len(self.ledger.holders(name)) > 1:
                self._running[at] = self._running[-1]
                self._running.pop()
                self.ledger.release(uid)
            self._add(self._empty)

    def one_node_less(self) -> "_Used":
        """One of the empty nodes is used, for as long as this lasts."""
        return _Used(self, min(self._empty))

    def _add(self, passed_over: frozenset[NodeName] | set[NodeName]) -> PodUid | None:
        pod, shape = self._chance.choice(self._small)
        self._made += 1
        name = f"small-{self._made}"
        placement = decide(self.candidates, pod._replace(uid=PodUid(name), name=name), shape, passed_over)
        if placement is None:
            return None
        self.ledger.reserve(placement)
        self._running.append(placement.pod)
        return placement.pod

    def use(self, name: NodeName) -> PodUid:
        """Place a pod on *name*."""
        while True:
            uid = self._add(self.ledger.states.keys() - {name})
            if uid is not None:
                self._running.remove(uid)
                return uid


class _Used:
    def __init__(self, rig: _Rig, name: NodeName) -> None:
        self._rig: Final = rig
        self._name: Final = name
        self._uid = PodUid("")

    def __enter__(self) -> None:
        self._uid = self._rig.use(self._name)

    def __exit__(self, *_: object) -> None:
        self._rig.ledger.release(self._uid)
