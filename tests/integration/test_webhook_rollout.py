"""No call is lost while the webhook's processes are replaced and its authority changes; a connection for each call."""

import asyncio
import contextlib
import json
import ssl

import pytest

from tests.support.servers.balancer import balancer
from tests.support.servers.rollout import Rollout
from tests.support.worlds.processes import Children

CLIENTS = 8
PAUSE_S = 0.05


def call():
    pod = {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "m", "resources": {"limits": {"volcano.sh/vgpu-number": "1"}}}]},
    }
    request = {"uid": "r1", "kind": {"version": "v1", "kind": "Pod"}, "operation": "CREATE", "object": pod}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    body = json.dumps(review).encode()
    head = (
        "POST /mutate?timeout=5s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


@pytest.mark.slow
async def test_no_call_is_lost_in_a_rolling_restart_and_a_change_of_authority(tmp_path):
    children = await asyncio.to_thread(Children, tmp_path / "logs")
    try:
        async with balancer() as front:
            rollout = Rollout(children, tmp_path, front)
            await rollout.start()
            trusted = [rollout.authority.cert_pem]
            lost, answered, over = [], 0, asyncio.Event()

            async def trust(bundle):
                trusted[0] = bundle
                enough = answered + 10 * CLIENTS
                while answered < enough:  # noqa: ASYNC110 (nobody tells of it)
                    await asyncio.sleep(0.01)

            async def keep_calling():
                nonlocal answered
                known, context = b"", None
                while not over.is_set():
                    if known != trusted[0]:
                        known = trusted[0]
                        context = ssl.create_default_context(cadata=known.decode())
                    try:
                        async with asyncio.timeout(90):
                            reader, writer = await asyncio.open_connection("localhost", front.port, ssl=context)
                            writer.write(call())
                            answer = await reader.read()
                        writer.close()
                        with contextlib.suppress(OSError):
                            await writer.wait_closed()
                    except (OSError, TimeoutError) as e:
                        lost.append(repr(e))
                        continue
                    if b'"allowed":true' in answer:
                        answered += 1
                    else:
                        lost.append(repr(answer[:200]))
                    # As many calls as the cores take would be the test's own cost.
                    await asyncio.sleep(PAUSE_S)

            async with asyncio.TaskGroup() as tasks:
                for _ in range(CLIENTS):
                    tasks.create_task(keep_calling())
                codes = await rollout.replace_all()
                await rollout.rotate(trust)
                codes += await rollout.replace_all()
                # However slow the machine is.
                while answered <= 500 and not lost:  # noqa: ASYNC110 (as above)
                    await asyncio.sleep(0.01)
                over.set()
            await rollout.stop()
            assert lost == []
            assert codes == [0] * 4
    finally:
        await asyncio.to_thread(children.close)
