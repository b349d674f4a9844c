"""python -m certs ensure --secret, as a process."""

import asyncio
import base64
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import yaml

from certs.pair import State, StoredPem, judge
from kube.calls import Calls, namespace_path
from kube.credentials import KubeconfigSource
from kube.transport import Transport
from sandbox.demo.processes import free_port
from tests.support.worlds.controller_rig import OpensRig

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"

NAMESPACE = "cards"
SECRETS = f"{namespace_path(NAMESPACE)}/secrets"


@asynccontextmanager
async def cluster(rig: OpensRig) -> AsyncIterator[tuple[Path, Calls]]:
    """A cluster with our namespace: a kubeconfig, and calls by it."""
    async with rig(nodes=()) as world:
        await world.ensure("/api/v1/namespaces", NAMESPACE)
        kubeconfig = await asyncio.to_thread(world.write_admins_kubeconfig)
        async with Transport(KubeconfigSource(str(kubeconfig))) as transport:
            yield kubeconfig, Calls(transport)


async def ensure(kubeconfig: Path, *more: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "certs", "ensure", "--kubeconfig", str(kubeconfig)),
        *(
            "--service",
            "web",
            "--namespace",
            NAMESPACE,
            "--ca-secret",
            "ca",
            "--secret",
            "tls",
            *more,
            "--webhook",
            "cards",
        ),
        env={"PATH": os.environ["PATH"], "PYTHONSAFEPATH": "1"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


async def test_secret_and_bundle_agree_and_a_second_run_changes_nothing(rig):
    async with cluster(rig) as (kubeconfig, calls):
        entry = {
            "name": "pods.cards.example.org",
            "clientConfig": {"service": {"namespace": NAMESPACE, "name": "web", "path": "/mutate"}},
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "rules": [],
        }
        document = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "cards"},
            "webhooks": [entry],
        }
        await calls.create(CONFIGURATIONS, document)

        code, out, err = await ensure(kubeconfig)
        assert (err, code) == ("", 0)
        assert "PRIVATE" not in out
        secret = yaml.safe_load(await calls.get_raw(f"{SECRETS}/tls"))
        configuration = yaml.safe_load(await calls.get_raw(f"{CONFIGURATIONS}/cards"))
        seen = StoredPem(
            cert_pem=base64.b64decode(secret["data"]["tls.crt"]),
            key_pem=base64.b64decode(secret["data"]["tls.key"]),
            ca_pem=base64.b64decode(configuration["webhooks"][0]["clientConfig"]["caBundle"]),
        )
        assert judge(seen, datetime.now(UTC), ("web.cards.svc",)).state is State.GOOD

        code, out, err = await ensure(kubeconfig)
        assert (err, code) == ("", 0)
        assert [line.partition(":")[0] for line in out.splitlines()] == ["Secret cards/ca", "Secret cards/tls"]
        assert out.count(": good: expires in") == 2
        again = yaml.safe_load(await calls.get_raw(f"{SECRETS}/tls"))
        assert again["metadata"]["resourceVersion"] == secret["metadata"]["resourceVersion"]


async def test_four_at_once_leave_one_pair_that_is_trusted(rig):
    async with cluster(rig) as (kubeconfig, calls):
        entry = {
            "name": "pods.cards.example.org",
            "clientConfig": {"service": {"namespace": NAMESPACE, "name": "web"}},
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
        }
        document = {"metadata": {"name": "cards"}, "webhooks": [entry]}
        await calls.create(CONFIGURATIONS, document)
        async with asyncio.TaskGroup() as tasks:
            runs = [tasks.create_task(ensure(kubeconfig)) for _ in range(4)]
        assert [run.result()[0] for run in runs] == [0, 0, 0, 0]
        for name in ("ca", "tls"):
            makers = sum(f"Secret cards/{name}: was missing" in run.result()[1] for run in runs)
            # Who made it and then met another's write judges anew, and finds it good.
            assert makers == 1 or (makers == 0 and any("trying again" in run.result()[2] for run in runs))
        secret = yaml.safe_load(await calls.get_raw(f"{SECRETS}/tls"))
        configuration = yaml.safe_load(await calls.get_raw(f"{CONFIGURATIONS}/cards"))
        seen = StoredPem(
            cert_pem=base64.b64decode(secret["data"]["tls.crt"]),
            key_pem=base64.b64decode(secret["data"]["tls.key"]),
            ca_pem=base64.b64decode(configuration["webhooks"][0]["clientConfig"]["caBundle"]),
        )
        assert judge(seen, datetime.now(UTC)).state is State.GOOD


async def test_a_webhook_configuration_that_is_not_there_yet_is_told_and_exits_1(rig):
    async with cluster(rig) as (kubeconfig, _):
        code, out, err = await ensure(kubeconfig)
        assert code == 1
        assert out.count("made a new one") == 2
        assert "webhook configuration cards: there is none of that name" in err


async def test_an_api_server_that_is_not_there_is_one_clear_line_each_time(rig):
    async with rig(nodes=()) as world:
        kubeconfig = world.folder / "away"
        kubeconfig.write_text(await world.kubeconfig(server=f"https://127.0.0.1:{free_port()}"))
        code, _, err = await ensure(kubeconfig)
    assert code == 1
    *tries, last = err.splitlines()
    assert [line.rpartition("; ")[2] for line in tries] == [f"trying again ({at} of 6)" for at in range(2, 7)]
    assert "connection refused" in last
    assert "Traceback" not in err


async def test_a_kubeconfig_that_is_not_there_is_one_clear_line_and_exits_2(tmp_path):
    code, out, err = await ensure(tmp_path / "missing")
    assert (code, out) == (2, "")
    assert err == f"certs: kubeconfig {tmp_path / 'missing'}: there is no such file; check the path\n"
