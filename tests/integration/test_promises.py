"""The sandbox's API server answers as a real one did when `tests/data/promises.json` was written."""

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.promises.promises import Server, kept, kept_by, load
from tests.support.promises.promises_servers import double

PROMISES = tuple(load())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox() -> AsyncIterator[Server]:
    with tempfile.TemporaryDirectory(prefix="promises-") as folder:
        async with double(Path(folder)) as server:
            yield server


def test_every_promise_has_an_answer_and_every_answer_a_promise():
    assert sorted(kept()) == sorted(PROMISES)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", PROMISES)
async def test_the_sandbox_keeps(sandbox: Server, name: str):
    assert await kept_by(sandbox, name) == kept()[name]
