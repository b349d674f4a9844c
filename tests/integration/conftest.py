"""Scenarios are played on the embedded cluster here; those of a real API server are in e2e/."""

from functools import partial
from pathlib import Path

import pytest

from tests.support.controller_rig import OpensRig
from tests.support.rig_double import double_rig


@pytest.fixture
def rig(tmp_path: Path) -> OpensRig:
    """See `tests.support.controller_rig`."""
    return partial(double_rig, tmp_path)
