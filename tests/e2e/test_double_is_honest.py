"""The sandbox's API server and a real one give the same answers, promise by promise, and the kept ones still hold."""

import os
import subprocess
from collections.abc import AsyncIterator
from functools import cache
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.promises.promises import Server, kept, kept_by, load
from tests.support.promises.promises_servers import double, pinned_kubectl, pinned_version, real
from tests.support.servers.realapi import RealApi


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def sandbox(realapi: RealApi, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    folder: Path = tmp_path_factory.mktemp("double")
    async with double(folder, realapi.binaries.kubectl) as server:
        yield server


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("name", load())
async def test_both_servers_keep(realapi: RealApi, sandbox: Server, name: str):
    kubectl = realapi.binaries.kubectl
    if name.startswith("kubectl_") and kubectl is None:
        pytest.skip("no kubectl: nothing shows what it makes of the servers' answers")
    theirs = await kept_by(real(realapi), name)
    assert await kept_by(sandbox, name) == theirs
    if is_pinned(realapi):
        assert kept()[name] == theirs


@cache
def is_pinned(realapi: RealApi) -> bool:
    """Whether the programs are those whose answers are kept; named ones may be of another version."""
    asked = subprocess.run([realapi.binaries.kube_apiserver, "--version"], capture_output=True, text=True, check=True)
    same = asked.stdout.split()[-1] == pinned_version()
    return same and realapi.binaries.kubectl == pinned_kubectl(os.environ)
