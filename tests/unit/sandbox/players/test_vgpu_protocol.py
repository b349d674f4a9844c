"""The plugin's reading of assignments, against answers recorded from the real plugin."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from sandbox.players import vgpu_protocol as protocol

_HERE = Path(__file__).parent
_ROOT = _HERE.parents[3]
_VECTORS = Path(os.environ.get("CARDSHARE_VECTORS", _ROOT.parent / "shared" / "protocol" / "vectors"))
_RECORDS = 192
_EXAMPLES: list[dict[str, Any]] = yaml.safe_load((_HERE / "plugin_examples.yaml").read_text(encoding="utf-8"))


def records(op: str) -> list[dict[str, Any]]:
    path = _VECTORS / "vgpu-plugin-view.json"
    if not path.is_file():
        pytest.skip(f"no recorded vectors: {path} is absent; name their folder in CARDSHARE_VECTORS")
    every: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    assert len(every) == _RECORDS
    chosen = [record for record in every if record["op"] == op]
    assert chosen
    return chosen


def as_json(device: protocol.VgpuDevice) -> dict[str, Any]:
    return {"id": device.id, "type": device.type, "mem": device.mem, "cores": device.cores}


def served(segments: tuple[protocol.Segment, ...], containers: list[str]) -> dict[str, Any]:
    try:
        container, devices = protocol.next_request(segments, containers)
    except protocol.VgpuRequestError as e:
        return {"error": str(e)}
    except protocol.PluginPanicError as e:
        return {"panic": str(e)}
    return {"container": container, "devices": [as_json(d) for d in devices]}


def view(value: str, containers: list[str]) -> dict[str, Any]:
    try:
        segments = protocol.decode(value)
    except protocol.PluginPanicError as e:
        return {"panic": str(e)}
    return {
        "segments": [[as_json(d) for d in segment] for segment in segments],
        "device_count": protocol.device_count(segments),
        "next": served(segments, containers),
        "after_erase": protocol.erase(segments),
    }


def test_every_recorded_value_is_seen_as_the_real_plugin_sees_it():
    for record in records("plugin-decode"):
        answer = view(record["input"]["value"], record["input"]["containers"])
        assert answer == record["output"], record["id"]


def test_every_recorded_choice_is_the_real_plugins_choice():
    for record in records("plugin-oldest"):
        asked = record["input"]
        chosen = protocol.oldest(asked["pods"], asked["node"], asked["amount"])
        name = None if chosen is None else chosen["metadata"]["name"]
        assert name == record["output"]["pod"], record["id"]


def as_pod(described: Mapping[str, Any]) -> dict[str, Any]:
    annotations = {protocol.NODE: described["node"], protocol.TO_ALLOCATE: described["to_allocate"]}
    if "time" in described:
        annotations[protocol.TIME] = described["time"]
    containers = [{"name": name} for name in described["containers"]]
    return {
        "metadata": {"name": described["name"], "annotations": annotations},
        "spec": {"containers": containers},
    }


@pytest.mark.parametrize("example", _EXAMPLES, ids=lambda example: example["id"])
def test_worked_example_is_reproduced(example: dict[str, Any]):
    pods = [as_pod(pod) for pod in example["pods"]]
    for call in example["calls"]:
        pod = protocol.oldest(pods, "node-a", call["devices"])
        if pod is None:
            assert "pod" not in call
            assert call["error"] == "cannot get valid pod"
            continue
        assert pod["metadata"]["name"] == call["pod"]
        annotations = pod["metadata"]["annotations"]
        segments = protocol.decode(annotations[protocol.TO_ALLOCATE])
        names = [container["name"] for container in pod["spec"]["containers"]]
        if call.get("error") == "device request not found":
            with pytest.raises(protocol.VgpuRequestError, match=call["error"]):
                protocol.next_request(segments, names)
            continue
        container, devices = protocol.next_request(segments, names)
        if len(devices) != call["devices"]:
            assert call["error"] == "device number not matched"
            continue
        assert container == call["container"]
        assert [device.id for device in devices] == call["uuids"]
        left = call.get("webhook_sets", protocol.erase(segments))
        assert left == call["left"]
        annotations[protocol.TO_ALLOCATE] = left
        if "GPU" not in left:
            annotations[protocol.TIME] = str(protocol.DONE_TIME)


def test_a_number_of_any_length_saturates_without_being_computed():
    value = f"GPU-a,NVIDIA,{'9' * 100_000},-{'9' * 100_000}:"
    ((device,),) = protocol.decode(value)
    assert (device.mem, device.cores) == (2**31 - 1, -(2**31))
    assert protocol.decode(f"GPU-a,NVIDIA,{'0' * 9000}7,1_0:") == (
        (protocol.VgpuDevice(id="GPU-a", type="NVIDIA", mem=7, cores=0),),
    )
