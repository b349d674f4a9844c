"""Promises of kubectl, which people see: the same words from both servers."""

import asyncio
import base64
import json
import os
import re
from pathlib import Path
from typing import Any, Final

from tests.support.promises.promises import Rows, World, promise

_POD: Final = """
apiVersion: v1
kind: Pod
metadata:
  name: p1
  labels: {app: demo}
spec:
  schedulerName: cardshare
  containers:
  - name: c
    image: example.test/one
    resources: {limits: {cpu: "1", volcano.sh/vgpu-number: "1"}}
"""
_AGES: Final = (
    (re.compile(r"\b(\d+(ms|[smhdy]))+\b"), "AGE"),
    (re.compile(r"(Start Time|CreationTimestamp):.*"), r"\1: TIME"),
    (re.compile(r"\w{3}, \d+ \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4}"), "TIME"),
    (re.compile(r"/tmp/\S*"), "FILE"),
    (re.compile(r"kubectl-\S+"), "kubectl"),
)


class _Kubectl:
    def __init__(self, world: World) -> None:
        self._world = world
        assert world.server.kubectl is not None, "kubectl is not there"
        self._binary = world.server.kubectl
        self._environ = {
            "PATH": os.environ.get("PATH", ""),
            "HOME": str(world.folder),
            "KUBECONFIG": str(self._config(world)),
            "TMPDIR": str(world.folder),
        }
        self.rows: Rows = []

    @staticmethod
    def _config(world: World) -> Path:
        server = world.server
        ca = base64.b64encode(server.ca_file.read_bytes()).decode()
        context = {"cluster": "c", "user": "u", "namespace": world.namespace}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "x",
            "clusters": [{"name": "c", "cluster": {"server": server.url, "certificate-authority-data": ca}}],
            "users": [{"name": "u", "user": {"token": server.token}}],
            "contexts": [{"name": "x", "context": context}],
        }
        path = world.folder / "kubeconfig"
        path.touch(mode=0o600)
        path.write_text(json.dumps(config), encoding="utf-8")
        return path

    async def __call__(self, *words: str, text: str = "") -> str:
        """Run it, keep what it said as a row, and return its output."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            self._binary, *words, stdin=pipe, stdout=pipe, stderr=pipe, env=self._environ
        )
        async with asyncio.timeout(30):
            out, err = await process.communicate(text.encode())
        said = [line for part in (out, err) for line in plain(part.decode(), self._world)]
        self.rows.append([" ".join(words), process.returncode, *said])
        return out.decode()


def plain(text: str, world: World) -> list[str]:
    """The lines of *text* less what differs at every run."""
    # Before the ages: a name that ends in hexadecimal digits may look like one.
    text = text.replace(world.namespace, "NAMESPACE")
    for pattern, word in _AGES:
        text = pattern.sub(word, text)
    # Columns are as wide as their longest word, and words differ.
    lines = [
        re.sub(r" {2,}|\t", "  ", line).rstrip() for line in text.replace(str(world.folder), "FOLDER").splitlines()
    ]
    # A real server's own tests run without the admission plugin that fills in the account.
    return [line for line in lines if not line.startswith("Service Account:")]


@promise
async def kubectl_applies_twice_and_shows_differences(world: World) -> Rows:
    run = _Kubectl(world)
    await run("apply", "-f", "-", text=_POD)
    await run("apply", "-f", "-", text=_POD)
    await run("diff", "-f", "-", text=_POD)
    changed = _POD.replace("app: demo", "app: other")
    await run("apply", "--dry-run=server", "-f", "-", text=changed)
    await run("apply", "-f", "-", text=changed)
    await run("apply", "-f", "-", text=changed.replace("cardshare", "default-scheduler"))
    await run("create", "-f", "-", text=_POD)
    await run("apply", "-f", "-", text=_POD.replace('cpu: "1"', 'cpu: "-1"').replace("p1", "p2"))
    await run("apply", "-f", "-", text=_POD.replace("image:", "imagge:").replace("p1", "p2"))
    return [[words, code, *[line for line in said if not _differs(line)]] for words, code, *said in run.rows]


def _differs(line: str) -> bool:
    """What kubectl shows besides of a refused change: the patch, and the server's own structures."""
    return (
        line.startswith(("{", "for:", "to:", "Resource:", "Name:", "@@", '  "', '+ "', '- "', "  Name:", "  {", "  }"))
        or not line
    )


@promise
async def kubectl_lists_and_describes_a_pod(world: World) -> Rows:
    run = _Kubectl(world)
    await run("apply", "-f", "-", text=_POD)
    await run("get", "pods")
    await run("get", "pods", "-o", "wide")
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no card is free"}
    await world.rest.patch(
        f"{world.pods}/p1/status",
        {"status": {"conditions": [condition]}},
        "application/strategic-merge-patch+json",
    )
    made = (await world.rest.get(f"{world.pods}/p1")).body
    await world.rest.made(f"{world.core}/events", _event(world, made))
    await run("get", "pod", "p1", "--show-labels", "--no-headers")
    await run("describe", "pod", "p1")
    await run("get", "events")
    await run("events", "--for", "pod/p1")
    await world.bind("p1", "n1")
    await run("get", "pods", "-o", "wide")
    await world.rest.patch(f"{world.pods}/p1/status", {"status": {"phase": "Running", **_running()}})
    await run("get", "pods")
    await run("wait", "--for=condition=PodScheduled", "pod/p1", "--timeout=5s")
    await run("get", "pods", "-l", "app in (demo),!x", "-o", "name")
    await run("get", "pods", "--field-selector", "spec.nodeName=n1", "-o", "name")
    await run("get", "pod", "p1", "-o", "jsonpath={.spec.nodeName} {.status.phase}")
    await run("get", "pod", "p2")
    return run.rows


def _running() -> dict[str, Any]:
    state = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    status = {"name": "c", "ready": True, "restartCount": 2, "image": "i", "imageID": "", "state": state}
    return {"containerStatuses": [{**status, "started": True}]}


def _event(world: World, made: dict[str, Any]) -> dict[str, Any]:
    about = {"kind": "Pod", "apiVersion": "v1", "name": "p1", "namespace": world.namespace}
    return {
        "metadata": {"name": "p1.1"},
        "involvedObject": {**about, "uid": made["metadata"]["uid"]},
        "type": "Warning",
        "reason": "FailedScheduling",
        "message": "no card on n1 has 8192 MiB free",
        "source": {"component": "cardshare"},
        "count": 2,
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": made["metadata"]["creationTimestamp"],
    }


@promise
async def kubectl_changes_keys_and_deletes(world: World) -> Rows:
    run = _Kubectl(world)
    await run("create", "-f", "-", text=_POD)
    await run("annotate", "pod", "p1", "volcano.sh/vgpu-mode=mig")
    await run("annotate", "pod", "p1", "volcano.sh/vgpu-mode=mps")
    await run("annotate", "pod", "p1", "--overwrite", "volcano.sh/vgpu-mode=mps")
    await run("annotate", "pod", "p1", "volcano.sh/vgpu-mode-")
    await run("annotate", "pod", "p1", "bad key!=x")
    await run("label", "pod", "p1", "tier=front")
    await run("patch", "pod", "p1", "-p", '{"metadata":{"labels":{"tier":null}}}')
    await run("set", "image", "pod/p1", "c=example.test/two")
    await run("delete", "pod", "p1", "--dry-run=server")
    await run("delete", "pod", "p1", "--wait=true", "--timeout=10s")
    await run("delete", "pod", "p1")
    await run("delete", "pod", "p1", "--ignore-not-found")
    await run("get", "pods")
    return run.rows


@promise
async def kubectl_shows_nodes(world: World) -> Rows:
    run = _Kubectl(world)
    name = f"{world.namespace}-node"
    room = {"cpu": "4", "memory": "8Gi", "pods": "110", "volcano.sh/vgpu-number": "10"}
    status = {"allocatable": room, "capacity": room, "conditions": [{"type": "Ready", "status": "True"}]}
    labels = {"node-role.kubernetes.io/worker": ""}
    await world.rest.made("/api/v1/nodes", {"metadata": {"name": name, "labels": labels}, "status": status})
    try:
        await run("get", "node", name)
        await run("cordon", name)
        await run("get", "node", name, "--no-headers")
        await run("uncordon", name)
        await run("taint", "node", name, "k=v:NoSchedule")
        await run("describe", "node", name)
    finally:
        await run("delete", "node", name)
    return run.rows


@promise
async def kubectl_finds_kinds_and_rights(world: World) -> Rows:
    run = _Kubectl(world)
    await run("auth", "can-i", "create", "pods/binding")
    await run("auth", "can-i", "create", "pods", "--as", "nobody")
    await run("create", "configmap", "m", "--from-literal=a=b")
    await run("get", "configmap", "m")
    await run("get", "no-such-things")
    await run("create", "token", "no-such-account")
    await run("auth", "whoami", "-o", "jsonpath={.status.userInfo.username} {.status.userInfo.groups}")
    return run.rows


_LIST: Final = """
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: ConfigMap
  metadata: {name: first}
- apiVersion: v1
  kind: Pod
  metadata: {name: second}
  spec: {containers: [{name: c, image: example.test/one}]}
"""


@promise
async def kubectl_applies_what_a_list_holds(world: World) -> Rows:
    run = _Kubectl(world)
    await run("apply", "-f", "-", text=_LIST)
    await run("apply", "-f", "-", text=_LIST)
    await run("apply", "--dry-run=server", "-f", "-", text=_LIST.replace("first", "third"))
    await run("create", "-f", "-", text=_LIST.replace("first", "third").replace("second", "fourth"))
    pods = _LIST.replace("kind: List", "kind: PodList").replace("kind: ConfigMap", "kind: Pod")
    await run("apply", "-f", "-", text=pods)
    await run("get", "configmaps,pods", "-o", "name")
    await run("delete", "-f", "-", "--grace-period=0", "--force", text=_LIST)
    return [[words, code, *[line for line in said if not _differs(line)]] for words, code, *said in run.rows]
