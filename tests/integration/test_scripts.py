"""Scripts refuse what they do not know instead of running as if nothing was given, and on which core they run."""

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.mark.parametrize("name", ["setup", "rules"])
def test_a_flag_that_does_not_exist_is_2_and_named(name):
    done = subprocess.run([SCRIPTS / name, "--bogus"], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert f"scripts/{name}: found '--bogus'" in done.stderr


@pytest.mark.parametrize(
    ("words", "core"),
    [
        (["packing", "--list", "default"], "compiled"),
        (["decide"], "compiled"),
        (["--interpreted", "decide"], ""),
        (["--list"], ""),
        (["decide", "--help"], ""),
    ],
)
def test_what_measures_runs_compiled_unless_it_only_tells_of_itself(tmp_path, words, core):
    for name, says in (("scripts/setup", ":"), ("scripts/compile", "echo compiled"), (".venv/bin/python", "env")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"#!/bin/sh\n{says}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "scripts" / "building").mkdir()
    script = shutil.copy(SCRIPTS / "building" / "on_core", tmp_path / "scripts" / "building")
    done = subprocess.run([script, "tests.bench", *words], capture_output=True, text=True, check=True, timeout=60)
    before = f"{core}:" if core else ""
    assert f"PYTHONPATH={before}{tmp_path}" in done.stdout.splitlines()
