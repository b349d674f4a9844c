"""Pods of several containers: the device plugin is told of one at a time, and admission hands on the next."""

import pytest

from core.dialects.gpushare.dialect import GpuMemory
from core.dialects.gpushare.pods import rotate as rotate_memory
from core.dialects.vgpu import keys
from core.dialects.vgpu.dialect import Vgpu
from core.dialects.vgpu.pods import rotate as rotate_vgpu
from core.model import Container, NodeName, Phase, Pod, PodUid
from core.names import SEGMENT_QUEUE
from core.port.handoff import Progress, Stamp
from core.settings import Tables
from core.sharing.account import Entry, assigned
from sandbox.players import vgpu_protocol as plugin

VGPU = Vgpu()
MEMORY = GpuMemory()
TABLES = Tables()
STAMP = Stamp(node=NodeName("node-a"), now_s=7, order=9)
LEFT = keys.TO_ALLOCATE
ASSIGNED = "volcano.sh/gpu-assigned"


def entry(container, uuid="GPU-v0", memory=1000):
    return Entry(0, uuid, container, memory, 10, memory)


# Containers 0, 2 and 3 have cards, the second of them two.
THREE = assigned(4, (entry(0), entry(2, memory=2), entry(2, "GPU-v1", 2), entry(3, memory=3)))


def bound(assignment):
    return dict(VGPU.annotations(assignment, STAMP, TABLES))


def served(annotations):
    """What the plugin's own code makes of them when it serves a container: (devices, annotations after its write)."""
    segments = plugin.decode(annotations[LEFT])
    _, devices = plugin.next_request(segments, ["c0", "c1", "c2", "c3"])
    return [d.id for d in devices], {**annotations, LEFT: plugin.erase(segments)}


def completed(rotate, old, new):
    after = dict(new)
    # Admission is asked about changes only.
    for key, value in rotate(old, new).items() if new != old else ():
        after.pop(key, None)
        if value is not None:
            after[key] = value
    return after


def test_a_binding_shows_the_first_container_and_keeps_the_others_back():
    found = bound(THREE)
    assert found[keys.IDS] == "GPU-v0,NVIDIA,1000,10:;;GPU-v0,NVIDIA,2,10:GPU-v1,NVIDIA,2,10:;GPU-v0,NVIDIA,3,10:"
    assert found[LEFT] == "GPU-v0,NVIDIA,1000,10:"
    assert found[SEGMENT_QUEUE] == "vgpu/1 ;;GPU-v0,NVIDIA,2,10:GPU-v1,NVIDIA,2,10:;GPU-v0,NVIDIA,3,10:"


def test_a_pod_of_one_container_keeps_nothing_back():
    found = bound(assigned(2, [entry(1)]))
    assert found[LEFT] == found[keys.IDS] == ";GPU-v0,NVIDIA,1000,10:"
    assert SEGMENT_QUEUE not in found


def test_the_plugin_serves_every_container_in_turn_and_then_finds_nothing():
    now = bound(THREE)
    devices = []
    while "GPU" in now[LEFT]:
        found, after = served(now)
        devices.append(found)
        now = completed(rotate_vgpu, now, after)
    assert devices == [["GPU-v0"], ["GPU-v0", "GPU-v1"], ["GPU-v0"]]
    assert now[LEFT] == ";;;"
    assert SEGMENT_QUEUE not in now


def test_a_completed_write_is_not_completed_again():
    old = bound(THREE)
    _, after = served(old)
    once = completed(rotate_vgpu, old, after)
    assert once != after
    assert completed(rotate_vgpu, old, once) == once


def test_a_plugin_that_reads_back_its_erasure_serves_every_container_in_turn():
    now = bound(THREE)
    devices = []
    while "GPU" in now[LEFT]:
        found, after = served(now)
        devices.append(found)
        writes = 0
        while not writes or now[LEFT] != after[LEFT]:
            writes += 1
            assert writes <= 3
            now = completed(rotate_vgpu, now, {**now, LEFT: after[LEFT]})
        done = {keys.BIND_PHASE: "success", keys.TIME: str(plugin.DONE_TIME)}
        if "GPU" not in now[LEFT]:
            now = completed(rotate_vgpu, now, {**now, **done})
        assert {key: now[key] for key in done} == done
    assert devices == [["GPU-v0"], ["GPU-v0", "GPU-v1"], ["GPU-v0"]]
    assert now[LEFT] == ";;;"
    assert SEGMENT_QUEUE not in now


def test_a_repeated_erasure_stands_and_its_place_is_kept_for_the_next_segment():
    old = bound(THREE)
    _, after = served(old)
    now = completed(rotate_vgpu, old, after)
    again = completed(rotate_vgpu, now, {**now, LEFT: after[LEFT]})
    assert again[LEFT] == after[LEFT]
    assert again[SEGMENT_QUEUE] == old[SEGMENT_QUEUE]
    assert seen(again).progress is Progress.WAITING
    assert seen(again).confusable == marks(1, 2)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({keys.BIND_PHASE: "failed"}, id="another key"),
        pytest.param({LEFT: "", SEGMENT_QUEUE: ""}, id="everything cleared"),
        pytest.param({LEFT: "GPU-v9,NVIDIA,1,1:"}, id="another segment"),
        pytest.param({LEFT: "x," * 20_000}, id="too long to be read"),
    ],
)
def test_any_other_write_is_left_alone(change):
    old = bound(THREE)
    assert rotate_vgpu(old, {**old, **change}) == {}


@pytest.mark.parametrize("queue", ["", "vgpu/2 ;GPU-v0,NVIDIA,1,1:", "x", "gpushare/1 1"])
def test_a_queue_that_is_not_ours_hands_nothing_on(queue):
    old = {**bound(THREE), SEGMENT_QUEUE: queue}
    assert rotate_vgpu(old, {**old, LEFT: ""}) == {}


@pytest.mark.parametrize("queue", ["vgpu/1 ", "vgpu/1 ;;"])
def test_an_empty_queue_goes_with_the_last_segment(queue):
    old = {**bound(THREE), SEGMENT_QUEUE: queue}
    assert rotate_vgpu(old, {**old, LEFT: ""}) == {SEGMENT_QUEUE: None}


def pod(annotations, **fields):
    return Pod(uid=PodUid("u"), namespace="n", name="p", annotations=annotations, **fields)


def seen(annotations, **fields):
    found = VGPU.in_flight(pod(annotations, **fields), TABLES)
    assert found is not None
    return found


def marks(*numbers):
    return frozenset(("vgpu devices", number) for number in numbers)


def test_queued_segments_occupy_their_counts_from_the_beginning():
    old = bound(THREE)
    assert seen(old).confusable == marks(1, 2)
    now = completed(rotate_vgpu, old, served(old)[1])
    now = completed(rotate_vgpu, now, served(now)[1])
    assert seen(now).confusable == marks(1)
    last = completed(rotate_vgpu, now, served(now)[1])
    assert seen(last).progress is Progress.DONE


def test_a_dead_pods_queue_is_cleared_with_its_devices():
    found = seen(bound(THREE), phase=Phase.FAILED)
    assert found.progress is Progress.FAILED
    assert found.cleanup == {LEFT: "", SEGMENT_QUEUE: ""}


def test_a_pod_with_only_a_queue_left_still_counts_in_the_order():
    waiting = pod({keys.TIME: "500", SEGMENT_QUEUE: bound(THREE)[SEGMENT_QUEUE]})
    assert VGPU.next_stamp((waiting,), 7) == 501


# The share plugin


def share(*amounts):
    limits = [{"volcano.sh/gpu-memory": str(amount)} if amount else {} for amount in amounts]
    return pod({}, containers=tuple(Container(name=f"c{i}", limits=one) for i, one in enumerate(limits)))


def share_bound(*amounts):
    bound_pod = pod({"volcano.sh/gpu-index": "0"}, containers=share(*amounts).containers)
    held = MEMORY.held(bound_pod, (), TABLES)
    assert held is not None
    return dict(MEMORY.annotations(held.assignment, STAMP, TABLES))


def test_the_share_plugins_mark_is_taken_back_until_the_last_container_was_served():
    now = share_bound(100, 0, 200, 100)
    assert now[SEGMENT_QUEUE] == "gpushare/1 2"
    marked = []
    for _ in range(3):
        now = completed(rotate_memory, now, {**now, ASSIGNED: "true"})
        marked.append(now[ASSIGNED])
    assert marked == ["false", "false", "true"]
    assert SEGMENT_QUEUE not in now


def test_the_share_plugins_completed_write_is_not_completed_again():
    old = share_bound(100, 200)
    once = completed(rotate_memory, old, {**old, ASSIGNED: "true"})
    assert once[ASSIGNED] == "false"
    assert completed(rotate_memory, old, once) == once


def test_a_share_pod_of_one_container_keeps_nothing_back():
    assert SEGMENT_QUEUE not in share_bound(100)


@pytest.mark.parametrize("queue", ["gpushare/1 0", "gpushare/1 x", "gpushare/1 99999", "gpushare/2 1", "vgpu/1 1", ""])
def test_a_count_that_cannot_be_read_takes_no_mark_back(queue):
    old = {SEGMENT_QUEUE: queue}
    assert rotate_memory(old, {**old, ASSIGNED: "true"}) == {}
