"""A wheel has core compiled where this machine can compile it, and is for every machine otherwise."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest

from scripts.building import compile_core

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Our project with next to nothing in its packages."""
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "scripts/building", tmp_path / "scripts/building")
    for package in PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    (tmp_path / "core" / "units.py").write_text("def one() -> int:\n    return 1\n")
    return tmp_path


def wheel(tree: Path, **environ: str) -> "subprocess.CompletedProcess[str]":
    asked = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", "made", "."]
    env = {"PATH": os.environ["PATH"], "HOME": str(tree), "PYTHONSAFEPATH": "1", **environ}
    return subprocess.run(asked, cwd=tree, env=env, capture_output=True, text=True, check=False, timeout=110)


def made(tree: Path) -> tuple[str, set[str]]:
    """The name of the wheel in *tree*, and what of core is in it."""
    (path,) = (tree / "made").iterdir()
    names = {name.partition(".")[0] + Path(name).suffix for name in ZipFile(path).namelist()}
    return path.name, {name for name in names if name.startswith("core")}


@pytest.mark.parametrize("environ", [{"CARDSHARE_CORE": "interpreted"}, {"CC": "no-such-compiler"}])
def test_without_a_compiler_or_where_one_wants_it_so_a_wheel_is_for_every_machine(tree, environ):
    done = wheel(tree, **environ)
    assert done.returncode == 0, done.stderr
    name, files = made(tree)
    assert name.endswith("-py3-none-any.whl")
    assert files == {"core/__init__.py", "core/units.py"}


def test_a_wheel_that_must_be_compiled_and_cannot_be_is_not_made(tree):
    assert wheel(tree, CC="no-such-compiler", CARDSHARE_CORE="compiled").returncode != 0
    assert not list((tree / "made").glob("*"))


def test_with_a_compiler_a_wheel_has_core_compiled_beside_its_sources(tree):
    done = wheel(tree)
    assert done.returncode == 0, done.stderr
    name, files = made(tree)
    if name.endswith("-py3-none-any.whl"):
        pytest.skip("no C compiler here")
    assert files == {"core/__init__.py", "core/units.py", "core/units.so", "core_others__mypyc.so"}


def test_what_an_isolated_build_installs_is_what_is_locked():
    asked = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]["dependencies"]
    lock = (ROOT / "requirements-compile.lock").read_text()
    assert [one for one in asked if f"\n{one} \\\n" not in lock] == []
    assert compile_core.NO_COMPILER == 3
