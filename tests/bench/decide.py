"""Decisions per second of the core alone: decide and reserve, with shapes in turn on a half-used cluster.

N nodes x 8 cards of three models, about half of the cards in use. With --churn a random holder is released for
every placement. With --selective half of the shapes select 1 % of the nodes by label, and every tenth shape fits
nowhere. With --predicates nodes have zones and taints, and of the pods half select a zone and tolerate the taint, a
tenth keep apart from their like by host, and a tenth are spread over zones. With --images every node has 50 of 200
images, and every pod needs one. With --busy the nodes that took a pod last are left out, as those are whose device
plugins are busy. --dialect takes nodes and pods of another
protocol. Seeded: the same figures are asked of the same
cluster every time.
"""

import argparse
import gc
import random
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace

from controller.garbage import Garbage
from core.catalog import standard_catalog
from core.constraints.constraint import NodeSet
from core.ledger import Ledger
from core.model import (
    NO_PEERS,
    Image,
    Node,
    NodeName,
    PeerTerm,
    PeerTerms,
    Pod,
    PodUid,
    Requirement,
    Spread,
    Taint,
    Toleration,
)
from core.placing.candidates import Candidates
from core.placing.decide import Shape, decide, node_policy, shape_of
from core.settings import Policy, Settings
from tests.bench.fleets import FLEETS
from tests.bench.results import Result, peak_rss_mib, quantile

_ZONE = "topology.kubernetes.io/zone"
_HOST = "kubernetes.io/hostname"
_ZONES = 10
_IMAGES = tuple(Image((f"registry/{number}:1",), (number % 20 + 1) * 2**29) for number in range(200))
_TAINT = Taint(key="example.com/shared", effect="NoSchedule")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.add_argument("--nodes", type=int, default=5000, help="nodes of 8 cards each (default 5000)")
    parser.add_argument("--shapes", type=int, default=100, help="live shapes, asked in turn (default 100)")
    parser.add_argument("--policy", choices=("binpack", "spread"), default="binpack")
    parser.add_argument("--churn", action="store_true", help="one release for every placement")
    parser.add_argument("--selective", action="store_true", help="half of the shapes select 1 %% of the nodes")
    parser.add_argument("--predicates", action="store_true", help="selectors, taints, anti-affinity and spread")
    parser.add_argument("--images", action="store_true", help="50 of 200 images on each node, of which pods need one")
    parser.add_argument(
        "--busy", type=int, default=0, help="so many nodes that took a pod last are left out (default 0)"
    )
    parser.add_argument("--decisions", type=int, help="decisions measured (default 20000; without --churn 2 a node)")
    parser.add_argument("--dialect", choices=tuple(FLEETS), default="vgpu", help="whose nodes and pods (default vgpu)")
    parser.add_argument("--seed", type=int, default=1)


def run(args: argparse.Namespace) -> Iterator[Result]:
    """Measure and yield decisions_per_s, CPU and latency of a decision, how many nodes it judged, and peak_rss_mib."""
    chance = random.Random(args.seed)
    # Without releases the cluster fills up; it is to stay about half used.
    args.decisions = args.decisions or (20000 if args.churn else 2 * args.nodes)
    settings = Settings(policy=Policy(args.policy))
    fleet = FLEETS[args.dialect]
    ledger = Ledger(standard_catalog(), fleet.tables, settings)
    for number in range(args.nodes):
        node = _zoned(fleet.node(number), number) if args.predicates else fleet.node(number)
        ledger.set_node(replace(node, images=tuple(chance.sample(_IMAGES, 50))) if args.images else node)
    candidates = Candidates(ledger, node_policy(settings))
    pods = [fleet.pod(number, args, chance) for number in range(args.shapes)]
    if args.predicates:
        pods = [_minding(pod, number) for number, pod in enumerate(pods)]
    if args.images:
        pods = [pod._replace(images=chance.choice(_IMAGES).names) for pod in pods]
    shapes = [_shape(pod, ledger) for pod in pods]
    placed = _half_fill(ledger, candidates, pods, shapes, args.nodes, fleet.pods_to_half, chance)
    for pod, shape in zip(pods, shapes, strict=True):
        decide(candidates, pod, shape)
    gc.set_threshold(20_000, 10, 1000)  # as the controller does
    judged = candidates.judged
    times: list[float] = []
    fitted = 0
    asking = [_renamed(pods[number % args.shapes], f"m{number}") for number in range(args.decisions)]
    gc.collect()
    gc.freeze()
    garbage = Garbage(lambda: ledger.cursor)
    busy, crowd = deque[NodeName](), NodeSet()
    began, began_cpu = time.perf_counter(), time.process_time()
    for number, pod in enumerate(asking):
        shape = shapes[number % args.shapes]
        start = time.perf_counter()
        placement = decide(candidates, pod, shape, left_out=crowd)
        if placement is not None:
            ledger.reserve(placement)
        times.append(time.perf_counter() - start)
        garbage.look()
        if placement is None:
            continue
        fitted += 1
        placed.append(placement.pod)
        if args.busy:
            _take_turns(busy, crowd, placement.node, args.busy)
        if args.churn:
            other = chance.randrange(len(placed))
            placed[other], placed[-1] = placed[-1], placed[other]
            ledger.release(placed.pop())
    elapsed, cpu = time.perf_counter() - began, time.process_time() - began_cpu
    times.sort()
    params = {
        k: getattr(args, k)
        for k in (
            "nodes",
            "shapes",
            "policy",
            "churn",
            "selective",
            "predicates",
            "images",
            "busy",
            "decisions",
            "dialect",
        )
    }
    for metric, value, unit in (
        ("decisions_per_s", round(args.decisions / elapsed), "1/s"),
        ("cpu_us_per_decision", round(cpu / args.decisions * 1e6, 1), "us"),
        ("p50_us", round(quantile(times, 0.5) * 1e6, 1), "us"),
        ("p99_us", round(quantile(times, 0.99) * 1e6, 1), "us"),
        ("max_us", round(times[-1] * 1e6, 1), "us"),
        ("judged_per_decision", round((candidates.judged - judged) / args.decisions, 2), "nodes"),
        ("placed_share", round(fitted / args.decisions, 3), ""),
        ("peak_rss_mib", peak_rss_mib(), "MiB"),
    ):
        yield Result(metric=metric, value=value, unit=unit, params=params)


def _take_turns(busy: deque[NodeName], crowd: NodeSet, node: NodeName, most: int) -> None:
    """*node* is busy now, and one that was is free."""
    busy.append(node)
    crowd.add(node)
    if len(busy) > most:
        crowd.discard(busy.popleft())


def _zoned(node: Node, number: int) -> Node:
    labels = {**node.labels, _ZONE: f"zone-{number % _ZONES}", _HOST: node.name}
    return replace(node, labels=labels, taints=(_TAINT,) if number % 2 else ())


def _minding(pod: Pod, number: int) -> Pod:
    """*pod* with what --predicates says of it; each tenth keeps apart, and each tenth is spread."""
    labels = {**pod.labels, "app": f"app-{number}"}
    like = (Requirement(key="app", operator="In", values=(labels["app"],)),)
    constraints, peers = pod.constraints, NO_PEERS
    if number % 2:
        tolerations = (*constraints.tolerations, Toleration(key=_TAINT.key, operator="Exists"))
        selector = (*constraints.selector, (_ZONE, f"zone-{number % _ZONES}"))
        constraints = replace(constraints, tolerations=tolerations, selector=selector)
    if number % 10 == 0:
        peers = PeerTerms(anti_affinity=(PeerTerm(topology_key=_HOST, selector=like),))
    elif number % 10 == 2:
        peers = PeerTerms(spread=(Spread(topology_key=_ZONE, selector=like),))
    return pod._replace(labels=labels, constraints=constraints, peers=peers)


def _renamed(pod: Pod, uid: str) -> Pod:
    return pod._replace(uid=PodUid(uid), name=uid)


def _shape(pod: Pod, ledger: Ledger) -> Shape:
    shape = shape_of(pod, ledger)
    if not isinstance(shape, Shape):
        raise TypeError(f"{pod.key} is no shape: {shape}")
    return shape


def _half_fill(
    ledger: Ledger,
    candidates: Candidates,
    pods: Sequence[Pod],
    shapes: Sequence[Shape],
    nodes: int,
    pods_to_half: float,
    chance: random.Random,
) -> list[PodUid]:
    """Place until half of all cards hold something, then release a fifth at random, so that no order is left.

    Where cards are not told apart, *pods_to_half* pods a node are half.
    """
    placed: list[PodUid] = []
    used: set[tuple[str, str]] = set()
    number = 0
    while len(placed) < nodes * pods_to_half if pods_to_half else len(used) < nodes * 4:
        at = number % len(shapes)
        placement = decide(candidates, _renamed(pods[at], f"f{number}"), shapes[at])
        number += 1
        if placement is None:
            if number > nodes * 200:
                break
            continue
        ledger.reserve(placement)
        placed.append(placement.pod)
        if placement.dialect is None:
            continue
        dialect = ledger.catalog.dialects[placement.dialect]
        cards = ledger.states[placement.node].offers[placement.dialect]
        used.update((placement.node, one.card) for one in dialect.describe(placement.assignment, cards))
    chance.shuffle(placed)
    for uid in placed[: len(placed) // 5]:
        ledger.release(uid)
    return placed[len(placed) // 5 :]
