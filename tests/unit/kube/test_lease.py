"""A Lease among candidates, in virtual time."""

import asyncio

import pytest

from kube.errors import ApiForbiddenError, ApiThrottledError, ApiUnknownError, ApiUnreachableError
from kube.lease import MAX_DURATION_S, How, Lease, LeaseLostError, Timing
from tests.support.servers.fake_leases import Clocks, FakeLeases, Way

pytestmark = pytest.mark.looptime

# Within which a candidate looks again, and its answers come.
LOOK_S = 2.1


def now() -> float:
    return asyncio.get_running_loop().time()


async def until(what, meanwhile=lambda: True):
    """Wait until *what* answers something true; *meanwhile* has to be true all the time."""
    while not what():
        await asyncio.sleep(0.1)
        assert meanwhile()


class Candidate:
    """One process, by its Lease; *led* lists (from, to) of the times in which it held the Lease."""

    def __init__(self, leases, identity, *, timing=None, jitter=0.0):
        self.way, self.clocks = Way(leases), Clocks()
        self.lease = Lease(
            self.way,
            namespace="n",
            name="l",
            identity=identity,
            timing=timing,
            clocks=self.clocks,
            jitter=lambda: jitter,
        )
        self.how: How | None = None
        self.lost = ""
        self.acquired_s = self.lost_s = 0.0
        self.task: asyncio.Task[None]

    async def run(self):
        self.how = await self.lease.acquire()
        self.acquired_s = now()
        try:
            await self.lease.keep()
        except LeaseLostError as e:
            self.lost, self.lost_s = str(e), now()

    @property
    def leads(self):
        return self.lease.left_s() > 0.0


class Crowd:
    """Candidates for one Lease."""

    def __init__(self):
        self.leases = FakeLeases()
        self._tasks = []

    def __call__(self, identity, **options):
        """One more, at work."""
        one = Candidate(self.leases, identity, **options)
        one.task = asyncio.create_task(one.run(), name=identity)
        self._tasks.append(one.task)
        return one

    async def end(self):
        for task in self._tasks:
            task.cancel()
            await asyncio.wait([task])


@pytest.fixture
async def candidates():
    crowd = Crowd()
    yield crowd
    await crowd.end()


async def two(candidates):
    """One that holds it, and one that waits."""
    first = candidates("a")
    await asyncio.sleep(1.0)
    second = candidates("b")
    await asyncio.sleep(5.0)
    assert (first.leads, second.leads) == (True, False)
    return first, second


async def test_the_first_candidate_takes_a_lease_that_is_not_there_and_keeps_it(candidates):
    first, second = await two(candidates)
    assert first.how is How.NEW
    await asyncio.sleep(600.0)
    assert (first.leads, second.leads, second.lease.holder) == (True, False, "a")
    spec = candidates.leases.spec
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]) == ("a", 15, 0)


@pytest.mark.parametrize("spec", [{}, {"holderIdentity": "", "leaseTransitions": 0}])
async def test_a_lease_that_was_applied_and_never_held_is_taken_like_one_that_is_not_there(candidates, spec):
    candidates.leases.apply(dict(spec))
    both = candidates("a"), candidates("b")
    await asyncio.sleep(LOOK_S)
    assert sorted(one.leads for one in both) == [False, True]
    assert {one.how for one in both if one.leads} == {How.NEW}


async def test_a_lease_that_is_emptied_under_its_holder_is_left_alone_while_that_one_may_still_believe_in_it(
    candidates,
):
    first, second = await two(candidates)
    first.way.swallow()
    candidates.leases.apply({})
    await until(lambda: second.leads, lambda: not (first.leads and second.leads))
    assert second.how is How.EXPIRED


async def test_of_two_that_start_together_one_takes_it(candidates):
    both = candidates("a"), candidates("b")
    await asyncio.sleep(60.0)
    assert sorted(one.leads for one in both) == [False, True]


async def test_a_holder_that_vanishes_is_followed_within_17_s_and_not_before_its_time_is_over(candidates):
    first, second = await two(candidates)
    first.task.cancel()
    died_s = now()
    await until(lambda: second.leads, lambda: not (first.leads and second.leads))
    assert now() - died_s <= 16.3
    assert (second.how, candidates.leases.spec["leaseTransitions"]) == (How.EXPIRED, 1)


async def test_a_released_lease_is_taken_at_the_next_look(candidates):
    first, second = await two(candidates)
    first.task.cancel()
    assert await first.lease.release(3.0)
    released_s = now()
    await until(lambda: second.leads)
    assert now() - released_s <= 1.2
    assert second.how is How.RELEASED


async def test_a_release_ends_in_time_although_nobody_answers(candidates):
    first, _ = await two(candidates)
    first.task.cancel()
    first.way.swallow()
    began_s = now()
    assert not await first.lease.release(3.0)
    assert now() - began_s <= 3.0


@pytest.mark.parametrize("kind", ["swallowed", "refused", "failing", "throttled", "forbidden"])
async def test_a_holder_that_reaches_nobody_gives_up_before_another_can_take_it(candidates, kind):
    first, second = await two(candidates)
    errors = {
        "refused": ApiUnreachableError(verb="PATCH", path="/l"),
        "failing": ApiUnknownError(verb="PATCH", path="/l", status=500),
        "throttled": ApiThrottledError(verb="PATCH", path="/l", status=429, retry_after_s=600.0),
        "forbidden": ApiForbiddenError(verb="PATCH", path="/l", status=403),
    }
    if kind == "swallowed":
        first.way.swallow()
    first.way.before = lambda verb: errors.get(kind)
    await until(lambda: first.lost, lambda: not second.leads)
    assert "could not be renewed for 10 s" in first.lost
    assert not first.leads
    await until(lambda: second.leads)
    assert second.acquired_s - first.lost_s >= 4.0


@pytest.mark.parametrize("page", [b"<html>log in</html>", b'{"status":"ok"}'])
async def test_a_page_of_a_proxy_is_no_lease_to_take_or_to_keep(candidates, page):
    first, second = await two(candidates)
    second.way.page = page
    await asyncio.sleep(60.0)
    assert first.leads
    assert not second.leads
    assert "look for a proxy" in second.lease.problem
    first.way.page = page
    await until(lambda: first.lost)


async def test_a_short_outage_changes_nothing(candidates):
    first, second = await two(candidates)
    first.way.swallow()
    await asyncio.sleep(4.0)
    first.way.answers.set()
    await asyncio.sleep(60.0)
    assert (first.leads, second.leads, first.lost) == (True, False, "")


async def test_a_renewal_whose_answer_is_lost_counts_from_before_it_was_sent(candidates):
    first, _ = await two(candidates)
    lost = ApiUnknownError(verb="PATCH", path="/l", message="cut off")
    first.way.after = lambda verb: lost if verb == "PATCH" else None
    for _ in range(300):
        await asyncio.sleep(0.1)
        # What the API server has is younger than what we believe.
        assert first.lease.left_s() <= 15.0 - (now() - candidates.leases.writes[-1][0])
    assert (first.leads, first.lost) == (True, "")


async def test_a_lease_that_was_taken_although_the_answer_was_lost_is_known_as_our_own(candidates):
    one = candidates("a")
    one.way.after = lambda verb: ApiUnknownError(verb="POST", path="/l", message="cut off") if verb == "POST" else None
    await asyncio.sleep(LOOK_S)
    assert one.leads
    assert one.lease.left_s() < 15.0


@pytest.mark.parametrize("is_released", [True, False])
async def test_a_lease_that_was_taken_although_the_answer_was_lost_is_known_by_what_it_was_before(
    candidates, is_released
):
    first, second = await two(candidates)
    second.way.after = lambda verb: ApiUnknownError(verb=verb, path="/l", message="cut off") if verb != "GET" else None
    first.task.cancel()
    assert not is_released or await first.lease.release(2.0)
    await asyncio.sleep(20.0)
    assert second.how is (How.RELEASED if is_released else How.EXPIRED)


async def test_a_lease_whose_taking_is_known_too_late_is_not_held_and_taken_again(candidates):
    first, second = await two(candidates)
    first.task.cancel()

    def lose(verb):
        second.way.swallow()
        return ApiUnknownError(verb=verb, path="/l", message="cut off")

    second.way.after = lambda verb: lose(verb) if verb == "PATCH" else None
    await asyncio.sleep(35.0)
    assert candidates.leases.spec["holderIdentity"] == "b"
    second.way.after = lambda verb: None
    second.way.answers.set()
    await asyncio.sleep(60.0)
    assert (second.leads, second.lost, second.how) == (True, "", How.EXPIRED)


async def test_a_process_that_was_stopped_for_a_minute_knows_at_once_that_it_holds_nothing(candidates):
    first, _ = await two(candidates)
    first.clocks.asleep_s = 60.0
    assert not first.leads
    writes = len(candidates.leases.writes)
    await until(lambda: first.lost)
    assert "a" not in [who for _, who in candidates.leases.writes[writes:]]


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0])
async def test_a_jump_of_the_wall_clock_changes_no_holder(candidates, jump_s):
    first, second = await two(candidates)
    for one in (first, second):
        one.clocks.wall_offset_s += jump_s
        await asyncio.sleep(LOOK_S)
        assert (first.leads, second.leads, first.lost) == (True, False, "")


async def test_a_wall_clock_that_is_ahead_ends_what_is_believed_until_the_next_renewal(candidates):
    first, _ = await two(candidates)
    first.clocks.wall_offset_s += 3600.0
    assert not first.leads
    await asyncio.sleep(LOOK_S)
    assert first.leads


EDITS = {
    "renewTime 1970": {"renewTime": "1970-01-01T00:00:00.000000Z"},
    "duration 0": {"leaseDurationSeconds": 0},
    "duration 1": {"leaseDurationSeconds": 1},
    "duration 1e9": {"leaseDurationSeconds": 10**9},
    "holder empty": {"holderIdentity": ""},
    "all empty": dict.fromkeys(("holderIdentity", "leaseDurationSeconds", "renewTime", "acquireTime"), None),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
async def test_a_lease_edited_by_hand_is_mended_by_its_holder(candidates, edit):
    first, second = await two(candidates)
    candidates.leases.edit(**edit)
    for _ in range(300):
        await asyncio.sleep(0.1)
        assert not second.leads
    assert (first.leads, first.lost, candidates.leases.spec["leaseDurationSeconds"]) == (True, "", 15)


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
async def test_a_lease_edited_by_hand_without_a_holder_is_taken_in_the_end(candidates, edit):
    first, second = await two(candidates)
    first.task.cancel()
    candidates.leases.edit(**edit)
    edited_s = now()
    await until(lambda: second.leads, lambda: not (first.leads and second.leads))
    assert now() - edited_s <= MAX_DURATION_S + 2 * LOOK_S


async def test_a_deleted_lease_is_made_again_by_its_holder(candidates):
    first, second = await two(candidates)
    candidates.leases.delete()
    await asyncio.sleep(30.0)
    assert (first.leads, second.leads, first.lost) == (True, False, "")


async def test_a_deleted_lease_is_left_alone_while_its_holder_may_still_believe_in_it(candidates):
    first, second = await two(candidates)
    first.way.swallow()
    candidates.leases.delete()
    await until(lambda: second.leads, lambda: not (first.leads and second.leads))
    assert second.how is How.EXPIRED


async def test_a_lease_that_another_took_is_given_up_at_once(candidates):
    first, _ = await two(candidates)
    candidates.leases.edit(holderIdentity="somebody")
    await asyncio.sleep(LOOK_S)
    assert "is held by 'somebody'" in first.lost


async def test_a_holder_of_our_own_name_that_we_did_not_write_is_another(candidates):
    await two(candidates)
    namesake = candidates("a")
    await asyncio.sleep(60.0)
    assert not namesake.leads


async def test_a_missing_right_is_named(candidates):
    one = candidates("a")
    one.way.before = lambda verb: ApiForbiddenError(verb=verb, path="/l", status=403, message="no")
    await asyncio.sleep(10.0)
    assert "403" in one.lease.problem
    one.way.before = lambda verb: None
    await asyncio.sleep(LOOK_S)
    assert (one.leads, one.lease.problem) == (True, "")


async def test_three_candidates_that_fall_one_after_the_other_never_hold_it_together(candidates):
    timing = Timing(duration_s=6.0, renew_deadline_s=4.0, retry_s=1.0)
    crowd = [candidates(name, timing=timing, jitter=at / 3) for at, name in enumerate("abc")]
    fallen = 0
    for _ in range(600):
        await asyncio.sleep(0.1)
        leading = [one for one in crowd if one.leads]
        assert len(leading) <= 1
        if leading and fallen < 2 and now() - leading[0].acquired_s > 8.0:
            leading[0].way.swallow()
            fallen += 1
            await until(lambda one=leading[0]: one.lost)
    assert sum(one.lost != "" for one in crowd) >= 2
