"""HAMi's other vendors: what their plugins would not do as asked, and how far they are with a pod."""

from dataclasses import replace
from typing import Any

import pytest

from core import hami_lock
from core.catalog import standard_catalog
from core.dialects.hami_vendors.table import VendorNames
from core.model import Container, NodeName, Phase, Pod, PodUid
from core.nodefit import amounts_of, parted
from core.port.cards import CardWish, Offer
from core.port.handoff import Progress, Stamp
from core.port.refusals import Complaint, Reason, Violation
from core.settings import Policy
from core.tables import Tables
from tests.support.devices.texts import device_tables
from tests.support.devices.vendors import PORTS, TABLES, card, node_of, port_of

STAMP = Stamp(node=NodeName("node-a"), now_s=1787303731, order=1787303731)


def pod(*containers: dict[str, Any], init: tuple[dict[str, Any], ...] = (), **fields: Any) -> Pod:
    def made(name: str, limits: dict[str, Any]) -> Container:
        text = {key: str(one) for key, one in limits.items()}
        return Container(name, limits=text, requests=text)

    return Pod(
        uid=PodUid("p"),
        namespace="default",
        name="p",
        containers=tuple(made(f"c{at}", one) for at, one in enumerate(containers)),
        init_containers=tuple(made(f"i{at}", one) for at, one in enumerate(init)),
        **fields,
    )


def bound(name: str, asking: Pod, cards: int = 2, **fields: Any) -> Pod:
    """*asking* as it is bound to a node with cards of the dialect *name*."""
    port = port_of(name)
    offer = port.offer(node_of(port.vendor, [card(port.vendor, at) for at in range(cards)]), TABLES)
    placed = port.place(offer.cards, port.request(asking, TABLES), Policy.SPREAD)
    notes = {
        **asking.annotations,
        **port.annotations(placed.assignment, STAMP, TABLES),
        **fields.pop("annotations", {}),
    }
    return asking._replace(annotations=notes, node_name="node-a", **fields)


HYGON = {"hygon.com/dcunum": 1, "hygon.com/dcumem": 4096, "hygon.com/dcucores": 30}
MLU = {"cambricon.com/vmlu": 1, "cambricon.com/mlu.smlu.vmemory": 20, "cambricon.com/mlu.smlu.vcore": 10}
THREADS = {"mthreads.com/vgpu": 1, "mthreads.com/sgpu-memory": 16, "mthreads.com/sgpu-core": 4}
AMD = {"amd.com/gpu": 1, "amd.com/gpumem": 4096, "amd.com/gpucores": 33}


@pytest.mark.parametrize(
    ("name", "asking", "code"),
    [
        pytest.param("hygon", pod({**HYGON, "hygon.com/dcunum": 2}), "CS207", id="shares of several cards"),
        pytest.param(
            "hygon", pod({"hygon.com/dcunum": 2, "hygon.com/dcumem": "4k"}), "CS207", id="4000 MiB of several cards"
        ),
        pytest.param("hygon", pod({**HYGON, "hygon.com/dcucores": 101}), "CS103", id="more than all cores"),
        pytest.param("hygon", pod({"hygon.com/dcumem": 4096}), "CS203", id="memory of no card"),
        pytest.param("hygon", pod({**HYGON, "hygon.com/dcumem": "8Gi"}), "CS101", id="memory with a suffix"),
        pytest.param("amd", pod(AMD, AMD), "CS204", id="two containers"),
        pytest.param("amd", pod({}, init=(AMD,)), "CS205", id="an init container"),
        pytest.param("amd", pod({**AMD, "amd.com/gpucores": 0}), "CS103", id="no cores"),
        pytest.param("cambricon", pod({**MLU, "cambricon.com/vmlu": 2}), "CS203", id="two cards"),
        pytest.param("cambricon", pod({"cambricon.com/vmlu": 1}), "CS203", id="without its companions"),
        pytest.param("mthreads", pod({**THREADS, "mthreads.com/sgpu-memory": 20}), "CS101", id="no step of memory"),
        pytest.param("mthreads", pod({**THREADS, "mthreads.com/vgpu": 2}), "CS207", id="a part of several"),
        pytest.param("iluvatar_mr_v100", pod({"iluvatar.ai/MR-V100-vgpu": 2, "iluvatar.ai/MR-V100.vMem": 4}), "CS207"),
    ],
)
def test_what_a_plugin_would_not_do_as_asked_is_refused(name, asking, code):
    found = port_of(name).request(asking, TABLES)
    assert isinstance(found, tuple)
    assert isinstance(found[0], Violation)
    assert {one.code for one in found} == {code}


def test_a_figure_that_the_api_server_writes_with_a_suffix_is_a_figure():
    found = port_of("cambricon").request(pod({**MLU, "cambricon.com/mlu.smlu.vmemory": "1k"}), TABLES)
    assert [one.memory for one in found.asks] == [256_000]


@pytest.mark.parametrize("name", ["mthreads", "iluvatar_bi_v150"])
def test_several_whole_cards_are_completed_once_and_may_be_asked_for(name):
    port = port_of(name)
    asking = pod({port.vendor.count: 2})
    request = port.request(asking, TABLES)
    completed, warnings = port.completed(asking, request, TABLES)
    assert not warnings
    assert completed.containers[0].limits == completed.containers[0].requests != asking.containers[0].limits
    again = port.request(completed, TABLES)
    assert not isinstance(again, tuple) or hasattr(again, "asks")
    assert port.completed(completed, again, TABLES)[0] == completed


def test_a_part_of_the_memory_of_a_card_of_mthreads_gets_no_cores():
    port = port_of("mthreads")
    asking = pod({"mthreads.com/vgpu": 1, "mthreads.com/sgpu-memory": 16})
    assert port.completed(asking, port.request(asking, TABLES), TABLES)[0] == asking
    whole = pod({"mthreads.com/vgpu": 1})
    completed = port.completed(whole, port.request(whole, TABLES), TABLES)[0]
    assert completed.containers[0].limits == {
        "mthreads.com/vgpu": "1",
        "mthreads.com/sgpu-memory": "96",
        "mthreads.com/sgpu-core": "16",
    }


@pytest.mark.parametrize("port", PORTS, ids=lambda port: port.name)
def test_a_node_whose_plugin_offers_nothing_takes_nothing_and_says_so(port):
    node = node_of(port.vendor, [card(port.vendor, 0)])
    assert isinstance(port.offer(node, TABLES), Offer)
    found = port.offer(replace(node, allocatable={}), TABLES)
    assert isinstance(found, Complaint)
    assert found.dialect == port.name
    assert port.offer(replace(node, annotations={}, capacity={}), TABLES) is None


@pytest.mark.parametrize("text", ["what", "[{]", "[]", "9" * 100, "a,b:"])
def test_a_register_that_cannot_be_read_is_a_complaint(text):
    port = port_of("biren")
    node = node_of(port.vendor, [card(port.vendor, 0)])
    found = port.offer(replace(node, annotations={port.vendor.source.key: text}), TABLES)
    assert isinstance(found, Complaint)


def test_a_card_of_another_type_and_one_that_cannot_be_written_are_closed_alone():
    port = port_of("amd")
    cards = [card(port.vendor, 0, type="Instinct"), card(port.vendor, 1, id="0000:0e:00.0"), card(port.vendor, 2)]
    found = port.offer(node_of(port.vendor, cards), TABLES)
    assert [one.fixed.fault for one in found.cards] == [Reason.UNUSABLE, Reason.UNUSABLE, None]
    assert len(found.complaints) == 2


@pytest.mark.parametrize("kind", ["AMD Instinct, new", "AMD A,9,9:AMD-1", "AMD;"])
def test_a_card_of_amd_whose_type_would_break_the_assignment_is_closed(kind):
    port = port_of("amd")
    found = port.offer(node_of(port.vendor, [card(port.vendor, 0, type=kind), card(port.vendor, 1)]), TABLES)
    assert [one.fixed.fault for one in found.cards] == [Reason.UNUSABLE, None]
    assert [one.problem for one in found.complaints] == [f"its type '{kind}' cannot be written into an assignment"]


@pytest.mark.parametrize(("name", "limits"), [("cambricon", MLU), ("mthreads", THREADS)])
def test_a_node_needs_no_allocatable_cards_where_kubelet_counts_only_their_parts(name, limits):
    vendor = port_of(name).vendor
    required, counted = parted(amounts_of(pod(limits)), standard_catalog().uncounted(TABLES))
    assert dict(required) == {"pods": 1, vendor.memory: limits[vendor.memory], vendor.cores: limits[vendor.cores]}
    assert counted == ((vendor.count, 1),)
    assert vendor.count not in node_of(vendor, [card(vendor, 0)]).allocatable


def test_other_names_of_resources_are_read():
    tables = Tables(sections=(VendorNames(dialect="hygon", cards="dcu/n", memory="dcu/m", mib_per_unit=1024),))
    port = port_of("hygon")
    assert port.names(tables).resources == {"dcu/n", "dcu/m", "hygon.com/dcucores"}
    assert port.request(pod({"dcu/n": 1, "dcu/m": 4}), tables).asks[0].memory == 4096
    assert port.request(pod(HYGON), tables) is not None


def test_a_vendor_is_on_where_its_section_is_and_has_the_names_that_are_there():
    text = "hygon: {resourceCountName: dcu/n, memoryFactor: 1024}\niluvatars: [{commonWord: BI-V150}, {x: 1}]\n"
    tables = device_tables(text)
    assert tables.sections == (
        VendorNames(dialect="hygon", cards="dcu/n", mib_per_unit=1024),
        VendorNames(dialect="iluvatar_bi_v150"),
    )
    assert [port.name for port in PORTS if port.names(tables).resources] == ["hygon", "iluvatar_bi_v150"]
    for port in PORTS:
        node = node_of(port.vendor, [card(port.vendor, 0)])
        assert (port.offer(node, Tables()), port.request(pod({port.vendor.count: 1}), Tables())) == (None, None)


def test_what_containers_of_several_types_of_one_maker_hold_excludes_the_other():
    makers = {port.name: port.vendor.maker for port in PORTS}
    assert makers["iluvatar_mr_v100"] != makers["iluvatar_bi_v100"]


def test_a_served_pod_of_biren_holds_its_card_though_the_plugin_erases_the_key():
    one = bound("biren", pod({"birentech.com/gpu": 1}), annotations={"hami.io/Biren-devices-allocated": ";"})
    port = port_of("biren")
    offer = port.offer(node_of(port.vendor, [card(port.vendor, at) for at in range(2)]), TABLES)
    held = port.held(one, offer.cards, TABLES)
    assert [each.uuid for each in held.assignment.entries] == ["Biren-1"]
    assert port.in_flight(one, TABLES).progress is Progress.WAITING
    done = one._replace(annotations={**one.annotations, hami_lock.BIND_PHASE: hami_lock.SUCCESS})
    assert port.in_flight(done, TABLES).progress is Progress.DONE


def test_a_dead_pod_that_hygons_plugin_would_serve_is_marked_as_failed():
    one = bound("hygon", pod(HYGON), phase=Phase.FAILED)
    found = port_of("hygon").in_flight(one, TABLES)
    assert (found.progress, found.cleanup) == (Progress.FAILED, {hami_lock.BIND_PHASE: hami_lock.FAILED})
    done = one._replace(annotations={**one.annotations, hami_lock.BIND_PHASE: hami_lock.SUCCESS})
    assert port_of("hygon").in_flight(done, TABLES).cleanup is None


@pytest.mark.parametrize("key", ["CAMBRICON_DSMLU_ASSIGNED", "CAMBRICON_DSMLU_ASSIGHED"])
def test_cambricons_plugin_is_told_by_both_spellings_and_answers_by_either(key):
    port, one = port_of("cambricon"), bound("cambricon", pod({}, MLU))
    assert one.annotations[key] == "false"
    assert one.annotations["CAMBRICON_DSMLU_PROFILE"] == "1_10_20"
    assert one.annotations["hami.io/cambricon-mlu-devices-allocated"] == ";node-a-cambricon-mlu-1,MLU,5120,10:;"
    waiting = port.in_flight(one, TABLES)
    assert waiting.progress is Progress.WAITING
    assert waiting.confusable == port.confusable(None)
    served = one._replace(annotations={**one.annotations, key: "true"})
    assert port.in_flight(served, TABLES).progress is Progress.DONE


def test_the_containers_of_a_pod_share_one_card_of_mthreads():
    one = bound("mthreads", pod(THREADS, {}, THREADS), cards=3)
    text = one.annotations["hami.io/mthreads-vgpu-devices-allocated"]
    assert text == "node-a-mthreads-2,Mthreads,8192,4:;;node-a-mthreads-2,Mthreads,8192,4:;"
    assert one.annotations["mthreads.com/gpu-index"] == "2"


def test_init_containers_use_the_one_card_that_the_pod_names_for_mthreads():
    asking = pod(THREADS, init=(THREADS, {**THREADS, "mthreads.com/sgpu-memory": 32}))
    sidecar, last = asking.init_containers
    asking = asking._replace(init_containers=(sidecar._replace(sidecar=True), last))
    one = bound("mthreads", asking, cards=3)
    at = one.annotations["mthreads.com/gpu-index"]
    text = one.annotations["hami.io/mthreads-vgpu-devices-allocated"]
    assert [segment.partition(",")[0] for segment in text.split(";")] == [f"node-a-mthreads-{at}"] * 3 + [""]


def test_compute_units_of_amd_are_the_cards_own():
    port = port_of("amd")
    cards = [card(port.vendor, 0, devcore=304, type="AMD Instinct MI300X VF")]
    offer = port.offer(node_of(port.vendor, cards), TABLES)
    placed = port.place(offer.cards, port.request(pod(AMD), TABLES), Policy.SPREAD)
    notes = port.annotations(placed.assignment, STAMP, TABLES)
    assert notes["hami.io/amd-devices-allocated"] == "AMD-0,AMD Instinct MI300X VF,4096,100:;"
    after = port.take(offer.cards, placed.assignment)
    assert port.tally(after)[0].cores_pct is None
    assert port.describe(placed.assignment, after)[0].text == "4096 MiB, 100 compute units"
    short = port.shortfalls(after, port.request(pod({**AMD, "amd.com/gpucores": 100}), TABLES))
    assert [(one.reason, one.wanted, one.free, one.unit) for one in short] == [(Reason.CORES, 100, 67, "%")]


@pytest.mark.parametrize("port", PORTS, ids=lambda port: port.name)
@pytest.mark.parametrize("cards", [1, 2])
@pytest.mark.parametrize("memory_mib", [None, 4000, 5000])
@pytest.mark.parametrize("cores_pct", [None, 25, 50, 100])
def test_a_wish_is_put_into_words_that_are_served(port, cards, memory_mib, cores_pct):
    for one in port.worded(CardWish(cards, memory_mib, cores_pct), TABLES):
        (ask,) = port.request(pod(dict(one.limits)), TABLES).asks
        assert ask.number == cards
        assert ask.percent == 100 if memory_mib is None and port.vendor.memory else ask.memory >= (memory_mib or 0)
        if cores_pct is not None and not (cards > 1 and port.vendor.several_are_whole):
            assert ask.cores * 100 == cores_pct * port.vendor.most_cores


def test_a_part_of_a_card_of_mthreads_is_worded_in_its_own_units():
    (found,) = port_of("mthreads").worded(CardWish(1, 5000, 50), TABLES)
    assert found.limits == {"mthreads.com/vgpu": "1", "mthreads.com/sgpu-memory": "16", "mthreads.com/sgpu-core": "8"}


def test_people_read_of_one_share_and_of_several():
    port = port_of("biren")
    cards = port.offer(node_of(port.vendor, [card(port.vendor, 0)]), TABLES).cards
    assignment = port.place(cards, port.request(pod({"birentech.com/gpu": 1}), TABLES), Policy.SPREAD).assignment
    assert [one.text for one in port.describe(assignment, cards)] == ["1 share"]


def test_compute_units_are_not_counted_where_a_quota_has_percent():
    port = port_of("amd")
    cards = port.offer(node_of(port.vendor, [card(port.vendor, 0, devcore=304)]), TABLES).cards
    assignment = port.place(cards, port.request(pod(AMD), TABLES), Policy.SPREAD).assignment
    assert port.metered(assignment, TABLES) == {"amd.com/gpumem": 4096}
    assert port.sold(cards, TABLES) == {"amd.com/gpumem": 32768}
    assert port.names(TABLES).budgeted == ("amd.com/gpumem",)


@pytest.mark.parametrize(("name", "found"), [("biren", ()), ("vastai", ()), ("hygon", ("DCU-0",))])
def test_cards_that_are_numbered_on_each_node_have_no_identity(name, found):
    port = port_of(name)
    assert port.identities(port.offer(node_of(port.vendor, [card(port.vendor, 0)]), TABLES).cards) == found


@pytest.mark.parametrize(
    ("name", "limits", "reason", "amount"),
    [
        pytest.param("mthreads", THREADS, Reason.MEMORY, 7 * 512, id="no step of memory"),
        pytest.param("hygon", {"hygon.com/dcunum": 2}, Reason.MEMORY, 4096, id="a part of each of several cards"),
        pytest.param("hygon", {"hygon.com/dcunum": 2}, Reason.CORES, 50, id="some cores of each of several cards"),
        pytest.param("amd", AMD, Reason.CORES, 0, id="no cores"),
    ],
)
def test_nobody_is_advised_to_ask_for_what_is_refused(name, limits, reason, amount):
    port = port_of(name)
    assert port.relaxed((), port.request(pod(limits), TABLES), reason, amount) is None


def test_less_of_a_card_or_fewer_cards_are_advised_where_the_plugin_serves_them():
    port = port_of("mthreads")
    less = port.relaxed((), port.request(pod(THREADS), TABLES), Reason.MEMORY, 4096)
    assert [(ask.memory, ask.percent) for ask in less.asks] == [(4096, 0)]
    port = port_of("hygon")
    fewer = port.relaxed((), port.request(pod({"hygon.com/dcunum": 2}), TABLES), Reason.CARD_COUNT, 1)
    assert [ask.number for ask in fewer.asks] == [1]
