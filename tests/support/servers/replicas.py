"""Several controllers that compete for one lease, each with a proxy of its own that can spoil its way."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
import msgspec

from core.settings import Tables
from core.wire.nodes import decode_node
from core.wire.pods import decode_pod
from sandbox.demo.processes import Running
from tests.support.servers.fault_proxy import FaultProxy, fault_proxy
from tests.support.worlds.audit import audit
from tests.support.worlds.controller_rig import PODS, Rig

LEASE = "/apis/coordination.k8s.io/v1/namespaces/cardshare-system/leases/cardshare-controller"
# What a lease may be, at the least, where nobody wants to wait for longer.
QUICK = ("--lease-duration", "8", "--lease-renew-deadline", "5", "--lease-retry-period", "1")
# Whoever follows well within a minute has not waited for it to run out.
LONG = ("--lease-duration", "60", "--lease-renew-deadline", "50")
_NO_WRITES = ("/leases", "/cardshare-controller", "reviews")


class Replica:
    """One controller."""

    def __init__(self, name: str, running: Running, url: str, proxy: FaultProxy) -> None:
        self.name, self.running, self.url, self.proxy = name, running, url, proxy

    async def get(self, path: str) -> tuple[int, str]:
        """What its plain port answers; (0, "") where nobody does."""
        try:
            async with asyncio.timeout(10), aiohttp.ClientSession() as session, session.get(self.url + path) as answer:
                return answer.status, await answer.text()
        except (aiohttp.ClientError, OSError, TimeoutError):
            return 0, ""

    async def leads(self) -> bool:
        """Whether it says so."""
        return "cardshare_leading 1.0" in (await self.get("/metrics"))[1]

    def writes(self) -> list[tuple[float, str, str]]:
        """(seconds of the loop, verb, path) of all that it sent to change the cluster, but the lease."""
        return [one for one in self.proxy.seen if one[1] != "GET" and not one[2].endswith(_NO_WRITES)]


class Replicas:
    """The replicas of one cluster."""

    def __init__(self, world: Rig, stack: AsyncExitStack) -> None:
        self.world, self._stack = world, stack
        self.all: list[Replica] = []

    async def start(self, *flags: str, fail_at: str = "") -> Replica:
        """One more; returns once it is ready. fail_at: see `Rig.controller`."""
        world, name = self.world, f"controller-{len(self.all)}"
        proxy = await self._stack.enter_async_context(fault_proxy(world.client.server, world.ca_pem))
        kubeconfig = world.folder / f"{name}.kubeconfig"
        await asyncio.to_thread(kubeconfig.write_text, await world.kubeconfig(server=proxy.url))
        lease = ("--lease", "cardshare-system/cardshare-controller")
        running = await world.controller(*lease, *flags, kubeconfig=kubeconfig, name=name, fail_at=fail_at)
        self.all.append(Replica(name, running, world.url, proxy))
        if len(self.all) == 1:
            # A standby is ready too: the next one must not be quicker to the lease.
            await self.leader()
        return self.all[-1]

    async def leader(self, *, but: Replica | None = None, deadline_s: float = 60.0) -> Replica:
        """The one that decides, as soon as there is one other than *but*."""

        async def asked() -> Replica | None:
            for one in self.all:
                if one is not but and await one.leads():
                    return one
            return None

        found: Replica = await self.world.until(asked, deadline_s)
        return found

    def epochs(self) -> list[str]:
        """Who wrote, one after the other. A replica that loses the lease ends, so that nobody is there twice."""
        writes = sorted((at_s, one.name) for one in self.all for at_s, *_ in one.writes())
        return [name for name, _ in itertools.groupby(name for _, name in writes)]

    async def sound(self) -> None:
        """Fail if two wrote in turns, or a card is over its total."""
        epochs = self.epochs()
        assert len(epochs) == len(set(epochs)), epochs
        assert await findings(self.world) == []


async def findings(world: Rig) -> list[str]:
    """What is wrong with the cluster by its objects."""
    nodes = [decode_node(msgspec.json.encode(one)) for one in await world.client.list("/api/v1/nodes")]
    pods = [decode_pod(msgspec.json.encode(one)) for one in await world.client.list(PODS)]
    return audit(nodes, pods, Tables())


@asynccontextmanager
async def replicas(world: Rig) -> AsyncIterator[Replicas]:
    """None yet; their lease is gone before and after."""
    async with AsyncExitStack() as stack:
        yield Replicas(world, stack)
