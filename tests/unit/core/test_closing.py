"""What is closed on a node follows what is held there, whether or not the holder's protocol is offered just now."""

import json
from collections import deque
from dataclasses import replace

import pytest

from core.audit import arithmetic, rebuilt
from core.catalog import standard_catalog
from core.dialects.ascend_hami.table import SHIPPED_CHIPS, AscendTable
from core.dialects.vgpu.table import VgpuTable
from core.errors import InvariantError, NodeInvariantError
from core.ledger import Ledger, Placement
from core.model import (
    NO_PEERS,
    Container,
    Node,
    NodeConstraints,
    NodeName,
    PeerTerm,
    PeerTerms,
    Pod,
    PodUid,
    Requirement,
    Spread,
)
from core.names import MEMORY_UNIT
from core.placing.decide import Shape, node_policy, shape_of, still_fits, try_decide
from core.port.handoff import Stamp
from core.settings import DialectName, Settings, Tables
from sandbox.players.registry import DEVICE_CONFIG
from tests.support.devices.ascend import node as hami_node
from tests.support.devices.mindcluster import npu_node, npu_pod
from tests.support.devices.texts import ALL_DIALECTS, device_tables

NAME = NodeName("n")
BASE = {"pods": "110", "cpu": "64", "memory": "256Gi"}
VGPU = {"volcano.sh/vgpu-number": "20", "volcano.sh/vgpu-memory": "32000", "volcano.sh/vgpu-cores": "200"}
REGISTER = {"volcano.sh/node-vgpu-register": "".join(f"GPU-{at},10,16000,NVIDIA-T4,true,hami-core:" for at in range(2))}
GEOMETRIES = device_tables(DEVICE_CONFIG.read_text(encoding="utf-8")).of(VgpuTable).geometries
TABLES, SETTINGS = Tables(), Settings()
POLICY = node_policy(Settings())
WHOLE = {"nvidia.com/gpu": "2"}
MEMORY = {"volcano.sh/gpu-memory": "32000", "volcano.sh/gpu-number": "2"}
NUMBER = {"volcano.sh/gpu-memory": "0", "volcano.sh/gpu-number": "2"}


def gpus(*sold: dict[str, str], **annotations: str) -> Node:
    """A node that sells its GPUs like this."""
    amounts = {key: text for one in (BASE, *sold) for key, text in one.items()}
    return Node(name=NAME, capacity=amounts, allocatable=amounts, annotations=annotations)


def asks(name: str = "new", **limits: str) -> Pod:
    """A pod that asks for this; keys with "__" for the slash and "_" for a dash."""
    named = {key.replace("__", "/").replace("_", "-"): amount for key, amount in limits.items()}
    one = Container(name="c", limits=named, requests=named)
    return Pod(uid=PodUid(name), namespace="d", name=name, scheduler_name="cardshare", containers=(one,))


def held(pod: Pod, **annotations: str) -> Pod:
    notes = {key.replace("__", "/").replace("_", "-"): text for key, text in annotations.items()}
    return pod._replace(uid=PodUid("held"), name="held", node_name=NAME, annotations=notes)


SHARE = asks(**{"volcano.sh__vgpu_number": "1", "volcano.sh__vgpu_memory": "9000"})
CARD = asks(**{"nvidia.com__gpu": "1"})
PART = asks(**{"volcano.sh__gpu_memory": "9000"})
ONE = asks(**{"volcano.sh__gpu_number": "1"})
CHIP = asks(**{"huawei.com__Ascend310P": "1", "huawei.com__Ascend310P-memory": "3072"})
SLICE = npu_pod(4, scheduler_name="cardshare")
HELD = {
    "vgpu": held(SHARE, **{"volcano.sh__vgpu_ids_new": "GPU-0,NVIDIA,9000,0:"}),
    "whole": held(CARD),
    "memory": held(PART, **{"volcano.sh__gpu_index": "0"}),
    "number": held(ONE, **{"volcano.sh__gpu_index": "0"}),
    "hami": held(CHIP, **{"hami.io__Ascend310P_devices_allocated": "U0,Ascend310P,3072,0:;"}),
    "mind": held(SLICE, **{"huawei.com__npu_core": "0-vir04"}),
}
GONE = dict.fromkeys(VGPU, "0")


def ledger_of(node: Node, tables: Tables = TABLES, settings: Settings = SETTINGS) -> Ledger:
    ledger = Ledger(standard_catalog(), tables, settings)
    ledger.set_node(node)
    return ledger


def placed(ledger: Ledger, pod: Pod) -> Placement | None:
    shape = shape_of(pod, ledger)
    assert isinstance(shape, Shape), shape
    return try_decide(ledger, POLICY, pod, shape)


def full(node: Node) -> Node:
    return replace(
        node, name=NAME, capacity={**BASE, **node.capacity}, allocatable={**BASE, **node.capacity, **node.allocatable}
    )


SWAPS = {
    "its plugin restarts": ("vgpu", gpus(GONE, WHOLE, **REGISTER), CARD),
    "its register cannot be read": ("vgpu", gpus(VGPU, WHOLE, **{next(iter(REGISTER)): "GPU,1:"}), CARD),
    "its plugin is gone": ("vgpu", gpus(WHOLE), CARD),
    "whole cards to shares": ("whole", gpus(VGPU, {"nvidia.com/gpu": "0"}, **REGISTER), SHARE),
    "memory to whole cards": ("memory", gpus(NUMBER), ONE),
    "whole cards to memory": ("number", gpus(MEMORY), PART),
    "shares to memory": ("vgpu", gpus(GONE, MEMORY, **REGISTER), PART),
    "hami to mindcluster": ("hami", full(npu_node()), SLICE),
    "mindcluster to hami": ("mind", full(hami_node("Ascend310P", ("U0", "U1"))), CHIP),
}


@pytest.mark.parametrize("name", SWAPS)
def test_cards_that_are_held_in_one_way_are_not_sold_in_another(name):
    holder, node, asking = SWAPS[name]
    ledger = ledger_of(node)
    assert placed(ledger, asking) is not None, "nothing else stands against it"
    ledger.count(HELD[holder])
    assert placed(ledger, asking) is None
    ledger.release(PodUid("held"))
    assert placed(ledger, asking) is not None


def test_a_way_of_sharing_that_is_switched_off_closes_the_others_while_it_is_held():
    ledger = ledger_of(gpus(VGPU, WHOLE, **REGISTER), settings=Settings(dialects=ALL_DIALECTS - {DialectName("vgpu")}))
    ledger.count(HELD["vgpu"])
    assert placed(ledger, CARD) is None
    deque(ledger.configure(Tables(), Settings()), maxlen=0)
    assert placed(ledger, CARD) is None
    assert placed(ledger, SHARE) is not None


def test_a_pod_with_the_keys_of_two_protocols_is_counted_in_both():
    both = HELD["vgpu"]._replace(
        annotations={**HELD["vgpu"].annotations, **HELD["hami"].annotations},
        containers=(*HELD["vgpu"].containers, *CHIP.containers),
    )
    chips = hami_node("Ascend310P", ("U0",))
    node = full(
        replace(
            chips,
            annotations={**chips.annotations, **REGISTER},
            capacity=VGPU,
            allocatable={**VGPU, **chips.allocatable},
        )
    )
    ledger = ledger_of(node)
    ledger.count(both)
    state = ledger.states[NAME]
    assert state.offers[DialectName("vgpu")][0].used_memory == 9000
    assert state.offers[DialectName("ascend_hami")][0].used_memory == 3072
    assert arithmetic(ledger, NAME) == ()
    ledger.release(both.uid)
    assert ledger.states[NAME].offers == ledger_of(node).states[NAME].offers


def test_a_pod_that_names_cards_in_one_of_two_protocols_closes_the_other():
    both = HELD["vgpu"]._replace(containers=(*HELD["vgpu"].containers, *CHIP.containers))
    chips = full(hami_node("Ascend310P", ("U0",)))
    ledger = ledger_of(chips)
    ledger.count(both)
    assert placed(ledger, CHIP) is None
    holding = ledger.holding(both.uid)
    assert holding is not None
    assert "asks for huawei.com/Ascend310P" in holding.reason


EMPTY = {
    "vgpu": (gpus(VGPU, **REGISTER), SHARE, "volcano.sh__vgpu_ids_new", ("", ";;", ":", ";:")),
    "memory": (gpus(MEMORY), PART, "volcano.sh__gpu_index", ("",)),
    "number": (gpus(NUMBER), ONE, "volcano.sh__gpu_index", ("",)),
    "hami": (
        full(hami_node("Ascend310P", ("U0",))),
        CHIP,
        "hami.io__Ascend310P_devices_allocated",
        ("", ";", ";;", ":;"),
    ),
    "mind": (full(npu_node()), SLICE, "huawei.com__npu_core", ("",)),
}


@pytest.mark.parametrize("name", EMPTY)
def test_an_assignment_that_names_no_card_closes_the_node_as_a_missing_one_does(name):
    node, asking, key, texts = EMPTY[name]
    for text in texts:
        ledger = ledger_of(node)
        ledger.count(held(asking, **{key: text}))
        assert placed(ledger, asking) is None, repr(text)
        assert ledger.states[NAME].offers == ledger_of(node).states[NAME].offers


def test_an_empty_assignment_of_a_pod_that_asks_for_nothing_closes_nothing():
    ledger = ledger_of(gpus(VGPU, **REGISTER))
    ledger.count(held(asks(cpu="1"), **{"volcano.sh__vgpu_ids_new": ""}))
    assert placed(ledger, SHARE) is not None


# ---------------------------------------------------------------------- another configuration


def test_a_chip_type_that_is_added_is_counted_on_pods_that_were_there_before():
    chips = tuple(chip for chip in SHIPPED_CHIPS if chip.named.type != "Ascend310P")
    without = Tables(sections=(AscendTable(chips=chips),))
    node = full(hami_node("Ascend310P", ("U0",)))
    ledger = ledger_of(node, without)
    pods = [
        held(CHIP, **{"hami.io__Ascend310P_devices_allocated": "U0,Ascend310P,21527,0:;"}),
        held(CHIP)._replace(uid=PodUid("silent"), name="silent"),
    ]
    for one, fits in zip(pods, (False, False), strict=True):
        ledger.count(one)
        deque(ledger.configure(Tables(), Settings()), maxlen=0)
        assert (placed(ledger, CHIP) is not None) is fits
        deque(ledger.configure(without, Settings()), maxlen=0)
        ledger.release(one.uid)


def test_a_chip_type_that_is_taken_out_of_the_configuration_is_held_still():
    ledger = ledger_of(full(npu_node()), Tables(sections=(AscendTable(chips=()),)))
    ledger.count(HELD["hami"])
    assert placed(ledger, SLICE) is None


def test_gpus_that_hami_gave_are_no_chips():
    ledger = ledger_of(full(npu_node()))
    ledger.count(held(CARD, **{"hami.io__vgpu_devices_allocated": "GPU-0,NVIDIA,4096,25:;"}))
    assert placed(ledger, SLICE) is not None


def test_a_resource_that_is_renamed_is_asked_for_by_pods_that_were_there_before():
    number, memory, cores = (f"acme.example/vgpu-{what}" for what in ("number", "memory", "cores"))
    renamed = Tables(sections=(VgpuTable(named=VgpuTable().named._replace(cards=number, memory=memory, cores=cores)),))
    sold = {key.replace("volcano.sh", "acme.example"): text for key, text in VGPU.items()}
    ledger = ledger_of(gpus(VGPU, sold, **REGISTER))
    silent = held(asks(**{"acme.example__vgpu_number": "1"}))
    ledger.count(silent)
    assert placed(ledger, SHARE) is not None
    deque(ledger.configure(renamed, Settings()), maxlen=0)
    assert placed(ledger, asks(**{"acme.example__vgpu_number": "1", "acme.example__vgpu_memory": "1"})) is None


def factor(tables: int, register: int) -> tuple[Tables, Node]:
    """The configuration with one factor, and a node whose plugin started with another."""
    text = "".join(f"GPU-{at},10,{80000 // register},NVIDIA-H,true,hami-core:" for at in range(2))
    sold = {**VGPU, "volcano.sh/vgpu-memory": str(160000 // register)}
    return Tables(sections=(VgpuTable(named=VgpuTable().named._replace(mib_per_unit=tables)),)), gpus(
        sold, **{next(iter(REGISTER)): text}
    )


def grown(ledger: Ledger, tables: Tables, node: Node) -> None:
    deque(ledger.configure(tables, Settings()), maxlen=0)
    ledger.set_node(node)


VGPU_NAME = DialectName("vgpu")


def closed_cards(ledger: Ledger) -> list[str]:
    """The cards that the node's holders close; it stays open for shares on all others."""
    assert ledger.states[NAME].closed == {}
    tallies = ledger.catalog.dialects[VGPU_NAME].tally(ledger.states[NAME].offers[VGPU_NAME])
    return [one.card for one in tallies if one.note == "what a pod there takes of the card is unknown"]


def reason_of(ledger: Ledger) -> str:
    (holding,) = ledger.holders(NAME).values()
    assert holding.closed_text(NAME) in (
        "",
        f"its cards on node n accept no new shares while this pod is there: {holding.reason}",
    )
    return holding.reason


def test_holders_counted_in_another_unit_close_their_cards_until_they_are_gone():
    ledger = ledger_of(factor(10, 10)[1], factor(10, 10)[0])
    ledger.count(held(SHARE, **{"volcano.sh__vgpu_ids_new": "GPU-0,NVIDIA,8000,0:"}))
    grown(ledger, *factor(1, 1))
    assert "units of 10 MiB" in reason_of(ledger)
    assert closed_cards(ledger) == ["GPU-0"]
    both = asks(**{"volcano.sh__vgpu_number": "2", "volcano.sh__vgpu_memory": "9000"})
    assert placed(ledger, both) is None
    elsewhere = placed(ledger, SHARE)
    assert elsewhere is not None
    assert [one.uuid for one in elsewhere.assignment.entries] == ["GPU-1"]
    # As far as people see; quotas count what the pod asked for.
    (holding,) = ledger.holders(NAME).values()
    assert ledger.metered(VGPU_NAME, holding.assignment)["volcano.sh/vgpu-memory"] == 8000
    grown(ledger, *factor(10, 10))
    assert (closed_cards(ledger), reason_of(ledger)) == ([], "")
    grown(ledger, *factor(1, 1))
    ledger.release(PodUid("held"))
    assert placed(ledger, both) is not None


def test_a_register_in_another_unit_closes_the_card_whatever_the_configuration_says():
    tables, node = factor(1, 10)
    ledger = ledger_of(node, tables)
    ledger.count(held(SHARE, **{"volcano.sh__vgpu_ids_new": "GPU-0,NVIDIA,7000,0:"}))
    ledger.set_node(factor(1, 1)[1])
    assert "7000 of the 8000 units that GPU-0 had, and it has 80000" in reason_of(ledger)
    assert closed_cards(ledger) == ["GPU-0"]
    # The plugin goes and comes back as it was.
    ledger.set_node(replace(node, allocatable=BASE))
    ledger.set_node(node)
    assert (closed_cards(ledger), reason_of(ledger)) == ([], "")


def test_a_driver_that_reports_some_memory_less_closes_nothing():
    ledger = ledger_of(gpus(VGPU, **REGISTER))
    ledger.count(HELD["vgpu"])
    ledger.set_node(gpus(VGPU, **{key: text.replace("16000", "15800") for key, text in REGISTER.items()}))
    assert closed_cards(ledger) == []


def test_the_unit_is_written_with_the_binding_and_read_by_another_process():
    tables, node = factor(10, 10)
    ledger = ledger_of(node, tables)
    placement = placed(ledger, asks(**{"volcano.sh__vgpu_number": "2", "volcano.sh__vgpu_memory": "7000"}))
    assert placement is not None
    ledger.reserve(placement)
    told = ledger.told_of(placement)
    assert told == {MEMORY_UNIT: "10:8000,8000"}
    dialect = ledger.catalog.dialects[DialectName("vgpu")]
    written = dialect.annotations(placement.assignment, Stamp(node=NAME, now_s=1, order=1), tables)
    bound = HELD["vgpu"]._replace(annotations={**written, **told})
    for later, closes in ((factor(10, 10), False), (factor(1, 1), True), (factor(10, 1), True), (factor(1, 10), True)):
        fresh = rebuilt(standard_catalog(), later[0], Settings(), [later[1]], [bound])
        assert closed_cards(fresh) == (["GPU-0", "GPU-1"] if closes else []), later[0]


@pytest.mark.parametrize("text", ["", "x", "10", "10:", "10:1,2,3", "10:x,1", "1" * 40 + ":1,1", ":,", "10:-1,1"])
def test_a_unit_that_cannot_be_read_is_none(text):
    tables, node = factor(10, 10)
    bound = HELD["vgpu"]._replace(annotations={**HELD["vgpu"].annotations, MEMORY_UNIT: text})
    assert rebuilt(standard_catalog(), tables, Settings(), [node], [bound]).states[NAME].closed == {}


def test_a_pod_in_another_unit_that_has_no_card_of_the_node_closes_none():
    ledger = ledger_of(factor(10, 10)[1], factor(10, 10)[0])
    ledger.count(held(SHARE, **{"volcano.sh__vgpu_ids_new": "GPU-9,NVIDIA,8000,0:"}))
    grown(ledger, *factor(1, 1))
    assert (closed_cards(ledger), reason_of(ledger)) == ([], "")


HAMI = {
    "hami.io/node-nvidia-register": json.dumps(
        [
            {
                "id": "GPU-0",
                "count": 10,
                "devmem": 16000,
                "devcore": 100,
                "type": "NVIDIA-T4",
                "mode": "hami-core",
                "health": True,
            }
        ]
    )
}
OF_NVIDIA = {
    "vgpu": (gpus(VGPU, **REGISTER), SHARE),
    "whole_gpu": (gpus(WHOLE), CARD),
    "gpu_memory": (gpus(MEMORY), PART),
    "gpu_number": (gpus(NUMBER), ONE),
    "hami": (gpus({"nvidia.com/gpu": "10"}, **HAMI), asks(**{"nvidia.com__gpu": "1", "nvidia.com__gpumem": "9000"})),
}


@pytest.mark.parametrize("name", [one.name for one in standard_catalog().specs if one.cards == "nvidia"])
def test_nothing_new_is_placed_on_gpus_that_the_mig_manager_is_changing_however_they_are_shared(name):
    node, asking = OF_NVIDIA[name]
    ledger = ledger_of(node)
    assert placed(ledger, asking) is not None
    for state, fits in (("pending", False), ("rebooting", False), ("failed", True), ("success", True)):
        ledger.set_node(replace(node, labels={"nvidia.com/mig.config.state": state}))
        assert (placed(ledger, asking) is not None) is fits, state
        assert (f"label nvidia.com/mig.config.state={state}" in ledger.states[NAME].closed.get(name, "")) is not fits


# ---------------------------------------------------------------------- one node's contradiction


@pytest.mark.parametrize(
    ("model", "memory", "asked", "count"),
    [
        ("NVIDIA A100-SXM4-40GB", 40536, 15000, 2),
        ("NVIDIA A100-SXM4-40GB", 40536, 20268, 2),
        ("NVIDIA A100-SXM4-40GB", 40536, 40536, 1),
        ("NVIDIA A30", 24060, 5500, 4),
        ("NVIDIA A30", 24060, 6015, 4),
    ],
)
def test_slices_that_are_larger_together_than_a_driver_reports_are_placed(model, memory, asked, count):
    register = f"GPU-0,10,{memory},NVIDIA-{model},true,mig:"
    sold = {**VGPU, "volcano.sh/vgpu-memory": str(memory)}
    ledger = ledger_of(
        gpus(sold, **{next(iter(REGISTER)): register}), Tables(sections=(VgpuTable(geometries=GEOMETRIES),))
    )
    for at in range(count):
        found = placed(
            ledger, asks(f"p{at}", **{"volcano.sh__vgpu_number": "1", "volcano.sh__vgpu_memory": str(asked)})
        )
        assert found is not None
        ledger.reserve(found)
    assert ledger.overcommitted(NAME) == ()
    assert placed(ledger, SHARE) is None


def test_a_slice_on_a_card_that_is_not_cut_takes_the_card_alone():
    ledger = ledger_of(gpus(VGPU, **REGISTER))
    ledger.count(held(SHARE, **{"volcano.sh__vgpu_ids_new": "GPU-0[group1-0],NVIDIA,1000,0:"}))
    for name in ("a", "b"):
        found = placed(ledger, SHARE._replace(uid=PodUid(name)))
        if name == "a":
            assert found is not None
            assert found.assignment.entries[0].uuid == "GPU-1"
            ledger.reserve(found)
        else:
            assert found is None


def test_a_node_that_is_set_aside_takes_nothing_until_its_cards_change():
    node = gpus(VGPU, **REGISTER)
    ledger = ledger_of(node)
    found = placed(ledger, SHARE)
    assert found is not None
    ledger.set_aside(NAME, "it does not add up")
    assert placed(ledger, SHARE) is None
    assert {one.problem for one in ledger.states[NAME].complaints} == {"it does not add up"}
    with pytest.raises(NodeInvariantError, match="it does not add up"):
        ledger.reserve(found)
    ledger.count(HELD["vgpu"])
    ledger.release(PodUid("held"))
    assert placed(ledger, SHARE) is None
    ledger.set_node(replace(node, labels={"a": "b"}))
    assert placed(ledger, SHARE) is None
    ledger.set_node(gpus(VGPU, **{key: text.replace("16000", "15000") for key, text in REGISTER.items()}))
    assert placed(ledger, SHARE) is not None
    assert ledger.aside == {}
    ledger.set_aside(NAME, "again")
    deque(ledger.configure(Tables(), Settings()), maxlen=0)
    assert ledger.states[NAME].closed == {}


def test_what_one_node_cannot_keep_is_told_of_that_node():
    ledger = ledger_of(gpus(VGPU, **REGISTER))
    found = placed(ledger, SHARE)
    assert found is not None
    large = found.assignment.charges[0]._replace(memory=20000)
    with pytest.raises(NodeInvariantError, match="GPU-0 holds 20000 MiB of 16000 MiB") as caught:
        ledger.reserve(found._replace(assignment=found.assignment._replace(charges=(large,))))
    assert caught.value.node == NAME
    with pytest.raises(InvariantError) as general:
        ledger.reserve(found._replace(node=NodeName("ghost")))
    assert not isinstance(general.value, NodeInvariantError)


def test_a_promise_does_not_stand_in_the_way_of_itself():
    ledger = ledger_of(gpus(VGPU, WHOLE, **REGISTER))
    found = placed(ledger, SHARE)
    assert found is not None
    ledger.reserve(found)
    shape = shape_of(SHARE, ledger)
    assert isinstance(shape, Shape)
    assert still_fits(ledger, shape, found)
    ledger.set_node(gpus(GONE, WHOLE, **REGISTER))
    assert not still_fits(ledger, shape, found)


def web(name: str, host: str, peers: PeerTerms = NO_PEERS) -> Pod:
    """A pod for that host, which counts for terms about pods of the web."""
    placed_at = NodeConstraints(selector=(("host", host),))
    return CARD._replace(uid=PodUid(name), name=name, labels={"app": "web"}, constraints=placed_at, peers=peers)


BY_WEB = (Requirement(key="app", operator="In", values=("web",)),)
ONE_CARD = {"volcano.sh__vgpu_number": "1", "volcano.sh__vgpu_memory": "1000"}
LATER = {
    "the last cores of its card": (
        asks("first", **ONE_CARD),
        [asks(f"p{part}", **ONE_CARD, **{"volcano.sh__vgpu_cores": part}) for part in ("60", "40")],
    ),
    "more of another card, which would be better now": (
        asks("first", **ONE_CARD),
        [SHARE._replace(annotations={"volcano.sh/vgpu-use-gpuuuid": "GPU-1"})],
    ),
    "a place that counts for its spread": (
        web("first", "n", PeerTerms(spread=(Spread(topology_key="host", selector=BY_WEB, by_affinity=False),))),
        [web("later", "n")],
    ),
    "a place that it would have had to be near to": (
        web("first", "n", PeerTerms(affinity=(PeerTerm(topology_key="host", selector=BY_WEB),))),
        [web("later", "m")],
    ),
}


@pytest.mark.parametrize("name", LATER)
def test_a_promise_stands_whatever_is_promised_after_it(name):
    first, later = LATER[name]
    ledger = ledger_of(replace(gpus(VGPU, WHOLE, **REGISTER), labels={"host": "n"}))
    ledger.set_node(replace(gpus(WHOLE), name=NodeName("m"), labels={"host": "m"}))
    promised = []
    for pod in (first, *later):
        found = placed(ledger, pod)
        assert found is not None
        ledger.reserve(found)
        promised.append((shape_of(pod, ledger), found))
    for shape, found in promised:
        assert isinstance(shape, Shape)
        assert still_fits(ledger, shape, found)


def test_a_promise_falls_if_a_pod_that_must_be_apart_from_it_has_come():
    ledger = ledger_of(replace(gpus(WHOLE), labels={"host": "n"}))
    first = web("first", "n", PeerTerms(anti_affinity=(PeerTerm(topology_key="host", selector=BY_WEB),)))
    found, shape = placed(ledger, first), shape_of(first, ledger)
    assert found is not None
    assert isinstance(shape, Shape)
    ledger.reserve(found)
    assert still_fits(ledger, shape, found)
    ledger.count(web("another scheduler's", "n")._replace(node_name=NAME))
    assert not still_fits(ledger, shape, found)


@pytest.mark.parametrize(("card", "stands"), [("GPU-0", False), ("GPU-1", True)])
def test_a_promise_of_a_card_alone_falls_if_another_pod_has_come_to_it(card, stands):
    ledger = ledger_of(gpus(VGPU, WHOLE, **REGISTER))
    alone = asks("alone", **ONE_CARD, **{"volcano.sh__vgpu_cores": "100"})
    found, shape = placed(ledger, alone), shape_of(alone, ledger)
    assert found is not None
    assert isinstance(shape, Shape)
    assert found.assignment.entries[0].uuid == "GPU-0"
    ledger.reserve(found)
    ledger.count(held(SHARE, **{"volcano.sh__vgpu_ids_new": f"{card},NVIDIA,9000,0:"}))
    assert still_fits(ledger, shape, found) == stands
