"""Connections of one port for several processes: the keeper accepts them, and the worker that has fewest gets each.

The kernel, where several processes listen, goes by a hash of the addresses. API servers keep few connections, and for
hours: of four of them, one time in eight all would be one worker's.
"""

import asyncio
import contextlib
import socket
from typing import Final

import structlog

_log: Final = structlog.get_logger()

_AT_A_TIME: Final = 64
# Without a descriptor left there is nothing to accept with, and asking again at once would be all that is done.
_PAUSE_S: Final = 1.0


class Inlet:
    """The keeper's way to one worker. connections: what the worker had when it last told; given: handed over since."""

    def __init__(self) -> None:
        self._end, self.theirs = socket.socketpair()
        self._end.setblocking(False)
        self.connections = 0
        self.given = 0

    @property
    def load(self) -> int:
        """How many connections the worker has, as far as is known here."""
        return self.connections + self.given

    def fileno(self) -> int:
        """For those who wait for the worker's word."""
        return self._end.fileno()

    def is_ready(self) -> bool | None:
        """Whether the worker has said so; None when it is gone."""
        try:
            return True if self._end.recv(1) else None
        except BlockingIOError:
            return False
        except OSError:
            return None

    def give(self, connection: socket.socket) -> bool:
        """Hand *connection* over; False if the worker takes no more."""
        try:
            socket.send_fds(self._end, [b"\0"], [connection.fileno()])
        except OSError:
            return False
        self.given += 1
        return True

    def tell(self, connections: int, given: int) -> None:
        """The worker told that it has *connections*; *given* of those since its last word were on their way by then."""
        self.connections = connections
        self.given -= given

    def close(self) -> None:
        """Give no more."""
        self._end.close()
        self.theirs.close()


class Door:
    """Accepts for all workers, as long as one of them takes what is accepted; until then, connections wait."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self._inlets: list[Inlet] = []
        self._open = False

    def add(self, inlet: Inlet) -> None:
        """Give to *inlet* too, once its worker says that it is ready."""
        asyncio.get_running_loop().add_reader(inlet.fileno(), self._hear, inlet)

    def remove(self, inlet: Inlet) -> None:
        """Give nothing more to *inlet*."""
        if inlet.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(inlet.fileno())
        if inlet in self._inlets:
            self._inlets.remove(inlet)
        inlet.close()
        if not self._inlets:
            self._shut()

    def close(self) -> None:
        """Accept no more."""
        self._inlets.clear()
        self._shut()
        self._listening.close()

    def _hear(self, inlet: Inlet) -> None:
        ready = inlet.is_ready()
        if ready is None:
            self.remove(inlet)
        elif ready and self._listening.fileno() >= 0:
            self._inlets.append(inlet)
            self._go_on()

    def _go_on(self) -> None:
        if not self._open and self._inlets:
            self._open = True
            asyncio.get_running_loop().add_reader(self._listening.fileno(), self._accept)

    def _shut(self) -> None:
        if self._open:
            self._open = False
            asyncio.get_running_loop().remove_reader(self._listening.fileno())

    def _accept(self) -> None:
        for _ in range(_AT_A_TIME):
            try:
                connection, _ = self._listening.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as e:
                _log.warning("connection not accepted", error=str(e), pause_s=_PAUSE_S)
                self._shut()
                asyncio.get_running_loop().call_later(_PAUSE_S, self._go_on)
                return
            # What is handed over is the worker's; where nobody takes it, the caller sees it closed and calls again.
            with connection:
                self._give(connection)

    def _give(self, connection: socket.socket) -> None:
        for inlet in sorted(self._inlets, key=lambda one: one.load):
            if inlet.give(connection):
                return


class Outlet:
    """A worker's end of its `Inlet`."""

    def __init__(self, descriptor: int) -> None:
        self._end = socket.socket(fileno=descriptor)
        self._end.setblocking(False)

    def fileno(self) -> int:
        """For those who wait for connections."""
        return self._end.fileno()

    def say_ready(self) -> None:
        """Ask for connections; a keeper that is gone sends none, and is missed elsewhere."""
        with contextlib.suppress(OSError):
            self._end.send(b"\0")

    def take(self) -> list[socket.socket]:
        """What was handed over by now.

        Raises:
            EOFError: nothing will be any more.
        """
        found: list[socket.socket] = []
        while True:
            try:
                text, descriptors, _, _ = socket.recv_fds(self._end, 1, 1)
            except BlockingIOError:
                return found
            except OSError:
                text, descriptors = b"", []
            if not text and not found:
                raise EOFError
            if not text:
                return found
            found += [socket.socket(fileno=one) for one in descriptors]

    def close(self) -> None:
        """Take no more."""
        self._end.close()
