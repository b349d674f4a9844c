"""``python -m tests.support.worlds.failing_controller --fail-at=POINT:HOW``: a controller that fails once, at a write.

POINT: ``before-`` or ``after-`` and a write of `WRITES`: before it is sent, or when it is answered but the controller
does not know that yet. HOW: `kill` by SIGKILL; or `block=SECONDS`, which blocks its event loop. Other
flags are the controller's.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from controller.__main__ import main
from controller.run import Controller
from kube.credentials import choose_source
from kube.transport import Transport

FLAG: Final = "--fail-at="
# By name: whether a request of that verb and path, sent so, is such a write.
WRITES: Final[dict[str, Callable[[str, str, Mapping[str, Any]], bool]]] = {
    "bind": lambda verb, path, sent: path.endswith("/binding"),
    "fence": lambda verb, path, sent: path.endswith("/status") and b'"resourceVersion"' in (sent.get("body") or b""),
    "lock": lambda verb, path, sent: verb == "PATCH" and path.startswith("/api/v1/nodes/"),
    "volume": lambda verb, path, sent: verb == "PATCH" and "/persistentvolume" in path,
    "evict": lambda verb, path, sent: path.endswith("/eviction") and "dryRun" not in (sent.get("params") or {}),
}


class FailingTransport(Transport):
    """Fails once, at the point *at*."""

    def __init__(self, source, *, at: str, how: str) -> None:
        super().__init__(source)
        self._when, _, name = at.partition("-")
        self._is_write = WRITES[name]
        self._how = how
        self._has_failed = False

    async def request(self, verb, path, **sending):
        if not self._is_write(verb, path, sending):
            return await super().request(verb, path, **sending)
        if self._when == "before":
            self._fail()
        answer = await super().request(verb, path, **sending)
        self._fail()
        return answer

    def _fail(self) -> None:
        if self._has_failed:
            return
        self._has_failed = True
        if self._how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(float(self._how.removeprefix("block=")))


class FailingController(Controller):
    """The controller with a transport that fails."""

    def __init__(self, config, environ, *, at: str, how: str) -> None:
        super().__init__(config, environ)
        self._fails = partial(FailingTransport, at=at, how=how)

    async def _connect(self, stack):
        source = choose_source(kubeconfig=self._config.kubeconfig, environ=self._environ)
        transport = await stack.enter_async_context(self._fails(source))
        self._process.connection = ""
        return transport


def run(argv: Sequence[str]) -> int:
    """Run the controller."""
    (text,) = [one.removeprefix(FLAG) for one in argv if one.startswith(FLAG)]
    at, _, how = text.partition(":")
    rest = [one for one in argv if not one.startswith(FLAG)]
    return main(rest, os.environ, partial(FailingController, at=at, how=how))


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
