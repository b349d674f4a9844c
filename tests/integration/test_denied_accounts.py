"""A service account that writes an assignment is denied, and the pod's event tells of it, by the shipped rights."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sandbox.api.users import User, service_account
from sandbox.client import ApiClient
from sandbox.cluster import ClusterSettings, running_cluster
from sandbox.demo.product import CONTROLLER_ACCOUNT, NAMESPACE, WEBHOOK_ACCOUNT
from sandbox.demo.stage import installed
from sandbox.demo.user import KubectlUser
from sandbox.nodes import nodefile

NODES = [{"name": "t4-a", "plugin": {"kind": "vgpu", "model": "Tesla T4", "memory_mib": 15360, "count": 1}}]
FORGER = User(name="system:serviceaccount:team:forger", groups=("system:masters",))
KEY = "volcano.sh/vgpu-ids-new"
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p"},
    "spec": {
        "schedulerName": "nobody",
        "containers": [{"name": "c", "image": "i", "resources": {"limits": {"volcano.sh/vgpu-number": "1"}}}],
    },
}


async def test_the_pod_tells_of_the_account(tmp_path: Path):
    async with running_cluster(nodefile.read(NODES), ClusterSettings(enforces_rbac=True)) as cluster:
        kubeconfigs = {}
        for account in (CONTROLLER_ACCOUNT, WEBHOOK_ACCOUNT):
            kubeconfigs[account] = tmp_path / account
            text = cluster.kubeconfig(service_account(NAMESPACE, account))
            await asyncio.to_thread(kubeconfigs[account].write_text, text, encoding="utf-8")
        token = cluster.api.tokens.issue(FORGER)
        async with (
            installed(tmp_path, os.environ, admin=cluster.admin, kubeconfigs=kubeconfigs),
            KubectlUser(server=cluster.url, token=token, ca_pem=cluster.ca_pem) as forger,
        ):
            assert (await forger.apply(POD)).accepted
            for _ in range(3):
                denied = await forger.annotate("p", {KEY: "GPU-0,NVIDIA,1,1:"})
                assert not denied.accepted
                assert "CS301" in denied.message
            async with asyncio.timeout(10):
                while not (found := await _denials(cluster.admin)):  # noqa: ASYNC110 (another process is polled)
                    await asyncio.sleep(0.05)
    (event,) = found
    assert event["involvedObject"]["name"] == "p"
    assert f"{FORGER.name} tried to write annotation {KEY}" in event["message"]


async def _denials(admin: ApiClient) -> list[Mapping[str, Any]]:
    events = await admin.list("/api/v1/namespaces/default/events")
    return [event for event in events if event["reason"] == "AssignmentWriteDenied"]
