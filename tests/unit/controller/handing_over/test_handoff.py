from controller.handing_over.collision import CollisionKey
from controller.handing_over.handoff import HandOff
from core.catalog import standard_catalog
from core.model import NodeName, Phase
from core.settings import DialectName, Settings, Tables
from tests.support.worlds.world import World, node, pod

ONE, TWO = (CollisionKey(DialectName("vgpu"), frozenset({("vgpu devices", number)})) for number in (1, 2))
N1 = NodeName("n1")


def handoff(**settings):
    return HandOff(standard_catalog(), Tables(), Settings(**settings))


def bound(name, *, devices=1, node_name="n1", time="5", says="allocating", **fields):
    left = "".join(f"g{i},NVIDIA,10,0:" for i in range(devices))
    annotations = {
        "volcano.sh/vgpu-node": node_name,
        "volcano.sh/vgpu-time": time,
        "volcano.sh/vgpu-ids-new": left,
        "volcano.sh/devices-to-allocate": left,
        "volcano.sh/bind-phase": says,
    }
    return pod(name, **({"node_name": node_name, "annotations": annotations} | fields))


def test_a_pod_in_flight_keeps_out_only_what_the_plugin_could_mistake_for_it():
    found = handoff()
    found.observe(bound("p"), 0.0)
    assert found.busy(N1, ONE)
    assert not found.busy(N1, TWO)
    assert not found.busy(NodeName("n2"), ONE)


def test_a_pod_occupies_the_node_that_its_annotation_names_although_it_is_not_bound():
    found = handoff()
    found.observe(bound("p", node_name="n1", scheduler_name="volcano"), 0.0)
    found.observe(bound("q", devices=2)._replace(node_name=""), 0.0)
    assert found.busy(N1, TWO)


def test_a_pod_is_out_of_flight_once_served_or_started():
    for end in ("served", "started"):
        found = handoff()
        found.observe(bound("p"), 0.0)
        if end == "served":
            found.observe(bound("p", devices=0, says="success"), 1.0)
        else:
            found.observe(bound("p", started=True), 1.0)
        assert (end, found.busy(N1, ONE), found.in_flight) == (end, False, 0)
        found.forget("uid-p", 2.0)
        assert not found.busy(N1, ONE)


def test_a_dead_pod_occupies_its_node_until_its_devices_are_known_to_be_cleared():
    found = handoff()
    cleanup = found.observe(bound("p", phase=Phase.FAILED), 0.0)
    assert cleanup == {"volcano.sh/devices-to-allocate": ""}
    assert found.busy(N1, ONE)
    found.cleaned("uid-p", 1.0)
    assert not found.busy(N1, ONE)


def test_clearing_is_asked_for_once_and_again_after_it_failed():
    found = handoff()
    dead = bound("p", says="failed")
    assert found.observe(dead, 0.0) is not None
    assert found.observe(dead, 1.0) is None
    found.not_cleaned("uid-p")
    assert found.observe(dead, 2.0) is not None


def test_a_binding_counts_from_the_moment_it_is_sent_until_it_is_certainly_not_written():
    found = handoff()
    found.begin("uid-p", N1, ONE, 0.0)
    assert found.busy(N1, ONE)
    found.withdraw("uid-p", 1.0)
    assert not found.busy(N1, ONE)


def test_an_event_from_before_the_binding_does_not_end_it():
    found = handoff()
    found.begin("uid-p", N1, ONE, 0.0)
    found.observe(pod("p"), 0.5)
    assert found.busy(N1, ONE)


def test_the_wait_is_estimated_from_what_hand_offs_took():
    found = handoff()
    for i in range(20):
        found.begin(f"uid-p{i}", N1, ONE, 10.0 * i)
        found.observe(bound(f"p{i}", devices=0, says="success"), 10.0 * i + 3.0)
    assert found.seconds == [3.0] * 20
    assert found.wait_s(N1, ONE, 500.0) == 0.0
    found.begin("uid-x", N1, ONE, 500.0)
    assert found.wait_s(N1, ONE, 501.0) == 2.0
    found.join("uid-y", N1, ONE, 501.0)
    assert found.wait_s(N1, ONE, 501.0) == 5.0
    assert 2.9 < found.wait_s(N1, ONE, 500.0) - 3.0 < 3.1
    assert found.wait_s(N1, TWO, 501.0) == 0.0


def test_how_long_a_silent_plugin_took_says_nothing_of_others():
    found = handoff(handoff_timeout_s=300.0)
    found.begin("uid-p", N1, ONE, 0.0)
    found.observe(bound("p", devices=0, says="success"), 7200.0)
    assert found.seconds == [7200.0]
    for name in (N1, NodeName("n2")):
        found.begin("uid-x", name, ONE, 8000.0)
        assert found.wait_s(name, ONE, 8000.0) < 1.0
        # Kubelet is not thought to ask for hours for a pod that vanished.
        found.forget("uid-x", 8000.0)
        found.look(8011.0)
        assert not found.busy(name, ONE)


def test_a_hand_off_that_takes_longer_than_usual_is_expected_to_take_as_long_again():
    found = handoff()
    found.begin("uid-x", N1, ONE, 0.0)
    assert found.wait_s(N1, ONE, 40.0) == 40.0


def test_a_silent_plugin_closes_its_node_for_what_it_could_confuse_and_is_told_once():
    found = handoff(handoff_timeout_s=300.0)
    found.begin("uid-p", N1, ONE, 0.0)
    assert found.silent(299.0) == []
    (one,) = found.silent(300.0)
    assert (one.node, one.uid, one.waited_s) == ("n1", "uid-p", 300.0)
    assert found.silent(301.0) == []
    assert found.wait_s(N1, ONE, 301.0) == float("inf")
    assert found.wait_s(N1, TWO, 301.0) == 0.0
    assert list(found.closed_nodes(301.0)) == ["n1"]
    found.observe(bound("p", devices=0, says="success"), 302.0)
    assert list(found.opened) == ["n1"]
    assert not found.closed_nodes(302.0)


def test_stamps_of_one_node_rise_strictly_whatever_is_in_flight():
    found = handoff()
    found.observe(bound("p", time="2000"), 0.0)
    orders = [found.order(N1, DialectName("vgpu"), 1000) for _ in range(3)]
    orders.append(found.order(N1, DialectName("vgpu"), 5000))
    orders.append(found.order(N1, DialectName("vgpu"), 10))
    assert orders == sorted(set(orders))
    assert orders[0] == 2001
    assert found.order(NodeName("n2"), DialectName("vgpu"), 1000) == 1001


def test_stamps_run_ahead_of_the_clock_by_no_more_than_bindings_and_fall_back():
    found = handoff()
    for at in range(104):
        assert found.order(N1, DialectName("vgpu"), 1000 + at // 10) <= 1000 + at + 1
    assert found.order(N1, DialectName("vgpu"), 1050) == 1105
    assert found.order(N1, DialectName("vgpu"), 2000) == 2001


def test_a_node_that_is_gone_leaves_no_stamp():
    found = handoff()
    for _ in range(5):
        found.order(N1, DialectName("vgpu"), 1000)
    found.node_gone(N1)
    assert found.order(N1, DialectName("vgpu"), 1000) == 1001


def test_a_crowded_node_is_not_crowded_any_more_once_something_ended_there():
    found = handoff()
    found.begin("uid-p", N1, ONE, 0.0)
    found.long_lines.add(N1, ONE, 2.0)
    assert set(found.long_lines.beyond(ONE, 2.0)) == {"n1"}
    found.observe(bound("p", started=True), 1.0)
    assert not found.long_lines.beyond(ONE, 2.0)


def served_in(world, seconds, name):
    """Let a pod be bound and served after *seconds*."""
    world.adds(pod(name))
    (bind,) = world.binds()
    world.accepts(bind)
    world.now_s += seconds
    world.serves(name)


def test_a_pod_waits_its_turn_on_a_busy_node_while_that_is_short_and_is_bound_when_it_comes():
    world = World(node("n1"), node("n2"), turn_wait_max_s=2.0)
    world.adds(pod("a"), pod("b"))
    (first,) = world.binds()
    assert (first.pod.name, world.stage("b")) == ("a", "turn")
    world.accepts(first)
    assert world.binds() == []
    world.serves("a")
    (second,) = world.binds()
    assert (second.pod.name, second.node) == ("b", first.node)
    assert int(second.annotations["volcano.sh/vgpu-time"]) > int(first.annotations["volcano.sh/vgpu-time"])


def test_pods_that_the_plugin_can_tell_apart_are_in_flight_together():
    world = World(node("n1", cards=2))
    world.adds(pod("a"), pod("b", number=2))
    assert sorted(bind.pod.name for bind in world.binds()) == ["a", "b"]


def test_a_pod_takes_the_next_best_node_when_the_line_of_the_best_is_too_long():
    world = World(node("n1"), node("n2"), turn_wait_max_s=2.0)
    served_in(world, 5.0, "measured")
    world.adds(pod("a"), pod("b"))
    assert sorted(bind.node for bind in world.binds()) == ["n1", "n2"]


def test_a_pod_joins_a_long_line_rather_than_being_refused_where_nothing_else_fits():
    world = World(node("n1"), turn_wait_max_s=2.0)
    served_in(world, 5.0, "measured")
    world.adds(pod("a"), pod("b"))
    assert [bind.pod.name for bind in world.binds()] == ["a"]
    assert world.stage("b") == "turn"


def test_a_pod_that_waited_out_its_patience_goes_elsewhere_once_there_is_room():
    world = World(node("n1"), turn_wait_max_s=2.0)
    world.adds(pod("a"), pod("b"))
    (first,) = world.binds()
    world.accepts(first)
    world.scheduler.nodes.changed(node("n2"))
    world.passes(1.0)
    assert world.stage("b") == "turn"
    world.passes(1.5)
    (second,) = world.binds()
    assert (second.pod.name, second.node) == ("b", "n2")
    assert world.holders("n1") == {"uid-a"}


def test_a_pod_whose_turn_has_come_is_judged_again():
    world = World(node("n1"))
    world.adds(pod("a"), pod("b"))
    (first,) = world.binds()
    world.accepts(first)
    world.scheduler.nodes.changed(node("n1", version="2", unschedulable=True))
    world.serves("a")
    assert world.binds() == []
    assert world.stage("b") == "refused"
    assert world.holders("n1") == {"uid-a"}


def test_an_annotation_on_a_pod_that_waits_its_turn_has_it_decided_anew():
    world = World(node("n1"))
    world.adds(pod("a"), pod("b"))
    world.binds()
    world.shows(world.seen("b"), annotations={"volcano.sh/vgpu-mode": "mig"})
    world.plan()
    assert world.stage("b") == "refused"
    assert world.holders("n1") == {"uid-a"}
    assert world.scheduler.cluster.handoff.waiting == 0


def test_a_pod_deleted_while_it_waits_its_turn_leaves_line_and_ledger():
    world = World(node("n1"))
    world.adds(pod("a"), pod("b"))
    world.binds()
    world.gone("b")
    assert world.scheduler.cluster.handoff.waiting == 0
    assert world.holders("n1") == {"uid-a"}


def test_a_pod_is_refused_where_only_a_silent_plugin_would_fit_it_and_placed_when_that_answers():
    world = World(node("n1"), handoff_timeout_s=300.0)
    world.adds(pod("a"))
    (first,) = world.binds()
    world.accepts(first)
    world.passes(301.0)
    assert [(one.reason, one.about.name) for one in world.announced()] == [
        ("DevicePluginSilent", "n1"),
        ("DevicePluginSilent", "a"),
    ]
    world.adds(pod("b"))
    assert world.binds() == []
    assert world.stage("b") == "refused"
    assert list(world.scheduler.cluster.requeue.silent.values()) == [("n1",)]
    world.serves("a")
    world.passes(0.1)
    assert world.stage("b") == "binding"


def test_a_pod_that_waits_its_turn_for_long_is_told_why():
    world = World(node("n1"), turn_wait_max_s=2.0)
    world.adds(pod("a"), pod("b"))
    (first,) = world.binds()
    world.accepts(first)
    for _ in range(3):
        world.passes(2.5)
        assert list(world.scheduler.cluster.unreported) == []
    world.passes(2.5)
    assert list(world.scheduler.cluster.unreported) == ["uid-b"]
    assert "has its place on n1 and waits" in world.wait("b").text


def test_a_pod_does_not_keep_its_place_behind_a_plugin_that_has_become_silent():
    world = World(node("n1"), handoff_timeout_s=300.0)
    world.adds(pod("a"), pod("b"))
    (first,) = world.binds()
    world.accepts(first)
    world.passes(3.0)
    assert world.stage("b") == "turn"
    world.passes(300.0)
    world.passes(3.0)
    assert world.stage("b") == "refused"
    assert world.holders("n1") == {"uid-a"}


def test_a_node_that_turns_pods_away_is_not_waited_for_so_that_another_stays_whole():
    world = World(node("n1"), node("n2"))
    served_in(world, 0.1, "a")
    world.adds(pod("b"))
    (bind,) = world.binds()
    assert bind.node == "n1"
    world.shows(world.accepts(bind), phase=Phase.FAILED, status_reason="UnexpectedAdmissionError")
    world.adds(pod("c"))
    assert [bind.node for bind in world.binds()] == ["n2"]


def test_who_joins_a_line_waits_for_those_before_it_that_could_be_taken_for_it_and_for_no_others():
    found = handoff()
    found.observe(bound("p"), 0.0)
    for name, keys in (("a", ONE), ("b", TWO), ("c", ONE)):
        found.join(f"uid-{name}", N1, keys, 0.0)
    assert found.keys_in_line(N1) == {ONE, TWO}
    alone_s = found.wait_s(NodeName("n2"), ONE, 0.0)
    first_s, both_s = found.wait_s(N1, TWO, 0.0), found.wait_s(N1, ONE, 0.0)
    assert alone_s < first_s < both_s
    found.join("uid-c", N1, TWO, 0.0)
    assert found.wait_s(N1, ONE, 0.0) < both_s
    for name in "abc":
        found.leave(f"uid-{name}")
    assert (found.waiting, found.keys_in_line(N1), found.free(N1, TWO)) == (0, set(), True)
