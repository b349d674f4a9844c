"""Plays the scenarios for which schedulers publish figures, on a real kube-apiserver with played nodes and plugins.

Each scenario has its own server, one controller with its default settings (`preempted` also sets preemption), and nodes
of 8 cards. Pods ask for whole cards. If there are writes to compare, a bare client then sends the writes that the
controller sent, for the same objects: the least that the API server allows.

  at_once     4,000 pods of one card that exist when the controller starts to decide, on 500 nodes
  submitted   the same pods, created while the controller runs, as fast as possible; clock from the first creation
  gang        512 pods of 8 cards that start together, on 512 nodes; clock from the last creation
  refused     513 such pods on 512 nodes; clock from the last creation until a member reports that they do not fit
  preempted   250 pods of 8 cards and a high priority, on 250 nodes full of 2,000 pods of a low one; clock from the last
              creation until all are bound; evicted pods end at once
  waiting     10,000 pods of 50 shapes that fit nowhere, on 1,000 nodes; clock from the last creation until each pod
              reports the reason
  start       5,000 nodes, 100,000 bound pods and 100 that wait; clock from the start of the controller's process until
              the last is bound

Figures: seconds, the controller's CPU seconds and largest memory, the servers' CPU seconds; the bare client's seconds
and CPU seconds, and the servers' CPU seconds for it. For the gang also first_seconds, until its first member is bound;
all are decided before that. --part 0.1 makes every number a tenth; --page writes the table of docs/operators/scale.md.
"""

import argparse
import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from core.groups import MIN_MEMBER
from core.model import MEMBER_OF
from tests.bench import stage as staging
from tests.bench import start
from tests.bench.actors import Controller, Plugins, controlling, playing
from tests.bench.plugins import Sighting
from tests.bench.results import Result
from tests.bench.stage import CARD_MIB, CARDS, PODS, RefusedError, Stage, encode

PAGE: Final = staging.ROOT / "docs" / "operators" / "scale.md"
_BEGIN: Final = "<!-- scripts/bench scale --page writes from here -->\n"
_END: Final = "<!-- to here -->\n"
_CLASSES: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"
_LOW, _HIGH = "scale-low", "scale-high"
_PREEMPTION: Final = "preemption: true\npreemption_delay_s: 0\n"
_MERGE: Final = "application/strategic-merge-patch+json"
_AT_ONCE: Final = 32
_LIMIT_S: Final = 600.0
# The codes that say that no node has room. Others say that members of a group are missing, or that it is not decided.
_NO_ROOM: Final = re.compile(r"\bCS50\d")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--only", metavar="NAME", action="append", choices=tuple(SCENARIOS), help="may be repeated")
    parser.add_argument("--part", type=float, default=1.0, help="the part of every number (default 1)")
    parser.add_argument("--page", action="store_true", help="write the figures into docs/operators/scale.md")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What somebody used for a scenario. server_cpu_s: 0 if it was not measured."""

    seconds: float
    cpu_s: float
    server_cpu_s: float
    rss_mib: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One scenario's figures: the controller's, and the bare client's if it had anything to send.

    first_s: of a gang, when its first member was bound: all are decided before that.
    """

    placed: Cost
    bare: Cost | None = None
    first_s: float | None = None


class World:
    """One server with its nodes and plugins."""

    def __init__(self, stage: Stage, plugins: Plugins, part: float) -> None:
        self.stage = stage
        self.client = stage.client
        self.plugins = plugins
        self.part = part

    def many(self, number: int) -> int:
        """*number*, or the part of it."""
        return max(1, round(number * self.part))

    async def create(self, pods: Iterable[dict[str, Any]]) -> None:
        """Create *pods*, many at once."""
        await staging.make_pods(self.client, pods, _AT_ONCE)

    async def seen(self, what: str, count: int, *, matches: re.Pattern[str] | None = None) -> list[Sighting]:
        """Wait until *count* different pods were seen *what*, if told, with a message that *matches*.

        Raises:
            RefusedError: not in time.
        """
        found: dict[str, Sighting] = {}
        end_s = time.monotonic() + _LIMIT_S
        while len(found) < count:
            for one in self.plugins.read():
                if one.what == what and (matches is None or matches.search(one.message)):
                    found.setdefault(one.pod, one)
            if time.monotonic() > end_s:
                raise RefusedError(f"{len(found)} of {count} pods {what} within {_LIMIT_S:.0f} s")
            await asyncio.sleep(0.02)
        return list(found.values())

    async def after_creation(
        self, pods: Sequence[dict[str, Any]], found: list[Sighting], *, what: str = "bound", count: int = 0
    ) -> float:
        """Create *pods*, wait until *count* of them (0: all) are *what*, and add these to *found*.

        Returns the seconds from the last creation to the last of these.
        """
        await self.create(pods)
        created_s = time.monotonic()
        matches = _NO_ROOM if what == "told" else None
        found.extend(await self.seen(what, count or len(pods), matches=matches))
        return max(one.at_s for one in found) - created_s

    async def cost(self, controller: Controller, work: Callable[[], Awaitable[float]]) -> Cost:
        """What *work*, which returns its seconds, costs the controller and the server."""
        cpu_s, server_s = controller.child.cpu_s(), sum(self.stage.server_cpu_s())
        seconds = await work()
        return Cost(
            seconds=seconds,
            cpu_s=controller.child.cpu_s() - cpu_s,
            server_cpu_s=sum(self.stage.server_cpu_s()) - server_s,
            rss_mib=controller.child.peak_rss_mib(),
        )

    async def bare(self, *rounds: Iterable[tuple[str, str, bytes, str]]) -> Cost:
        """What this process and the server use for some writes (verb, path, body, type), one round after the other."""
        cpu_s, server_s, begun_s = time.process_time(), sum(self.stage.server_cpu_s()), time.monotonic()
        for writes in rounds:
            await staging.all_of((self.client.send(*write) for write in writes), _AT_ONCE)
        return Cost(
            seconds=time.monotonic() - begun_s,
            cpu_s=time.process_time() - cpu_s,
            server_cpu_s=sum(self.stage.server_cpu_s()) - server_s,
        )

    async def again(self, pods: list[dict[str, Any]]) -> None:
        """Create *pods* anew, instead of all others, with nobody to place them."""
        await staging.delete_pods(self.client)
        await self.create(pods)


@asynccontextmanager
async def world(nodes: int, part: float, *options: str) -> AsyncIterator[World]:
    """A server of its own with *nodes* nodes, or the part of them."""
    async with staging.stage(real=True) as stage:
        await staging.make_nodes(stage.client, max(1, round(nodes * part)))
        async with playing(stage, *options) as plugins:
            yield World(stage, plugins, part)


def whole(name: str, cards: int, *, priority: str = "", memory_mib: int = CARD_MIB) -> dict[str, Any]:
    """A pod that asks for whole cards."""
    made = staging.pod(name, 0)
    share = {
        "volcano.sh/vgpu-number": str(cards),
        "volcano.sh/vgpu-memory": str(memory_mib),
        "volcano.sh/vgpu-cores": "100",
    }
    amounts = {"cpu": "500m", "memory": "1Gi", **share}
    made["spec"]["containers"][0]["resources"] = {"limits": amounts, "requests": amounts}
    if priority:
        made["spec"]["priorityClassName"] = priority
    return made


def gang(size: int) -> list[dict[str, Any]]:
    """*size* pods of 8 cards that start together."""
    pods = [whole(f"gang-{at:05d}", CARDS) for at in range(size)]
    for pod in pods:
        pod["metadata"]["annotations"] = {MEMBER_OF: "gang", MIN_MEMBER: str(size)}
    return pods


def bindings(bound: Iterable[Sighting]) -> Iterator[tuple[str, str, bytes, str]]:
    """The Bindings that led to *bound*, to be sent again for pods of the same names."""
    for one in bound:
        target = {"apiVersion": "v1", "kind": "Node", "name": one.node}
        body = {"metadata": {"name": one.pod, "annotations": one.annotations}, "target": target}
        yield "POST", f"{PODS}/{one.pod}/binding", encode(body), "application/json"


# ---------------------------------------------------------------------- the scenarios


async def at_once(part: float) -> Figures:
    """See the module's text."""
    async with world(500, part) as here:
        pods = [whole(f"pod-{at:05d}", 1) for at in range(here.many(4000))]
        await here.create(pods)
        bound: list[Sighting] = []
        async with controlling(here.stage, policy="binpack", stands_by=True) as controller:

            async def placed() -> float:
                begun_s = time.monotonic()
                bound.extend(await here.seen("bound", len(pods)))
                return max(one.at_s for one in bound) - begun_s

            cost = await here.cost(controller, placed)
        await here.again(pods)
        return Figures(placed=cost, bare=await here.bare(bindings(bound)))


async def submitted(part: float) -> Figures:
    """See the module's text."""
    async with world(500, part) as here, controlling(here.stage, policy="binpack") as controller:
        pods = [whole(f"pod-{at:05d}", 1) for at in range(here.many(4000))]

        async def placed() -> float:
            begun_s = time.monotonic()
            await here.create(pods)
            bound = await here.seen("bound", len(pods))
            return max(one.at_s for one in bound) - begun_s

        return Figures(placed=await here.cost(controller, placed))


async def gang_placed(part: float) -> Figures:
    """See the module's text."""
    async with world(512, part) as here:
        pods = gang(here.many(512))
        bound: list[Sighting] = []
        async with controlling(here.stage, policy="binpack") as controller:
            cost = await here.cost(controller, partial(here.after_creation, pods, bound))
        times_s = [one.at_s for one in bound]
        first_s = cost.seconds - (max(times_s) - min(times_s))
        await here.again(pods)
        return Figures(placed=cost, bare=await here.bare(bindings(bound)), first_s=first_s)


async def gang_refused(part: float) -> Figures:
    """See the module's text."""
    async with world(512, part, "--telling") as here, controlling(here.stage, policy="binpack") as controller:
        pods = gang(here.many(512) + 1)
        return Figures(placed=await here.cost(controller, partial(here.after_creation, pods, [], what="told", count=1)))


async def preempted(part: float) -> Figures:
    """See the module's text."""
    async with world(250, part, "--kubelets") as here:
        for name, value in ((_LOW, 1), (_HIGH, 1000)):
            await here.client.send("POST", _CLASSES, encode({"metadata": {"name": name}, "value": value}))
        low = [whole(f"low-{at:05d}", 1, priority=_LOW) for at in range(here.many(250) * CARDS)]
        high = [whole(f"high-{at:05d}", CARDS, priority=_HIGH) for at in range(here.many(250))]
        before: list[Sighting] = []
        after: list[Sighting] = []
        async with controlling(here.stage, policy="binpack", more=_PREEMPTION) as controller:
            await here.after_creation(low, before)
            await until_served(controller)
            cost = await here.cost(controller, partial(here.after_creation, high, after))
        await here.again(low)
        await here.bare(bindings(before))
        await here.create(high)
        names = [one["metadata"]["name"] for one in low]
        evictions = (("POST", f"{PODS}/{name}/eviction", _eviction(name), "application/json") for name in names)
        return Figures(placed=cost, bare=await here.bare(evictions, bindings(after)))


async def until_served(controller: Controller) -> None:
    """Wait until no device plugin has a pod left to serve."""
    while await controller.metric("cardshare_handoff_in_flight"):  # noqa: ASYNC110 (a metric tells nobody)
        await asyncio.sleep(0.1)


def _eviction(name: str) -> bytes:
    return encode({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}})


async def waiting(part: float) -> Figures:
    """See the module's text."""
    async with world(1000, part, "--telling") as here:
        held = [staging.pod(f"held-{at:05d}", at) for at in range(here.many(1000))]
        pods = [whole(f"pod-{at:05d}", CARDS, memory_mib=20_000 + at % 50) for at in range(here.many(10_000))]
        told: list[Sighting] = []
        async with controlling(here.stage, policy="spread") as controller:
            # Spread, these leave no node empty.
            await here.after_creation(held, [])
            cost = await here.cost(controller, partial(here.after_creation, pods, told, what="told"))
        await here.again(pods)
        return Figures(placed=cost, bare=await here.bare(_conditions(told)))


def _conditions(told: Iterable[Sighting]) -> Iterator[tuple[str, str, bytes, str]]:
    for one in told:
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": one.message}
        yield "PATCH", f"{PODS}/{one.pod}/status", encode({"status": {"conditions": [condition]}}), _MERGE


async def started(part: float) -> Figures:
    """See the module's text."""
    sizes = {"nodes": 5000, "pods": 100_000, "waiting": 100}
    args = argparse.Namespace(
        real=True, policy="binpack", rest=3.0, **{key: max(1, round(n * part)) for key, n in sizes.items()}
    )
    found = {metric: value for metric, value, _ in await start.measure(args)}
    cost = Cost(seconds=found["all_placed_s"], cpu_s=found["cpu_s"], server_cpu_s=0.0, rss_mib=found["peak_rss_mib"])
    return Figures(placed=cost)


SCENARIOS: Final[Mapping[str, Callable[[float], Awaitable[Figures]]]] = {
    "at_once": at_once,
    "submitted": submitted,
    "gang": gang_placed,
    "refused": gang_refused,
    "preempted": preempted,
    "waiting": waiting,
    "start": started,
}

# What each is to reach, in the words of the page.
_GOALS: Final[Mapping[str, str]] = {
    "at_once": "30 s",
    "submitted": "30 s",
    "gang": "5 s",
    "refused": "2 s",
    "preempted": "15 s",
    "waiting": "",
    "start": "1,024 MiB",
}


def run(args: argparse.Namespace) -> Iterator[Result]:
    """Measure and yield, for each scenario, the figures that the module's text lists."""
    found: dict[str, Figures] = {}
    for name in args.only or SCENARIOS:
        figures = found[name] = staging.run_fast(partial(SCENARIOS[name], args.part))
        for metric, value, unit in _metrics(figures):
            yield Result(metric=metric, value=round(value, 3), unit=unit, params={"scenario": name, "part": args.part})
    if args.page:
        text = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(paged(text, found), encoding="utf-8")


def _metrics(figures: Figures) -> Iterator[tuple[str, float, str]]:
    yield "seconds", figures.placed.seconds, "s"
    if figures.first_s is not None:
        yield "first_seconds", figures.first_s, "s"
    yield "cpu_s", figures.placed.cpu_s, "s"
    yield "rss_mib", figures.placed.rss_mib, "MiB"
    yield "server_cpu_s", figures.placed.server_cpu_s, "s"
    if figures.bare is not None:
        yield "bare_seconds", figures.bare.seconds, "s"
        yield "bare_cpu_s", figures.bare.cpu_s, "s"
        yield "bare_server_cpu_s", figures.bare.server_cpu_s, "s"


def paged(text: str, found: Mapping[str, Figures]) -> str:
    """*text* of the page with a row for each of *found*; rows of others stay."""
    before, _, rest = text.partition(_BEGIN)
    table, _, after = rest.partition(_END)
    head, kept = table.splitlines()[:2], {line.split("`")[1]: line for line in table.splitlines()[2:]}
    rows = {**kept, **{name: _row(name, figures) for name, figures in found.items()}}
    lines: Sequence[str] = [*head, *(rows[name] for name in SCENARIOS if name in rows)]
    return before + _BEGIN + "".join(f"{line}\n" for line in lines) + _END + after


def _row(name: str, figures: Figures) -> str:
    placed, bare = figures.placed, figures.bare
    servers = f"{placed.server_cpu_s:.1f}" if placed.server_cpu_s else ""
    cells = [f"{placed.seconds:.1f}", f"{placed.cpu_s:.1f}", f"{placed.rss_mib:.0f}", servers]
    beside = ["", "", ""] if bare is None else [f"{bare.seconds:.1f}", f"{bare.cpu_s:.1f}", f"{bare.server_cpu_s:.1f}"]
    return f"| `{name}` | {' | '.join([_GOALS[name], *cells, *beside])} |"
