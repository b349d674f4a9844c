"""Every row of the Ascend device tables through controller, kubelets and plugins: what the container received."""

import asyncio
import re
from typing import Any

import pytest

from core.settings import Tables
from core.wire.nodes import node_from_object
from core.wire.pods import pod_from_object
from sandbox.demo.outcomes import unseen
from sandbox.nodes.kubelet import AdmissionOrder, KubeletSettings
from tests.support.devices import ascend_rows
from tests.support.worlds.audit import audit
from tests.support.worlds.controller_rig import PODS, pod

Json = dict[str, Any]

NEWEST_FIRST = KubeletSettings(order=AdmissionOrder.NEWEST_FIRST)
CORES, REAL = ascend_rows.CORES, "huawei.com/AscendReal"
# A row that a refusal proposes: AI cores, vnpu-level, vnpu-dvpp, template, and the one in its place.
PROPOSED = re.compile(r"npu-core: (\d+) with vnpu-level (\w+) and vnpu-dvpp (\w+) \((\w+)(?: or (\w+))?\)")


async def all_run(world, names, deadline_s=60.0):
    """The pods of these names, once the plugins are through with all of them."""
    found: dict[str, Json] = {}
    try:
        async with asyncio.timeout(deadline_s):
            while not (names <= found.keys() and all(done(found[name]) for name in names)):
                await asyncio.sleep(0.1)
                found = {one["metadata"]["name"]: one for one in await world.client.list(PODS)}
    except TimeoutError:
        pytest.fail("\n".join(f"{name}: {found[name]['status']}" for name in names if not done(found[name])))
    return found


def done(found):
    annotations = found["metadata"].get("annotations", {})
    reported = CORES not in annotations or REAL in annotations
    return found["status"].get("phase") == "Running" and reported


async def sound(world):
    """Every container sees what was promised to its pod, and no card holds more than it has."""
    pods = [one for one in await world.client.list(PODS) if one["spec"].get("nodeName")]
    for one in pods:
        assert unseen(one, world.records.of(f"default/{one['metadata']['name']}").values()) == ""
    nodes = [node_from_object(one) for one in await world.client.list("/api/v1/nodes")]
    assert audit(nodes, map(pod_from_object, pods), Tables()) == []


async def test_every_chip_and_template_of_the_device_table_reaches_its_container(rig):
    nodes = [
        {"name": word.lower(), "plugin": {"kind": "ascend-hami", "chip": word, "count": 20}}
        for word in ascend_rows.chip_words()
    ]
    rows = {row.name: row for row in ascend_rows.chip_rows()}
    async with rig(nodes=nodes, kubelet=NEWEST_FIRST) as world:
        await world.controller()
        await world.add(*(pod(row.name, row.limits) for row in rows.values()))
        found = await all_run(world, rows.keys())
        for name, row in rows.items():
            assert found[name]["spec"]["nodeName"] == row.word.lower(), name
            env = world.records.of(f"default/{name}")["main"]
            assert env.get("ASCEND_VNPU_SPECS", "") == row.template, name
            assert len(set(env["ASCEND_VISIBLE_DEVICES"].split(","))) == row.count, name
            booked = found[name]["metadata"]["annotations"][f"hami.io/{row.word}-devices-allocated"]
            amounts = [entry.split(",")[1:3] for entry in booked.removesuffix(":;").split(":")]
            assert amounts == [[row.word, str(row.booked_mib)]] * row.count, name
        await sound(world)


async def test_what_no_chip_gives_waits_with_what_to_write_instead(rig):
    words = ascend_rows.chip_words()
    nodes = [{"name": word.lower(), "plugin": {"kind": "ascend-hami", "chip": word, "count": 2}} for word in words]
    rows = list(ascend_rows.refused_chip_rows())
    async with rig(nodes=nodes) as world:
        await world.controller()
        await world.add(*(pod(name, limits) for name, limits, _ in rows))
        for name, _, text in rows:
            await world.waits(name, text)


def npu(name, node, cores, dvpp, level="low"):
    made = pod(name, {CORES: str(cores)})
    made["metadata"]["labels"] = {"ring-controller.atlas": "ascend-310P", "vnpu-dvpp": dvpp, "vnpu-level": level}
    made["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    return made


def mindcluster(name, chips):
    plugin = {"kind": "mindcluster", "chips": chips, "report_after_s": 0.05, "retry_after_s": 0.05}
    return {"name": name, "labels": {"accelerator": "huawei-Ascend310P"}, "plugin": plugin}


async def test_every_row_of_the_table_of_slices_is_cut_as_it_says(rig):
    rows = {f"row-{row.name}": row for row in ascend_rows.slice_rows()}
    # Each row has a node of its own, with no more chips than it needs.
    nodes = [mindcluster(name, max(row.cores // ascend_rows.CORES_PER_CHIP, 1)) for name, row in rows.items()]
    before = {f"{name}-{at}": name for name, row in rows.items() for at in range(row.before)}
    async with rig(nodes=nodes, kubelet=NEWEST_FIRST) as world:
        await world.controller()

        def asked(name, row):
            return npu(name, row, rows[row].cores, rows[row].dvpp, rows[row].level)

        await world.add(*(asked(name, row) for name, row in before.items()))
        first = await all_run(world, before.keys())
        assert {name: cut(first[name]) for name in before} == {name: rows[row].first for name, row in before.items()}
        await world.add(*(asked(name, name) for name in rows))
        found = await all_run(world, rows.keys())
        assert {name: cut(found[name]) for name in rows} == {name: row.template for name, row in rows.items()}
        for name, row in rows.items():
            env = world.records.of(f"default/{name}")["main"]
            assert env["ASCEND_RUNTIME_OPTIONS"] == ("VIRTUAL" if row.template else ""), name
            chips = max(row.cores // ascend_rows.CORES_PER_CHIP, 1)
            assert len(env["ASCEND_VISIBLE_DEVICES"].split(",")) == chips, name
        await sound(world)


def cut(found):
    """The template of a pod's slice, "" if it holds whole chips."""
    return found["metadata"]["annotations"][CORES].partition("-")[2]


async def test_what_the_table_of_slices_has_no_row_for_waits_with_a_row_that_fits(rig):
    rows = list(ascend_rows.refused_slices())
    async with rig(nodes=[mindcluster("npu-a", 2)]) as world:
        await world.controller()
        await world.add(*(npu(name, "npu-a", cores, dvpp) for name, cores, dvpp in rows))
        for name, cores, _ in rows:
            said = (await world.waits(name, f"{CORES}"))["message"]
            proposed = PROPOSED.findall(said)
            for number, level, dvpp, *templates in proposed:
                assert ascend_rows.gives(int(number), dvpp, level) == tuple(filter(None, templates)), said
            if not proposed:
                whole = re.search(r"such as huawei\.com/npu-core: (\d+)", said)
                assert whole is not None, said
                assert int(whole[1]) % ascend_rows.CORES_PER_CHIP == 0, said
                assert int(whole[1]) > cores, said
