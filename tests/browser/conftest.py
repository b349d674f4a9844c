"""One browser for all tests of the page."""

from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio

from tests.support.browser.chromium import launched


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def chromium() -> AsyncIterator[Any]:
    """The browser; each test has a context of its own in it."""
    async with launched() as browser:
        yield browser
