"""Answers ``/v1/simulate``: a child process reads the cluster, makes the change in memory, and decides as this one.

The child does all the work, at the lowest priority and within limits of time and memory, so that decisions here do not
wait for it. It gets what only this process knows: the configuration in force, and the places of pods whose Bindings are
not written yet. It cannot write: a simulation has no way to do so, and its connection sends only lists.
"""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any, Final
from weakref import ref

import msgspec
import structlog

from controller.actions import Inbox
from controller.config import Config
from controller.deciding.scheduler import Scheduler
from controller.reporting.work import Work
from controller.simulating.reading import ExitStatus, Promised, SimulationRequest
from core.configuration import Decoded, Source
from core.errors import escaped
from core.model import container_names
from core.port.handoff import Stamp
from core.wire.changes import Change, decode_change
from runtime.calls import Call, RefusedCallError, Reply

_log: Final = structlog.get_logger()

_LIMIT_S: Final = 120
_LOOK_S: Final = 0.1
_RETRY_S: Final = 10
_PIECE_BYTES: Final = 1 << 16
_MEMORY_MAX_BYTES: Final = 1 << 30
# What the controller may grow by meanwhile, and less than a child needs for a small cluster.
_SPARE_BYTES: Final = 256 << 20
_LEAST_BYTES: Final = 160 << 20
_CGROUP: Final = Path("/sys/fs/cgroup")
_INSTEAD: Final = "run kubectl cards simulate without --controller"
_STATUSES: Final[Mapping[int, int]] = {
    ExitStatus.OK: 200,
    ExitStatus.UNUSABLE: 400,
    ExitStatus.UNREADABLE: 503,
    ExitStatus.NO_MEMORY: 503,
    ExitStatus.TOO_LONG: 503,
}
# What Python says if there is too little memory even to handle that.
_NO_MEMORY: Final = (b"MemoryError", b"can't start new thread")


class _Pieces:
    """An answer in pieces, made as the caller reads; is_left: whether some of it was not taken."""

    def __init__(self, text: bytes) -> None:
        self._text = memoryview(text)

    @property
    def is_left(self) -> bool:
        return bool(self._text)

    def __aiter__(self) -> "_Pieces":
        return self

    async def __anext__(self) -> bytes:
        if not self._text:
            raise StopAsyncIteration
        piece, self._text = self._text[:_PIECE_BYTES], self._text[_PIECE_BYTES:]
        return bytes(piece)


class Simulator:
    """Simulates one change at a time, and only once the answer before was read: one answer at most is kept."""

    def __init__(
        self,
        scheduler: Scheduler,
        inbox: Inbox,
        config: Config,
        parts: Callable[[], Mapping[Source, Decoded]],
        *,
        limit_s: float = _LIMIT_S,
        command: Sequence[str] = (sys.executable, "-m", "controller.simulating"),
    ) -> None:
        """Prepare; *parts* returns the texts of the configuration in force. *command*: of the child."""
        self._scheduler: Final = scheduler
        self._inbox: Final = inbox
        self._config: Final = config
        self._parts: Final = parts
        self._limit_s: Final = limit_s
        self._command: Final = tuple(command)
        self._is_busy = False
        # What is being sent; gone when it is sent, or its caller is gone.
        self._sent: Callable[[], _Pieces | None] = lambda: None

    async def answer(self, call: Call) -> Reply:
        """Return what would happen if the `Change` in the body of *call* was made.

        Raises:
            InvalidRequestError: the body is no change.
            RefusedCallError: another simulation runs, or its answer is not read yet.
        """
        change = decode_change(bytes(call.body))
        sent = self._sent()
        if self._is_busy or (sent is not None and sent.is_left):
            raise RefusedCallError(
                429, f"another simulation runs; ask again when it has ended, or {_INSTEAD}", retry_after_s=_RETRY_S
            )
        self._is_busy = True
        try:
            return await self._simulate(change, call.has_left)
        finally:
            self._is_busy = False

    async def _simulate(self, change: Change, has_left: Callable[[], bool]) -> Reply:
        room_bytes = min(await asyncio.to_thread(room), _MEMORY_MAX_BYTES)
        if room_bytes < _LEAST_BYTES:
            text = f"{_INSTEAD}, or raise the controller's memory limit: a simulation here would have too little memory"
            return _told(503, text)
        request = SimulationRequest(
            change=change,
            texts=tuple(one.text for one in self._parts().values()),
            scheduler_names=self._scheduler.cluster.settings.scheduler_names,
            hami_config=self._config.hami_config,
            trusted=tuple(sorted(self._config.trusted)),
            promised=await self._promised(),
            kubeconfig=self._config.kubeconfig,
            limit_s=ceil(self._limit_s),
            memory_bytes=room_bytes,
        )
        child = await asyncio.to_thread(_child, self._command)
        talk = asyncio.create_task(asyncio.to_thread(child.communicate, msgspec.json.encode(request)))
        try:
            async with asyncio.timeout(self._limit_s):
                while not talk.done():
                    await asyncio.wait([talk], timeout=_LOOK_S)
                    if has_left():
                        return _told(503, "the caller is gone")
        except TimeoutError:
            return _told(503, f"{_INSTEAD}: a simulation here takes longer than {self._limit_s:g} s")
        finally:
            child.kill()  # without effect once it has ended
            told, problem = await talk
        reply = _reply(child.returncode, told, problem)
        if isinstance(reply.body, _Pieces):
            self._sent = ref(reply.body)
        return reply

    async def _promised(self) -> tuple[Promised, ...]:
        await self._inbox.settled()
        ledger, work, now_s = self._scheduler.cluster.ledger, Work(time.monotonic), int(time.time())
        found: list[Promised] = []
        for placement in [one.placement for one in self._scheduler.cluster.queue if one.placement is not None]:
            annotations = dict(ledger.told_of(placement))
            if placement.dialect is not None:
                names = container_names(placement.asked_by) if placement.asked_by is not None else ()
                stamp = Stamp(node=placement.node, now_s=now_s, order=0, containers=names)
                dialect = ledger.catalog.dialects[placement.dialect]
                annotations |= dialect.annotations(placement.assignment, stamp, ledger.tables)
            found.append(Promised(placement.pod, placement.node, annotations))
            await work.give_way()
        return tuple(found)


def _child(command: Sequence[str]) -> "subprocess.Popen[bytes]":
    # More threads of the library would need more memory.
    environ = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.Popen(  # noqa: S603 (our own code)
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environ,
    )


def _reply(code: int, told: bytes, problem: bytes) -> Reply:
    if code == ExitStatus.OK:
        return Reply(_Pieces(told + b"\n"))
    if code == ExitStatus.NO_MEMORY or (code not in _STATUSES and any(one in problem for one in _NO_MEMORY)):
        return _told(503, f"{_INSTEAD}, or raise the controller's memory limit: a simulation here needs more memory")
    if code in _STATUSES:
        return _told(_STATUSES[code], told.decode("utf-8", "replace"))
    _log.error("simulation failed", code=code, output=escaped(problem.decode("utf-8", "replace")[-4000:]))
    return _told(500, f"the simulation failed; see the controller's log, and {_INSTEAD}")


def _told(status: int, text: str) -> Reply:
    found: dict[str, Any] = {"text": text}
    return Reply(msgspec.json.encode(found) + b"\n", status)


def room(cgroup: Path = _CGROUP) -> int:
    """Return how many bytes a child may use within the container's limit (cgroup v2); many if there is no limit."""
    try:
        limit, used = ((cgroup / f"memory.{name}").read_text(encoding="ascii").strip() for name in ("max", "current"))
        stat = dict(line.split() for line in (cgroup / "memory.stat").read_text(encoding="ascii").splitlines())
        # The kernel takes back files that it keeps in memory.
        return int(limit) - int(used) + int(stat.get("inactive_file", 0)) - _SPARE_BYTES
    except (OSError, ValueError):
        return _MEMORY_MAX_BYTES
