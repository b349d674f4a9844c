"""The judge of whole controllers does find what it is to find: worlds that are broken by hand."""

import json
from collections import Counter, defaultdict
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.twin.judge import CUTS, Judge, Use
from tests.support.twin.limits import Limits, arranged
from tests.support.twin.machines import RESERVED, Kind, Machine, Proc, Profile, Share


class _World:
    """What a judge and a machine need of a world."""

    def __init__(self):
        api: Any = SimpleNamespace(objects=defaultdict(dict), gated=[], create=self._create)
        self.api = api
        self.counts: Counter[str] = Counter()
        self.dirty = set()
        self.found = []
        self.limits = Limits(self)
        self.sides = ()
        self.kueue = None
        self.machines = {"n1": Machine("n1", Kind.VGPU, {"GPU-1": 16000}, api, self)}
        self.machines["n1"].register()

    def _create(self, resource, obj):
        self.api.objects[resource][obj["metadata"]["name"]] = obj

    def now_text(self):
        return "now"

    def spawn(self, steps):
        pass

    def find(self, kind, text):
        self.found.append((kind, text))

    def add(self, name, mib, *, node="", phase="Pending", message="", ids=""):
        limits = {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": str(mib)}
        told = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]
        notes = {"volcano.sh/vgpu-ids-new": ids}
        spec = {"nodeName": node} if node else {}
        self.api.objects["pods"][f"default/{name}"] = {
            "metadata": {"name": name, "namespace": "default", "uid": f"u-{name}", "annotations": notes},
            "spec": {**spec, "containers": [{"name": "c", "resources": {"limits": limits}}]},
            "status": {"phase": phase, "conditions": told if message else []},
        }

    def look(self):
        self.dirty.add("n1")
        Judge(self).look()
        return [kind for kind, _ in self.found]


@pytest.fixture
def world():
    return _World()


def test_two_pods_on_one_card_beyond_what_it_has(world):
    for name in ("a", "b"):
        world.add(name, 12000, node="n1", ids="GPU-1,NVIDIA,12000,0:")
    assert world.look() == ["oversold"]


def test_a_card_that_is_full_is_no_find(world):
    for name, mib in (("a", 12000), ("b", 4000)):
        world.add(name, mib, node="n1", ids=f"GPU-1,NVIDIA,{mib},50:")
    assert world.look() == []


def test_processes_count_whose_object_is_gone(world):
    world.add("a", 12000, node="n1", ids="GPU-1,NVIDIA,12000,0:")
    proc = Proc("default/b", "u-b", [Share("GPU-1", 12000, 0)], runs=True)
    world.machines["n1"].procs["u-b"] = proc
    assert world.look() == ["oversold"]
    world.found.clear()
    proc.is_excused = True
    assert world.look() == []


def test_who_has_ended_counts_no_more(world):
    world.add("a", 12000, node="n1", ids="GPU-1,NVIDIA,12000,0:", phase="Failed")
    world.add("b", 12000, node="n1", ids="GPU-1,NVIDIA,12000,0:")
    assert world.look() == []


def test_a_card_that_is_not_there(world):
    world.add("a", 1, node="n1", ids="GPU-9,NVIDIA,1,0:")
    assert world.look() == ["oversold"]


def test_swapped_and_lost_are_told(world):
    world.machines["n1"].swapped.append("a got b's")
    world.machines["n1"].refused.append(("default/a", "cannot get valid pod"))
    assert world.look() == ["swapped", "lost"]


def test_who_fits_is_forgotten(world):
    world.add("a", 12000, message="no room")
    assert "fits on n1" in Judge(world).forgotten()[0]


def test_who_fits_nowhere_is_to_be_told(world):
    world.add("a", 17000)
    assert "nobody says why" in Judge(world).forgotten()[0]
    world.add("a", 17000, message="too large")
    assert Judge(world).forgotten() == []


def test_a_node_that_is_not_ready_takes_nobody(world):
    world.add("a", 12000, message="no node")
    world.api.objects["nodes"]["n1"]["status"]["conditions"][0]["status"] = "Unknown"
    assert Judge(world).forgotten() == []


def test_a_binding_in_spite_of_gates_is_told_once():
    world = _World()
    world.api.gated.append("default/p")
    judge = Judge(world)
    judge.look()
    judge.look()
    assert [kind for kind, _ in world.found] == ["gated"]


FREE = "CS501 0/1 nodes are available: 1 too little free memory on every card. Nearest: n1 GPU-1: {} of 12000 MiB free."


@pytest.mark.parametrize(
    ("message", "found"),
    [
        (FREE.format(6000), ""),
        (FREE.format(7000), "names 7000 MiB free, and 6000 are"),
        (FREE.format(6000).replace("0/1", "0/2"), "names 2 nodes"),
        (FREE.format(6000) + " Ask for at most 6000 MiB of memory, or wait until enough of a card is free.", ""),
        (FREE.format(6000) + " Ask for at most 6001 MiB of memory, or wait until it is.", "would fit with 6001 MiB"),
        (FREE.format(6000) + " Ask for at most 9000 MiB of memory; it would then wait for capacity.", ""),
        (
            FREE.format(6000) + " Ask for at most 1 card; with at most 9000 MiB of memory it would be placed now.",
            "9000",
        ),
    ],
)
def test_a_condition_is_to_be_true(world, message, found):
    world.add("a", 10000, node="n1", ids="GPU-1,NVIDIA,10000,0:")
    world.add("b", 12000, message=message)
    told = Judge(world).forgotten()
    assert (found in told[0] and len(told) == 1) if found else told == []


def test_what_was_taken_is_to_be_given_back(world):
    world.add("a", 17000, message="too large")
    world.api.objects["pods"]["default/a"]["status"]["nominatedNodeName"] = "n1"
    world.api.objects["nodes"]["n1"]["metadata"]["annotations"]["hami.io/mutex.lock"] = "now,default,a"
    assert [text.partition(":")[0] for text in Judge(world).forgotten()] == [
        "default/a waits, and is still nominated for n1",
        "n1 is still locked",
    ]


@pytest.mark.parametrize(("start", "kinds"), [(0, ["oversold"]), (1, ["oversold"]), (2, [])])
def test_instances_of_one_card_that_overlap(world, start, kinds):
    machine = world.machines["n1"]
    machine.kind, machine.profiles = Kind.HAMI, (Profile("2g.10gb", 9856, 29, 2, (0, 1, 2)),)
    for name, at in (("a", 0), ("b", start)):
        world.add(name, 9856, node="n1")
        place = {"containerIndex": 0, "deviceIndex": 0, "gpuUUID": "GPU-1", "placement": {"start": at, "size": 2}}
        notes = {Kind.HAMI.assigned: "GPU-1,NVIDIA,9856,29:;", RESERVED: json.dumps([place])}
        world.api.objects["pods"][f"default/{name}"]["metadata"]["annotations"] = notes
    assert world.look() == kinds


def test_a_promise_of_a_part_of_a_chip_needs_its_template_and_not_the_chip():
    world = _World()
    chip = Machine("n2", Kind.ASCEND, {"A-0": CUTS[""][0]}, world.api, world)
    world.machines = {"n2": chip}
    limits = {"huawei.com/Ascend310P": "1", "huawei.com/Ascend310P-memory": "6144"}
    pods = [{"spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]}}]
    for cores, fits in ((5, True), (6, False)):  # vir02 has two
        assert arranged(world, pods, {"n2": {"A-0": Use(15360, cores, cores, 2)}}) is fits
