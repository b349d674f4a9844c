"""Opens the web page of a large cluster in Chromium: seconds to the first card, to an update, and the page's memory.

The server is the page's own; what it is fed is made here, as the feed's updates are.
"""

import argparse
import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

from aiohttp import web

from cli.web.feed import Sees, Update
from cli.web.local import HOST, WithKey
from cli.web.server import Page
from core.history.minutes import MINUTES_MAX, Key, Minute, Sums
from core.view.cards import Card, Node, Share, kinds_of, totals_of
from core.view.trend import Trend, trend
from core.view.waiting import Waiting, WaitingPod, WaitingReason
from tests.bench.results import Result
from tests.support.browser.chromium import opened

_TEXT = (
    "CS501 0/5000 nodes are available: 5000 too little free memory on every card. Wait until enough of a card is free."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The size of the cluster."""
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--cards", type=int, default=8, help="of each node")
    parser.add_argument("--waiting", type=int, default=20_000, help="pods that wait")
    parser.add_argument("--updates", type=int, default=20)


def run(args: argparse.Namespace) -> Iterator[Result]:
    """Measure."""
    params = {"nodes": args.nodes, "cards": args.cards, "waiting": args.waiting}
    for metric, value, unit in asyncio.run(_measure(args)):
        yield Result(params=params, metric=metric, value=value, unit=unit)


def _node(at: int, cards: int, used: int = 12_000) -> Node:
    name = f"node-{at:05}"
    made = tuple(
        Card(
            id=f"GPU-{name}-{card}",
            protocol="vgpu",
            type="Tesla T4",
            used=used,
            total=15_360,
            unit="MiB",
            cores_pct=60,
            mode="hami-core",
            held_by=(Share(pod=f"default/p-{at}-{card}", share=f"{used} MiB, 60 % cores", amount=used, cores_pct=60),),
        )
        for card in range(cards)
    )
    return Node(name=name, ready=True, schedulable=True, taints=(), cards=made, totals=totals_of(made), warnings=())


def _waiting(count: int) -> Waiting:
    pods = tuple(
        WaitingPod(
            pod=f"default/waits-{at}",
            code="CS501",
            reason="Unschedulable",
            since="2026-01-02T03:04:05Z",
            text=_TEXT,
            nearest="node-00000 GPU-node-00000-0: 3360 of 8000 MiB free",
            change="Ask for at most 3360 MiB of memory",
            queue="default",
            place=at + 1,
            line=count,
        )
        for at in range(count)
    )
    reason = WaitingReason(code="CS501", reason="Unschedulable", pods=count, oldest=None, first=(), change="wait")
    return Waiting(pods=pods, reasons=(reason,))


def _day() -> Trend:
    """As many rows as a chart may have, of a whole day."""
    minutes = range(int(time.time()) // 60 - MINUTES_MAX, int(time.time()) // 60)
    sums = {Key("vgpu", f"type-{row}", ""): Sums(1000 * row, 2000 * row, 3000) for row in range(24)}
    sums |= {Key("vgpu", "", f"queue-{row}"): Sums(waiting=row + 1) for row in range(24)}
    return trend([Minute(at, sums) for at in minutes], time.time())


class _Fed:
    """A feed of one reader."""

    def __init__(self, first: Update) -> None:
        self.queue: asyncio.Queue[Update] = asyncio.Queue()
        self.queue.put_nowait(first)

    async def updates(self, sees: Sees) -> AsyncIterator[Update]:
        del sees
        while True:
            yield await self.queue.get()


async def _measure(args: argparse.Namespace) -> list[tuple[str, float, str]]:
    nodes = [_node(at, args.cards) for at in range(args.nodes)]
    every = totals_of(card for node in nodes for card in node.cards)
    first = Update(
        sees=Sees(nodes=True, namespace="", home="default"),
        nodes=tuple(nodes),
        totals=every,
        kinds=kinds_of(nodes),
        waiting=_waiting(args.waiting),
        trend=_day(),
    )
    fed: Any = _Fed(first)
    callers = WithKey("key", first.sees)
    page = Page(None, fed, callers)  # type: ignore[arg-type]  # no pod is looked at
    runner = web.AppRunner(page.app(), access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, HOST, 0).start()
    callers.port = runner.addresses[0][1]
    try:
        async with opened(viewport={"width": 1400, "height": 900}) as browser:
            shown = await browser.new_page()
            begun_s = time.monotonic()
            await shown.goto(f"http://{HOST}:{callers.port}/#key=key")
            await shown.locator("node-grid .card").first.wait_for()
            found = [("first_card", time.monotonic() - begun_s, "s")]
            took = [
                await _updated(shown, fed, replace(first, waiting=None, trend=None), args.cards, turn)
                for turn in range(args.updates)
            ]
            found.append(("update_median", sorted(took)[len(took) // 2], "s"))
            session = await shown.context.new_cdp_session(shown)
            await session.send("Performance.enable")
            await session.send("HeapProfiler.collectGarbage")
            figures = {one["name"]: one["value"] for one in (await session.send("Performance.getMetrics"))["metrics"]}
            found.append(("heap", figures["JSHeapUsedSize"] / 2**20, "MiB"))
            found.append(("rows", await shown.locator("node-grid .row").count(), "rows"))
            return found
    finally:
        await runner.cleanup()


async def _updated(shown: Any, fed: _Fed, first: Update, cards: int, turn: int) -> float:
    """How long one node's change takes to its cell."""
    used = 1000 + turn
    begun_s = time.monotonic()
    fed.queue.put_nowait(replace(first, nodes=(_node(0, cards, used),)))
    await shown.locator(f'[aria-label*="GPU-node-00000-0: Tesla T4, {used} /"]').wait_for()
    return time.monotonic() - begun_s
