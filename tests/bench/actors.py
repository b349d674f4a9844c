"""The processes that act on a benchmark's API server: the controller, and the device plugins with what they tell."""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import Final

import msgspec

from sandbox.demo.processes import free_port
from tests.bench import stage as staging
from tests.bench.plugins import Sighting
from tests.bench.stage import RefusedError, Stage, encode
from tests.support.worlds.processes import Child

_decode_line: Final = msgspec.json.Decoder(Sighting).decode
_READY: Final = b"ready\n"
_LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
_MERGE_PATCH: Final = "application/merge-patch+json"
_numbers: Final = count()


class Plugins:
    """The answering process, and what it has said."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self._file = child.log.open("rb")

    def read(self) -> list[Sighting]:
        """What it said since the last time.

        Raises:
            RefusedError: it failed.
        """
        found = []
        while line := self._file.readline():
            if not line.endswith(b"\n"):
                self._file.seek(-len(line), 1)
                break
            if line.startswith(b"{"):
                found.append(_decode_line(line))
            elif line != _READY:
                raise RefusedError(f"the plugins failed:\n{self._child.log_tail()}")
        return found

    def close(self) -> None:
        """Read no more."""
        self._file.close()


@asynccontextmanager
async def playing(stage: Stage, *options: str) -> AsyncIterator[Plugins]:
    """Device plugins that answer every pod bound from now on."""
    name = _unused("plugins", stage)
    child = stage.start(name, "tests.bench.plugins", "--kubeconfig", str(stage.kubeconfig), *options)
    await staging.until(lambda: "ready" in child.log_tail(), name, child, within_s=30.0)
    plugins = Plugins(child)
    try:
        yield plugins
    finally:
        plugins.close()
        await asyncio.to_thread(stage.children.stop, child)


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """A controller's process, and where it answers."""

    child: Child
    url: str

    async def metric(self, name: str) -> float:
        """The value of a metric without labels.

        Raises:
            RefusedError: there is none of that name.
        """
        text = await staging.text_of(f"{self.url}/metrics")
        found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
        if found is None:
            raise RefusedError(f"the controller has no metric {name}")
        return float(found[1])


@asynccontextmanager
async def controlling(
    stage: Stage,
    *,
    policy: str,
    stands_by: bool = False,
    within_s: float = 60.0,
    more: str = "",
    flags: Sequence[str] = (),
) -> AsyncIterator[Controller]:
    """A controller; entered once it knows all nodes and pods.

    stands_by: until then it decides nothing, because another holds its Lease, and releases it then.
    more: further settings, as YAML. flags: further ones.
    """
    lease = f"bench-{next(_numbers)}"
    if stands_by:
        await stage.client.send("POST", _LEASES, _lease(lease, "another", 60))
    settings = stage.logs / f"{policy}.yaml"
    await asyncio.to_thread(settings.write_text, f"policy: {policy}\n{more}", encoding="utf-8")
    url = f"127.0.0.1:{free_port()}"
    child = stage.start(
        _unused("controller", stage),
        "controller",
        f"--listen={url}",
        f"--kubeconfig={stage.kubeconfig}",
        f"--settings={settings}",
        f"--lease=default/{lease}" if stands_by else "--lease=none",
        *flags,
    )
    try:
        await staging.until_ready(child, f"http://{url}/readyz", within_s=within_s)
        if stands_by:
            await stage.client.send("PATCH", f"{_LEASES}/{lease}", _lease(lease, "", 1), _MERGE_PATCH)
        yield Controller(child=child, url=f"http://{url}")
    finally:
        await asyncio.to_thread(stage.children.stop, child)


def _lease(name: str, holder: str, duration_s: int) -> bytes:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": duration_s}
    return encode({"metadata": {"name": name}, "spec": spec})


def _unused(name: str, stage: Stage) -> str:
    """A name for a process that has no log yet."""
    return next(one for at in count(1) if not (stage.logs / f"{(one := f'{name}{at}')}.log").exists())
