"""Several processes on one port, and one that watches them, speaks for them on the plain port and starts them again.

A worker and its keeper share two socket pairs. Over one the keeper asks for the worker's figures and whether it is
ready; a worker that finds it closed has lost its keeper, and drains. Over the other it hands over connections.
"""

import asyncio
import json
import os
import signal
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import structlog

from core.errors import ConfigError
from runtime.listening import cannot_listen
from webhook.app import BACKLOG, Port, bound
from webhook.calls import PlainCalls
from webhook.metrics import Metrics
from webhook.options import Address, Options
from webhook.sharing import Door, Inlet

_log: Final = structlog.get_logger()

# Names the descriptors of its ends to a worker.
_CHANNEL: Final = "CARDSHARE_WEBHOOK_CHANNEL"
_ASK_S: Final = 1.0
_ANSWER_S: Final = 2.0
# A worker whose loop answers nothing for so long will not recover.
_SILENCE_S: Final = 30.0
_START_S: Final = 60.0
_FIRST_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 10.0
_STABLE_S: Final = 30.0
_GRACE_S: Final = 20.0
_MAX_LINE: Final = 2**20


class Channel(NamedTuple):
    """A worker's descriptors: where it is asked, and where connections come from."""

    report: int
    outlet: int


def channel_of(environ: Mapping[str, str]) -> Channel | None:
    """What a keeper gave to this process; None if nobody did."""
    found = environ.get(_CHANNEL)
    return Channel(*map(int, found.split(","))) if found else None


async def report(descriptor: int, figures: Callable[[], dict[str, Any]], gone: Callable[[], None]) -> None:
    """Answer the keeper on *descriptor* until it is gone; then say so by *gone*."""
    end = socket.socket(fileno=descriptor)
    end.setblocking(False)
    reader, writer = await asyncio.open_unix_connection(sock=end)
    try:
        while line := await reader.readline():
            writer.write(json.dumps({"to": int(line), **figures()}).encode() + b"\n")
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()
        gone()


class _Worker:
    """One place for a worker: the process that fills it now, and what it told last."""

    def __init__(self) -> None:
        self.process: Process | None = None
        self.told: dict[str, Any] | None = None
        self.why_not_ready = "starting"
        self.inlet: Inlet | None = None
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None
        self.asking = asyncio.Lock()
        self._asked = 0

    async def ask(self) -> None:
        """Bring what it told up to date; an OSError or TimeoutError where it does not answer."""
        async with self.asking:
            reader, writer = self.reader, self.writer
            if reader is None or writer is None:
                return
            if writer.is_closing():
                raise ConnectionResetError("the worker is gone")
            self._asked += 1
            given = self.inlet.given if self.inlet is not None else 0
            async with asyncio.timeout(_ANSWER_S):
                writer.write(b"%d\n" % self._asked)
                await writer.drain()
                while line := await reader.readline():
                    found = json.loads(line)
                    # What comes before is the answer to a question that was given up.
                    if found["to"] == self._asked:
                        self.told, self.why_not_ready = found["figures"], found["why_not_ready"]
                        if self.inlet is not None:
                            self.inlet.tell(found["connections"], given)
                        return


class Keeper:
    """Keeps `--workers` processes running until SIGTERM or SIGINT, then has all of them drain."""

    def __init__(self, options: Options, argv: Sequence[str], environ: Mapping[str, str]) -> None:
        self._options = options
        self._argv = tuple(argv)
        self._environ = dict(environ)
        self._workers = [_Worker() for _ in range(options.workers)]
        self._gone = Metrics()
        self._stopping = False

    async def run(self) -> None:
        """Keep them.

        Raises:
            ConfigError: an address cannot be had.
        """
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        plain = Port(PlainCalls(self._exposition, self._why_not_ready), self._options.metrics_listen)
        try:
            listening = bound(self._options.listen, shared=True)
        except OSError as e:
            raise ConfigError([cannot_listen("--listen", self._options.listen, e)]) from e
        try:
            metrics_listen = await plain.start()
        except OSError as e:
            listening.close()
            raise ConfigError([cannot_listen("--metrics-listen", self._options.metrics_listen, e)]) from e
        listen = Address(host=self._options.listen.host, port=listening.getsockname()[1])
        # While no worker runs, connections wait.
        listening.listen(BACKLOG)
        door = Door(listening)
        _log.info("webhook serving", listen=str(listen), metrics_listen=str(metrics_listen), workers=len(self._workers))
        try:
            async with asyncio.TaskGroup() as tasks:
                keeping = [tasks.create_task(self._keep(one, door), name="worker") for one in self._workers]
                asking = tasks.create_task(self._watch(), name="watch")
                await stop.wait()
                self._stopping = True
                _log.info("webhook draining", drain_s=self._options.drain_s)
                for one in self._workers:
                    _signal(one, signal.SIGTERM)
                await asyncio.wait(keeping, timeout=self._options.drain_s + _GRACE_S)
                for one in self._workers:
                    _signal(one, signal.SIGKILL)
                asking.cancel()
        finally:
            door.close()
            await plain.stop(1.0)
        _log.info("webhook stopped")

    async def _keep(self, worker: _Worker, door: Door) -> None:
        pause_s = _FIRST_PAUSE_S
        loop = asyncio.get_running_loop()
        while not self._stopping:
            began_s = loop.time()
            code = await self._run_one(worker, door)
            if self._stopping:
                return
            self._gone.worker_restarts += 1
            pause_s = _FIRST_PAUSE_S if loop.time() - began_s > _STABLE_S else min(2 * pause_s, _LONGEST_PAUSE_S)
            _log.warning("worker ended; it is started again", exit_code=code, pause_s=pause_s)
            await asyncio.sleep(pause_s)

    async def _run_one(self, worker: _Worker, door: Door) -> int:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        worker.inlet = inlet = Inlet()
        with theirs, inlet.theirs:
            channel = Channel(theirs.fileno(), inlet.theirs.fileno())
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "webhook", *self._argv),
                pass_fds=channel,
                env={**self._environ, _CHANNEL: f"{channel.report},{channel.outlet}"},
            )
        worker.process = process
        door.add(inlet)
        try:
            worker.reader, worker.writer = await asyncio.open_unix_connection(sock=ours, limit=_MAX_LINE)
            if self._stopping:
                _signal(worker, signal.SIGTERM)
            return await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
            if worker.writer is not None:
                worker.writer.close()
            if worker.told is not None:
                self._gone.add(worker.told, gone=True)
            door.remove(inlet)
            worker.process = worker.inlet = worker.reader = worker.writer = worker.told = None
            worker.why_not_ready = "starting"

    async def _watch(self) -> None:
        silent_s = dict.fromkeys(range(len(self._workers)), 0.0)
        while True:
            await asyncio.sleep(_ASK_S)
            for at, worker in enumerate(self._workers):
                process = worker.process
                try:
                    await worker.ask()
                    silent_s[at] = 0.0
                except (OSError, ValueError):
                    silent_s[at] += _ASK_S + _ANSWER_S
                if silent_s[at] > (_SILENCE_S if worker.told else _START_S) and process is worker.process:
                    _log.warning("worker does not answer; it is ended", silent_s=silent_s[at])
                    silent_s[at] = 0.0
                    _signal(worker, signal.SIGKILL)

    async def _ask_all(self) -> None:
        await asyncio.gather(*(worker.ask() for worker in self._workers), return_exceptions=True)

    async def _exposition(self) -> bytes:
        await self._ask_all()
        total = Metrics()
        total.add(self._gone.figures(), gone=True)
        told = [one.told for one in self._workers if one.told is not None]
        for figures in told:
            total.add(figures)
        total.workers = len(told)
        total.worker_restarts = self._gone.worker_restarts
        return total.exposition()

    async def _why_not_ready(self) -> str:
        if self._stopping:
            return "draining"
        await self._ask_all()
        reasons = [one.why_not_ready for one in self._workers]
        # One that is being started again is no reason to send nobody to the others.
        told = [reason for one, reason in zip(self._workers, reasons, strict=True) if one.told is not None]
        return next((reason for reason in told if reason), "" if told else "no worker runs yet")


def _signal(worker: _Worker, number: signal.Signals) -> None:
    if worker.process is not None and worker.process.returncode is None:
        try:
            os.kill(worker.process.pid, number)
        except ProcessLookupError:
            return
