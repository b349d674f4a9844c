"""What scripts/release builds: kubectl-cards as one file, bills of materials, the chart, and versions that agree."""

import asyncio
import io
import json
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.support.release import build, onefile
from tests.support.release.sbom import sbom
from tests.support.servers.helm import CHART
from tests.support.worlds.controller_rig import NODES
from tests.support.worlds.rig_double import double_rig

# To pack all of it takes 5 s of CPU, and whoever comes first waits for that.
pytestmark = pytest.mark.timeout(600)
ROOT = build.ROOT
LOCKS = ("requirements.lock", "requirements-cli.lock")


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    path = tmp_path_factory.mktemp("one") / "kubectl-cards"
    onefile.build(path)
    return path


def test_every_file_says_the_same_version():
    assert list(build.mistakes(build.version())) == []
    assert len(list(build.mistakes("9.9.9"))) == 5


def test_the_one_file_runs_on_a_python_that_has_nothing_else(one):
    assert build.run_alone(one, "--version") == f"kubectl-cards {build.version()}\n"
    assert build.run_alone(one, "get").startswith("kubectl cards: ")
    assert one.stat().st_mode & 0o111


def test_the_one_file_unpacks_itself_once(one, tmp_path):
    python = str(Path(sys.base_prefix) / f"bin/python{sys.version_info[0]}.{sys.version_info[1]}")
    command = [python, "-I", "-S", str(one), "get", "--kubeconfig", str(tmp_path / "none")]
    for _ in range(2):
        ended = subprocess.run(command, env={"HOME": str(tmp_path)}, capture_output=True, text=True, check=False)
        assert (ended.returncode, ended.stdout) == (2, "")
    assert len(list((tmp_path / ".cache/kubectl-cards").iterdir())) == 1


async def test_the_one_file_lists_cards(one, tmp_path):
    async with double_rig(tmp_path, NODES) as world:
        kubeconfig = await asyncio.to_thread(world.write_admins_kubeconfig)
        said = await asyncio.to_thread(build.run_alone, one, "get", "--kubeconfig", str(kubeconfig))
        assert "GPU-t4-a-0" in said


def test_a_folder_that_cannot_be_written_to_is_one_line(one, tmp_path):
    (tmp_path / ".cache").write_text("no folder")
    python = str(Path(sys.base_prefix) / f"bin/python{sys.version_info[0]}.{sys.version_info[1]}")
    command = [python, "-I", "-S", str(one), "--version"]
    ended = subprocess.run(command, env={"HOME": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert re.fullmatch(r"kubectl cards: it cannot unpack itself \(.*XDG_CACHE_HOME\n", ended.stderr)


def test_what_the_one_file_holds_is_locked_as_for_the_processes():
    whole = onefile.locked((ROOT / LOCKS[0]).read_text())
    small = onefile.locked((ROOT / LOCKS[1]).read_text())
    assert small.keys() < whole.keys()
    assert small == {name: whole[name] for name in small}


@pytest.mark.parametrize("lock", LOCKS)
def test_a_bill_names_every_package_of_the_lock_with_its_hashes(lock):
    text = (ROOT / lock).read_text()
    bill = json.loads(sbom(text, name="x", version="1"))
    assert {one["name"]: one["version"] for one in bill["components"]} == onefile.locked(text)
    hashes = [one["value"] for part in bill["components"] for one in part["properties"] if "sha256" in one["name"]]
    assert sorted(hashes) == sorted(re.findall(r"--hash=sha256:([0-9a-f]{64})", text))
    assert bill["dependencies"][0]["dependsOn"] == [one["bom-ref"] for one in bill["components"]]
    assert all(one.get("licenses") for one in bill["components"] if one["name"] in {"aiohttp", "pyyaml", "msgspec"})


def test_the_packed_chart_is_the_chart_and_the_same_every_time():
    packed = build._packed(CHART)
    assert packed == build._packed(CHART)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        texts = {entry.name: archive.extractfile(entry) for entry in archive if entry.isfile()}
        found = {name: text.read() for name, text in texts.items() if text is not None}
    expected = {
        f"cardshare/{path.relative_to(CHART)}": path.read_bytes() for path in CHART.rglob("*") if path.is_file()
    }
    assert found == expected
