"""A redacted snapshot names nobody in storage, budgets and HyperNodes, and keeps what decides."""

import json
from typing import Any

import pytest

from cli.cluster import NODES, PODS
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


def test_the_namespace_of_the_user_is_hidden_even_if_nothing_is_in_it():
    found = redacted({"namespace": "team-of-kim", "collections": {PODS: {"items": [], "only": "team-of-kim"}}}, b"salt")
    assert "kim" not in json.dumps(found)
    assert found["collections"][PODS]["only"] == found["namespace"]


WAITING = {
    "metadata": {"name": "p", "namespace": "team-of-kim"},
    "status": {
        "conditions": [
            {
                "type": "PodScheduled",
                "message": "CS501 0/1 nodes are available: 1 too little free memory on every card. "
                "Nearest: node-of-hal GPU-0: 5360 of 8000 MiB free. Ask for at most 5360 MiB of memory.",
            }
        ]
    },
}


@pytest.mark.parametrize("refused", [NODES, PODS])
def test_a_message_may_name_a_node_or_pod_that_was_not_listed(refused):
    node = {"metadata": {"name": "node-of-hal"}}
    collections: Any = {NODES: {"items": [] if refused == NODES else [node]}, PODS: {"items": [WAITING]}}
    collections[refused]["status"] = 403
    found = redacted({"namespace": "team-of-kim", "collections": collections}, b"salt")
    assert "hal" not in json.dumps(found)
    (condition,) = found["collections"][PODS]["items"][0]["status"]["conditions"]
    assert condition["message"] == "CS501 (left out: it may name nodes or pods that were not listed)"


def test_with_all_nodes_and_pods_messages_stay():
    nodes = {"items": [{"metadata": {"name": "node-of-hal"}}]}
    found = redacted({"namespace": "a", "collections": {NODES: nodes, PODS: {"items": [WAITING]}}}, b"salt")
    assert "hal" not in json.dumps(found)
    (condition,) = found["collections"][PODS]["items"][0]["status"]["conditions"]
    assert "5360 of 8000 MiB free" in condition["message"]


def test_the_node_of_a_volume_is_hidden_without_the_nodes():
    claims = {path: {"items": [one]} for path, one in STORAGE.items() if path.endswith("persistentvolumeclaims")}
    found = redacted({"namespace": "team-of-gil", "collections": claims}, b"salt")
    assert "hal" not in json.dumps(found)
