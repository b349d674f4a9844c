from controller.reporting.share_seconds import NAME, ShareSeconds
from tests.support.worlds.world import World, node, pod


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
