import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from controller.actions import Announce, Subject
from controller.metrics import Metrics
from controller.reporting.events import Recorder
from kube.errors import ApiForbiddenError
from tests.support.servers.fake_calls import FakeCalls, conflict, not_found

pytestmark = pytest.mark.looptime


def announce(name="p", reason="FailedScheduling", message="no room", *, warning=True):
    about = Subject(kind="Pod", namespace="default", name=name, uid=f"uid-{name}")
    return Announce(about=about, reason=reason, message=message, warning=warning)


class Rig:
    def __init__(self):
        self.calls = FakeCalls()
        self.metrics = Metrics()
        self.is_binding = False
        now_s = asyncio.get_running_loop().time
        self.recorder = Recorder(
            self.calls, self.metrics, instance="me", is_binding=lambda: self.is_binding, clock=now_s, wall=now_s
        )

    def written(self):
        return [event["involvedObject"]["name"] for _, event in self.calls.of("create_event")]

    def dropped(self):
        return self.metrics.events_dropped._value.get()


@asynccontextmanager
async def running() -> AsyncIterator[Rig]:
    found = Rig()
    async with asyncio.TaskGroup() as tasks:
        began = tasks.create_task(found.recorder.run())
        yield found
        began.cancel()


async def test_the_same_about_one_object_is_one_event_that_is_counted():
    async with running() as rig:
        for text in ("first", "second", "third"):
            rig.recorder.note(announce(message=text))
            await asyncio.sleep(1)
        assert len(rig.calls.of("create_event")) == 1
        assert [(body["count"], body["message"]) for _, body in rig.calls.of("patch_event")] == [
            (2, "second"),
            (3, "third"),
        ]


async def test_what_is_noted_again_before_it_is_written_is_merged():
    async with running() as rig:
        for _ in range(3):
            rig.recorder.note(announce())
        await asyncio.sleep(1)
        ((_, event),) = rig.calls.of("create_event")
        assert event["count"] == 3


async def test_an_event_names_its_object_and_who_says_it():
    async with running() as rig:
        rig.recorder.note(announce())
        await asyncio.sleep(1)
        ((namespace, event),) = rig.calls.of("create_event")
        assert namespace == "default"
        assert event["involvedObject"] == {
            "apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": "default", "uid": "uid-p",
        }  # fmt: skip
        assert (event["type"], event["reportingComponent"], event["reportingInstance"]) == (
            "Warning",
            "cardshare",
            "me",
        )


async def test_an_event_from_before_a_restart_goes_on_being_counted():
    async with running() as rig:
        rig.calls.fails("create_event", conflict(reason="AlreadyExists"))
        rig.recorder.note(announce())
        await asyncio.sleep(0)
        ((_, event),) = rig.calls.of("create_event") or [("", {"metadata": {"name": ""}})]
        rig.calls.raw[f"/api/v1/namespaces/default/events/{event['metadata']['name']}"] = json.dumps(
            {"count": 7}
        ).encode()
        await asyncio.sleep(1)
        assert [body["count"] for _, body in rig.calls.of("patch_event")] == [8]


async def test_an_event_that_has_aged_out_is_made_anew():
    async with running() as rig:
        rig.recorder.note(announce())
        await asyncio.sleep(1)
        rig.calls.fails("patch_event", not_found())
        rig.recorder.note(announce())
        await asyncio.sleep(1)
        assert [body["count"] for _, body in rig.calls.of("create_event")] == [1, 1]


async def test_a_flood_is_written_slowly_and_warnings_outlast_news():
    async with running() as rig:
        for i in range(2048):
            rig.recorder.note(announce(f"good{i}", "Scheduled", warning=False))
        rig.recorder.note(announce("one more", "Scheduled", warning=False))
        rig.recorder.note(announce("bad"))
        assert rig.dropped() == 2
        await asyncio.sleep(10)
        assert 500 <= len(rig.calls.of("create_event")) <= 700
        await asyncio.sleep(60)
        written = [event["involvedObject"]["name"] for _, event in rig.calls.of("create_event")]
        assert ("bad" in written, "one more" in written, len(written)) == (True, False, 2048)


async def test_events_that_may_not_be_written_are_given_up_and_the_rest_goes_on():
    async with running() as rig:
        error = ApiForbiddenError(verb="POST", path="/", status=403, message="no")
        rig.calls.fails("create_event", error)
        rig.recorder.note(announce("a"))
        rig.recorder.note(announce("b"))
        await asyncio.sleep(1)
        assert rig.dropped() == 1
        assert [event["involvedObject"]["name"] for _, event in rig.calls.of("create_event")] == ["a", "b"]


async def test_news_wait_while_bindings_are_on_their_way_and_warnings_do_not():
    async with running() as rig:
        rig.is_binding = True
        rig.recorder.note(announce("good", "Scheduled", warning=False))
        rig.recorder.note(announce("bad"))
        await asyncio.sleep(2)
        assert rig.written() == ["bad"]
        rig.is_binding = False
        await asyncio.sleep(1)
        assert rig.written() == ["bad", "good"]


async def test_news_do_not_wait_for_ever():
    async with running() as rig:
        rig.is_binding = True
        rig.recorder.note(announce("early", "Scheduled", warning=False))
        await asyncio.sleep(3)
        rig.recorder.note(announce("late", "Scheduled", warning=False))
        await asyncio.sleep(1)
        assert rig.written() == []
        await asyncio.sleep(2)
        assert rig.written() == ["early"]
        await asyncio.sleep(3)
        assert rig.written() == ["early", "late"]
