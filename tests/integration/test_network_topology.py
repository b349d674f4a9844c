"""Groups of Volcano whose members are near each other, by HyperNodes that come and go."""

from tests.support.worlds import volcano
from tests.support.worlds.controller_rig import PODS, pod, share
from tests.support.worlds.volcano import NAMES, job, task

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
HYPER_NODES = "/apis/topology.volcano.sh/v1alpha1/hypernodes"
GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
NODES = tuple(
    {
        "name": name,
        "labels": {"rack": name[0]},
        "plugin": {"kind": "vgpu", "model": "Tesla T4", "memory_mib": 15360, "count": 1},
    }
    for name in ("a0", "a1", "b0", "b1", "b2")
)
KIND = {
    "metadata": {"name": "hypernodes.topology.volcano.sh"},
    "spec": {
        "group": "topology.volcano.sh",
        "scope": "Cluster",
        "names": {"kind": "HyperNode", "plural": "hypernodes"},
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


def hyper_node(name, tier, kind, **selector):
    about = {"apiVersion": "topology.volcano.sh/v1alpha1", "kind": "HyperNode", "metadata": {"name": name}}
    return {**about, "spec": {"tier": tier, "members": [{"type": kind, "selector": selector}]}}


def group(name, least, **topology):
    about = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": name}}
    return {**about, "spec": {"minMember": least, "queue": "default", "networkTopology": topology}}


def members(name, count):
    """Each takes a card of its own, and so a node."""
    named = {"scheduling.k8s.io/group-name": name}
    return [pod(f"{name}-{at}", share(12_000), annotations=named) for at in range(count)]


async def racks_of(world, *names):
    found = (await world.client.get(PODS))["items"]
    return {one["spec"].get("nodeName", "?")[0] for one in found if one["metadata"]["name"].startswith(names)}


async def test_groups_are_placed_near_each_other_by_hyper_nodes(rig):
    async with rig(nodes=NODES) as world:
        await volcano.install(world.client)
        await world.client.create(CRDS, KIND)
        await world.served(HYPER_NODES)
        await world.controller(*NAMES)
        await world.client.create(GROUPS, group("far", 3, mode="hard", highestTierAllowed=1))
        await world.add(*members("far", 3))
        await world.waits("far-0", "no tiers of the network are known; create HyperNodes")
        for rack in "ab":
            await world.client.create(
                HYPER_NODES, hyper_node(f"s{rack}", 1, "Node", regexMatch={"pattern": f"^{rack}"})
            )
        for at in range(3):
            await world.phase(f"far-{at}")
        assert await racks_of(world, "far") == {"b"}
        await world.client.create(GROUPS, group("wide", 2, mode="hard", highestTierAllowed=1))
        await world.add(*members("wide", 2))
        for at in range(2):
            await world.phase(f"wide-{at}")
        assert await racks_of(world, "wide") == {"a"}


async def test_a_group_that_no_hyper_node_takes_is_told_the_best_and_goes_where_another_comes(rig):
    async with rig(nodes=NODES) as world:
        await volcano.install(world.client)
        await world.client.create(CRDS, KIND)
        await world.served(HYPER_NODES)
        await world.client.create(HYPER_NODES, hyper_node("sa", 1, "Node", exactMatch={"name": "a0"}))
        await world.client.create(HYPER_NODES, hyper_node("sb", 1, "Node", regexMatch={"pattern": "^b[01]$"}))
        await world.controller(*NAMES)
        await world.client.create(GROUPS, group("g", 3, mode="hard", highestTierAllowed=1))
        await world.add(*members("g", 3))
        best = "2 of the 3 members of its group that must start together fit now in HyperNode sb, where most of them do"
        await world.waits("g-0", f"{best}: 2 of 3 that wait. For one more: 0/2 nodes are available")
        await world.client.create(HYPER_NODES, hyper_node("top", 2, "HyperNode", exactMatch={"name": "sb"}))
        await world.waits("g-0", best)
        await world.client.create(HYPER_NODES, hyper_node("sc", 1, "Node", regexMatch={"pattern": "^b"}))
        for at in range(3):
            await world.phase(f"g-{at}")
        assert await racks_of(world, "g") == {"b"}


async def test_each_partition_of_a_job_is_in_a_hyper_node_of_its_own(rig):
    async with rig(nodes=NODES) as world:
        await volcano.install(world.client)
        await world.client.create(CRDS, KIND)
        await world.served(HYPER_NODES)
        for rack in "ab":
            found = hyper_node(f"s{rack}", 1, "Node", labelMatch={"matchLabels": {"rack": rack}})
            await world.client.create(HYPER_NODES, found)
        await world.controller(*NAMES)
        async with volcano.playing(world.client):
            workers = task("w", 4, limits=share(12_000), minAvailable=4)
            topology = {"mode": "hard", "highestTierAllowed": 1}
            workers["partitionPolicy"] = {"totalPartitions": 2, "partitionSize": 2, "networkTopology": topology}
            await volcano.create(world.client, job("j", workers, minAvailable=4, queue="default"))

            async def runs():
                pods = (await world.client.get(PODS))["items"]
                return [one["status"].get("phase") for one in pods] == ["Running"] * 4

            await world.until(runs)
        partitions = [await racks_of(world, f"j-w-{at}", f"j-w-{at + 1}") for at in (0, 2)]
        assert sorted(map(sorted, partitions)) == [["a"], ["b"]]
