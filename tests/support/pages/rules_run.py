"""Plays the examples of the rules with kubectl, against a cluster with a webhook that knows its cards."""

from __future__ import annotations

import asyncio
import os
import shlex
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import aiohttp
import yaml

from certs.files import CA_FILE, ensure
from certs.pair import WantedPair
from sandbox.demo.processes import free_port
from sandbox.demo.product import registration, reloads, shipped
from tests.support.pages.rules import DEVICES, Rule, Said, binding_of, devices_of
from tests.support.worlds.controller_rig import Rig

_HOST: Final = "127.0.0.1"
_WITHIN_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stage:
    world: Rig
    folder: Path
    settings: Path
    metrics_url: str
    environment: Mapping[str, str]


async def play(rules: Sequence[Rule], world: Rig, kubectl: str) -> dict[str, list[Said]]:
    """What *kubectl* says of the example of each rule, by the rule's name; *world* has the rules' nodes."""
    said: dict[str, list[Said]] = {}
    async with _stage(world) as stage:
        # Those of one configuration in a row, the default one first: it takes seconds until another one is in force.
        texts = ("", "", "")
        for rule in sorted((rule for rule in rules if rule.manifest is not None), key=_texts):
            if _texts(rule) != texts:
                texts = _texts(rule)
                await _configure(stage, rule)
            said[rule.name] = [one async for one in _play(rule, stage, kubectl)]
    return said


def _texts(rule: Rule) -> tuple[str, str, str]:
    return rule.settings, rule.scheduler, rule.devices


async def _play(rule: Rule, stage: _Stage, kubectl: str) -> AsyncIterator[Said]:
    file = f"{rule.name}.yaml"
    await asyncio.to_thread((stage.folder / file).write_text, yaml.safe_dump_all(rule.documents), encoding="utf-8")
    # What can only be created cannot be applied.
    yield await _said(stage, kubectl, f"{'create' if rule.binding else 'apply'} -f {file}")
    if rule.bound:
        path = f"/api/v1/namespaces/default/pods/{rule.name}/binding"
        await stage.world.client.create(path, binding_of(rule.name, {}))
    if rule.then:
        changes = " ".join(shlex.quote(f"{key}={value}") for key, value in rule.then.items())
        yield await _said(stage, kubectl, f"annotate pod {rule.name} {changes}")


async def _said(stage: _Stage, kubectl: str, command: str) -> Said:
    process = await asyncio.create_subprocess_exec(
        kubectl,
        *shlex.split(command),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=stage.environment,
        cwd=stage.folder,
    )
    async with asyncio.timeout(_WITHIN_S):
        output, _ = await process.communicate()
    return Said(command=f"kubectl {command}", text=output.decode())


@asynccontextmanager
async def _stage(world: Rig) -> AsyncIterator[_Stage]:
    folder = world.folder / "rules"
    folder.mkdir()
    settings = folder / "settings"
    _put(settings, "", "", DEVICES.read_text(encoding="utf-8"))
    wanted = WantedPair(dns_names=("localhost",), ip_addresses=(_HOST,), days=7, ca_days=7)
    ensure(folder / "certs", wanted, datetime.now(UTC))
    kubeconfig = world.write_admins_kubeconfig()
    reviews, plain = f"{_HOST}:{free_port()}", f"{_HOST}:{free_port()}"
    flags = ("--listen", reviews, "--metrics-listen", plain, "--cert-dir", str(folder / "certs"), "--drain-s", "0")
    reading = ("--settings", str(settings), "--device-config", str(settings), "--kubeconfig", str(kubeconfig))
    webhook = await world.processes.start("webhook", "webhook", (*flags, *reading))
    await world.processes.ready(webhook, f"http://{plain}/readyz")
    ca_pem = (folder / "certs" / CA_FILE).read_bytes()
    await world.apply(registration(shipped(), f"https://{reviews}", ca_pem))
    stage = _Stage(
        world=world,
        folder=folder,
        settings=settings,
        metrics_url=f"http://{plain}/metrics",
        environment={"PATH": os.environ["PATH"], "HOME": str(folder), "KUBECONFIG": str(kubeconfig)},
    )
    await _inventoried(stage)
    # As the examples name it: a pod of a runtime class that is not there is no pod.
    await world.ensure("/apis/node.k8s.io/v1/runtimeclasses", "ascend", handler="ascend")
    yield stage


async def _configure(stage: _Stage, rule: Rule) -> None:
    """Put the texts of *rule* in force, and wait until the webhook has taken them and knows the cards again."""
    before = (await reloads(stage.metrics_url)).taken
    _put(stage.settings, rule.settings, rule.scheduler, devices_of(rule))
    async with asyncio.timeout(_WITHIN_S):
        while (await reloads(stage.metrics_url)).taken == before:  # noqa: ASYNC110 (another process is polled)
            await asyncio.sleep(0.1)
    await _inventoried(stage)


def _put(settings: Path, ours: str, scheduler: str, devices: str) -> None:
    """Let *settings* lead to a folder with these texts, all at once, as kubelet does with a ConfigMap."""
    folder = Path(tempfile.mkdtemp(dir=settings.parent))
    texts = {"cardshare.yaml": ours, "volcano-scheduler.conf": scheduler, "device-config.yaml": devices}
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "link").symlink_to(folder)
    (folder / "link").replace(settings)


async def _inventoried(stage: _Stage) -> None:
    """Wait until the webhook knows the cards: then it has a word on what no node could take."""
    limits = {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "2000000000"}
    spec = {"containers": [{"name": "main", "image": "pause", "resources": {"limits": limits}}]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe"}, "spec": spec}
    path = f"{stage.world.client.server}/api/v1/namespaces/kube-public/pods?dryRun=All"
    async with asyncio.timeout(_WITHIN_S), aiohttp.ClientSession() as session:
        while True:
            headers = {"Authorization": f"Bearer {stage.world.admin_token}"}
            async with session.post(path, json=body, headers=headers, ssl=False) as answer:
                if "CS401" in " ".join(answer.headers.getall("Warning", [])) + await answer.text():
                    return
            await asyncio.sleep(0.1)
