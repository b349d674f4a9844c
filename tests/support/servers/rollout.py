"""Two webhooks behind a balancer, replaced one by one and given another authority, as a rollout and a renewal do it."""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from certs.authority import Authority, issue, new_authority
from sandbox.demo.processes import clean_environ, free_port
from tests.support.servers.balancer import Backend, Balancer
from tests.support.worlds.processes import Child, Children

# Longer than a balancer on a loaded machine takes to see it.
DRAIN_S = 6.0


@dataclass(frozen=True, slots=True)
class Replica:
    """One process and where it is."""

    child: Child
    backend: Backend


class Rollout:
    """The replicas, and the pair that all of them serve."""

    def __init__(self, children: Children, folder: Path, balancer: Balancer) -> None:
        self.certs = folder / "certs"
        self.certs.mkdir()
        self.balancer = balancer
        self.authority = new_authority("before", 2, datetime.now(UTC))
        self.replicas: list[Replica] = []
        self._children = children
        self._folder = folder
        self._write(self.authority, self.authority.cert_pem)

    async def start(self) -> None:
        """Two replicas, ready."""
        self.replicas = [await self.start_one(), await self.start_one()]

    async def replace_all(self) -> list[int]:
        """Each by a new one, the new one ready first; their exit codes."""
        codes = []
        for old in tuple(self.replicas):
            self.replicas.append(await self.start_one())
            os.kill(old.child.pid, signal.SIGTERM)
            codes.append(await asyncio.to_thread(self._children.stop, old.child, 90.0))
            self.balancer.remove(old.backend)
            self.replicas.remove(old)
        return codes

    async def rotate(self, trust: Callable[[bytes], Awaitable[None]]) -> None:
        """Have callers trust both authorities, then serve by the new one, then trust that alone.

        trust: returns once callers do.
        """
        new = new_authority("after", 2, datetime.now(UTC))
        both = self.authority.cert_pem + new.cert_pem
        await trust(both)
        self._write(new, both)
        for replica in self.replicas:
            await self._until_reloaded(replica)
        await trust(new.cert_pem)
        self.authority = new

    async def stop(self) -> None:
        """End the replicas."""
        for one in self.replicas:
            await asyncio.to_thread(self._children.stop, one.child)

    def _write(self, authority: Authority, bundle: bytes) -> None:
        leaf = issue(authority, ("localhost",), ("127.0.0.1",), 1, datetime.now(UTC))
        # One after the other, as they may be found half replaced.
        for name, content in (("ca.crt", bundle), ("tls.key", leaf.key_pem), ("tls.crt", leaf.cert_pem)):
            (self.certs / name).write_bytes(content)

    async def start_one(self, certs: Path | None = None) -> Replica:
        """One more replica, ready; it serves the pair in *certs*, by default that of all."""
        backend = Backend(free_port(), free_port())
        argv: list[str | Path] = [
            sys.executable, "-m", "webhook", "--listen", f"127.0.0.1:{backend.port}",
            "--metrics-listen", f"127.0.0.1:{backend.plain_port}", "--cert-dir", certs or self.certs, "--no-inventory",
            "--drain-s", str(DRAIN_S),
        ]  # fmt: skip
        environ = clean_environ(os.environ)
        name = f"webhook-{backend.port}"
        child = await asyncio.to_thread(self._children.start, name, argv, env=environ, cwd=self._folder)
        self.balancer.add(backend)
        async with asyncio.timeout(90):
            while not self.balancer.is_ready(backend):
                assert child.exit_code is None, child.log_tail()
                await asyncio.sleep(0.05)
        return Replica(child, backend)

    async def _until_reloaded(self, replica: Replica) -> None:
        async with asyncio.timeout(120):
            while "certificate replaced" not in replica.child.log_tail():  # noqa: ASYNC110 (as above)
                await asyncio.sleep(0.1)
