"""Every shipped manifest, applied again before and after its pods are bound, is taken and changes nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from sandbox.demo.examples import find
from sandbox.demo.stage import Stage
from tests.support.worlds.controller_rig import PODS, pod

_EXAMPLES = find([Path(__file__).parents[2] / "docs" / "examples"])
_WITHIN_S = 180.0


async def apply(stage: Stage, manifests: list[dict[str, Any]]) -> list[str]:
    """What was refused of *manifests*, in words."""
    answers = [(one["metadata"]["name"], await stage.person.apply(one)) for one in manifests]
    return [f"{name}: {answer.message}" for name, answer in answers if not answer.accepted]


async def settled(stage: Stage) -> dict[str, dict[str, Any]]:
    """Return the pods by name once each runs, has ended or has a reason to wait, and a last pod, too."""
    limits = {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "99999"}
    last = pod("last", limits)
    assert await apply(stage, [{"apiVersion": "v1", "kind": "Pod", **last}]) == []
    async with asyncio.timeout(_WITHIN_S):
        while not all(map(is_settled, pods := await stage.admin.list(PODS))):  # noqa: ASYNC110 (it tells nobody)
            await asyncio.sleep(0.1)
    await stage.admin.delete(f"{PODS}/last", grace_s=0)
    return {p["metadata"]["name"]: p for p in pods}


def is_settled(pod: dict[str, Any]) -> bool:
    if pod["spec"].get("schedulerName") == "default-scheduler":
        return True  # no such scheduler runs
    if pod["spec"].get("nodeName"):
        return bool(pod["status"].get("phase") != "Pending")
    conditions = pod["status"].get("conditions") or ()
    return any(one["type"] == "PodScheduled" and one["status"] == "False" for one in conditions)


async def test_every_example_is_taken_again_before_and_after_it_is_bound(staged):
    async with staged() as stage:
        manifests = [manifest for example in _EXAMPLES for manifest in example.manifests]
        taken = [one for one in manifests if not await apply(stage, [one])]
        assert len(taken) > len(manifests) // 2
        assert await apply(stage, taken) == []
        bound = await settled(stage)
        assert any(p["spec"].get("nodeName") for p in bound.values())
        assert await apply(stage, taken) == []
        after = await settled(stage)
        for name, pod in bound.items():
            if pod["spec"].get("nodeName"):
                assert after[name]["spec"] == pod["spec"], name
                assert after[name]["metadata"]["annotations"] == pod["metadata"]["annotations"], name
