"""The scenarios' cluster on a real API server, with the controller as its manifest has it."""

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sandbox.client import ApiClient
from sandbox.demo.processes import Processes
from sandbox.demo.product import CONTROLLER_ACCOUNT, NAMESPACE, TRUSTED_NAMESPACES
from sandbox.nodes.kubelet import Kubelet, KubeletSettings
from sandbox.nodes.plugin_port import Records
from tests.support.servers import request_log
from tests.support.servers.manifests import Runner, find
from tests.support.servers.playing import playing
from tests.support.servers.prepared import Prepared
from tests.support.servers.restored import finishing_namespaces, restored
from tests.support.worlds.controller_rig import NODES, Rig
from tests.support.worlds.forking import forked


class RealRig(Rig):
    """A `Rig` on a real API server, with the controller as its manifest has it."""

    def __init__(
        self, prepared: Prepared, *, client: ApiClient, records: Records, kubelet: Kubelet, runner: Runner
    ) -> None:
        super().__init__(
            client=client,
            admin_token=prepared.api.admin_token,
            ca_pem=prepared.ca_pem,
            records=records,
            kubelet=kubelet,
            processes=runner.processes,
            folder=runner.folder,
        )
        self._logs = prepared.api.logs
        self._workload = find(prepared.documents, "Deployment", "cardshare-controller")
        self._runner = runner
        self._asked_before = request_log.size_bytes(self._logs)

    async def used_rights(self, account=CONTROLLER_ACCOUNT, namespace=NAMESPACE):
        """See `Rig.used_rights`."""
        asked = request_log.read(self._logs, self._asked_before)
        return {(each.verb, each.group, each.resource) for each in asked if each.account == account}

    async def _start_controller(self, name, module, flags):
        trusted = ("--trust-namespaces", TRUSTED_NAMESPACES)
        running, ports = await self._runner.start(name, self._workload, (*trusted, *flags), module)
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
        prepared.client() as admin,
        restored(admin, prepared.before),
        finishing_namespaces(admin),
        Processes(api.logs / name, os.environ, launch=forked) as processes,
        playing(admin, nodes, kubelet or KubeletSettings()) as (player, records),
    ):
        runner = Runner(api=api, admin=admin, processes=processes, folder=folder)
        yield RealRig(prepared, client=admin, records=records, kubelet=player, runner=runner)
