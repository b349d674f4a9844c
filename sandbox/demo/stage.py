"""The demo's cluster: mixed nodes on the embedded API server, with the product installed beside it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sandbox.api.users import User, service_account
from sandbox.client import ApiClient
from sandbox.cluster import ClusterSettings, running_cluster
from sandbox.demo.processes import Processes
from sandbox.demo.product import CONTROLLER_ACCOUNT, NAMESPACE, WEBHOOK_ACCOUNT, Product, apply, install, policies
from sandbox.demo.user import KubectlUser
from sandbox.nodes import nodefile
from sandbox.nodes.kubelet import KubeletSettings
from sandbox.nodes.records import Records
from sandbox.players import volcano_kinds

_MINDCLUSTER: Final = {"accelerator": "huawei-Ascend310P", "host-arch": "huawei-arm"}
# Seconds until MindCluster's plugin reports a slice and retries to find a pod; the real values are 5 and 1.
_PROMPT: Final = {"report_after_s": 0.1, "retry_after_s": 0.05}

_L20: Final = {"kind": "nvidia", "model": "NVIDIA L20", "memory_mib": 46068, "count": 4}
# Reserved for pods that tolerate it, so that other pods do not change these nodes.
_SERVING: Final[dict[str, Any]] = {
    "labels": {"pool": "serving"},
    "taints": [{"key": "pool", "value": "serving", "effect": "NoSchedule"}],
}
_IMAGE: Final = {"names": ["registry.example.com/language-model:2"], "sizeBytes": 20 * 2**30}

# The nodes that the outcomes in docs/examples refer to.
NODES: Final[list[dict[str, Any]]] = [
    {"name": "t4-a", "plugin": {"kind": "vgpu", "model": "Tesla T4", "memory_mib": 15360, "count": 4}},
    {"name": "t4-b", "plugin": {"kind": "vgpu", "model": "Tesla T4", "memory_mib": 15360, "count": 4}},
    {"name": "v100-a", "plugin": {"kind": "vgpu", "model": "Tesla V100-SXM2-32GB", "memory_mib": 32768, "count": 8}},
    {
        "name": "t4-mps-a",
        "plugin": {"kind": "vgpu", "model": "Tesla T4", "memory_mib": 15360, "count": 2, "mode": "mps"},
    },
    {
        "name": "a100-a",
        "plugin": {"kind": "vgpu", "model": "NVIDIA A100-SXM4-40GB", "memory_mib": 40960, "count": 2, "mode": "mig"},
    },
    {"name": "gpu-a", "plugin": {"kind": "nvidia", "model": "NVIDIA A100-SXM4-80GB", "memory_mib": 81920, "count": 8}},
    {"name": "gpu-b", "plugin": {"kind": "nvidia", "model": "Tesla T4", "memory_mib": 15360, "count": 4}},
    {"name": "gpu-c", "plugin": {"kind": "nvidia", "model": "Tesla T4", "memory_mib": 15360, "count": 4}},
    # Two equal nodes, except for an image on one of them.
    {"name": "gpu-d", **_SERVING, "plugin": _L20},
    {"name": "gpu-e", **_SERVING, "plugin": _L20, "images": [_IMAGE]},
    {"name": "hami-a", "plugin": {"kind": "hami", "model": "NVIDIA A10", "memory_mib": 23028, "count": 2}},
    {"name": "hami-b", "plugin": {"kind": "hami", "model": "NVIDIA L4", "memory_mib": 23034, "count": 2}},
    # It has few processors, so pods that request more go to the other one.
    {"name": "share-a", "capacity": {"cpu": "1"}, "plugin": {"kind": "gpushare", "memory_mib": 11178, "count": 2}},
    {"name": "share-b", "plugin": {"kind": "gpushare", "memory_mib": 11178, "count": 1}},
    {"name": "number-a", "plugin": {"kind": "gpushare", "strategy": "number", "memory_mib": 11178, "count": 4}},
    {"name": "npu-910a-a", "plugin": {"kind": "ascend-hami", "chip": "Ascend910A", "count": 1}},
    {"name": "npu-910b2-a", "plugin": {"kind": "ascend-hami", "chip": "Ascend910B2", "count": 1}},
    {"name": "npu-910b3-a", "plugin": {"kind": "ascend-hami", "chip": "Ascend910B3", "count": 1}},
    {"name": "npu-910b4-a", "plugin": {"kind": "ascend-hami", "chip": "Ascend910B4", "count": 8}},
    {"name": "npu-310p-a", "plugin": {"kind": "ascend-hami", "chip": "Ascend310P", "count": 2}},
    {"name": "npu-soft-a", "plugin": {"kind": "ascend-hami", "chip": "Ascend310P", "count": 1, "mode": "hami-core"}},
    {
        "name": "t4-npu-a",
        "plugins": [
            {"kind": "vgpu", "model": "Tesla T4", "memory_mib": 15360, "count": 1},
            {"kind": "ascend-hami", "chip": "Ascend910B4-1", "count": 1},
        ],
    },
    {"name": "mind-a", "labels": _MINDCLUSTER, "plugin": {"kind": "mindcluster", "chips": 8, **_PROMPT}},
    {"name": "mind-b", "labels": _MINDCLUSTER, "plugin": {"kind": "mindcluster", "chips": 2, **_PROMPT}},
]

# A user without trust in admission, who performs the actions of the examples.
PERSON: Final = User(name="dana", groups=("system:masters",))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The parts of a stage, on the embedded API server or on a real one.

    admin: a client with all rights. records: what the containers received. kubeconfig: the user's.
    """

    url: str
    admin: ApiClient
    records: Records
    product: Product
    person: KubectlUser
    kubeconfig: Path


@asynccontextmanager
async def running_stage(
    folder: Path,
    environ: Mapping[str, str],
    kubelet: KubeletSettings | None = None,
    nodes: Sequence[Mapping[str, Any]] = NODES,
    *,
    volcano: bool = False,
) -> AsyncIterator[Stage]:
    """Start everything on an embedded API server and stop it at the end; files and logs go to *folder*.

    Args:
        folder: created if missing.
        environ: environment of the processes, without variables that configure them.
        kubelet: order and delay of kubelets' admissions; None = oldest first, at once.
        nodes: the nodes, as in a node file.
        volcano: whether Volcano's kinds are installed.

    Raises:
        ProcessFailedError: webhook or controller does not become ready.
    """
    async with running_cluster(
        nodefile.read(list(nodes)), ClusterSettings(enforces_rbac=True, kubelet=kubelet or KubeletSettings())
    ) as cluster:
        if volcano:
            await volcano_kinds.install(cluster.admin)
        # The API server double stores policies so that all shipped objects exist, but does not enforce them.
        await apply(cluster.admin, await asyncio.to_thread(policies))
        ours = {
            account: await _write(
                folder / f"{account.removeprefix('cardshare-')}.kubeconfig",
                cluster.kubeconfig(service_account(NAMESPACE, account)),
            )
            for account in (CONTROLLER_ACCOUNT, WEBHOOK_ACCOUNT)
        }
        theirs = await _write(folder / "kubeconfig", cluster.kubeconfig(PERSON))
        clients = await _write(folder / "clients.crt", cluster.ca_pem.decode("ascii"))
        token = cluster.api.tokens.issue(PERSON)
        async with (
            KubectlUser(server=cluster.url, token=token, ca_pem=cluster.ca_pem) as person,
            installed(folder, environ, admin=cluster.admin, kubeconfigs=ours, client_ca=clients) as product,
        ):
            yield Stage(
                url=cluster.url,
                admin=cluster.admin,
                records=cluster.records,
                product=product,
                person=person,
                kubeconfig=theirs,
            )


@asynccontextmanager
async def installed(
    folder: Path, environ: Mapping[str, str], *, admin: ApiClient, kubeconfigs: Mapping[str, Path], client_ca: Path
) -> AsyncIterator[Product]:
    """Yield the product beside the API server of *admin* and *kubeconfigs*; logs go to *folder*.

    Raises:
        ProcessFailedError: webhook or controller does not become ready.
    """
    async with Processes(folder / "logs", environ) as processes:
        yield await install(processes, folder, admin=admin, kubeconfigs=kubeconfigs, client_ca=client_ca)


async def _write(path: Path, text: str) -> Path:
    def write() -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_text(text, encoding="utf-8")

    await asyncio.to_thread(write)
    return path
