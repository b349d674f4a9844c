"""Who leaves for a pod whose queue may hold no more, by trying it: no more than needed, and nobody in vain."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from controller.actions import Preempt
from core.groups import GroupSpec, QueueSpec
from core.model import GroupKey, GroupKind, PodUid
from core.placing.gang import Unit
from core.placing.minimums import Minimum
from core.placing.preemption import victims_for
from core.placing.queues import Allowance
from tests.property.test_preemption import (
    MINE,
    RULE,
    Book,
    budgets,
    clusters,
    crowd_of,
    fitting,
    ledger_of,
    member,
    room_for,
    search,
)
from tests.support.worlds.world import NUMBER, World, finished, node, pod

# Groups 1 are of the unit's queue, groups 2 of another; of the pods without a group, those with an even number are.


def is_mate(number, one):
    return one[6] == 1 if one[6] else number % 2 == 0


def memory_of(cluster, numbers):
    return sum(cluster[at][2] for at in numbers)


class Queue:
    """The unit's queue, which may hold *limit* of memory."""

    def __init__(self, cluster, limit):
        self.cluster = cluster
        self.mates = {at for at, one in enumerate(cluster) if is_mate(at, one)}
        self.limit = max(limit, 0)

    def left(self, asked, gone):
        return self.limit - memory_of(self.cluster, self.mates - gone) - asked

    def allowance(self, asked):
        def left(placements, victims):
            numbers = {int(uid[1:]) for uid in victims}
            return {"memory": self.left(asked * len(list(placements)), numbers)} if asked else {}

        return Allowance(
            mates=frozenset(PodUid(f"p{at}") for at in self.mates if self.cluster[at][4] < MINE),
            amounts=lambda uid: {"memory": self.cluster[int(uid[1:])][2]},
            left=left,
        )


@settings(max_examples=300, deadline=None)
@given(clusters, budgets, st.tuples(st.integers(0, 8), st.integers(0, 3)), st.integers(1, 3), st.integers(0, 40))
@example([(0, 0, 4, 0, 3, 0, 0, "a"), (1, 0, 4, 0, 3, 0, 0, "a"), (2, 0, 4, 0, 4, 0, 0, "b")], {}, (4, 0), 1, 8)
def test_no_more_leave_than_node_and_queue_need_and_nobody_in_vain(cluster, allowed, wanted, many, limit):
    cluster = fitting(cluster)
    ledger, crowd, queue = ledger_of(cluster), crowd_of(cluster, allowed), Queue(cluster, limit)
    states, book = dict(ledger.states), Book(cluster, allowed)
    members = tuple(member(number, wanted) for number in range(many))
    unit = Unit(members=members, minimum=Minimum(members=many))
    within = queue.allowance(wanted[0])
    answer = finished(victims_for(ledger, RULE, unit, crowd, priority=MINE, allowance=within))
    assert all(ledger.states[name] is state for name, state in states.items())
    asked = wanted[0] * many
    alone = search(ledger, unit, crowd)
    if answer is None:
        everybody = {at for block in book.blocks for at in block}
        is_full = asked and queue.left(asked, everybody) < 0
        assert is_full or room_for(book.without(book.blocks), range(3), wanted) < many
        return
    gone = {int(uid[1:]) for uid in answer.victims}
    blocks = [block for block in book.blocks if gone & set(block)]
    assert gone == {at for block in blocks for at in block}
    assert not asked or queue.left(asked, gone) >= 0
    nodes = {int(placement.node[1:]) for placement in answer.placements}
    assert len(answer.placements) == many
    if alone is not None and (not asked or queue.left(asked, {int(uid[1:]) for uid in alone.victims}) >= 0):
        assert answer == alone
    # With any of them staying, the members find no room where they go, or not in their queue.
    for stays in blocks:
        without = [block for block in blocks if block is not stays]
        fits = room_for(book.without(without), nodes, wanted) >= many
        assert not fits or (asked and queue.left(asked, gone - set(stays)) < 0)
    for uid in answer.victims:
        assert cluster[int(uid[1:])][4] < MINE
        ledger.release(uid)
    for placement in answer.placements:
        ledger.reserve(placement)
        assert not ledger.overcommitted(placement.node)


GROUP = "scheduling.k8s.io/group-name"
# queue, cards, priority, whether it is of a gang of two
comers = st.lists(
    st.tuples(st.integers(0, 1), st.integers(1, 2), st.integers(0, 3), st.booleans()), min_size=1, max_size=12
)
capabilities = st.tuples(st.integers(2, 4), st.sampled_from((2, 4, None)))


@settings(max_examples=25, deadline=None)
@given(comers, capabilities, st.sampled_from((2, 6)), st.integers(1, 4))
@example([(0, 1, 0, False), (0, 1, 0, False), (0, 2, 3, False)], (2, None), 6, 3)
def test_it_becomes_quiet_and_no_queue_holds_more_than_it_may_although_all_who_leave_come_again(
    coming, limits, nodes, grace
):
    world = World(
        *(node(f"n{at}", cards=2, slots=1) for at in range(nodes)),
        preemption=True, preemption_delay_s=0.0, preemption_wait_s=50.0,
    )  # fmt: skip
    world.has_no_kind()
    groups = {f"g{at}": (queue, is_gang) for at, (queue, _, _, is_gang) in enumerate(coming)}
    world.groups_are(
        *(
            GroupSpec(
                key=GroupKey(GroupKind.VOLCANO, "default", name),
                uid=name,
                resource_version="1",
                queue=f"q{queue}",
                min_member=2 if is_gang else 1,
            )
            for name, (queue, is_gang) in groups.items()
        ),
        queues=[
            QueueSpec(name=f"q{at}", capability={} if limit is None else {NUMBER: limit})
            for at, limit in enumerate(limits)
        ],
    )
    world.scheduler.cluster.occupants.budgets_replaced(())
    made = 0

    def comes(group):
        nonlocal made
        _, number, priority, _ = coming[int(group[1:])]
        world.adds(pod(f"{group}-{made}", number=number, priority=priority, annotations={GROUP: group}))
        made += 1

    def held(queue):
        return sum(
            int(one.containers[0].limits[NUMBER])
            for one in world.pods.values()
            if world.ledger.node_of(one.uid) and groups[one.name.split("-")[0]][0] == queue
        )

    for name, (_, is_gang) in groups.items():
        for _ in range(2 if is_gang else 1):
            comes(name)
        world.placed()
    begun_s = last_s = world.now_s
    leaving: list[tuple[float, str]] = []
    while world.now_s < begun_s + 300.0:
        world.passes(1.0)
        for asked in world.actions(Preempt):
            last_s = world.now_s
            world.scheduler.preempting.asked(asked)
            for nth, (target, _) in enumerate(asked.victims):
                world.shows(world.seen(target.name), deleting=True)
                leaving.append((world.now_s + grace * (nth + 1), target.name))
                comes(target.name.split("-")[0])
        for due in [one for one in leaving if one[0] <= world.now_s]:
            leaving.remove(due)
            world.gone(due[1])
        world.placed()
        for at, limit in enumerate(limits):
            assert limit is None or held(at) <= limit
    assert last_s < begun_s + 150.0
    assert not len(world.scheduler.reservations.nominations)
    # Of single pods with one card, none waits for one of its queue with a lower priority.
    placed = world.placed()
    single = {
        one.name: coming[int(one.name[1:].split("-")[0])]
        for one in world.pods.values()
        if coming[int(one.name[1:].split("-")[0])][1] == 1 and not coming[int(one.name[1:].split("-")[0])][3]
    }
    for name, (queue, _, priority, _) in single.items():
        lower = [one for one, (of, _, less, _) in single.items() if of == queue and less < priority and one in placed]
        assert name in placed or not lower, (name, lower)
