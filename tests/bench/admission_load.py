"""Ready reviews, and an echo to compare with: the tools of the `admit` benchmark."""

import asyncio
import json
import ssl
import sys
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any, Final

import msgspec
from aiohttp import web

from runtime.process import fast_loop


def share_pod(workload: int = 0, number: int = 0) -> dict[str, Any]:
    """A pod as the controller of *workload* creates it, its *number*; one of its two containers has a vGPU."""
    env = [{"name": f"SETTING_{i}", "value": "a value of usual length"} for i in range(8)]
    mounts = [{"name": "kube-api-access", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}]

    def container(name: str, limits: Mapping[str, str]) -> dict[str, Any]:
        return {
            "name": name,
            "image": "registry.example/team/service:1.2.3",
            "env": env,
            "ports": [{"containerPort": 8080, "protocol": "TCP"}],
            "resources": {"limits": dict(limits), "requests": {"cpu": "500m", "memory": "1Gi"}},
            "volumeMounts": mounts,
            "livenessProbe": {"httpGet": {"path": "/live", "port": 8080, "scheme": "HTTP"}, "periodSeconds": 10},
            "terminationMessagePath": "/dev/termination-log",
            "imagePullPolicy": "IfNotPresent",
        }

    name = f"service-{workload}-7d4b9c"
    share = {
        "volcano.sh/vgpu-memory": str(_MEMORY + workload),
        "volcano.sh/vgpu-cores": "50",
        "cpu": "1",
        "memory": "2Gi",
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{name}-{number:05d}",
            "generateName": f"{name}-",
            "namespace": "team-a",
            "labels": {"app": f"service-{workload}", "pod-template-hash": "7d4b9c"},
            "annotations": {"volcano.sh/vgpu-mode": "hami-core", "nvidia.com/use-gputype": "A100,V100"},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": "service-7d4b9c",
                    "uid": "u",
                    "controller": True,
                }
            ],
            "managedFields": [
                {
                    "manager": "kube-controller-manager",
                    "operation": "Update",
                    "apiVersion": "v1",
                    "fieldsType": "FieldsV1",
                    "fieldsV1": {"f:spec": {"f:containers": {f"k:{i}": {"f:name": {}} for i in range(20)}}},
                }
            ],
        },
        "spec": {
            "volumes": [{"name": "kube-api-access", "projected": {"sources": [{"configMap": {"name": "root-ca"}}]}}],
            "containers": [container("main", share), container("sidecar", {"cpu": "1"})],
            "restartPolicy": "Always",
            "schedulerName": "default-scheduler",
            "serviceAccountName": "default",
            "tolerations": [
                {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute"}
                for key in ("not-ready", "unreachable")
            ],
        },
        "status": {},
    }


def review_of(pod: Mapping[str, Any]) -> bytes:
    """The API server's question about the creation of *pod*."""
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
        "requestResource": {"group": "", "version": "v1", "resource": "pods"},
        "name": "",
        "namespace": "team-a",
        "operation": "CREATE",
        "userInfo": {
            "username": "system:serviceaccount:kube-system:replicaset-controller",
            "uid": "5f1b",
            "groups": ["system:serviceaccounts", "system:authenticated"],
        },
        "object": pod,
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    review = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}
    return json.dumps(review, separators=(",", ":")).encode()


def call_of(body: bytes, path: str = "/mutate") -> bytes:
    """*body* as the API server's client sends it."""
    head = (
        f"POST {path}?timeout=10s HTTP/1.1\r\nHost: cardshare-webhook.cardshare-system.svc:443\r\n"
        "User-Agent: kube-apiserver-admission\r\nAccept: application/json, */*\r\n"
        f"Content-Length: {len(body)}\r\nContent-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n"
    )
    return head.encode() + body


def unseen_calls(first: int = 0) -> Iterator[bytes]:
    """Without end, calls about pods of which no two are of one workload; made of ready bytes."""
    text = call_of(review_of(share_pod(_MARK)))
    # What share_pod makes of its number: names, and an amount of memory.
    pieces = text.replace(b"%d" % (_MARK + _MEMORY), b"%(memory)d").replace(b"%d" % _MARK, b"%(workload)d")
    for number in count(first):
        yield pieces % {b"workload": _FIRST + number % _FIRST, b"memory": _FIRST + _MEMORY + number % _FIRST}


# All of as many digits, so that every call is as long as the one that they are made of.
_MARK: Final = 7_654_321
_FIRST: Final = 1_000_000
_MEMORY: Final = 3000


class _Uid(msgspec.Struct):
    uid: str


class _Question(msgspec.Struct):
    request: _Uid


class _Response(msgspec.Struct):
    uid: str
    allowed: bool


class _Answer(msgspec.Struct, rename="camel"):
    response: _Response
    api_version: str = "admission.k8s.io/v1"
    kind: str = "AdmissionReview"


async def _echo(port: int, cert: str, key: str) -> None:
    """Serve the least that is an answer: the uid back."""
    decode, encode = msgspec.json.Decoder(_Question).decode, msgspec.json.Encoder().encode

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        question = decode(await request.read())
        body = encode(_Answer(_Response(question.request.uid, True)))
        return web.Response(body=body, content_type="application/json")

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    runner = web.ServerRunner(web.Server(handle, access_log=None, keepalive_timeout=120))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context, backlog=1024).start()
    await asyncio.Event().wait()


def main() -> None:
    """``python -m tests.bench.admission_load PORT CERT KEY``: the echo, on the loop that the webhook would use."""
    with asyncio.Runner(loop_factory=fast_loop()) as runner:
        runner.run(_echo(int(sys.argv[1]), sys.argv[2], sys.argv[3]))


if __name__ == "__main__":
    main()
