"""python -m sandbox --join: nodes and plugins played on an API server that is not its own."""

import asyncio
import base64
import json
import os
import sys
from pathlib import Path

import trustme
import yaml

from sandbox.cluster import ClusterSettings, running_cluster
from sandbox.demo.processes import free_port

NODE = {"name": "t4-a", "plugin": {"kind": "vgpu", "model": "Tesla T4", "memory_mib": 15360, "count": 2}}
POD = {
    "metadata": {
        "name": "p",
        "annotations": {
            "volcano.sh/vgpu-ids-new": "t4-a-GPU-0,NVIDIA,3000,50:;",
            "volcano.sh/devices-to-allocate": "t4-a-GPU-0,NVIDIA,3000,50:;",
            "volcano.sh/vgpu-node": "t4-a",
            "volcano.sh/vgpu-time": "1",
            "volcano.sh/bind-phase": "allocating",
        },
    },
    "spec": {
        "nodeName": "t4-a",
        "containers": [{"name": "c", "image": "i", "resources": {"limits": {"volcano.sh/vgpu-number": "1"}}}],
    },
}


async def run(*arguments: str) -> asyncio.subprocess.Process:
    # What is just being connected when it is told to stop, the collector closes.
    strict = ("-W", "error", "-W", "ignore::ResourceWarning")
    return await asyncio.create_subprocess_exec(
        *(sys.executable, *strict, "-m", "sandbox", *arguments),
        env={"PATH": os.environ["PATH"], "PYTHONSAFEPATH": "1"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def test_nodes_are_played_on_another_cluster_until_told_to_stop(tmp_path: Path):
    nodes, kubeconfig, records = (tmp_path / name for name in ("nodes.yaml", "kubeconfig", "records.json"))
    nodes.write_text(yaml.safe_dump([NODE]))
    async with running_cluster(settings=ClusterSettings(kubelet=None, enforces_rbac=True)) as cluster:
        kubeconfig.write_text(cluster.kubeconfig())
        process = await run("--join", str(kubeconfig), "--nodes", str(nodes), "--records-out", str(records))
        try:
            async with asyncio.timeout(60):
                assert process.stdout is not None
                line = (await process.stdout.readline()).decode()
            assert line == f"sandbox joined: {cluster.url}, 1 nodes\n", await process.communicate()
            node = await cluster.admin.get("/api/v1/nodes/t4-a")
            register = node["metadata"]["annotations"]["volcano.sh/node-vgpu-register"]
            card = register.split(",")[0]
            pod = json.loads(json.dumps(POD).replace("t4-a-GPU-0", card))
            await cluster.admin.create("/api/v1/namespaces/default/pods", pod)
            async with asyncio.timeout(60):
                while not (records.exists() and "default/p" in json.loads(records.read_bytes())):  # noqa: ASYNC110 (a file is polled)
                    await asyncio.sleep(0.05)
            assert json.loads(records.read_bytes())["default/p"]["c"]["NVIDIA_VISIBLE_DEVICES"] == card
            assert records.stat().st_mode & 0o077 == 0
            process.terminate()
            async with asyncio.timeout(60):
                _, err = await process.communicate()
            assert (process.returncode, err.decode()) == (0, "")
            used = cluster.api.recorder.used_by("system:serviceaccount:kube-system:volcano-device-plugin")
            assert ("patch", "", "pods", "") in used
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def test_a_kubeconfig_that_cannot_be_used_is_2_and_says_what_it_lacks(tmp_path: Path):
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("{}")
    for path, said in ((kubeconfig, "it needs a current context"), (tmp_path / "none", "no such file")):
        process = await run("--join", str(path))
        async with asyncio.timeout(60):
            _, err = await process.communicate()
        assert process.returncode == 2
        assert said in err.decode()
        assert "Traceback" not in err.decode()


async def test_a_server_where_nobody_listens_is_told_in_plain_words(tmp_path: Path):
    user = {"token": "t"}
    ca_pem = trustme.CA().cert_pem.bytes()
    server = f"https://127.0.0.1:{free_port()}"
    there = {"server": server, "certificate-authority-data": base64.b64encode(ca_pem).decode()}
    kubeconfig = tmp_path / "kubeconfig"
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": there}],
        "users": [{"name": "u", "user": user}],
    }
    kubeconfig.write_text(json.dumps(config))
    process = await run("--join", str(kubeconfig))
    async with asyncio.timeout(60):
        _, err = await process.communicate()
    assert process.returncode == 1
    address = server.removeprefix("https://")
    assert (
        err.decode() == f"sandbox: --join {kubeconfig}: {address}: connection refused; see whether that server runs\n"
    )
