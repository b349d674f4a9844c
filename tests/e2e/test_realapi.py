"""The real API server: that it is one, and the answers of its Binding that all placing rests on."""

import asyncio
import base64
import os
import ssl
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from certs.authority import issue, new_authority
from tests.support.servers.realapi import RealApi
from tests.support.servers.rest import Answer, Rest, connect, eventually


def pod(name: str, **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, **metadata},
        "spec": {"containers": [{"name": "main", "image": "example.test/none"}]},
    }


def binding(name: str, node: str, *, uid: str | None = None, **annotations: str) -> dict[str, Any]:
    metadata = {"name": name, "annotations": annotations} | ({"uid": uid} if uid else {})
    return {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": {"kind": "Node", "name": node}}


async def bind(rest: Rest, namespace: str, name: str, node: str, **rest_of_binding: Any) -> Answer:
    body = binding(name, node, **rest_of_binding)
    return await rest.post(f"/api/v1/namespaces/{namespace}/pods/{name}/binding", body)


async def run(*argv: object, env: dict[str, str] | None = None) -> str:
    words = [str(word) for word in argv]
    done = await asyncio.to_thread(
        subprocess.run, words, capture_output=True, text=True, check=False, timeout=60, env=env
    )
    assert done.returncode == 0, done
    return done.stdout


async def test_the_server_tells_the_version_of_its_binary(realapi: RealApi, admin: Rest):
    told = (await admin.get("/version")).body["gitVersion"]
    assert await run(realapi.binaries.kube_apiserver, "--version") == f"Kubernetes {told}\n"


async def test_all_ports_are_on_loopback_only(realapi: RealApi):
    for child in (realapi.apiserver, realapi.etcd):
        listening = await asyncio.to_thread(_listening_addresses, child.pid)
        assert listening == {"0100007F"}, child.name


def _listening_addresses(pid: int) -> set[str]:
    """Addresses that a process listens on, as in proc(5) net/tcp: hexadecimal, IPv4 in host order."""
    inodes = set()
    for entry in os.scandir(f"/proc/{pid}/fd"):
        target = os.readlink(entry.path)
        if target.startswith("socket:["):
            inodes.add(target[len("socket:[") : -1])
    addresses = set()
    for table in ("tcp", "tcp6"):
        with open(f"/proc/{pid}/net/{table}", encoding="ascii") as lines:
            for fields in (line.split() for line in list(lines)[1:]):
                if fields[3] == "0A" and fields[9] in inodes:
                    addresses.add(fields[1].partition(":")[0])
    return addresses


async def test_a_binding_puts_node_annotations_and_condition_into_one_version(admin: Rest, namespace: str, node: str):
    pods = f"/api/v1/namespaces/{namespace}/pods"
    before = await admin.made(pods, pod("p", annotations={"kept": "1", "changed": "old"}))
    uid, version = before["metadata"]["uid"], before["metadata"]["resourceVersion"]

    answer = await bind(admin, namespace, "p", node, uid=uid, changed="new", added="2")
    assert answer.status == 201
    await admin.made(pods, pod("marker"))

    events = []
    async for event in admin.watch(f"{pods}?watch=1&resourceVersion={version}"):
        if event["object"]["metadata"]["name"] == "marker":
            break
        events.append(event)
    (event,) = events
    after = event["object"]
    assert event["type"] == "MODIFIED"
    assert after["spec"]["nodeName"] == node
    assert after["metadata"]["annotations"] == {"kept": "1", "changed": "new", "added": "2"}
    assert [(c["type"], c["status"]) for c in after["status"]["conditions"]] == [("PodScheduled", "True")]


async def test_a_binding_for_another_uid_is_a_conflict_and_changes_nothing(admin: Rest, namespace: str, node: str):
    await admin.made(f"/api/v1/namespaces/{namespace}/pods", pod("p"))
    answer = await bind(admin, namespace, "p", node, uid="00000000-0000-0000-0000-000000000000", a="1")
    assert answer.status == 409
    after = (await admin.get(f"/api/v1/namespaces/{namespace}/pods/p")).body
    assert "nodeName" not in after["spec"]
    assert "annotations" not in after["metadata"]


async def test_of_six_bindings_at_once_one_wins_with_its_annotations_alone(admin: Rest, namespace: str):
    made = await admin.made(f"/api/v1/namespaces/{namespace}/pods", pod("p"))
    uid = made["metadata"]["uid"]
    answers = await asyncio.gather(
        *(bind(admin, namespace, "p", f"n{i}", uid=uid, **{f"from-{i}": str(i)}) for i in range(6))
    )
    assert sorted(answer.status for answer in answers) == [201] + [409] * 5
    winner = [answer.status for answer in answers].index(201)
    after = (await admin.get(f"/api/v1/namespaces/{namespace}/pods/p")).body
    assert after["spec"]["nodeName"] == f"n{winner}"
    assert after["metadata"]["annotations"] == {f"from-{winner}": str(winner)}


async def test_a_binding_to_a_node_that_does_not_exist_is_accepted(admin: Rest, namespace: str):
    made = await admin.made(f"/api/v1/namespaces/{namespace}/pods", pod("p"))
    answer = await bind(admin, namespace, "p", "no-such-node", uid=made["metadata"]["uid"])
    assert answer.status == 201


async def test_kubectl_lists_the_nodes(realapi: RealApi, node: str):
    if realapi.binaries.kubectl is None:
        pytest.skip("kubectl not found; name it with KUBECTL or put it on the PATH")
    printed = await run(
        realapi.binaries.kubectl,
        "--kubeconfig",
        realapi.kubeconfig,
        "get",
        "nodes",
        "-o",
        "name",
        env={"HOME": str(realapi.logs)},
    )
    assert f"node/{node}" in printed.splitlines()


async def test_a_service_accounts_token_opens_what_its_role_names_and_nothing_else(
    realapi: RealApi, admin: Rest, namespace: str
):
    core, rbac = f"/api/v1/namespaces/{namespace}", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    await admin.made(f"{core}/serviceaccounts", {"metadata": {"name": "reader"}})
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
    await admin.made(f"{rbac}/roles", {"metadata": {"name": "reader"}, "rules": [rule]})
    await admin.made(
        f"{rbac}/rolebindings",
        {
            "metadata": {"name": "reader"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
            "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": namespace}],
        },
    )
    token = await realapi.token_for("reader", namespace)
    async with connect(realapi.url, realapi.ca_file, token) as reader:
        assert (await reader.get(f"{core}/secrets")).status == 403
        assert (await reader.get("/api/v1/pods")).status == 403
        # The authorizer learns of new roles by a watch of its own.
        await eventually(lambda: reader.get(f"{core}/pods"), lambda answer: answer.status == 200)


async def test_after_an_outage_the_server_is_back_with_its_objects(realapi: RealApi, admin: Rest, namespace: str):
    made = await admin.made(f"/api/v1/namespaces/{namespace}/pods", pod("p"))
    await realapi.stop_apiserver()
    try:
        with pytest.raises(OSError, match=r"refused|Connect call failed"):
            await asyncio.open_connection("127.0.0.1", int(realapi.url.rpartition(":")[2]))
    finally:
        await realapi.start_apiserver()
    async with connect(realapi.url, realapi.ca_file, realapi.admin_token) as again:
        assert (await again.get(f"/api/v1/namespaces/{namespace}/pods/p")).body == made


async def test_after_compaction_an_old_version_is_expired(realapi: RealApi, admin: Rest, namespace: str):
    pods = f"/api/v1/namespaces/{namespace}/pods"
    old = (await admin.made(pods, pod("p")))["metadata"]["resourceVersion"]
    await admin.made(pods, pod("q"))
    await realapi.stop_apiserver()
    try:
        assert await realapi.compact() > int(old)
    finally:
        await realapi.start_apiserver()
    async with connect(realapi.url, realapi.ca_file, realapi.admin_token) as again:
        events = [event async for event in again.watch(f"{pods}?watch=1&resourceVersion={old}&timeoutSeconds=3")]
    assert [(event["type"], event["object"]["code"], event["object"]["reason"]) for event in events] == [
        ("ERROR", 410, "Expired")
    ]


async def test_kube_scheduler_places_a_pod_of_its_own(realapi: RealApi, admin: Rest, namespace: str, node: str):
    if realapi.binaries.kube_scheduler is None:
        pytest.skip("kube-scheduler not found; name it with KUBE_SCHEDULER")
    scheduler = await realapi.start_scheduler()
    try:
        await admin.made(f"/api/v1/namespaces/{namespace}/pods", pod("p"))
        path = f"/api/v1/namespaces/{namespace}/pods/p"
        after = await eventually(lambda: admin.get(path), lambda answer: "nodeName" in answer.body["spec"])
    finally:
        await realapi.stop_child(scheduler)
    assert after.body["spec"]["nodeName"] == node


async def test_the_server_calls_a_webhook_behind_an_external_name_by_its_certificates_name(
    realapi: RealApi, admin: Rest, namespace: str, tmp_path: Path
):
    now = datetime.now(UTC)
    authority = new_authority("webhook", 2, now)
    # Only the Service's name: localhost, which the connection goes to, is not in the certificate.
    leaf = issue(authority, (f"hook.{namespace}.svc",), (), 2, now)
    (tmp_path / "tls.crt").write_bytes(leaf.cert_pem)
    (tmp_path / "tls.key").write_bytes(leaf.key_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")

    async def mutate(request: web.BaseRequest) -> web.Response:
        review = await request.json()
        patch = base64.b64encode(b'[{"op":"add","path":"/metadata/labels","value":{"seen":"yes"}}]').decode()
        answer = {"uid": review["request"]["uid"], "allowed": True, "patchType": "JSONPatch", "patch": patch}
        return web.json_response({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": answer})

    runner = web.ServerRunner(web.Server(mutate))
    await runner.setup()
    configurations = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        port = runner.addresses[0][1]
        service = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]}
        await admin.made(f"/api/v1/namespaces/{namespace}/services", {"metadata": {"name": "hook"}, "spec": service})
        webhook = {
            "name": "hook.example.test",
            "clientConfig": {
                "service": {"name": "hook", "namespace": namespace, "path": "/mutate", "port": port},
                "caBundle": base64.b64encode(authority.cert_pem).decode(),
            },
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "failurePolicy": "Fail",
        }
        await admin.made(configurations, {"metadata": {"name": namespace}, "webhooks": [webhook]})
        # The server learns of a new webhook by a watch of its own.
        pods = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
        answer = await eventually(lambda: admin.post(pods, pod("p")), lambda a: "labels" in a.body["metadata"])
        assert answer.body["metadata"]["labels"] == {"seen": "yes"}
    finally:
        await admin.delete(f"{configurations}/{namespace}")
        await runner.cleanup()
