"""The one gate, in virtual time."""

import asyncio

import pytest

from controller.loop import WRITE_ENDS_S, Gated, LeaderPhase, Leading
from kube.errors import ApiThrottledError, ApiUnknownError
from kube.lease import How, Lease, LeaseLostError
from kube.transport import Response
from tests.support.servers.fake_leases import Clocks, FakeLeases, Way

pytestmark = pytest.mark.looptime


def now() -> float:
    return asyncio.get_running_loop().time()


class Process:
    """One replica: its gate, and what it is told."""

    def __init__(self, leases=None, identity="a", *, catch_up_s=0.1):
        self.current = True
        self.phases: list[tuple[float, LeaderPhase]] = []
        self.catch_up_s = catch_up_s
        self.took_over: How | None = None
        self.clocks = Clocks()
        self.way = Way(leases) if leases is not None else None
        self.lease = (
            Lease(self.way, namespace="n", name="l", identity=identity, clocks=self.clocks) if self.way else None
        )
        self.gate = Leading(
            self.lease,
            is_current=lambda: self.current,
            take_over=self._take_over,
            changed=lambda: self.phases.append((now(), self.gate.phase)),
        )
        self.lost: list[ExceptionGroup[LeaseLostError]] = []
        self.task: asyncio.Task[None] | None = None

    async def _take_over(self, how):
        self.took_over = how
        await asyncio.sleep(self.catch_up_s)

    async def run(self):
        try:
            await self.gate.run()
        except* LeaseLostError as group:
            self.lost.append(group)

    @property
    def asks(self):
        return self.gate.may_decide(), self.gate.may_write()


@pytest.fixture
async def start():
    tasks = []

    def begin(process):
        tasks.append(asyncio.create_task(process.run(), name="gate"))
        process.task = tasks[-1]
        return process

    yield begin
    for task in tasks:
        task.cancel()
        await asyncio.wait([task])


async def test_nothing_may_be_decided_before_all_is_known_of_the_leader_before(start):
    process = start(Process(FakeLeases(), catch_up_s=3.0))
    await asyncio.sleep(2.9)
    assert (process.gate.phase, process.asks) == (LeaderPhase.SETTLING, (False, False))
    await asyncio.sleep(0.3)
    assert (process.gate.phase, process.asks) == (LeaderPhase.LEADING, (True, True))
    assert process.gate.began.is_set()


async def test_without_a_lease_a_process_leads_after_the_same(start):
    process = start(Process())
    await asyncio.sleep(0.05)
    assert process.asks == (False, False)
    await asyncio.sleep(0.1)
    assert process.asks == (True, True)
    assert process.took_over is How.NEW


@pytest.mark.parametrize("released", [True, False])
async def test_who_follows_a_leader_is_told_whether_that_one_ended_in_order(start, released):
    leases = FakeLeases()
    first = start(Process(leases))
    await asyncio.sleep(1.0)
    second = start(Process(leases, "b"))
    await asyncio.sleep(5.0)
    first.task.cancel()
    ended_s = now()
    if released:
        first.gate.stop()
        first.gate.close()
        await first.gate.release(3.0)
    await second.gate.began.wait()
    assert now() - ended_s <= (1.5 if released else 16.5)
    assert second.took_over is (How.RELEASED if released else How.EXPIRED)


async def test_a_standby_may_neither_decide_nor_write(start):
    leases = FakeLeases()
    start(Process(leases))
    await asyncio.sleep(1.0)
    standby = start(Process(leases, "b"))
    await asyncio.sleep(60.0)
    assert (standby.gate.phase, standby.asks, standby.gate.reasons()) == (LeaderPhase.STANDBY, (False, False), [])


async def test_nothing_is_decided_on_a_stale_mirror_but_what_was_decided_is_written(start):
    process = start(Process())
    await asyncio.sleep(1.0)
    process.current = False
    assert process.asks == (False, True)


async def test_nothing_is_sent_that_could_still_be_under_way_when_another_leads(start):
    leases = FakeLeases()
    first = start(Process(leases))
    await asyncio.sleep(1.0)
    second = start(Process(leases, "b"))
    await asyncio.sleep(5.0)
    first.way.swallow()
    last_s = 0.0
    while not second.gate.may_write():
        if first.gate.may_write():
            last_s = now()
        await asyncio.sleep(0.05)
    assert now() - last_s >= WRITE_ENDS_S
    assert "could not be renewed" in str(first.lost[0].exceptions[0])


async def test_a_process_that_was_stopped_may_not_write_when_it_goes_on(start):
    process = start(Process(FakeLeases()))
    await asyncio.sleep(1.0)
    assert process.asks == (True, True)
    process.clocks.asleep_s = 60.0
    assert process.asks == (False, False)


async def test_a_process_that_stops_ends_its_writes_and_then_writes_nothing(start):
    process = start(Process())
    await asyncio.sleep(1.0)
    process.gate.stop()
    assert (process.gate.phase, process.asks) == (LeaderPhase.STOPPING, (False, True))
    process.gate.close()
    assert process.asks == (False, False)


async def test_a_process_that_stops_before_it_leads_never_writes(start):
    process = start(Process(catch_up_s=6.0))
    await asyncio.sleep(5.0)
    process.gate.stop()
    await asyncio.sleep(10.0)
    assert (process.gate.phase, process.asks) == (LeaderPhase.STOPPING, (False, False))


async def test_a_lease_that_may_not_be_read_is_a_reason_not_to_be_ready(start):
    process = Process(FakeLeases())
    assert process.way is not None
    process.way.before = lambda verb: ApiUnknownError(verb=verb, path="/l", status=500, message="no")
    start(process)
    await asyncio.sleep(12.0)
    (reason,) = process.gate.reasons()
    assert reason.startswith("lease n/l: ")


# -- the way of writes -------------------------------------------------------------------------------------------


class Sent:
    """Takes down what is sent; each call lasts *takes_s*."""

    def __init__(self, takes_s=0.0):
        self.calls = []
        self.takes_s = takes_s

    async def request(self, verb, path, **options):
        self.calls.append((verb, path, options))
        await asyncio.sleep(self.takes_s)
        return Response(status=200, headers={}, body=b"{}")


async def test_reads_pass_a_gate_that_no_write_passes():
    sent = Sent()
    gated = Gated(sent, lambda: False)
    await gated.request("GET", "/a", deadline_s=30.0)
    for verb in ("POST", "PUT", "PATCH", "DELETE"):
        with pytest.raises(ApiThrottledError, match="may not write"):
            await gated.request(verb, "/a")
    assert [verb for verb, *_ in sent.calls] == ["GET"]


async def test_every_write_ends_as_soon_as_a_binding_and_is_asked_about_again_when_it_is_sent():
    sent, permits = Sent(), iter([True, False])
    gated = Gated(sent, lambda: next(permits))
    await gated.request("PATCH", "/a", params={"dryRun": "All"}, body=b"{}", deadline_s=30.0)
    ((_, _, options),) = sent.calls
    assert options["params"] == {"timeout": "5s", "dryRun": "All"}
    assert options["deadline_s"] == WRITE_ENDS_S
    assert options["permit"]() is False


async def test_a_gate_is_idle_once_its_last_write_has_ended():
    gated = Gated(Sent(2.0), lambda: True)
    await gated.idle()
    async with asyncio.TaskGroup() as tasks:
        began_s = now()
        tasks.create_task(gated.request("PATCH", "/a"), name="first")
        await asyncio.sleep(1.0)
        tasks.create_task(gated.request("PATCH", "/b"), name="second")
        await asyncio.sleep(0)
        await gated.idle()
        assert now() - began_s == pytest.approx(3.0)
