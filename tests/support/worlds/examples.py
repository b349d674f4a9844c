"""Plays shipped examples on a stage, whichever API server it stands on, and leaves the cluster as it was."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from sandbox.demo.examples import Example
from sandbox.demo.picture import cards
from sandbox.demo.play import PRIORITY_CLASS, ExampleVerdict, Play
from sandbox.demo.stage import Stage, switched
from sandbox.players.provisioner import CLAIM, provided

_CLAIMS: Final = "/api/v1/namespaces/default/persistentvolumeclaims"
_CLASSES: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"
_VOLUMES: Final = "/api/v1/persistentvolumes"
_ROUND_S = 60.0
_GONE_WITHIN_S = 60.0


async def broken_declarations(stage: Stage, examples: Sequence[Example]) -> list[str]:
    """Apply *examples* one after the other, judge them, delete what was made of them; what was not as declared."""
    async with provided(stage.admin, [one for example in examples for one in example.manifests]):
        return await _broken(stage, examples)


async def _broken(stage: Stage, examples: Sequence[Example]) -> list[str]:
    play = Play(user=stage.person, env_of=stage.records.of)
    try:
        verdicts: list[ExampleVerdict] = []
        for example in examples:
            async with switched(stage, example.cluster):
                verdicts += await play.run(example, within_s=_ROUND_S)
        assert verdicts, "nothing was declared"
        verdicts += await play.final()
        told = [f"{v.example}: {v.claim}; but {problem}" for v in verdicts for problem in v.problems]
        bars = cards(await stage.admin.list("/api/v1/nodes"), await stage.admin.list("/api/v1/pods"))
        assert bars, "no node offers cards"
        return told + [f"{bar.node} {bar.card} holds more than it has" for bar in bars if bar.overcommitted]
    finally:
        await _clear(stage, examples)


async def _clear(stage: Stage, examples: Sequence[Example]) -> None:
    names = {manifest["metadata"]["name"] for example in examples for manifest in example.manifests}
    for name in names:
        await stage.person.delete(name)
    claims = [
        f"{_CLAIMS}/{manifest['metadata']['name']}"
        for example in examples
        for manifest in example.manifests
        if manifest["kind"] == CLAIM
    ]
    for example in examples:
        for manifest in example.manifests:
            if manifest["kind"] == PRIORITY_CLASS:
                await stage.admin.delete(f"{_CLASSES}/{manifest['metadata']['name']}")
    async with asyncio.timeout(_GONE_WITHIN_S):
        while any([await stage.person.get(name) for name in names]):  # noqa: ASYNC110 - the API server is polled
            await asyncio.sleep(0.05)
        if claims:
            await _without_disks(stage, claims)


async def _without_disks(stage: Stage, claims: Sequence[str]) -> None:
    for path in claims:
        await stage.admin.delete(path)
    for one in await stage.admin.list(_VOLUMES):
        await stage.admin.delete(f"{_VOLUMES}/{one['metadata']['name']}")
    # Their finalizers are the provisioner's to take, as long as it is there.
    while await stage.admin.list(_CLAIMS) or await stage.admin.list(_VOLUMES):  # noqa: ASYNC110
        await asyncio.sleep(0.05)
