"""What an example needs of its cluster that is not shipped so: settings, and manifests of deploy/ that stand apart.

It is so for as long as the example is played, and as it was before afterwards: others show what is shipped.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import yaml

from sandbox.demo.examples import Cluster
from sandbox.demo.product import Product, apply, inventoried, reloads, remove
from sandbox.demo.stage import Stage

_DEPLOY: Final = Path(__file__).resolve().parents[2] / "deploy"
_FILE: Final = "cardshare.yaml"
_TAKEN_WITHIN_S: Final = 30.0
_LOOK_EVERY_S: Final = 0.05


@asynccontextmanager
async def switched(
    stage: Stage, cluster: Cluster, tell: Callable[[str], None] = lambda line: None
) -> AsyncIterator[None]:
    """As long as this lasts, *stage* is as *cluster* says. An edit of settings is waited for, at both ends.

    What is applied next is warned of by the settings in force: a webhook that has just taken others knows no cards yet.

    Args:
        stage: where the example is played.
        cluster: nothing is done where it asks for nothing.
        tell: takes a line for people of all that is done.
    """
    documents = [one for name in cluster.deploy for one in await asyncio.to_thread(_documents, _DEPLOY / name)]
    for name in cluster.deploy:
        tell(f"kubectl apply -f deploy/{name}")
    # First the right, then what makes use of it; and the other way round in the end.
    await apply(stage.admin, documents)
    try:
        async with _edited(stage.product, cluster.settings):
            for key, value in cluster.settings.items():
                tell(f"{_FILE}: {yaml.safe_dump({key: value}).strip()}")
            yield
    finally:
        await remove(stage.admin, documents)


@asynccontextmanager
async def _edited(product: Product, settings: Mapping[str, Any]) -> AsyncIterator[None]:
    if not settings:
        yield
        return
    if not product.settings:
        raise RuntimeError("this stage does not tell where its settings are")
    paths = [folder / _FILE for folder in product.settings]
    before = {path: await asyncio.to_thread(path.read_text, encoding="utf-8") for path in paths}
    await _take(product, {path: yaml.safe_dump({**yaml.safe_load(text), **settings}) for path, text in before.items()})
    try:
        yield
    finally:
        await _take(product, before)


async def _take(product: Product, texts: Mapping[Path, str]) -> None:
    """Write *texts*, and wait until the webhook has taken them and knows the cards by them."""
    metrics_url = f"{product.webhook_url}/metrics"
    before = await reloads(metrics_url)
    for path, text in texts.items():
        await asyncio.to_thread(_replace, path, text)
    async with asyncio.timeout(_TAKEN_WITHIN_S):
        while await reloads(metrics_url) == before:  # noqa: ASYNC110 (another process is polled)
            await asyncio.sleep(_LOOK_EVERY_S)
    await inventoried(metrics_url)


def _documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def _replace(path: Path, text: str) -> None:
    """Write *text* so that nobody reads a part of it."""
    beside = path.with_name(f".{path.name}")
    beside.write_text(text, encoding="utf-8")
    os.replace(beside, path)
