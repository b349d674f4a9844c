"""The scenarios' cluster on the embedded API server, with RBAC on and the shipped rights."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sandbox.api.users import service_account
from sandbox.cluster import ADMIN, Cluster, ClusterSettings, running_cluster
from sandbox.demo.processes import Processes, free_port
from sandbox.demo.product import CONTROLLER_ACCOUNT, NAMESPACE, TRUSTED_NAMESPACES, install_rights
from sandbox.nodes import nodefile
from sandbox.nodes.kubelet import KubeletSettings
from tests.support.worlds.controller_rig import NODES, Rig
from tests.support.worlds.forking import forked


class DoubleRig(Rig):
    """A `Rig` beside the embedded cluster."""

    def __init__(self, cluster: Cluster, processes: Processes, folder: Path) -> None:
        assert cluster.kubelet is not None
        super().__init__(
            client=cluster.admin,
            admin_token=cluster.api.tokens.issue(ADMIN),
            ca_pem=cluster.ca_pem,
            records=cluster.records,
            kubelet=cluster.kubelet,
            processes=processes,
            folder=folder,
        )
        self._cluster = cluster

    async def used_rights(self, account=CONTROLLER_ACCOUNT, namespace=NAMESPACE):
        """See `Rig.used_rights`."""
        used = self._cluster.api.recorder.used_by(service_account(namespace, account).name)
        return {(verb, group, "/".join(filter(None, (kind, sub)))) for verb, group, kind, sub in used}

    async def _start_controller(self, name, module, flags):
        kubeconfig, listen = self.folder / "controller.kubeconfig", f"127.0.0.1:{free_port()}"
        await asyncio.to_thread(kubeconfig.write_text, await self.kubeconfig())
        trusted = ("--trust-namespaces", TRUSTED_NAMESPACES)
        options = ("--listen", listen, "--kubeconfig", str(kubeconfig), *trusted, *flags)
        return await self.processes.start(name, module, options), f"http://{listen}"


@asynccontextmanager
async def double_rig(
    folder: Path, nodes: Sequence[Mapping[str, Any]] = NODES, *, kubelet: KubeletSettings | None = None
) -> AsyncIterator[Rig]:
    """A cluster of its own, gone in the end."""
    settings = ClusterSettings(enforces_rbac=True, kubelet=kubelet or KubeletSettings())
    async with (
        running_cluster(nodefile.read(list(nodes)), settings) as cluster,
        Processes(folder / "logs", os.environ, launch=forked) as processes,
    ):
        await install_rights(cluster.admin)
        yield DoubleRig(cluster, processes, folder)
