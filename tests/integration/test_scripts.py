"""Scripts refuse what they do not know instead of running as if nothing was given."""

import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.mark.parametrize("name", ["setup", "rules"])
def test_a_flag_that_does_not_exist_is_2_and_named(name):
    done = subprocess.run([SCRIPTS / name, "--bogus"], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert f"scripts/{name}: found '--bogus'" in done.stderr
