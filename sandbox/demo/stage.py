"""The demo's cluster: mixed nodes on the embedded API server, with the product beside it, as an example requires it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import yaml

from sandbox.api.users import User, service_account
from sandbox.client import ApiClient
from sandbox.cluster import ClusterSettings, running_cluster, write_private
from sandbox.demo.examples import ClusterChanges
from sandbox.demo.play import KubectlUser
from sandbox.demo.processes import Launch, Processes, ProcessFailedError, by_command
from sandbox.demo.product import (
    CONTROLLER_ACCOUNT,
    NAMESPACE,
    WEBHOOK_ACCOUNT,
    Product,
    Reloads,
    apply,
    install,
    inventoried,
    policies,
    reloads,
    remove,
)
from sandbox.nodes import nodefile
from sandbox.nodes.kubelet import KubeletSettings
from sandbox.nodes.plugin_port import Records
from sandbox.players.volcano import install as install_volcano

_DEPLOY: Final = Path(__file__).resolve().parents[2] / "deploy"
_FILE: Final = "cardshare.yaml"
_HAMI_MAP: Final = "kube-system/hami-scheduler-device"
_TAKEN_WITHIN_S: Final = 60.0
_LOOK_EVERY_S: Final = 0.05
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
    # HAMi's other vendors, which offer cards while an example has their sections in HAMi's configuration.
    {"name": "amd-a", "plugin": {"kind": "amd", "memory_mib": 65536, "count": 2}},
    {"name": "aws-a", "plugin": {"kind": "neuron", "memory_mib": 32768, "count": 2}},
    {"name": "cambricon-a", "plugin": {"kind": "cambricon", "memory_mib": 24576, "count": 2}},
    {"name": "enflame-a", "plugin": {"kind": "enflame-drs", "memory_mib": 49152, "count": 2}},
    {"name": "hygon-a", "plugin": {"kind": "hygon", "memory_mib": 65536, "count": 2}},
    {"name": "kunlunxin-a", "plugin": {"kind": "kunlun", "memory_mib": 98304, "count": 8}},
    {"name": "kunlunxin-b", "plugin": {"kind": "kunlun-xpu", "memory_mib": 98304, "count": 2}},
    {"name": "metax-a", "plugin": {"kind": "metax-gpu", "memory_mib": 65536, "count": 2}},
    {"name": "mthreads-a", "plugin": {"kind": "mthreads", "memory_mib": 49152, "count": 2}},
    {"name": "vastai-a", "plugin": {"kind": "vastai", "memory_mib": 32768, "count": 2}},
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
    launch: Launch = by_command,
) -> AsyncIterator[Stage]:
    """Start everything on an embedded API server and stop it at the end; files and logs go to *folder*.

    Args:
        folder: created if missing.
        environ: environment of the processes, without variables that configure them.
        kubelet: order and delay of kubelets' admissions; None = oldest first, at once.
        nodes: the nodes, as in a node file.
        volcano: whether Volcano's kinds are installed.
        launch: how the processes are started.

    Raises:
        ProcessFailedError: webhook or controller does not become ready.
    """
    async with running_cluster(
        nodefile.read(list(nodes)), ClusterSettings(enforces_rbac=True, kubelet=kubelet or KubeletSettings())
    ) as cluster:
        if volcano:
            await install_volcano(cluster.admin)
        # The API server double stores policies so that all shipped objects exist, but does not enforce them.
        await apply(cluster.admin, await asyncio.to_thread(policies))
        await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
        ours = {
            account: folder / f"{account.removeprefix('cardshare-')}.kubeconfig"
            for account in (CONTROLLER_ACCOUNT, WEBHOOK_ACCOUNT)
        }
        users = {path: service_account(NAMESPACE, account) for account, path in ours.items()}
        theirs, clients = folder / "kubeconfig", folder / "clients.crt"
        for path, user in {**users, theirs: PERSON}.items():
            await asyncio.to_thread(write_private, path, cluster.kubeconfig(user).encode())
        await asyncio.to_thread(write_private, clients, cluster.ca_pem)
        async with (
            cluster.client(PERSON, timeout_s=30.0) as client,
            Processes(folder / "logs", environ, launch=launch) as processes,
        ):
            product = await install(processes, folder, admin=cluster.admin, kubeconfigs=ours, client_ca=clients)
            yield Stage(
                url=cluster.url,
                admin=cluster.admin,
                records=cluster.records,
                product=product,
                person=KubectlUser(client),
                kubeconfig=theirs,
            )


@asynccontextmanager
async def switched(
    stage: Stage, cluster: ClusterChanges, tell: Callable[[str], None] = lambda line: None
) -> AsyncIterator[None]:
    """Make *stage* as *cluster* requires inside this context; the controller sees an edit of settings within a second.

    It waits for the webhook at both ends: after a reload the webhook does not know the cards yet, and would omit
    warnings.

    Args:
        stage: the stage of the example.
        cluster: the requirements; nothing happens if there are none.
        tell: receives a line for people for each action.

    Raises:
        ProcessFailedError: the webhook does not reload the settings.
    """
    documents = [one for name in cluster.deploy for one in await asyncio.to_thread(_documents, _DEPLOY / name)]
    for name in cluster.deploy:
        tell(f"kubectl apply -f deploy/{name}")
    if cluster.hami:
        documents += _hamis(cluster.hami)
        tell(f"ConfigMap {_HAMI_MAP} of HAMi: {', '.join(cluster.hami)}")
    before = await _reloads(stage.product) if cluster.hami else None
    # The rights come before their use, and are removed after it.
    await apply(stage.admin, documents)
    await _reloaded(stage.product, before)
    try:
        async with _edited(stage.product, cluster.settings):
            for key, value in cluster.settings.items():
                tell(f"{_FILE}: {yaml.safe_dump({key: value}).strip()}")
            yield
    finally:
        before = await _reloads(stage.product) if cluster.hami else None
        await remove(stage.admin, documents)
        await _reloaded(stage.product, before)


async def hami_stays(stage: Stage, sections: Mapping[str, Any]) -> None:
    """Keep HAMi's ConfigMap with *sections*, without which the cards that pods hold by them are not offered.

    Raises:
        ProcessFailedError: the webhook does not reload the settings.
    """
    if sections:
        before = await _reloads(stage.product)
        await apply(stage.admin, _hamis(sections))
        await _reloaded(stage.product, before)


@asynccontextmanager
async def _edited(product: Product, settings: Mapping[str, Any]) -> AsyncIterator[None]:
    if settings and not product.settings:
        raise RuntimeError("this stage does not tell where its settings are")
    paths = [folder / _FILE for folder in product.settings] if settings else []
    before = {path: await asyncio.to_thread(path.read_text, encoding="utf-8") for path in paths}
    parsed = {path: yaml.safe_load(text) for path, text in before.items()}
    wanted = {path: yaml.safe_dump({**one, **settings}) for path, one in parsed.items() if one != {**one, **settings}}
    if not wanted:
        yield
        return
    try:
        await _take(product, wanted)
    except BaseException:
        # A webhook that has not seen the edit has nothing to reload.
        await _write(before)
        raise
    try:
        yield
    finally:
        await _take(product, before)


async def _write(texts: Mapping[Path, str]) -> None:
    for path, text in texts.items():
        await asyncio.to_thread(write_private, path, text.encode())


async def _take(product: Product, texts: Mapping[Path, str]) -> None:
    """Write the changed *texts*, and wait until a running webhook has reloaded them and knows the cards.

    Raises:
        ProcessFailedError: it does not reload them.
    """
    before = await _reloads(product)
    await _write(texts)
    await _reloaded(product, before)


async def _reloaded(product: Product, before: Reloads | None) -> None:
    """Wait until a running webhook has taken settings since it had done so as *before*, and knows the cards.

    Raises:
        ProcessFailedError: it does not reload them.
    """
    if before is None:
        return
    end_s = time.monotonic() + _TAKEN_WITHIN_S
    while (now := await _reloads(product)) is not None and now.taken == before.taken:
        if now.refused > before.refused or time.monotonic() > end_s:
            log = product.webhook.log_tail()
            raise ProcessFailedError(f"the webhook does not take the settings; its log ends with:\n{log}")
        await asyncio.sleep(_LOOK_EVERY_S)
    await inventoried(f"{product.webhook_url}/metrics")


async def _reloads(product: Product) -> Reloads | None:
    """Return how often the webhook has read its settings again; None if it does not answer."""
    try:
        return await reloads(f"{product.webhook_url}/metrics")
    except aiohttp.ClientError:
        return None


def _hamis(sections: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return HAMi's ConfigMap with *sections*, and the right by which doctor knows that HAMi's scheduler is there."""
    namespace, _, name = _HAMI_MAP.partition("/")
    account, group = name.removesuffix("-device"), "rbac.authorization.k8s.io"
    data = {"device-config.yaml": yaml.safe_dump(dict(sections))}
    binds = {"apiGroups": [""], "resources": ["pods/binding"], "verbs": ["create"]}
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": namespace, "name": name}, "data": data},
        {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": account}, "rules": [binds]},
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": account},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": account},
            "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": account}],
        },
    ]


def _documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
