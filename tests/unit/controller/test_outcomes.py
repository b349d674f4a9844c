import pytest

from controller.handing_over.collision import CollisionKey
from core.dialects.vgpu.table import VgpuTable
from core.model import NodeName, Phase
from core.settings import DialectName, Settings, Tables
from core.waiting import Cause, Wait
from tests.support.worlds.world import World, node, pod


def sent(world, name="p", **fields):
    """Show a pod and take the Binding that follows."""
    world.adds(pod(name, **fields))
    (bind,) = world.binds()
    return bind


def test_a_written_binding_is_kept_whether_the_answer_or_the_mirror_comes_first():
    for order in ("answer", "mirror"):
        world = World(node("n1", memory=1000))
        bind = sent(world)
        if order == "answer":
            world.accepts(bind)
        else:
            world.shows_bound(bind)
            world.scheduler.outcomes.bound(bind.pod.uid, bind.attempt)
        assert (world.stage("p"), world.scheduler.cluster.queue.in_flight) == ("none", 0)
        assert world.holders("n1") == {bind.pod.uid}


def test_an_event_from_before_the_binding_frees_nothing():
    world = World(node("n1", memory=1000))
    bind = sent(world)
    world.scheduler.outcomes.bound(bind.pod.uid, bind.attempt)
    world.shows(world.seen("p"), scheduled_reason="Unschedulable")
    world.adds(pod("q"))
    assert world.binds() == []
    assert world.stage("p") == "bound"


def test_after_a_conflict_the_pod_is_read_and_decided_on_what_it_is_then():
    world = World(node("n1"))
    bind = sent(world)
    world.scheduler.outcomes.contradicted(bind.pod.uid, bind.attempt)
    assert (world.stage("p"), world.holders("n1"), world.binds()) == ("settling", {"uid-p"}, [])
    world.reads_back(pod("p", memory=7000, resource_version="555"))
    (again,) = world.binds()
    assert again.version == "555"
    assert ",7000," in again.annotations["volcano.sh/vgpu-ids-new"]


def test_while_a_pod_is_read_again_older_events_of_it_are_not_believed():
    world = World(node("n1"))
    bind = sent(world)
    world.scheduler.outcomes.contradicted(bind.pod.uid, bind.attempt)
    world.shows(world.seen("p"), annotations={"x": "old"}, resource_version="99")
    assert world.binds() == []
    assert world.stage("p") == "settling"


def test_a_pod_that_somebody_else_bound_first_is_counted_where_it_is():
    world = World(node("n1", memory=1000), node("n2", memory=1000))
    bind = sent(world)
    other = "n2" if bind.node == "n1" else "n1"
    theirs = {"volcano.sh/vgpu-ids-new": f"{other}-0,NVIDIA,1000,0:"}
    world.scheduler.outcomes.contradicted(bind.pod.uid, bind.attempt)
    bound = pod("p", node_name=other, annotations=theirs, resource_version="900", started=True)
    world.reads_back(bound)
    assert world.stage("p") == "none"
    assert world.holders(other) == {"uid-p"}
    assert world.holders(bind.node) == set()


def test_a_refusal_that_comes_after_the_mirror_showed_another_node_frees_nothing():
    world = World(node("n1", memory=1000), node("n2", memory=1000))
    bind = sent(world)
    other = "n2" if bind.node == "n1" else "n1"
    theirs = {"volcano.sh/vgpu-ids-new": f"{other}-0,NVIDIA,1000,0:"}
    world.shows(world.seen("p"), node_name=other, annotations=theirs)
    world.scheduler.outcomes.contradicted(bind.pod.uid, bind.attempt)
    assert world.reads() == []
    assert world.holders(other) == {"uid-p"}


@pytest.mark.parametrize("found", [None, pod("p", uid="another")], ids=["gone", "a namesake"])
def test_a_pod_that_is_gone_when_it_is_read_leaves_nothing(found):
    world = World(node("n1", memory=1000))
    bind = sent(world)
    world.loses(bind)
    world.reads_back(found)
    assert world.stage("p") == "none"
    assert world.holders("n1") == set()
    assert world.scheduler.cluster.handoff.in_flight == 0


def test_an_unconfirmed_binding_keeps_its_share():
    world = World(node("n1", memory=1000))
    bind = sent(world)
    world.loses(bind)
    world.adds(pod("q"))
    assert world.binds() == []
    assert (world.stage("p"), world.stage("q")) == ("settling", "refused")
    assert world.scheduler.cluster.handoff.busy(
        NodeName("n1"), CollisionKey(DialectName("vgpu"), frozenset({("vgpu devices", 1)}))
    )


def test_an_unconfirmed_binding_that_is_found_written_is_settled():
    world = World(node("n1", memory=1000))
    bind = sent(world)
    world.loses(bind)
    bound = pod("p", node_name="n1", annotations=bind.annotations, resource_version="900")
    world.reads_back(bound)
    assert world.stage("p") == "none"
    assert world.holders("n1") == {"uid-p"}


def test_an_unconfirmed_binding_that_a_later_version_shows_unwritten_is_over_and_the_pod_decided_anew():
    world = World(node("n1", memory=1000))
    bind = sent(world)
    world.loses(bind)
    world.reads_back(pod("p", resource_version="777"))
    assert world.fences() == []
    (again,) = world.binds()
    assert (again.version, again.attempt) == ("777", bind.attempt + 1)


def test_an_unconfirmed_binding_found_in_the_version_that_it_named_is_fenced_before_anything_is_released():
    world = World(node("n1", memory=1000))
    bind = sent(world)
    world.loses(bind, "500 no")
    world.reads_back(world.seen("p"))
    world.adds(pod("q"))
    world.passes(100.0)
    assert (world.stage("p"), world.holders("n1"), world.binds()) == ("settling", {"uid-p"}, [])
    fenced = world.writes_fence()
    assert fenced.scheduled_message == "CS550 it is not known whether the API server has bound this pod to n1: 500 no"
    (again,) = world.binds()
    assert (again.pod.name, again.version) == ("p", fenced.resource_version)


def test_a_fence_that_is_not_written_is_tried_again_later_each_time_and_nothing_is_released():
    world = World(node("n1", memory=1000))
    bind = sent(world)
    world.loses(bind)
    delays = []
    for _ in range(5):
        (read,) = world.reads()
        delays.append(read.delay_s)
        world.scheduler.pod_read(read.pod.uid, read.attempt, world.seen("p"))
        (fence,) = world.fences()
        world.scheduler.outcomes.not_fenced(fence.pod.uid, fence.attempt)
    assert delays == [0.25, 0.25, 0.5, 1.0, 2.0]
    assert (world.stage("p"), world.holders("n1")) == ("settling", {"uid-p"})


def test_whose_binding_is_lost_again_and_again_is_told_that_one_thing_also_while_it_rests():
    world = World(node("n1", memory=1000))
    bind = sent(world)
    causes = set()
    for _ in range(8):
        world.loses(bind)
        world.reads_back(world.seen("p"))
        world.writes_fence()
        entry = world.entry("p")
        causes |= {entry.wait.cause} if entry.wait is not None else set()
        while not (binds := world.binds()):
            world.passes(1.0)
        (bind,) = binds
    assert causes == {Cause.SCHEDULER_ERROR}


def test_a_fence_that_moved_nothing_is_none():
    world = World(node("n1", memory=1000))
    bind = sent(world)
    world.loses(bind)
    world.reads_back(world.seen("p"))
    (fence,) = world.fences()
    world.scheduler.fenced(fence.pod.uid, fence.attempt, world.seen("p"))
    assert (world.stage("p"), world.holders("n1"), len(world.reads())) == ("settling", {"uid-p"}, 1)


@pytest.mark.parametrize("kind", ["throttled", "contradicted"])
def test_whatever_is_answered_to_the_next_binding_the_first_was_settled_before_it_was_sent(kind):
    world = World(node("n1", memory=1000))
    first = sent(world)
    world.loses(first)
    world.reads_back(world.seen("p"))
    fenced = world.writes_fence()
    (second,) = world.binds()
    assert second.version == fenced.resource_version != first.version
    if kind == "throttled":
        world.scheduler.outcomes.refused(second.pod.uid, second.attempt, rest_s=1.0)
        assert world.holders("n1") == set()
    else:
        world.scheduler.outcomes.contradicted(second.pod.uid, second.attempt)
        assert world.holders("n1") == {"uid-p"}


def test_a_later_version_shown_by_the_mirror_settles_a_binding_before_any_read_does():
    world = World(node("n1", memory=1000))
    bind = sent(world)
    world.loses(bind)
    (read,) = world.reads()
    before = world.seen("p")
    newer = world.shows(before, annotations={"a": "b"})
    (again,) = world.binds()
    assert again.version == newer.resource_version
    world.scheduler.pod_read(read.pod.uid, read.attempt, before)
    assert (world.stage("p"), world.holders("n1"), world.reads()) == ("binding", {"uid-p"}, [])


def test_a_read_for_an_earlier_binding_settles_none_after_it():
    world = World(node("n1", memory=1000))
    bind = sent(world)
    world.loses(bind)
    (read,) = world.reads()
    late = world.seen("p")
    world.shows(late, annotations={"a": "b"})
    (again,) = world.binds()
    world.loses(again)
    world.scheduler.pod_read(read.pod.uid, read.attempt, late)
    assert (world.stage("p"), world.holders("n1")) == ("settling", {"uid-p"})


def test_what_is_shown_while_an_answer_is_waited_for_counts_when_it_has_come():
    world = World(node("n1"))
    bind = sent(world)
    changed = world.shows(world.seen("p"), containers=pod("p", memory=7000).containers)
    assert world.binds() == []
    world.scheduler.outcomes.refused(bind.pod.uid, bind.attempt, rest_s=60.0)
    (again,) = world.binds()
    assert again.version == changed.resource_version
    assert ",7000," in again.annotations["volcano.sh/vgpu-ids-new"]


@pytest.mark.drifts(reason="what is shown last is older than what was seen")
def test_a_bound_pod_never_becomes_unbound_whatever_is_shown_later():
    world = World(node("n1", memory=2000))
    bind = sent(world)
    before = world.seen("p")
    world.loses(bind)
    world.reads_back(pod("p", node_name="n1", annotations=bind.annotations, resource_version="900"))
    for version in (before.resource_version, "500", "901", "not a number"):
        world.shows(before, resource_version=version)
        assert (world.binds(), world.stage("p"), world.holders("n1")) == ([], "none", {"uid-p"})


def test_older_versions_than_seen_are_nothing():
    world = World(node("n1"))
    world.adds(pod("p", memory=99_999))
    world.plan()
    newer = world.shows(world.seen("p"), containers=pod("p", memory=88_888).containers, resource_version="1000")
    world.shows(newer, containers=pod("p", memory=5000).containers, resource_version="999")
    assert world.binds() == []
    assert world.entry("p").version == "1000"


def test_versions_without_an_order_are_taken_as_they_come_and_only_a_read_settles():
    world = World(node("n1", memory=1000))
    world.shows(pod("p"), resource_version="a")
    (bind,) = world.binds()
    world.loses(bind)
    world.shows(world.seen("p"), resource_version="b")
    assert (world.stage("p"), world.holders("n1"), world.binds()) == ("settling", {"uid-p"}, [])
    world.reads_back(world.seen("p"))
    (again,) = world.binds()
    assert again.version == "b"


def test_pods_that_wait_are_taken_up_when_their_schedulers_name_becomes_ours():
    world = World(node("n1"))
    world.adds(pod("waits", scheduler_name="volcano"), pod("leaves", scheduler_name="volcano"))
    world.shows(world.seen("leaves"), deleting=True)
    assert world.binds() == []
    world.configures(scheduler_names=("cardshare", "volcano"))
    assert [bind.pod.name for bind in world.binds()] == ["waits"]


@pytest.mark.parametrize("answer", ["throttled", "lost"])
def test_a_pod_whose_schedulers_name_is_given_up_while_it_is_being_bound_is_not_bound_after_that(answer):
    world = World(node("n1"), scheduler_names=("cardshare", "volcano"))
    bind = sent(world, scheduler_name="volcano")
    world.configures(scheduler_names=("cardshare",))
    if answer == "throttled":
        world.scheduler.outcomes.refused(bind.pod.uid, bind.attempt, rest_s=1.0)
    else:
        world.loses(bind)
        world.reads_back(world.seen("p"))
        world.writes_fence()
    world.passes(400.0)
    assert (world.binds(), world.stage("p"), world.holders("n1")) == ([], "none", set())


def test_a_pod_that_a_throttled_binding_is_for_asks_under_the_rules_of_now():
    world = World(node("n1"))
    bind = sent(world, memory=3000)
    for _ in world.scheduler.configure(
        Tables(
            version=1,
            sections=(VgpuTable(named=VgpuTable().named._replace(cards="x.example/n", memory="x.example/m")),),
        ),
        Settings(),
    ):
        pass
    world.scheduler.outcomes.refused(bind.pod.uid, bind.attempt, rest_s=1.0)
    assert (world.stage("p"), world.entry("p").shape) == ("held", None)


@pytest.mark.parametrize("how", ["gone", "changed", "mistrusted"])
def test_a_wake_that_is_lost_with_its_pod_passes_on(how):
    world = World(node("n1", memory=1000))
    world.adds(
        pod("holds", node_name="n1", annotations={"volcano.sh/vgpu-ids-new": "n1-0,NVIDIA,1000,0:"}, started=True)
    )
    world.adds(pod("first"), pod("second"))
    world.plan()
    world.gone("holds")
    world.now_s += 0.1
    shape = world.entry("first").shape
    assert shape is not None
    assert world.scheduler.cluster.queue.wake(shape)
    assert world.stage("first") == "ready"
    world.ledger.opened.clear()  # all that was freed has been asked about
    if how == "gone":
        world.gone("first")
    elif how == "mistrusted":
        world.scheduler.outcomes.mistrust(world.entry("first"))
    else:
        world.shows(world.seen("first"), containers=pod("first", memory=900_000).containers)
    assert [bind.pod.name for bind in world.binds()] == ["second"]


def test_an_unconfirmed_binding_of_a_pod_that_has_changed_is_over():
    world = World(node("n1", memory=1000))
    bind = sent(world)
    world.loses(bind)
    world.reads_back(pod("p", memory=500, resource_version="777"))
    (again,) = world.binds()
    assert ",500," in again.annotations["volcano.sh/vgpu-ids-new"]


def test_a_throttled_binding_rests_as_long_as_it_was_asked_to():
    world = World(node("n1"))
    bind = sent(world)
    world.scheduler.outcomes.refused(bind.pod.uid, bind.attempt, rest_s=3.0)
    assert world.holders("n1") == set()
    world.passes(2.9)
    assert world.binds() == []
    world.passes(0.2)
    assert len(world.binds()) == 1


def test_a_pod_whose_bindings_keep_failing_rests_longer_each_time():
    world = World(node("n1"))
    bind = sent(world)
    waits = []
    for _ in range(6):
        world.scheduler.outcomes.refused(bind.pod.uid, bind.attempt)
        before_s = world.now_s
        while not (found := world.binds()):
            world.now_s += 0.25
        bind = found[0]
        waits.append(world.now_s - before_s)
    assert waits == [0.0, 0.25, 0.5, 1.0, 2.0, 4.0]


def test_a_binding_that_will_never_be_accepted_is_told_to_the_user_and_not_repeated_at_once():
    world = World(node("n1"))
    bind = sent(world)
    world.scheduler.outcomes.refused(
        bind.pod.uid, bind.attempt, rest_s=300.0, wait=Wait(Cause.BINDING_REFUSED, "refused")
    )
    assert list(world.scheduler.cluster.unreported) == [bind.pod.uid]
    world.passes(299.0)
    assert world.binds() == []
    world.passes(2.0)
    assert len(world.binds()) == 1


def test_a_pod_deleted_while_its_binding_is_in_flight_leaves_nothing():
    world = World(node("n1", memory=1000))
    bind = sent(world)
    world.gone("p")
    world.scheduler.outcomes.contradicted(bind.pod.uid, bind.attempt)
    assert (world.scheduler.cluster.queue.in_flight, world.reads(), world.holders("n1")) == (0, [], set())
    world.adds(pod("q"))
    assert len(world.binds()) == 1


def test_a_pod_that_is_being_deleted_when_it_is_read_is_let_go():
    world = World(node("n1"))
    bind = sent(world)
    world.scheduler.outcomes.contradicted(bind.pod.uid, bind.attempt)
    world.reads_back(pod("p", deleting=True, resource_version="900"))
    assert (world.stage("p"), world.binds()) == ("none", [])


def test_the_version_that_our_own_condition_made_counts_as_seen():
    world = World(node("n1", memory=1000))
    shown = world.shows(pod("p", memory=2000))
    world.plan()
    world.scheduler.condition_written(shown.uid, "text", "why", shown.resource_version, "500")
    world.scheduler.nodes.changed(node("n2", memory=5000))
    world.passes(0.1)
    (bind,) = world.binds()
    assert bind.version == "500"


def test_our_own_condition_hides_no_change_that_came_before_it():
    world = World(node("n1"))
    shown = world.shows(pod("p", memory=99_999))
    world.plan()
    newer = world.shows(shown, annotations={"a": "b"})
    world.scheduler.condition_written(shown.uid, "text", "why", shown.resource_version, "500")
    assert world.entry("p").version == newer.resource_version


def test_after_a_restart_bound_pods_are_counted_and_those_in_flight_left_alone():
    before = World(node("n1", memory=2000))
    bind = sent(before)
    bound = before.accepts(bind)
    world = World(node("n1", memory=2000))
    world.version = before.version
    for _ in world.scheduler.pods_replaced([bound, pod("q")]):
        pass
    assert world.binds() == []
    assert (world.clears(), world.stage("q")) == ([], "turn")
    world.pods[bound.uid] = bound
    world.serves("p")
    assert [one.pod.name for one in world.binds()] == ["q"]


def test_a_pod_that_failed_before_it_was_served_is_cleared_and_frees_its_cards():
    world = World(node("n1", memory=1000))
    bind = sent(world)
    world.accepts(bind)
    world.shows(world.seen("p"), phase=Phase.FAILED)
    (clear,) = world.clears()
    assert clear.annotations == {"volcano.sh/devices-to-allocate": ""}
    assert world.holders("n1") == set()
    world.adds(pod("q"))
    world.passes(0.1)
    assert world.binds() == []
    world.scheduler.cleared(clear.pod.uid, done=True)
    assert [one.pod.name for one in world.binds()] == ["q"]


@pytest.mark.parametrize(("length", "bound"), [(200_000, True), (262_000, False)])
def test_a_pod_whose_annotations_leave_no_room_for_its_assignment_is_told_so_and_not_bound(length, bound):
    world = World(node("n1"))
    world.adds(pod("p", annotations={"notes": "\u00e9" * (length // 2)}))
    assert bool(world.binds()) is bound
    if not bound:
        assert (world.stage("p"), world.holders("n1"), world.scheduler.cluster.handoff.in_flight) == ("held", set(), 0)
        assert world.wait("p").text == (
            "remove or shorten annotations; the longest is 'notes' with 262005 bytes: all have 262005 bytes, "
            "and with the assignment more than the 262144 that the API server accepts for one pod"
        )
        assert list(world.scheduler.cluster.unreported) == ["uid-p"]
        world.shows(world.seen("p"), annotations={})
        assert len(world.binds()) == 1


def test_a_pod_that_waits_behind_a_binding_of_unknown_outcome_is_told_so_and_no_plugin_is_blamed():
    world = World(node("n1", memory=2000))
    bind = sent(world)
    world.adds(pod("q"))
    world.plan()
    assert world.stage("q") == "turn"
    world.loses(bind)
    for _ in range(12):
        world.passes(5.0)
    assert world.wait("q").text == (
        "has its place on n1 and waits until the outcome of another pod's Binding there is known; the "
        "device plugin could mistake that pod for this one"
    )
    world.passes(400.0)
    assert [one for one in world.announced() if one.reason == "DevicePluginSilent"] == []
