"""Every test world ends with the audit: what no cluster may come to is seen whatever the test itself was about.

Two judges look at the API server's objects as the test left them: the product's own command, `python -m controller
audit`, and `tests.support.worlds.audit`, which shares nothing with it. A test that brings something about on purpose
says so when it opens its world: `rig(expects=("overcommitted",))`, parts of what is found; what is expected has to be
found.
"""

import asyncio
import io
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final

from controller import audit_command
from core.wire.nodes import node_from_object
from core.wire.pods import pod_from_object
from sandbox.client import ApiClient
from sandbox.demo.product import TRUSTED_NAMESPACES
from sandbox.demo.stage import Stage
from sandbox.players.registry import DEVICE_CONFIG
from tests.support.devices.texts import device_tables
from tests.support.worlds.audit import audit
from tests.support.worlds.controller_rig import Rig

TABLES: Final = device_tables(DEVICE_CONFIG.read_text(encoding="utf-8"))
_PODS: Final = "/api/v1/pods"


def ending_with_audit(opener: Callable[..., AbstractAsyncContextManager[Any]]) -> Callable[..., Any]:
    """*opener* of a `Rig` or a `Stage`, which takes *expects* too and audits what it opened when a test ends well."""

    @asynccontextmanager
    async def opened(*args: Any, expects: Sequence[str] = (), **more: Any) -> AsyncIterator[Any]:
        async with opener(*args, **more) as world:
            yield world
            await end(world, expects)

    return opened


async def end(world: Rig | Stage, expects: Sequence[str] = ()) -> None:
    """Fail if a judge finds something that is not expected, or not what is."""
    if isinstance(world, Rig):
        client, kubeconfig = world.client, await asyncio.to_thread(world.write_admins_kubeconfig)
    else:
        client, kubeconfig = world.admin, world.kubeconfig
    found = [*await asyncio.to_thread(_commands, kubeconfig), *await _independent(client)]
    surprises = [text for text in found if not any(part in text for part in expects)]
    assert not surprises, f"the world ended with: {surprises}"
    missed = [part for part in expects if not any(part in text for text in found)]
    assert not missed, f"the world ended without: {missed}, but with {found}"


def _commands(kubeconfig: Path) -> Collection[str]:
    out = io.StringIO()
    audit_command.run(("--kubeconfig", str(kubeconfig), "--trust-namespaces", TRUSTED_NAMESPACES), {}, out)
    return out.getvalue().splitlines()[:-1]


async def _independent(client: ApiClient) -> Collection[str]:
    nodes = [node_from_object(one) for one in await client.list("/api/v1/nodes")]
    pods = [pod_from_object(one) for one in await client.list(_PODS)]
    return audit(nodes, pods, TABLES)
