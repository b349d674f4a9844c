"""kubectl does to a cluster with our players what people do with it."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import pytest
import yaml

from tests.support.worlds.controller_rig import OpensRig, Rig

KUBECTL: Final = shutil.which("kubectl")
NODES: Final[list[dict[str, Any]]] = [{"name": "n1", "labels": {"gpu": "t4"}}, {"name": "n2"}]

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
    """kubectl as the cluster's administrator, with a home of its own."""

    def __init__(self, world: Rig) -> None:
        kubeconfig = world.write_admins_kubeconfig()
        self.environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "HOME": str(world.folder)}

    async def start(self, *arguments: str, stdin: bool = False) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            str(KUBECTL), *arguments, stdin=pipe if stdin else None, stdout=pipe, stderr=pipe, env=self.environment
        )

    async def run(self, *arguments: str, text: str = "") -> Ended:
        process = await self.start(*arguments, stdin=True)
        async with asyncio.timeout(120):
            out, err = await process.communicate(text.encode())
        return Ended(code=process.returncode or 0, out=out.decode(), err=err.decode())

    async def ok(self, *arguments: str, text: str = "") -> str:
        ended = await self.run(*arguments, text=text)
        assert ended.code == 0, ended
        return ended.out


@asynccontextmanager
async def pointed_at(rig: OpensRig) -> AsyncIterator[Kubectl]:
    """kubectl pointed at a cluster of its own."""
    if KUBECTL is None:
        pytest.skip("kubectl is not on PATH: nothing shows that it can talk to us")
    async with rig(nodes=NODES) as world:
        yield Kubectl(world)


async def test_apply_get_describe_and_delete(rig):
    async with pointed_at(rig) as kubectl:
        assert await kubectl.ok("apply", "-f", "-", text=POD) == "pod/p1 created\n"
        assert await kubectl.ok("apply", "-f", "-", text=POD) == "pod/p1 unchanged\n"
        await kubectl.ok("wait", "--for=condition=Ready", "pod/p1", "--timeout=90s")
        header, row = (await kubectl.ok("get", "pods")).splitlines()
        assert header.split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
        assert row.split()[:4] == ["p1", "1/1", "Running", "0"]
        wide = (await kubectl.ok("get", "pods", "-o", "wide", "-A")).splitlines()
        assert wide[0].split()[:8] == ["NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE"]
        assert wide[1].split()[-3:] == ["n1", "<none>", "<none>"]
        assert "p1" in await kubectl.ok("get", "all")
        described = await kubectl.ok("describe", "pod", "p1")
        assert ["Node:", "n1/198.18.0.1"] in [line.split() for line in described.splitlines()]
        assert await kubectl.ok("delete", "pod", "p1") == 'pod "p1" deleted\n'
        assert (await kubectl.run("get", "pod", "p1")).err == 'Error from server (NotFound): pods "p1" not found\n'


async def test_labels_and_annotations_and_what_would_change(rig):
    async with pointed_at(rig) as kubectl:
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


async def test_a_server_side_dry_run_stores_nothing(rig):
    async with pointed_at(rig) as kubectl:
        said = await kubectl.ok("apply", "--dry-run=server", "-f", "-", text=POD)
        assert said == "pod/p1 created (server dry run)\n"
        assert await kubectl.ok("get", "pods", "-o", "name") == ""
        bad = await kubectl.run("apply", "--dry-run=server", "-f", "-", text=POD.replace('cpu: "1"', 'cpu: "-1"'))
        assert bad.code == 1
        assert "must be greater than or equal to 0" in bad.err


async def test_server_side_apply_creates_and_merges(rig):
    async with pointed_at(rig) as kubectl:
        assert await kubectl.ok("apply", "--server-side", "-f", "-", text=POD) == "pod/p1 serverside-applied\n"
        changed = POD.replace("app: demo", "app: other")
        await kubectl.ok("apply", "--server-side", "-f", "-", text=changed)
        assert await kubectl.ok("get", "pod", "p1", "-o", "jsonpath={.metadata.labels.app}") == "other"


async def test_a_watch_shows_changes_as_rows(rig):
    async with pointed_at(rig) as kubectl:
        await kubectl.ok("apply", "-f", "-", text=POD.replace("p1", "p0"))
        process = await kubectl.start("get", "pods", "-w", "--no-headers")
        try:
            rows: list[list[str]] = []
            assert process.stdout is not None
            async with asyncio.timeout(60):
                # It watches from the version of what it has listed.
                while not (await process.stdout.readline()).startswith(b"p0 "):
                    pass
                await kubectl.ok("apply", "-f", "-", text=POD)
                while not rows or rows[-1][2] != "Running":
                    row = (await process.stdout.readline()).decode().split()
                    rows += [row] if row[0] == "p1" else []
            assert rows[0][:2] == ["p1", "0/1"]
        finally:
            process.kill()
            await process.communicate()


async def test_events_stand_in_describe_and_in_their_own_list(rig):
    async with pointed_at(rig) as kubectl:
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


async def test_a_custom_resource_is_as_good_as_any(rig):
    async with pointed_at(rig) as kubectl:
        await kubectl.ok("apply", "-f", "-", text=CRD)
        await kubectl.ok("wait", "--for=condition=Established", "crd/queues.scheduling.volcano.sh", "--timeout=90s")
        assert await kubectl.ok("apply", "-f", "-", text=QUEUE) == "queue.scheduling.volcano.sh/fast created\n"
        assert await kubectl.ok("apply", "-f", "-", text=QUEUE) == "queue.scheduling.volcano.sh/fast unchanged\n"
        assert (await kubectl.ok("apply", "-f", "-", text=QUEUE.replace("3", "4"))).endswith("configured\n")
        assert [line.split() for line in (await kubectl.ok("get", "q")).splitlines()] == [
            ["NAME", "WEIGHT"],
            ["fast", "4"],
        ]
        await kubectl.ok("annotate", "q", "fast", "a=b")
        await kubectl.ok("delete", "q", "fast")
        assert "No resources found" in (await kubectl.run("get", "q")).err


async def test_nodes_are_described_cordoned_and_drained(rig):
    async with pointed_at(rig) as kubectl:
        await kubectl.ok("apply", "-f", "-", text=POD)
        await kubectl.ok("wait", "--for=condition=Ready", "pod/p1", "--timeout=90s")
        described = await kubectl.ok("describe", "node", "n1")
        assert "default" in described.partition("Non-terminated Pods")[2]
        await kubectl.ok("cordon", "n1")
        assert "Ready,SchedulingDisabled" in await kubectl.ok("get", "node", "n1")
        await kubectl.ok("drain", "n1", "--force", "--timeout=90s")
        assert await kubectl.ok("get", "pods", "-o", "name") == ""


async def test_other_commands_work(rig):
    async with pointed_at(rig) as kubectl:
        assert "Server Version: v1." in await kubectl.ok("version")
        assert "scheduling.k8s.io/v1" in await kubectl.ok("api-versions")
        assert "Pod" in await kubectl.ok("api-resources", "--api-group=")
        await kubectl.ok("create", "namespace", "team")
        await kubectl.ok("create", "configmap", "c", "-n", "team", "--from-literal=a=b")
        await kubectl.ok("delete", "namespace", "team", "--timeout=90s")
        assert "KIND:       Pod" in await kubectl.ok("explain", "pod")


@pytest.mark.parametrize(
    ("command", "path", "found"),
    [
        ("priorityclass c --value=-7 --description=d", "{.value} {.description} {.globalDefault}", "-7 d "),
        ("priorityclass c --value=0 --global-default", "{.value} {.globalDefault}", "0 true"),
        ("secret generic c --from-literal=a=b --type=t", "{.data.a} {.type}", "Yg== t"),
        ("role c --verb=get,list --resource=pods", "{.rules[0].verbs}", '["get","list"]'),
        ("clusterrole c --verb=get --resource=nodes", "{.rules[0].resources}", '["nodes"]'),
        ("rolebinding c --role=r --user=u", "{.roleRef.name} {.subjects[0].name}", "r u"),
        ("clusterrolebinding c --clusterrole=r --user=u", "{.roleRef.kind} {.subjects[0].kind}", "ClusterRole User"),
    ],
)
async def test_what_is_created_by_flags_has_what_they_say(rig, command: str, path: str, found: str):
    async with pointed_at(rig) as kubectl:
        kind, *more = command.split()
        await kubectl.ok("create", kind, *more)
        assert await kubectl.ok("get", kind, "c", "-o", f"jsonpath={path}") == found


async def test_questions_that_kubectl_asks_in_protobuf_are_answered(rig):
    async with pointed_at(rig) as kubectl:
        assert await kubectl.ok("auth", "can-i", "create", "pods") == "yes\n"
        assert (await kubectl.run("auth", "can-i", "create", "pods", "--as", "nobody")).out == "no\n"
        assert "system:masters" in await kubectl.ok("auth", "whoami")
        await kubectl.ok("create", "serviceaccount", "robot")
        assert (await kubectl.ok("create", "token", "robot", "--duration=10m")).strip()
