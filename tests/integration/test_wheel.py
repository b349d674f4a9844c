"""A wheel has core compiled where this machine can compile it, and is for every machine otherwise."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from contextlib import suppress
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from zipfile import ZipFile

import pytest

from core.names import VERSION
from scripts.building import compile_core
from scripts.building.release import onefile
from tests.integration.test_offline_image import pack

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


def wheel(tree: Path, *more: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    asked = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        *(more or ("-q",)),
        "--no-deps",
        "--no-build-isolation",
        "-w",
        "made",
        ".",
    ]
    env = {"PATH": os.environ["PATH"], "HOME": str(tree), "PYTHONSAFEPATH": "1", **environ}
    return subprocess.run(asked, cwd=tree, env=env, capture_output=True, text=True, check=False, timeout=280)


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


def test_if_core_cannot_be_compiled_a_wheel_has_it_interpreted_and_a_line_says_so(tree):
    (tree / "core" / "units.py").write_text("class Wrong(RuntimeError):\n    pass\n")
    done = wheel(tree, "-v")
    assert done.returncode == 0, done.stderr
    name, files = made(tree)
    assert name.endswith("-py3-none-any.whl")
    assert files == {"core/__init__.py", "core/units.py"}
    assert "the wheel has it interpreted" in done.stdout + done.stderr
    assert wheel(tree, CARDSHARE_CORE="compiled").returncode != 0 or "no C compiler" in done.stdout + done.stderr


# What core leans on: Structs by arguments of their class, and types of arrays.
LEANS = """
import msgspec
import numpy as np
from numpy.typing import NDArray

from core.wire.objects import ObjectMeta

Numbers = NDArray[np.int64]


def one(numbers: Numbers) -> int:
    return int(numbers[0])
"""
# Compiling all of core takes minutes.
ONLY = 'def is_interpreted(file: str) -> bool:\n    return file != "core/leans.py"\n\n\n'


@pytest.fixture
def index(tmp_path_factory):
    """Wheels of what the lock names: of a real index, pip reads each file that there ever was of a package."""
    folder, scratch = tmp_path_factory.mktemp("index"), tmp_path_factory.mktemp("scratch")
    for package, version in onefile.locked((ROOT / "requirements-dev.lock").read_text(encoding="utf-8")).items():
        with suppress(PackageNotFoundError):  # of another system
            pack(package, version, folder, scratch)
    return folder


def test_the_documented_command_installs_the_command_line_in_pips_own_build(tree, index, tmp_path_factory):
    page = (ROOT / "docs/operators/kubectl-cards.md").read_text(encoding="utf-8")
    block = page.partition("\n## Install\n")[2].partition("```\n")[2].partition("kubectl plugin list\n```")[0]
    assert re.search(r"^CARDSHARE_CORE=interpreted \S+/pip install \.$", block, re.MULTILINE)
    for package in ("cli", "kube", "runtime", "core"):
        shutil.copytree(ROOT / package, tree / package, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.so"))
    (tree / "core" / "leans.py").write_text(LEANS)
    compiles = tree / "scripts/building/compile_core.py"
    compiles.write_text(compiles.read_text().replace("if __name__", f"{ONLY}if __name__"))
    home = tmp_path_factory.mktemp("home")
    # A build of its own has to compile: tests above show that nothing is compiled where one wants it so.
    done = documented(tree, block.replace("CARDSHARE_CORE=interpreted ", ""), home, index)
    assert done.stdout.splitlines()[-1] == f"kubectl-cards {VERSION}"
    made = {path.suffix for path in home.rglob("site-packages/core/leans.*")}
    assert made == ({".py", ".so"} if shutil.which("cc") else {".py"})


def documented(tree, block, home, index):
    """How a page's commands end in *tree*, with `kubectl cards --version` after them."""
    # Bytecode of what is installed would take half of the time, and nothing here runs twice.
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "PIP_COMPILE": "0"}
    env |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index)}
    words = ["bash", "-ec", f"{block}\n[ ! -e ~/.local/bin ] || ~/.local/bin/kubectl-cards --version"]
    done = subprocess.run(words, cwd=tree, env=env, capture_output=True, text=True, check=False, timeout=560)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_what_an_isolated_build_installs_is_what_is_locked():
    asked = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]["dependencies"]
    lock = "".join((ROOT / name).read_text() for name in ("requirements-compile.lock", "requirements.lock"))
    assert [one for one in asked if f"\n{one} \\\n" not in lock] == []
    assert compile_core.NO_COMPILER == 3
