"""Kubelets admit what is bound to their nodes, ask the plugins, and end pods in time."""

import asyncio

import pytest

from sandbox.client import PatchKind
from sandbox.cluster import ClusterSettings, running_cluster
from sandbox.nodes.kubelet import AdmissionOrder, Kubelet, KubeletSettings, PlayedNode
from sandbox.nodes.nodefile import read
from sandbox.nodes.plugin_port import AllocateError

PODS = "/api/v1/namespaces/default/pods"
DEVICE = "example.com/device"


class Plugin:
    """A plugin that serves whoever comes, until it is told to fail."""

    def __init__(self, client, node="n1"):
        self.client = client
        self.node = node
        self.calls = []
        self.failure = None

    @property
    def resources(self):
        return (DEVICE,)

    async def start(self):
        await self.client.patch(f"/api/v1/nodes/{self.node}", {"metadata": {"annotations": {"registered": "yes"}}})
        amounts = {"capacity": {DEVICE: "4"}, "allocatable": {DEVICE: "4"}}
        await self.client.patch(f"/api/v1/nodes/{self.node}/status", {"status": amounts})

    async def allocate(self, resource, count):
        self.calls.append(count)
        if self.failure:
            raise AllocateError(self.failure)
        return {"DEVICES": f"{resource}={count}", "CALL": str(len(self.calls))}


def pod(name, *counts, node="n1", init=(), **annotations):
    def container(prefix, i, count):
        limits = {"limits": {DEVICE: str(count)}} if count else {}
        return {"name": f"{prefix}{i}", "image": "i", "resources": limits}

    spec = {"nodeName": node, "containers": [container("c", i, n) for i, n in enumerate(counts or (0,))]}
    if init:
        spec["initContainers"] = [container("i", i, n) for i, n in enumerate(init)]
    return {"metadata": {"name": name, "annotations": annotations}, "spec": spec}


class Rig:
    def __init__(self, cluster, plugin, playing, kubelet):
        self.cluster = cluster
        self.kubelet = kubelet
        self.playing = playing
        self.client = cluster.admin
        self.plugin = plugin

    async def phase(self, name, *wanted):
        async with asyncio.timeout(60):
            while True:
                found = await self.client.get(f"{PODS}/{name}")
                if found["status"]["phase"] in wanted:
                    return found
                await asyncio.sleep(0.01)

    async def hears(self, *names):
        """Wait until the pods that wait for the kubelet are those."""
        await heard(self.kubelet, "n1", *names)

    async def is_gone(self, name):
        async with asyncio.timeout(60):
            while name in {one["metadata"]["name"] for one in (await self.client.get(PODS))["items"]}:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def heard(kubelet, node, *names):
    async with asyncio.timeout(60):
        while {one["metadata"]["name"] for one in kubelet._nodes[node].pending.values()} != set(names):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.fixture
async def make_rig():
    """Start a cluster with one node and one plugin under a kubelet with the given settings."""
    async with asyncio.TaskGroup() as group, running_cluster(settings=ClusterSettings(kubelet=None)) as cluster:
        started = []

        async def make(**settings):
            plugin = Plugin(cluster.admin)
            nodes = tuple(PlayedNode(spec=spec, plugins=(plugin,)) for spec in read([{"name": "n1"}]))
            kubelet = Kubelet(cluster.admin, nodes, cluster.records, cluster.clock, KubeletSettings(**settings))
            await kubelet.register()
            started.append(group.create_task(kubelet.run()))
            return Rig(cluster, plugin, started[-1], kubelet)

        yield make
        for task in started:
            task.cancel()


async def test_a_plugin_registers_on_a_ready_node(make_rig):
    rig = await make_rig()
    node = await rig.client.get("/api/v1/nodes/n1")
    assert node["metadata"]["annotations"] == {"registered": "yes"}
    assert node["status"]["allocatable"][DEVICE] == "4"
    assert node["status"]["allocatable"]["pods"] == "110"
    assert [c["status"] for c in node["status"]["conditions"] if c["type"] == "Ready"] == ["True"]


async def test_every_container_is_served_in_spec_order_and_what_it_received_is_recorded(make_rig):
    rig = await make_rig()
    await rig.client.create(PODS, pod("p", 2, 0, 1, init=(1,)))
    running = await rig.phase("p", "Running")
    assert [s["name"] for s in running["status"]["containerStatuses"] if s["ready"]] == ["c0", "c1", "c2"]
    expected = {
        "i0": {"DEVICES": f"{DEVICE}=1", "CALL": "1"},
        "c0": {"DEVICES": f"{DEVICE}=2", "CALL": "2"},
        "c2": {"DEVICES": f"{DEVICE}=1", "CALL": "3"},
    }
    assert rig.cluster.records.of("default/p") == expected


async def test_a_plugins_refusal_fails_the_pod_for_good(make_rig):
    rig = await make_rig()
    rig.plugin.failure = "not found the pod"
    await rig.client.create(PODS, pod("p", 1))
    status = (await rig.phase("p", "Failed"))["status"]
    assert status["reason"] == "UnexpectedAdmissionError"
    assert status["message"] == (
        "Allocate failed due to rpc error: code = Unknown desc = not found the pod, which is unexpected"
    )


async def test_a_pod_beyond_the_nodes_devices_is_turned_away_without_asking_the_plugin(make_rig):
    rig = await make_rig()
    await rig.client.create(PODS, pod("a", 3))
    await rig.phase("a", "Running")
    await rig.client.create(PODS, pod("b", 2))
    assert (await rig.phase("b", "Failed"))["status"]["reason"] == f"OutOf{DEVICE}"
    assert rig.plugin.calls == [3]


async def test_a_pod_ends_after_its_seconds_and_frees_its_devices(make_rig):
    rig = await make_rig()
    await rig.client.create(PODS, pod("a", 4, **{"sandbox.cardshare.io/run-seconds": "0.05"}))
    await rig.phase("a", "Succeeded")
    await rig.client.create(PODS, pod("b", 4))
    await rig.phase("b", "Running")


async def test_a_deleted_pod_stops_within_its_grace_and_is_gone(make_rig):
    rig = await make_rig()
    await rig.client.create(PODS, pod("a", 4, **{"sandbox.cardshare.io/stop-seconds": "2"}))
    await rig.phase("a", "Running")
    assert (await rig.client.delete(f"{PODS}/a"))["metadata"]["deletionTimestamp"]
    await rig.is_gone("a")
    await rig.client.create(PODS, pod("b", 4))
    await rig.phase("b", "Running")


async def test_a_deleted_pod_has_ended_before_its_object_is_gone(make_rig):
    rig = await make_rig()
    await rig.client.create(PODS, pod("a", 4, **{"sandbox.cardshare.io/stop-seconds": "0.3"}))
    await rig.phase("a", "Running")
    await rig.client.patch(f"{PODS}/a", {"metadata": {"finalizers": ["example.test/kept"]}}, PatchKind.MERGE)
    await rig.client.delete(f"{PODS}/a")
    ended = await rig.phase("a", "Failed")
    assert [one["state"]["terminated"]["exitCode"] for one in ended["status"]["containerStatuses"]] == [143]
    await rig.client.patch(f"{PODS}/a", {"metadata": {"finalizers": None}}, PatchKind.MERGE)
    await rig.is_gone("a")


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (AdmissionOrder.CREATED, [0, 1, 2, 3]),
        (AdmissionOrder.NEWEST_FIRST, [3, 2, 1, 0]),
        (AdmissionOrder.SHUFFLED, [1, 3, 0, 2]),
    ],
)
async def test_pods_that_wait_together_are_admitted_in_the_kubelets_own_order(make_rig, order, expected):
    rig = await make_rig(order=order, seed=3)
    rig.kubelet.pause("n1")
    for i in range(4):
        await rig.client.create(PODS, pod(f"p{i}", 1))
        await rig.hears(*(f"p{at}" for at in range(i + 1)))
    rig.kubelet.resume("n1")
    for i in range(4):
        await rig.phase(f"p{i}", "Running")
    served = sorted(range(4), key=lambda i: int(rig.cluster.records.of(f"default/p{i}")["c0"]["CALL"]))
    assert served == expected


async def test_a_kubelet_that_starts_again_asks_no_second_time(make_rig):
    rig = await make_rig()
    await rig.client.create(PODS, pod("a", 3))
    await rig.phase("a", "Running")
    rig.playing.cancel()
    again = await make_rig()
    await rig.client.create(PODS, pod("b", 3))
    assert (await rig.phase("b", "Failed"))["status"]["reason"] == f"OutOf{DEVICE}"
    assert again.plugin.calls == []


async def test_a_node_can_be_made_not_ready():
    async with running_cluster(read([{"name": "n1"}])) as cluster:
        assert cluster.kubelet is not None
        await cluster.kubelet.set_ready("n1", is_ready=False)
        node = await cluster.admin.get("/api/v1/nodes/n1")
        assert [c["status"] for c in node["status"]["conditions"] if c["type"] == "Ready"] == ["False"]


async def test_a_paused_kubelet_hears_of_pods_and_admits_them_in_watch_order_when_it_goes_on(make_rig):
    rig = await make_rig(order=AdmissionOrder.WATCH)
    rig.kubelet.pause("n1")
    # Until it watches: a list has an order of its own.
    await rig.client.create(PODS, pod("p3", 1))
    await rig.hears("p3")
    for i in (2, 0, 1):
        await rig.client.create(PODS, pod(f"p{i}", 1))
    await rig.hears("p3", "p2", "p0", "p1")
    assert rig.plugin.calls == []
    rig.kubelet.resume("n1")
    for i in range(4):
        await rig.phase(f"p{i}", "Running")
    served = sorted(range(4), key=lambda i: int(rig.cluster.records.of(f"default/p{i}")["c0"]["CALL"]))
    assert served == [3, 2, 0, 1]


async def test_a_pod_that_is_deleted_under_the_kubelet_asks_for_its_devices_all_the_same(make_rig):
    rig = await make_rig(order=AdmissionOrder.WATCH)
    rig.kubelet.pause("n1")
    for names, grace_s in ((("forced",), 0), (("forced", "graceful"), 30)):
        await rig.client.create(PODS, pod(names[-1], 1))
        await rig.hears(*names)
        await rig.client.delete(f"{PODS}/{names[-1]}", grace_s=grace_s)
    await rig.client.create(PODS, pod("after", 1))
    await rig.hears("forced", "graceful", "after")
    rig.kubelet.resume("n1")
    await rig.phase("after", "Running")
    assert rig.plugin.calls == [1, 1, 1]
    assert rig.cluster.records.of("default/forced")["c0"]["CALL"] == "1"
    assert rig.cluster.records.of("default/graceful")["c0"]["CALL"] == "2"
    await rig.is_gone("graceful")


async def test_a_kubelet_can_pass_over_pods_that_are_gone_before_it_admits_them(make_rig):
    rig = await make_rig(admits_vanished=False)
    rig.kubelet.pause("n1")
    await rig.client.create(PODS, pod("forced", 1))
    await rig.hears("forced")
    await rig.client.delete(f"{PODS}/forced", grace_s=0)
    await rig.hears()
    rig.kubelet.resume("n1")
    await rig.client.create(PODS, pod("after", 1))
    await rig.phase("after", "Running")
    assert rig.plugin.calls == [1]


SHARE_PLUGIN = {"kind": "gpushare", "memory_mib": 1001, "count": 1}
SHARE = {"name": "s1", "plugin": SHARE_PLUGIN}
MEMORY = "volcano.sh/gpu-memory"


def share(name, memory_mib=100):
    limits = {"limits": {MEMORY: str(memory_mib)}}
    note = {"volcano.sh/gpu-index": "0", "volcano.sh/predicate-time": "1"}
    return {
        "metadata": {"name": name, "annotations": note},
        "spec": {"nodeName": "s1", "containers": [{"name": "c0", "image": "i", "resources": limits}]},
    }


def kubelet_of(cluster):
    assert cluster.kubelet is not None
    return cluster.kubelet


async def reads(ask, wanted, deadline_s=60):
    """Ask until the answer is *wanted*."""
    async with asyncio.timeout(deadline_s):
        while await ask() != wanted:  # noqa: ASYNC110 (the cluster tells nobody)
            await asyncio.sleep(0.02)


async def phase_of(client, name, wanted):
    async def phase():
        return (await client.get(f"{PODS}/{name}"))["status"].get("phase")

    await reads(phase, wanted)
    return await client.get(f"{PODS}/{name}")


async def test_a_dead_plugin_fails_pods_at_once_and_the_nodes_status_tells_it_late_and_it_can_return():
    settings = ClusterSettings(kubelet=KubeletSettings(node_status_delay_s=4.0))
    async with running_cluster(read([SHARE]), settings) as cluster:
        kubelet = kubelet_of(cluster)

        async def allocatable():
            return (await cluster.admin.get("/api/v1/nodes/s1"))["status"]["allocatable"][MEMORY]

        assert await allocatable() == "1001"
        await kubelet.kill_plugins("s1")
        await cluster.admin.create(PODS, share("early"))
        status = (await phase_of(cluster.admin, "early", "Failed"))["status"]
        assert status["reason"] == "UnexpectedAdmissionError"
        assert status["message"] == (
            f"Allocate failed due to no healthy devices present; cannot allocate unhealthy devices {MEMORY}, "
            "which is unexpected"
        )
        assert await allocatable() == "1001"
        await reads(allocatable, "0")
        await kubelet.revive_plugins("s1")
        await cluster.admin.create(PODS, share("again"))
        await reads(allocatable, "1001")
        await cluster.admin.create(PODS, share("late"))
        await phase_of(cluster.admin, "late", "Running")


async def test_kubelet_counts_by_its_own_lists_when_the_nodes_status_is_still_old():
    settings = ClusterSettings(kubelet=KubeletSettings(node_status_delay_s=5.0))
    async with running_cluster(read([SHARE]), settings) as cluster:
        kubelet_of(cluster).devices("s1").take({"allocatable": {MEMORY: "50"}})
        await cluster.admin.create(PODS, share("p"))
        status = (await phase_of(cluster.admin, "p", "Failed"))["status"]
        assert (
            "requested number of devices unavailable for volcano.sh/gpu-memory. Requested: 100, Available: 50"
            in (status["message"])
        )


async def test_a_plugin_that_dies_under_a_call_fails_it_and_leaves_half_of_its_work():
    slow = {"name": "s1", "plugin": {**SHARE_PLUGIN, "delay_s": 5}}
    async with running_cluster(read([slow])) as cluster:
        await cluster.admin.create(PODS, share("p"))
        async with asyncio.timeout(60):
            while kubelet_of(cluster)._nodes["s1"].calling is None:  # noqa: ASYNC110 (nobody tells of it)
                await asyncio.sleep(0.01)
        await kubelet_of(cluster).kill_plugins("s1")
        status = (await phase_of(cluster.admin, "p", "Failed"))["status"]
        assert "code = Unavailable desc = error reading from server: EOF" in status["message"]


async def test_plugins_make_as_many_calls_as_their_client_allows():
    settings = ClusterSettings(kubelet=KubeletSettings(plugin_calls_per_s=20.0))
    async with running_cluster(read([SHARE]), settings) as cluster:
        began_s = asyncio.get_running_loop().time()
        for i in range(5):
            await cluster.admin.create(PODS, share(f"p{i}"))
        for i in range(5):
            await phase_of(cluster.admin, f"p{i}", "Running")
        # Three calls for each, less the ten that may be made at once.
        assert asyncio.get_running_loop().time() - began_s >= (3 * 5 - 10) / 20.0


async def test_whose_assignment_a_container_received_is_recorded():
    async with running_cluster(read([SHARE])) as cluster:
        kubelet_of(cluster).pause("s1")
        for names, time in ((("a",), "2"), (("a", "b"), "1")):
            made = share(names[-1])
            made["metadata"]["annotations"]["volcano.sh/predicate-time"] = time
            await cluster.admin.create(PODS, made)
            await heard(kubelet_of(cluster), "s1", *names)
        kubelet_of(cluster).resume("s1")
        await phase_of(cluster.admin, "a", "Running")
        other = (await cluster.admin.get(f"{PODS}/b"))["metadata"]["uid"]
        (stranger,) = cluster.records.strangers()
        assert (stranger.pod, stranger.container, stranger.meant_for) == ("default/a", "c0", other)
