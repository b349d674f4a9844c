import gzip
import json
from typing import Any, cast

import pytest

from cli.__main__ import _snapshot
from cli.cluster import NODES, PODS, empty_holdings
from cli.options import Snapshot
from cli.snapshot import CONFIG_MAPS, VERSION, SnapshotReads, UnusableSnapshotError, packed, take
from cli.waiting import fetch_waiting
from core.settings import DialectName
from kube.errors import ApiError, ApiForbiddenError, from_answer
from kube.transport import Response, Transport

GOOD = {"version": VERSION, "taken": "2026-01-01T00:00:00Z", "namespace": "a", "collections": {"/api/v1/nodes": {}}}
BYTES = packed(GOOD)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b"x", id="no gzip"),
        pytest.param(BYTES[:-12], id="cut short"),
        pytest.param(BYTES[:15] + b"\xff\xff\xff" + BYTES[18:], id="changed bytes"),
        pytest.param(gzip.compress(b"\xff"), id="no text"),
        pytest.param(gzip.compress(b"[" * 200_000), id="deep"),
        pytest.param(packed({}), id="empty"),
        pytest.param(packed({**GOOD, "namespace": 5}), id="namespace"),
        pytest.param(packed({**GOOD, "collections": {"/api/v1/nodes": {"items": [5]}}}), id="item"),
        pytest.param(packed({**GOOD, "collections": {"/api/v1/nodes": {"status": "x"}}}), id="status"),
    ],
)
def test_a_damaged_file_is_refused(text: bytes):
    with pytest.raises(UnusableSnapshotError, match="it is damaged; take one with kubectl cards snapshot"):
        SnapshotReads(text)


def test_a_file_of_another_version_is_refused_whatever_it_has():
    with pytest.raises(UnusableSnapshotError, match="its version is 99"):
        SnapshotReads(packed({"version": 99}))


async def test_an_item_without_metadata_has_no_name():
    snapshot = SnapshotReads(packed({**GOOD, "collections": {"/api/v1/nodes": {"items": [{}, {"metadata": 5}]}}}))
    assert len(json.loads((await snapshot.request("GET", "/api/v1/nodes")).body)["items"]) == 2


class Answering:
    """An API server that answers every list of *path* with *status*, and has nothing else but an empty list of pods."""

    namespace = "default"

    def __init__(self, status: int, path: str) -> None:
        self.status = status
        self.path = path

    async def request(self, verb: str, path: str, **_: Any) -> Any:
        if path == PODS and not path.startswith(self.path):
            return Response(status=200, headers={}, body=b'{"metadata":{"resourceVersion":"1"},"items":[]}')
        raise from_answer(verb, path, self.status if path.startswith(self.path) else 404, {}, b'{"kind":"Status"}')


async def test_a_server_that_does_not_know_the_caller_gives_no_snapshot(tmp_path):
    file = tmp_path / "cluster.json.gz"
    with pytest.raises(ApiError, match="401"):
        await _snapshot(cast(Transport, Answering(401, "/")), Snapshot(file=str(file)))
    assert not file.exists()


@pytest.mark.parametrize("status", [403, 503])
async def test_without_pods_there_is_no_snapshot(status, tmp_path):
    file = tmp_path / "cluster.json.gz"
    with pytest.raises(ApiError, match=f"GET {PODS}: {status}"):
        await _snapshot(cast(Transport, Answering(status, PODS)), Snapshot(file=str(file)))
    assert not file.exists()


@pytest.mark.may_block(reason="a file is written")
async def test_what_a_server_could_not_list_is_told(tmp_path, capsys):
    path = "/apis/resource.k8s.io/v1/resourceslices"
    assert await _snapshot(cast(Transport, Answering(503, path)), Snapshot(file=str(tmp_path / "file"))) == 0
    assert capsys.readouterr().err == f"note: the server answered 503 for {path}; the snapshot is without them\n"


class OfNamespace(Answering):
    """An API server whose user has rights in namespace default only."""

    def __init__(self) -> None:
        super().__init__(403, "/")

    async def request(self, verb: str, path: str, **sending: Any) -> Any:
        if path == "/api/v1/namespaces/default/pods":
            pods = [
                {"metadata": {"name": "p", "namespace": "default", "uid": "u"}, "spec": {"schedulerName": "cardshare"}}
            ]
            return Response(
                status=200, headers={}, body=json.dumps({"metadata": {"resourceVersion": "1"}, "items": pods}).encode()
            )
        return await super().request(verb, path, **sending)


@pytest.mark.parametrize("redact", [False, True])
@pytest.mark.may_block(reason="a file is written and read")
async def test_with_rights_in_one_namespace_the_snapshot_has_that_and_is_no_answer_for_all(redact, tmp_path, capsys):
    file = tmp_path / "cluster.json.gz"
    assert await _snapshot(cast(Transport, OfNamespace()), Snapshot(file=str(file), redact=redact)) == 0
    assert f"you may not list {PODS}; the snapshot has those of namespace default" in capsys.readouterr().err
    reads = SnapshotReads(file.read_bytes())
    answer = await reads.request("GET", "/api/v1/namespaces/default/pods")
    assert len(json.loads(answer.body)["items"]) == 1
    found = await fetch_waiting(reads, "default")
    assert [one.pod.partition("/")[0] for one in found.pods] == ["default"]
    assert "you may not list pods in all namespaces; places in line are not known" in found.notes
    for other in (PODS, "/api/v1/namespaces/other/pods"):
        with pytest.raises(ApiForbiddenError):
            await reads.request("GET", other)


class OfCluster(Answering):
    """An API server that has *items* in the list of *path*."""

    def __init__(self, path: str, *items: Any) -> None:
        super().__init__(404, path)
        self.items = items

    async def request(self, verb: str, path: str, **sending: Any) -> Any:
        if path == self.path:
            body = {"metadata": {"resourceVersion": "1"}, "items": self.items}
            return Response(status=200, headers={}, body=json.dumps(body).encode())
        return await super().request(verb, path, **sending)


async def test_labels_are_kept_whatever_their_names_are():
    labels = {"env": "prod", "image": "large", "local": "ssd"}
    for path, one in (
        (NODES, {"metadata": {"name": "n", "labels": labels}}),
        (PODS, {"metadata": {"name": "p"}, "spec": {"nodeSelector": labels}}),
        (PODS, {"spec": {"topologySpreadConstraints": [{"labelSelector": {"matchLabels": labels}}]}}),
    ):
        taken = await take(cast(Transport, OfCluster(path, one)))
        assert taken["collections"][path]["items"] == [one]


async def test_what_kubelet_says_of_a_container_is_left_out():
    told = {"message": 'Back-off pulling image "registry.internal/i"'}
    ended = {"exitCode": 1, "message": "password s3cret"}
    states = [{"name": "a", "state": {"waiting": told}}, {"name": "b", "state": {"terminated": ended}}]
    states.append({"name": "c", "state": {"running": {}}, "lastState": {"terminated": ended}})
    pod = {"metadata": {"name": "p"}, "status": {"containerStatuses": states, "initContainerStatuses": states}}
    text = json.dumps(await take(cast(Transport, OfCluster(PODS, pod))))
    assert [word for word in ("s3cret", "registry.internal") if word in text] == []
    assert '"exitCode": 1' in text


async def test_without_the_saved_settings_others_are_read_and_not_called_defaults():
    conf = "tiers: [{plugins: [{name: deviceshare, arguments: {deviceshare.GPUSharingEnable: true}}]}]"
    volcano = {
        "metadata": {"name": "volcano-scheduler-configmap", "namespace": "volcano-system"},
        "data": {"volcano-scheduler.conf": conf},
    }
    maps = {"items": [volcano], "refused": {"cardshare-system/cardshare-last-good": 403}}
    found = await empty_holdings(SnapshotReads(packed({**GOOD, "collections": {CONFIG_MAPS: maps}})))
    assert not found.ledger.settings.has_on(DialectName("vgpu"))
    (note,) = found.notes
    assert note.startswith("ConfigMap cardshare-system/cardshare-last-good is not read (")
    assert note.endswith("); the configuration in force may be another")
