"""Memory over many pod lives: how much of it stays when 200,000 pods have come and gone.

The controller's scheduler (queue, ledger, hand-off, cycle) in one process, with the API server's side played, and time
virtual. Pods are placed, served and deleted; of every hundred some are refused, rejected by kubelet, deleted by
force before they were served, or had a Binding of unknown outcome. Names, uids and owners never repeat, nor do shapes
that fit nowhere; nodes are exchanged for others all the time. Seeded: the same lives every time.

  growth_pct      resident memory at the end over that when it was warm: after a tenth as many lives before, and once as
                  many shapes are known as are ever remembered; after a full collection both
  rss_mib         resident memory at the end
  us_per_life     CPU time of one life, the played side included

With --trace, where the objects that stayed were made: from tracemalloc, at three times the cost. Linux only.
"""

import argparse
import gc
import os
import random
import sys
import time
import tracemalloc
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from controller.actions import Announce, Bind, Clear, Lock
from core.model import Node, NodeName, Phase, PodUid
from tests.bench.results import Result
from tests.support.worlds.world import World, node, pod

_CARDS: Final = 8
_CARD_MIB: Final = 16_000
_SHARES_MIB: Final = (1000, 2000, 4000, 8000)
_TOO_LARGE_MIB: Final = 20_000
_ALIVE: Final = 400
# Lives after which one node is exchanged for another.
_NODE_EVERY: Final = 50
_LIFE_S: Final = 0.05


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--lives", type=int, default=200_000, help="pods that come and go (default 200000)")
    parser.add_argument("--nodes", type=int, default=50, help="nodes of 8 cards each (default 50)")
    # No more are ever remembered, and all must be there before anything is measured.
    parser.add_argument("--shapes", type=int, default=4200, help="shapes that fit nowhere, first (default 4200)")
    parser.add_argument("--trace", action="store_true", help="say on standard error where what stayed was made")
    parser.add_argument("--seed", type=int, default=1)


class Soak:
    """One cluster, and what happens in it."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.chance = random.Random(args.seed)
        self.nodes = deque(f"n{at}" for at in range(args.nodes))
        self.made = args.nodes
        self.world = World(*map(_node, self.nodes))
        self.running: deque[str] = deque()
        self.waiting: deque[str] = deque()

    def live(self, number: int, *, is_new: bool = False) -> None:
        """One pod comes, and in the long run one goes. is_new: of a shape that fits nowhere."""
        world, name, kind = self.world, f"p{number}", 0 if is_new else self.chance.randrange(100)
        memory = self.chance.choice(_SHARES_MIB)
        if kind < 4:  # a shape that nobody had before, and that fits nowhere
            memory = _TOO_LARGE_MIB + number
        world.adds(pod(name, memory=memory, owner=f"owner-{number // 3}"))
        world.passes(_LIFE_S)
        if kind < 4:
            self.waiting.append(name)
        for bind in world.actions(Bind):
            self.bound(bind, kind)
        self.settle()
        while len(self.running) > _ALIVE:
            self.end(self.running.popleft())
        while len(self.waiting) > 20:
            world.gone(self.waiting.popleft())
        if number % _NODE_EVERY == 0:
            self.exchange_node()

    def bound(self, bind: Bind, kind: int) -> None:
        """A Binding is sent: what becomes of it and its pod."""
        world, name = self.world, bind.pod.name
        if kind < 7:
            world.loses(bind)
            for read in world.reads():
                world.scheduler.pod_read(read.pod.uid, read.attempt, world.pods[read.pod.uid])
            for fence in world.fences():
                world.scheduler.outcomes.not_fenced(fence.pod.uid, fence.attempt)
            world.shows_bound(bind)
        else:
            world.accepts(bind)
        if kind < 12:
            world.shows(world.seen(name), phase=Phase.FAILED, status_reason="UnexpectedAdmissionError")
            self.running.append(name)
        elif kind < 16:
            world.gone(name)  # by force, before it was served
        else:
            world.serves(name)
            self.running.append(name)

    def settle(self) -> None:
        """Answer what is asked besides."""
        world = self.world
        for clear in world.actions(Clear):
            world.scheduler.cleared(clear.pod.uid, done=True)
        for read in world.reads():
            world.scheduler.pod_read(read.pod.uid, read.attempt, world.pods.get(read.pod.uid))
        world.actions(Announce, Lock)
        # Whoever tells users takes these out.
        world.scheduler.cluster.requeue.unreported.clear()
        world.scheduler.cluster.unreported.clear()

    def end(self, name: str) -> None:
        """A pod is over, and soon gone."""
        if PodUid(f"uid-{name}") in self.world.pods:
            if self.chance.random() < 0.5:
                self.world.shows(self.world.seen(name), phase=Phase.SUCCEEDED)
            self.world.gone(name)

    def exchange_node(self) -> None:
        """One node goes with its pods, and another comes."""
        gone, self.made = self.nodes.popleft(), self.made + 1
        for one in [one for one in self.world.pods.values() if one.node_name == gone]:
            self.world.gone(one.name)
        self.world.scheduler.nodes.gone(NodeName(gone))
        self.nodes.append(f"n{self.made}")
        self.world.scheduler.nodes.changed(_node(self.nodes[-1]))


def _node(name: str) -> Node:
    return node(name, cards=_CARDS, memory=_CARD_MIB)


def run(args: argparse.Namespace) -> Iterator[Result]:
    """Measure and yield the figures that the module's text lists."""
    params = {key: getattr(args, key) for key in ("lives", "nodes", "seed")}
    soak, warm = Soak(args), args.lives // 10 + args.shapes
    for number in range(warm):
        soak.live(number, is_new=number < args.shapes)
    first_mib = _rss_mib()
    if args.trace:
        tracemalloc.start(8)
        before = tracemalloc.take_snapshot()
    began_s = time.process_time()
    for number in range(warm, warm + args.lives):
        soak.live(number)
    took_s = time.process_time() - began_s
    if args.trace:
        for line in tracemalloc.take_snapshot().compare_to(before, "lineno")[:20]:
            print(line, file=sys.stderr)
    last_mib = _rss_mib()
    yield Result(metric="growth_pct", value=round(100 * (last_mib / first_mib - 1), 2), unit="%", params=params)
    yield Result(metric="rss_mib", value=round(last_mib, 1), unit="MiB", params=params)
    each_us = took_s / args.lives * 1e6
    yield Result(metric="us_per_life", value=round(each_us, 1), unit="us", params=params)


def _rss_mib() -> float:
    """The resident size of this process now, after a full collection."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
