"""ResourceQuotas in HAMi's spelling hold a namespace: who is over waits, is told the remainder, and goes on later."""

import json

import pytest

from core.dialects.hami.table import HamiTable
from core.dialects.vgpu.table import VgpuTable
from core.groups import GroupSpec, QueueSpec
from core.model import Container, GroupKey, GroupKind
from core.settings import Settings, Tables
from core.view.fits import Place
from core.waiting import Cause
from core.wire.groups import decode_queue
from core.wire.policies import ResourceQuota, decode_quota
from tests.support.devices import vendors
from tests.support.worlds.world import CORES, MEMORY, NUMBER, World, node, pod

HAMI, HAMI_MEMORY, PERCENTAGE = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpumem-percentage"
VMEMORY = "limits.metax-tech.com/vmemory"
GROUP = "scheduling.k8s.io/group-name"


def quota(hard, *, name="q", namespace="default", scoped=False):
    return ResourceQuota(namespace, name, hard, {}, scoped)


def limits(resource, amount, **fields):
    return quota({f"limits.{resource}": amount}, **fields)


def hami_node(name, *, cards=2, memory=10_000):
    card = {"count": 10, "devmem": memory, "devcore": 100, "type": "NVIDIA A100", "mode": "hami-core", "health": True}
    register = [{"id": f"{name}-{at}", "index": at, **card} for at in range(cards)]
    have = {HAMI: str(10 * cards), "cpu": "64", "memory": "256Gi", "pods": "110"}
    annotations = {"hami.io/node-nvidia-register": json.dumps(register)}
    return node(name, annotations=annotations, capacity=have, allocatable=have)


def world(*nodes, quotas):
    made = World(*nodes)
    made.scheduler.cluster.budgets.quotas.replaced(quotas)
    return made


def held(made):
    return sorted(one.name for one in made.pods.values() if made.ledger.node_of(one.uid) and not one.finished)


@pytest.mark.parametrize(
    ("asked", "limit", "told"),
    [
        ({NUMBER: "2", MEMORY: "1000"}, (MEMORY, 3000), f"2000 {MEMORY} requested, 1000 of 3000 left"),
        ({NUMBER: "2", MEMORY: "1", CORES: "30"}, (CORES, 100), f"60 {CORES} requested, 40 of 100 left"),
        ({HAMI: "2", HAMI_MEMORY: "2000"}, (HAMI_MEMORY, 7999), f"4000 {HAMI_MEMORY} requested, 3999 of 7999 left"),
        ({HAMI: "1", PERCENTAGE: "30"}, (HAMI_MEMORY, 5000), f"3000 {HAMI_MEMORY} requested, 2000 of 5000 left"),
        (
            {HAMI: "1", HAMI_MEMORY: "1", "nvidia.com/gpucores": "60"},
            ("nvidia.com/gpucores", 100),
            "60 nvidia.com/gpucores requested, 40 of 100 left",
        ),
    ],
    ids=["memory-times-cards", "cores-times-cards", "hami-times-cards", "hami-percentage", "hami-cores"],
)
def test_what_cards_give_is_counted_and_the_remainder_is_told(asked, limit, told):
    made = world(node("n1", cards=4), hami_node("n2", cards=4), quotas=[limits(*limit)])
    made.adds(pod("a", limits=asked), pod("b", limits=asked))
    made.plan()
    assert held(made) == ["a"]
    wait = made.wait("b")
    assert wait.cause is Cause.WAITING_FOR_QUOTA
    assert f"ResourceQuota q of namespace default has too little capacity: {told}; ask for less" in wait.text


def test_who_asks_for_more_than_the_limit_is_not_told_to_wait():
    made = world(node("n1"), quotas=[limits(MEMORY, 1500)])
    made.adds(pod("a"), pod("b"), pod("c", memory=1600))
    made.plan()
    assert held(made) == ["a"]
    assert made.wait("b").text.endswith(
        "1000 volcano.sh/vgpu-memory requested, 500 of 1500 left; ask for less, or wait until its pods end"
    )
    assert made.wait("c").text.endswith(
        "1600 volcano.sh/vgpu-memory requested, 500 of 1500 left; ask for less, or have its limit raised"
    )


def test_the_peak_of_init_containers_counts_and_no_more():
    asked = {HAMI: "1", HAMI_MEMORY: "2000"}
    initial = Container(name="init", limits=asked | {HAMI_MEMORY: "3000"}, requests=asked)
    made = world(hami_node("n1", cards=1), quotas=[limits(HAMI_MEMORY, 3000)])
    made.adds(pod("a", limits=asked, init_containers=(initial,)))
    made.plan()
    assert held(made) == ["a"]


@pytest.mark.parametrize(
    "one",
    [
        limits(MEMORY, 1, namespace="other"),
        limits(MEMORY, 1, scoped=True),
        limits(NUMBER, 1),
        quota({f"requests.{MEMORY}": 1, MEMORY: 1, "limits.cpu": 1}),
    ],
    ids=["another namespace", "scopes", "a count, which HAMi does not hold either", "other spellings"],
)
def test_what_is_not_for_us_to_hold_holds_nobody(one):
    made = world(node("n1", cards=4), quotas=[one])
    made.adds(pod("a", number=2))
    made.plan()
    assert held(made) == ["a"]


def test_of_several_quotas_the_smallest_holds_and_what_goes_is_no_limit_any_more():
    small, large = limits(MEMORY, 1000, name="small"), limits(MEMORY, 3000, name="large")
    made = world(node("n1", cards=4), quotas=[small, large])
    made.adds(*[pod(name) for name in "abcd"])
    made.plan()
    assert held(made) == ["a"]
    assert "ResourceQuota small of namespace default" in made.wait("b").text
    quotas = made.scheduler.cluster.budgets.quotas
    quotas.gone(small)
    made.passes(1.0)
    assert held(made) == ["a", "b", "c"]
    quotas.replaced([])
    made.passes(1.0)
    assert held(made) == ["a", "b", "c", "d"]


def test_who_waits_for_a_quota_that_goes_waits_for_the_one_that_holds_next():
    made = world(node("n1", cards=4), quotas=[limits(MEMORY, 1000, name="first")])
    made.adds(pod("a"), pod("b"))
    made.plan()
    assert "ResourceQuota first" in made.wait("b").text
    quotas = made.scheduler.cluster.budgets.quotas
    # While it waits another comes, which has nothing left either; then the one that it was told of goes.
    quotas.changed(limits(MEMORY, 1000, name="second"))
    made.passes(1.0)
    quotas.gone(limits(MEMORY, 1000, name="first"))
    made.passes(1.0)
    assert "ResourceQuota second" in made.wait("b").text
    made.gone("a")
    made.passes(1.0)
    assert held(made) == ["b"]


@pytest.mark.parametrize("ends", ["gone", "raised"])
def test_who_waits_is_asked_again_when_others_end_or_the_quota_is_raised(ends):
    made = world(node("n1", cards=4), quotas=[limits(MEMORY, 1000)])
    made.adds(pod("a"), pod("b"))
    made.plan()
    if ends == "gone":
        made.gone("a")
    else:
        made.scheduler.cluster.budgets.quotas.changed(limits(MEMORY, 2000))
    made.passes(1.0)
    assert "b" in held(made)


def test_an_explicit_zero_lets_nobody_in_who_asks_for_it():
    made = world(node("n1", cards=4), quotas=[limits(MEMORY, 0)])
    made.adds(pod("a"), pod("plain", limits={"cpu": "1"}))
    made.plan()
    assert held(made) == ["plain"]


def test_what_is_bound_counts_whoever_bound_it_and_before_there_was_a_quota():
    made = world(hami_node("n1"), quotas=[])
    by_hami = {"hami.io/vgpu-devices-allocated": "n1-0,NVIDIA,4000,0:;", "hami.io/vgpu-node": "n1"}
    asked = {HAMI: "1", HAMI_MEMORY: "4000"}
    theirs = pod("theirs", limits=asked, node_name="n1", annotations=by_hami, scheduler_name="hami-scheduler")
    made.adds(theirs)
    made.plan()
    made.scheduler.cluster.budgets.quotas.changed(limits(HAMI_MEMORY, 6000))
    made.adds(pod("ours", limits=asked))
    made.plan()
    assert held(made) == ["theirs"]
    assert "4000 nvidia.com/gpumem requested, 2000 of 6000 left" in made.wait("ours").text
    made.gone("theirs")
    made.passes(1.0)
    assert held(made) == ["ours"]


def test_a_gang_is_held_as_a_whole_by_its_namespace_beside_its_queue():
    key = GroupKey(GroupKind.VOLCANO, "default", "g")
    spec = GroupSpec(key=key, uid="u", resource_version="1", min_member=3, queue="all")
    made = world(node("n1", cards=8), quotas=[limits(MEMORY, 2000)])
    made.groups_are(spec, queues=[QueueSpec(name="all", capability={NUMBER: 8})])
    made.adds(*[pod(f"g{at}", annotations={GROUP: "g"}) for at in range(3)])
    made.plan()
    assert held(made) == []
    assert made.wait("g0").text.endswith(
        f"3000 {MEMORY} requested by the pods that start together, 2000 of 2000 left; ask for less, or have its limit "
        "raised"
    )
    made.scheduler.cluster.budgets.quotas.changed(limits(MEMORY, 3000))
    made.passes(1.0)
    assert held(made) == ["g0", "g1", "g2"]


def test_a_pod_whose_queue_and_namespace_are_both_full_is_told_of_both():
    key = GroupKey(GroupKind.VOLCANO, "default", "g")
    made = world(node("n1", cards=4), quotas=[limits(MEMORY, 1500)])
    queue = QueueSpec(name="all", capability={NUMBER: 1})
    made.groups_are(GroupSpec(key=key, uid="u", resource_version="1", min_member=1, queue="all"), queues=[queue])
    made.adds(*[pod(f"g{at}", annotations={GROUP: "g"}) for at in range(2)])
    made.plan()
    assert made.wait("g1").cause is Cause.WAITING_FOR_QUEUE
    assert made.wait("g1").text == (
        f"waits because queue all has too little capacity: 1 {NUMBER} requested, 0 of 1 left; ask for less, or wait "
        f"until its pods end. ResourceQuota q of namespace default has too little capacity: 1000 {MEMORY} requested, "
        "500 of 1500 left; ask for less, or wait until its pods end"
    )


def test_what_is_bound_is_counted_anew_under_another_configuration():
    made = world(hami_node("n1"), quotas=[limits(HAMI_MEMORY, 5)])
    by_hami = {"hami.io/vgpu-devices-allocated": "n1-0,NVIDIA,4000,0:;", "hami.io/vgpu-node": "n1"}
    made.adds(pod("theirs", limits={HAMI: "1", HAMI_MEMORY: "4000"}, node_name="n1", annotations=by_hami))
    for _ in made.scheduler.configure(
        Tables(sections=(HamiTable(named=HamiTable().named._replace(mib_per_unit=1000)),)), Settings()
    ):
        pass
    made.adds(*(pod(name, limits={HAMI: "1", HAMI_MEMORY: "1"}) for name in "ab"))
    made.plan()
    assert held(made) == ["a", "theirs"]
    assert f"1 {HAMI_MEMORY} requested, 0 of 5 left" in made.wait("b").text


def test_of_one_shape_those_of_other_namespaces_go_on():
    made = world(node("n1", cards=4), quotas=[limits(MEMORY, 0)])
    made.adds(pod("a"), pod("b", namespace="free"))
    made.plan()
    assert held(made) == ["b"]


def test_a_namespace_without_a_quota_on_cards_has_no_sums():
    made = world(node("n1", cards=4), quotas=[limits(MEMORY, 9000, namespace="other")])
    made.adds(*[pod(name) for name in "abc"])
    made.plan()
    assert made.scheduler.cluster.budgets._of_namespace == {}


def test_who_waits_for_a_quota_is_told_how_much_is_left_now():
    made = world(node("n1", memory=100_000), quotas=[limits(MEMORY, 4000)])
    made.adds(pod("a", memory=2000))
    made.placed()
    made.adds(pod("p", memory=3000))
    made.passes(1.0)
    assert "2000 of 4000 left" in made.wait("p").text
    made.adds(pod("b", memory=1000))
    made.placed()
    made.scheduler.cluster.unreported.clear()
    made.passes(31.0)
    assert "1000 of 4000 left" in made.wait("p").text
    assert made.entry("p").pod.uid in made.scheduler.cluster.unreported


def read(name, written):
    """A quota as the API server sends it."""
    text = json.dumps({"metadata": {"namespace": "default", "name": "q"}, "spec": {"hard": {name: written}}})
    return decode_quota(text.encode())


@pytest.mark.parametrize(
    ("resource", "written", "units"),
    [
        (MEMORY, "2Gi", 2048),
        (MEMORY, "1536Mi", 1536),
        (MEMORY, "2G", 2_000_000_000),
        (MEMORY, "3Ki", 3072),
        (HAMI_MEMORY, "64Gi", 65536),
        ("mthreads.com/sgpu-memory", "2Gi", 4),
        (CORES, "1Gi", 2**30),
    ],
)
def test_memory_of_a_quota_in_bytes_is_counted_in_the_units_of_containers(resource, written, units):
    found = read(f"limits.{resource}", written)
    made = world(quotas=[found])
    for _ in made.scheduler.configure(vendors.TABLES, Settings()):
        pass
    (left,) = made.scheduler.cluster.budgets.budget("default").left.values()
    (shown,) = [one for one in Place(made.ledger, "default", [found], ()).limited() if one.limits]
    assert (left, shown.limits) == ((units, units), {resource: units})


@pytest.mark.parametrize("written", ["10E", "16Ei", "1e30", "9223372036854775808"])
def test_a_limit_that_is_larger_than_all_there_is_leaves_the_others_of_its_quota_in_force(written):
    hard = {"limits.volcano.sh/vgpu-cores": written, "limits.cpu": written, f"limits.{MEMORY}": "999"}
    text = json.dumps({"metadata": {"namespace": "default", "name": "q"}, "spec": {"hard": hard}})
    made = world(node("n1"), quotas=[decode_quota(text.encode())])
    made.adds(pod("p"))
    made.plan()
    assert "1000 volcano.sh/vgpu-memory requested, 999 of 999 left" in made.wait("p").text


def test_a_quota_that_changes_from_units_to_bytes_lets_pods_go_on():
    made = world(node("n1"), quotas=[read(f"limits.{MEMORY}", "999Mi")])
    made.adds(pod("p"))
    made.plan()
    assert "1000 volcano.sh/vgpu-memory requested, 999 of 999 left" in made.wait("p").text
    made.scheduler.cluster.budgets.quotas.changed(read(f"limits.{MEMORY}", str(999 * 2**20)))
    made.passes(1.0)
    assert held(made) == ["p"]


@pytest.mark.parametrize("field", ["capability", "guarantee"])
def test_memory_of_a_queue_in_bytes_is_counted_in_the_units_of_containers(field):
    amounts = {MEMORY: "1536Mi", "cpu": "4", "memory": "1Gi"}
    spec = {field: {"resource": amounts} if field == "guarantee" else amounts}
    queue = decode_queue(json.dumps({"metadata": {"name": "q"}, "spec": spec}).encode())
    made = world(node("n1"), quotas=[])
    groups = made.scheduler.cluster.groups
    groups.queues_replaced([queue], served=True)
    assert getattr(groups.queues["q"], field) == {MEMORY: 1536, "cpu": 4000, "memory": 2**30}
    table = VgpuTable(named=VgpuTable().named._replace(mib_per_unit=256))
    for _ in made.scheduler.configure(Tables(sections=(table,)), Settings()):
        pass
    assert getattr(groups.queues["q"], field)[MEMORY] == 6


@pytest.mark.parametrize(("written", "gib"), [("64", 64), ("64Gi", 64), ("65000Mi", 63), ("512Mi", 0)], ids=str)
def test_a_quota_on_metaxs_memory_is_counted_in_gib_as_its_containers_write_it(written, gib):
    found = read(VMEMORY, written)
    made = world(quotas=[found])
    for _ in made.scheduler.configure(vendors.TABLES, Settings()):
        pass
    (left,) = made.scheduler.cluster.budgets.budget("default").left.values()
    (shown,) = [one for one in Place(made.ledger, "default", [found], ()).limited() if one.limits]
    assert (left, shown.limits) == ((gib, gib), {VMEMORY.removeprefix("limits."): gib})


def test_a_pod_whose_binding_is_refused_leaves_its_quota_to_others_while_it_rests():
    made = world(node("n1", cards=4), quotas=[limits(MEMORY, 1000)])
    made.adds(pod("a"), pod("b"))
    (bind,) = made.binds()
    assert bind.pod.name == "a"
    made.scheduler.outcomes.refused(bind.pod.uid, bind.attempt, rest_s=60.0)
    assert [one.pod.name for one in made.binds()] == ["b"]
    assert made.stage("a") == "resting"
