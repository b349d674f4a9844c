"""What a Service does for its endpoints: new connections go in turn to those that say they are ready. Loopback only."""

import asyncio
import contextlib
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

_PIECE = 65_536
_PROBE_S = 0.1
# Kubelets give up sooner, and ask three times: a crowded machine answers late.
_ANSWERED_S = 10.0


@dataclass(frozen=True, slots=True)
class Backend:
    """One process: its port, and the one that its readiness is asked on."""

    port: int
    plain_port: int


class Balancer:
    """Passes bytes on; a connection that stands stays with its backend until one of both ends it.

    held_back: pieces that clients sent since `hold_back`, on connections that stood then.
    """

    def __init__(self) -> None:
        self.port = 0
        self.connections = 0
        self.refused = 0
        self.held_back = 0
        self._backends: list[Backend] = []
        self._ready: list[Backend] = []
        self._turn = 0
        self._tasks: set[asyncio.Task[None]] = set()
        # Of each connection that stands: set while what its client sends is passed on.
        self._gates: set[asyncio.Event] = set()

    def add(self, backend: Backend) -> None:
        """Probe *backend* from now on."""
        self._backends.append(backend)

    def remove(self, backend: Backend) -> None:
        """Its process is gone."""
        self._backends.remove(backend)
        if backend in self._ready:
            self._ready.remove(backend)

    def is_ready(self, backend: Backend) -> bool:
        """Whether new connections go there."""
        return backend in self._ready

    def hold_back(self) -> None:
        """Have what clients send on the connections that stand be on its way until `let_go`."""
        for gate in self._gates:
            gate.clear()

    def let_go(self) -> None:
        """Pass on what was held back, and what comes."""
        for gate in self._gates:
            gate.set()

    async def probe(self) -> None:
        """Ask all of them again and again."""
        asked: set[Backend] = set()
        async with asyncio.TaskGroup() as tasks:
            while True:
                # One that does not answer holds up no other.
                for one in {*self._backends} - asked:
                    asked.add(one)
                    tasks.create_task(self._probe(one, asked))
                await asyncio.sleep(_PROBE_S)

    async def _probe(self, one: Backend, asked: set[Backend]) -> None:
        ready = await asyncio.to_thread(_is_ready, one.plain_port)
        asked.discard(one)
        if ready and one in self._backends and one not in self._ready:
            self._ready.append(one)
        if not ready and one in self._ready:
            self._ready.remove(one)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        writers = [writer]
        gate = asyncio.Event()
        gate.set()
        self._gates.add(gate)
        try:
            if not self._ready:
                self.refused += 1
                return
            self._turn += 1
            backend = self._ready[self._turn % len(self._ready)]
            theirs = await asyncio.open_connection("127.0.0.1", backend.port)
            writers.append(theirs[1])
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_pass_on(self._through(gate, reader), theirs[1]))
                tasks.create_task(_pass_on(_pieces(theirs[0]), writer))
        except OSError:
            self.refused += 1
        except asyncio.CancelledError:
            return  # only `end` cancels it; the streams would call that a fault
        finally:
            self._tasks.discard(task)
            self._gates.discard(gate)
            for one in writers:
                one.close()

    async def _through(self, gate: asyncio.Event, source: asyncio.StreamReader) -> AsyncIterator[bytes]:
        async for piece in _pieces(source):
            self.held_back += not gate.is_set()
            await gate.wait()
            yield piece

    async def end(self) -> None:
        """End the connections that stand."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _pieces(source: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while piece := await source.read(_PIECE):
        yield piece


async def _pass_on(pieces: AsyncIterator[bytes], to: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        async for piece in pieces:
            to.write(piece)
            await to.drain()
    to.close()
    with contextlib.suppress(OSError):
        await to.wait_closed()


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=_ANSWERED_S) as answer:
            return bool(answer.status == 200)
    except urllib.error.HTTPError as e:
        e.close()
        return False
    except OSError:
        return False


@asynccontextmanager
async def balancer() -> AsyncIterator[Balancer]:
    """A balancer on a free port, without backends yet."""
    found = Balancer()
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    probing = asyncio.create_task(found.probe())
    try:
        yield found
    finally:
        probing.cancel()
        await asyncio.wait([probing])
        server.close()
        await found.end()
