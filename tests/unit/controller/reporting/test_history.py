"""The record of one leader: what it observes of each minute, stores for the next, and answers."""

import asyncio
import hashlib
import json

import pytest

from controller.actions import Inbox
from controller.reporting.history import MINUTES_CHARACTERS, PODS_CHARACTERS, History
from controller.reporting.share_seconds import ShareSeconds
from core.history.minutes import Key, Minute, Sums
from core.history.pods import Life, PodEvent, What
from core.model import PodUid
from core.units import time_text
from core.wire.history import life_line, minute_line, pack
from kube.errors import ApiForbiddenError, ApiThrottledError, ApiUnknownError
from runtime.flags import ObjectName
from tests.support.servers.fake_calls import FakeCalls
from tests.support.worlds.world import World, finished, node, pod

pytestmark = pytest.mark.looptime
WHERE = ObjectName("cardshare-system", "cardshare-history")
PATH = "/api/v1/namespaces/cardshare-system/configmaps/cardshare-history"
KEY = Key("vgpu", "T4", "q")
NOON_S = 1_700_000_040.0  # a whole minute


class Calls(FakeCalls):
    async def patch(self, path, changes, **_):
        await self._note("patch", path, changes)
        self.raw[path] = json.dumps(changes).encode()
        return b"{}"


class Leader:
    """A leader, or with *leads* False a standby, beside what is stored."""

    def __init__(self, calls: Calls, *, leads: bool = True, where: ObjectName | None = WHERE) -> None:
        self.world = World(node("n1", cards=2))
        self.inbox = Inbox(asyncio.get_running_loop().time)
        self.seconds = ShareSeconds(lambda: self.world.ledger, lambda one: f"queue-of-{one.name}")
        self.history = History(
            self.world.scheduler, self.inbox, self.seconds, where, wall=self.wall, clock_ms=self.clock_ms
        )
        self.history.calls = calls
        self.leads = leads
        self.ahead_s = 0.0

    def wall(self) -> float:
        return NOON_S + self.ahead_s + asyncio.get_running_loop().time()

    def clock_ms(self) -> int:
        return round(1000 * asyncio.get_running_loop().time())

    async def begin(self) -> "Leader":
        if self.leads:
            taking = asyncio.create_task(self.history.take_over())
            while not taking.done():
                await asyncio.sleep(0.001)
                self.inbox.work(float("inf"))
            await taking
        return self

    async def passes(self, seconds: float) -> None:
        """Let the tasks of a leader run."""
        ending = asyncio.get_running_loop().time() + seconds
        task = asyncio.create_task(self.history.run())
        while asyncio.get_running_loop().time() < ending:
            for _ in self.seconds.follow(self.clock_ms(), by_owner=False):
                pass
            await asyncio.sleep(1.0)
        task.cancel()


def kinds(answer) -> list[list[str]]:
    return [[one["what"] for one in life["events"]] for life in answer["lives"]]


async def test_what_one_leader_remembers_the_next_one_knows():
    calls = Calls()
    first = await Leader(calls).begin()
    first.world.adds(pod("a", memory=1000), pod("b", memory=1000))
    first.world.placed()
    await first.passes(61.0)
    assert len(calls.of("patch")) == 2
    second = Leader(calls)
    second.world.adds(first.world.seen("a"))
    await second.begin()
    assert kinds(await second.history.why("default/a")) == [["asked", "reserved", "sent", "bound", "served"]]
    assert kinds(await second.history.why("default/b")) == [["asked", "reserved", "sent", "bound", "served", "gone"]]
    second.world.gone("a")
    assert kinds(await second.history.why("default/a"))[0][-1] == "gone"


async def test_a_standby_answers_from_what_its_leader_stored():
    calls = Calls()
    leader, standby = await Leader(calls).begin(), await Leader(calls, leads=False).begin()
    leader.world.adds(pod("a", memory=1000))
    leader.world.placed()
    await leader.passes(61.0)
    answer = await standby.history.why("default/a")
    assert kinds(answer) == kinds(await leader.history.why("default/a"))
    assert (answer["as_of"], answer["notes"]) == (time_text(NOON_S + 60), ())
    assert (await standby.history.why("default/nobody"))["state"] == "unknown"
    assert len(calls.of("get_raw")) == 2  # the leader's, and one of the standby


async def test_a_standby_whose_clock_is_set_back_reads_what_was_stored_since():
    calls = Calls()
    standby = await Leader(calls, leads=False).begin()
    standby.ahead_s = 7200.0
    await standby.history.why("default/a")
    standby.ahead_s = 0.0
    leader = await Leader(calls).begin()
    leader.world.adds(pod("a", memory=1000))
    leader.world.placed()
    await leader.passes(61.0)
    assert kinds(await standby.history.why("default/a")) == kinds(await leader.history.why("default/a"))


async def test_a_standby_without_a_store_says_so():
    standby = await Leader(Calls(), leads=False, where=None).begin()
    answer = await standby.history.why("default/a")
    assert answer["state"] == "unknown"
    assert "--keep-history" in answer["notes"][0]


@pytest.mark.parametrize(
    ("stored", "words"),
    [
        (b"{", "truncated"),
        (b'{"binaryData": 7}', "Expected"),
        (b'{"metadata": %s%s}' % (b"[" * 5000, b"]" * 5000), "recursion"),
        (b'{"binaryData": {"pods": "eA==", "minutes": "eA=="}}', "its pods"),
    ],
)
async def test_what_somebody_else_stored_is_reported_and_ignored(stored, words):
    calls = Calls()
    calls.raw[PATH] = stored
    leader = await Leader(calls).begin()
    leader.world.adds(pod("a", memory=1000))
    leader.world.placed()
    answer = await leader.history.why("default/a")
    assert kinds(answer) == [["asked", "reserved", "sent", "bound", "served"]]
    assert "cardshare-system/cardshare-history is not used" in answer["notes"][0]
    assert words in answer["notes"][0]
    assert "eA==" not in answer["notes"][0]  # it could name pods of others


async def test_of_two_parts_the_one_that_can_be_read_is_read():
    calls = Calls()
    life = Life(PodUid("u"), "default/old", (PodEvent(What.ASKED, 1, 1),))
    pods = finished(pack([life_line(life)], 1000, 1))
    calls.raw[PATH] = json.dumps({"binaryData": {"pods": pods, "minutes": "eA=="}}).encode()
    leader = await Leader(calls).begin()
    assert kinds(await leader.history.why("default/old")) == [["asked", "gone"]]
    assert "its minutes" in (await leader.history.day())["notes"][0]


async def test_a_store_that_cannot_be_read_or_written_stops_nothing():
    calls = Calls()
    denied = ApiForbiddenError(verb="GET", path=PATH, status=403, message="no right")
    calls.fails("get_raw", denied)
    calls.fails("patch", denied)
    leader = await Leader(calls).begin()
    await leader.passes(181.0)
    assert len(calls.of("patch")) == 4
    answer = await leader.history.day()
    assert (answer["minutes"], "no right" in answer["notes"][0]) == (2, True)


async def stored_once() -> Calls:
    """What a leader has stored of the pod default/a."""
    calls = Calls()
    first = await Leader(calls).begin()
    first.world.adds(pod("a", memory=1000))
    first.world.placed()
    await first.passes(61.0)
    return calls


async def test_a_leader_asks_again_for_what_is_stored_before_it_stores_its_own():
    calls = await stored_once()
    busy = ApiThrottledError(verb="GET", path=PATH, status=503, message="busy", retry_after_s=1.0)
    calls.fails("get_raw", busy, ApiUnknownError(verb="GET", path=PATH, message="reset"))
    second = await Leader(calls).begin()
    answer = await second.history.why("default/a")
    assert kinds(answer) == [["asked", "reserved", "sent", "bound", "served", "gone"]]
    assert answer["notes"] == ()


async def test_a_leader_does_not_wait_long_for_what_is_stored():
    calls = await stored_once()
    calls.fails("get_raw", *[ApiUnknownError(verb="GET", path=PATH, message="reset")] * 100)
    began_s = asyncio.get_running_loop().time()
    second = await Leader(calls).begin()
    assert asyncio.get_running_loop().time() - began_s <= 3.1
    [note] = (await second.history.why("default/a"))["notes"]
    assert "reset" in note


async def test_a_leader_stores_nothing_over_what_it_could_not_read_and_reads_it_later():
    calls = await stored_once()
    before = calls.raw[PATH]
    calls.fails("get_raw", *[ApiUnknownError(verb="GET", path=PATH, message="reset")] * 45)
    second = await Leader(calls).begin()
    second.world.adds(pod("b", memory=1000))
    second.world.placed()
    running = asyncio.create_task(second.passes(151.0))
    await asyncio.sleep(10.0)
    assert calls.raw[PATH] == before
    while not running.done():
        await asyncio.sleep(0.5)
        second.inbox.work(float("inf"))
    await running
    assert kinds(await second.history.why("default/a")) == [["asked", "reserved", "sent", "bound", "served", "gone"]]
    assert kinds(await second.history.why("default/b")) == [["asked", "reserved", "sent", "bound", "served"]]
    assert (await second.history.day())["notes"] == ()
    third = await Leader(calls).begin()
    assert {*kinds(await third.history.why("default/a"))[0]} >= {"bound", "gone"}


async def test_what_was_stored_by_a_clock_that_was_ahead_is_reported_and_ignored():
    calls, later_s = Calls(), int(NOON_S) + 90_000
    life = Life(PodUid("u"), "default/old", (PodEvent(What.ASKED, later_s, later_s),))
    pods = finished(pack([life_line(life)], 1000, later_s))
    minutes = finished(pack([minute_line(Minute(later_s // 60, {KEY: Sums(1)}))], 1000, later_s))
    calls.raw[PATH] = json.dumps({"binaryData": {"pods": pods, "minutes": minutes}}).encode()
    leader = await Leader(calls).begin()
    await leader.passes(181.0)
    answer = await leader.history.day()
    assert answer["minutes"] == 2
    assert [time_text(later_s) in note for note in answer["notes"]] == [True, True]
    assert len(calls.of("patch")) == 4


async def test_of_a_record_those_minutes_count_that_are_over():
    """The clock of the leader before was ahead for a while."""
    calls, now = Calls(), int(NOON_S) // 60
    lines = [minute_line(Minute(at, {KEY: Sums(1)})) for at in (now + 10_000, now - 1, now - 2)]
    minutes = finished(pack(lines, 1000, int(NOON_S)))
    calls.raw[PATH] = json.dumps({"binaryData": {"minutes": minutes}}).encode()
    leader = await Leader(calls).begin()
    assert [one.at for one in leader.history.minutes.newest()] == [now - 1, now - 2]


async def test_a_clock_that_is_set_back_does_not_stop_storing():
    calls = Calls()
    leader = await Leader(calls).begin()
    asyncio.get_running_loop().call_later(90.0, setattr, leader, "ahead_s", -86_400.0)
    await leader.passes(181.0)
    assert len(calls.of("patch")) == 4


async def test_minutes_are_what_cards_and_queues_were_used_for():
    leader = await Leader(Calls()).begin()
    for _ in leader.seconds.follow(leader.clock_ms(), by_owner=False):
        pass
    await leader.history.observe()
    await asyncio.sleep(20.0)
    leader.world.adds(pod("a", memory=2500), pod("large", memory=99_000))
    leader.world.placed()
    for _ in leader.seconds.follow(leader.clock_ms(), by_owner=False):
        pass
    await asyncio.sleep(40.0)
    await leader.history.observe()
    ((at, found),) = leader.history.minutes.newest()
    assert at == NOON_S / 60
    assert found == {
        Key("vgpu", "T4", "queue-of-a"): Sums(promised_ms=10_000),
        Key("vgpu", "T4", ""): Sums(idle_ms=110_000),
        Key("vgpu", "", "default"): Sums(waiting=1),
    }


async def test_a_minute_that_was_not_watched_from_its_beginning_is_unknown():
    leader = await Leader(Calls()).begin()
    await asyncio.sleep(30.0)
    await leader.passes(90.0)
    assert [one.at for one in leader.history.minutes.newest()] == [NOON_S / 60 + 1]
    leader.seconds.pause(leader.clock_ms())
    await asyncio.sleep(60.0)
    await leader.history.observe()
    assert (await leader.history.day())["minutes"] == 1


async def test_the_next_leader_does_not_write_sooner_than_a_minute_after_the_last():
    calls = Calls()
    first, second = await Leader(calls).begin(), Leader(calls)
    await first.passes(1.0)
    await asyncio.sleep(9.0)
    await second.begin()
    await second.passes(40.0)
    assert len(calls.of("patch")) == 1
    await second.passes(20.0)
    assert len(calls.of("patch")) == 2


async def test_what_is_stored_keeps_under_256_kib():
    leader = await Leader(Calls()).begin()
    for at in range(3000):
        text = "".join(hashlib.sha256(f"{at} {part}".encode()).hexdigest() for part in range(5))
        leader.world.scheduler.cluster.recording.pods.note(
            PodUid(f"u{at}"), f"ns/p{at}", PodEvent(What.WAITS, at, at, text=text)
        )
    calls = leader.history.calls
    assert isinstance(calls, Calls)
    await leader.passes(61.0)
    (_, body), _ = calls.of("patch")
    assert PODS_CHARACTERS / 2 < len(body["binaryData"]["pods"]) <= PODS_CHARACTERS
    assert PODS_CHARACTERS + MINUTES_CHARACTERS <= 240 * 1024
