"""A controller as a process of its own beside a cluster: what scenarios need, whichever API server they are played on.

A scenario is written once, in `tests/integration`, and played twice: there on the embedded cluster, and by
`tests/e2e/test_scenarios.py` on a real kube-apiserver, with the manifests' arguments, accounts and rights. Nothing but
the fixture `rig` makes it one:

    from tests.support.worlds.controller_rig import NODES, pod, share

    async def test_a_share_is_placed(rig):
        async with rig(nodes=NODES[:1]) as world:
            await world.controller()
            await world.add(pod("p", share(1000)))
            await world.phase("p")
            assert world.records.of("default/p")["main"]["CUDA_DEVICE_MEMORY_LIMIT_0"] == "1000m"

`rig(nodes=..., kubelet=KubeletSettings(...))` opens a `Rig`: the nodes are played, the shipped rights are there, no
controller runs yet. A scenario reaches the cluster through its `Rig` alone, and all that it makes there goes when it
ends. A scenario in which the webhook takes part asks for the fixture `staged` instead: `staged(nodes=..., kubelet=...)`
opens a `sandbox.demo.stage.Stage`, with webhook and controller running and registered. A test that asks for neither is
listed in `tests.support.worlds.scenarios` with the reason why no real server plays it, or a unit test fails.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol

import aiohttp

from sandbox.client import ApiClient, ApiStatusError
from sandbox.cluster import kubeconfig_text
from sandbox.demo.processes import Processes
from sandbox.demo.product import CONTROLLER_ACCOUNT, NAMESPACE, apply
from sandbox.demo.stage import NODES as STAGE_NODES
from sandbox.demo.stage import Stage
from sandbox.nodes.kubelet import Kubelet, KubeletSettings
from sandbox.nodes.plugin_port import Records

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


class Rig(ABC):
    """A cluster with played nodes, and the controllers that the scenario starts beside it.

    client: an administrator's. url: of the running controller. records, kubelet: the players'. folder: for files.
    """

    def __init__(
        self,
        *,
        client: ApiClient,
        admin_token: str,
        ca_pem: bytes,
        records: Records,
        kubelet: Kubelet,
        processes: Processes,
        folder: Path,
    ) -> None:
        self.client = client
        self.admin_token = admin_token
        self.ca_pem = ca_pem
        self.records = records
        self.kubelet = kubelet
        self.processes = processes
        self.folder = folder
        self.url = ""

    async def token(self, account=CONTROLLER_ACCOUNT, namespace=NAMESPACE, *, audiences=()):
        """A token of a service account, which is made if it is not there."""
        accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        await self.ensure(accounts, account)
        answer = await self.client.create(f"{accounts}/{account}/token", {"spec": {"audiences": list(audiences)}})
        return answer["status"]["token"]

    async def kubeconfig(self, account=CONTROLLER_ACCOUNT, namespace=NAMESPACE, *, server=""):
        """The text of a kubeconfig of a service account, by way of *server* if that is not the API server itself."""
        token = await self.token(account, namespace)
        return kubeconfig_text(server=server or self.client.server, ca_pem=self.ca_pem, token=token, user=account)

    async def write_kubeconfig(self, account):
        """Write a kubeconfig of a service account of namespace default, and say where."""
        path = self.folder / account
        await asyncio.to_thread(path.write_text, await self.kubeconfig(account, "default"))
        return str(path)

    def write_admins_kubeconfig(self):
        """Write a kubeconfig of the administrator, and say where."""
        path = self.folder / "admin.kubeconfig"
        server, token = self.client.server, self.admin_token
        path.write_text(kubeconfig_text(server=server, ca_pem=self.ca_pem, token=token, user="admin"))
        return path

    async def ensure(self, path, name, **fields):
        """Create an object of that name, unless it is there."""
        try:
            await self.client.create(path, {"metadata": {"name": name}, **fields})
        except ApiStatusError as e:
            if e.reason != "AlreadyExists":
                raise

    async def apply(self, documents):
        """Create objects, or bring those that are there into this state."""
        await apply(self.client, documents)

    @abstractmethod
    async def used_rights(self, account=CONTROLLER_ACCOUNT, namespace=NAMESPACE):
        """(verb, API group, resource or resource/subresource) of all that an account asked for."""

    async def controller(self, *flags, kubeconfig=None, wait=True, name="controller", fail_at="", module="controller"):
        """Start a controller; *kubeconfig* (a path) in place of its own account's way to the API server.

        fail_at: how it is to fail, as `tests.support.worlds.failing_controller` understands it. module: what is run.
        """
        if kubeconfig is not None:
            flags = ("--kubeconfig", str(kubeconfig), *flags)
        # No other controller runs here.
        alone = () if "--lease" in flags else ("--lease", "none")
        if fail_at:
            module = "tests.support.worlds.failing_controller"
            flags = (f"--fail-at={fail_at}", *flags)
        running, self.url = await self._start_controller(name, module, (*alone, *flags))
        if wait:
            await self.processes.ready(running, f"{self.url}/readyz")
        return running

    @abstractmethod
    async def _start_controller(self, name, module, flags):
        """Start *module* by that name with *flags*: the process, and the URL of its plain port."""

    async def http(self, path, accept="application/json"):
        headers = {"Accept": accept}
        async with aiohttp.ClientSession() as session, session.get(self.url + path, headers=headers) as answer:
            return answer.status, await answer.text()

    async def until(self, what, deadline_s=60.0):
        """Ask *what* until it answers something true."""
        async with asyncio.timeout(deadline_s):
            while not (found := await what()):  # noqa: ASYNC110 (the cluster tells nobody)
                await asyncio.sleep(0.05)
        return found

    async def served(self, path):
        """Wait until the server serves *path*: a definition is taken before what it defines."""

        async def asked():
            try:
                await self.client.get(path)
            except ApiStatusError:
                return False
            return True

        await self.until(asked)

    async def not_ready_because(self, words, deadline_s=60.0):
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

    async def add_unreadable_node(self, name):
        """Make a node whose cards cannot be read, which the controller says in an Event of it."""
        bad = {"metadata": {"name": name, "annotations": {"volcano.sh/node-vgpu-register": "nonsense"}}}
        have = dict.fromkeys(("volcano.sh/vgpu-number", "volcano.sh/vgpu-memory", "volcano.sh/vgpu-cores"), "10")
        await self.client.create("/api/v1/nodes", bad)
        await self.client.patch(f"/api/v1/nodes/{name}/status", {"status": {"capacity": have, "allocatable": have}})

    async def told(self, name, reason):
        """Return the Events with this reason about an object with this name."""
        events = await self.client.list("/api/v1/namespaces/default/events")
        # An API server that starts slowly tells there of a ServiceCIDR without a name.
        return [one for one in events if (one["involvedObject"].get("name"), one["reason"]) == (name, reason)]

    async def phase(self, name, wanted="Running", deadline_s=60.0):
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


class OpensRig(Protocol):
    """What the fixture `rig` is: opens a cluster with *nodes*, as in a node file.

    expects: parts of what the audit that ends it finds, as `tests.support.worlds.ending` says; else it has to find
    nothing.
    """

    def __call__(
        self,
        nodes: Sequence[Mapping[str, Any]] = NODES,
        *,
        kubelet: KubeletSettings | None = None,
        expects: Sequence[str] = (),
    ) -> AbstractAsyncContextManager[Rig]: ...


class OpensStage(Protocol):
    """What the fixture `staged` is: opens a cluster with *nodes* and the product installed.

    expects: see `OpensRig`. volcano: whether Volcano's kinds are installed.
    """

    def __call__(
        self,
        kubelet: KubeletSettings | None = None,
        nodes: Sequence[Mapping[str, Any]] = STAGE_NODES,
        *,
        expects: Sequence[str] = (),
        volcano: bool = False,
    ) -> AbstractAsyncContextManager[Stage]: ...


def promised(found):
    """(card, memory) of each entry of a vGPU assignment; none before there is one."""
    entries = found["metadata"].get("annotations", {}).get(IDS, "").replace(";", ":").split(":")
    return [(entry.split(",")[0], int(entry.split(",")[2])) for entry in entries if entry]
