"""A dialect is one folder and its entry in the catalog: in a copy of the tree with one more, all know it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.test_walls import LINTER, ROOT

CATALOG = Path("core/catalog.py")
LAST = "    *HAMI_VENDORS,\n"
IMPORT = "from core.dialects.vgpu.dialect import DIALECT as VGPU\n"


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    tree: Path = tmp_path_factory.mktemp("tree")
    for name in (*LINTER["root_packages"], "deploy", "tests/support"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in ("pyproject.toml", "tests/__init__.py"):
        if (ROOT / path).exists():
            shutil.copy(ROOT / path, tree / path)
    folder = tree / "core/dialects/toy"
    folder.mkdir()
    (folder / "__init__.py").write_text('"""The toy dialect."""\n')
    shutil.copy(ROOT / "tests/support/devices/toy.py", folder / "dialect.py")
    text = (tree / CATALOG).read_text()
    assert text.count(IMPORT) == text.count(LAST) == 1
    text = text.replace(IMPORT, "from core.dialects.toy.dialect import DIALECT as TOY\n" + IMPORT)
    (tree / CATALOG).write_text(text.replace(LAST, f"{LAST}    TOY,\n"))
    return tree


@pytest.fixture(scope="module")
def known(tree: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.support.devices.toy_probe"]
    environ = {"PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1", "PATH": ""}
    found = subprocess.run(command, cwd=tree, env=environ, capture_output=True, text=True, timeout=100, check=False)
    assert found.returncode == 0, found.stderr
    return dict(json.loads(found.stdout))


def test_its_pods_are_completed_protected_and_denied(known):
    found = known["admission"]
    assert found["new"]["allowed"]
    assert '"rough"' in found["new"]["patch"]
    assert '"cardshare"' in found["new"]["patch"]
    assert "toy.example/memory" in found["mixed"]["message"]
    assert not found["mixed"]["allowed"]
    assert found["plugin"]["allowed"]
    assert not found["forged"]["allowed"]
    assert "toy.example/held" in found["forged"]["message"]


def test_configurations_name_it(known):
    assert known["configuration"] == {"listed": [True, []], "on": [True, []], "off": [False, []]}


def test_its_pods_are_placed_handed_over_and_explained(known):
    assert known["bind"] == ["n1", {"toy.example/held": "0/6/0"}]
    assert known["in_flight"] == 1
    assert "16 of 99 MiB in total" in json.dumps(known["explained"])


def test_its_cards_are_shown_and_measured(known):
    assert 'toy_memory_used{devID="0",NodeName="n1"} 6\n' in known["metrics"]
    assert "protocol='toy'" in known["cards"]


def test_its_lock_is_taken_and_its_config_maps_are_read(known):
    assert known["lock"] == "toy"
    assert known["documents"] == {"toy": "well"}


def test_manifests_name_its_keys_resources_and_accounts(known):
    admission, policy = known["manifests"]["admission.yaml"], known["manifests"]["policy.yaml"]
    for text in (admission, policy):
        assert text.count("'toy.example/memory'") == text.count("'volcano.sh/gpu-memory'") > 0
        assert "'toy.example/held'" in text
        assert "'toy.example/state'" in text
        assert "system:serviceaccount:kube-system:toy-plugin" in text
        assert "'toy.example/mode'" in text


def test_no_wall_is_in_its_way(tree):
    linter = Path(sys.executable).with_name("lint-imports")
    found = subprocess.run([linter, "--no-cache"], cwd=tree, capture_output=True, text=True, timeout=100, check=False)
    assert found.returncode == 0, found.stdout
