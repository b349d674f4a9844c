"""What a waiting pod is advised was judged: whoever follows it is placed, or is told for what it waits."""

import re
from dataclasses import replace
from typing import Any

import pytest

from core.catalog import standard_catalog
from core.dialects.vgpu.table import VgpuTable
from core.explaining import explain
from core.ledger import Ledger
from core.model import Container, Node, NodeConstraints, NodeName, PodUid
from core.placing.candidates import Candidates
from core.placing.decide import NodePolicy, Shape, decide, scan, shape_of
from core.settings import Policy, Settings, Tables
from tests.support.devices import ascend
from tests.support.devices.cards import A100, TABLES, bound, container, pod, record, vgpu_node
from tests.support.devices.mindcluster import npu_bound, npu_node, npu_pod

ROOM = {"pods": "20", "cpu": "64", "memory": "256Gi"}
MIG = {"volcano.sh/vgpu-mode": "mig"}
POLICY = NodePolicy(cards=Policy.BINPACK, weight=1)
SHARED = "volcano.sh/gpu-memory"
WHOLE = "nvidia.com/gpu"
NEVER = "Not even an empty node of this cluster could take it."


def cluster(*nodes, held=()):
    made = Ledger(standard_catalog(), TABLES, Settings())
    for node in nodes:
        made.set_node(replace(node, allocatable={**node.allocatable, **ROOM}))
    for one in held:
        made.count(one)
    return made


def cards(name, *records):
    return replace(vgpu_node("".join(records)), name=NodeName(name))


def with_amounts(one: Container, **amounts):
    return one._replace(limits={**one.limits, **{key.replace("__", "/"): text for key, text in amounts.items()}})


def told(ledger, asked):
    shape: Any = shape_of(asked, ledger)
    assert isinstance(shape, Shape), shape
    return explain.sentence(explain.refused(ledger, shape, Policy.BINPACK))


def fits(ledger, asked):
    shape: Any = shape_of(asked, ledger)
    return scan(ledger, POLICY, shape) is not None


def slices(*uuids):
    """Pods that hold every slice of 1g.5gb of these cards."""
    return [bound(f"{uuid}[group1-{at}],NVIDIA,5120,0:;", name=f"{uuid}-{at}") for uuid in uuids for at in range(7)]


def test_a_lack_beside_the_cards_is_advised_together_with_that_of_memory():
    ledger = cluster(cards("n1", record("GPU-a", memory=15360)))
    asked = pod(with_amounts(container(number=1, memory=32000), cpu="1000"))
    assert told(ledger, asked).endswith("Ask for at most 64 cpu and 15360 MiB of memory.")
    assert fits(ledger, pod(with_amounts(container(number=1, memory=15360), cpu="64")))
    assert not fits(ledger, pod(with_amounts(container(number=1, memory=15360), cpu="65")))


def test_memory_that_is_no_slice_is_neither_free_nor_advised():
    one = record("GPU-m", memory=40960, model=A100, mode="mig")
    ledger = cluster(cards("node-a", one), held=slices("GPU-m"))
    text = told(ledger, pod(container(number=1, memory=5120), annotations=MIG))
    assert "1 no card with such a MIG slice left. Nearest: node-a GPU-m: no free slice has 5120 MiB" in text
    assert text.endswith("Wait until enough of a card is free.")


def test_the_largest_slice_is_advised_to_one_that_no_empty_card_could_take():
    one = record("GPU-m", memory=40960, model=A100, mode="mig")
    ledger = cluster(cards("node-a", one), held=slices("GPU-m"))
    text = told(ledger, pod(container(number=1, memory=50000), annotations=MIG))
    assert "GPU-m: 40960 of 50000 MiB in total" in text
    assert text.endswith(f"{NEVER} Ask for at most 40960 MiB of memory; it would then wait for capacity.")


def test_the_node_with_most_cards_is_the_nearest_to_one_who_asks_for_too_many():
    few = [record(f"GPU-a{at}") for at in range(2)]
    many = [record(f"GPU-v{at}") for at in range(8)]
    ledger = cluster(cards("a", *few), cards("v", *many))
    text = told(ledger, pod(container(number=9)))
    assert "2 too few cards. Nearest: v 8 of 9 cards in total" in text
    assert text.endswith("Ask for at most 8 cards in one container.")
    assert fits(ledger, pod(container(number=8)))


def test_a_single_card_is_told_as_one():
    text = told(cluster(cards("a", record("GPU-a"))), pod(container(number=2)))
    assert text.endswith("Ask for at most 1 card in one container.")


@pytest.mark.parametrize(
    ("resource", "said"),
    [
        ("volcano.sh/vgpu-numer", "volcano.sh/vgpu-numer (did you mean volcano.sh/vgpu-number?)"),
        ("example.com/foo", "example.com/foo"),
    ],
    ids=["misspelt", "unknown"],
)
def test_what_no_node_offers_is_not_waited_for(resource, said):
    ledger = cluster(cards("a", record("GPU-a")))
    asked = container(number=1, memory=1000)
    text = told(ledger, pod(asked._replace(limits={**asked.limits, resource: "1"})))
    assert text.endswith(f"{NEVER} No node offers {said}: leave it out, or ask the cluster's operator.")


def test_nobody_is_told_to_leave_the_cards_of_a_pod_out():
    ledger = cluster(Node(name=NodeName("a"), allocatable={}))
    text = told(ledger, pod(container(number=1, memory=1000)))
    assert text.endswith(f"{NEVER} No node offers volcano.sh/vgpu-number: ask the cluster's operator.")


def test_memory_of_the_node_is_advised_as_the_nodes():
    ledger = cluster(cards("a", record("GPU-a")))
    text = told(ledger, pod(with_amounts(container(number=1, memory=1000), memory="9000Gi")))
    assert "memory: 9216000Mi requested, 262144Mi in total" in text
    assert text.endswith(f"{NEVER} Ask for at most 262144Mi of the node's memory.")


def test_cpu_that_other_pods_have_is_waited_for_or_asked_less_of():
    holder = pod(with_amounts(Container(name="c", limits={}), cpu="60"), name="h", uid=PodUid("h"), node_name="a")
    ledger = cluster(cards("a", record("GPU-a")), held=[holder])
    text = told(ledger, pod(with_amounts(container(number=1, memory=1000), cpu="8")))
    assert text.endswith(
        "Nearest: a cpu: 8 requested, 4 free. Ask for at most 4 cpu, or wait until other pods free cpu."
    )


def test_what_the_runtime_class_adds_is_left_out_of_what_may_be_asked():
    """It adds the same whatever the containers ask: Kata Containers, for example, take CPU and memory of their own."""
    ledger = cluster(cards("a", record("GPU-a")))

    def asking(cpu):
        return pod(with_amounts(container(number=1, memory=1000), cpu=cpu), overhead={"cpu": "750m", "memory": "1Gi"})

    text = told(ledger, asking("63500m"))
    assert "cpu: 64.25 requested, 64 in total" in text
    assert text.endswith(f"{NEVER} Ask for at most 63.25 cpu (its RuntimeClass adds 0.75).")
    assert fits(ledger, asking("63250m"))
    assert not fits(ledger, asking("63251m"))
    assert "Ask for" not in told(ledger, pod(container(number=1, memory=1000), overhead={"cpu": "65"}))


def test_an_empty_clusters_figure_is_told_beside_that_of_the_moment():
    holder = bound("GPU-a,NVIDIA,12768,0:;", name="h")
    ledger = cluster(cards("node-a", record("GPU-a")), held=[holder])
    text = told(ledger, pod(container(number=1, memory=50000)))
    assert "GPU-a: 32768 of 50000 MiB in total" in text
    assert text.endswith(
        "Ask for at most 32768 MiB of memory; with at most 20000 MiB of memory it would be placed now."
    )
    assert fits(ledger, pod(container(number=1, memory=20000)))


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("volcano.sh/vgpu-use-gpuuuid", "GPU-xx", "Use existing cards (GPU-a, GPU-t), or leave out their list."),
        ("cardshare.io/gpu-index", "12", "Use an existing position (0 to 0), or leave out their list."),
        ("nvidia.com/use-gputype", "H100", "Accept an existing type (NVIDIA A100-SXM4-40GB, Tesla T4)."),
    ],
    ids=["uuid", "index", "type"],
)
def test_a_selector_that_no_card_meets_is_told_what_is_there(key, value, said):
    a100 = replace(cards("a", record("GPU-a", model=A100)))
    t4 = cards("t", record("GPU-t", model="NVIDIA-Tesla T4"))
    text = told(cluster(a100, t4), pod(container(number=1, memory=100), annotations={key: value}))
    assert text.endswith(said)
    assert NEVER in text
    assert "NVIDIA-NVIDIA" not in text


def test_who_excludes_every_type_is_not_told_to_name_one():
    ledger = cluster(cards("t", record("GPU-t", model="NVIDIA-Tesla T4")))
    excludes = {"nvidia.com/nouse-gputype": "T4"}
    text = told(ledger, pod(container(number=1, memory=100), annotations=excludes))
    assert text.endswith(f"{NEVER} Accept an existing type (Tesla T4).")
    named = {**excludes, "nvidia.com/use-gputype": "Tesla T4"}
    assert not fits(ledger, pod(container(number=1, memory=100), annotations=named))


def test_a_card_that_is_ill_is_waited_for_where_it_would_do():
    one = record("GPU-t", model="NVIDIA-Tesla T4")
    ill = record("GPU-v", model="NVIDIA-Tesla V100", healthy=False)
    asked = pod(container(number=1, memory=100), annotations={"nvidia.com/use-gputype": "V100"})
    assert told(cluster(cards("n1", one, ill)), asked).endswith(
        "1 no healthy card that fits. Nearest: n1 GPU-v: the device plugin says that it is unhealthy. "
        "Wait until an unhealthy card of n1 is healthy again."
    )


def test_a_card_that_is_ill_is_not_waited_for_where_it_would_not_do_either():
    one = record("GPU-t", model="NVIDIA-Tesla T4", memory=15360)
    ill = record("GPU-v", model="NVIDIA-Tesla V100", healthy=False)
    ledger = cluster(cards("n1", one, ill))
    assert told(ledger, pod(container(number=1, memory=50000))).endswith(
        "1 too little free memory on every card. Nearest: n1 GPU-v: 32768 of 50000 MiB in total. "
        f"{NEVER} Ask for at most 15360 MiB of memory."
    )
    asked = pod(container(number=1, memory=100), annotations={"nvidia.com/use-gputype": "H100"})
    assert told(ledger, asked).endswith(f"{NEVER} Accept an existing type (Tesla T4, Tesla V100).")


def test_cards_that_cannot_be_judged_are_told_to_be_so():
    asked = pod(container(number=1, memory=50000))
    broken = cards("n2", "broken")
    assert told(cluster(cards("n1", record("GPU-a")), broken), asked).endswith(
        "Not even an empty node of this cluster could take it, with its usable cards. "
        "Ask for at most 32768 MiB of memory."
    )
    elsewhere = replace(cards("n3", record("GPU-b")), labels={"zone": "b"})
    there = asked._replace(constraints=NodeConstraints(selector=(("zone", "a"),)))
    text = told(cluster(replace(broken, labels={"zone": "a"}), elsewhere), there)
    assert "Not even" not in text
    assert text.endswith("for every card. Wait until the device data of n2 is valid.")


def test_memory_that_nodes_count_too_is_advised():
    holder = pod(Container(name="c", limits={SHARED: "8000"}), name="h", uid=PodUid("h"), node_name="s")
    node = Node(name=NodeName("s"), capacity={SHARED: "22000", "volcano.sh/gpu-number": "2"})
    ledger = cluster(
        replace(node, allocatable={**node.capacity}),
        held=[holder._replace(uid=PodUid(uid), annotations={"volcano.sh/gpu-index": uid}) for uid in ("0", "1")],
    )
    text = told(ledger, pod(Container(name="c", limits={SHARED: "8000"})))
    assert text.endswith(
        "3000 of 8000 MiB free. Ask for at most 3000 MiB of memory, or wait until enough of a card is free."
    )
    assert fits(ledger, pod(Container(name="c", limits={SHARED: "3000"})))


def test_a_card_that_the_pod_avoids_is_told_as_one_that_it_does_not_accept():
    asked = pod(container(number=1, memory=100), annotations={"cardshare.io/avoid-cards": "0"})
    assert "1 no card at an index that the pod accepts" in told(cluster(cards("n1", record("GPU-a"))), asked)


def test_a_node_that_is_closed_is_waited_for_only_where_it_would_do():
    unassigned = pod(container(number=1, memory=100), name="x", uid=PodUid("x"), node_name="n1")
    ledger = cluster(cards("n1", record("GPU-a")), held=[unassigned])
    text = told(ledger, pod(container(number=1, memory=100)))
    assert "delete the pod there with unknown card use" in text
    assert text.endswith("Wait until n1 accepts new shares.")
    assert told(ledger, pod(container(number=1, memory=50000))).endswith(
        f"{NEVER} Ask for at most 32768 MiB of memory; it would then wait for capacity."
    )
    ledger.set_node(
        replace(ledger.node(NodeName("n1")), annotations=cards("n1", record("GPU-a", healthy=False)).annotations)
    )
    text = told(ledger, pod(container(number=1, memory=100)))
    assert text.endswith("Wait until n1 accepts new shares and an unhealthy card of n1 is healthy again.")


def test_a_mode_that_no_card_is_in_is_told_to_be_left_out():
    text = told(cluster(cards("n1", record("GPU-a"))), pod(container(number=1), annotations=MIG))
    assert text.endswith(f"{NEVER} Leave out the mode, or use one that a card has.")
    assert "GPU-a: wants mig, the card is in hami-core" in text


def test_types_of_all_nodes_are_told_not_only_of_the_nearest():
    nodes = [cards(f"n{at}", record(f"GPU-{at}", model=f"NVIDIA-Model {at}")) for at in range(5)]
    text = told(cluster(*nodes), pod(container(number=1), annotations={"nvidia.com/use-gputype": "H100"}))
    assert "Accept an existing type (Model 0, Model 1, Model 2, Model 3, Model 4)." in text


def test_too_many_chips_of_a_type_are_told_by_their_count_and_not_by_other_types():
    other = ascend.node("Ascend310P", name="a-other")
    meant = ascend.node("Ascend910B4", [f"U{at}" for at in range(8)], name="meant")
    ledger = cluster(other, meant)
    text = told(ledger, ascend.pod("Ascend910B4", [9]))
    assert "Nearest: meant 8 of 9 cards in total" in text
    assert text.endswith("Ask for at most 8 cards in one container.")


def test_a_full_ascend_chip_is_left_to_who_asks_for_a_template_of_what_is_free():
    ledger = cluster(ascend.node("Ascend310P"))
    holder = ascend.pod("Ascend310P", [1, 12288])
    first = decide(Candidates(ledger, POLICY), holder, shape_of(holder, ledger))  # type: ignore[arg-type]  # it asks
    assert first is not None
    ledger.reserve(first)
    text = told(ledger, ascend.pod("Ascend310P", [1, 12288], uid=PodUid("next")))
    assert text.endswith("Ask for at most 6144 MiB of memory, or wait until enough of a card is free.")
    assert fits(ledger, ascend.pod("Ascend310P", [1, 6144], uid=PodUid("next")))


def test_a_slice_that_is_handed_over_is_waited_for_and_no_card_needs_to_empty():
    ledger = cluster(npu_node(2), held=[npu_bound("0-vir01", name="a", cores=1)])
    text = told(ledger, npu_pod(4))
    assert "1 a slice of a card is being handed over" in text
    assert "Wait until the slice is handed over." in text


def test_whole_chips_are_advised_in_ai_cores():
    text = told(cluster(npu_node(2)), npu_pod(64))
    assert text.endswith(f"{NEVER} Ask for at most 16 AI cores in one container.")


def test_every_advice_that_is_for_now_is_placed_when_it_is_followed():
    held = [bound(f"GPU-{at},NVIDIA,{5000 * at},{10 * at}:;", name=f"h{at}") for at in range(1, 5)]
    ledger = cluster(cards("node-a", *(record(f"GPU-{at}") for at in range(1, 5))), held=held)
    for number, memory, cores in [(1, 40000, 0), (3, 20000, 0), (4, 20000, 95), (6, 30000, 100), (2, 28000, 90)]:
        asked: dict[str, Any] = {"number": number, "memory": memory, "cores": cores}
        found = explain.refused(ledger, shape_of(pod(container(**asked)), ledger), Policy.BINPACK)  # type: ignore[arg-type]  # it asks
        now = found.nearest[0].now
        assert now is not None, asked
        names = {"memory": "memory", "cores": "cores", "card count": "number"}
        followed = {**asked, **{names[one.figure]: one.amount for one in now.parts}}
        assert fits(ledger, pod(container(**followed))), (asked, followed)
        assert re.search(re.escape(str(now)), found.remedy)


def sharing(key, *amounts):
    limits = [{key: str(amount)} for amount in amounts]
    return pod(*(Container(name=f"c{at}", limits=one, requests=one) for at, one in enumerate(limits)))


def of_shares(**have):
    amounts = {f"volcano.sh/{key.replace('_', '-')}": str(amount) for key, amount in have.items()}
    return Node(name=NodeName("s"), capacity=amounts, allocatable=amounts)


def test_several_containers_of_a_share_pod_are_told_what_they_may_ask_together():
    ledger = cluster(of_shares(gpu_number=2, gpu_memory=16000))
    text = told(ledger, sharing(SHARED, 6000, 1000, 9000))
    assert "at most 8000 MiB in all" in text
    assert fits(ledger, sharing(SHARED, 3500, 1000, 3500))
    ledger = cluster(of_shares(gpu_number=3))
    text = told(ledger, sharing("volcano.sh/gpu-number", 2, 2))
    assert "at most 3 cards in all" in text
    assert fits(ledger, sharing("volcano.sh/gpu-number", 2, 1))
    # There is less than one for each.
    assert "in all;" not in told(ledger, sharing("volcano.sh/gpu-number", 1, 1, 1, 1))


def of_gpus(gpus):
    amounts = {WHOLE: str(gpus)}
    return Node(name=NodeName("w"), capacity=amounts, allocatable=amounts)


def asking_gpus(*gpus, first=0):
    asked = sharing(WHOLE, *gpus)._replace(scheduler_name="cardshare")
    limits = {WHOLE: str(first)}
    return asked._replace(init_containers=(Container(name="i", limits=limits, requests=limits),)) if first else asked


def test_several_containers_with_whole_gpus_are_told_what_they_may_ask_together():
    ledger = cluster(of_gpus(3))
    assert told(ledger, asking_gpus(2, 2)).endswith(
        "3 of 4 GPUs in total. " + NEVER + " Ask for at most 3 GPUs in all."
    )
    assert fits(ledger, asking_gpus(2, 1))
    # There is less than one for each.
    assert "Ask for" not in told(ledger, asking_gpus(1, 1, 1, 1))
    assert told(ledger, asking_gpus(4)).endswith("Ask for at most 3 GPUs in one container.")
    assert told(ledger, asking_gpus(1, first=4)).endswith("Ask for at most 3 GPUs in one container.")
    assert fits(ledger, asking_gpus(1, first=3))
    # Of those that do not ask, there is nothing to be told.
    assert told(ledger, asking_gpus(4, 0)).endswith("Ask for at most 3 GPUs in one container.")


@pytest.mark.parametrize(("cores", "less"), [(24, 20), (16, 10), (32, 20)])
def test_whole_chips_of_another_size_are_told_what_could_be_had_of_them(cores, less):
    ledger = cluster(npu_node(2, per_chip=10))
    text = told(ledger, npu_pod(cores))
    assert f"its chips have 10 AI cores each, and {cores} is no multiple of that" in text
    assert f"at most {less} AI cores" in text
    assert fits(ledger, npu_pod(less))


def test_less_than_the_smallest_whole_chip_is_told_what_it_has():
    ledger = cluster(npu_node(2, per_chip=10))
    assert "8 is no multiple of that; ask for 10" in told(ledger, npu_pod(8))
    assert fits(ledger, npu_pod(10))


def test_a_resource_that_no_node_offers_is_taken_for_one_that_a_node_offers():
    ledger = cluster(ascend.node("Ascend910B4", ["U0"]))
    text = told(ledger, ascend.pod("Ascend910B4-1", [1]))
    named = "huawei.com/Ascend910B4-1 (did you mean huawei.com/Ascend910B4?)"
    assert text.endswith(f"No node offers {named}: ask the cluster's operator.")
    assert fits(ledger, ascend.pod("Ascend910B4", [1]))


def test_memory_is_advised_in_the_units_in_which_manifests_count_it():
    table = VgpuTable(named=VgpuTable().named._replace(mib_per_unit=1024))
    ledger = Ledger(standard_catalog(), Tables(sections=(table,)), Settings())
    node = replace(vgpu_node(record("GPU-a", memory=22), table), name=NodeName("a"))
    ledger.set_node(replace(node, allocatable={**node.allocatable, **ROOM}))
    text = told(ledger, pod(container(number=1, memory=23)))
    assert "GPU-a: 22528 of 23552 MiB in total" in text
    assert text.endswith(f"{NEVER} Ask for at most 22 units of memory (22528 MiB).")
    assert fits(ledger, pod(container(number=1, memory=22)))


def test_a_position_on_a_node_whose_plugin_may_be_an_old_one_is_waited_for():
    beating = {"volcano.sh/node-vgpu-handshake": "Reported 2026"}
    node = replace(vgpu_node(record("GPU-a"), more=beating), name=NodeName("a"))
    text = told(cluster(node), pod(container(number=1), annotations={"cardshare.io/gpu-index": "0"}))
    assert "1 no card with a stable position. Nearest: a GPU-a: the node's device plugin may change" in text
    assert "name them with volcano.sh/vgpu-use-gpuuuid" in text
    assert text.endswith("Wait until the device plugin of a is known to keep the order of its cards.")
    assert fits(cluster(cards("a", record("GPU-a"))), pod(container(), annotations={"cardshare.io/gpu-index": "0"}))
    assert NEVER in told(cluster(node), pod(container(number=1), annotations={"cardshare.io/gpu-index": "7"}))
