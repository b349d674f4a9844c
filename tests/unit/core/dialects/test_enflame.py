"""Enflame's instances of slices: what they are cut of, what is counted, and what their plugin reads."""

import json
from typing import Any

import pytest

from core.admission.defaulting import complete_container
from core.admission.rulebook import rulebook
from core.catalog import standard_catalog
from core.model import Container, Node, NodeName, Pod, PodUid, container_names
from core.port.cards import Offer
from core.port.handoff import Progress, Stamp
from core.port.refusals import Complaint, Reason, Violation
from core.settings import Policy, Settings
from tests.support.devices.vendors import TABLES, port_of

PORT = port_of("enflame_drs")
SLICES = "enflame.com/drs-gcu"
REGISTER = "enflame.com/gcu-drs-capacity"
HELD = "hami.io/enflame-vgpu-devices-allocated"
PROFILES = {"1g.6gb": "0", "2g.12gb": "1", "3g.24gb": "2", "6g.48gb": "3"}


def node(devices: list[Any], profiles: object = PROFILES) -> Node:
    text = json.dumps({"devices": devices, "profiles": profiles})
    have = {SLICES: "12"}
    return Node(name=NodeName("n"), annotations={REGISTER: text}, allocatable=have, capacity=have)


def device(index: object = "0", capacity: object = 6, minor: object = "4") -> dict[str, object]:
    return {"index": index, "minor": minor, "capacity": capacity}


def cards(*devices: dict[str, object]) -> tuple[Any, ...]:
    found: tuple[Any, ...] = PORT.offer(node(list(devices or (device(),))), TABLES).cards
    return found


def pod(*slices: int | None, init: tuple[int, ...] = (), **fields: Any) -> Pod:
    def made(name: str, amount: int | None) -> Container:
        limits = {} if amount is None else {SLICES: str(amount)}
        return Container(name, limits=limits, requests=limits)

    return Pod(
        uid=PodUid("p"),
        namespace="default",
        name="p",
        containers=tuple(made(f"c{at}", one) for at, one in enumerate(slices)),
        init_containers=tuple(made(f"i{at}", one) for at, one in enumerate(init)),
        **fields,
    )


def bound(asking: Pod, offered: tuple[Any, ...]) -> Pod:
    placed = PORT.place(offered, PORT.request(asking, TABLES), Policy.BINPACK)
    stamp = Stamp(node=NodeName("n"), now_s=7, order=7, containers=container_names(asking))
    return asking._replace(annotations=dict(PORT.annotations(placed.assignment, stamp, TABLES)), node_name="n")


def test_the_plugin_reads_the_card_of_the_pod_and_the_instance_of_each_container():
    one = bound(pod(None, 2, 1), cards(device("1", 6, " 3 ")))
    notes = dict(one.annotations)
    assert json.loads(notes.pop("assigned-containers")) == {
        "c1": {"allocated": False, "request": 2, "profileID": "1", "profileName": "2g.12gb"},
        "c2": {"allocated": False, "request": 1, "profileID": "0", "profileName": "1g.6gb"},
    }
    assert {key: text for key, text in notes.items() if "hami.io" not in key} == {
        "enflame.com/gcu-assigned": "false",
        "enflame.com/gcu-assigned-time": "7000000000",
        "enflame.com/gcu-assigned-index": "1",
        "enflame.com/gcu-assigned-id": "1",
        "enflame.com/gcu-assigned-minor": "3",
        "enflame.com/gcu-request-size": "2",
    }
    assert one.annotations[HELD] == ";n-enflame-drs-1,Enflame,12288,34:;n-enflame-drs-1,Enflame,6144,17:;"


def test_six_instances_of_17_percent_fill_a_card_of_six_slices():
    offered = cards()
    for _ in range(6):
        held = PORT.held(bound(pod(1), offered), offered, TABLES)
        offered = PORT.take(offered, held.assignment)
    assert (offered[0].used_slots, offered[0].used_memory) == (6, 6)
    assert PORT.place(offered, PORT.request(pod(1), TABLES), Policy.BINPACK) is None


def test_slices_are_told_by_the_memory_of_an_instance_and_what_is_none_closes_the_card():
    offered = cards()
    for memory, used, unread in (("24576", 3, 0), ("24577", 0, 1)):
        one = pod(3, node_name="n", annotations={HELD: f"n-enflame-drs-0,Enflame,{memory},50:;"})
        (after,) = PORT.take(offered, PORT.held(one, offered, TABLES).assignment)
        assert (after.used_memory, after.unread) == (used, unread)


def test_the_containers_of_a_pod_get_instances_of_one_card():
    two = cards(device("0", 3), device("1", 6))
    assert {one.uuid for one in PORT.held(bound(pod(2, 3), two), two, TABLES).assignment.entries} == {"n-enflame-drs-1"}
    assert PORT.place(two, PORT.request(pod(6, 1), TABLES), Policy.BINPACK) is None


def test_a_card_is_only_cut_by_its_profiles_and_says_so():
    request = PORT.request(pod(4), TABLES)
    assert PORT.place(cards(), request, Policy.BINPACK) is None
    (short,) = PORT.shortfalls(cards(), request)
    assert (short.reason, short.detail) == (Reason.TEMPLATE, "instances of it have 1 or 2 or 3 or 6 slices, not 4")


@pytest.mark.parametrize("key", ["enflame.com/gcu-memory", "enflame.com/gcu-core"])
def test_what_says_no_slices_is_refused_and_admission_adds_none(key):
    one = Container("c", limits={key: "20"}, requests={key: "20"})
    found = PORT.request(pod()._replace(containers=(one,)), TABLES)
    assert [violation.code for violation in found] == ["CS203"]
    assert found[0].remedy.startswith("write enflame.com/drs-gcu: the number of slices as well")
    assert complete_container(one, rulebook(Settings(), TABLES, standard_catalog())) == one


def test_an_init_container_gets_no_instance():
    found = PORT.request(pod(1, init=(1,)), TABLES)
    assert [(type(one), one.code) for one in found] == [(Violation, "CS205")]


def test_only_pods_of_one_size_wait_for_each_other():
    one = bound(pod(2, 1), cards())
    flight = PORT.in_flight(one, TABLES)
    assert (flight.progress, flight.confusable) == (Progress.WAITING, PORT.confusable(PORT.request(one, TABLES)))
    assert flight.confusable & PORT.confusable(PORT.request(pod(2), TABLES))
    assert not flight.confusable & PORT.confusable(PORT.request(pod(3), TABLES))
    served = one._replace(annotations={**one.annotations, "enflame.com/gcu-assigned": "true"})
    assert PORT.in_flight(served, TABLES).progress is Progress.DONE
    # The plugin never looks for a pod that asks for no slices.
    assert PORT.in_flight(one._replace(containers=()), TABLES) is None


@pytest.mark.parametrize(
    ("devices", "profiles"),
    [
        ([], PROFILES),
        ([device()], {}),
        ([device()], {"x": "0"}),
        ([device()], {"0g.0gb": "0"}),
        ([device()], {"1g.6gb": 0}),
        ([device()], {"1g.6gb": "0" * 65}),
        ([device()], {" " * 65 + "1g.6gb": "0"}),
        ([device()], []),
    ],
)
def test_a_register_without_cards_or_profiles_is_a_complaint(devices, profiles):
    assert isinstance(PORT.offer(node(devices, profiles), TABLES), Complaint)


@pytest.mark.parametrize(
    "wrong",
    [
        device(1),
        device(capacity=0),
        device(capacity="x"),
        device(capacity=-1),
        device(capacity=1.5),
        device(minor=1),
        device(minor="1" * 65),
        7,
    ],
)
def test_a_device_that_cannot_be_read_is_closed_alone(wrong):
    found = PORT.offer(node([wrong, device("5")]), TABLES)
    assert isinstance(found, Offer)
    assert {one.fixed.uuid: one.fixed.fault for one in found.cards} == {
        "n-enflame-drs-0": Reason.UNUSABLE,
        "n-enflame-drs-5": None,
    }


def test_people_read_of_slices():
    offered = cards()
    assignment = PORT.held(bound(pod(2), offered), offered, TABLES).assignment
    assert [one.text for one in PORT.describe(assignment, offered)] == ["2 slices"]
    assert (PORT.sold(offered, TABLES), PORT.metered(assignment, TABLES)) == ({}, {})


@pytest.mark.parametrize("there", [(), (device(capacity="x"),)], ids=["gone", "unreadable"])
def test_people_read_how_many_slices_a_pod_has_of_a_card_that_does_not_say_its_profiles(there):
    one = bound(pod(None, 2, 1), cards())
    found = cards(*there) if there else ()
    assignment = PORT.held(one, found, TABLES).assignment
    assert [each.text for each in PORT.describe(assignment, found)] == ["2 slices", "1 slice"]
    assert [each.used for each in PORT.tally(PORT.take(found, assignment))] == [3] * len(found)


def test_a_share_of_a_card_that_is_gone_is_unknown_if_the_pod_does_not_say_its_slices():
    one = bound(pod(2), cards())._replace(containers=())
    (charge,) = PORT.held(one, (), TABLES).assignment.charges
    assert (charge.memory, charge.unread) == (0, 1)


def test_memory_and_cores_beside_slices_are_told_to_have_no_effect():
    asking = pod(2, None)
    more = {"enflame.com/gcu-memory": "20", "enflame.com/gcu-core": "0"}
    first, second = asking.containers
    asking = asking._replace(containers=(first._replace(limits={**first.limits, **more}), second))
    request = PORT.request(asking, TABLES)
    assert request == PORT.request(pod(2, None), TABLES)
    assert [str(one) for one in PORT.warnings(asking, request, TABLES)] == [
        "CS116 container \"c0\": limit enflame.com/gcu-memory: found '20'; it has no effect, because an instance has "
        "the memory and cores of its enflame.com/drs-gcu slices: leave it out"
    ]
    assert not list(PORT.warnings(pod(2), PORT.request(pod(2), TABLES), TABLES))
