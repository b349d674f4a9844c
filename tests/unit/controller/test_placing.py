from collections.abc import Sequence
from dataclasses import replace

import pytest

from controller.actions import Bind
from core.catalog import standard_catalog
from core.dialects.vgpu.dialect import Vgpu
from core.errors import InvariantError, NodeInvariantError
from core.explaining.refusal import refusal_on
from core.model import NodeConstraints, NodeName, Phase, PodUid, Toleration
from core.settings import DialectName, Policy, Settings
from core.sharing.card import Card
from tests.support.devices.catalogs import catalog_of
from tests.support.worlds.world import CORES, MEMORY, NUMBER, World, node, on, pod


def test_a_pod_is_bound_with_uid_version_node_and_assignment_in_one_write():
    world = World(node("n1"))
    shown = world.shows(pod("p", memory=4096))
    (bind,) = world.binds()
    assert (bind.pod.uid, bind.version, bind.node) == ("uid-p", shown.resource_version, "n1")
    assert bind.annotations["volcano.sh/vgpu-ids-new"] == "n1-0,NVIDIA,4096,0:"
    assert bind.annotations["volcano.sh/bind-phase"] == "allocating"
    assert bind.annotations["volcano.sh/vgpu-node"] == "n1"
    assert bind.where == "n1: n1-0 (4096 MiB)"


def test_what_was_promised_is_taken_before_the_api_server_shows_it():
    world = World(node("n1", memory=1000), node("n2", memory=1000))
    world.adds(pod("a"), pod("b"), pod("c"))
    assert sorted(bind.node for bind in world.binds()) == ["n1", "n2"]
    assert world.stage("c") == "refused"


def test_pods_are_placed_by_priority_then_age():
    world = World(node("n1", memory=1000))
    world.adds(pod("old", created_s=1), pod("older", created_s=0), pod("vip", priority=5, created_s=9))
    assert [bind.pod.name for bind in world.binds()] == ["vip"]


def test_a_pod_bound_by_somebody_else_is_counted():
    world = World(node("n1", memory=1000), node("n2", memory=1000))
    held = {"volcano.sh/vgpu-ids-new": "n1-0,NVIDIA,1000,0:"}
    world.adds(pod("theirs", scheduler_name="volcano", node_name="n1", annotations=held, started=True), pod("ours"))
    assert [bind.node for bind in world.binds()] == ["n2"]


@pytest.mark.parametrize(
    "fields",
    [{"scheduler_name": "volcano"}, {"gated": True}, {"deleting": True}, {"phase": Phase.FAILED}],
    ids=["another scheduler's", "gated", "deleting", "failed"],
)
def test_pods_that_are_not_to_be_placed_are_left_alone(fields):
    world = World(node("n1"))
    world.adds(pod("p", **fields))
    assert world.binds() == []
    assert world.stage("p") == "none"


def test_an_ungated_pod_is_placed():
    world = World(node("n1"))
    world.adds(pod("p", gated=True))
    world.shows(world.seen("p"), gated=False)
    assert [bind.pod.name for bind in world.binds()] == ["p"]


def test_the_same_event_told_twice_is_nothing():
    world = World(node("n1"))
    shown = world.shows(pod("p"))
    assert len(world.binds()) == 1
    world.scheduler.pod_changed(shown)
    assert world.binds() == []


def test_no_more_bindings_are_in_flight_than_settings_allow():
    world = World(*[node(f"n{i}") for i in range(5)], bind_in_flight_max=2, policy=Policy.SPREAD)
    world.adds(*[pod(f"p{i}") for i in range(5)])
    first = world.binds()
    assert len(first) == 2
    world.accepts(first[0])
    assert len(world.binds()) == 1


def test_a_deleted_pod_frees_its_cards_and_the_one_that_waits_is_placed():
    world = World(node("n1", memory=1000))
    world.adds(pod("a"), pod("b", created_s=pod("a").created_s + 1))
    assert world.placed() == {"a": "n1"}
    world.gone("a")
    world.passes(0.1)
    assert world.placed() == {"b": "n1"}
    assert world.holders("n1") == {"uid-b"}


def test_a_finished_pod_frees_its_cards_once_and_its_deletion_frees_nothing_more():
    world = World(node("n1", memory=1000))
    world.adds(pod("a"))
    world.placed()
    empty = node("n1", memory=1000)
    world.shows(world.seen("a"), phase=Phase.SUCCEEDED)
    assert world.holders("n1") == set()
    world.gone("a")
    assert not any(world.ledger.states[NodeName("n1")].used.values())
    assert world.ledger.node(NodeName("n1")) == empty


def test_a_pod_that_is_being_deleted_holds_its_cards_until_it_is_gone():
    world = World(node("n1", memory=1000))
    world.adds(pod("a"))
    world.placed()
    world.shows(world.seen("a"), deleting=True)
    world.adds(pod("b"))
    assert world.binds() == []
    world.gone("a")
    world.passes(0.1)
    assert world.stage("b") == "binding"


@pytest.mark.drifts(reason="it is read from calls, or listed, and not shown by the world")
def test_what_vanished_while_nobody_watched_is_found_by_the_next_list():
    world = World(node("n1", memory=1000), node("n2", memory=1000))
    world.adds(pod("a"), pod("b"))
    world.placed()
    kept = world.seen("b")
    for _ in world.scheduler.pods_replaced([kept]):
        pass
    for _ in world.scheduler.nodes.replaced([node("n1", memory=1000)]):
        pass
    world.passes(6.0)
    assert sum(len(world.ledger.holders(name)) for name in world.ledger.states) + len(world.ledger.stray_pods()) == 1
    assert set(world.ledger.states) == {"n1"}


def test_a_pod_that_asks_what_may_not_be_asked_waits_with_the_words_of_admission_and_is_placed_once_mended():
    world = World(node("n1"))
    world.adds(pod("p", limits={NUMBER: "1", CORES: "150"}))
    assert world.binds() == []
    assert list(world.scheduler.cluster.unreported) == ["uid-p"]
    held = world.wait("p").text
    assert held.startswith(f"container \"main\": limit {CORES}: found '150'")
    good = pod("p", limits={NUMBER: "1", CORES: "50"})
    world.shows(world.seen("p"), containers=good.containers)
    assert len(world.binds()) == 1


def test_an_annotation_on_a_refused_pod_has_it_decided_anew():
    world = World(node("n1"))
    world.adds(pod("p", annotations={"volcano.sh/vgpu-mode": "mig"}))
    assert world.binds() == []
    world.shows(world.seen("p"), annotations={"volcano.sh/vgpu-mode": "hami-core"})
    assert [bind.node for bind in world.binds()] == ["n1"]


def test_a_change_of_status_alone_does_not_have_a_pod_decided_anew():
    world = World(node("n1"))
    world.adds(pod("p", memory=99_999))
    world.plan()
    decisions = world.metrics.decisions._value.get()
    world.shows(world.seen("p"), scheduled_reason="Unschedulable", scheduled_message="because")
    world.plan()
    assert world.metrics.decisions._value.get() == decisions
    assert world.entry("p").version == world.seen("p").resource_version


def test_a_node_that_appears_wakes_whom_it_helps_and_no_one_else():
    world = World(node("n1", memory=1000))
    world.adds(pod("big", memory=50_000), pod("small", memory=2000))
    assert world.binds() == []
    decisions = world.metrics.decisions._value.get()
    world.scheduler.nodes.changed(node("n2", memory=3000))
    world.passes(0.1)
    assert world.stage("small") == "binding"
    assert world.stage("big") == "refused"
    assert world.metrics.decisions._value.get() == decisions + 1


def test_all_refused_pods_that_fit_after_one_change_are_placed_by_it():
    world = World(node("n1", memory=1000))
    world.adds(*[pod(f"p{i}", memory=2000, created_s=i) for i in range(5)])
    world.plan()
    world.scheduler.nodes.changed(node("n2", memory=6000))
    world.passes(0.1)
    assert world.placed() == {"p0": "n2", "p1": "n2", "p2": "n2"}


def test_refused_pods_are_asked_about_again_after_the_longest_wait_at_the_latest():
    world = World(node("n1"), refused_retry_s=300.0)
    world.adds(pod("p", memory=99_999))
    world.plan()
    world.scheduler.cluster.requeue.unreported.clear()
    assert world.scheduler.cycle.next_due_s() <= world.now_s + 300.0
    world.passes(301.0)
    world.passes(0.1)
    assert len(world.scheduler.cluster.requeue.unreported) == 1


def test_what_no_rule_judges_yet_is_named_as_the_reason():
    world = World(node("n1"))
    world.adds(pod("p", unjudged=("pod affinity",)))
    assert world.binds() == []
    assert "pod affinity" in world.wait("p").text


def test_a_cordon_of_an_unknown_card_has_an_event_and_its_node_goes_on():
    register = '[{"id":"GPU-0","count":10,"devmem":40960,"devcore":100,"type":"NVIDIA A100","health":true}]'
    notes = {"hami.io/node-nvidia-register": register, "hami.io/device-cordon": "GPU-1"}
    found = node("n1", annotations=notes, allocatable={"nvidia.com/gpu": "10", "pods": "10"})
    world = World(found)
    (event,) = world.announced()
    assert (event.about.name, event.reason, event.warning) == ("n1", "CordonIgnored", True)
    assert "hami: annotation hami.io/device-cordon: no card of the node has the UUID 'GPU-1'" in event.message
    assert "nothing new is placed" not in event.message
    world.adds(pod("p", limits={"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1000"}))
    world.binds()
    assert world.ledger.node_of(PodUid("uid-p")) == "n1"
    world.scheduler.nodes.changed(replace(found, annotations={**notes, "hami.io/device-cordon": "GPU-0"}))
    assert world.announced() == []


def test_a_register_that_cannot_be_read_sets_its_node_aside_with_an_event_and_the_others_go_on():
    bad = node("bad", annotations={"volcano.sh/node-vgpu-register": "nonsense"})
    world = World(bad, node("good"))
    (event,) = world.announced()
    assert (event.about.kind, event.about.name, event.reason, event.warning) == ("Node", "bad", "CardsUnusable", True)
    world.scheduler.nodes.changed(replace(bad, resource_version="2"))
    assert world.announced() == []
    world.adds(pod("p"))
    assert [bind.node for bind in world.binds()] == ["good"]
    world.scheduler.nodes.changed(node("bad", version="3"))
    assert not world.scheduler.nodes.complaints


def test_a_pod_on_a_node_that_does_not_exist_is_reported():
    world = World(node("n1"))
    held = {"volcano.sh/vgpu-ids-new": "x,NVIDIA,1000,0:"}
    world.adds(pod("p", node_name="ghost", annotations=held))
    (event,) = world.announced()
    assert (event.reason, event.about.name) == ("NodeMissing", "p")


def test_a_promise_that_the_ledger_cannot_keep_ends_the_process():
    world = World(node("n1", memory=1000))
    world.adds(pod("a"))
    world.plan()
    entry = world.entry("a")
    assert entry.placement is not None
    with pytest.raises(InvariantError):
        world.scheduler.reservations.reserve(entry, entry.placement._replace(node=NodeName("ghost")))


class Wrong(Vgpu):
    """Counts the cards of node n1 otherwise than it places on them."""

    def overcommitted(self, cards: Sequence[Card]) -> tuple[str, ...]:
        return tuple(card.fixed.uuid for card in cards if card.used_slots and card.fixed.uuid.startswith("n1"))


def test_a_node_about_which_we_are_wrong_is_set_aside_and_the_pod_goes_elsewhere():
    dialects = {**standard_catalog().dialects, DialectName("vgpu"): Wrong()}
    world = World(node("n1", memory=2000), node("n2", memory=2000), catalog=catalog_of(*dialects.values()))
    world.adds(pod("p", memory=1000))
    assert [bind.node for bind in world.binds()] == ["n2"]
    (event,) = world.announced()
    assert (event.about.kind, event.about.name, event.reason) == ("Node", "n1", "NodeSetAside")
    assert "n1-0" in event.message
    assert ", with another pod)" in event.message
    assert world.scheduler.cluster.ledger.aside.keys() == {"n1"}
    world.adds(pod("r", memory=1500))
    assert world.binds() == []
    assert world.stage("r") == "refused"
    shape = world.entry("r").shape
    assert shape is not None
    refused = refusal_on(world.ledger, shape, world.ledger.states[NodeName("n1")], Policy.BINPACK)
    assert refused is not None
    assert "a placement contradicted the ledger" in refused.detail


def test_a_contradiction_that_comes_again_of_a_node_set_aside_ends_the_process():
    world = World(node("n1"))
    error = NodeInvariantError("n1", "card x twice")
    world.scheduler.cluster.search.set_aside(error)
    with pytest.raises(NodeInvariantError):
        world.scheduler.cluster.search.set_aside(error)
    with pytest.raises(NodeInvariantError):
        world.scheduler.cluster.search.set_aside(NodeInvariantError("ghost", "card x twice"))


def test_pods_of_a_name_that_is_given_up_are_left_alone():
    world = World(node("n1"))
    world.adds(pod("p"))
    world.configures(scheduler_names=("other",))
    assert world.binds() == []
    assert world.stage("p") == "none"


def test_a_selector_is_obeyed():
    world = World(node("n1", labels={"name": "n1"}), node("n2", labels={"name": "n2"}))
    world.adds(pod("p", constraints=on("n2")))
    assert [bind.node for bind in world.binds()] == ["n2"]


def test_memory_of_a_pod_without_cards_is_counted_on_its_node():
    world = World(node("n1"))
    limits = {"memory": "256Gi"}
    world.adds(pod("plain", limits=limits, scheduler_name="default-scheduler", node_name="n1"))
    asks = {NUMBER: "1", MEMORY: "10", "memory": "1Gi"}
    world.adds(pod("p", limits=asks))
    assert world.binds() == []
    assert world.scheduler.cluster.carded == {}


def test_another_configuration_has_refused_and_held_pods_decided_anew():
    world = World(node("n1", labels={"name": "n1"}), dialects=frozenset({DialectName("gpu_memory")}))
    world.adds(pod("p"))
    assert world.binds() == []
    assert "switched off" in world.wait("p").text
    world.configures()
    assert [bind.node for bind in world.binds()] == ["n1"]


def test_pods_are_read_anew_in_slices_when_the_configuration_changes():
    world = World(node("n1", memory=1000))
    world.adds(*[pod(f"p{i}", memory=2000) for i in range(100)])
    world.plan()
    assert sum(1 for _ in world.scheduler.configure(world.ledger.tables, Settings())) >= 3
    assert [world.stage("p0"), world.stage("p99")] == ["ready", "ready"]


def test_a_refused_shape_is_asked_again_in_slices_after_much_of_the_cluster_changed():
    world = World(*[node(f"n{i}", memory=1000) for i in range(400)])
    world.adds(pod("p", memory=5000))
    world.plan()
    assert world.stage("p") == "refused"
    for i in range(400):
        world.scheduler.nodes.changed(node(f"n{i}", memory=2000 if i else 5000, version="2"))
    world.now_s += 1
    steps = 1
    while world.scheduler.cycle.plan(world.now_s):
        steps += 1
        # More changes all the time, so that the order is never whole, are no reason never to ask.
        for i in range(100):
            world.scheduler.nodes.changed(node(f"n{i}", memory=2000 + steps if i else 5000, version=f"{steps + 2}"))
    assert steps >= 5
    assert [bind.node for bind in world.actions(Bind)] == ["n0"]


def test_pods_of_a_shape_just_refused_cost_no_more_looking():
    world = World(node("n1"))
    world.adds(pod("p0", memory=99_999))
    world.plan()
    judged = world.scheduler.cluster.search.candidates.judged
    world.adds(*[pod(f"p{i}", memory=99_999) for i in range(1, 50)])
    world.plan()
    assert world.scheduler.cluster.search.candidates.judged == judged
    assert world.stage("p49") == "refused"


def test_nothing_is_due_again_while_every_binding_that_is_allowed_is_in_flight():
    world = World(node("n1"), node("n2"), bind_in_flight_max=1)
    world.adds(pod("a"), pod("b"))
    world.plan()
    world.scheduler.nodes.changed(node("n3"))
    assert world.scheduler.cycle.next_due_s() > world.now_s


def test_a_large_cluster_is_ordered_for_a_new_kind_of_pod_with_pauses():
    world = World(*(node(f"n{at:03d}") for at in range(600)))
    world.shows(pod("p", constraints=NodeConstraints(tolerations=(Toleration(key="dedicated", operator="Exists"),))))
    turns = 0
    while not (bound := world.actions(Bind)):
        assert turns < 20
        # Time is up at once: what is done in one turn is what cannot be divided.
        world.scheduler.cycle.plan(world.now_s)
        turns += 1
    assert [bind.pod.name for bind in bound] == ["p"]
    assert turns > 5
