"""The commands of the pages that name this test are run in order by a shell, against a cluster that has what they name.

The commands are those of a person in a checkout: kubectl, `kubectl cards`, and the manifests and examples of the tree.
What needs a kubelet, a registry or a network is not run here; the pages' source says so.
"""

import asyncio
import os
import shutil
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.pages.page_commands import ROOT, Block, blocks, pages
from tests.support.worlds import volcano
from tests.support.worlds.controller_rig import pod, share

KUBECTL: Final = shutil.which("kubectl")
BLOCKS: Final = [
    block for page in pages() for block in blocks(page) if "tests/integration/test_page_commands.py" in block.run_by
]
NODES: Final[list[dict[str, Any]]] = [
    {"name": "t4-a", "plugin": {"kind": "vgpu", "model": "Tesla T4", "memory_mib": 15360, "count": 2}}
]
DEPLOYMENTS: Final = "/apis/apps/v1/namespaces/cardshare-system/deployments"
MONITORS: Final = (("PodMonitor", "podmonitors"), ("PrometheusRule", "prometheusrules"))
ROLLED_OUT: Final = {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1}
# `kubectl cards doctor` finds what is missing here; a dry run makes no PriorityClass, as that page says.
ENDS_WITH: Final = {"docs/examples/README.md": 1}
FINDINGS: Final = 'kubectl() { command kubectl "$@" || [[ "$*" == \'cards doctor\'* && $? -ge 3 ]]; }\n'


def script(block: Block) -> str:
    """The block as a shell runs it: what stands after ``$ ``, or all of it."""
    lines = block.text.splitlines()
    shown = [line[2:] for line in lines if line.startswith("$ ")]
    return "\n".join(shown or lines)


async def scene(world) -> dict[str, str]:
    """Make what the commands name; the environment of the shell."""
    tree, tools = world.folder / "cardshare", world.folder / "bin"
    for name in ("deploy", "docs/examples"):
        await asyncio.to_thread(shutil.copytree, ROOT / name, tree / name)
    tools.mkdir()
    (tools / "kubectl").symlink_to(str(KUBECTL))
    for name in ("kubectl-cards", "kubectl_complete-cards"):
        (tools / name).symlink_to(ROOT / ".venv/bin" / name)
    for name in ("pod.yaml", "deployment.yaml"):
        shutil.copy(tree / "docs/examples/memory-only.yaml", tree / name)
    await volcano.install(world.client)
    for kind, plural in MONITORS:
        await world.client.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", _definition(kind, plural))
    for namespace in ("team", "cardshare-system"):
        await world.ensure("/api/v1/namespaces", namespace)
    await world.client.create(DEPLOYMENTS, _deployed("cardshare-controller"))
    await world.client.patch(f"{DEPLOYMENTS}/cardshare-controller/status", {"status": ROLLED_OUT})
    late = pod("late", share(1000))
    late["metadata"]["namespace"] = "team"
    await world.client.create("/api/v1/namespaces/team/pods", late)
    return {
        **os.environ,
        "KUBECONFIG": str(world.write_admins_kubeconfig()),
        "HOME": str(world.folder),
        "PATH": f"{tools}:{os.environ['PATH']}",
    }


def _definition(kind: str, plural: str) -> dict[str, Any]:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "metadata": {"name": f"{plural}.monitoring.coreos.com"},
        "spec": {
            "group": "monitoring.coreos.com",
            "scope": "Namespaced",
            "names": {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


def _deployed(name: str) -> dict[str, Any]:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    return {"metadata": {"name": name}, "spec": spec}


@pytest.mark.skipif(KUBECTL is None, reason="kubectl is not on PATH: no command of the pages can be run")
async def test_the_commands_of_the_pages_work(rig):
    assert len(BLOCKS) > 5
    async with rig(nodes=NODES) as world:
        environment = await scene(world)
        failed = {}
        for block in BLOCKS:
            code, output = await _run(script(block), environment, world.folder / "cardshare")
            if code != ENDS_WITH.get(block.page, 0):
                failed[f"{block.page}:{block.line}"] = output
        assert failed == {}


async def _run(commands: str, environment: dict[str, str], folder: Path) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        "bash",
        "-euc",
        FINDINGS + commands,
        cwd=folder,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(60):
        output, _ = await process.communicate()
    return process.returncode or 0, output.decode()
