"""kubectl works against the embedded cluster as against any other."""

import asyncio
import os
import shutil
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
import yaml

KUBECTL: Final = shutil.which("kubectl")
pytestmark = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not on PATH: nothing shows that it can talk to us")

POD: Final = """
apiVersion: v1
kind: Pod
metadata:
  name: p1
  labels: {app: demo}
spec:
  nodeName: n1
  containers:
  - name: c
    image: busybox
    resources: {limits: {cpu: "1"}}
"""
CRD: Final = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: queues.scheduling.volcano.sh}
spec:
  group: scheduling.volcano.sh
  scope: Cluster
  names: {kind: Queue, listKind: QueueList, plural: queues, singular: queue, shortNames: [q]}
  versions:
  - name: v1beta1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
    subresources: {status: {}}
    additionalPrinterColumns:
    - {name: Weight, type: integer, jsonPath: .spec.weight}
"""
QUEUE: Final = """
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: fast}
spec: {weight: 3}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What a command said and how it ended."""

    code: int
    out: str
    err: str


class Kubectl:
    """kubectl with the cluster's kubeconfig and a home of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, "KUBECONFIG": str(folder / "kubeconfig"), "HOME": str(folder)}

    async def start(self, *arguments: str, stdin: bool = False) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            str(KUBECTL), *arguments, stdin=pipe if stdin else None, stdout=pipe, stderr=pipe, env=self.environment
        )

    async def run(self, *arguments: str, text: str = "") -> Ended:
        process = await self.start(*arguments, stdin=True)
        async with asyncio.timeout(30):
            out, err = await process.communicate(text.encode())
        return Ended(code=process.returncode or 0, out=out.decode(), err=err.decode())

    async def ok(self, *arguments: str, text: str = "") -> str:
        ended = await self.run(*arguments, text=text)
        assert ended.code == 0, ended
        return ended.out


@pytest.fixture
async def kubectl(tmp_path):
    """The sandbox as a process of its own, and kubectl pointed at it."""
    nodes, kubeconfig = tmp_path / "nodes.yaml", tmp_path / "kubeconfig"
    nodes.write_text(yaml.safe_dump([{"name": "n1", "labels": {"gpu": "t4"}}, {"name": "n2"}]))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", "-m", "sandbox", "--nodes", str(nodes), "--kubeconfig-out", str(kubeconfig)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    try:
        async with asyncio.timeout(20):
            assert process.stdout is not None
            line = (await process.stdout.readline()).decode()
        assert line.startswith("sandbox ready: https://127.0.0.1:"), await process.communicate()
        yield Kubectl(tmp_path)
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(10):
            _, err = await process.communicate()
        assert (process.returncode, err.decode()) == (0, "")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_apply_get_describe_and_delete(kubectl):
    assert await kubectl.ok("apply", "-f", "-", text=POD) == "pod/p1 created\n"
    assert await kubectl.ok("apply", "-f", "-", text=POD) == "pod/p1 unchanged\n"
    await kubectl.ok("wait", "--for=condition=Ready", "pod/p1", "--timeout=10s")
    header, row = (await kubectl.ok("get", "pods")).splitlines()
    assert header.split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert row.split()[:4] == ["p1", "1/1", "Running", "0"]
    wide = (await kubectl.ok("get", "pods", "-o", "wide", "-A")).splitlines()
    assert wide[0].split()[:8] == ["NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE"]
    assert wide[1].split()[-3:] == ["n1", "<none>", "<none>"]
    assert "p1" in await kubectl.ok("get", "all")
    described = await kubectl.ok("describe", "pod", "p1")
    assert "Node:             n1/198.18.0.1" in described
    assert await kubectl.ok("delete", "pod", "p1") == 'pod "p1" deleted\n'
    assert (await kubectl.run("get", "pod", "p1")).err == 'Error from server (NotFound): pods "p1" not found\n'


async def test_labels_and_annotations_and_what_would_change(kubectl):
    await kubectl.ok("apply", "-f", "-", text=POD)
    assert await kubectl.ok("annotate", "pod", "p1", "volcano.sh/vgpu-mode=mig") == "pod/p1 annotated\n"
    assert await kubectl.ok("label", "pod", "p1", "tier=front") == "pod/p1 labeled\n"
    assert "p1" in await kubectl.ok("get", "pods", "-l", "tier=front,app in (demo)")
    path = "jsonpath={.metadata.annotations.volcano\\.sh/vgpu-mode}"
    assert await kubectl.ok("get", "pod", "p1", "-o", path) == "mig"
    same = await kubectl.run("diff", "-f", "-", text=POD)
    assert (same.code, same.out) == (0, "")
    changed = await kubectl.run("diff", "-f", "-", text=POD.replace("busybox", "alpine"))
    assert changed.code == 1
    assert "+  - image: alpine" in changed.out
    refused = await kubectl.run("annotate", "pod", "p1", "x=" + "y" * 100_000, "z=" + "y" * 100_000)
    assert refused.code == 0
    more = await kubectl.run("annotate", "pod", "p1", "w=" + "y" * 100_000)
    assert "may not be more than 262144 bytes" in more.err


async def test_a_server_side_dry_run_stores_nothing(kubectl):
    said = await kubectl.ok("apply", "--dry-run=server", "-f", "-", text=POD)
    assert said == "pod/p1 created (server dry run)\n"
    assert await kubectl.ok("get", "pods", "-o", "name") == ""
    bad = await kubectl.run("apply", "--dry-run=server", "-f", "-", text=POD.replace('cpu: "1"', 'cpu: "-1"'))
    assert bad.code == 1
    assert "must be greater than or equal to 0" in bad.err


async def test_server_side_apply_creates_and_merges(kubectl):
    assert await kubectl.ok("apply", "--server-side", "-f", "-", text=POD) == "pod/p1 serverside-applied\n"
    changed = POD.replace("app: demo", "app: other")
    await kubectl.ok("apply", "--server-side", "-f", "-", text=changed)
    assert await kubectl.ok("get", "pod", "p1", "-o", "jsonpath={.metadata.labels.app}") == "other"


async def test_a_watch_shows_changes_as_rows(kubectl):
    process = await kubectl.start("get", "pods", "-w", "--no-headers")
    try:
        await asyncio.sleep(0.5)
        await kubectl.ok("apply", "-f", "-", text=POD)
        rows: list[list[str]] = []
        async with asyncio.timeout(10):
            while not rows or rows[-1][2] != "Running":
                rows.append((await process.stdout.readline()).decode().split())
        assert rows[0][:2] == ["p1", "0/1"]
    finally:
        process.kill()
        await process.communicate()


async def test_events_stand_in_describe_and_in_their_own_list(kubectl):
    await kubectl.ok("apply", "-f", "-", text=POD.replace("nodeName: n1", "schedulerName: cardshare"))
    uid = await kubectl.ok("get", "pod", "p1", "-o", "jsonpath={.metadata.uid}")
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "p1.1", "namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": "p1", "namespace": "default", "uid": uid},
        "type": "Warning",
        "reason": "FailedScheduling",
        "message": "no card on n1 has 8192 MiB free",
        "source": {"component": "cardshare"},
        "count": 2,
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
    }
    await kubectl.ok("create", "-f", "-", text=yaml.safe_dump(event))
    assert "no card on n1 has 8192 MiB free" in await kubectl.ok("describe", "pod", "p1")
    assert "FailedScheduling" in await kubectl.ok("get", "events")
    assert "FailedScheduling" in await kubectl.ok("events", "--for", "pod/p1")


async def test_a_custom_resource_is_as_good_as_any(kubectl):
    await kubectl.ok("apply", "-f", "-", text=CRD)
    await kubectl.ok("wait", "--for=condition=Established", "crd/queues.scheduling.volcano.sh", "--timeout=5s")
    assert await kubectl.ok("apply", "-f", "-", text=QUEUE) == "queue.scheduling.volcano.sh/fast created\n"
    assert await kubectl.ok("apply", "-f", "-", text=QUEUE) == "queue.scheduling.volcano.sh/fast unchanged\n"
    assert (await kubectl.ok("apply", "-f", "-", text=QUEUE.replace("3", "4"))).endswith("configured\n")
    assert [line.split() for line in (await kubectl.ok("get", "q")).splitlines()] == [["NAME", "WEIGHT"], ["fast", "4"]]
    await kubectl.ok("annotate", "q", "fast", "a=b")
    await kubectl.ok("delete", "q", "fast")
    assert "No resources found" in (await kubectl.run("get", "q")).err


async def test_nodes_are_described_cordoned_and_drained(kubectl):
    await kubectl.ok("apply", "-f", "-", text=POD)
    await kubectl.ok("wait", "--for=condition=Ready", "pod/p1", "--timeout=10s")
    described = await kubectl.ok("describe", "node", "n1")
    assert "default" in described.partition("Non-terminated Pods")[2]
    await kubectl.ok("cordon", "n1")
    assert "Ready,SchedulingDisabled" in await kubectl.ok("get", "node", "n1")
    await kubectl.ok("drain", "n1", "--force", "--timeout=10s")
    assert await kubectl.ok("get", "pods", "-o", "name") == ""


async def test_other_commands_work(kubectl):
    assert "Server Version: v1.36" in await kubectl.ok("version")
    assert "scheduling.k8s.io/v1" in await kubectl.ok("api-versions")
    assert "Pod" in await kubectl.ok("api-resources", "--api-group=")
    await kubectl.ok("create", "namespace", "team")
    await kubectl.ok("create", "configmap", "c", "-n", "team", "--from-literal=a=b")
    await kubectl.ok("delete", "namespace", "team", "--timeout=10s")
    assert "KIND:       Pod" in await kubectl.ok("explain", "pod")


async def test_questions_that_kubectl_asks_in_protobuf_are_answered(kubectl):
    assert await kubectl.ok("auth", "can-i", "create", "pods") == "yes\n"
    assert (await kubectl.run("auth", "can-i", "create", "pods", "--as", "nobody")).out == "no\n"
    assert "sandbox-admin" in await kubectl.ok("auth", "whoami")
    await kubectl.ok("create", "serviceaccount", "robot")
    assert (await kubectl.ok("create", "token", "robot", "--duration=10m")).strip()
