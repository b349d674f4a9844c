"""Scenarios are played on the embedded cluster here; those of a real API server are in e2e/."""

import os
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio

from sandbox.demo.stage import Stage, running_stage
from tests.support.servers.failing_api import authority, server, transport
from tests.support.worlds.controller_rig import OpensRig, OpensStage
from tests.support.worlds.ending import end, ending_with_audit
from tests.support.worlds.rig_double import double_rig

__all__ = ["authority", "rig", "server", "shared_stage", "staged", "transport"]


@pytest.fixture
def rig(tmp_path: Path) -> OpensRig:
    """See `tests.support.worlds.controller_rig`."""
    return ending_with_audit(partial(double_rig, tmp_path))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """One stage with the product installed, for tests that leave no pods behind."""
    async with running_stage(tmp_path_factory.mktemp("stage"), os.environ) as stage:
        yield stage
        await end(stage)


@pytest.fixture
def staged(tmp_path: Path) -> OpensStage:
    """See `tests.support.worlds.controller_rig`."""
    return ending_with_audit(partial(running_stage, tmp_path, os.environ))
