"""An upgrade from 0.1.0 and a rollback to it, on one cluster: each version takes over what the other placed.

The controller of 0.1.0 is that of git's history, with its own core and the packages of its own lock. Pods of all device
protocols are placed by it, then by this one, then by it again; the cluster is audited from its objects alone, in the
protocols' own terms.
"""

import asyncio
import hashlib
import io
import os
import random
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from core.names import VERSION
from core.wire.nodes import node_from_object
from core.wire.pods import pod_from_object
from sandbox.demo.outcomes import NOT_REPORTED, unseen
from sandbox.demo.processes import free_port
from sandbox.demo.product import TRUSTED_NAMESPACES
from sandbox.players.registry import DEVICE_CONFIG
from tests.support.devices.mixed import wanted, would_fit
from tests.support.devices.texts import device_tables
from tests.support.worlds.audit import audit
from tests.support.worlds.controller_rig import PODS, pod

ROOT: Final = Path(__file__).parents[2]
# The last commit of version 0.1.0.
OLD: Final = "7d337ee979a6411ada776993611f0528a3512779"
LEASE: Final = "cardshare-system/cardshare-controller"
TABLES: Final = device_tables(DEVICE_CONFIG.read_text(encoding="utf-8"))
T4: Final = {"kind": "vgpu", "model": "Tesla T4", "memory_mib": 15360}
MIG: Final = {"kind": "vgpu", "model": "NVIDIA A100-SXM4-40GB", "memory_mib": 40960, "mode": "mig"}
NODES: Final[list[dict[str, Any]]] = [
    {"name": "t4", "plugin": {**T4, "count": 3}},
    {"name": "mig", "plugin": {**MIG, "count": 2}},
    {"name": "share", "plugin": {"kind": "gpushare", "memory_mib": 11178, "count": 2}},
    {"name": "number", "plugin": {"kind": "gpushare", "strategy": "number", "memory_mib": 11178, "count": 3}},
    {"name": "gpus", "plugin": {"kind": "nvidia", "model": "NVIDIA A100-SXM4-80GB", "count": 6}},
    {"name": "hami", "plugin": {"kind": "hami", "model": "NVIDIA A10", "memory_mib": 23028, "count": 3}},
    {"name": "b3", "plugin": {"kind": "ascend-hami", "chip": "Ascend910B3", "count": 4}},
    {
        "name": "mind",
        "labels": {"accelerator": "huawei-Ascend310P"},
        "plugin": {"kind": "mindcluster", "report_after_s": 0.05, "retry_after_s": 0.05, "chips": 3},
    },
]


def of_history(*paths: str) -> bytes:
    """An archive of *paths* as they were in 0.1.0."""
    done = subprocess.run(["git", "archive", OLD, *paths], cwd=ROOT, capture_output=True, check=False, timeout=60)
    if done.returncode:
        pytest.skip("git's history does not reach to 0.1.0 here: fetch all of it")
    return done.stdout


def tree_of_history(folder: Path) -> Path:
    """The tree of 0.1.0, in *folder*."""
    with tarfile.open(
        fileobj=io.BytesIO(of_history("core", "controller", "kube", "runtime", "deploy/base", "requirements.lock"))
    ) as archive:
        archive.extractall(folder / "old", filter="data")
    return folder / "old"


def packages_of_history(tree: Path) -> Path:
    """Where the packages that *tree* locks are installed: they need not be those of today."""
    lock = tree / "requirements.lock"
    folder = ROOT / ".cache" / f"packages-{hashlib.sha256(lock.read_bytes()).hexdigest()[:16]}"
    if not folder.exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        new = Path(tempfile.mkdtemp(dir=folder.parent))
        subprocess.run([*pip, "--require-hashes", "-r", str(lock), "--target", str(new)], check=True, timeout=400)
        try:
            new.rename(folder)
        except OSError:  # Another process was first.
            shutil.rmtree(new)
    return folder


class Turn:
    """The controller of *tree* with the settings of its version, from its start until it ends in order."""

    def __init__(self, world, tree: Path, name: str, *packages: Path) -> None:
        self._world, self._tree, self._name, self._packages = world, tree, name, packages

    async def __aenter__(self) -> None:
        world, listen = self._world, f"127.0.0.1:{free_port()}"
        files = {"settings.yaml": self._settings(), "kubeconfig": await world.kubeconfig()}
        for name, text in files.items():
            await asyncio.to_thread((world.folder / name).write_text, text)
        options = ("--listen", listen, "--lease", LEASE, "--trust-namespaces", TRUSTED_NAMESPACES)
        paths = ("--kubeconfig", str(world.folder / "kubeconfig"), "--settings", str(world.folder / "settings.yaml"))
        own = {"PYTHONPATH": os.pathsep.join(map(str, (self._tree, *self._packages))), "PYTHONSAFEPATH": "1"}
        self._running = await world.processes.start(self._name, "controller", (*options, *paths), own)
        await world.processes.ready(self._running, f"http://{listen}/readyz")

    async def __aexit__(self, *_: object) -> None:
        assert await self._world.processes.stop(self._running) == 0, self._running.log_tail()

    def _settings(self) -> str:
        documents = yaml.safe_load_all((self._tree / "deploy/base/settings.yaml").read_text(encoding="utf-8"))
        return next(
            str(one["data"]["cardshare.yaml"]) for one in documents if one["metadata"]["name"].endswith("settings")
        )


class Cluster:
    """What is placed, and by whom."""

    def __init__(self, world) -> None:
        self._world, self._chance, self._made = world, random.Random(7), 0
        self.assigned: dict[str, dict[str, str]] = {}

    async def fills(self, *, ours: bool) -> None:
        """Some pods leave and others come, until nothing moves and all is sound; more run than those that stayed."""
        for name in self._chance.sample(sorted(self.assigned), len(self.assigned) // 4):
            await self._world.client.delete(f"{PODS}/{name}", grace_s=0)
            del self.assigned[name]
        for _ in range(30):
            asked = wanted(self._chance)
            made = pod(f"p{self._made}", asked.limits, annotations=dict(asked.annotations))
            made["metadata"]["labels"] = dict(asked.labels)
            self._made += 1
            await self._world.client.create(PODS, made)
        await self._world.until(lambda: self._is_calm(ours=ours), 120.0)
        await self._look()

    async def _is_calm(self, *, ours: bool) -> bool:
        nodes, pods = await self._world.client.list("/api/v1/nodes"), await self._world.client.list(PODS)
        placed = [one for one in pods if one["spec"].get("nodeName")]
        waits = [one for one in pods if not one["spec"].get("nodeName")]
        if any(one["status"].get("phase") not in ("Running", "Failed") for one in placed):
            return False
        # What was removed by force is free some seconds later.
        if len(placed) <= len(self.assigned) or not all(one["status"].get("conditions") for one in waits):
            return False
        # An older version may wait where this one would not.
        return not ours or would_fit(nodes, pods, await self._world.client.list("/api/v1/configmaps"), TABLES) == []

    async def _look(self) -> None:
        """Audit all, and compare what was assigned before."""
        nodes, pods = await self._world.client.list("/api/v1/nodes"), await self._world.client.list(PODS)
        assert audit(map(node_from_object, nodes), map(pod_from_object, pods), TABLES) == []
        now = {}
        for one in pods:
            name, phase = one["metadata"]["name"], one["status"].get("phase")
            if phase == "Running":
                seen = self._world.records.of(f"default/{name}").values()
                assert unseen(one, seen) in ("", NOT_REPORTED), name
                now[name] = one["metadata"].get("annotations", {})
        # A plugin may add what it used.
        changed = [name for name, kept in self.assigned.items() if not kept.items() <= now.get(name, {}).items()]
        assert changed == []
        self.assigned = now


async def test_each_version_takes_over_what_the_other_placed(rig, tmp_path):
    old = tree_of_history(tmp_path)
    packages = await asyncio.to_thread(packages_of_history, old)
    assert f'"{VERSION}"' not in (old / "core/names.py").read_text(encoding="utf-8")
    async with rig(nodes=NODES) as world:
        await world.ensure("/api/v1/namespaces", "mindx-dl")
        cluster = Cluster(world)
        for name, *path in (("old", old, packages), ("new", ROOT), ("old-again", old, packages)):
            async with Turn(world, path[0], name, *path[1:]):
                await cluster.fills(ours=name == "new")
