"""What pods hold while the section of their vendor in device-config.yaml is lost, as at a start with a wrong one."""

from dataclasses import replace

import pytest

from core.catalog import standard_catalog
from core.dialects.hami_vendors.table import VendorNames
from core.ledger import Ledger
from core.model import Container, NodeName, Pod, PodUid
from core.port.handoff import Stamp
from core.settings import Policy, Settings, Tables
from tests.support.devices.vendors import PORTS, card, node_of

CATALOG = standard_catalog()
STAMP = Stamp(node=NodeName("node-a"), now_s=1, order=1, containers=("c",))


def node_with(ports, count):
    """A node on which each of *ports* has two cards, the first one's counted by the resource *count*."""
    found = [node_of(port.vendor, [card(port.vendor, at) for at in range(2)]) for port in ports]
    usual = ports[0].vendor.limits.count

    def joined(key):
        amounts = {name: one for node in reversed(found) for name, one in getattr(node, key).items()}
        return {count if name == usual else name: one for name, one in amounts.items()}

    notes, labels = joined("annotations"), joined("labels")
    return replace(
        found[0],
        annotations=notes,
        labels=labels,
        allocatable=joined("allocatable"),
        capacity=joined("capacity"),
    )


def ledger_of(node, tables, *pods):
    found = Ledger(CATALOG, tables, Settings())
    found.set_node(node)
    for pod in pods:
        found.count(pod)
    return found


def configure(ledger, tables):
    for _ in ledger.configure(tables, Settings()):
        pass


@pytest.mark.parametrize("port", PORTS, ids=lambda port: port.name)
@pytest.mark.parametrize("name", ["", "another.example/cards"], ids=["usual", "renamed"])
def test_nothing_is_sold_twice_while_the_section_of_a_vendor_is_lost(port, name):
    rivals = [one for one in PORTS if one.name in CATALOG.rivals[port.name]]
    others = tuple(VendorNames(dialect=one.name) for one in rivals)
    lost, full = Tables(sections=others), Tables(sections=(VendorNames(dialect=port.name, cards=name), *others))
    limits = port.vendor.limits
    count = name or limits.count
    node = node_with([port, *rivals], count)
    asks = {count: "1", **dict.fromkeys((limits.memory, limits.cores) if limits.companions else (), "4")}

    def bound(name, *before):
        """A pod as a scheduler with all sections binds it."""
        pod = Pod(PodUid(name), "default", name, containers=(Container("c", limits=asks, requests=asks),))
        cards = ledger_of(node, full, *before).states[node.name].cards(port.name)
        placed = port.place(cards, port.request(pod, full), Policy.SPREAD)
        return pod._replace(node_name=node.name, annotations=dict(port.annotations(placed.assignment, STAMP, full)))

    first = bound("first")
    second = bound("second", first)
    ledger = ledger_of(node, full, first)
    configure(ledger, lost)
    assert port.name not in ledger.states[node.name].offers
    assert {one.name for one in rivals} <= set(ledger.states[node.name].closed)
    # Meanwhile one more pod is bound, and one goes.
    ledger.count(second)
    ledger.release(first.uid)
    assert {one.name for one in rivals} <= set(ledger.states[node.name].closed)
    configure(ledger, full)
    expected = ledger_of(node, full, second).states[node.name]
    assert (ledger.states[node.name].offers, ledger.states[node.name].closed) == (expected.offers, expected.closed)
