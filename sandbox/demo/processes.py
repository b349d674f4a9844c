"""Runs the product's processes as an operator would, with their logs in a folder, and always ends them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, NoReturn, Protocol, Self

import aiohttp

import core

_ROOT: Final = Path(__file__).resolve().parents[2]
_GUARD: Final = Path(__file__).with_name("guard.py")
_STOP_WITHIN_S: Final = 40.0
_LOOK_S: Final = 0.3


def clean_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """Return *environ* for a process of this checkout, with the core that runs here, compiled or interpreted.

    Variables that would configure it are removed, because a user's CARDSHARE_ variable must not change the outcome.
    """
    kept = {key: value for key, value in environ.items() if not key.startswith(("CARDSHARE_", "KUBE"))}
    found = (str(Path(core.__path__[0]).parent), str(_ROOT), *environ.get("PYTHONPATH", "").split(os.pathsep))
    path = os.pathsep.join(dict.fromkeys(filter(None, found)))
    return kept | {"PYTHONSAFEPATH": "1", "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}


class ProcessFailedError(Exception):
    """A process ended, or is not ready in time; the text quotes the end of its log."""


class Process(Protocol):
    """The part of `asyncio.subprocess.Process` that is used here."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None:
        """The exit code, minus the signal's number if one ended it, or None while it runs."""
        ...

    async def wait(self) -> int:
        """Wait for the end, and return the exit code."""
        ...

    def terminate(self) -> None:
        """Ask it to end."""
        ...


# Starts a module with its arguments and whole environment; its output goes to a file descriptor.
Launch = Callable[[str, Sequence[str], Mapping[str, str], int], Awaitable[Process]]


async def by_command(module: str, arguments: Sequence[str], environ: Mapping[str, str], output: int) -> Process:
    """Start ``python -m MODULE``, the leader of its own session."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=output,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
        env=environ,
    )


@dataclass(slots=True, kw_only=True)
class Running:
    """One process, the leader of its own group."""

    name: str
    log: Path
    process: Process

    def log_tail(self, lines: int = 15) -> str:
        return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process and everything it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)


class Processes:
    """Starts processes of this checkout; leaving the context stops them all, the last one first.

    launch: how each is started. Temporary files are beside the logs: one that is killed leaves its own.
    """

    def __init__(self, logs: Path, environ: Mapping[str, str], *, launch: Launch = by_command) -> None:
        self.logs = logs
        self._launch = launch
        self._environ = clean_environ(environ) | {"TMPDIR": str(logs.absolute())}
        self._running: list[Running] = []
        self._guard: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        self.logs.mkdir(parents=True, exist_ok=True)
        self._guard = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", str(_GUARD), stdin=asyncio.subprocess.PIPE, start_new_session=True
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for running in reversed(self._running):
            await self.stop(running)
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.stdin.close()
            await self._guard.wait()

    async def start(
        self, name: str, module: str, arguments: Sequence[str], environ: Mapping[str, str] | None = None
    ) -> Running:
        """Start *module* with *arguments* and additional variables; its output goes to ``<logs>/<name>.log``."""
        log = self.logs / f"{name}.log"
        with log.open("ab") as output:
            process = await self._launch(module, arguments, {**self._environ, **(environ or {})}, output.fileno())
        self._tell_guard(f"+{process.pid}")
        running = Running(name=name, log=log, process=process)
        self._running.append(running)
        return running

    async def stop(self, running: Running) -> int:
        """Ask it to end, kill the rest of its group after some seconds, and return its exit code."""
        if running.process.returncode is None:
            running.signal(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(running.process.wait(), _STOP_WITHIN_S)
        running.signal(signal.SIGKILL)
        code = await running.process.wait()
        self._tell_guard(f"-{running.process.pid}")
        return code

    async def ready(self, running: Running, url: str, *, within_s: float = 60.0) -> None:
        """Wait until *url* answers 200.

        Raises:
            ProcessFailedError: the process ended, or was not ready in time.
        """
        last = "no connection"
        try:
            async with asyncio.timeout(within_s), aiohttp.ClientSession() as session:
                while running.process.returncode is None:
                    with contextlib.suppress(aiohttp.ClientError, OSError):
                        async with session.get(url) as response:
                            if response.status == 200:
                                return
                            last = f"{response.status} {(await response.text())[:300]}"
                    await asyncio.sleep(0.05)
        except TimeoutError as e:
            raise ProcessFailedError(
                f"{running.name} is not ready after {within_s:.0f} s ({last}):\n{running.log_tail()}"
            ) from e
        raise ProcessFailedError(f"{running.name} ended with code {running.process.returncode}:\n{running.log_tail()}")

    def _tell_guard(self, line: str) -> None:
        if self._guard is not None and self._guard.stdin is not None and self._guard.returncode is None:
            self._guard.stdin.write(f"{line}\n".encode("ascii"))


async def watch(*watched: Running) -> NoReturn:
    """Wait until one of them ends unexpectedly.

    Raises:
        ProcessFailedError: one ended.
    """
    while True:
        for running in watched:
            code = running.process.returncode
            if code is not None:
                how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
                raise ProcessFailedError(f"{running.name} {how}; its log says at last:\n{running.log_tail()}")
        await asyncio.sleep(_LOOK_S)


def free_port() -> int:
    """Return a free TCP port of the loopback interface that is not given to others for a minute.

    The side that ends a connection keeps its port for that time in the state TIME-WAIT. A process that asks for any
    port gets another one, but a process may listen on it by number. So two simultaneous calls never return the same
    port.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            server.accept()[0].close()
            client.recv(1)
        return port
