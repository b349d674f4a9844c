"""How answers to Kueue are written, and what counts while it is not known whether they were."""

import asyncio
import contextlib
import json

import pytest
import structlog

from controller.actions import Inbox
from controller.kueue.checks import AdmissionChecks
from core.explaining import explain
from core.kueue import Additions, AdmissionCheck, Flavor
from core.units import time_text
from core.wire.kueue import decode_workload
from kube.errors import ApiForbiddenError, ApiUnknownError
from tests.support.servers.fake_calls import FakeCalls, conflict
from tests.support.worlds.kueue import check, condition, reserved, workload
from tests.support.worlds.world import MEMORY, NUMBER, START_UNIX_S, World, node

API = "/apis/kueue.x-k8s.io/v1beta2"


class NoSource:
    """Lets nothing be read."""

    async def request(self, *args, **named):
        raise ApiForbiddenError(verb="GET", path="/", message="forbidden")

    def stream(self, *args, **named):
        raise AssertionError(args)


class Checked(World):
    """A world whose Workloads are answered."""

    def __init__(self, *nodes):
        super().__init__(*nodes)
        self.calls = FakeCalls()
        self.explained = 0
        self.checks = AdmissionChecks(
            self.scheduler,
            Inbox(lambda: self.now_s),
            NoSource(),
            self.calls,
            self.metrics,
            explain_shape=self.why,
            may_answer=lambda: True,
            clock=lambda: self.now_s,
            wall=lambda: START_UNIX_S + self.now_s,
        )
        self.checks.known.put_check(AdmissionCheck("fits", "cardshare.io/fits", generation=2))
        self.checks.known.put_flavor(Flavor("any", Additions()))

    async def why(self, shape, ledger, barred):
        self.explained += 1
        return explain.refused(ledger, shape, self.scheduler.cluster.search.policy.cards), 0.0

    def has(self, name, *, memory=6000, version="7", retries=0):
        at = time_text(START_UNIX_S + self.now_s)
        checks = [check(at=at, message="Reset to Pending after eviction.", retryCount=retries)] if retries else []
        made = workload(name, {NUMBER: "1", MEMORY: str(memory)}) | {"status": reserved(*checks)}
        made["metadata"] |= {"uid": f"uid-{name}", "resourceVersion": version}
        self.checks.known.put_workload(decode_workload(json.dumps(made).encode()))

    def told(self):
        """The state that each answer says, by path."""
        return [
            (path.removeprefix(f"{API}/namespaces/default/workloads/"), body["status"]["admissionChecks"][0]["state"])
            for path, body in self.calls.of("patch")
        ]


async def test_an_answer_is_a_patch_of_the_version_that_was_judged():
    world = Checked(node("n1"))
    world.has("a")
    await world.checks.look()
    ((path, body),) = world.calls.of("patch")
    assert path == f"{API}/namespaces/default/workloads/a/status"
    assert body["metadata"] == {"uid": "uid-a", "resourceVersion": "7"}
    assert [one["name"] for one in body["status"]["admissionChecks"]] == ["fits"]
    assert world.metrics.registry.get_sample_value("cardshare_kueue_answers_total", {"state": "Ready"}) == 1


async def test_why_the_same_pods_do_not_fit_is_worked_out_once_for_all_and_again_later():
    world = Checked(node("n1"))
    for name in "abc":
        world.has(name, memory=20_000)
    await world.checks.look()
    assert world.told() == [("a/status", "Retry"), ("b/status", "Retry"), ("c/status", "Retry")]
    assert world.explained == 1
    world.now_s += 31
    world.has("d", memory=20_000)
    await world.checks.look()
    assert world.explained == 2


async def test_who_changed_meanwhile_is_judged_again_and_was_promised_nothing():
    world = Checked(node("n1"))
    world.has("b")
    world.calls.fails("patch", conflict())
    await world.checks.look()
    world.has("a")
    await world.checks.look()
    assert world.told() == [("b/status", "Ready"), ("a/status", "Ready"), ("b/status", "Retry")]


async def test_a_yes_of_which_nobody_knows_whether_it_was_written_counts():
    world = Checked(node("n1"))
    world.has("b")
    world.calls.fails("patch", ApiUnknownError(verb="PATCH", path="/", message="the time ran out"))
    await world.checks.look()
    world.has("a")
    await world.checks.look()
    assert world.told() == [("b/status", "Ready"), ("a/status", "Retry")]
    world.now_s += 61  # b was not admitted meanwhile: it is asked again
    world.checks.known.workloads.pop("default/a", None)
    await world.checks.look()
    assert world.told()[2:] == [("b/status", "Ready")]


@pytest.mark.parametrize("is_told", [False, True], ids=["Retry", "Pending with the reason"])
async def test_a_refusal_of_which_nobody_knows_whether_it_was_written_is_said_again(is_told):
    world = Checked(node("n1"))
    if is_told:
        world.has("a", memory=20_000, retries=1)
    else:
        world.has("a", memory=20_000)
    world.calls.fails("patch", ApiUnknownError(verb="PATCH", path="/", message="the time ran out"))
    await world.checks.look()
    await world.checks.look()
    assert world.told() == [("a/status", "Pending" if is_told else "Retry")] * 2


async def test_a_right_that_is_missing_is_counted_and_ends_nothing():
    world = Checked(node("n1"))
    world.has("a")
    world.calls.fails("patch", ApiForbiddenError(verb="PATCH", path="/", message="forbidden"))
    await world.checks.look()
    await world.checks.look()
    assert world.told() == [("a/status", "Ready")] * 2
    sample = {"call": "answer workload"}
    assert world.metrics.registry.get_sample_value("cardshare_api_errors_total", sample) == 1


async def test_our_check_says_once_that_it_is_answered_and_keeps_what_others_say_of_it():
    world = Checked(node("n1"))
    known = world.checks.known
    other = condition("Tried")
    known.put_check(known.checks["fits"]._replace(conditions=(condition("Active", "False"), other)))
    await world.checks.keep_active()
    ((path, body),) = world.calls.of("patch")
    assert path == f"{API}/admissionchecks/fits/status"
    kept, said = body["status"]["conditions"]
    assert kept == other
    assert (said["type"], said["status"], said["observedGeneration"]) == ("Active", "True", 2)
    known.put_check(known.checks["fits"]._replace(is_active=True))
    await world.checks.keep_active()
    assert len(world.calls.of("patch")) == 1


@pytest.mark.looptime
async def test_rights_to_read_that_are_missing_are_logged_once_and_nothing_is_answered():
    world = Checked(node("n1"))
    world.has("a")
    with structlog.testing.capture_logs() as logged, contextlib.suppress(TimeoutError):
        async with asyncio.timeout(60.0):
            await world.checks.run()
    (entry,) = logged
    assert entry["event"].startswith("Kueue's objects cannot be read")
    assert "deploy/components/kueue" in entry["remedy"]
    assert world.told() == []


@pytest.mark.looptime
async def test_what_changes_during_a_round_is_answered_in_the_next_without_waiting():
    world = Checked(node("n1"))
    world.calls.delay_s = 1.0
    world.checks.known.put_check(world.checks.known.checks["fits"]._replace(is_active=True))
    for reflector in world.checks.reflectors.values():
        reflector.synced.set()
    world.has("a")

    async def changes():
        await asyncio.sleep(0.5)  # while the first answer is written
        world.has("b", memory=1000)

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(1.5), asyncio.TaskGroup() as tasks:
            tasks.create_task(world.checks.run())
            tasks.create_task(changes())
    assert world.told()[:2] == [("a/status", "Ready"), ("b/status", "Ready")]
