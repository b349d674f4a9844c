"""What an example needs of its cluster that is not shipped so: settings, and manifests of deploy/ that stand apart.

It is so for as long as the example is played, and as it was before afterwards: others show what is shipped.
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
    """As long as this lasts, *stage* is as *cluster* says; the controller sees an edit of settings within a second.

    The webhook is waited for, at both ends: one that has just taken other settings knows no cards yet, and would not
    warn of what is applied next.

    Args:
        stage: where the example is played.
        cluster: nothing is done where it asks for nothing.
        tell: takes a line for people of all that is done.

    Raises:
        ProcessFailedError: the webhook does not take the settings.
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
    """Write *texts*, which say something else, and wait until a webhook that runs has taken them and knows the cards.

    Raises:
        ProcessFailedError: it does not take them.
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
    """How often the webhook has taken settings anew; None where nobody answers."""
    try:
        return await reloads(f"{product.webhook_url}/metrics")
    except aiohttp.ClientError:
        return None


def _documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def _replace(path: Path, text: str) -> None:
    """Write *text* so that nobody reads a part of it."""
    beside = path.with_name(f".{path.name}")
    beside.write_text(text, encoding="utf-8")
    os.replace(beside, path)
