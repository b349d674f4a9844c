"""A controller as a process of its own beside the embedded cluster, for integration tests."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp

from sandbox.api.users import service_account
from sandbox.cluster import ClusterSettings, running_cluster
from sandbox.demo.processes import Processes, free_port
from sandbox.nodes import nodefile

PODS = "/api/v1/namespaces/default/pods"
GPU, SHARE = "volcano.sh/vgpu-number", "volcano.sh/gpu-memory"
IDS = "volcano.sh/vgpu-ids-new"
NODES = (
    {"name": "t4-a", "plugin": {"kind": "vgpu", "model": "Tesla T4", "memory_mib": 15360, "count": 2}},
    {"name": "share-a", "plugin": {"kind": "gpushare", "memory_mib": 11178, "count": 2}},
)


def pod(name, limits, *, annotations=None):
    container = {"name": "main", "image": "i", "resources": {"limits": limits}}
    metadata = {"name": name, "namespace": "default", "annotations": annotations or {}}
    return {"metadata": metadata, "spec": {"schedulerName": "cardshare", "containers": [container]}}


def share(memory_mib, *, cores=0):
    return {GPU: "1", "volcano.sh/vgpu-memory": str(memory_mib), "volcano.sh/vgpu-cores": str(cores)}


class Rig:
    """A cluster, and controllers beside it."""

    def __init__(self, cluster, processes, folder):
        self.cluster = cluster
        self.processes = processes
        self.folder = folder
        self.client = cluster.admin
        self.kubeconfig = folder / "kubeconfig"
        self.url = ""

    async def controller(self, *flags, user=None, kubeconfig=None, wait=True):
        if kubeconfig is None:
            kubeconfig = self.kubeconfig
            text = self.cluster.kubeconfig(user or service_account("cardshare-system", "cardshare-controller"))
            await asyncio.to_thread(kubeconfig.write_text, text)
        listen = f"127.0.0.1:{free_port()}"
        self.url = f"http://{listen}"
        options = ("--listen", listen, "--kubeconfig", str(kubeconfig), "--start-delay", "0", *flags)
        running = await self.processes.start("controller", "controller", options)
        if wait:
            await self.processes.ready(running, f"{self.url}/readyz")
        return running

    async def http(self, path, accept="application/json"):
        headers = {"Accept": accept}
        async with aiohttp.ClientSession() as session, session.get(self.url + path, headers=headers) as answer:
            return answer.status, await answer.text()

    async def until(self, what, deadline_s=20.0):
        """Ask *what* until it answers something true."""
        async with asyncio.timeout(deadline_s):
            while not (found := await what()):  # noqa: ASYNC110 (the cluster tells nobody)
                await asyncio.sleep(0.05)
        return found

    async def not_ready_because(self, words, deadline_s=20.0):
        async def asked():
            try:
                status, text = await self.http("/readyz")
            except aiohttp.ClientError:
                return ""
            return text if status == 503 and words in text else ""

        return await self.until(asked, deadline_s)

    async def get(self, name):
        return await self.client.get(f"{PODS}/{name}")

    async def add(self, *pods):
        for one in pods:
            await self.client.create(PODS, one)

    async def phase(self, name, wanted="Running", deadline_s=20.0):
        async def asked():
            found = await self.get(name)
            return found if found["status"].get("phase") == wanted else None

        return await self.until(asked, deadline_s)

    async def waits(self, name, words):
        async def asked():
            found = await self.get(name)
            for one in found["status"].get("conditions", ()):
                if one["type"] == "PodScheduled" and words in one.get("message", ""):
                    return one
            return None

        return await self.until(asked)


@asynccontextmanager
async def rig(folder, nodes=NODES, **settings) -> AsyncIterator[Rig]:
    async with (
        running_cluster(nodefile.read(list(nodes)), ClusterSettings(**settings)) as cluster,
        Processes(folder / "logs", os.environ) as processes,
    ):
        yield Rig(cluster, processes, folder)


def promised(found):
    """(card, memory) of each entry of a vGPU assignment; none before there is one."""
    entries = found["metadata"].get("annotations", {}).get(IDS, "").replace(";", ":").split(":")
    return [(entry.split(",")[0], int(entry.split(",")[2])) for entry in entries if entry]
