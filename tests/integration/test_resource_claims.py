"""Cards that pods of others use by dynamic resource allocation: nothing new goes there until their claims are gone."""

import asyncio
from contextlib import asynccontextmanager

from cli.__main__ import run
from cli.options import parse
from tests.support.worlds.controller_rig import pod, share

API = "/apis/resource.k8s.io/v1"
CLAIMS, SLICES = f"{API}/namespaces/default/resourceclaims", f"{API}/resourceslices"
DRIVER = "gpu.nvidia.com"
IDS = "volcano.sh/vgpu-ids-new"
NODES = ({"name": "t4-a", "plugin": {"kind": "vgpu", "model": "Tesla T4", "memory_mib": 15360, "count": 2}},)


def claim(name):
    request = {"name": "gpu", "exactly": {"deviceClassName": DRIVER}}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"devices": {"requests": [request]}}}


def devices(node, *uuids):
    """The slice by which NVIDIA's driver tells of the cards of a node."""
    spec = {
        "driver": DRIVER,
        "nodeName": node,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": f"gpu-{at}", "attributes": {"uuid": {"string": uuid}}} for at, uuid in enumerate(uuids)],
    }
    return {"metadata": {"name": f"{node}-{DRIVER}"}, "spec": spec}


@asynccontextmanager
async def allocating(world):
    """Allocates devices as kube-scheduler does; all claims and slices go in the end."""

    async def allocate(name, node, device):
        made = await world.client.create(CLAIMS, claim(name))
        result = {"request": "gpu", "driver": DRIVER, "pool": node, "device": device}
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        selector = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        made["status"] = {"allocation": {"devices": {"results": [result]}, "nodeSelector": selector}}
        await world.client.update(f"{CLAIMS}/{name}/status", made)

    try:
        yield allocate
    finally:
        for path in (CLAIMS, SLICES):
            for one in await world.client.list(path):
                await world.client.delete(f"{path}/{one['metadata']['name']}", grace_s=0)


def cards(world):
    (plugin,) = world.kubelet.plugins("t4-a")
    return [one.id for one in plugin._setup.cards]


async def test_a_card_that_is_claimed_is_left_alone_until_the_claim_is_gone(rig):
    async with rig(nodes=NODES) as world, allocating(world) as allocate:
        first, second = cards(world)
        await world.client.create(SLICES, devices("t4-a", first, second))
        # What was allocated before the controller began counts from its first decision on.
        await allocate("train", "t4-a", "gpu-0")
        await world.controller()
        await world.add(pod("a", share(12000)))
        assert second in (await world.phase("a"))["metadata"]["annotations"][IDS]
        await world.add(pod("b", share(12000)))
        await world.waits("b", "free")
        await world.client.delete(f"{CLAIMS}/train", grace_s=0)
        assert first in (await world.phase("b"))["metadata"]["annotations"][IDS]


async def test_a_device_that_no_slice_tells_of_closes_its_node_and_the_reason_names_the_claim(rig):
    async with rig(nodes=NODES) as world, allocating(world) as allocate:
        first, second = cards(world)
        await allocate("infer", "t4-a", "gpu-1")
        await world.controller()
        await world.add(pod("a", share(1000)))
        found = await world.waits("a", "closed to new shares")
        assert "resource claim default/infer has device 'gpu-1'" in found["message"]
        # Its driver says which card that is; the node's other card serves.
        await world.client.create(SLICES, devices("t4-a", first, second))
        assert first in (await world.phase("a"))["metadata"]["annotations"][IDS]


async def get(kubeconfig, *words):
    return await run(parse(["get", "t4-a", *words, "--kubeconfig", kubeconfig], {}), {})


async def test_who_looks_at_cards_sees_which_are_claimed_and_by_whom(rig, capsys):
    async with rig(nodes=NODES) as world, allocating(world) as allocate:
        kubeconfig = str(await asyncio.to_thread(world.write_admins_kubeconfig))
        first, second = cards(world)
        await world.client.create(SLICES, devices("t4-a", first, second))
        assert await get(kubeconfig) == 0
        assert "claim" not in capsys.readouterr().out
        await allocate("train", "t4-a", "gpu-0")
        assert await get(kubeconfig) == 0
        line = next(one for one in capsys.readouterr().out.splitlines() if first in one)
        assert "resource claim default/train" in line
        # What nobody can match closes the node, which is told below the table.
        await allocate("infer", "t4-a", "gpu-7")
        assert await get(kubeconfig) == 0
        assert "takes no new pods of vgpu: resource claim default/infer has" in capsys.readouterr().out


async def test_who_watches_cards_sees_a_claim_come_and_go(rig, capsys):
    async with rig(nodes=NODES) as world, allocating(world) as allocate:
        kubeconfig = str(await asyncio.to_thread(world.write_admins_kubeconfig))
        first, second = cards(world)
        await world.client.create(SLICES, devices("t4-a", first, second))
        watching = asyncio.create_task(get(kubeconfig, "--watch"))
        said = ""

        async def seen(*texts):
            nonlocal said
            said += capsys.readouterr().out
            return all(text in said for text in texts)

        try:
            await world.until(lambda: seen(first, second))
            await allocate("train", "t4-a", "gpu-0")
            await world.until(lambda: seen("resource claim default/train"))
            said = ""
            await world.client.delete(f"{CLAIMS}/train", grace_s=0)
            await world.until(lambda: seen(first))
            assert "claim" not in said
        finally:
            watching.cancel()
            await asyncio.wait([watching])


async def test_who_may_not_read_claims_is_told_so(rig, capsys):
    async with rig(nodes=NODES) as world:
        role = "/apis/rbac.authorization.k8s.io/v1"
        rules = [{"apiGroups": [""], "resources": ["nodes", "pods", "configmaps"], "verbs": ["get", "list"]}]
        await world.client.create(f"{role}/clusterroles", {"metadata": {"name": "looks-on"}, "rules": rules})
        binding = {
            "metadata": {"name": "looks-on"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "looks-on"},
            "subjects": [{"kind": "ServiceAccount", "name": "guest", "namespace": "default"}],
        }
        await world.client.create(f"{role}/clusterrolebindings", binding)
        try:
            assert await get(await world.write_kubeconfig("guest")) == 0
            told = capsys.readouterr()
            assert "resource claims are not read" in told.out + told.err
        finally:
            for kind in ("clusterrolebindings", "clusterroles"):
                await world.client.delete(f"{role}/{kind}/looks-on")
