"""Whole GPUs by model: which pods are placed, on which nodes, and what the plugin alone decides."""

from dataclasses import replace
from typing import Any

import pytest

from core.catalog import standard_catalog
from core.configuration import Source, Text, decode, merge
from core.dialects.vgpu.table import VgpuTable
from core.dialects.whole_gpu.dialect import WholeGpu
from core.explaining import explain
from core.ledger import Ledger
from core.model import Container, Node, NodeName, Phase, Pod, PodUid
from core.placing.decide import Shape, node_policy, scan, shape_of
from core.port.cards import Offer
from core.port.handoff import Stamp
from core.port.refusals import Complaint, Reason
from core.settings import Policy, Settings, Tables
from core.waiting import Wait
from tests.support.devices.catalogs import catalog_of

DIALECT: Any = WholeGpu()
GPU = "nvidia.com/gpu"
USE, NO_USE = "nvidia.com/use-gputype", "nvidia.com/nouse-gputype"
A100, A10, T4 = "NVIDIA-A100-SXM4-80GB", "NVIDIA-A10", "Tesla-T4"
TABLES = Tables()


def gpu_node(product: str | None = A100, gpus: int | str = 8, *, name: str = "n", **annotations: str) -> Node:
    return Node(
        name=NodeName(name),
        labels={} if product is None else {"nvidia.com/gpu.product": product},
        annotations=annotations,
        allocatable={GPU: str(gpus), "pods": "110"},
    )


def gpu_pod(*gpus: int, name: str = "p", node_name: str = "", **annotations: str) -> Pod:
    return Pod(
        uid=PodUid(name),
        namespace="default",
        name=name,
        node_name=node_name,
        annotations={{"use": USE, "no_use": NO_USE}.get(key, key): text for key, text in annotations.items()},
        containers=tuple(Container(name=f"c{at}", limits={GPU: str(one)}) for at, one in enumerate(gpus)),
    )


def pool(node: Node) -> Any:
    offer = DIALECT.offer(node, TABLES)
    assert isinstance(offer, Offer), offer
    return offer.cards


def ledger_of(*nodes: Node, policy: Policy = Policy.BINPACK) -> Ledger:
    ledger = Ledger(catalog_of(DIALECT), TABLES, Settings(policy=policy))
    for node in nodes:
        ledger.set_node(node)
    return ledger


def chosen(ledger: Ledger, pod: Pod) -> str:
    shape: Any = shape_of(pod, ledger)
    found = scan(ledger, node_policy(ledger.settings), shape)
    return "" if found is None else found.node


@pytest.mark.parametrize(
    ("product", "wanted", "fits"),
    [
        (A100, "A100", True),
        (A100, "a100", True),
        (A100, "A100-SXM4-80GB", True),
        (A100, A100, True),
        (A100, "A10", False),
        (A100, "A100-PCIE-40GB", False),
        (A100, "A10*", True),
        (A100, "T4,A100", True),
        (A10, "A10", True),
        (A10, "A100", False),
        (T4, "T4", True),
        (f"{A100}-SHARED", "A100-SXM4-80GB", True),
        (f"{A100}-SHARED", "SHARED", True),
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "A100", True),
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "MIG-1g.5gb", True),
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "A10", False),
        (A100, "", True),
        (None, "A100", False),
    ],
)
def test_a_product_answers_to_its_words(product, wanted, fits):
    request = DIALECT.request(gpu_pod(1, use=wanted), TABLES)
    assert (DIALECT.place(pool(gpu_node(product)), request, Policy.BINPACK) is not None) is fits


@pytest.mark.parametrize(
    ("product", "unwanted", "fits"),
    [
        (T4, "T4", False),
        (A100, "T4", True),
        (A100, "A10", True),
        (f"{A100}-SHARED", "SHARED", False),
        (None, "T4", False),
    ],
)
def test_an_unwanted_model_is_left_alone(product, unwanted, fits):
    request = DIALECT.request(gpu_pod(1, no_use=unwanted), TABLES)
    assert (DIALECT.place(pool(gpu_node(product)), request, Policy.BINPACK) is not None) is fits


def test_a_register_tells_the_model_where_no_label_does():
    register = "GPU-0,10,40960,NVIDIA-NVIDIA A100-SXM4-40GB,true,hami-core:"
    (found,) = pool(gpu_node(None, **{"volcano.sh/node-vgpu-register": register}))
    assert found.label == "NVIDIA-NVIDIA A100-SXM4-40GB"
    request = DIALECT.request(gpu_pod(1, use="A100"), TABLES)
    assert DIALECT.place((found,), request, Policy.BINPACK) is not None
    mixed = register + "GPU-1,10,15360,NVIDIA-Tesla T4,true,hami-core:"
    # The plugin may take either card, so that nobody can promise one model.
    assert (
        DIALECT.place(pool(gpu_node(None, **{"volcano.sh/node-vgpu-register": mixed})), request, Policy.BINPACK) is None
    )


@pytest.mark.parametrize("annotations", [{}, {"volcano.sh/vgpu-mode": "mig"}, {"cardshare.io/gpu-index": " "}])
def test_pods_that_say_nothing_of_a_model_are_left_to_their_scheduler(annotations):
    assert DIALECT.request(gpu_pod(1, **annotations), TABLES) is None


def test_pods_that_name_a_scheduler_ask_it_for_gpus_of_any_model():
    pod = gpu_pod(2)._replace(scheduler_name="volcano")
    assert chosen(ledger_of(gpu_node(gpus=2)), pod) == "n"
    assert chosen(ledger_of(gpu_node(gpus=1)), pod) == ""
    assert DIALECT.request(pod._replace(scheduler_name="default-scheduler"), TABLES) is None


def test_pods_without_gpus_ask_nothing():
    assert DIALECT.request(gpu_pod(use="A100"), TABLES) is None
    assert DIALECT.request(gpu_pod(0, use="A100"), TABLES) is None


@pytest.mark.parametrize("key", ["cardshare.io/gpu-index", "cardshare.io/avoid-cards"])
def test_a_wish_for_single_cards_is_refused_with_the_reason(key):
    (violation,) = DIALECT.request(gpu_pod(2, use="A100", **{key: "0,2"}), TABLES)
    assert "plugin chooses the cards" in str(violation)
    assert isinstance(shape_of(gpu_pod(2, **{key: "0,2"}), ledger_of(gpu_node())), Wait)


@pytest.mark.parametrize("text", ["1.5", "-1", "x"])
def test_a_count_that_is_no_whole_number_is_refused(text):
    pod = Pod(
        uid=PodUid("p"),
        namespace="default",
        name="p",
        annotations={USE: "A100"},
        containers=(Container(name="c", limits={GPU: text}),),
    )
    (violation,) = DIALECT.request(pod, TABLES)
    assert violation.code == "CS101"


def test_other_schedulers_pods_are_counted_and_bind_nothing():
    ledger = ledger_of(gpu_node(gpus=4))
    ledger.count(gpu_pod(3, name="other", node_name="n"))
    assert chosen(ledger, gpu_pod(2, use="A100")) == ""
    assert chosen(ledger, gpu_pod(1, use="A100")) == "n"
    shape: Any = shape_of(gpu_pod(2, use="A100"), ledger)
    state = ledger.states[NodeName("n")]
    (short,) = DIALECT.shortfalls(state.offers[DIALECT.name], shape.request)
    assert (short.reason, short.wanted, short.free) == (Reason.CARD_COUNT, 2, 1)
    assert DIALECT.annotations(1, Stamp(node=NodeName("n"), now_s=1, order=1), TABLES) == {}
    assert DIALECT.confusable(shape.request) == frozenset()
    assert DIALECT.in_flight(gpu_pod(3, node_name="n"), TABLES) is None


def test_binpack_fills_a_started_node_and_spread_takes_the_emptiest():
    for policy, node in ((Policy.BINPACK, "started"), (Policy.SPREAD, "empty")):
        ledger = ledger_of(gpu_node(name="started"), gpu_node(name="empty"), policy=policy)
        ledger.count(gpu_pod(2, name="other", node_name="started"))
        assert chosen(ledger, gpu_pod(2, use="A100")) == node


def test_the_guides_jobs_pods_are_placed_one_by_one():
    ledger = ledger_of(gpu_node(name="a", gpus=4), gpu_node(name="b", gpus=4), gpu_node(T4, name="c", gpus=4))
    nodes = []
    for at in range(5):
        pod = gpu_pod(2, name=f"worker-{at}", no_use="T4")
        nodes.append(chosen(ledger, pod))
        if nodes[-1]:
            ledger.count(gpu_pod(2, name=pod.name, node_name=nodes[-1], no_use="T4"))
    assert nodes == ["a", "a", "b", "b", ""]


def test_a_node_without_the_plugin_offers_nothing_and_a_wrong_figure_is_a_complaint():
    assert DIALECT.offer(Node(name=NodeName("n")), TABLES) is None
    assert DIALECT.offer(gpu_node(gpus=0), TABLES) is None
    assert DIALECT.offer(Node(name=NodeName("n"), allocatable={"nvidia.com/mig-1g.5gb": "7"}), TABLES) is None
    assert isinstance(DIALECT.offer(gpu_node(gpus="1.5"), TABLES), Complaint)


def test_a_vgpu_plugin_that_uses_the_name_for_its_shares_has_it():
    tables = Tables(sections=(VgpuTable(named=VgpuTable().named._replace(cards=GPU)),))
    assert DIALECT.offer(gpu_node(), tables) is None
    assert DIALECT.request(gpu_pod(1, use="A100"), tables) is None
    assert DIALECT.held(gpu_pod(1, node_name="n"), (), tables) is None
    assert DIALECT.names(tables).resources == frozenset()


def test_too_much_is_told_and_people_see_the_model():
    cards = pool(gpu_node(gpus=2))
    taken = DIALECT.take(cards, 3)
    assert DIALECT.overcommitted(taken) == ("pods hold 3 of 2 GPUs",)
    (line,) = DIALECT.tally(taken)
    assert (line.used, line.total, line.label) == (3, 2, A100)
    assert "2 whole" in DIALECT.describe(2, cards)[0].text
    assert A100 in DIALECT.shortfalls(cards, DIALECT.request(gpu_pod(1, use="T4"), TABLES))[0].detail


@pytest.mark.parametrize(
    ("gpus", "fits", "told", "advice"),
    [
        ((1,), True, "", ""),
        ((1, 1), True, "", ""),
        ((3,), False, "one for each container under MPS: 1 of 3 GPUs", "Ask for at most 1 GPU in one container."),
        ((2, 1), False, "one for each container under MPS: 2 of 3 GPUs", "Ask for at most 2 GPUs in all."),
    ],
)
def test_a_container_gets_one_gpu_of_a_node_that_shares_them_by_mps(gpus, fits, told, advice):
    shared = gpu_node(f"{A100}-SHARED", 16)
    shared = replace(shared, labels={**shared.labels, "nvidia.com/gpu.sharing-strategy": "mps"})
    ledger, asked = ledger_of(shared), gpu_pod(*gpus, use="A100")
    assert (chosen(ledger, asked) == "n") is fits
    if not fits:
        shape: Any = shape_of(asked, ledger)
        text = explain.sentence(explain.refused(ledger, shape, Policy.BINPACK))
        assert told in text
        assert advice in text


def test_a_container_gets_several_gpus_by_mps_if_the_settings_say_that_the_plugin_gives_them():
    shared = gpu_node(f"{A100}-SHARED", 16)
    shared = replace(shared, labels={**shared.labels, "nvidia.com/gpu.sharing-strategy": "mps"})
    own = decode(Text(source=Source.OWN, content="mps_several_gpus: true"), standard_catalog())
    found = merge({Source.OWN: own}, standard_catalog())
    ledger = Ledger(standard_catalog(), found.tables, found.settings)
    ledger.set_node(shared)
    assert chosen(ledger, gpu_pod(3, use="A100")) == "n"
    for _ in ledger.configure(TABLES, Settings()):
        pass
    assert chosen(ledger, gpu_pod(3, use="A100")) == ""


@pytest.mark.parametrize(
    ("state", "fits"),
    [("pending", False), ("rebooting", False), ("success", True), ("failed", True)],
)
def test_nothing_new_is_placed_on_gpus_that_the_mig_manager_is_changing(state, fits):
    key = "nvidia.com/mig.config.state"
    ledger = Ledger(standard_catalog(), TABLES, Settings())
    ledger.set_node(gpu_node(gpus=4))
    ledger.count(gpu_pod(1, name="runs", node_name="n"))
    ledger.set_node(replace(gpu_node(gpus=4), labels={"nvidia.com/gpu.product": A100, key: state}))
    asked = gpu_pod(1, use="A100")
    assert (chosen(ledger, asked) == "n") is fits
    assert ledger.states[NodeName("n")].cards(DIALECT.name)[0].used == 1
    if not fits:
        shape: Any = shape_of(asked, ledger)
        told = explain.refused(ledger, shape, Policy.BINPACK)
        text = explain.sentence(told)
        assert "1 closed to new shares" in text
        assert "Wait until n accepts new shares" in text
        assert f"NVIDIA's MIG manager is changing the GPUs of the node: label {key}={state}" in str(told)
        ledger.set_node(replace(gpu_node(gpus=4), labels={"nvidia.com/gpu.product": A100, key: "success"}))
        assert chosen(ledger, asked) == "n"


def test_one_pod_uses_one_way_of_sharing():
    pod = Pod(
        uid=PodUid("p"),
        namespace="default",
        name="p",
        annotations={USE: "A100"},
        containers=(Container(name="c", limits={GPU: "1", "volcano.sh/vgpu-number": "1"}),),
    )
    found = standard_catalog().request_of(pod, TABLES, Settings())
    assert isinstance(found, tuple)
    assert found[0].code == "CS201"
    assert "nvidia.com/gpu" in found[0].found


@pytest.mark.parametrize("resource", ["nvidia.com/mig-1g.5gb", "nvidia.com/gpu.shared"])
@pytest.mark.parametrize("register", ["volcano.sh/node-vgpu-register", "hami.io/node-nvidia-register"])
def test_cards_of_which_nvidias_plugin_has_given_parts_are_not_shared_by_others(resource, register):
    hamis = '[{"id":"GPU-0","count":10,"devmem":40960,"devcore":100,"type":"NVIDIA A100","health":true}]'
    text = "GPU-0,10,40960,NVIDIA-A100,true,hami-core:" if "volcano" in register else hamis
    have = {f"volcano.sh/vgpu-{one}": "100" for one in ("number", "memory", "cores")} | {"nvidia.com/gpu": "10"}
    found = Node(name=NodeName("n"), annotations={register: text}, allocatable=have | {resource: "7", "pods": "9"})
    ledger = Ledger(standard_catalog(), Tables(), Settings())
    ledger.set_node(found)
    sharing = set(ledger.states[found.name].offers) - {DIALECT.name}
    assert sharing
    one = Container(name="c", limits={resource: "1"}, requests={resource: "1"})
    pod = Pod(uid=PodUid("m"), namespace="d", name="m", node_name="n", containers=(one,))
    ledger.count(pod)
    assert set(ledger.states[found.name].closed) == sharing
    (told,) = DIALECT.describe(0, ())
    assert told.text.startswith("parts of cards")
    ledger.count(pod._replace(phase=Phase.SUCCEEDED))
    assert not ledger.states[found.name].closed
    none = Container(name="c", limits={resource: "0"}, requests={resource: "0"})
    assert DIALECT.held(pod._replace(containers=(none,)), (), Tables()) is None


def test_a_new_node_that_would_help_is_named_with_all_its_gpus():
    ledger = ledger_of(gpu_node(gpus=4))
    ledger.count(gpu_pod(3, name="other", node_name="n"))
    shape = shape_of(gpu_pod(2, name="waits", use="A100"), ledger)
    assert isinstance(shape, Shape)
    assert explain.refused(ledger, shape, Policy.BINPACK).new == f"with 4 x {A100}"
