"""Kubelets and device plugins, played on an API server that another process serves; and the double as a process.

``python -m tests.support.servers.playing double KUBECONFIG`` serves the embedded cluster, without nodes, and writes an
administrator's kubeconfig. ``... players KUBECONFIG NODES RECORDS`` plays the nodes of a YAML file on the server of an
administrator's kubeconfig, and writes what containers receive to RECORDS. Both run until a signal ends them.
"""

import asyncio
import base64
import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from runtime.process import stop_event
from sandbox.api.users import KUBELET, NODES
from sandbox.client import ApiClient, collection_of
from sandbox.cluster import running_cluster, write_private
from sandbox.nodes import nodefile
from sandbox.nodes.kubelet import AdmissionOrder, Kubelet, KubeletSettings
from sandbox.nodes.plugin_port import Records
from sandbox.players import registry

_TOKEN_S: Final = 24 * 3600
# Kubelets admit waiting pods in an order that is not that of their binding.
_SHUFFLED: Final = KubeletSettings(order=AdmissionOrder.SHUFFLED, seed=7, admission_delay_s=0.01)


@asynccontextmanager
async def playing(
    admin: ApiClient, nodes: Sequence[Mapping[str, Any]], settings: KubeletSettings, records: Records | None = None
) -> AsyncIterator[tuple[Kubelet, Records]]:
    """Kubelets and device plugins of *nodes*, each plugin under its own account, and what the containers receive.

    *admin* may make tokens of the plugins' accounts, which are there, and impersonates the kubelets.
    """
    records = records if records is not None else Records()
    async with AsyncExitStack() as stack:

        async def client_of(account: str) -> ApiClient:
            path = f"/api/v1/namespaces/{registry.NAMESPACE}/serviceaccounts/{account}/token"
            answer = await admin.create(path, {"spec": {"expirationSeconds": _TOKEN_S}})
            return await stack.enter_async_context(admin.as_user(answer["status"]["token"]))

        played = await registry.equipped(nodefile.read(list(nodes)), settings, client_of)
        # The user of a write determines its rights, so kubelets do not write as administrators.
        kubelets = await stack.enter_async_context(admin.impersonating(KUBELET.name, NODES))
        kubelet = Kubelet(kubelets, played, records, lambda: datetime.now(UTC), settings)
        await kubelet.register()
        running = asyncio.create_task(kubelet.run(), name="kubelet")
        try:
            yield kubelet, records
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running


class WrittenRecords(Records):
    """Passes what containers received to *write* before their pods are reported as running."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        super().__init__()
        self._write = write
        self._found: dict[str, Mapping[str, Mapping[str, str]]] = {}
        write(b"{}")

    def put(self, pod: str, uid: str, container: str, env: Mapping[str, str]) -> None:
        super().put(pod, uid, container, env)
        self._found[pod] = self.of(pod)
        self._write(msgspec.json.encode(self._found))


async def _double(kubeconfig: str) -> None:
    stop = stop_event()
    async with running_cluster() as cluster:
        await asyncio.to_thread(write_private, Path(kubeconfig), cluster.kubeconfig().encode())
        await _ready(stop)


async def _players(kubeconfig: str, nodes: str, records: str) -> None:
    stop = stop_event()
    config, found = await asyncio.to_thread(
        lambda: [yaml.safe_load(Path(one).read_bytes()) for one in (kubeconfig, nodes)]
    )
    cluster = config["clusters"][0]["cluster"]
    admin = ApiClient(
        server=cluster["server"],
        token=config["users"][0]["user"]["token"],
        ca_pem=base64.b64decode(cluster["certificate-authority-data"]),
    )
    written = await asyncio.to_thread(WrittenRecords, partial(write_private, Path(records)))
    async with admin:
        for document in registry.documents():
            await admin.ensure(collection_of(document), document)
        async with playing(admin, found, _SHUFFLED, written):
            await _ready(stop)


async def _ready(stop: asyncio.Event) -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await stop.wait()


if __name__ == "__main__":
    command, *words = sys.argv[1:]
    asyncio.run(_double(*words) if command == "double" else _players(*words))
