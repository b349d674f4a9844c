"""Remedies for pods that wait for cards of HAMi's other vendors: whoever follows one in figures is placed."""

import re
from collections.abc import Iterator
from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from core.catalog import standard_catalog
from core.dialects.hami_vendors.vendor import Vendor
from core.explaining import explain
from core.ledger import Ledger
from core.model import Node, NodeName, Pod, PodUid
from core.placing.decide import Shape, node_policy, shape_of, try_decide
from core.settings import Policy, Settings
from tests.support.devices import vendors

CATALOG = standard_catalog()
POLICY = node_policy(Settings())
ROOM = {"cpu": "64", "memory": "256Gi", "pods": "99"}
LATER = ("it would then wait", "it would be placed now")


def ledger_of(nodes: list[Node]) -> Ledger:
    made = Ledger(CATALOG, vendors.TABLES, Settings())
    for one in nodes:
        made.set_node(one)
    return made


def asking(vendor: Vendor, chance: Random, name: str) -> Pod:
    most = 1 if vendor.limits.one_container else chance.choice((1, 1, 2))
    made = [vendors.any_container(vendor, chance, f"c{at}") for at in range(most)]
    alone = all(one.limits.get(vendor.limits.count) == "1" for one in made)
    notes = vendors.any_notes(vendor, chance, alone=alone)
    containers = tuple(one._replace(requests=one.limits) for one in made)
    return Pod(uid=PodUid(name), namespace="default", name=name, annotations=notes, containers=containers)


def placed(ledger: Ledger, pod: Pod) -> bool:
    shape = shape_of(pod, ledger)
    found = try_decide(ledger, POLICY, pod, shape) if isinstance(shape, Shape) else None
    if found is not None:
        ledger.reserve(found)
    return found is not None


def figures(remedy: str) -> Iterator[str]:
    """The alternatives of *remedy* that are figures."""
    for piece in re.split(r", or (?=ask|wait|until)|; (?=with|it would then)", remedy):
        if found := re.fullmatch(r"(?:[Aa]sk for|with) (.*?)(?: it would be placed now)?", piece):
            yield found[1]


@settings(max_examples=200, deadline=None)
@given(st.sampled_from([*vendors.PORTS, vendors.port_of("neuron")]), st.integers(0, 2**40))
def test_whoever_follows_a_remedy_in_figures_is_placed(port, seed):
    chance, vendor = Random(seed), port.vendor
    nodes = []
    for at in range(chance.randint(1, 3)):
        one = vendors.any_node(vendor, chance)
        have = {**ROOM, **one.capacity}
        nodes.append(replace(one, name=NodeName(f"n{at}"), capacity=have, allocatable=have))
    ledger = ledger_of(nodes)
    for at in range(chance.choice((0, 2, 5, 12))):
        placed(ledger, asking(vendor, chance, f"h{at}"))
    pod = asking(vendor, chance, "p")
    shape = shape_of(pod, ledger)
    if not isinstance(shape, Shape) or try_decide(ledger, POLICY, pod, shape) is not None:
        return
    remedy = explain.refused(ledger, shape, Policy.BINPACK).remedy
    for words in figures(remedy):
        now = f"with {words} {LATER[1]}" in remedy or not any(one in remedy for one in LATER)
        assert placed(ledger.fork() if now else ledger_of(nodes), vendors.lowered(vendor, pod, words)), (remedy, pod)
