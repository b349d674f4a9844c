"""Scenarios are played on the embedded cluster here; those of a real API server are in e2e/."""

import os
from functools import partial
from pathlib import Path

import pytest

from sandbox.demo.stage import running_stage
from tests.support.controller_rig import OpensRig, OpensStage
from tests.support.rig_double import double_rig


@pytest.fixture
def rig(tmp_path: Path) -> OpensRig:
    """See `tests.support.controller_rig`."""
    return partial(double_rig, tmp_path)


@pytest.fixture
def staged(tmp_path: Path) -> OpensStage:
    """See `tests.support.controller_rig`."""
    return partial(running_stage, tmp_path, os.environ)
