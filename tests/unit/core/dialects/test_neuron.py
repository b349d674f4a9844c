"""AWS's Neuron devices: whole ones, single cores, neighbours (hami-vendors 3.10)."""

from dataclasses import replace

import pytest

from core.admission import rules
from core.admission.rulebook import rulebook
from core.catalog import Asked, standard_catalog
from core.explaining import explain
from core.inventory import Inventory
from core.ledger import Ledger
from core.model import Container, NodeName, Pod, PodUid
from core.placing.decide import Shape, shape_of
from core.port.handoff import Stamp
from core.port.refusals import Reason
from core.settings import Policy, Settings
from tests.support.devices.reviewed import reviewed
from tests.support.devices.vendors import TABLES, card, node_of, port_of

PORT = port_of("neuron")
DEVICES, CORES = PORT.vendor.limits.count, PORT.vendor.limits.cores
KEY = PORT.vendor.handoff.allocated
STAMP = Stamp(node=NodeName("node-a"), now_s=7, order=7)


def pod(*containers, **annotations):
    made = [
        Container(f"c{at}", limits={key: str(one) for key, one in each.items()}) for at, each in enumerate(containers)
    ]
    return Pod(uid=PodUid("p"), namespace="default", name="p", containers=tuple(made), annotations=annotations)


def devices(number=6, instance="inf2.24xlarge", cores=2):
    node = node_of(PORT.vendor, [card(PORT.vendor, at) for at in range(number)], instance=instance)
    have = {**node.capacity, CORES: str(cores * number)}
    node = type(node)(name=node.name, labels=node.labels, capacity=have, allocatable=have)
    return PORT.offer(node, TABLES).cards


def bound(cards, asking):
    """(the annotations of *asking* on *cards*, the cards then); None if it does not fit."""
    placed = PORT.place(cards, PORT.request(asking, TABLES), Policy.SPREAD)
    if placed is None:
        return None
    notes = PORT.annotations(placed.assignment, STAMP, TABLES)
    held = PORT.held(asking._replace(node_name="node-a", annotations={**asking.annotations, **notes}), cards, TABLES)
    assert held.assignment == placed.assignment
    return notes, PORT.take(cards, placed.assignment)


def test_single_cores_fill_the_last_device():
    notes, _ = bound(devices(2), pod({CORES: 1}, {CORES: 1}, {CORES: 1}))
    name = "node-a-AWSNeuron"
    assert notes == {
        KEY: f"{name}-1,AWSNeuron,0,1:;{name}-1,AWSNeuron,0,2:;{name}-0,AWSNeuron,0,1:;",
        "AWS_NEURON_IDS": "2,3,0",
        "NEURON_ALLOCATED": "false",
        "NEURON_ALLOC_TIME": "7000000000",
        "NEURON_RESOURCE_TYPE": CORES,
        "aws.amazon.com/predicate-node": "node-a",
        **{key: notes[key] for key in notes if key.startswith("hami.io/") and key != KEY},
    }


@pytest.mark.parametrize(
    ("instance", "total", "taken", "asked", "found"),
    [
        pytest.param("inf2.24xlarge", 6, (), {DEVICES: 2}, "0,1", id="the first two"),
        pytest.param("inf2.24xlarge", 6, ({DEVICES: 1},), {DEVICES: 5}, "0,1,2,3,4", id="idle ones"),
        pytest.param("inf2.24xlarge", 6, ({CORES: 1},), {DEVICES: 6}, None, id="one is not idle"),
        pytest.param("trn1.32xlarge", 16, (), {DEVICES: 2}, None, id="two that are wired in fours"),
        pytest.param(
            "trn1.32xlarge", 16, ({DEVICES: 4},), {DEVICES: 8}, "8,9,10,11,12,13,14,15", id="the second eight"
        ),
        pytest.param("trn1.32xlarge", 16, (), {CORES: 8}, "0,1,2,3,4,5,6,7", id="eight cores of four"),
        pytest.param("trn1.32xlarge", 16, (), {DEVICES: 1}, "15", id="the last one"),
    ],
)
def test_several_devices_are_idle_neighbours(instance, total, taken, asked, found):
    cards = devices(total, instance)
    for one in taken:
        _, cards = bound(cards, pod(one))
    told = bound(cards, pod(asked))
    assert (told and told[0]["AWS_NEURON_IDS"]) == found


def test_cores_of_a_device_are_those_of_its_node():
    cards = devices(1, "inf1.2xlarge", cores=4)
    seen = []
    for _ in range(4):
        notes, cards = bound(cards, pod({CORES: 1}))
        seen.append((notes["AWS_NEURON_IDS"], notes[KEY].split(",")[3]))
    assert seen == [("0", "1:;"), ("1", "2:;"), ("2", "4:;"), ("3", "8:;")]
    assert bound(cards, pod({CORES: 1})) is None
    assert bound(devices(2, "inf1.2xlarge", cores=4), pod({CORES: 4})) is None
    assert bound(devices(1, "inf1.2xlarge", cores=4), pod({DEVICES: 1}))[0][KEY].endswith(",15:;")


@pytest.mark.parametrize(
    "containers", [({CORES: 3},), ({CORES: 1}, {DEVICES: 1}), ({DEVICES: 1}, {}, {CORES: 2}), ({DEVICES: "1.5"},)]
)
def test_what_the_plugin_cannot_tell_apart_is_rejected(containers):
    found = PORT.request(pod(*containers), TABLES)
    assert {one.code for one in found} <= {"CS101", "CS103"}


@pytest.mark.parametrize("cores", [0, 65])
def test_a_device_without_cores_or_with_too_many_is_closed(cores):
    (one,) = devices(1, cores=cores)
    assert (one.fixed.fault, one.fixed.problem) == (
        Reason.UNUSABLE,
        "its node has no cores for it, or more than 64",
    )


def test_lists_of_ids_count_for_several_devices():
    avoided = pod({DEVICES: 2}, **{"aws.amazon.com/nouse-neuron-uuid": "node-a-AWSNeuron-0"})
    assert bound(devices(), avoided)[0]["AWS_NEURON_IDS"] == "1,2"


def test_an_assignment_with_cores_apart_closes_its_device():
    cards = devices(1, "inf1.2xlarge", cores=4)
    wrong = pod({CORES: 2}, **{KEY: "node-a-AWSNeuron-0,AWSNeuron,0,5:;"})._replace(node_name="node-a")
    after = PORT.take(cards, PORT.held(wrong, cards, TABLES).assignment)
    (short,) = PORT.shortfalls(after, PORT.request(pod({CORES: 1}), TABLES))
    assert short.reason is Reason.UNUSABLE


def test_people_read_of_cores():
    cards = devices(1)
    placed = PORT.place(cards, PORT.request(pod({CORES: 1}), TABLES), Policy.SPREAD)
    assert [one.text for one in PORT.describe(placed.assignment, cards)] == ["1 core as 1 of 2 at 0"]
    after = PORT.take(cards, placed.assignment)
    (short,) = PORT.shortfalls(after, PORT.request(pod({CORES: 2}), TABLES))
    assert (short.reason, short.wanted, short.free, short.unit) == (Reason.CORES, 2, 1, "cores")
    (short,) = PORT.shortfalls(after, PORT.request(pod({DEVICES: 1}), TABLES))
    assert short.reason is Reason.BUSY


def two(*, single):
    """Two pods with a core each, on the devices 0 and 2 of four, or whole devices."""
    text = ",AWSNeuron,0,1:;" if single else ",AWSNeuron,0,3:;"
    asked = {CORES: 1} if single else {DEVICES: 1}
    for at in (0, 2):
        notes = {KEY: f"node-a-AWSNeuron-{at}{text}"}
        yield pod(asked, **notes)._replace(uid=PodUid(f"held-{at}"), node_name=NodeName("node-a"))


@pytest.mark.parametrize(
    ("instance", "cores", "single", "asked", "told"),
    [
        pytest.param(
            "inf2",
            2,
            False,
            {DEVICES: 2},
            "1 too few of the cards that fit are linked with each other. Nearest: node-a no 2 idle devices are next to "
            "each other.",
            id="devices",
        ),
        pytest.param(
            "inf2",
            2,
            True,
            {CORES: 4},
            "1 too few of the cards that fit are linked with each other. Nearest: node-a no 2 idle devices are next to "
            "each other. Ask for at most 1 core",
            id="devices by cores",
        ),
        pytest.param(
            "trn1",
            2,
            False,
            {DEVICES: 2},
            "1 a rule keeps the pod off every card. Nearest: node-a a container gets 1 device, or 4, 8 or 16 that are "
            "linked.",
            id="linked by fours",
        ),
        pytest.param("trn1", 2, False, {DEVICES: 4}, "1 too few cards. Nearest: node-a 2 of 4", id="few"),
        pytest.param(
            "trn1",
            4,
            None,
            {CORES: 4},
            "a container gets several devices only as a whole, with 4 cores each",
            id="parts",
        ),
    ],
)
def test_a_pod_that_waits_for_neighbours_reads_so(instance, cores, single, asked, told):
    node = node_of(PORT.vendor, [card(PORT.vendor, at) for at in range(4)], instance=instance)
    have = {"pods": "9", **node.capacity, CORES: str(4 * cores)}
    ledger = Ledger(standard_catalog(), TABLES, Settings())
    ledger.set_node(replace(node, capacity=have, allocatable=have))
    for one in two(single=single) if single is not None else ():
        ledger.count(one)
    shape = shape_of(pod(asked), ledger)
    assert isinstance(shape, Shape)
    assert told in explain.sentence(explain.refused(ledger, shape, Policy.BINPACK))


@pytest.mark.parametrize(
    ("asked", "mask", "told"),
    [
        pytest.param({CORES: 2}, 6, "2 cores are free, but not next to each other", id="apart"),
        pytest.param(
            {CORES: 2},
            7,
            "1 too few free cores on every card. Nearest: node-a node-a-AWSNeuron-0: 1 of 2 cores free. Ask for "
            "at most 1 core",
            id="few",
        ),
        pytest.param(
            {CORES: 1},
            15,
            "1 too few free cores on every card. Nearest: node-a node-a-AWSNeuron-0: 0 of 1 cores free",
            id="none",
        ),
        pytest.param({DEVICES: 1}, 1, "1 no idle card. Nearest: node-a node-a-AWSNeuron-0: in use", id="whole"),
    ],
)
def test_a_pod_that_waits_for_cores_reads_of_no_slices(asked, mask, told):
    node = node_of(PORT.vendor, [card(PORT.vendor, 0)])
    have = {"pods": "9", **node.capacity, CORES: "4"}
    ledger = Ledger(standard_catalog(), TABLES, Settings())
    ledger.set_node(replace(node, capacity=have, allocatable=have))
    note = {KEY: f"node-a-AWSNeuron-0,AWSNeuron,0,{mask}:;"}
    ledger.count(pod({CORES: mask.bit_count()}, **note)._replace(uid=PodUid("held"), node_name=NodeName("node-a")))
    shape = shape_of(pod(asked), ledger)
    assert isinstance(shape, Shape)
    text = explain.sentence(explain.refused(ledger, shape, Policy.BINPACK))
    assert told in text
    assert "MIG" not in text


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ({DEVICES: 4}, "no node has 4 cards; the largest has 3; ask for 3 or fewer"),
        ({CORES: 8}, "no node has 8 cores that could take it; the most is 6; ask for 6 cores or fewer"),
    ],
)
def test_who_asks_for_more_than_any_node_has_is_told_in_devices_or_cores_as_asked(limits, told):
    node = node_of(PORT.vendor, [card(PORT.vendor, at) for at in range(3)])
    book, inventory = rulebook(Settings(), TABLES, standard_catalog()), Inventory()
    inventory.put(node.name, {PORT.name: PORT.offer(node, TABLES).cards}, (), book.catalog.dialects)
    asked = book.catalog.request_of(pod(limits), TABLES, book.settings)
    assert isinstance(asked, Asked)
    found = rules.never_fits(reviewed(pod(limits)), asked, book.with_stock(inventory.stock()))
    assert found is not None
    assert (found.code, found.remedy) == ("CS404", told)


def test_who_asks_for_devices_that_are_never_neighbours_is_told_so():
    node = node_of(PORT.vendor, [card(PORT.vendor, at) for at in range(3)], instance="trn1")
    book, inventory = rulebook(Settings(), TABLES, standard_catalog()), Inventory()
    inventory.put(node.name, {PORT.name: PORT.offer(node, TABLES).cards}, (), book.catalog.dialects)
    asked = book.catalog.request_of(pod({DEVICES: 2}), TABLES, book.settings)
    assert isinstance(asked, Asked)
    found = rules.never_fits(reviewed(pod({DEVICES: 2})), asked, book.with_stock(inventory.stock()))
    assert found is not None
    assert "(rule: a container gets 1 device, or 4, 8 or 16 that are linked)" in found.remedy
