import pytest

from core.model import NodeName, Phase
from tests.support.world import World, node, pod


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
            world.owner.bound(bind.pod.uid, bind.attempt)
        assert (world.stage("p"), world.owner.life.in_flight) == ("none", 0)
        assert world.holders("n1") == {bind.pod.uid}


def test_an_event_from_before_the_binding_frees_nothing():
    world = World(node("n1", memory=1000))
    bind = sent(world)
    world.owner.bound(bind.pod.uid, bind.attempt)
    world.shows(world.seen("p"), scheduled_reason="Unschedulable")
    world.adds(pod("q"))
    assert world.binds() == []
    assert world.stage("p") == "bound"


def test_after_a_conflict_the_pod_is_read_and_decided_on_what_it_is_then():
    world = World(node("n1"))
    bind = sent(world)
    world.owner.refused(bind.pod.uid, bind.attempt, read=True)
    assert world.holders("n1") == set()
    assert world.binds() == []
    (read,) = world.reads()
    changed = pod("p", memory=7000, resource_version="555")
    world.owner.pod_read(read.pod.uid, changed)
    (again,) = world.binds()
    assert again.version == "555"
    assert ",7000," in again.annotations["volcano.sh/vgpu-ids-new"]


def test_while_a_pod_is_read_again_older_events_of_it_are_not_believed():
    world = World(node("n1"))
    bind = sent(world)
    world.owner.refused(bind.pod.uid, bind.attempt, read=True)
    world.shows(world.seen("p"), annotations={"x": "old"})
    assert world.binds() == []
    assert world.stage("p") == "reading"


def test_a_pod_that_somebody_else_bound_first_is_counted_where_it_is():
    world = World(node("n1", memory=1000), node("n2", memory=1000))
    bind = sent(world)
    other = "n2" if bind.node == "n1" else "n1"
    theirs = {"volcano.sh/vgpu-ids-new": f"{other}-0,NVIDIA,1000,0:"}
    world.owner.refused(bind.pod.uid, bind.attempt, read=True)
    (read,) = world.reads()
    bound = pod("p", node_name=other, annotations=theirs, resource_version="9", started=True)
    world.owner.pod_read(read.pod.uid, bound)
    assert world.stage("p") == "none"
    assert world.holders(other) == {"uid-p"}
    assert world.holders(bind.node) == set()


def test_a_refusal_that_comes_after_the_mirror_showed_another_node_frees_nothing():
    world = World(node("n1", memory=1000), node("n2", memory=1000))
    bind = sent(world)
    other = "n2" if bind.node == "n1" else "n1"
    theirs = {"volcano.sh/vgpu-ids-new": f"{other}-0,NVIDIA,1000,0:"}
    world.shows(world.seen("p"), node_name=other, annotations=theirs)
    world.owner.refused(bind.pod.uid, bind.attempt, read=True)
    assert world.reads() == []
    assert world.holders(other) == {"uid-p"}


@pytest.mark.parametrize("found", [None, pod("p", uid="another")], ids=["gone", "a namesake"])
def test_a_pod_that_is_gone_when_it_is_read_leaves_nothing(found):
    world = World(node("n1", memory=1000))
    bind = sent(world)
    world.owner.unsure(bind.pod.uid, bind.attempt)
    (read,) = world.reads()
    world.owner.pod_read(read.pod.uid, found)
    assert world.stage("p") == "none"
    assert world.holders("n1") == set()
    assert world.owner.handoff.in_flight == 0


def test_an_unconfirmed_binding_keeps_its_share():
    world = World(node("n1", memory=1000))
    bind = sent(world)
    world.owner.unsure(bind.pod.uid, bind.attempt)
    world.adds(pod("q"))
    assert world.binds() == []
    assert (world.stage("p"), world.stage("q")) == ("unsure", "refused")
    assert world.owner.handoff.busy(NodeName("n1"), frozenset({("vgpu devices", 1)}))


def test_an_unconfirmed_binding_that_is_found_written_is_settled():
    world = World(node("n1", memory=1000))
    bind = sent(world)
    world.owner.unsure(bind.pod.uid, bind.attempt)
    (read,) = world.reads()
    bound = pod("p", node_name="n1", annotations=bind.annotations, resource_version="9")
    world.owner.pod_read(read.pod.uid, bound)
    assert world.stage("p") == "none"
    assert world.holders("n1") == {"uid-p"}


def test_an_unconfirmed_binding_that_is_found_unwritten_is_sent_again_to_the_same_cards():
    world = World(node("n1", memory=1000), node("n2", memory=1000))
    bind = sent(world)
    world.owner.unsure(bind.pod.uid, bind.attempt)
    (read,) = world.reads()
    world.owner.pod_read(read.pod.uid, pod("p", resource_version="77"))
    (again,) = world.binds()
    assert (again.node, again.version, again.attempt) == (bind.node, "77", bind.attempt + 1)
    assert again.annotations["volcano.sh/vgpu-ids-new"] == bind.annotations["volcano.sh/vgpu-ids-new"]


def test_an_unconfirmed_binding_of_a_pod_that_has_changed_keeps_its_share_until_it_cannot_be_written_any_more():
    world = World(node("n1", memory=1000))
    bind = sent(world)
    world.owner.unsure(bind.pod.uid, bind.attempt)
    (read,) = world.reads()
    changed = pod("p", memory=500, resource_version="77")
    world.owner.pod_read(read.pod.uid, changed)
    assert world.stage("p") == "unsure"
    (read,) = world.reads()
    world.passes(7.5)
    world.owner.pod_read(read.pod.uid, changed)
    (again,) = world.binds()
    assert ",500," in again.annotations["volcano.sh/vgpu-ids-new"]


def test_a_throttled_binding_rests_as_long_as_it_was_asked_to():
    world = World(node("n1"))
    bind = sent(world)
    world.owner.refused(bind.pod.uid, bind.attempt, read=False, rest_s=3.0)
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
        world.owner.refused(bind.pod.uid, bind.attempt, read=False)
        before_s = world.now_s
        while not (found := world.binds()):
            world.now_s += 0.25
        bind = found[0]
        waits.append(world.now_s - before_s)
    assert waits == [0.0, 0.25, 0.5, 1.0, 2.0, 4.0]


def test_a_binding_that_will_never_be_accepted_is_told_to_the_user_and_not_repeated_at_once():
    world = World(node("n1"))
    bind = sent(world)
    world.owner.refused(bind.pod.uid, bind.attempt, read=False, rest_s=300.0, text="the API server refuses")
    assert list(world.owner.planner.untold) == [bind.pod.uid]
    world.passes(299.0)
    assert world.binds() == []
    world.passes(2.0)
    assert len(world.binds()) == 1


def test_a_pod_deleted_while_its_binding_is_in_flight_leaves_nothing():
    world = World(node("n1", memory=1000))
    bind = sent(world)
    world.gone("p")
    world.owner.refused(bind.pod.uid, bind.attempt, read=True)
    assert (world.owner.life.in_flight, world.reads(), world.holders("n1")) == (0, [], set())
    world.adds(pod("q"))
    assert len(world.binds()) == 1


def test_a_pod_that_is_being_deleted_when_it_is_read_is_let_go():
    world = World(node("n1"))
    bind = sent(world)
    world.owner.refused(bind.pod.uid, bind.attempt, read=True)
    (read,) = world.reads()
    world.owner.pod_read(read.pod.uid, pod("p", deleting=True, resource_version="9"))
    assert (world.stage("p"), world.binds()) == ("none", [])


def test_the_version_that_our_own_condition_made_counts_as_seen():
    world = World(node("n1", memory=1000))
    shown = world.shows(pod("p", memory=2000))
    world.plan()
    world.owner.told(shown.uid, "text", "why", shown.resource_version, "500")
    world.owner.nodes.changed(node("n2", memory=5000))
    world.passes(0.1)
    (bind,) = world.binds()
    assert bind.version == "500"


def test_our_own_condition_hides_no_change_that_came_before_it():
    world = World(node("n1"))
    shown = world.shows(pod("p", memory=99_999))
    world.plan()
    newer = world.shows(shown, annotations={"a": "b"})
    world.owner.told(shown.uid, "text", "why", shown.resource_version, "500")
    assert world.entry("p").version == newer.resource_version


def test_after_a_restart_bound_pods_are_counted_and_those_in_flight_left_alone():
    before = World(node("n1", memory=2000))
    bind = sent(before)
    bound = before.accepts(bind)
    world = World(node("n1", memory=2000))
    for _ in world.owner.pods_replaced([bound, pod("q")]):
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
    world.owner.cleared(clear.pod.uid, done=True)
    assert [one.pod.name for one in world.binds()] == ["q"]
