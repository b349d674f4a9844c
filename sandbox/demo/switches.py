"""An example's required deviations from the shipped cluster: settings, and optional manifests of deploy/.

They apply only while the example is played, because the other examples show the shipped state.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import yaml

from sandbox.demo.examples import Cluster
from sandbox.demo.processes import ProcessFailedError
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
    """Make *stage* as *cluster* requires inside this context; the controller sees an edit of settings within a second.

    It waits for the webhook at both ends: after a reload the webhook does not know the cards yet, and would omit
    warnings.

    Args:
        stage: the stage of the example.
        cluster: the requirements; nothing happens if there are none.
        tell: receives a line for people for each action.

    Raises:
        ProcessFailedError: the webhook does not reload the settings.
    """
    documents = [one for name in cluster.deploy for one in await asyncio.to_thread(_documents, _DEPLOY / name)]
    for name in cluster.deploy:
        tell(f"kubectl apply -f deploy/{name}")
    # The rights come before their use, and are removed after it.
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
    if settings and not product.settings:
        raise RuntimeError("this stage does not tell where its settings are")
    paths = [folder / _FILE for folder in product.settings] if settings else []
    before = {path: await asyncio.to_thread(path.read_text, encoding="utf-8") for path in paths}
    parsed = {path: yaml.safe_load(text) for path, text in before.items()}
    wanted = {path: yaml.safe_dump({**one, **settings}) for path, one in parsed.items() if one != {**one, **settings}}
    if not wanted:
        yield
        return
    try:
        await _take(product, wanted)
        yield
    finally:
        await _take(product, before)


async def _take(product: Product, texts: Mapping[Path, str]) -> None:
    """Write the changed *texts*, and wait until a running webhook has reloaded them and knows the cards.

    Raises:
        ProcessFailedError: it does not reload them.
    """
    count = await _reloads(product)
    for path, text in texts.items():
        await asyncio.to_thread(_replace, path, text)
    if count is None:
        return
    end_s = time.monotonic() + _TAKEN_WITHIN_S
    while await _reloads(product) == count:
        if time.monotonic() > end_s:
            log = product.webhook.log_tail()
            raise ProcessFailedError(f"the webhook does not take the settings; its log ends with:\n{log}")
        await asyncio.sleep(_LOOK_EVERY_S)
    await inventoried(f"{product.webhook_url}/metrics")


async def _reloads(product: Product) -> int | None:
    """Return how often the webhook has reloaded its settings; None if it does not answer."""
    try:
        return await reloads(f"{product.webhook_url}/metrics")
    except aiohttp.ClientError:
        return None


def _documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def _replace(path: Path, text: str) -> None:
    """Write *text* atomically."""
    beside = path.with_name(f".{path.name}")
    beside.write_text(text, encoding="utf-8")
    os.replace(beside, path)
