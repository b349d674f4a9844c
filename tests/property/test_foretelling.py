"""500 random changes: whole controllers do what a simulation said before, pod by pod and card by card."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.demo.processes import clean_environ

# How long it takes is the machine's: what it may cost is bounded by `--changes`.
pytestmark = pytest.mark.timeout(0)

ROOT = Path(__file__).parents[2]


def foretold(changes, seed, breaks=""):
    """The exit status and what is told."""
    program = (
        "from tests.support.twin import clock; clock.install()\n"
        "import controller.simulating.cluster\n"
        f"{breaks}\n"
        "from tests.support.twin.foretelling import main\n"
        f"raise SystemExit(main(['--changes', '{changes}', '--seed', '{seed}']))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**clean_environ(os.environ), "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    return ran.returncode, ran.stdout + ran.stderr


@pytest.mark.parametrize("seed", range(2))
def test_what_was_simulated_happens(seed):
    status, told = foretold(250, seed)
    assert status == 0, told
    for kind in ("added placed", "added waits", "drained placed", "drained waits", "drained ended", "waited placed"):
        assert f" pods: {kind}\n" in told, told


def test_a_simulation_that_forgets_to_cordon_is_found():
    status, told = foretold(100, 0, "controller.simulating.cluster.SimulatedCluster.cordon = lambda self, name: None")
    assert status == 1, told
    assert "differences" in told
