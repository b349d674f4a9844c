"""A small core is compiled by what compiles ours: it answers alike, and what cannot be compiled is named."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.building import compile_core

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "scripts/building/compile_core.py"


def compiled(tree: Path, **environ: str) -> "subprocess.CompletedProcess[str]":
    """How compiling *tree*/core in place ended."""
    asked = [sys.executable, str(PROGRAM), "--in-place", str(tree)]
    env = {"PATH": os.environ["PATH"], "PYTHONSAFEPATH": "1", **environ}
    return subprocess.run(asked, env=env, capture_output=True, text=True, check=False, timeout=280)


def small(tree: Path, text: str) -> Path:
    """*tree* with a core of two files, of which one is *text* and the other is never compiled."""
    (tree / "core").mkdir()
    for name, content in (
        ("__init__.py", ""),
        ("units.py", text),
        ("errors.py", "class OursError(RuntimeError): ...\n"),
    ):
        (tree / "core" / name).write_text(content)
    return tree


def test_every_file_that_is_left_out_is_there_and_has_a_reason():
    for pattern, reason in compile_core.INTERPRETED.items():
        assert list(ROOT.glob(pattern)), pattern
        assert reason


def test_all_of_core_is_compiled_but_what_is_left_out():
    files = set(compile_core.sources(ROOT))
    assert {
        "core/ledger.py",
        "core/placing/decide.py",
        "core/sharing/fit.py",
        "core/admission/mutate.py",
    } <= files
    assert not {"core/errors.py", "core/wire/pods.py", "core/dialects/vgpu/dialect.py"} & files
    every = {path.relative_to(ROOT).as_posix() for path in (ROOT / "core").rglob("*.py") if path.name != "__init__.py"}
    assert len(every - files) < len(every) / 3


def test_without_a_compiler_core_is_left_as_it_is_and_the_status_says_so(tmp_path):
    done = compiled(small(tmp_path, "def one() -> int:\n    return 1\n"), CC="no-such-compiler")
    assert done.returncode == compile_core.NO_COMPILER
    assert "there is no C compiler (no-such-compiler; Debian: apt-get install gcc libc6-dev)" in done.stderr
    assert "core runs interpreted" in done.stderr
    assert {path.name for path in (tmp_path / "core").iterdir()} == {"__init__.py", "units.py", "errors.py"}


def test_what_is_compiled_runs_beside_what_is_not(tmp_path):
    done = compiled(small(tmp_path, "from core.errors import OursError\n\ndef one() -> int:\n    raise OursError\n"))
    if done.returncode == compile_core.NO_COMPILER:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    shown = subprocess.run(
        [sys.executable, "-c", "from core import errors, units; print(units.__file__, errors.__file__)\nunits.one()"],
        env={"PYTHONPATH": str(tmp_path), "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    units, errors = map(Path, shown.stdout.split())
    assert (units.parent, units.suffix) == (tmp_path / "core", ".so")
    assert errors == tmp_path / "core" / "errors.py"
    assert "OursError" in shown.stderr


def test_the_file_that_cannot_be_compiled_is_named(tmp_path):
    done = compiled(small(tmp_path, "class Wrong(RuntimeError):\n    pass\n"))
    if done.returncode == compile_core.NO_COMPILER:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 1
    assert "core/units.py:1: error: " in done.stderr
    assert "name it in INTERPRETED of compile_core.py with the reason" in done.stderr


# What mypyc 2.4 makes of this drops a reference that it has not taken, where somebody is under way.
UNSET = """
from typing import Final


class Store:
    def __init__(self) -> None:
        self.selected: Final[dict[str, None]] = {}


class Work:
    def __init__(self, held: Store) -> None:
        self._held: Final = held
        self._under_way: Final[dict[str, None]] = {}

    @property
    def _store(self) -> Store:
        return self._held

    def next_s(self) -> float:
        return 1.0 if self._under_way or self._store.selected else 2.0
"""


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_what_would_read_memory_that_was_never_set_is_refused_and_other_words_for_it_are_not(tmp_path, compiler):
    (tmp_path / "sound").mkdir()
    sound = UNSET.replace("self._under_way or self._store.selected", "len(self._under_way) + len(self._store.selected)")
    done = compiled(small(tmp_path / "sound", sound), CC=compiler)
    if done.returncode == compile_core.NO_COMPILER:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    done = compiled(small(tmp_path, UNSET), CC=compiler)
    assert done.returncode == 1
    assert "__native_core_others.c" in done.stderr
    assert "uninitialized" in done.stderr
