"""Fixtures around one real API server, started once for all tests that ask for it.

Without binaries these tests are skipped, with the reason; with `CARDSHARE_REALAPI=required` they fail instead, so that
a machine that is meant to run them cannot pass without. `CARDSHARE_REALAPI_LOGS` names a folder for the servers' logs;
otherwise they are where pytest keeps temporary files.
"""

import os
import secrets
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio

from sandbox.demo.stage import Stage
from tests.support.servers.prepared import Prepared, prepare
from tests.support.servers.realapi import RealApi
from tests.support.servers.realapi_binaries import Binaries, RealApiUnavailable, find
from tests.support.servers.request_log import write_policy
from tests.support.servers.rest import Rest, connect
from tests.support.servers.stage_prepared import real_stage
from tests.support.servers.stage_realapi import Installed, installed_stage
from tests.support.worlds.controller_rig import OpensRig, OpensStage
from tests.support.worlds.ending import end, ending_with_audit
from tests.support.worlds.rig_realapi import real_rig


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def realapi(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RealApi]:
    """The server, shared: a test keeps to its own namespace and nodes, and leaves the server running."""
    async with RealApi(binaries_or_skip(), logs=logs_folder("shared", tmp_path_factory)) as api:
        yield api


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def installed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Installed]:
    """The product installed by its manifests, on a server of its own: its webhook would judge other tests' pods too.

    Shared: a test leaves no pods behind.
    """
    logs = logs_folder("installed", tmp_path_factory)
    logs.mkdir(parents=True, exist_ok=True)
    audit = write_policy(logs)
    async with (
        RealApi(binaries_or_skip(), logs=logs, apiserver_args=audit) as api,
        installed_stage(api, tmp_path_factory.mktemp("installed")) as stage,
    ):
        yield stage
        await end(stage.stage)


@pytest.fixture
def shared_stage(installed: Installed) -> Stage:
    """The stage of the product as installed, for tests that leave no pods behind."""
    return installed.stage


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def prepared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Prepared]:
    """A server with the manifests applied, where scenarios are played one after the other."""
    logs = logs_folder("scenarios", tmp_path_factory)
    logs.mkdir(parents=True, exist_ok=True)
    audit = write_policy(logs)
    async with RealApi(binaries_or_skip(), logs=logs, apiserver_args=audit) as api:
        yield await prepare(api, tmp_path_factory.mktemp("prepared"))


@pytest.fixture
def rig(prepared: Prepared, tmp_path: Path, request: pytest.FixtureRequest) -> OpensRig:
    """See `tests.support.worlds.controller_rig`."""
    return ending_with_audit(partial(real_rig, prepared, tmp_path, request.node.name))


@pytest.fixture
def staged(prepared: Prepared, tmp_path: Path, request: pytest.FixtureRequest) -> OpensStage:
    """See `tests.support.worlds.controller_rig`."""
    return ending_with_audit(partial(real_stage, prepared, tmp_path, request.node.name))


def binaries_or_skip() -> Binaries:
    """Where the programs are; without them the test is skipped, or fails where it must not be."""
    try:
        return find(os.environ)
    except RealApiUnavailable as e:
        if os.environ.get("CARDSHARE_REALAPI") == "required":
            pytest.fail(f"no real API server: {e.reason}", pytrace=False)
        pytest.skip(f"no real API server: {e.reason}")


def logs_folder(name: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the logs of one server and what runs beside it go."""
    named = os.environ.get("CARDSHARE_REALAPI_LOGS")
    return Path(named) / name if named else tmp_path_factory.mktemp(f"realapi-{name}")


@pytest_asyncio.fixture
async def admin(realapi: RealApi) -> AsyncIterator[Rest]:
    """The server as a member of system:masters sees it."""
    async with connect(realapi.url, realapi.ca_file, realapi.admin_token) as rest:
        yield rest


@pytest_asyncio.fixture
async def namespace(admin: Rest) -> AsyncIterator[str]:
    """The name of a namespace of the test's own.

    Its pods go with the test, or the next one's scheduler would see them. The namespace stays behind as Terminating:
    finishing it is a controller's work, and none runs here.
    """
    name = f"test-{secrets.token_hex(4)}"
    await admin.made("/api/v1/namespaces", {"metadata": {"name": name}})
    yield name
    await admin.delete(f"/api/v1/namespaces/{name}/pods", {"gracePeriodSeconds": 0})
    await admin.delete(f"/api/v1/namespaces/{name}")


@pytest_asyncio.fixture
async def node(admin: Rest) -> AsyncIterator[str]:
    """The name of a node of the test's own, with room for pods."""
    name = f"node-{secrets.token_hex(4)}"
    room = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    await admin.made(
        "/api/v1/nodes",
        {
            "metadata": {"name": name},
            "status": {"allocatable": room, "capacity": room, "conditions": [{"type": "Ready", "status": "True"}]},
        },
    )
    yield name
    await admin.delete(f"/api/v1/nodes/{name}")
