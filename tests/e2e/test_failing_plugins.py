"""Device plugins that fail once, on a real API server: the pod fails, its cards come back, the next gets its own."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from sandbox.demo.stage import Stage
from tests.integration.test_failing_plugins import SHARE, VGPU, apply, pod, seen, with_fault
from tests.support.fixtures_realapi import binaries_or_skip, logs_folder
from tests.support.realapi import RealApi
from tests.support.stage_realapi import installed_stage


@pytest_asyncio.fixture
async def failing(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """The product on a server of its own, whose plugins fail their first call."""
    nodes = [with_fault(node, fail_next=1) for node in (VGPU, SHARE)]
    async with (
        RealApi(binaries_or_skip(), logs=logs_folder("failing", tmp_path_factory)) as api,
        installed_stage(api, tmp_path, nodes=nodes) as installed,
    ):
        yield installed.stage


async def test_the_next_pod_gets_its_own_share_after_a_failed_call(failing: Stage):
    cases = (
        ("vgpu-memory", "CUDA_DEVICE_MEMORY_LIMIT_0", "9001m"),
        ("gpu-memory", "VOLCANO_GPU_ALLOCATED", "9001"),
    )
    for resource, limit, mine in cases:
        await apply(failing, pod(f"unlucky-{resource}", resource, 9000))
        failed = await seen(failing, f"unlucky-{resource}", lambda s: s.phase == "Failed")
        assert failed.pod is not None
        assert failed.pod["status"]["reason"] == "UnexpectedAdmissionError"
        # Both would not fit on the card, so that this also shows that the first one's share came back.
        await apply(failing, pod(f"next-{resource}", resource, 9001))
        served = await seen(failing, f"next-{resource}", lambda s: s.phase == "Running")
        assert served.env_by_container["c"][limit] == mine
