"""A change is made in memory, and what becomes of all pods is told."""

import pytest

from controller.simulating.changes import UnusableChangeError
from controller.simulating.simulate import simulate
from core.groups import GroupSpec
from core.model import GroupKey, GroupKind, Phase
from core.view.simulated import SimulatedCard, SimulatedKind
from core.wire.changes import Change
from tests.support.worlds.world import MEMORY, NUMBER, node, pod
from tests.unit.controller.simulating.test_cluster import budgets, cluster, owned

POD = """
apiVersion: v1
kind: Pod
metadata: {name: new}
spec:
  containers:
  - name: main
    image: i
    resources: {limits: {volcano.sh/vgpu-number: 1, volcano.sh/vgpu-memory: 4000}}
"""
JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: train, namespace: team}
spec:
  parallelism: 3
  template:
    spec:
      containers:
      - name: main
        image: i
        resources: {limits: {volcano.sh/vgpu-number: 1, volcano.sh/vgpu-memory: 6000}}
"""
VOLCANO_JOB = """
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: gang}
spec:
  minAvailable: 3
  schedulerName: cardshare
  tasks:
  - name: worker
    replicas: 3
    template:
      spec:
        schedulerName: cardshare
        containers:
        - name: main
          image: i
          resources: {limits: {volcano.sh/vgpu-number: 1, volcano.sh/vgpu-memory: 10000}}
"""


async def told(found, **change):
    return await simulate(found, Change(**change))


def short(found):
    return {one.pod: (one.because, one.outcome, one.before, one.node) for one in found.pods}


async def test_an_added_pod_gets_its_node_and_cards():
    found = await told(cluster(node("n1")), manifests=POD)
    assert short(found) == {"default/new": ("added", "placed", "", "n1")}
    assert found.pods[0].cards == (SimulatedCard(card="n1-0", share="4000 MiB"),)
    assert found.losing == 0


async def test_a_pod_that_does_not_fit_waits_with_code_and_smallest_change():
    found = await told(cluster(node("n1"), pods=[pod("a", memory=8000)]), manifests=POD)
    (one,) = found.pods
    assert (one.outcome, one.code) == ("waits", "CS501")
    assert one.nearest == "n1 n1-0: 2000 of 4000 MiB free"
    assert one.change.startswith("Ask for at most 2000 MiB of memory")
    assert found.losing == 0, "it does not run now"


async def test_the_pods_of_a_job_are_as_many_as_run_at_once():
    found = await told(cluster(node("n1", cards=2)), manifests=JOB)
    assert [(one.pod, one.outcome) for one in found.pods] == [
        ("team/train-0", "placed"),
        ("team/train-1", "placed"),
        ("team/train-2", "waits"),
    ]


@pytest.mark.parametrize(("cards", "outcome"), [(2, "waits"), (3, "placed")])
async def test_the_pods_of_a_job_of_volcano_are_a_group(cards, outcome):
    world = cluster(node("n1", cards=cards))
    world.scheduler.cluster.groups.queues_replaced((), served=True)
    found = await told(world, manifests=VOLCANO_JOB)
    assert [one.pod for one in found.pods] == [f"default/gang-worker-{at}" for at in range(3)]
    assert {one.outcome for one in found.pods} == {outcome}


async def test_requests_of_flags_replace_those_of_the_file():
    world = cluster(node("n1"), pods=[pod("a", memory=8000)])
    found = await told(world, manifests=POD, requests=(("volcano.sh/vgpu-memory", "2000"),))
    assert found.pods[0].cards == (SimulatedCard(card="n1-0", share="2000 MiB"),)


async def test_a_drained_pod_moves_or_waits_and_one_without_a_controller_ends():
    world = cluster(node("n1", cards=3), node("n2"))
    world.cordon("n2")
    world.add_pods([owned("a", memory=9000), owned("b", memory=9500), pod("alone", memory=9900)])
    world.settle()
    world.uncordon("n2")
    found = await told(world, drain=("n1",))
    assert short(found) == {
        "default/a": ("drained", "placed", "n1", "n2"),
        "default/alone": ("drained", "ended", "n1", ""),
        "default/b": ("drained", "waits", "n1", ""),
    }
    assert found.losing == 2


async def test_new_nodes_take_pods_that_wait():
    world = cluster(node("n1"), pods=[pod("a", memory=9000), pod("b", memory=9000), pod("c", memory=9000)])
    found = await told(world, add_nodes=1, like="n1")
    assert short(found) == {"default/b": ("waited", "placed", "", "n1-new-1")}
    assert found.waiting == 1
    assert found.kinds == (
        SimulatedKind(
            protocol="vgpu",
            type="T4",
            unit="MiB",
            cards_before=1,
            cards_after=2,
            free_before=1000,
            free_after=2000,
            stranded_before=0,
            stranded_after=0,
        ),
    )


async def test_a_victim_is_named_with_the_pod_that_it_leaves_for():
    world = cluster(node("n1"), pods=[owned("low", memory=8000)], preemption=True)
    budgets(world, allowed=1)
    manifest = "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: high}\nvalue: 10\n---" + POD
    found = await told(
        world,
        manifests=manifest.replace("spec:", "spec:\n  priorityClassName: high"),
        requests=(("volcano.sh/vgpu-memory", "5000"),),
    )
    assert short(found) == {
        "default/new": ("added", "placed", "", "n1"),
        "default/low": ("preempted", "waits", "n1", ""),
    }
    assert found.pods[1].evicted_for == "default/new"
    assert found.losing == 1


async def test_a_node_with_fewer_shares_takes_fewer_pods():
    world = cluster(node("n1"), pods=[owned("a"), owned("b"), owned("c")])
    found = await told(world, repartition=(("n1", "2"),))
    assert sorted(one.outcome for one in found.pods) == ["placed", "placed", "waits"]
    assert world.node("n1").allocatable["volcano.sh/vgpu-number"] == "2"


async def test_a_pod_without_a_class_has_the_priority_of_the_default_one():
    kind = "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: usual}\n"
    default = f"{kind}value: 5\nglobalDefault: true\n"
    world = cluster(node("n1"), pods=[owned("low", memory=8000)], preemption=True)
    budgets(world, allowed=1)
    found = await told(world, manifests=f"{default}\n---{POD}")
    assert short(found) == {
        "default/new": ("added", "placed", "", "n1"),
        "default/low": ("preempted", "waits", "n1", ""),
    }


QUOTA = """
apiVersion: v1
kind: ResourceQuota
metadata: {name: compute, namespace: team}
spec: {hard: {HARD}}
"""


@pytest.mark.parametrize(
    ("hard", "placed", "reason"),
    [
        ("pods: 2", 1, "ResourceQuota compute has 0 of 2 pods left"),
        ("count/pods: 3", 2, "ResourceQuota compute has 0 of 3 count/pods left"),
        ("requests.cpu: 2500m", 1, "ResourceQuota compute has 0.5 of 2.5 requests.cpu left"),
        ("memory: 2Gi", 1, "ResourceQuota compute has 0Mi of 2048Mi memory left"),
        ("requests.volcano.sh/vgpu-number: 3", 2, "has 0 of 3 requests.volcano.sh/vgpu-number left"),
        ("pods: 10, requests.cpu: 10, services: 0, count/jobs.batch: 0", 3, ""),
    ],
)
async def test_pods_beyond_a_quota_of_the_api_server_do_not_run(hard, placed, reason):
    limits = {NUMBER: "1", MEMORY: "100", "cpu": "1", "memory": "1Gi"}
    there = [pod(name, namespace="team", limits=limits) for name in ("there", "done")]
    there[1] = there[1]._replace(phase=Phase.FAILED)
    job = JOB.replace("resources: {", "resources: {requests: {cpu: 1, memory: 1Gi}, ")
    found = await told(cluster(node("n1", cards=4), pods=there), manifests=f"{job}---{QUOTA.replace('HARD', hard)}")
    assert [one.outcome for one in found.pods] == ["placed"] * placed + ["waits"] * (3 - placed)
    assert all(reason in one.text and not one.code for one in found.pods[placed:])
    assert found.notes == ()


@pytest.mark.parametrize(
    ("spec", "keys"),
    [("hard: {limits.cpu: 1}", "limits.cpu"), ("hard: {pods: 1}, scopes: [BestEffort]", "pods")],
)
async def test_limits_that_are_not_judged_are_noted(spec, keys):
    quota = QUOTA.replace("hard: {HARD}", spec)
    found = await told(cluster(node("n1", cards=4)), manifests=f"{JOB}---{quota}")
    assert [one.outcome for one in found.pods] == ["placed"] * 3
    (note,) = found.notes
    assert note.startswith(f"ResourceQuota team/compute limits {keys}, which is not simulated")


@pytest.mark.parametrize(("amount", "noted"), [("9223372036854775807", False), ("plenty", True)])
async def test_a_limit_that_cannot_be_counted_is_a_note(amount, noted):
    quota = QUOTA.replace("{HARD}", f"{{cpu: {amount}, pods: 2}}")
    found = await told(cluster(node("n1", cards=4)), manifests=f"{JOB}---{quota}")
    assert [one.outcome for one in found.pods] == ["placed", "placed", "waits"]
    said = "ResourceQuota team/compute limits cpu, which is not simulated"
    assert any(note.startswith(said) for note in found.notes) is noted


@pytest.mark.parametrize("resources", ["abc", "[1]", "{limits: [[1]]}", "{limits: {REQUEST: 1}, requests: abc}"])
async def test_a_request_of_a_manifest_with_unreadable_resources_is_one_line(resources):
    text = POD.partition("resources: ")[0] + f"resources: {resources}\n".replace("REQUEST", NUMBER)
    with pytest.raises(UnusableChangeError, match=r"containers\[0\]\.resources") as e:
        await told(cluster(node("n1")), manifests=text, requests=((NUMBER, "2"),))
    assert "\n" not in str(e.value)


async def test_a_key_that_json_does_not_have_is_one_line():
    text = "apiVersion: v1\nkind: Node\nmetadata: {name: n2, labels: {2026-01-01: new}}\n"
    with pytest.raises(UnusableChangeError, match="-f:1: found a key that is not text; quote it"):
        await told(cluster(node("n1")), manifests=text)


async def test_another_policy_decides_where_new_pods_go():
    nodes = node("n1"), node("n2")
    for policy, where in (("binpack", "n1"), ("spread", "n2")):
        world = cluster(*nodes)
        world.cordon("n2")
        world.add_pods([pod("a")])
        world.settle()
        world.uncordon("n2")
        found = await told(world, manifests=POD, policy=policy)
        assert found.pods[0].node == where, policy


async def test_another_policy_alone_places_the_same_pods_again():
    world = cluster(node("n1"), node("n2"), pods=[owned("a"), owned("b"), pod("bare"), pod("large", memory=99_000)])
    assert {one.node_name for one in world.pods.values()} == {"n1", ""}
    found = await told(world, policy="spread")
    assert {one.pod for one in found.pods} < {"default/a", "default/b", "default/bare"}
    assert {(one.because, one.outcome, one.before, one.node) for one in found.pods} == {
        ("policy", "placed", "n1", "n2")
    }
    assert (found.losing, found.waiting) == (0, 1)
    assert found.notes == (f"{3 - len(found.pods)} pods would be on the same nodes as now".replace("1 pods", "1 pod"),)
    assert sorted(one.node_name for one in world.pods.values()) != ["", "n1", "n1", "n1"]


async def test_by_another_policy_an_older_pod_is_placed_first():
    young, old = owned("young", memory=9000)._replace(created_s=200), owned("old", memory=9000)._replace(created_s=100)
    world = cluster(node("n1", cards=2), pods=[young, old])
    world.set_node(node("n1"))
    found = await told(world, policy="spread")
    assert short(found) == {"default/young": ("policy", "waits", "n1", "")}
    assert found.losing == 1


async def test_pods_of_other_schedulers_are_counted_and_not_judged():
    others = {
        "dns": "ReplicaSet/dns",
        "proxy": "DaemonSet/proxy",
        "bare": "",
    }
    there = [
        pod(name, limits={}, scheduler_name="default-scheduler", node_name="n1", owner=owner)
        for name, owner in others.items()
    ]
    found = await told(cluster(node("n1"), pods=there), remove=("n1",))
    assert short(found) == {"default/bare": ("drained", "ended", "n1", "")}
    assert found.losing == 1
    assert found.notes == ("1 pod of other schedulers would be evicted; whether replacements run is not simulated",)


async def test_pods_of_one_name_of_two_workloads_do_not_share_a_place():
    second = (
        JOB.replace("batch/v1", "apps/v1").replace("kind: Job", "kind: ReplicaSet").replace("parallelism", "replicas")
    )
    for file in (f"{JOB}---{second}", 2 * f"{JOB.replace('name: train', 'generateName: t')}---"):
        found = await told(cluster(node("n1")), manifests=file)
        assert [one.outcome for one in found.pods].count("placed") == 1, file


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "pods.yaml: found no object; write the pods"),
        ("# nothing", "pods.yaml: found no object"),
        ("{apiVersion: v1, kind: Pod, metadata: {name: x}}", "pods.yaml:1: write spec, with the containers"),
        ("{apiVersion: batch/v1, kind: Job, metadata: {name: x}, spec: null}", "pods.yaml:1: write spec"),
        (
            "{apiVersion: v1, kind: Service, metadata: {name: x}}",
            "found kind 'Service'; remove it, because only CronJob",
        ),
        (f"{POD}---{POD}", "pods.yaml:11: there is a Pod 'default/new' already"),
        (f"{JOB}---{JOB}", "there is a Job 'team/train' already"),
        (POD.replace("new", "there"), "pods.yaml:2: there is a Pod 'default/there' already"),
        (JOB.replace("parallelism: 3", "parallelism: 1.5"), "a fraction where a whole number belongs"),
    ],
)
async def test_a_file_that_adds_nothing_new_is_one_line(text, problem):
    with pytest.raises(UnusableChangeError) as e:
        await told(cluster(node("n1"), pods=[pod("there")]), manifests=text, file="pods.yaml")
    assert problem in str(e.value)


async def test_a_group_that_lost_a_member_to_a_drain_waits_for_it():
    world = cluster(node("n1"), node("n2"))
    world.scheduler.cluster.groups.queues_replaced((), served=True)
    world.add_group(GroupSpec(key=GroupKey(GroupKind.VOLCANO, "default", "g"), uid="g", min_member=2))
    member = {"scheduling.k8s.io/group-name": "g"}
    world.add_pods(owned(f"m{at}", memory=10_000, annotations=member) for at in range(2))
    world.settle()
    found = await told(world, drain=("n1",))
    assert [(one.outcome, one.before) for one in found.pods] == [("waits", "n1")]
    assert found.pods[0].code


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"drain": ("n9",)}, "--drain: there is no node 'n9'"),
        ({"remove": ("n9",)}, "--remove: there is no node 'n9'"),
        ({"add_nodes": 1, "like": "n9"}, "--like: there is no node 'n9'"),
        ({"add_nodes": -1, "like": "n1"}, "--add-nodes: found -1; write a number from 0 to 5000"),
        ({"add_nodes": 5001, "like": "n1"}, "--add-nodes: found 5001; write a number from 0 to 5000"),
        ({"repartition": (("n9", "mig"),)}, "--repartition: there is no node 'n9'"),
        (
            {"repartition": (("n1", "nonsense"),)},
            "--repartition: found 'nonsense'; write hami-core, mig, mps or a number",
        ),
        (
            {"repartition": (("n1", "mig"),)},
            "--repartition: found 'n1=mig'; card n1-0 could not be used: no known MIG geometry is for",
        ),
        ({"policy": "best"}, "--policy: found 'best'; write one of binpack, spread, pack"),
        ({"manifests": "kind: Pod"}, "-f:1: write metadata.name"),
        ({"manifests": POD.replace("new", "New_1")}, "-f:2: metadata.name: found 'New_1'; write lower-case letters"),
        ({"manifests": POD.replace("new", "7")}, "-f:2: metadata.name: found 7; write text, in quotes"),
        ({"manifests": JOB.replace("train", "a" * 254)}, "-f:2: metadata.name: found 'aaa"),
        ({"manifests": JOB.replace("team", "a.b")}, "-f:2: metadata.namespace: found 'a.b'; write lower-case letters"),
        ({"manifests": POD, "namespace": "A"}, "-f:2: metadata.namespace: found 'A'; write lower-case letters"),
        ({"manifests": POD.replace("name: new", "generateName: New-")}, "-f:2: metadata.generateName: found 'New-'"),
        ({"manifests": "apiVersion: v1\nkind: Node\nmetadata: {name: n/3}"}, "-f:1: metadata.name: found 'n/3'"),
        ({"manifests": "{"}, "-f:1: "),
        ({"manifests": "apiVersion: v1\nkind: Service\nmetadata: {name: s}"}, "-f:1: found kind 'Service'; remove it"),
        ({"manifests": POD.replace("4000", "many")}, "-f:2: "),
        ({"manifests": POD.replace("spec:", "spec:\n  priorityClassName: x")}, "-f:2: priorityClassName: found 'x'"),
        ({"manifests": "apiVersion: v1\nkind: Node\nmetadata: {name: n3}\nstatus: {capacity: 3}"}, "-f:1: node"),
    ],
)
async def test_a_change_that_cannot_be_made_is_one_line(change, problem):
    with pytest.raises(UnusableChangeError) as told_so:
        await told(cluster(node("n1")), **change)
    assert str(told_so.value).startswith(problem)
    assert "\n" not in str(told_so.value)
