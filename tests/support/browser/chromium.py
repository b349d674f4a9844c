"""Debian's Chromium, driven by Playwright."""

import importlib.util
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

LOCK: Final = Path(__file__).resolve().parents[3] / "requirements-browser.lock"
# The sandbox of Chromium's needs rights that root in a container lacks; only pages of ours are opened.
_WITHIN_MS: Final = 120_000
_FLAGS: Final = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")


def path() -> str | None:
    """Where Chromium is."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


def required() -> str:
    """Where Chromium is; skips the test where it is not, or fails it where CARDSHARE_BROWSER says ``required``."""
    found = path()
    if found is not None and importlib.util.find_spec("playwright") is not None:
        return found
    why = "no Chromium, or nothing that drives it: PYTHONPATH=. .venv/bin/python -m tests.support.browser"
    if os.environ.get("CARDSHARE_BROWSER") == "required":
        pytest.fail(why)
    pytest.skip(why)


@asynccontextmanager
async def launched() -> AsyncIterator[Any]:
    """A browser."""
    program = required()
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=list(_FLAGS))
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def opened(browser: Any = None, **options: Any) -> AsyncIterator[Any]:
    """A context of *browser*, or of one of its own; its pages share what they store.

    *options*: as `Browser.new_context` has them.
    """
    if browser is None:
        async with launched() as own, opened(own, **options) as context:
            yield context
        return
    context = await browser.new_context(**options)
    context.set_default_timeout(_WITHIN_MS)
    try:
        yield context
    finally:
        await context.close()
