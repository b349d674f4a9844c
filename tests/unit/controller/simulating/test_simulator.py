"""A controller has a child simulate: one at a time, within limits, and no longer than somebody waits."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from controller.actions import Inbox
from controller.config import parse
from controller.deciding.scheduler import Scheduler
from controller.metrics import Metrics
from controller.simulating.reading import SimulationRequest
from controller.simulating.simulator import Simulator, room
from core.catalog import standard_catalog
from core.errors import InvalidRequestError
from core.settings import Settings, Tables
from core.wire.changes import Change, decode_change, encode_change
from runtime.calls import Call, RefusedCallError, Reply
from tests.support.worlds.world import START_UNIX_S, node, pod

CHANGE = Change(drain=("n1",), manifests="kind: Pod", requests=(("a", "1"),), repartition=(("n2", "mig"),))
CONFIG = parse(["--kubeconfig", "cluster", "--trust-namespaces", "kube-system"], {})
SLEEPING = ("sleep", "60")


def scheduler() -> Scheduler:
    return Scheduler(
        standard_catalog(),
        Tables(),
        Settings(),
        metrics=Metrics(),
        clock=time.monotonic,
        wall=lambda: float(START_UNIX_S),
    )


def simulator(*command: str, found: Scheduler | None = None, **more: Any) -> Simulator:
    return Simulator(found or scheduler(), Inbox(time.monotonic), CONFIG, dict, command=command, **more)


def call(change: Change = CHANGE, has_left: Callable[[], bool] = lambda: False) -> Call:
    return Call("POST", "/v1/simulate", b"", (), encode_change(change), has_left)


async def told(reply: Reply) -> Any:
    return json.loads(reply.body if isinstance(reply.body, bytes) else b"".join([one async for one in reply.body]))


def script(text: str) -> tuple[str, ...]:
    return "sh", "-c", text


def test_a_change_travels_as_json():
    assert decode_change(encode_change(CHANGE)) == CHANGE
    with pytest.raises(InvalidRequestError, match="change"):
        decode_change(b'{"drains": []}')


@pytest.mark.parametrize("said", ["MemoryError", "RuntimeError: can't start new thread"])
async def test_a_child_without_memory_to_say_so_needs_more(said):
    reply = await simulator(*script(f'cat > /dev/null; echo "{said}" >&2; exit 1')).answer(call())
    assert reply.status == 503
    assert "raise the controller's memory limit" in (await told(reply))["text"]


@pytest.mark.parametrize(
    ("status", "code", "text"),
    [
        (3, 400, "no node n1"),
        (4, 503, "no node n1"),
        (5, 503, "raise the controller's memory limit"),
        (6, 503, "no node n1"),
        (1, 500, "see the controller's log"),
    ],
)
async def test_how_a_child_ends_is_the_answer(status, code, text):
    reply = await simulator(*script(f"cat > /dev/null; printf 'no node n1'; exit {status}")).answer(call())
    assert reply.status == code
    assert text in (await told(reply))["text"]


async def test_a_child_gets_the_change_the_configuration_and_promised_places():
    found = scheduler()
    found.nodes.changed(node("n1"))
    for one in (pod("a", memory=4000), pod("large", memory=99_000)):
        found.pod_changed(one)
    for _ in range(3):
        found.cycle.plan(time.monotonic())
    reply = await simulator("cat", found=found).answer(call())
    assert reply.status == 200
    asked = msgspec.convert(await told(reply), SimulationRequest)
    assert (asked.change, asked.scheduler_names, asked.trusted) == (CHANGE, ("cardshare",), ("kube-system",))
    assert asked.kubeconfig == "cluster"
    (promised,) = asked.promised
    assert (promised.uid, promised.node) == ("uid-a", "n1")
    assert promised.annotations["volcano.sh/vgpu-ids-new"].startswith("n1-0,")


async def test_a_second_one_is_asked_to_come_again():
    found = simulator(*SLEEPING)
    first = asyncio.create_task(found.answer(call()))
    await asyncio.sleep(0)
    with pytest.raises(RefusedCallError, match="another simulation runs") as refused:
        await found.answer(call())
    assert (refused.value.status, refused.value.retry_after_s) == (429, 10)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert (await simulator("true").answer(call())).status == 200


async def test_a_long_answer_is_sent_in_pieces_and_the_next_is_made_once_it_was_read_or_nobody_reads_it():
    found = simulator(*script("cat > /dev/null; head -c 200000 /dev/zero"))
    reply = await found.answer(call())
    with pytest.raises(RefusedCallError, match="another simulation runs"):
        await found.answer(call())
    assert isinstance(reply.body, AsyncIterator)
    pieces = [one async for one in reply.body]
    assert sum(map(len, pieces)) == 200_001
    assert max(map(len, pieces)) <= 65_536
    unread = await found.answer(call())
    assert unread.status == 200
    del unread
    assert (await found.answer(call())).status == 200


@pytest.mark.parametrize(
    ("more", "has_left", "text"),
    [({"limit_s": 0.1}, lambda: False, "takes longer than 0.1 s"), ({}, lambda: True, "the caller is gone")],
)
async def test_a_child_ends_with_its_time_and_with_its_caller(more, has_left, text):
    began_s = time.monotonic()
    reply = await simulator(*SLEEPING, **more).answer(call(has_left=has_left))
    assert text in (await told(reply))["text"]
    assert time.monotonic() - began_s < 30


def test_a_child_may_use_what_the_container_leaves(tmp_path: Path):
    for name, text in (("max", str(2 << 30)), ("current", str(1 << 30)), ("stat", f"anon 1\ninactive_file {1 << 20}")):
        (tmp_path / f"memory.{name}").write_text(f"{text}\n", encoding="ascii")
    assert room(tmp_path) == (1 << 30) + (1 << 20) - (256 << 20)
    (tmp_path / "memory.max").write_text("max\n", encoding="ascii")
    assert room(tmp_path) == 1 << 30


async def test_without_memory_for_a_child_there_is_none(monkeypatch):
    monkeypatch.setattr("controller.simulating.simulator.room", lambda: 100 << 20)
    reply = await simulator("false").answer(call())
    assert (reply.status, "too little memory" in (await told(reply))["text"]) == (503, True)
