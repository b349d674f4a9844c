import gzip
import json

import pytest

from cli.snapshot import VERSION, SnapshotReads, UnusableSnapshotError, packed

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
