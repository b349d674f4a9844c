"""No call is lost while the webhook's processes are replaced and its authority changes, on a real API server."""

import asyncio
import base64
import os
import signal

import pytest

from tests.support.servers.balancer import balancer
from tests.support.servers.creating import creating, pod, until_completed
from tests.support.servers.realapi import RealApi
from tests.support.servers.rest import JSON_PATCH, Rest
from tests.support.servers.rollout import Rollout

# More where somebody has the time: CARDSHARE_CREATES=10000.
CREATES = int(os.environ.get("CARDSHARE_CREATES", "1000"))
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
# By then an API server, which learns of a changed bundle by watch, trusts it.
CREATES_UNTIL_TRUSTED = 200


def configuration(namespace: str, port: int, ca_pem: bytes, timeout_s: int = 5) -> dict[str, object]:
    return {
        "metadata": {"name": f"rollout-{namespace}"},
        "webhooks": [
            {
                "name": "rollout.cardshare.io",
                "admissionReviewVersions": ["v1"],
                "clientConfig": {
                    "url": f"https://localhost:{port}/mutate",
                    "caBundle": base64.b64encode(ca_pem).decode(),
                },
                "failurePolicy": "Fail",
                "sideEffects": "None",
                "timeoutSeconds": timeout_s,
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
            }
        ],
    }


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_no_create_is_lost_in_a_rolling_restart_and_a_change_of_authority(
    realapi: RealApi, admin: Rest, namespace: str, tmp_path
):
    async with balancer() as front:
        rollout = Rollout(realapi.children, tmp_path, front)
        await rollout.start()
        name = f"{CONFIGURATIONS}/rollout-{namespace}"
        await admin.made(CONFIGURATIONS, configuration(namespace, front.port, rollout.authority.cert_pem))

        async def trust(bundle: bytes) -> None:
            value = base64.b64encode(bundle).decode()
            change = [{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": value}]
            assert (await admin.patch(name, change, JSON_PATCH)).status == 200
            await creates.until(creates.answered + CREATES_UNTIL_TRUSTED)

        try:
            await until_completed(admin, namespace)
            async with creating(realapi, namespace) as creates:
                await creates.until(50)
                codes = await rollout.replace_all()
                await rollout.rotate(trust)
                codes += await rollout.replace_all()
                await creates.until(CREATES)
        finally:
            await admin.delete(name)
            await rollout.stop()
        assert creates.lost == []
        assert len(creates.made) >= CREATES
        assert codes == [0] * 4
        assert front.refused == 0


async def test_a_create_whose_call_is_on_its_way_to_a_webhook_that_ends_is_made_by_another(
    realapi: RealApi, admin: Rest, namespace: str, tmp_path
):
    pods, name = f"/api/v1/namespaces/{namespace}/pods", f"{CONFIGURATIONS}/rollout-{namespace}"
    async with balancer() as front:
        rollout = Rollout(realapi.children, tmp_path, front)
        old = await rollout.start_one()
        # It is told to ask again once the webhook has drained.
        held = configuration(namespace, front.port, rollout.authority.cert_pem, timeout_s=30)
        await admin.made(CONFIGURATIONS, held)
        try:
            await until_completed(admin, namespace)
            # The API server keeps the connection of this call for the next.
            assert (await admin.post(pods, pod("before"))).status == 201
            new = await rollout.start_one()
            front.hold_back()
            creating = asyncio.create_task(admin.post(pods, pod("after")), name="create")
            async with asyncio.timeout(60):
                while not front.held_back:  # noqa: ASYNC110 (nobody tells of it)
                    await asyncio.sleep(0.01)
            os.kill(old.child.pid, signal.SIGTERM)
            created = await creating
            front.let_go()
            # A second signal would kill an interpreter that is already on its way out.
            async with asyncio.timeout(60):
                while old.child.exit_code is None:  # noqa: ASYNC110 (nobody tells of it)
                    await asyncio.sleep(0.05)
            codes = [await asyncio.to_thread(realapi.children.stop, one.child) for one in (old, new)]
        finally:
            await admin.delete(name)
        assert (created.status, created.message) == (201, "")
        assert "volcano.sh/vgpu-number" in created.body["spec"]["containers"][0]["resources"]["limits"]
        assert codes == [0, 0]
        assert front.refused == 0
