"""Scenarios are played on the embedded cluster here, and on a real API server in e2e/.

A run that collects both plays the long ones on the real server alone, if this machine has one.
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
from tests.support.worlds.rig_double import double_rig
from tests.support.worlds.scenarios import LONG, again

HERE: Final = Path(__file__).parent

__all__ = ["authority", "rig", "server", "shared_stage", "staged", "transport"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the long scenarios that e2e/ plays in the same run."""
    played = {item.name for item in items if item.nodeid.startswith("tests/e2e/test_scenarios.py")}
    if not played or not _real_api_server():
        return
    twice = [item for item in items if item.path.parent == HERE and item.path.stem in LONG]
    twice = [item for item in twice if again(item.path.stem, item.name) in played]
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
    async with running_stage(tmp_path_factory.mktemp("stage"), os.environ) as stage:
        yield stage
        await end(stage)


@pytest.fixture
def staged(tmp_path: Path) -> OpensStage:
    """See `tests.support.worlds.controller_rig`."""
    return ending_with_audit(partial(running_stage, tmp_path, os.environ))
