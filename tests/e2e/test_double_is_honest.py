"""A real API server gives the answers, promise by promise, that were kept of one, and so does the sandbox's.

That of the sandbox is put to the kept ones by `integration/test_promises`.
"""

import subprocess
from collections.abc import AsyncIterator
from functools import cache
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.promises.promises import Server, kept, kept_by, load
from tests.support.promises.promises_servers import double, pinned_version, real
from tests.support.servers.realapi import RealApi


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def sandbox(realapi: RealApi, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    folder: Path = tmp_path_factory.mktemp("double")
    async with double(folder) as server:
        yield server


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("name", load())
async def test_both_servers_keep(realapi: RealApi, sandbox: Server, name: str):
    # Named programs may be of another version than that whose answers are kept.
    expected = kept()[name] if is_pinned(realapi) else await kept_by(sandbox, name)
    assert await kept_by(real(realapi), name) == expected


@cache
def is_pinned(realapi: RealApi) -> bool:
    """Whether the server is of the version whose answers are kept."""
    asked = subprocess.run([realapi.binaries.kube_apiserver, "--version"], capture_output=True, text=True, check=True)
    return asked.stdout.split()[-1] == pinned_version()
