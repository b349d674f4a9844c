"""A pod of several containers with cards, on a real API server: its plugin is shown one after the other."""

import pytest

from tests.integration.test_failing_plugins import apply, seen
from tests.support.stage_realapi import Installed

pytestmark = pytest.mark.asyncio(loop_scope="session")

MEMORY_MIB = {"first": 1001, "second": 2002, "third": 3003}


async def test_each_container_receives_its_own_share_through_the_review_of_the_plugins_write(installed: Installed):
    stage = installed.stage
    containers = [
        {
            "name": name,
            "image": "i",
            "resources": {"limits": {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": str(memory_mib)}},
        }
        for name, memory_mib in MEMORY_MIB.items()
    ]
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "several", "annotations": {"volcano.sh/vgpu-mode": "hami-core"}},
        "spec": {"containers": containers},
    }
    try:
        await apply(stage, manifest)
        served = await seen(stage, "several", lambda s: s.phase == "Running", within_s=20)
        limits = {name: env["CUDA_DEVICE_MEMORY_LIMIT_0"] for name, env in served.env_by_container.items()}
        assert limits == {name: f"{memory_mib}m" for name, memory_mib in MEMORY_MIB.items()}
    finally:
        await stage.person.delete("several", grace_s=0)
