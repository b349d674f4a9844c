"""Scripts refuse what they do not know instead of running as if nothing was given, and on which core they run."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "scripts"


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


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["tests.bench", "bogus"], "invalid choice: 'bogus'"),
        (["tests.bench", "decide", "--bogus"], "unrecognized arguments: --bogus"),
        (["tests.bench", "decide", "--nodes=0"], "argument --nodes: found 0; write at least 1"),
        (["tests.chaos", "--seed=a"], "argument --seed: invalid int value: 'a'"),
    ],
    ids=["name", "option", "number", "chaos"],
)
def test_what_cannot_be_run_is_told_before_core_is_compiled(tmp_path, words, problem):
    for name in {path.name for path in ROOT.iterdir()} - {".venv", "scripts"}:
        (tmp_path / name).symlink_to(ROOT / name)
    for name, says in (
        ("scripts/setup", ":"),
        ("scripts/compile", "echo compiling >&2"),
        (".venv/bin/python", f'exec {sys.executable} "$@"'),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"#!/bin/sh\n{says}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "scripts" / "building").mkdir()
    script = shutil.copy(SCRIPTS / "building" / "on_core", tmp_path / "scripts" / "building")
    done = subprocess.run([script, *words], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert problem in done.stderr
    assert "compiling" not in done.stderr


@pytest.mark.parametrize("compiles", [True, False])
def test_what_ran_compiled_is_not_run_again_unless_it_leans_on_an_interpreted_core(tmp_path, compiles):
    processes = ("conform_all", "controller_process", "webhook_process", "chaos")
    texts = {
        "scripts/setup": "#!/bin/sh\n",
        "scripts/compile": f"#!/bin/sh\nexit {0 if compiles else 3}\n",
        ".venv/bin/python": '#!/bin/sh\necho "$@"\n',
        "tests/unit/core/test_core.py": "",
        "tests/unit/conform/test_conform.py": "",
        "tests/property/test_law.py": "",
        "tests/property/laws/test_more.py": "",
        "tests/property/test_leaning.py": "@pytest.mark.interpreted(reason='')",
        **{f"tests/integration/test_{name}.py": "" for name in processes},
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    script = shutil.copy(SCRIPTS / "test", tmp_path / "scripts")
    done = subprocess.run([script, "--uncompiled", "-q"], capture_output=True, text=True, check=True, timeout=60)
    ignored = {f"--ignore={name}" for name in texts if name.startswith("tests/") and "leaning" not in name}
    assert {word for word in done.stdout.split() if "ignore" in word} == (ignored if compiles else set())
    assert all((ROOT / "tests" / "integration" / f"test_{name}.py").is_file() for name in processes)
