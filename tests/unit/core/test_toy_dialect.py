"""What docs/maintainers/adding-a-dialect.md says is true: one file behind the port is a whole dialect."""

from core.explaining import explain
from core.ledger import Ledger
from core.model import Container, Node, NodeName, Pod, PodUid
from core.placing.candidates import Candidates
from core.placing.decide import Shape, decide, node_policy, shape_of
from core.port.handoff import Stamp
from core.settings import Settings, Tables
from tests.support.devices.catalogs import catalog_of
from tests.support.devices.toy import MEMORY, Toy

POD = Pod(
    uid=PodUid("u1"),
    namespace="d",
    name="p1",
    annotations={"toy.example/cores": "30"},
    containers=(Container(name="c", limits={MEMORY: "6"}, requests={MEMORY: "6"}),),
)


def _cluster() -> Ledger:
    ledger = Ledger(catalog_of(Toy()), Tables(), Settings())
    for name, cards in (("n1", "a:8"), ("n2", "a:8,a:16"), ("n3", "broken")):
        annotations = {"toy.example/cards": cards}
        ledger.set_node(Node(name=NodeName(name), annotations=annotations, allocatable={"pods": "9", "cpu": "4"}))
    return ledger


def test_a_pod_is_read_placed_reserved_bound_and_counted_again_after_a_restart():
    ledger, toy = _cluster(), Toy()
    shape = shape_of(POD, ledger)
    assert isinstance(shape, Shape)
    placement = decide(Candidates(ledger, node_policy(ledger.settings)), POD, shape)
    assert placement is not None
    ledger.reserve(placement)
    stamp = Stamp(node=placement.node, now_s=1, order=1)
    bound = POD._replace(
        node_name=placement.node,
        annotations={**POD.annotations, **toy.annotations(placement.assignment, stamp, Tables())},
    )
    again = _cluster()
    again.count(bound)
    assert again.states[placement.node].offers == ledger.states[placement.node].offers
    assert ledger.described(placement) == f"{placement.node}: 0 (6 MiB)"


def test_what_does_not_fit_is_explained_and_what_cannot_be_read_is_set_aside():
    ledger = _cluster()
    shape = shape_of(POD._replace(containers=(Container(name="c", limits={MEMORY: "99"}),)), ledger)
    assert isinstance(shape, Shape)
    assert Candidates(ledger, node_policy(ledger.settings)).best(shape) is None
    text = explain.report(explain.refused(ledger, shape, ledger.settings.policy))
    assert "16 of 99 MiB in total" in text
    assert "invalid device data" in text
    assert len(ledger.states[NodeName("n3")].complaints) == 1
