"""Starts processes of the product as forks of one that has imported it: each is ready without its second of imports.

Scenarios start some hundred. What the command itself does, down to its imports, is seen where it is started by its
name: by the demo, by `integration/test_*_process`, and by what e2e installs from the manifests. Linux only; elsewhere,
and where variables of Python's own differ, every process is started by its command.

`python -m tests.support.worlds.forking FD` is the process that forks: for each request on the socket FD, whose output
comes as a descriptor beside it, it answers the process id. A fork is handed to the process of the tests as its child.
"""

import asyncio
import atexit
import ctypes
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from threading import Lock
from typing import Any, Final

from sandbox.demo.processes import Process, by_command, clean_environ

# All that these import is there before the first fork; modules that are run themselves are not among them.
_IMPORTED: Final = (
    "certs.keeper",
    "certs.options",
    "certs.serving",
    "cli.web.run",
    "controller.audit_command",
    "controller.run",
    "kubernetes_asyncio.config.kube_config",
    # Loaded by numpy itself when it is first asked for what is unique.
    "numpy.ma",
    "runtime.check",
    "uvloop",
    "webhook.run",
)
_REQUEST_BYTES: Final = 1 << 17
# Source: prctl(2), linux/prctl.h.
_PR_SET_CHILD_SUBREAPER: Final = 36


class Forked:
    """A fork, with what tests use of `asyncio.subprocess.Process`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ended = asyncio.Event()
        self._descriptor = os.pidfd_open(pid)
        asyncio.get_running_loop().add_reader(self._descriptor, self._reap)

    async def wait(self) -> int:
        """Wait for its end: its exit code, or minus the signal's number."""
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def terminate(self) -> None:
        """Ask it to end."""
        if self.returncode is None:
            os.kill(self.pid, signal.SIGTERM)

    def _reap(self) -> None:
        self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)
        self._ended.set()


class _Template:
    """The process that forks."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # Its forks, whose parent ends at once, become children of this process.
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        with theirs:
            argv = [sys.executable, "-m", __name__, str(theirs.fileno())]
            self._process = subprocess.Popen(
                argv, env=environ, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL, start_new_session=True
            )
        self._lock = Lock()
        atexit.register(self._end)

    def fork(self, module: str, arguments: Sequence[str], environ: Mapping[str, str], output: int) -> int:
        request = json.dumps([module, list(arguments), dict(environ)]).encode()
        with self._lock:
            socket.send_fds(self._link, [request], [output])
            return int(self._link.recv(64))

    def _end(self) -> None:
        self._link.close()
        self._process.wait()


async def forked(module: str, arguments: Sequence[str], environ: Mapping[str, str], output: int) -> Process:
    """Start *module* as `sandbox.demo.processes.by_command` does."""
    if sys.platform != "linux" or _of_python(environ) != _of_python(clean_environ(os.environ)):
        return await by_command(module, arguments, environ, output)
    return Forked(await asyncio.to_thread(template().fork, module, arguments, environ, output))


@cache
def template() -> _Template:
    """The process that forks for this one, started at the first call."""
    return _Template(clean_environ(os.environ))


def _of_python(environ: Mapping[str, str]) -> Mapping[str, str]:
    return {key: value for key, value in environ.items() if key.startswith("PYTHON")}


def _serve(link: socket.socket) -> tuple[Any, int] | None:
    """Fork for each request: in a fork the request and its output, in the end None."""
    while True:
        request, descriptors, _, _ = socket.recv_fds(link, _REQUEST_BYTES, 1)
        if not request:
            return None
        (output,) = descriptors
        read, write = os.pipe()
        between = os.fork()
        if not between:
            if os.fork():
                os._exit(0)
            os.setsid()
            os.write(write, str(os.getpid()).encode())
            os.close(read)
            os.close(write)
            link.close()
            return json.loads(request), output
        os.close(output)
        os.close(write)
        os.waitpid(between, 0)
        answer = os.read(read, 64)
        os.close(read)
        try:
            link.send(answer)
        except OSError:  # the tests were ended meanwhile
            os.kill(int(answer), signal.SIGKILL)
            return None


def _run() -> None:
    for name in _IMPORTED:
        importlib.import_module(name)
    gc.freeze()
    served = _serve(socket.socket(fileno=int(sys.argv[1])))
    if served is None:
        return
    (module, arguments, environ), output = served
    for standard in (1, 2):
        os.dup2(output, standard)
    os.close(output)
    os.environ.clear()
    os.environ.update(environ)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _run()
