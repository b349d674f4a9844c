"""Scenarios are played on the embedded cluster here, and on a real API server in e2e/.

A run that collects both plays nearly all on the real server alone, if this machine has one.
"""

import os
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from sandbox.demo.stage import Stage, running_stage
from tests.support.servers.failing_api import authority, server, transport
from tests.support.servers.realapi_binaries import RealApiUnavailable, find
from tests.support.worlds.controller_rig import OpensRig, OpensStage
from tests.support.worlds.ending import end, ending_with_audit
from tests.support.worlds.forking import forked
from tests.support.worlds.rig_double import double_rig
from tests.support.worlds.scenarios import OF_RIGHTS, ON_BOTH, again

HERE: Final = Path(__file__).parent
E2E: Final = ("tests/e2e/test_scenarios.py", "tests/e2e/test_rights.py")

__all__ = ["authority", "rig", "server", "shared_stage", "staged", "transport"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the scenarios that e2e/ plays in the same run, but some."""
    e2e = {item.name: item.path.stem for item in items if item.nodeid.startswith(E2E)}
    if not e2e or not _real_api_server():
        return
    of_rights = OF_RIGHTS if "test_rights" in e2e.values() else ()
    here = [item for item in items if item.path.parent == HERE and item.path.stem not in ON_BOTH]
    twice = [item for item in here if again(item.path.stem, item.name) in e2e]
    twice += [item for item in here if f"{item.path.stem}::{item.name}" in of_rights]
    config.hook.pytest_deselected(items=twice)
    left_out = set(twice)
    items[:] = [item for item in items if item not in left_out]


def _real_api_server() -> bool:
    try:
        find(os.environ)
    except RealApiUnavailable:
        return False
    return True


@pytest.fixture
def rig(tmp_path: Path) -> OpensRig:
    """See `tests.support.worlds.controller_rig`."""
    return ending_with_audit(partial(double_rig, tmp_path))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """One stage with the product installed, for tests that leave no pods behind."""
    async with running_stage(tmp_path_factory.mktemp("stage"), os.environ, launch=forked) as stage:
        yield stage
        await end(stage)


@pytest.fixture
def staged(tmp_path: Path) -> OpensStage:
    """See `tests.support.worlds.controller_rig`."""
    return ending_with_audit(partial(running_stage, tmp_path, os.environ, launch=forked))
