"""A redacted snapshot names nobody in storage, budgets and HyperNodes, and keeps what decides."""

import json

import pytest

from cli.snapshot import redacted

STORAGE = {
    "/api/v1/persistentvolumes": {
        "metadata": {
            "name": "disk-of-ann",
            "annotations": {"pv.kubernetes.io/bound-by-controller": "yes", "note": "zoe"},
        },
        "spec": {
            "capacity": {"storage": "1Gi"},
            "storageClassName": "fast-of-dave",
            "csi": {"driver": "disks.blue.example", "volumeHandle": "vol-carol"},
        },
    },
    "/api/v1/persistentvolumeclaims": {
        "metadata": {
            "name": "claim-of-eve",
            "namespace": "team-of-gil",
            "annotations": {"volume.kubernetes.io/selected-node": "node-of-hal"},
        },
        "spec": {"volumeName": "disk-of-ann", "storageClassName": "fast-of-dave"},
    },
    "/api/v1/nodes": {"metadata": {"name": "node-of-hal"}},
    "/apis/storage.k8s.io/v1/volumeattachments": {
        "metadata": {"name": "csi-of-ivy"},
        "spec": {
            "attacher": "disks.blue.example",
            "nodeName": "node-of-hal",
            "source": {"persistentVolumeName": "disk-of-ann"},
        },
    },
    "/apis/policy/v1/poddisruptionbudgets": {
        "metadata": {"name": "budget-of-frank", "namespace": "team-of-gil"},
        "spec": {"selector": {"matchLabels": {"app": "violet"}}},
        "status": {"disruptionsAllowed": 1},
    },
    "/apis/topology.volcano.sh/v1alpha1/hypernodes": {
        "metadata": {"name": "rack-of-jo"},
        "spec": {"members": [{"selector": {"regexMatch": {"pattern": "^rack-jo-[0-9]+$"}}}]},
    },
}
NAMES = (
    *("of-ann", "zoe", "dave", "blue", "carol", "eve", "gil", "hal", "ivy", "frank", "violet", "rack-of-jo", "rack-jo"),
)


@pytest.fixture
def hidden():
    collections = {path: {"items": [one]} for path, one in STORAGE.items()}
    snapshot = {"namespace": "team-of-gil", "redacted": False, "collections": collections}
    return redacted(snapshot, b"salt")


def test_no_name_is_left(hidden):
    text = json.dumps(hidden)
    assert [name for name in NAMES if name in text] == []


def test_what_decides_is_kept_and_names_stay_equal(hidden):
    one = {path: found["items"][0] for path, found in hidden["collections"].items()}
    volume, claim = one["/api/v1/persistentvolumes"], one["/api/v1/persistentvolumeclaims"]
    assert volume["metadata"]["annotations"] == {"pv.kubernetes.io/bound-by-controller": "yes"}
    assert claim["spec"]["volumeName"] == volume["metadata"]["name"]
    assert claim["spec"]["storageClassName"] == volume["spec"]["storageClassName"]
    node = one["/api/v1/nodes"]["metadata"]["name"]
    assert claim["metadata"]["annotations"] == {"volume.kubernetes.io/selected-node": node}
    assert (
        one["/apis/storage.k8s.io/v1/volumeattachments"]["spec"]["source"]["persistentVolumeName"]
        == volume["metadata"]["name"]
    )
    assert one["/apis/policy/v1/poddisruptionbudgets"]["status"] == {"disruptionsAllowed": 1}
