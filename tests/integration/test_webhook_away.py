"""While the webhook is away, what does not concern it goes on: the conditions of deploy/ keep such calls from it."""

import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from sandbox.demo.processes import Running
from sandbox.demo.stage import Stage, running_stage
from tests.integration.test_failing_plugins import SHARE, VGPU, apply, pod, seen


@pytest_asyncio.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with running_stage(tmp_path, os.environ, nodes=[VGPU, SHARE]) as running:
        yield running


@contextmanager
def stopped(process: Running) -> Iterator[None]:
    process.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.signal(signal.SIGCONT)


@pytest.mark.parametrize(
    ("resource", "told"),
    [
        pytest.param("vgpu-memory", ("volcano.sh/bind-phase", "success"), id="vgpu"),
        pytest.param("gpu-memory", ("volcano.sh/gpu-assigned", "true"), id="share"),
    ],
)
async def test_plugins_serve_pods_of_one_container(stage: Stage, resource: str, told: tuple[str, str]):
    with stopped(stage.product.controller):
        await apply(stage, pod("admitted", resource, 1000))
        # Placed and served from here on, without the webhook.
        stage.product.webhook.signal(signal.SIGSTOP)
    try:
        served = await seen(stage, "admitted", lambda s: s.phase == "Running")
    finally:
        stage.product.webhook.signal(signal.SIGCONT)
    assert served.pod is not None
    assert served.pod["metadata"]["annotations"][told[0]] == told[1]


async def test_pods_without_cards_are_created_and_those_with_cards_are_not(stage: Stage):
    plain = pod("plain", "vgpu-memory", 1)
    del plain["spec"]["containers"][0]["resources"]
    with stopped(stage.product.webhook):
        await apply(stage, plain)
        refused = await stage.person.apply(pod("asking", "vgpu-memory", 1000))
    assert not refused.accepted
    assert "create.pods.cardshare.io" in refused.message
