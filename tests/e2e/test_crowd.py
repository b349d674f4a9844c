"""A controller that is killed amid many pods, and started again as its Deployment would, with its default delay."""

import signal

import pytest

from sandbox.demo.picture import cards
from tests.integration.test_crowd import PODS, all_settled, apply_all, crowd, mistaken
from tests.support.manifests import find
from tests.support.stage_realapi import Installed


@pytest.mark.asyncio(loop_scope="session")
async def test_a_controller_that_is_killed_in_the_middle_leaves_no_pod_behind_and_no_card_promised_twice(
    installed: Installed,
):
    stage, runner = installed.stage, installed.runner
    try:
        await apply_all(stage, crowd())
        stage.product.controller.signal(signal.SIGKILL)
        await stage.product.controller.process.wait()
        bound = [each for each in await stage.admin.list(PODS) if each["spec"].get("nodeName")]
        assert len(bound) < len(crowd()), "all pods were bound before the controller was killed"
        again, ports = await runner.start(
            "controller-again", find(installed.documents, "Deployment", "cardshare-controller")
        )
        await runner.processes.ready(again, f"http://127.0.0.1:{ports['plain']}/readyz")
        pods = await all_settled(stage)
        assert len(pods) == len(crowd())
        assert {p["metadata"]["name"] for p in pods if p["status"]["phase"] != "Running"} == set()
        assert [told for each in pods if (told := mistaken(stage, each))] == []
        assert [b for b in cards(await stage.admin.list("/api/v1/nodes"), pods) if b.overcommitted] == []
    finally:
        for each in await stage.admin.list(PODS):
            await stage.person.delete(each["metadata"]["name"], grace_s=0)
