"""A controller that is killed amid many pods, and started again as its Deployment would, with its default delay."""

import os
import signal
from pathlib import Path

from sandbox.demo.picture import cards
from sandbox.demo.processes import Processes
from tests.integration.test_crowd import PODS, all_settled, apply_all, crowd, mistaken
from tests.support.servers.manifests import Runner, find
from tests.support.servers.prepared import Prepared
from tests.support.worlds.controller_rig import OpensStage


async def test_a_controller_that_is_killed_in_the_middle_leaves_no_pod_behind_and_no_card_promised_twice(
    staged: OpensStage, prepared: Prepared, tmp_path: Path
):
    async with staged() as stage, Processes(tmp_path / "logs", os.environ) as processes:
        await apply_all(stage, crowd())
        stage.product.controller.signal(signal.SIGKILL)
        await stage.product.controller.process.wait()
        bound = [each for each in await stage.admin.list(PODS) if each["spec"].get("nodeName")]
        assert len(bound) < len(crowd()), "all pods were bound before the controller was killed"
        runner = Runner(api=prepared.api, admin=stage.admin, processes=processes, folder=tmp_path)
        workload = find(prepared.volcano_name, "Deployment", "cardshare-controller")
        again, ports = await runner.start("controller-again", workload)
        await processes.ready(again, f"http://127.0.0.1:{ports['plain']}/readyz")
        pods = await all_settled(stage)
        assert len(pods) == len(crowd())
        assert {p["metadata"]["name"] for p in pods if p["status"]["phase"] != "Running"} == set()
        assert [told for each in pods if (told := mistaken(stage, each))] == []
        assert [b for b in cards(await stage.admin.list("/api/v1/nodes"), pods) if b.overcommitted] == []
