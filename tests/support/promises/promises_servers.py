"""The two servers that promises are put to: the sandbox's own and a real one, with one administrator of one name."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from sandbox.api.users import ADMINS, User
from sandbox.cluster import ClusterSettings, running_cluster
from tests.support.promises.promises import Server
from tests.support.servers.realapi import RealApi
from tests.support.servers.realapi_binaries import MODULE

# As `RealApi` names its administrator, so that what servers say of the caller can be compared.
_ADMIN = User(name="admin", groups=(ADMINS,), uid="admin")


def pinned_version() -> str:
    """The version of Kubernetes whose answers are kept: the one that tests/realapi builds."""
    found = re.search(r"^\tk8s\.io/kubernetes (v\S+)", (MODULE / "go.mod").read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    return found[1]


@asynccontextmanager
async def double(folder: Path) -> AsyncIterator[Server]:
    """The sandbox's API server alone, without kubelets, holding callers to their rights as the real one does."""
    async with running_cluster(settings=ClusterSettings(kubelet=None, enforces_rbac=True)) as cluster:
        ca_file = folder / "double-ca.crt"
        await asyncio.to_thread(ca_file.write_bytes, cluster.ca_pem)

        async def forget() -> None:
            cluster.api.store.compact()

        token = cluster.api.tokens.issue(_ADMIN)
        yield Server(url=cluster.url, ca_file=ca_file, token=token, forget=forget)


def real(api: RealApi) -> Server:
    """A running API server; what its own watch cache remembers is forgotten by a restart."""

    async def forget() -> None:
        await api.stop_apiserver()
        try:
            await api.compact()
        finally:
            await api.start_apiserver()

    return Server(url=api.url, ca_file=api.ca_file, token=api.admin_token, forget=forget)
