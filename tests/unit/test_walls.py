"""The walls between the rooms hold: each is broken on purpose in a copy of the tree, and the check sees it."""

import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
LINTER = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
CONTRACTS: Mapping[str, Mapping[str, Any]] = {one["name"]: one for one in LINTER["contracts"]}


def file_of(module: str) -> Path:
    """The file that *module* is, or the first of the room that it is."""
    path = Path(*module.split("."))
    if (ROOT / path).is_dir():
        return next(one.relative_to(ROOT) for one in sorted((ROOT / path).rglob("*.py")) if one.name != "__init__.py")
    return path.with_suffix(".py")


def breaches(name: str) -> Iterator[tuple[str, str]]:
    """(importer, imported) that the contract *name* must forbid, whatever it says, and more that it says it forbids."""
    core = [one for one in children("core") if one != "core.wire"]
    yield from {
        "rooms": [("core.names", "kube.calls"), ("runtime.backoff", "kube.calls"), ("webhook", "controller")],
        "the command line stays outside the processes": [("cli.text", "controller.deciding.pending")],
        "inside the sandbox": [("sandbox.client", "sandbox.cluster")],
        "inside the core": [
            ("core.names", "core.errors"),
            ("core.ledger", "core.placing.decide"),
            ("core.port.spec", "core.catalog"),
        ],
        "no dialect knows another": [("core.dialects.vgpu.mig", "core.dialects.whole_gpu.pool")],
        "only the catalog knows the dialects": [
            (one, "core.dialects.vgpu.keys")
            for one in (
                "core.admission.rules",
                "core.placing.candidates",
                "controller.metrics",
                "webhook.reviews",
                "core.view.cards",
            )
        ],
        "the core is pure": [(one, found) for one in (*core, "core.wire") for found in ("asyncio", "os", "structlog")],
        "msgspec and yaml only in wire": [(one, found) for one in core for found in ("msgspec", "yaml")],
    }.get(name, ())
    contract = CONTRACTS[name]
    match contract["type"]:
        case "layers":
            inside = contract.get("containers", [""])[0]
            rows = [row.split(" | ") for row in contract["layers"]]
            # One in parentheses need not be there.
            layers = [[".".join(filter(None, (inside, one))) for one in row if "(" not in one] for row in rows]
            for above, below in pairwise(layers):
                yield from ((low, high) for low in below for high in above)
            for row in layers:
                yield from pairwise(row)
        case "forbidden":
            allowed = {one.partition(".*")[0] for one in contract.get("ignore_imports", ())}
            for source in contract["source_modules"]:
                for child in set(children(source)) - allowed:
                    yield from ((child, found) for found in contract["forbidden_modules"])


def children(package: str) -> list[str]:
    """The rooms and files right inside *package*."""
    found = [one.stem for one in (ROOT / package).iterdir() if one.suffix == ".py" or (one / "__init__.py").exists()]
    return sorted(f"{package}.{name}" for name in found if name != "__init__")


def module_of(name: str) -> str:
    """What stands for *name* in an import: a file of ours, or a module of others as it is."""
    is_ours = name.partition(".")[0] in LINTER["root_packages"]
    return ".".join(file_of(name).with_suffix("").parts) if is_ours else name


def copied(tree: Path) -> Path:
    """*tree*, with our packages and what is said of their walls."""
    for package in LINTER["root_packages"]:
        shutil.copytree(ROOT / package, tree / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tree)
    return tree


def check(tree: Path) -> Mapping[str, str]:
    """What the check says of each contract that is broken in *tree*."""
    lint = Path(sys.executable).with_name("lint-imports")
    environ = {"PYTHONPATH": str(tree), "COLUMNS": "1000"}
    done = subprocess.run([lint, "--no-cache"], cwd=tree, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    broken = done.stdout.partition("Broken contracts")[2]
    starts = {name: broken.find(f"\n{name}\n---") for name in CONTRACTS}
    ends = sorted([*starts.values(), len(broken)])
    return {name: broken[start : ends[ends.index(start) + 1]] for name, start in starts.items() if start >= 0}


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """What the check says of each contract where all of them are broken."""
    tree = copied(tmp_path_factory.mktemp("tree"))
    for name in CONTRACTS:
        for importer, imported in breaches(name):
            with (tree / file_of(importer)).open("a", encoding="utf-8") as file:
                file.write(f"\n\ndef _breach() -> None:\n    import {module_of(imported)}\n")
    return check(tree)


def test_no_room_is_outside_the_walls():
    rooms = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    layers = {name for row in CONTRACTS["rooms"]["layers"] for name in row.split(" | ")}
    assert rooms == set(LINTER["root_packages"]) == layers


@pytest.mark.parametrize("name", CONTRACTS)
def test_every_breach_of_a_wall_is_seen(name: str, said: Mapping[str, str]):
    expected = {f"{module_of(low)} -> {module_of(high)} " for low, high in breaches(name)}
    assert expected
    assert {breach for breach in expected if breach not in said.get(name, "")} == set()


def test_files_that_no_layer_names_are_seen(tmp_path: Path):
    tree = copied(tmp_path)
    for room in ("core", "controller", "sandbox"):
        (tree / room / "unlisted.py").touch()
    found = check(tree)
    assert {name: f"- {name.removeprefix('inside the ')}.unlisted\n" in text for name, text in found.items()} == {
        "inside the controller": True,
        "inside the core": True,
        "inside the sandbox": True,
    }
