from controller.reporting.share_seconds import NAME, Part, Payee, ShareSeconds, shares_of
from core.model import NodeName
from core.settings import DialectName
from tests.support.worlds.world import World, node, pod

MANY_CORES = {
    "volcano.sh/vgpu-number": "1",
    "volcano.sh/vgpu-memory": "1000",
    "volcano.sh/vgpu-cores": "30",
}
VGPU, N1 = DialectName("vgpu"), NodeName("n1")


def test_a_pod_is_charged_the_larger_of_memory_and_cores_and_the_rest_is_idle():
    world = World(node("n1", cards=1))  # of 10000 MiB
    world.adds(pod("a", memory=4000), pod("b", limits=MANY_CORES))
    world.placed()
    assert shares_of(world.ledger, N1, by_owner=False) == {
        Payee(VGPU, Part.HELD, "default"): 700_000,
        Payee(VGPU, Part.IDLE): 300_000,
    }


def test_what_is_left_where_nothing_can_come_is_stranded():
    world = World(node("n1", cards=2, unschedulable=True))
    assert shares_of(world.ledger, N1, by_owner=False) == {Payee(VGPU, Part.STRANDED): 2_000_000}


def test_series_add_up_by_namespace_and_owner():
    world = World(node("n1", cards=1))
    seconds = ShareSeconds(lambda: world.ledger)
    world.adds(pod("a", memory=2500, owner='ReplicaSet/a"b'))
    world.placed()
    for _ in seconds.follow(1000, by_owner=True):
        pass
    lines = "".join(seconds.series(5001)).splitlines()
    labels = 'dialect="vgpu",part="held",namespace="default",owner="ReplicaSet/a\\"b"'
    assert f"{NAME}{{{labels}}} 1.000250000" in lines
    assert f'{NAME}{{dialect="vgpu",part="idle",namespace="",owner=""}} 3.000750000' in lines


def test_who_holds_nothing_for_an_hour_is_forgotten():
    world = World(node("n1", cards=1))
    seconds = ShareSeconds(lambda: world.ledger)
    world.adds(pod("a", memory=2500))
    world.placed()
    for at_ms, pods in ((0, 1), (1000, 0)):
        if not pods:
            world.gone("a")
        for _ in seconds.follow(at_ms, by_owner=False):
            pass
    assert 'namespace="default"' in "".join(seconds.series(3_600_000))
    assert 'namespace="default"' not in "".join(seconds.series(3_602_000))
