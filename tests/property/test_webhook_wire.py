"""Whatever comes over the wire, the webhook answers it: never by a reset, nor by what the API server refuses."""

import asyncio
import base64
import contextlib
import json
from collections.abc import Iterator
from typing import Any

import jsonpatch
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.admission.rulebook import rulebook
from core.catalog import standard_catalog
from core.settings import Settings, Tables
from runtime.configuration import ActiveConfiguration
from runtime.files import Files
from runtime.listening import Address
from runtime.serving import HttpListener
from webhook.calls import Edits, ReviewCalls
from webhook.metrics import Metrics
from webhook.reviews import Reviewer

PODS = {"group": "", "version": "v1", "kind": "Pod"}
KEYS = st.sampled_from(
    [
        "volcano.sh/vgpu-mode",
        "nvidia.com/use-gputype",
        "volcano.sh/gpu-index",
        "a/b c",
        "~",
        "huawei.com/Ascend310P",
        "",
    ]
)
RESOURCES = st.sampled_from(["volcano.sh/vgpu-number", "volcano.sh/vgpu-memory", "volcano.sh/gpu-memory", "cpu", "x/y"])
TEXTS = st.one_of(st.sampled_from(["1", "mig", "A100", "0", "-1", "1e3", "1Ki", "\u0000", "é"]), st.text(max_size=12))
JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=8)
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner, max_size=3)),
    max_leaves=8,
)
AMOUNTS = st.dictionaries(RESOURCES, st.one_of(TEXTS, st.integers(-5, 5)), max_size=3)
CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {"name": TEXTS},
        optional={"resources": st.fixed_dictionaries({}, optional={"limits": AMOUNTS, "requests": AMOUNTS})},
    ),
    max_size=2,
)
POD = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {"name": TEXTS}, optional={"annotations": st.one_of(st.none(), st.dictionaries(KEYS, TEXTS, max_size=3))}
        ),
        "spec": st.fixed_dictionaries({"containers": CONTAINERS}, optional={"initContainers": CONTAINERS}),
    }
)
REVIEW = st.fixed_dictionaries(
    {
        "uid": st.text(min_size=1, max_size=40),
        "kind": st.one_of(st.just(PODS), st.just({"group": "apps", "version": "v1", "kind": "Deployment"})),
        "operation": st.sampled_from(["CREATE", "UPDATE", "DELETE", "CONNECT"]),
        "object": st.one_of(POD, JSON),
    },
    optional={"oldObject": st.one_of(POD, JSON), "dryRun": st.booleans(), "subResource": TEXTS, "namespace": TEXTS},
)


def whole(review: Any) -> dict[str, Any]:
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": review}


class Wire:
    """A port in this process, and calls to it as bytes."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner()
        reviewer = Reviewer(rulebook(Settings(), Tables(), standard_catalog()), Metrics())
        catalog = standard_catalog()
        active = ActiveConfiguration(Files(), catalog)
        edits = Edits(active, catalog, frozenset({"kube-system", "volcano-system"}), reviewer.metrics)
        self.port = HttpListener("reviews", ReviewCalls(reviewer, edits).answer, max_connections=1024)
        self.metrics = reviewer.metrics
        self.address = self.runner.run(self.port.start(Address(host="127.0.0.1", port=0), "--listen"))

    def close(self) -> None:
        self.runner.run(self.port.stop(1.0))
        self.runner.close()

    def exchange(self, *pieces: bytes) -> bytes:
        """What is answered until the connection is closed from the other end."""
        return self.runner.run(self._exchange(pieces))

    async def _exchange(self, pieces: tuple[bytes, ...]) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.address.port)
        try:
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
            writer.write_eof()
            async with asyncio.timeout(20):
                return await reader.read()
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        head = (
            f"POST {path}?timeout=5s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        answer = self.exchange(head.encode() + body)
        start, _, rest = answer.partition(b"\r\n\r\n")
        return int(start.split(b" ")[1]), rest


@pytest.fixture(scope="module")
def wire() -> Iterator[Wire]:
    found = Wire()
    yield found
    found.close()


often = settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])


def assert_taken(body: bytes, uid: str, pod: Any) -> None:
    """As the API server reads an answer. Source: Kubernetes, apiserver, webhook/request/admissionreview.go."""
    answer = json.loads(body)
    assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response = answer["response"]
    assert response["uid"] == uid
    assert isinstance(response["allowed"], bool)
    assert ("patch" in response) == ("patchType" in response)
    for warning in response.get("warnings", ()):
        assert warning.isprintable()
    if "patch" in response:
        assert response["patchType"] == "JSONPatch"
        assert response["allowed"]
        jsonpatch.JsonPatch(json.loads(base64.b64decode(response["patch"], validate=True))).apply(pod)


@pytest.mark.parametrize("path", ["/mutate", "/validate", "/configuration"])
@often
@given(review=REVIEW)
def test_every_review_is_answered_as_the_api_server_takes_it(wire: Wire, path: str, review: dict[str, Any]):
    before = wire.metrics.failures
    status, body = wire.post(path, json.dumps(whole(review)).encode())
    assert status == 200
    assert_taken(body, review["uid"], review["object"])
    assert wire.metrics.failures == before, "and no rule failed"


YAML = st.one_of(
    st.lists(
        st.sampled_from(
            [
                "policy: spread\n", "polizy: 1\n", "admission:\n", "  allow: {x: [CS303]}\n", "- ", "  ", "\n", "&a ",
                "*a", "[" * 90, "{", "}", "? ", "!!binary x", "!!timestamp 2", "1:1:1", "9" * 80, "...", "---\n",
                "<<: *a\n",
                "tiers:\n", "- plugins:\n", "nvidia:\n", "vnpus: ", "\u0000", "\ud7ff", "%TAG ! x\n",
                "!<x> y", "~: ~\n",
            ]
        ),
        max_size=12,
    ).map("".join),
    st.text(max_size=40),
)  # fmt: skip
MAPS = st.sampled_from(
    [
        ("cardshare-system", "cardshare-settings"),
        ("elsewhere", "x"),
        ("kube-system", "volcano-vgpu-device-config"),
        ("kube-system", "hami-scheduler-device"),
        ("volcano-system", "volcano-scheduler-configmap"),
    ]
)
DATA = st.dictionaries(
    st.sampled_from(["cardshare.yaml", "volcano-scheduler.conf", "device-config.yaml", "x\u0000"]), YAML, max_size=3
)
BINARY = st.dictionaries(
    st.sampled_from(["cardshare.yaml", "volcano-scheduler.conf"]),
    st.binary(max_size=20).map(lambda content: base64.b64encode(content).decode()),
    max_size=2,
)
CONFIG_MAP = st.fixed_dictionaries({}, optional={"data": DATA, "binaryData": BINARY})


@often
@given(place=MAPS, new=st.one_of(CONFIG_MAP, JSON), old=st.one_of(st.none(), CONFIG_MAP), version=TEXTS)
def test_every_edit_of_the_configuration_is_answered_and_only_ours_is_refused(
    wire: Wire, place: tuple[str, str], new: Any, old: Any, version: str
):
    namespace, name = place
    if isinstance(new, dict):
        new = {"metadata": {"name": name, "labels": {"app.kubernetes.io/version": version}}, **new}
    request = {"uid": "u", "kind": {"version": "v1", "kind": "ConfigMap"}, "operation": "UPDATE", "object": new}
    request |= {"namespace": namespace, "name": name, "oldObject": old}
    before = wire.metrics.failures
    status, body = wire.post("/configuration", json.dumps(whole(request)).encode())
    assert status == 200
    assert_taken(body, "u", new)
    assert wire.metrics.failures == before, "and no reader failed"
    answer = json.loads(body)["response"]
    assert answer["allowed"] or namespace not in {"kube-system", "volcano-system"}
    assert all(c.isprintable() for c in answer.get("status", {}).get("message", ""))


@often
@given(
    body=st.one_of(
        st.binary(max_size=300), JSON.map(json.dumps).map(str.encode), JSON.map(whole).map(json.dumps).map(str.encode)
    )
)
def test_what_is_no_review_is_refused_with_a_line(wire: Wire, body: bytes):
    status, text = wire.post("/mutate", body)
    assert status in {200, 400}
    assert text.strip()
    if status == 400:
        assert b"\n" not in text.strip()


HEADS = st.sampled_from(
    [
        b"POST /mutate HTTP/1.1\r\n", b"GET / HTTP/1.1\r\n", b"PUT /validate HTTP/1.0\r\n",
        b"POST /mutate HTTP/9.9\r\n", b"POST /mutate\r\n",
        b"\x16\x03\x01\x02\x00\x01", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"HEAD / HTTP/1.1\r\n",
        b"Host: x\r\n", b"Content-Type: application/json\r\n", b"Content-Length: 5\r\n", b"Content-Length: -1\r\n",
        b"Content-Length: 99999999999\r\n", b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: gzip\r\n",
        b"Expect: 100-continue\r\n", b"Connection: upgrade\r\nUpgrade: websocket\r\n", b"Connection: close\r\n",
        b"X: " + b"y" * 9000 + b"\r\n", b"\r\n", b"5\r\nhello\r\n", b"0\r\n\r\n", b"zz\r\n", b"hello", b"\x00",
    ]
)  # fmt: skip


@often
@given(pieces=st.lists(st.one_of(HEADS, st.binary(max_size=40)), min_size=1, max_size=8))
def test_bytes_of_any_kind_are_answered_or_waited_for_and_never_reset(wire: Wire, pieces: list[bytes]):
    answer = wire.exchange(*pieces)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 "), answer
    assert wire.post("/mutate", b"null")[0] == 400, "and the port goes on"
    assert wire.port.busy == 0
