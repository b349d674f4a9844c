"""Many pods at once on a real API server: nothing is promised twice, also when the controller is killed meanwhile."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sandbox.demo.picture import cards
from sandbox.demo.stage import Stage
from tests.integration import test_crowd as embedded
from tests.integration.test_crowd import all_settled, apply_all, mistaken, pod
from tests.support.manifests import find
from tests.support.stage_realapi import Installed

pytestmark = pytest.mark.asyncio(loop_scope="session")

_WITHIN_S = 30.0


def crowd() -> list[dict[str, Any]]:
    """The crowd of the embedded cluster, on cards whose limits containers are told as variables."""
    manifests = embedded.crowd()
    for manifest in manifests:
        if "vgpu-number" in str(manifest["spec"]):
            manifest["metadata"]["annotations"] = {"volcano.sh/vgpu-mode": "hami-core"}
    return manifests


@asynccontextmanager
async def cleared(stage: Stage) -> AsyncIterator[None]:
    """Leave no pods behind."""
    try:
        yield
    finally:
        pods = await stage.admin.list("/api/v1/namespaces/default/pods")
        for each in pods:
            await stage.person.delete(each["metadata"]["name"], grace_s=0)


async def overcommitted(stage: Stage) -> list[str]:
    bars = cards(await stage.admin.list("/api/v1/nodes"), await stage.admin.list("/api/v1/pods"))
    assert bars
    return [f"{bar.node} {bar.card}" for bar in bars if bar.overcommitted]


async def judge(stage: Stage, count: int) -> None:
    """All pods run, each container with what its own pod was promised, no card beyond what it has."""
    pods = await all_settled(stage)
    assert len(pods) == count
    assert {p["metadata"]["name"] for p in pods if p["status"]["phase"] != "Running"} == set()
    assert [told for each in pods if (told := mistaken(stage, each))] == []
    assert await overcommitted(stage) == []


async def test_no_container_receives_what_another_pod_was_promised(installed: Installed):
    stage = installed.stage
    async with cleared(stage):
        await apply_all(stage, crowd())
        await judge(stage, len(crowd()))


async def test_of_pods_that_race_for_cards_exactly_as_many_get_one_as_there_are(installed: Installed):
    stage = installed.stage
    bars = cards(await stage.admin.list("/api/v1/nodes"), ())
    count = len([bar for bar in bars if "T4" in bar.label and bar.unit == "MiB"])
    assert count > 0
    manifests = []
    for i in range(3 * count):
        manifest = pod(f"race-{i:02}", {"vgpu-number": 1, "vgpu-memory": 15000})
        manifest["metadata"]["annotations"] = {"nvidia.com/use-gputype": "T4"}
        manifests.append(manifest)
    async with cleared(stage):
        await apply_all(stage, manifests)
        async with asyncio.timeout(_WITHIN_S):
            while not all(map(is_decided, pods := await stage.admin.list("/api/v1/pods"))):  # noqa: ASYNC110 (the API server is polled)
                await asyncio.sleep(0.1)
        bound = [each for each in pods if each["spec"].get("nodeName")]
        assert len(bound) == count
        assert await overcommitted(stage) == []
        reasons = {str(condition(each).get("message", "")) for each in pods if each not in bound}
        assert all(reason for reason in reasons)


def condition(found: dict[str, Any]) -> dict[str, Any]:
    conditions = found["status"].get("conditions") or []
    return next((each for each in conditions if each["type"] == "PodScheduled"), {})


def is_decided(found: dict[str, Any]) -> bool:
    return found["status"]["phase"] == "Running" or condition(found).get("status") == "False"


async def test_a_controller_that_is_killed_in_the_middle_leaves_no_pod_behind_and_no_card_promised_twice(
    installed: Installed,
):
    stage, runner = installed.stage, installed.runner
    async with cleared(stage):
        await apply_all(stage, crowd())
        stage.product.controller.signal(signal.SIGKILL)
        await stage.product.controller.process.wait()
        bound = [each for each in await stage.admin.list("/api/v1/pods") if each["spec"].get("nodeName")]
        assert len(bound) < len(crowd()), "all pods were bound before the controller was killed"
        again, ports = await runner.start(
            "controller-again", find(installed.documents, "Deployment", "cardshare-controller")
        )
        await runner.processes.ready(again, f"http://127.0.0.1:{ports['plain']}/readyz")
        await judge(stage, len(crowd()))
