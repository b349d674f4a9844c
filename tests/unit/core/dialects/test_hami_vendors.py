"""HAMi's other vendors: what their plugins would not do as asked, and how far they are with a pod."""

from dataclasses import replace
from typing import Any

import pytest

from core import hami_lock
from core.admission.defaulting import complete_container
from core.admission.rulebook import rulebook
from core.catalog import standard_catalog
from core.dialects.hami_vendors.dialect import HamiVendor
from core.dialects.hami_vendors.table import VendorNames
from core.errors import quoted
from core.ledger import Ledger
from core.model import Container, NodeName, Phase, Pod, PodUid, amounts_of, parted
from core.port.cards import CardWish, Held, Offer
from core.port.handoff import Progress, Stamp
from core.port.refusals import Complaint, Reason, Violation
from core.settings import Policy, Settings, Tables
from core.sharing.card import CORDON
from core.sharing.request import Request
from core.view.cards import cards_of
from tests.support.devices.reviewed import reviewed
from tests.support.devices.texts import decode_device_config, device_tables
from tests.support.devices.vendors import PORTS, TABLES, card, mistakes, node_of, port_of, unlisted

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
SGPU = {"metax-tech.com/sgpu": 1, "metax-tech.com/vmemory": 4, "metax-tech.com/vcore": 10}
QOS, CLASS = "metax-tech.com/sgpu-qos-policy", "metax-tech.com/sgpu-app-class"
ONLINE, OFFLINE = {CLASS: "online"}, {CLASS: "offline"}
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
        pytest.param("cambricon", pod({**MLU, "cambricon.com/mlu.smlu.vmemory": 0}), "CS203", id="with none of one"),
        pytest.param("cambricon", pod({**MLU, "cambricon.com/mlu.smlu.vmemory": 0.5}), "CS101", id="a half of one"),
        pytest.param("mthreads", pod({**THREADS, "mthreads.com/sgpu-memory": 20}), "CS101", id="no step of memory"),
        pytest.param("mthreads", pod({**THREADS, "mthreads.com/sgpu-memory": 0}), "CS101", id="no memory"),
        pytest.param("mthreads", pod({**THREADS, "mthreads.com/vgpu": 2}), "CS207", id="a part of several"),
        pytest.param("mthreads", pod({"mthreads.com/vgpu": 2}, THREADS), "CS204", id="several beside another"),
        pytest.param("mthreads", pod(THREADS, init=({"mthreads.com/vgpu": 2},)), "CS204", id="several before another"),
        *[
            pytest.param("metax_sgpu", pod({**SGPU, "metax-tech.com/vmemory": text}), "CS101", id=f"{text} of a card")
            for text in ("1k", "4096M", "2Ki", "1025Ki", "0Mi", "4Ti", "2147483648", "1.5")
        ],
        pytest.param("metax_sgpu", pod(SGPU, annotations={QOS: "best"}), "CS104", id="no policy"),
        pytest.param("metax_sgpu", pod(SGPU, annotations={CLASS: ""}), "CS104", id="no class"),
        pytest.param(
            "metax_sgpu",
            pod({**SGPU, "metax-tech.com/sgpu": 2}, annotations=OFFLINE),
            "CS203",
            id="two cards of a class",
        ),
        pytest.param("iluvatar_mr_v100", pod({"iluvatar.ai/MR-V100-vgpu": 2, "iluvatar.ai/MR-V100.vMem": 4}), "CS207"),
        pytest.param(
            "neuron", pod({"aws.amazon.com/neuron": 1, "aws.amazon.com/neuroncore": 2}), "CS203", id="devices and cores"
        ),
    ],
)
def test_what_a_plugin_would_not_do_as_asked_is_refused(name, asking, code):
    found = port_of(name).request(asking, TABLES)
    assert isinstance(found, tuple)
    assert isinstance(found[0], Violation)
    assert {one.code for one in found} == {code}


@pytest.mark.parametrize(
    ("resource", "mib_per_unit"), sorted((key, mib) for port in PORTS for key, mib in port.names(TABLES).units.items())
)
def test_memory_in_bytes_is_never_a_number_of_units_however_small(resource, mib_per_unit):
    book = rulebook(Settings(), TABLES, standard_catalog())
    asking = pod({book.counts[resource]: 1, resource: "2Gi"}, {book.counts[resource]: 1, resource: "1536Mi"})
    found = book.catalog.request_of(asking, TABLES, Settings())
    assert isinstance(found, tuple)
    unit = "MiB" if mib_per_unit == 1 else f"{mib_per_unit} MiB"
    assert [(one.code, one.found, one.remedy) for one in found if one.field.endswith(resource)] == [
        ("CS101", quoted(text), f"the unit is {unit} already; write a whole number such as '{mib // mib_per_unit}'")
        for text, mib in (("2Gi", 2048), ("1536Mi", 1536))
    ]


def test_a_figure_that_the_api_server_writes_with_a_suffix_is_a_figure():
    found = port_of("cambricon").request(pod({**MLU, "cambricon.com/mlu.smlu.vmemory": "1k"}), TABLES)
    assert [one.memory for one in found.asks] == [256_000]


@pytest.mark.parametrize("name", ["mthreads", "iluvatar_bi_v150"])
def test_several_whole_cards_are_completed_once_and_may_be_asked_for(name):
    port = port_of(name)
    asking = pod({port.vendor.limits.count: 2})
    request = port.request(asking, TABLES)
    completed, warnings = port.completed(reviewed(asking), request, TABLES)
    assert not warnings
    assert completed.containers[0].limits == completed.containers[0].requests != asking.containers[0].limits
    again = port.request(completed, TABLES)
    assert not isinstance(again, tuple) or hasattr(again, "asks")
    assert port.completed(completed, again, TABLES)[0] == completed


def test_the_cores_of_one_card_of_iluvatar_become_those_of_several():
    port = port_of("iluvatar_mr_v100")
    asking = pod({"iluvatar.ai/MR-V100-vgpu": 2, "iluvatar.ai/MR-V100.vCore": 100})
    completed = port.completed(reviewed(asking), port.request(asking, TABLES), TABLES)[0]
    assert completed.containers[0].limits == {"iluvatar.ai/MR-V100-vgpu": "2", "iluvatar.ai/MR-V100.vCore": "200"}


def test_a_part_of_the_memory_of_a_card_of_mthreads_gets_no_cores():
    port = port_of("mthreads")
    asking = pod({"mthreads.com/vgpu": 1, "mthreads.com/sgpu-memory": 16})
    assert port.completed(reviewed(asking), port.request(asking, TABLES), TABLES)[0] == reviewed(asking)
    whole = pod({"mthreads.com/vgpu": 1})
    completed = port.completed(reviewed(whole), port.request(whole, TABLES), TABLES)[0]
    assert completed.containers[0].limits == {
        "mthreads.com/vgpu": "1",
        "mthreads.com/sgpu-memory": "96",
        "mthreads.com/sgpu-core": "16",
    }


def test_kubelet_asks_the_plugin_for_several_cards_of_mthreads_whatever_they_are_said_to_have():
    port = port_of("mthreads")
    asking = pod({"mthreads.com/vgpu": 2, "mthreads.com/sgpu-memory": 0, "mthreads.com/sgpu-core": 0})
    completed = port.completed(reviewed(asking), port.request(asking, TABLES), TABLES)[0]
    assert completed.containers[0].limits == completed.containers[0].requests
    assert completed.containers[0].limits == {
        "mthreads.com/vgpu": "2",
        "mthreads.com/sgpu-memory": "192",
        "mthreads.com/sgpu-core": "32",
    }


def threads_of(units, asking, sizes):
    """What the webhook makes of *asking*, and the entries that it gets on a node whose cards have *units*."""
    port, tables = port_of("mthreads"), device_tables(f"mthreads: {{memoryPerCard: {sizes}}}\n")
    request = port.request(asking, tables)
    completed = port.completed(reviewed(asking), request, tables)[0].containers[0].limits
    node = node_of(port.vendor, [card(port.vendor, at) for at in range(2)])
    capacity = {**node.capacity, "mthreads.com/sgpu-memory": str(2 * units)}
    cards = port.offer(replace(node, capacity=capacity, allocatable=capacity), tables).cards
    final = port.request(pod(dict(completed)), tables)
    found = port.place(cards, final, Policy.SPREAD)
    return completed, [one.memory for one in found.assignment.entries] if found is not None else None


@pytest.mark.parametrize(
    ("sizes", "units", "filled"),
    [
        pytest.param("[160]", 160, "160", id="one size"),
        pytest.param("160", 160, "160", id="written without a list"),
        pytest.param("[]", 96, "96", id="none"),
        pytest.param("[160, 96]", 96, None, id="the smaller of two sizes"),
        pytest.param("[96, 160]", 160, None, id="the larger of two sizes"),
    ],
)
def test_a_pod_gets_all_memory_of_a_card_of_mthreads_of_each_size(sizes, units, filled):
    completed, memory = threads_of(units, pod({"mthreads.com/vgpu": 1}), sizes)
    assert (completed.get("mthreads.com/sgpu-memory"), completed["mthreads.com/sgpu-core"]) == (filled, "16")
    assert memory == [units * 512]


@pytest.mark.parametrize(
    ("sizes", "amount", "is_served"),
    [
        ("[160]", 128, True),
        ("[160]", 160, True),
        ("[160]", 96, False),
        ("[96, 160]", 96, True),
        ("[96, 160]", 100, False),
        ("[96]", 128, False),
    ],
)
def test_a_part_of_a_card_of_mthreads_is_one_that_a_card_of_its_size_has(sizes, amount, is_served):
    port, tables = port_of("mthreads"), device_tables(f"mthreads: {{memoryPerCard: {sizes}}}\n")
    found = port.request(pod({**THREADS, "mthreads.com/sgpu-memory": amount}), tables)
    assert isinstance(found, Request) is is_served
    if is_served:
        assert found.asks[0].memory == amount * 512
    else:
        assert [one.code for one in found] == ["CS101"]


def test_who_needs_more_memory_is_told_of_the_larger_cards_of_mthreads():
    port, tables = port_of("mthreads"), device_tables("mthreads: {memoryPerCard: [96, 160]}\n")
    (found,) = port.worded(CardWish(1, 60000, 50), tables)
    assert found.limits["mthreads.com/sgpu-memory"] == "128"
    node = node_of(port.vendor, [card(port.vendor, 0)])
    capacity = {**node.capacity, "mthreads.com/sgpu-memory": "160"}
    cards = port.offer(replace(node, capacity=capacity, allocatable=capacity), tables).cards
    asking = port.request(pod({**THREADS, "mthreads.com/sgpu-memory": 160}), tables)
    assert port.relaxed(cards, asking, Reason.MEMORY, 128 * 512).asks[0].memory == 128 * 512
    assert port.relaxed(cards, asking, Reason.MEMORY, 96 * 512) is None


def test_a_size_of_cards_of_mthreads_that_is_no_number_is_refused():
    ((section, problems),) = decode_device_config("mthreads: {memoryPerCard: [96, many]}\n").wrong
    assert section.alone == "mthreads"
    assert problems == ("mthreads.memoryPerCard: found 'many'; write a whole number from 1 to 1048576",)


@pytest.mark.parametrize("port", PORTS, ids=lambda port: port.name)
def test_a_cordoned_card_takes_nothing_new_unless_kubelet_chooses_the_cards(port):
    whole = node_of(port.vendor, [card(port.vendor, at) for at in range(2)])
    closed, open_one = [one.fixed.uuid for one in port.offer(whole, TABLES).cards]
    notes = {**whole.annotations, CORDON: f" {closed} ,not-there"}
    found = port.offer(replace(whole, annotations=notes), TABLES)
    is_ignored = port.vendor.handoff.kubelet_chooses
    fault = None if is_ignored else Reason.CORDONED
    assert {one.fixed.uuid: one.fixed.fault for one in found.cards} == {closed: fault, open_one: None}
    assert [(one.problem.split(",")[0], one.remedy) for one in found.complaints if not one.closes] == [
        (f"kubelet chooses the cards of {port.vendor.word}", "cordon the node instead")
    ] * is_ignored


@pytest.mark.parametrize("port", PORTS, ids=lambda port: port.name)
def test_a_node_whose_plugin_offers_nothing_takes_nothing_and_says_so(port):
    node = node_of(port.vendor, [card(port.vendor, 0)])
    assert isinstance(port.offer(node, TABLES), Offer)
    found = port.offer(replace(node, allocatable={}), TABLES)
    assert isinstance(found, Complaint)
    assert found.dialect == port.name
    assert port.offer(replace(node, annotations={}, capacity={}), TABLES) is None


@pytest.mark.parametrize(
    ("name", "count"), [("kunlun", 1), ("neuron", 1), ("cambricon", 1), ("mthreads", 1), ("metax_gpu", 0), ("hygon", 0)]
)
def test_a_card_that_is_not_allocatable_is_reported_where_pods_may_get_it(name, count):
    port = port_of(name)
    node = node_of(port.vendor, [card(port.vendor, at) for at in range(4)])
    less = {key: str(int(text) * 3 // 4) for key, text in node.allocatable.items()}
    found = port.offer(replace(node, allocatable=less), TABLES)
    assert len(found.cards) == 4
    assert len([one for one in found.complaints if "for an unhealthy card" in one.problem]) == count


@pytest.mark.parametrize("text", ["what", "[{]", "[]", "9" * 100, "a,b:"])
def test_a_register_that_cannot_be_read_is_a_complaint(text):
    port = port_of("biren")
    node = node_of(port.vendor, [card(port.vendor, 0)])
    found = port.offer(replace(node, annotations={port.vendor.cards.source.key: text}), TABLES)
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
    required, counted = parted(amounts_of(pod(limits)), standard_catalog().words(TABLES).uncounted)
    assert dict(required) == {
        "pods": 1,
        vendor.limits.memory: limits[vendor.limits.memory],
        vendor.limits.cores: limits[vendor.limits.cores],
    }
    assert counted == ((vendor.limits.count, 1),)
    assert vendor.limits.count not in node_of(vendor, [card(vendor, 0)]).allocatable


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
        assert (port.offer(node, Tables()), port.request(pod({port.vendor.limits.count: 1}), Tables())) == (None, None)


def test_what_containers_of_several_types_of_one_maker_hold_excludes_the_other():
    makers = {port.name: port.vendor.maker for port in PORTS}
    assert makers["iluvatar_mr_v100"] != makers["iluvatar_bi_v100"]


@pytest.mark.parametrize("key", ["hami.io/Biren-devices-allocated", "hami.io/Biren-devices-to-allocate"])
def test_a_served_pod_of_biren_holds_its_card_whichever_key_the_plugin_erases(key):
    one = bound("biren", pod({"birentech.com/gpu": 1}), annotations={key: ";"})
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


SGPUS = "mthreads.com/sgpu.cores"


def threads_node(text: str) -> Any:
    found = node_of(port_of("mthreads").vendor, [card(port_of("mthreads").vendor, at) for at in range(3)])
    return replace(found, labels={**found.labels, SGPUS: text})


def test_a_card_of_mthreads_is_named_by_its_own_index():
    port = port_of("mthreads")
    cards = port.offer(threads_node("0-3-2"), TABLES).cards
    assert [(one.fixed.uuid, one.fixed.position) for one in cards] == [
        (f"node-a-mthreads-{at}", at) for at in (0, 2, 3)
    ]
    placed = port.place(cards, port.request(pod(THREADS), TABLES), Policy.SPREAD)
    notes = port.annotations(placed.assignment, STAMP, TABLES)
    assert notes["mthreads.com/gpu-index"] == "3"
    held = port.held(pod(THREADS)._replace(annotations=notes, node_name="node-a"), cards, TABLES)
    assert held == Held(assignment=placed.assignment)


@pytest.mark.parametrize("text", ["0-2", "0-1-2-3", "0-0-1", "a-b-c", "0,1,x"])
def test_cards_of_mthreads_are_closed_while_their_indices_are_not_known(text):
    found = port_of("mthreads").offer(threads_node(text), TABLES)
    assert {one.fixed.fault for one in found.cards} == {Reason.UNUSABLE}
    assert found.complaints[0].problem == (
        f"label {SGPUS} of its node is {quoted(text)}, and the capacity has 3 cards; restart the device plugin"
    )


@pytest.mark.parametrize(("number", "told"), [(1, None), (2, "2")])
def test_the_number_of_several_cards_of_mthreads_is_told_as_hamis_webhook_tells_it(number, told):
    one = bound("mthreads", pod(THREADS if number == 1 else {"mthreads.com/vgpu": number}), cards=3)
    assert one.annotations.get("mthreads.com/request-gpu-num") == told


def test_init_containers_use_the_one_card_that_the_pod_names_for_mthreads():
    asking = pod(THREADS, init=(THREADS, {**THREADS, "mthreads.com/sgpu-memory": 32}))
    sidecar, last = asking.init_containers
    asking = asking._replace(init_containers=(sidecar._replace(sidecar=True), last))
    one = bound("mthreads", asking, cards=3)
    at = one.annotations["mthreads.com/gpu-index"]
    text = one.annotations["hami.io/mthreads-vgpu-devices-allocated"]
    assert [segment.partition(",")[0] for segment in text.split(";")] == [f"node-a-mthreads-{at}"] * 3 + [""]


def sgpus(**policies: str) -> tuple[Any, ...]:
    """Idle cards of MetaX of which the register says these policies."""
    vendor = port_of("metax_sgpu").vendor
    cards = [card(vendor, at, id=uuid, policy=policy) for at, (uuid, policy) in enumerate(policies.items())]
    found: tuple[Any, ...] = port_of("metax_sgpu").offer(node_of(vendor, cards), TABLES).cards
    return found


def joined(cards: tuple[Any, ...], *pods: Pod) -> tuple[Any, ...]:
    """*cards* after *pods* got what they ask for, by what their annotations say."""
    port = port_of("metax_sgpu")
    for one in pods:
        placed = port.place(cards, port.request(one, TABLES), Policy.BINPACK)
        notes = {**one.annotations, **port.annotations(placed.assignment, STAMP, TABLES)}
        cards = port.take(cards, port.held(one._replace(annotations=notes, node_name="n"), cards, TABLES).assignment)
    return cards


def of_policy(policy: str, **limits: Any) -> Pod:
    return pod({**SGPU, **{f"metax-tech.com/{key}": one for key, one in limits.items()}}, annotations={QOS: policy})


@pytest.mark.parametrize(
    ("here", "asking", "fits"),
    [
        pytest.param([of_policy("fixed-share")], of_policy("fixed-share"), True, id="the same"),
        pytest.param([of_policy("fixed-share")], of_policy("best-effort"), False, id="another"),
        pytest.param([of_policy("fixed-share")], pod(SGPU), False, id="none"),
        pytest.param([pod(SGPU, annotations=ONLINE)], pod(SGPU, annotations=ONLINE), True, id="online, online"),
        pytest.param([pod(SGPU, annotations=ONLINE)], pod(SGPU, annotations=OFFLINE), False, id="online, offline"),
        pytest.param([pod(SGPU, annotations=OFFLINE)], pod(SGPU, annotations=ONLINE), True, id="offline, online"),
        pytest.param([pod(SGPU, annotations=OFFLINE)], of_policy("best-effort"), False, id="offline, without a class"),
        pytest.param([of_policy("best-effort")], pod(SGPU, annotations=ONLINE), False, id="without a class, online"),
        pytest.param(
            [pod({**SGPU, "metax-tech.com/vcore": 100}, annotations=OFFLINE)],
            pod(SGPU, annotations=ONLINE),
            True,
            id="all cores offline, online",
        ),
        pytest.param(
            [pod({**SGPU, "metax-tech.com/vcore": 100}, annotations=OFFLINE)],
            pod({**SGPU, "metax-tech.com/vcore": 0}, annotations=OFFLINE),
            False,
            id="all cores offline, none offline",
        ),
    ],
)
def test_who_shares_a_card_of_metax(here, asking, fits):
    port, cards = port_of("metax_sgpu"), joined(sgpus(A=""), *here)
    request = port.request(asking, TABLES)
    assert (port.place(cards, request, Policy.BINPACK) is not None) is fits
    assert [one.detail != "" or one.reason is Reason.PROMISED for one in port.shortfalls(cards, request)] == [True] * (
        not fits
    )


def test_the_register_keeps_other_policies_off_a_used_card_alone():
    port = port_of("metax_sgpu")
    request = port.request(of_policy("best-effort"), TABLES)
    idle = sgpus(A="fixed-share")
    assert port.place(idle, request, Policy.BINPACK) is not None
    (short,) = port.shortfalls(joined(idle, of_policy("best-effort")), request)
    assert (short.reason, short.detail) == (Reason.RULE, "it serves pods with policy fixed-share")


@pytest.mark.parametrize("zone", [-1, 0, "2", "²", 1.5, None, True])
def test_what_is_no_number_of_a_group_links_no_cards(zone):
    port, vendor = port_of("metax_sgpu"), port_of("metax_sgpu").vendor
    (found,) = port.offer(node_of(vendor, [card(vendor, 0, zone=zone)]), TABLES).cards
    assert (found.fixed.group, found.fixed.fault) == ("", None)


def test_containers_of_one_offline_pod_share_a_card_and_those_of_an_online_one_are_spread():
    port = port_of("metax_sgpu")
    for notes, cards in ((OFFLINE, {"B"}), (ONLINE, {"A", "B"})):
        request = port.request(pod(SGPU, SGPU, annotations=notes), TABLES)
        placed = port.place(sgpus(A="", B=""), request, Policy.BINPACK)
        assert {one.uuid for one in placed.assignment.entries} == cards


def test_an_online_pod_gets_the_card_with_the_fewest_and_whole_cards_are_linked():
    port, vendor = port_of("metax_sgpu"), port_of("metax_sgpu").vendor
    online = pod(SGPU, annotations=ONLINE)
    cards = joined(sgpus(A="", B="", C=""), online, online)
    placed = port.place(cards, port.request(online, TABLES), Policy.BINPACK)
    assert [one.uuid for one in placed.assignment.entries] == ["A"]
    zones = [card(vendor, at, id=f"Z{at}", zone=zone) for at, zone in enumerate((0, 3, 1, 1, 3, 2, 1))]
    offer = port.offer(node_of(vendor, zones), TABLES)
    for number, chosen in ((1, ["Z5"]), (2, ["Z4", "Z1"]), (3, ["Z6", "Z3", "Z2"]), (4, ["Z5", "Z4", "Z1", "Z6"])):
        request = port.request(pod({"metax-tech.com/sgpu": number}), TABLES)
        found = port.place(offer.cards, request, Policy.SPREAD).assignment.entries
        assert [one.uuid for one in found] == chosen


def test_what_metax_reads_is_written():
    one = bound("metax_sgpu", pod({}, {**SGPU, "metax-tech.com/vmemory": "1536Mi"}, annotations=ONLINE))
    assert one.annotations["hami.io/metax-sgpu-devices-allocated"] == ";Metax-SGPU-1,Metax-SGPU,1536,0:;"
    assert one.annotations["metax-tech.com/gpu-devices-allocated"] == '[[],[{"uuid":"Metax-SGPU-1","vRam":1536}]]'
    assert one.annotations["metax-tech.com/predicate-time"] == "1787303731000000000"


def test_admission_leaves_the_suffix_of_metaxs_memory_as_it_is():
    book = rulebook(Settings(), TABLES, standard_catalog())
    text = {"metax-tech.com/sgpu": "1k", "metax-tech.com/vmemory": "1536Mi", "metax-tech.com/vcore": "1k"}
    completed = complete_container(Container("c", limits=text), book)
    assert completed.limits == completed.requests == {**dict.fromkeys(text, "1000"), "metax-tech.com/vmemory": "1536Mi"}


@pytest.mark.parametrize(("notes", "added"), [({}, {QOS: "best-effort"}), (ONLINE, {}), ({QOS: "burst-share"}, {})])
def test_a_pod_of_metax_gets_the_policy_that_hamis_webhook_writes(notes, added):
    port, asking = port_of("metax_sgpu"), pod(SGPU, annotations=notes)
    completed, _ = port.completed(reviewed(asking), port.request(asking, TABLES), TABLES)
    assert completed.annotations == {**notes, **added}


@pytest.mark.parametrize(("name", "entry"), [("metax_gpu", "Metax-GPU,65536,100"), ("enflame_gcu", "GCU,100,100")])
def test_cards_that_kubelet_chooses_are_counted_and_nobody_waits_for_their_plugin(name, entry):
    port = port_of(name)
    one = bound(name, pod({port.vendor.limits.count: 1}, {}, {port.vendor.limits.count: 2}), cards=3)
    segments = one.annotations[port.vendor.handoff.allocated].split(";")
    assert [segment.count(entry) for segment in segments] == [1, 0, 2, 0]
    assert one.annotations[port.vendor.handoff.to_allocate] == one.annotations[port.vendor.handoff.allocated]
    assert port.in_flight(one, TABLES) is None
    assert port.confusable(port.request(one, TABLES)) == frozenset()
    assert standard_catalog().words(TABLES).uncounted.isdisjoint({port.vendor.limits.count})


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
        is_percent = memory_mib is None and port.vendor.limits.memory and not port.vendor.limits.rounds_up
        assert ask.percent == 100 if is_percent else ask.memory >= (memory_mib or 0)
        all_cores = port.vendor.limits.asks is not None or (cards > 1 and port.vendor.limits.several_are_whole)
        if cores_pct is not None and not all_cores:
            assert ask.cores * 100 == cores_pct * port.vendor.limits.most_cores


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


NEURON, NEURON_CORES = "aws.amazon.com/neuron", "aws.amazon.com/neuroncore"


def test_more_devices_of_aws_than_any_node_has_are_refused_at_once():
    port = port_of("neuron")
    cards = port.offer(node_of(port.vendor, [card(port.vendor, at) for at in range(4)]), TABLES).cards
    request = port.request(pod({NEURON: 2**31 - 1}), TABLES)
    assert port.place(cards, request, Policy.BINPACK) is None
    assert [one.free for one in port.shortfalls(cards, request)] == [4]


def test_only_the_container_that_mixes_devices_and_cores_of_aws_is_told():
    found = port_of("neuron").request(pod({NEURON: 1}, {NEURON_CORES: 1}, {}), TABLES)
    assert [one.field for one in found] == [f'container "c1": limit {NEURON_CORES}']


def test_a_card_of_metax_is_closed_by_the_name_that_its_register_has_for_the_field():
    port = port_of("metax_sgpu")
    found = port.offer(node_of(port.vendor, [card(port.vendor, 0, devmem="much")]), TABLES)
    assert [one.problem for one in found.complaints] == ["its register has 'much' for totalVRam"]


@pytest.mark.parametrize(
    ("name", "limits"),
    [("mthreads", THREADS), ("kunlun", {"kunlunxin.com/xpu": 1}), ("neuron", {"aws.amazon.com/neuron": 1})],
)
def test_a_pod_that_kubelet_has_accepted_is_served_where_its_plugin_never_says_so(name, limits):
    """Even if it never starts, as with an image that nobody has."""
    one = bound(name, pod(limits))
    assert port_of(name).in_flight(one, TABLES).progress is Progress.WAITING
    assert port_of(name).in_flight(one._replace(start_s=1787303731), TABLES).progress is Progress.DONE


def test_a_pod_of_cambricon_waits_until_its_plugin_says_that_it_is_served():
    one = bound("cambricon", pod(MLU))._replace(start_s=1787303731)
    assert port_of("cambricon").in_flight(one, TABLES).progress is Progress.WAITING


def test_only_a_section_that_has_a_factor_changes_the_unit_of_memory():
    tables = device_tables("cambricon: {memoryFactor: 2}\nhygon: {memoryFactor: 2}\n")
    assert port_of("hygon").named(tables).mib_per_unit == 2
    assert port_of("cambricon").named(tables).mib_per_unit == 256


def test_the_plugin_of_aws_is_told_the_name_that_cores_have():
    port, tables = port_of("neuron"), device_tables("awsneuron: {resourceCoreName: aws/cores}\n")
    node = node_of(port.vendor, [card(port.vendor, 0)])
    capacity = {**node.capacity, "aws/cores": "2"}
    cards = port.offer(replace(node, capacity=capacity, allocatable=capacity), tables).cards
    placed = port.place(cards, port.request(pod({"aws/cores": 1}), tables), Policy.BINPACK)
    assert port.annotations(placed.assignment, STAMP, tables)["NEURON_RESOURCE_TYPE"] == "aws/cores"


@pytest.mark.parametrize(
    ("name", "text", "limits", "unit"),
    [
        pytest.param("cambricon", "cambricon: {}", {**MLU, "cambricon.com/mlu.smlu.vmemory": 200}, 256, id="Cambricon"),
        pytest.param(
            "hygon", "hygon: {memoryFactor: 1024}", {"hygon.com/dcunum": 1, "hygon.com/dcumem": 40}, 1024, id="Hygon"
        ),
        pytest.param("metax_sgpu", "metax: {}", {**SGPU, "metax-tech.com/vmemory": "40000Mi"}, 1, id="MetaX"),
    ],
)
def test_who_asks_for_too_much_memory_is_told_in_the_units_that_people_write(name, text, limits, unit):
    port, tables = port_of(name), device_tables(text + "\n")
    cards = port.offer(node_of(port.vendor, [card(port.vendor, 0)]), tables).cards
    (short,) = port.shortfalls(cards, port.request(pod(limits), tables))
    assert (short.reason, short.free, short.mib_per_unit) == (Reason.MEMORY, 32768, unit)


@pytest.mark.parametrize(
    ("name", "rival", "limits"),
    [("metax_gpu", "metax_sgpu", {"metax-tech.com/gpu": 1}), ("enflame_gcu", "enflame_drs", {"enflame.com/gcu": 1})],
)
def test_a_pod_of_another_scheduler_leaves_the_node_open_where_kubelet_chooses_and_counts_cards(name, rival, limits):
    ledger = Ledger(standard_catalog(), TABLES, Settings())
    whole, parts = [node_of(port_of(each).vendor, [card(port_of(each).vendor, 0)]) for each in (name, rival)]
    have = {"pods": "9", **whole.capacity, **parts.capacity}
    ledger.set_node(replace(whole, annotations=parts.annotations, capacity=have, allocatable=have))
    ledger.count(pod(limits, node_name="node-a", scheduler_name="default-scheduler"))
    state = ledger.states[NodeName("node-a")]
    assert list(state.closed) == [rival]
    (shown,) = [one for one in cards_of(ledger).nodes[0].cards if not one.offered]
    assert (shown.id, [one.share for one in shown.held_by]) == ("chosen by kubelet", ["1 share"])
    assert state.used[next(iter(limits))] == 1


LOSSES, SCORES = "metax-tech.com/gpu.topology.losses", "metax-tech.com/gpu.topology.scores"


@pytest.mark.parametrize(
    ("notes", "number", "found"),
    [
        pytest.param({LOSSES: '{"1":10,"2":40}'}, 2, (1960, 0), id="what links lose"),
        pytest.param({LOSSES: '{"1":10}'}, 2, (2000, 0), id="nothing is lost"),
        pytest.param({LOSSES: '{"1":9000}', SCORES: '{"1":70}'}, 1, (0, 70), id="what cards gain"),
        pytest.param({LOSSES: "[", SCORES: '{"1":true,"2":-1,"x":1}'}, 1, (0, 0), id="unreadable"),
        pytest.param({}, 1, (0, 0), id="nothing"),
    ],
)
def test_nodes_with_whole_cards_of_metax_are_preferred_by_their_links(notes, number, found):
    port = port_of("metax_gpu")
    node = node_of(port.vendor, [card(port.vendor, at) for at in range(4)])
    cards = port.offer(replace(node, annotations=notes), TABLES).cards
    request = port.request(pod({"metax-tech.com/gpu": number}), TABLES)
    for policy, wanted in zip((Policy.BINPACK, Policy.SPREAD), found, strict=True):
        score = port.place(cards, request, policy).score
        assert score - port.rules.idle_score(request, 4, policy) == wanted


@pytest.mark.parametrize(
    ("here", "found"),
    [([], 0), ([OFFLINE], -100), ([ONLINE], -20), ([OFFLINE, ONLINE, ONLINE], -42)],
    ids=["nobody", "offline", "online", "several"],
)
def test_an_online_pod_of_metax_prefers_nodes_with_few(here, found):
    port = port_of("metax_sgpu")
    cards = joined(sgpus(A=""), *[pod(SGPU, annotations=one) for one in here])
    placed = port.place(cards, port.request(pod(SGPU, annotations=ONLINE), TABLES), Policy.SPREAD)
    assert round(placed.score / 10_000) == found


TOPOLOGY = {"metax-tech.com/sgpu-topology-aware": "true"}


@pytest.mark.parametrize(
    ("notes", "switch", "number", "found"),
    [
        pytest.param(TOPOLOGY, False, 2, 100, id="a whole group"),
        pytest.param(TOPOLOGY, False, 1, -10, id="parts a pair"),
        pytest.param({}, True, 2, 100, id="by the configuration"),
        pytest.param({"metax-tech.com/sgpu-topology-aware": "0"}, True, 2, 0, id="the pod decides"),
        pytest.param({}, False, 2, 0, id="nobody wants it"),
    ],
)
def test_nodes_with_shares_of_metax_are_preferred_by_their_links_if_that_is_wanted(notes, switch, number, found):
    port, vendor = port_of("metax_sgpu"), port_of("metax_sgpu").vendor
    tables = device_tables(f"metax: {{sgpuTopologyAware: {str(switch).lower()}}}")
    cards = port.offer(node_of(vendor, [card(vendor, at, zone=1) for at in range(2)]), tables).cards
    request = port.request(pod({"metax-tech.com/sgpu": number}, annotations=notes), tables)
    assert round(port.place(cards, request, Policy.BINPACK).score / 10_000) == found


def test_absent_cores_are_all_of_a_card_in_its_own_unit():
    hygon = port_of("hygon").vendor
    eighths = replace(
        hygon, limits=replace(hygon.limits, most_cores=8), cards=replace(hygon.cards, core_unit="eighths")
    )
    asked = HamiVendor(eighths).request(pod({"hygon.com/dcunum": 1}), TABLES)
    assert isinstance(asked, Request)
    assert [ask.cores for ask in asked.asks] == [8]


def test_vendors_are_told_from_each_other_and_all_are_listed():
    assert [*unlisted(), *mistakes([port.vendor for port in PORTS])] == []


@pytest.mark.parametrize(
    ("part", "field", "text", "told"),
    [
        ("handoff", "allocated", "hami.io/dcu-devices-allocated", "which is handoff.allocated of hygon too; write two"),
        ("limits", "count", "hygon.com/dcunum", "which is limits.count of hygon too; write two"),
        ("limits", "count", "nvidia.com/gpu", "which is a name of the dialect hami too; write another"),
        ("limits", "count", "va", "write a name with a domain"),
        ("limits", "count", "vastaitech.com/use-gpuuuid", "which is limits.count too; write another"),
        ("handoff", "to_allocate", "vastaitech.com/to-allocate", "write 'hami.io/NAME-devices-to-allocate'"),
        ("handoff", "to_allocate", "", "write 'hami.io/NAME-devices-to-allocate'"),
        ("handoff", "accounts", ("plugin",), "write 'system:serviceaccount:kube-system:NAME'"),
        ("", "word", "DCU", "which is word of hygon too; write two"),
        ("", "word", "V:a", "write a word without"),
        ("", "maker", "hygon", "maker is that of hygon, which has another section"),
    ],
)
def test_a_declaration_that_was_copied_and_not_changed_everywhere_is_told(part, field, text, told):
    copy = port_of("vastai").vendor
    copy = replace(copy, **{part: replace(getattr(copy, part), **{field: text})} if part else {field: text})
    found = list(mistakes([*[port.vendor for port in PORTS if port.name != "vastai"], copy]))
    assert any(one.startswith("vastai: ") and told in one for one in found), found


def test_of_any_plugin_that_erases_the_other_annotation_the_lock_sees_that_it_has_served():
    port = port_of("vastai")
    either = replace(port.vendor, handoff=replace(port.vendor.handoff, counts_either=True))
    assert list(mistakes([either])) == []
