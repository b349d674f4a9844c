"""What the controller's own pod says of the configuration."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from controller.metrics import Metrics
from controller.reporting.configuration import ConfigurationReason
from core.names import CONFIGURATION_ACCEPTED
from kube.condition import OwnCondition, Verdict
from runtime.flags import ObjectName
from tests.support.servers.fake_calls import FakeCalls, not_found

pytestmark = pytest.mark.looptime

GOOD = Verdict(accepted=True, reason=ConfigurationReason.ACCEPTED, message="the whole configuration is in force")
BAD = Verdict(accepted=False, reason=ConfigurationReason.REFUSED, message="line one\nline two")
POD = ObjectName("cardshare-system", "controller-0")


def own_pod(*conditions):
    status = {"conditions": list(conditions)}
    return json.dumps({"metadata": {"uid": "u-1"}, "status": status}).encode()


class Rig:
    def __init__(self, *conditions):
        self.calls = FakeCalls()
        self.calls.pods[str(POD)] = own_pod(*conditions)
        self.metrics = Metrics()
        self.verdict = GOOD
        wall = asyncio.get_running_loop().time
        self.own = OwnCondition(
            self.calls,
            POD,
            CONFIGURATION_ACCEPTED,
            lambda: self.verdict,
            failed=self.metrics.api_errors.labels("write configuration condition").inc,
            wall=wall,
        )

    def written(self):
        return [(path, body["metadata"]["uid"], *body["status"]["conditions"]) for path, body in self.calls.of("patch")]


@asynccontextmanager
async def running(*conditions) -> AsyncIterator[Rig]:
    rig = Rig(*conditions)
    async with asyncio.TaskGroup() as tasks:
        began = tasks.create_task(rig.own.run())
        yield rig
        began.cancel()


async def test_it_is_written_once_and_again_when_there_is_something_else_to_say():
    async with running() as rig:
        await asyncio.sleep(10)
        ((path, uid, first),) = rig.written()
        assert (path, uid) == ("/api/v1/namespaces/cardshare-system/pods/controller-0/status", "u-1")
        assert (first["type"], first["status"], first["reason"]) == (CONFIGURATION_ACCEPTED, "True", "Accepted")
        rig.verdict = BAD
        await asyncio.sleep(2)
        second = rig.written()[1][2]
        assert (second["status"], second["reason"]) == ("False", "Refused")
        assert second["message"] == "line one line two"
        assert second["lastTransitionTime"] > first["lastTransitionTime"]


async def test_other_words_of_the_same_status_keep_the_time_also_after_a_restart():
    since = "2026-01-02T03:04:05Z"
    before = {"type": CONFIGURATION_ACCEPTED, "status": "True", "reason": "Accepted", "lastTransitionTime": since}
    async with running({"type": "Ready", "status": "False", "lastTransitionTime": None}, before) as rig:
        rig.verdict = Verdict(
            accepted=True, reason=ConfigurationReason.ACCEPTED_WITH_NOTES, message="in force; a: unknown"
        )
        await asyncio.sleep(5)
        ((_, _, condition),) = rig.written()
        assert (condition["reason"], condition["lastTransitionTime"]) == ("AcceptedWithNotes", since)


async def test_what_cannot_be_written_is_told_once_counted_and_tried_again():
    with capture_logs() as logs:
        async with running() as rig:
            rig.calls.fails("patch", not_found(), not_found(), not_found())
            await asyncio.sleep(60)
            assert rig.written()[-1][2]["status"] == "True"
    assert [log["pod"] for log in logs] == [str(POD)]
    counted = rig.metrics.registry.get_sample_value(
        "cardshare_api_errors_total", {"call": "write configuration condition"}
    )
    assert counted == 3


@pytest.mark.parametrize("text", [b"{", b'{"metadata": 3}', b'{"status": {"conditions": [1]}}'])
async def test_an_answer_that_is_no_pod_is_a_failure_like_others(text):
    with capture_logs() as logs:
        async with running() as rig:
            rig.calls.pods[str(POD)] = text
            await asyncio.sleep(1)
            assert rig.written() == []
    assert len(logs) == 1
