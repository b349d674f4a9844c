"""The scenarios' cluster on a real API server: one server for all of them, put back in order after each.

The manifests are applied to it once. A controller runs with their arguments and with the token of its service account;
the webhook's registrations are taken away, since scenarios of a `Rig` begin where admission is over.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox.client import ApiClient
from sandbox.demo.processes import Processes
from sandbox.demo.product import CONTROLLER_ACCOUNT, apply
from sandbox.join import joined
from sandbox.nodes import nodefile
from sandbox.nodes.kubelet import Kubelet, KubeletSettings
from sandbox.nodes.records import Records
from sandbox.players import accounts
from tests.support import request_log
from tests.support.controller_rig import NODES, Rig
from tests.support.manifests import Json, Runner, built, find, kubectl, text_of
from tests.support.realapi import RealApi
from tests.support.restored import restored
from tests.support.stage_realapi import CERTS_MORE


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A server with the manifests applied, and these documents; bound to no event loop."""

    api: RealApi
    documents: tuple[Json, ...]
    ca_pem: bytes


async def prepare(api: RealApi, folder: Path) -> Prepared:
    """Apply the manifests and make the certificates; nothing of the product runs, and no webhook is called."""
    ca_pem = await asyncio.to_thread(api.ca_file.read_bytes)
    documents = await built(api, "default")
    await kubectl(api, "apply", "-f", "-", text=text_of(documents))
    async with (
        Processes(api.logs, os.environ) as processes,
        ApiClient(server=api.url, token=api.admin_token, ca_pem=ca_pem) as admin,
    ):
        runner = Runner(api=api, admin=admin, processes=processes, folder=folder)
        await runner.finish("certs", find(documents, "Job", "cardshare-certs"), CERTS_MORE)
        await kubectl(api, "delete", "mutatingwebhookconfigurations,validatingwebhookconfigurations", "--all")
        # Rights reach the authorizer a moment after they were made; the players of each scenario find theirs there.
        await apply(admin, accounts.documents())
    return Prepared(api=api, documents=documents, ca_pem=ca_pem)


class RealRig(Rig):
    """A `Rig` on a real API server, with the controller as its manifest has it."""

    def __init__(
        self, prepared: Prepared, *, client: ApiClient, records: Records, kubelet: Kubelet, runner: Runner
    ) -> None:
        super().__init__(
            client=client,
            ca_pem=prepared.ca_pem,
            records=records,
            kubelet=kubelet,
            processes=runner.processes,
            folder=runner.folder,
        )
        self._logs = prepared.api.logs
        self._workload = find(prepared.documents, "Deployment", "cardshare-controller")
        self._runner = runner
        self._asked_before = len(list(request_log.read(self._logs)))

    async def used_rights(self):
        """See `Rig.used_rights`."""
        asked = list(request_log.read(self._logs))[self._asked_before :]
        return {(each.verb, each.group, each.resource) for each in asked if each.account == CONTROLLER_ACCOUNT}

    async def _start_controller(self, flags):
        running, ports = await self._runner.start("controller", self._workload, flags)
        return running, f"http://127.0.0.1:{ports['plain']}"


@asynccontextmanager
async def real_rig(
    prepared: Prepared,
    folder: Path,
    name: str,
    nodes: Sequence[Mapping[str, Any]] = NODES,
    *,
    kubelet: KubeletSettings | None = None,
) -> AsyncIterator[Rig]:
    """The server with *nodes*; all that is made there goes in the end. Logs go to folder *name* beside the server's."""
    api = prepared.api
    async with (
        ApiClient(server=api.url, token=api.admin_token, ca_pem=prepared.ca_pem) as admin,
        restored(admin),
        Processes(api.logs / name, os.environ) as processes,
        _playing(admin, nodes, kubelet or KubeletSettings()) as (player, records),
    ):
        runner = Runner(api=api, admin=admin, processes=processes, folder=folder)
        yield RealRig(prepared, client=admin, records=records, kubelet=player, runner=runner)


@asynccontextmanager
async def _playing(
    admin: ApiClient, nodes: Sequence[Mapping[str, Any]], settings: KubeletSettings
) -> AsyncIterator[tuple[Kubelet, Records]]:
    records = Records()
    async with joined(admin, nodefile.read(list(nodes)), settings, None, records) as kubelet:
        playing = asyncio.create_task(kubelet.run(), name="kubelet")
        try:
            yield kubelet, records
        finally:
            playing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await playing
