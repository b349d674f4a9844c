"""Which pods a new node would help, against a twin that adds one: a copy of each node that is there, under new names.

The twin writes the new node as a device plugin and kubelet would, and asks an empty cluster of it alone.
"""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from core.catalog import standard_catalog
from core.explaining import explain
from core.ledger import Ledger
from core.model import Node, NodeConstraints, NodeName, Taint, Toleration
from core.placing.decide import Shape, node_policy, scan, shape_of, try_decide
from core.settings import NodeKind, Settings, Tables
from core.waiting import Cause
from tests.support.worlds.world import CORES, MEMORY, NUMBER, pod

CATALOG = standard_catalog()
HOSTNAME, ZONE, POOL = "kubernetes.io/hostname", "topology.kubernetes.io/zone", "pool"
PASSING = (
    Taint(key="node.kubernetes.io/disk-pressure", effect="NoSchedule"),
    Taint(key="ToBeDeletedByClusterAutoscaler", effect="NoSchedule"),
    Taint(key="karpenter.sh/disrupted", effect="NoSchedule"),
)
LASTING = Taint(key="team", value="red", effect="NoSchedule")


class Machine:
    """One node, and what is wrong with it at the moment."""

    def __init__(self, chance: Random, name: str) -> None:
        self.name = name
        self.cards = [(chance.choice((1000, 4000)), chance.random() < 0.8) for _ in range(chance.choice((1, 2)))]
        self.cpu = chance.choice(("2", "8"))
        self.labels = {ZONE: chance.choice("ab")} | ({POOL: "x"} if chance.random() < 0.5 else {})
        self.lasting = (LASTING,) if chance.random() < 0.3 else ()
        self.passing = tuple(taint for taint in PASSING if chance.random() < 0.15)
        self.cordoned, self.ready = chance.random() < 0.2, chance.random() < 0.9
        self.held_back = chance.random() < 0.2

    def register(self, name: str, *, well: bool) -> str:
        cards = enumerate(self.cards)
        return "".join(
            f"GPU-{name}-{i},4,{memory},NVIDIA-T4,{str(good or well).lower()},hami-core:" for i, (memory, good) in cards
        )

    def node(self, name: str = "") -> Node:
        """As it is; under a new *name*, as a new one of its kind would be."""
        new = bool(name)
        name = name or self.name
        have = {NUMBER: str(4 * len(self.cards)), MEMORY: str(sum(one for one, _ in self.cards)), CORES: "100"}
        have |= {"cpu": self.cpu, "memory": "64Gi", "pods": "20"}
        return Node(
            name=NodeName(name),
            uid=f"uid-{name}",
            resource_version="1",
            labels={**self.labels, HOSTNAME: name, "name": name},
            annotations={"volcano.sh/node-vgpu-register": self.register(name, well=new)},
            capacity=have,
            allocatable={**have, "cpu": "1"} if self.held_back and not new else have,
            taints=self.lasting if new else self.lasting + self.passing,
            unschedulable=self.cordoned and not new,
            ready=self.ready or new,
        )


def wanted(chance: Random, machines: list[Machine]):
    """A pod that asks for something, and perhaps names where."""
    selector, annotations = [], {}
    tolerations: tuple[Toleration, ...] = ()
    if chance.random() < 0.2:
        key = chance.choice((HOSTNAME, "name", ZONE, POOL))
        selector.append((key, {ZONE: "a", POOL: "x"}.get(key, chance.choice(machines).name)))
    if chance.random() < 0.2:
        annotations["volcano.sh/vgpu-use-gpuuuid"] = f"GPU-{chance.choice(machines).name}-0"
    if chance.random() < 0.3:
        tolerations = (Toleration(key="team", operator="Exists"),)
    limits = {NUMBER: str(chance.choice((1, 1, 2))), MEMORY: str(chance.choice((500, 1000, 3000, 9000)))}
    limits["cpu"] = chance.choice(("1", "4", "16"))
    where = NodeConstraints(selector=tuple(selector), tolerations=tolerations)
    return pod("p", limits=limits, annotations=annotations, constraints=where)


def ledger_of(nodes, **about) -> Ledger:
    ledger = Ledger(CATALOG, Tables(), Settings(**about))
    for one in nodes:
        ledger.set_node(one)
    return ledger


def shape_in(ledger: Ledger, asked) -> Shape:
    shape = shape_of(asked, ledger)
    assert isinstance(shape, Shape)
    return shape


def takes(node: Node, asked) -> bool:
    ledger = ledger_of([node])
    return scan(ledger, node_policy(ledger.settings), shape_in(ledger, asked)) is not None


@settings(max_examples=400, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_pod_is_unschedulable_exactly_where_a_new_node_would_take_it(seed):
    chance = Random(seed)
    machines = [Machine(chance, f"n{i}") for i in range(chance.choice((0, 1, 2, 4)))]
    away = Machine(chance, "away") if chance.random() < 0.3 or not machines else None
    kinds = []
    if away is not None:
        made = away.node("made")
        parts = (dict(made.labels), dict(made.annotations), dict(made.capacity))
        labels, annotations, capacity = (tuple(sorted(one.items())) for one in parts)
        kinds.append(NodeKind(name="big", labels=labels, annotations=annotations, capacity=capacity))
        away.lasting = ()  # settings do not describe taints
    ledger = ledger_of([one.node() for one in machines], node_kinds=tuple(kinds))
    policy = node_policy(ledger.settings)
    for at in range(chance.choice((0, 6))):
        filler = pod(f"f{at}", memory=500)
        found = try_decide(ledger, policy, filler, shape_in(ledger, filler))
        if found is not None:
            ledger.reserve(found)
    asked = wanted(chance, [*machines, *([away] if away else [])])
    shape = shape_in(ledger, asked)
    if scan(ledger, policy, shape) is not None:
        return
    wait = explain.wait(explain.refused(ledger, shape, policy.cards))
    helped = any(takes(one.node("made"), asked) for one in (*machines, *([away] if away else [])))
    assert (wait.cause is Cause.UNSCHEDULABLE) is helped, wait
    assert ("would take it" in wait.text) is helped
