"""Queues take back what they deserve, and then it is quiet: nothing that was taken is taken back."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.actions import Preempt
from core.groups import GroupSpec, QueueSpec
from core.model import GroupKey, GroupKind
from tests.support.worlds.world import NUMBER, World, node, pod

GROUP = "scheduling.k8s.io/group-name"
CARDS = 6
# below the queue of the first number or none, weight, deserved, guaranteed, cards of each pod, pods, their priority
queues = st.lists(
    st.tuples(
        st.booleans(),
        st.integers(1, 3),
        st.sampled_from((0, 0, 2, 4)),
        st.sampled_from((0, 0, 1)),
        st.integers(1, 2),
        st.integers(0, 7),
        st.integers(0, 2),
    ),
    min_size=2,
    max_size=4,
)


@settings(max_examples=40, deadline=None)
@given(queues)
def test_it_becomes_quiet_although_all_who_leave_come_again(drawn):
    known = [
        QueueSpec(
            name=f"q{at}",
            parent="top" if is_below else "",
            weight=weight,
            deserved={NUMBER: due} if due else {},
            guarantee={NUMBER: least} if least else {},
        )
        for at, (is_below, weight, due, least, *_) in enumerate(drawn)
    ]
    world = World(node("n0", cards=CARDS, slots=1), reclaim=True, preemption_delay_s=0.0, preemption_wait_s=50.0)
    keys = [GroupKey(GroupKind.VOLCANO, "default", one.name) for one in known]
    groups = [GroupSpec(key=key, uid=key.name, resource_version="1", queue=key.name) for key in keys]
    world.groups_are(*groups, queues=[QueueSpec(name="top"), *known])
    world.scheduler.cluster.occupants.budgets_replaced(())
    made = 0

    def comes(name):
        nonlocal made
        *_, cards, _, priority = drawn[int(name[1:])]
        world.adds(pod(f"{name}-{made}", number=cards, priority=priority, annotations={GROUP: name}))
        made += 1

    for one, (*_, count, _) in zip(known, drawn, strict=True):
        for _ in range(count):
            comes(one.name)
        world.placed()
    last_s = begun_s = world.now_s
    while world.now_s < begun_s + 200.0:
        world.passes(1.0)
        for asked in world.actions(Preempt):
            last_s = world.now_s
            world.scheduler.preempting.asked(asked)
            before = holdings(world)
            gone = [target.name for target, _ in asked.victims]
            for name in gone:
                world.gone(name)
            after = holdings(world)
            for at, (_, _, _, least, *_) in enumerate(drawn):
                assert after[f"q{at}"] >= min(least, before[f"q{at}"])
            for name in gone:
                comes(name.split("-")[0])
        world.placed()
    assert last_s < begun_s + 130.0


def holdings(world):
    """How many cards the pods of each queue hold."""
    held = Counter[str]()
    for one in world.pods.values():
        if world.ledger.node_of(one.uid):
            held[one.name.split("-")[0]] += int(one.containers[0].limits[NUMBER])
    return held
