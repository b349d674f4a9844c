"""Every shipped manifest, applied again before and after its pods are bound, is taken and changes nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sandbox.demo.examples import find
from sandbox.demo.stage import Stage

_EXAMPLES = find([Path(__file__).parents[2] / "docs" / "examples"])
_WITHIN_S = 30.0


async def apply(stage: Stage, manifests: list[dict[str, Any]]) -> list[str]:
    """What was refused of *manifests*, in words."""
    answers = [(one["metadata"]["name"], await stage.person.apply(one)) for one in manifests]
    return [f"{name}: {answer.message}" for name, answer in answers if not answer.accepted]


async def settled(stage: Stage) -> dict[str, dict[str, Any]]:
    """The pods by name, once nothing has changed for a while."""
    before: dict[str, Any] = {}
    async with asyncio.timeout(_WITHIN_S):
        while True:
            pods = {p["metadata"]["name"]: p for p in await stage.admin.list("/api/v1/namespaces/default/pods")}
            versions = {name: p["metadata"]["resourceVersion"] for name, p in pods.items()}
            if versions == before:
                return pods
            before = versions
            await asyncio.sleep(1.5)


@pytest.mark.timeout(120)
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
