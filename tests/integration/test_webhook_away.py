"""While the webhook is away, what does not concern it goes on: the conditions of deploy/ keep such calls from it."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sandbox.demo.processes import Running
from tests.integration.test_failing_plugins import SHARE, VGPU, apply, pod, seen
from tests.support.worlds.controller_rig import OpensStage

NODES = [VGPU, SHARE]


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
async def test_plugins_serve_pods_of_one_container(staged: OpensStage, resource: str, told: tuple[str, str]):
    async with staged(nodes=NODES) as stage:
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


async def test_pods_without_cards_are_created_and_those_with_cards_are_not(staged: OpensStage):
    async with staged(nodes=NODES) as stage:
        plain = pod("plain", "vgpu-memory", 1)
        del plain["spec"]["containers"][0]["resources"]
        with stopped(stage.product.webhook):
            await apply(stage, plain)
            refused = await stage.person.apply(pod("asking", "vgpu-memory", 1000))
        assert not refused.accepted
        assert "create.pods.cardshare.io" in refused.message
