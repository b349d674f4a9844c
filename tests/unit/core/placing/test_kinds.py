"""What a new node would help, and what it is called."""

from core.catalog import standard_catalog
from core.explaining import explain
from core.ledger import Ledger
from core.model import NodeConstraints, NodeName
from core.placing.decide import Shape
from core.placing.kinds import Kinds
from core.settings import Policy, Settings, Tables
from core.waiting import Cause
from tests.support.worlds.world import World, node, on, pod

TYPE = "node.kubernetes.io/instance-type"


def told(world: World, asked):
    world.adds(asked)
    world.plan()
    shape = world.entry(asked.name).shape
    assert isinstance(shape, Shape)
    return explain.wait(explain.refused(world.ledger, shape, Policy.BINPACK))


def test_a_pod_that_an_empty_node_would_take_is_unschedulable_and_told_which_kind():
    world = World(node("n1", cards=2, memory=1000))
    world.adds(pod("a"), pod("b"))
    world.plan()
    wait = told(world, pod("p"))
    assert wait.cause is Cause.UNSCHEDULABLE
    assert wait.text.endswith("Wait until enough of a card is free. A new node with 2 x T4 would take it.")


def test_a_kind_is_called_by_its_instance_type_where_it_has_one():
    world = World(node("n1", labels={TYPE: "p4d"}, unschedulable=True))
    assert told(world, pod("p")).text.endswith("A new node of type p4d (1 x T4) would take it.")


def test_which_kind_helps_is_not_cut_off():
    world = World(
        *[node(f"n{i}", memory=1000, unschedulable=i == 0, labels={"name": f"{i:03}" * 20}) for i in range(40)]
    )
    where = NodeConstraints(selector=(("name", "000" * 20),))
    wait = told(world, pod("p", constraints=where))
    assert wait.text.endswith(" would take it.")
    assert len(wait.text) <= 1024


def test_a_pod_that_no_empty_node_takes_never_fits():
    wait = told(World(node("n1")), pod("p", memory=99_999))
    assert (wait.cause, "A new node" in wait.text) == (Cause.NEVER_FITS, False)


def test_a_pod_that_names_an_old_nodes_own_card_or_name_waits_for_that_node():
    labels = {"kubernetes.io/hostname": "n1", "name": "n1"}
    for at, asked in enumerate(
        (
            pod("p", constraints=on("n1")),
            pod("p", constraints=NodeConstraints(selector=(("kubernetes.io/hostname", "n1"),))),
            pod("p", annotations={"volcano.sh/vgpu-use-gpuuuid": "n1-0"}),
        )
    ):
        world = World(node("n1", memory=1000, labels=labels))
        world.adds(pod("a"))
        world.plan()
        assert told(world, asked).cause is Cause.WAITING_FOR_NODE, at


def test_where_there_are_no_nodes_that_is_the_cause():
    wait = told(World(), pod("p"))
    assert wait.cause is Cause.NO_NODES


def test_nodes_whose_cards_cannot_be_judged_are_the_cause_and_no_new_node():
    world = World(node("n1", annotations={"volcano.sh/node-vgpu-register": "no register"}))
    assert told(world, pod("p")).cause is Cause.CARDS_UNUSABLE


def test_nodes_that_are_alike_are_one_kind_whatever_their_cards_and_they_are_called():
    ledger = Ledger(standard_catalog(), Tables(), Settings())
    for i in range(50):
        ledger.set_node(node(f"n{i}", labels={"kubernetes.io/hostname": f"n{i}"}))
    ledger.set_node(node("big", cards=2))
    kinds = Kinds(ledger)
    found = {kinds.of(name) for name in ledger.states}
    assert len(found) == 2
    ledger.remove_node(NodeName("big"))
    assert kinds.of(NodeName("big")) is None
