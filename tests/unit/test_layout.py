"""What the tree promises about itself: scripts explain themselves, locks name hashes and no addresses."""

import ast
import importlib
import json
import os
import re
import subprocess
import tomllib
from itertools import chain
from pathlib import Path
from types import FunctionType

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["root_packages"]
LOCKS = (
    "requirements.lock",
    "requirements-dev.lock",
    "requirements-compile.lock",
    "requirements-fuzz.lock",
    "requirements-node.lock",
    "requirements-docs.lock",
    "requirements-browser.lock",
)
OWN_HELP = ("setup", "check", "test", "lock", "e2e", "compile", "release", "docs", "pictures")


def test_every_script_can_be_run():
    scripts = [*(ROOT / "scripts").iterdir(), ROOT / ".ci" / "run"]
    assert [path.name for path in scripts if path.is_file() and not os.access(path, os.X_OK)] == []


@pytest.mark.parametrize("name", OWN_HELP)
def test_a_script_explains_itself_without_doing_anything(name, tmp_path):
    done = subprocess.run(
        [ROOT / "scripts" / name, "--help"], cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0
    assert done.stdout.startswith(f"scripts/{name}")


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_pins_by_hash_and_tells_no_address(name):
    text = (ROOT / name).read_text()
    pins = [line for line in text.splitlines() if re.match(r"[a-z0-9]", line)]
    assert pins
    assert [line for line in pins if not re.match(r"[a-z0-9._-]+==\S+ .*\\$", line)] == []
    assert text.count("--hash=sha256:") >= len(pins)
    assert "://" not in text
    assert "index-url" not in text


def test_the_lock_of_typescript_pins_by_hash_and_tells_no_address():
    packages = json.loads((ROOT / "tests/tools/typescript/package-lock.json").read_text(encoding="utf-8"))["packages"]
    assert all("integrity" in one for name, one in packages.items() if name)
    assert not any("resolved" in one for one in packages.values())


def test_what_is_locked_is_installed_as_it_stands():
    """A pip that resolves may look at a release newer than the lock, which has no hash there, and end."""
    told = (
        "Dockerfile",
        "scripts/setup",
        "scripts/test",
        "scripts/docs",
        "docs/operators/install.md",
        "docs/zh/operators/install.md",
    )
    commands = [
        command for name in told for command in re.findall(r"\bpip\b.*--require-hashes.*", (ROOT / name).read_text())
    ]
    assert len(commands) >= len(told)
    assert [command for command in commands if "--no-deps" not in command] == []


def test_what_is_installed_to_run_is_imported():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"].values()
    names = {re.split(r"[<>=]", one)[0] for one in (*project["project"]["dependencies"], *chain.from_iterable(extras))}
    modules = {{"pyyaml": "yaml"}.get(name, name.replace("-", "_")) for name in names}
    sources = chain.from_iterable(
        (ROOT / room).rglob("*.py") for room in project["tool"]["importlinter"]["root_packages"]
    )
    text = "\n".join(path.read_text() for path in sources)
    assert {name for name in modules if not re.search(rf"^\s*(import|from) {name}\b", text, re.MULTILINE)} == set()


def test_what_runs_is_locked_alike_for_tests():
    def pins(name: str) -> set[str]:
        return set(re.findall(r"^[a-z0-9._-]+==\S+", (ROOT / name).read_text(), re.MULTILINE))

    assert pins("requirements.lock") <= pins("requirements-dev.lock")
    assert pins("requirements-compile.lock") <= pins("requirements-dev.lock")


def test_no_link_is_kept_that_leads_out_of_the_repository():
    kept = subprocess.run(["git", "ls-files", "--stage"], cwd=ROOT, capture_output=True, text=True, check=False)
    links = [line.partition("\t")[2] for line in kept.stdout.splitlines() if line.startswith("120000 ")]
    assert [one for one in links if not (ROOT / one).resolve().is_relative_to(ROOT.resolve())] == []


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("_")


# Public, whatever their names say: the interface of named tuples, and the end of a process.
PUBLIC = {"_replace", "_fields", "_exit"}


@pytest.mark.parametrize("package", PACKAGES)
def test_no_private_name_of_a_library_is_used(package):
    found = []
    for path in sorted((ROOT / package).rglob("*.py")):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        own = {one.name for one in nodes if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
        own |= {one.attr for one in nodes if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store)}
        own |= {one.id for one in nodes if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
        used = {
            one.attr
            for one in nodes
            if isinstance(one, ast.Attribute) and not (isinstance(one.value, ast.Name) and one.value.id == "self")
        }
        used -= own | PUBLIC
        used |= {part for one in nodes if isinstance(one, ast.ImportFrom) for part in (one.module or "").split(".")}
        used |= {alias.name for one in nodes if isinstance(one, ast.ImportFrom | ast.Import) for alias in one.names}
        found += [(path.relative_to(ROOT), name) for name in used if is_private(name)]
    assert found == []


def test_no_private_name_of_a_library_is_replaced():
    found = []
    for path in chain.from_iterable((ROOT / package).rglob("*.py") for package in PACKAGES):
        if path.name == "__main__.py":
            continue
        module = importlib.import_module(
            ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        )
        for one in vars(module).values():
            if isinstance(one, type) and one.__module__ == module.__name__:
                bases = [base for base in one.__mro__[1:] if base.__module__.partition(".")[0] not in PACKAGES]
                methods = {name for name, value in vars(one).items() if isinstance(value, FunctionType)}
                found += [(one, name) for base in bases for name in methods & set(vars(base)) if is_private(name)]
    assert found == []
