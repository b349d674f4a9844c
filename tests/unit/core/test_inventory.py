"""What can never fit is said with the cluster's own figures, and only where it is certain."""

import json
from dataclasses import replace

import pytest

from core.admission import advice
from core.admission.mutate import judge_new
from core.admission.rulebook import rulebook
from core.catalog import standard_catalog
from core.inventory import Inventory, at_its_best, node_of
from core.model import Container, Node, NodeName, Pod, PodUid
from core.settings import AdmissionSettings, NeverFits, NodeKind, Settings, Tables
from tests.support.devices import ascend
from tests.support.devices.cards import TABLES as MIG_TABLES
from tests.support.devices.reviewed import reviewed

CATALOG = standard_catalog()
NUMBER, MEMORY, CORES = "volcano.sh/vgpu-number", "volcano.sh/vgpu-memory", "volcano.sh/vgpu-cores"
TYPES, INDEX = "nvidia.com/use-gputype", "cardshare.io/gpu-index"
UUIDS = "volcano.sh/vgpu-use-gpuuuid"


def vgpu_node(name, model, memory, count=2, health="true"):
    register = "".join(f"GPU-{name}-{i},10,{memory},NVIDIA-{model},{health},hami-core:" for i in range(count))
    amounts = {NUMBER: "20", MEMORY: "99999", "volcano.sh/vgpu-cores": "200"}
    return Node(
        name=NodeName(name),
        annotations={"volcano.sh/node-vgpu-register": register},
        capacity=amounts,
        allocatable=amounts,
    )


def inventory(*nodes, tables=None):
    found = Inventory()
    for node in nodes:
        offers, complaints = CATALOG.offers(node, tables or Tables(), Settings())
        found.put(node.name, offers, complaints, CATALOG.dialects)
    return found


CLUSTER = (
    *(vgpu_node(f"t{i}", "Tesla T4", 15360) for i in range(3)),
    *(vgpu_node(f"h{i}", "H100-80GB", 81920) for i in range(6)),
    vgpu_node("a0", "A100-SXM4-80GB", 81910, count=8),
)


def pod(annotations=None, **limits):
    keys = {"number": NUMBER, "memory": MEMORY, "share": "volcano.sh/gpu-memory", "core": "huawei.com/npu-core"}
    container = Container(name="main", limits={keys[key]: str(value) for key, value in limits.items()})
    return Pod(uid=PodUid("u"), namespace="n", name="p", annotations=annotations or {}, containers=(container,))


def verdict(asked, found=None, policy=None, tables=None):
    settings = Settings(admission=AdmissionSettings(never_fits=policy if policy is not None else {"*": NeverFits.DENY}))
    book = rulebook(settings, tables or Tables(), CATALOG)
    stock = (found or inventory(*CLUSTER)).stock()
    book = book.with_stock(stock)
    return advice.with_warnings(judge_new(reviewed(asked), "dana", book), book)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        pytest.param(
            pod(number=1, memory=98304),
            "CS401 cards: no card has 98304 MiB; the largest is H100-80GB with 81920 MiB on 6 nodes; "
            "ask for 81920 MiB or less",
            id="memory",
        ),
        pytest.param(
            pod({TYPES: "T4"}, number=1, memory=20000),
            "CS401 cards: no card that it accepts has 20000 MiB; the largest is Tesla T4 with 15360 MiB on 3 nodes; "
            "ask for 15360 MiB or less",
            id="memory of the types that are accepted",
        ),
        pytest.param(
            pod({TYPES: "A100-80"}, number=1),
            "CS402 annotation nvidia.com/use-gputype: found 'A100-80'; did you mean A100-SXM4-80GB? "
            "no card of that type is in this cluster; there are A100-SXM4-80GB, H100-80GB, Tesla T4",
            id="type",
        ),
        pytest.param(
            pod({INDEX: "8"}, number=1),
            "CS403 annotation cardshare.io/gpu-index: found '8'; "
            "the node with the most cards has positions 0 to 7; name at least 1 of these",
            id="index",
        ),
        pytest.param(
            pod(number=9), "CS404 cards: no node has 9 cards; the largest has 8; ask for 8 or fewer", id="count"
        ),
        pytest.param(
            pod(share=5),
            "CS405 cards: no node of this cluster offers volcano.sh/gpu-memory; ask the cluster's operator",
            id="protocol",
        ),
        pytest.param(
            pod({"volcano.sh/vgpu-mode": "mig"}, number=1),
            "CS405 cards: no node could take it, not even an empty one (mode: wants mig, the card is in hami-core); "
            "leave annotation volcano.sh/vgpu-mode out, or name what this cluster has",
            id="mode",
        ),
        pytest.param(
            pod({UUIDS: "GPU-x"}, number=1),
            f"CS406 annotation {UUIDS}: found 'GPU-x'; no node of this cluster has GPU-x; kubectl cards get shows the "
            "cards that there are",
            id="a card that is not there",
        ),
        pytest.param(
            pod({UUIDS: "GPU-t0-1,GPU-x"}, number=2),
            f"CS406 annotation {UUIDS}: found 'GPU-t0-1,GPU-x'; no node of this cluster has GPU-x; kubectl cards get "
            "shows the cards that there are",
            id="fewer cards than are asked for",
        ),
    ],
)
def test_what_can_never_fit_is_told_in_the_clusters_own_figures(asked, message):
    found = verdict(asked)
    assert found.message == message
    warned = verdict(asked, policy={})
    assert warned.allowed
    code, _, rest = message.partition(" ")
    assert [str(one) for one in warned.warnings] == [
        f"{code} as the cluster is now, this pod can never be placed: {rest}"
    ]
    assert verdict(asked, policy={"n": NeverFits.OFF}).warnings == ()


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(pod(number=1, memory=81920), id="as much as the largest"),
        pytest.param(pod(number=8), id="as many as the node with most"),
        pytest.param(pod({TYPES: "A100"}, number=1), id="a word of a type"),
        pytest.param(pod({TYPES: "NVIDIA-H100-80GB"}, number=1), id="a type as the register has it"),
        pytest.param(pod({TYPES: "T4,B200"}, number=1), id="one type of two"),
        pytest.param(pod({INDEX: "7,9"}, number=1), id="one position of two"),
        pytest.param(pod({UUIDS: "GPU-t0-1"}, number=1), id="a card by its id"),
        pytest.param(pod({UUIDS: "GPU-x,GPU-t0-1"}, number=1), id="one id of two"),
        pytest.param(pod({"volcano.sh/vgpu-nouse-gpuuuid": "GPU-x"}, number=1), id="leaving alone what is not there"),
        pytest.param(pod({"cardshare.io/avoid-cards": "GPU-x"}, number=1), id="avoiding what is not there"),
    ],
)
def test_what_could_fit_an_empty_node_is_not_spoken_of(asked):
    found = verdict(asked)
    assert (found.message, found.warnings) == ("", ())


def test_policy_is_by_namespace():
    asked = pod(number=9)
    assert not verdict(asked, policy={"n": NeverFits.DENY, "*": NeverFits.OFF}).allowed
    assert verdict(asked, policy={"m": NeverFits.DENY, "*": NeverFits.OFF}).warnings == ()
    assert verdict(asked, policy={"m": NeverFits.DENY}).warnings != ()


def test_a_card_that_is_ill_today_may_be_well_tomorrow():
    ill = vgpu_node("b0", "B200", 183000, health="false")
    assert verdict(pod(number=1, memory=98304), inventory(*CLUSTER, ill)).message == ""
    assert verdict(pod({TYPES: "B200"}, number=1), inventory(*CLUSTER, ill)).message == ""


def test_an_unhealthy_card_silences_only_what_it_could_serve():
    ill = vgpu_node("b0", "B200", 183000, health="false")
    assert verdict(pod(number=1, memory=200000), inventory(*CLUSTER, ill)).codes == ("CS401",)
    assert verdict(pod(number=9), inventory(*CLUSTER, ill)).codes == ("CS404",)
    assert verdict(pod({"volcano.sh/vgpu-mode": "mig"}, number=1), inventory(*CLUSTER, ill)).codes == ("CS405",)


def test_memory_is_not_blamed_where_cards_are_large_enough_but_too_few():
    found = verdict(pod(number=8, memory=81920))
    assert found.codes == ("CS405",)
    assert "no card has" not in found.message


def test_of_what_no_node_has_enough_the_most_is_told():
    kinds = {"T4": (15360, 3), "V100": (32768, 3), "A100": (81920, 2)}
    few = [vgpu_node(name.lower(), name, memory, count) for name, (memory, count) in kinds.items()]
    found = verdict(pod(number=3, memory=40000), inventory(*few))
    assert "(memory: 32768 of 40000 MiB, card count: 2 of 3 cards)" in found.message


def test_a_node_that_cannot_be_read_may_hold_anything():
    broken = vgpu_node("x", "T4", 1)
    register = {"volcano.sh/node-vgpu-register": "GPU-x,10,abc,NVIDIA-T4,true,hami-core:"}
    unread = Node(name=broken.name, annotations=register, capacity=broken.capacity, allocatable=broken.allocatable)
    assert verdict(pod(number=9), inventory(*CLUSTER, unread)).message == ""


@pytest.mark.parametrize("annotations", [{}, {"huawei.com/vnpu-mode": "hami-core"}], ids=["alone", "soft"])
def test_a_model_that_no_node_has_is_told_by_its_resource(annotations):
    asked = ascend.pod("Ascend310P", [1, 2048])._replace(annotations=annotations)
    told = verdict(asked, inventory(ascend.node("Ascend910B4"))).message
    assert "CS405 cards: no node of this cluster offers huawei.com/Ascend310P" in told


def test_the_annotation_for_soft_slices_is_told_where_nodes_slice_softly():
    soft = ascend.node("Ascend910B4", soft=True)
    told = verdict(ascend.pod("Ascend910B4", [1, 8192]), inventory(soft)).message
    assert (
        "not even an empty one (mode: the node slices softly; write annotation huawei.com/vnpu-mode: hami-core" in told
    )


def npu_node(name, cores_per_chip=8, chips=2, **changes):
    amounts = {"huawei.com/npu-core": str(cores_per_chip * chips)}
    bases = json.dumps({f"Ascend310P-{i}": {"IP": "", "SuperDeviceID": 0} for i in range(chips)})
    node = Node(
        name=NodeName(name),
        labels={
            "accelerator": "huawei-Ascend310P",
            "servertype": f"Ascend310P-{cores_per_chip}",
            "node.kubernetes.io/npu.chip.name": "310P3",
        },
        annotations={"baseDeviceInfos": bases},
        capacity=amounts,
        allocatable=amounts,
    )
    return replace(node, **changes)


def npu_pod(cores):
    return pod(core=cores)._replace(labels={"ring-controller.atlas": "ascend-310P"})


@pytest.mark.parametrize(
    ("cores", "nodes", "message"),
    [
        pytest.param(4, CLUSTER, "CS405 cards: no node of this cluster offers huawei.com/npu-core; ask the cluster's "
                     "operator", id="no such node"),
        pytest.param(24, [npu_node("n0"), npu_node("n1", chips=1)], "CS404 cards: no node has 24 AI cores of idle "
                     "chips that could take it; the most is 16; ask for 16 AI cores of idle chips or fewer",
                     id="more chips than any node has"),
        pytest.param(8, [npu_node("n0", cores_per_chip=10)], "CS405 cards: no node could take it, not even an empty "
                     "one (template: its chips have 10 AI cores each, and 8 is no multiple of that; ask for 10); "
                     "change what it asks for, or ask the cluster's operator for such cards",
                     id="chips of another size"),
        pytest.param(16, [npu_node("n0"), npu_node("n1", cores_per_chip=10)], "", id="all of the larger node"),
        pytest.param(4, [npu_node("n0", chips=1)], "", id="a slice"),
    ],
)  # fmt: skip
def test_npus_are_judged_by_what_their_nodes_say_themselves(cores, nodes, message):
    assert verdict(npu_pod(cores), inventory(*nodes)).message == message


def test_chips_that_may_be_back_tomorrow_count():
    # One chip was cut when its plugin started and is not listed; only a ConfigMap could tell of another.
    unlisted = npu_node("n0", annotations={"baseDeviceInfos": '{"Ascend310P-0": {}}'})
    assert verdict(npu_pod(16), inventory(unlisted)).message == ""
    ill = npu_node("n0", allocatable={"huawei.com/npu-core": "8"})
    assert verdict(npu_pod(24), inventory(ill)).message == ""


def mig_node(name, count=2):
    node = vgpu_node(name, "NVIDIA A100-SXM4-40GB", 40960, count)
    register = node.annotations["volcano.sh/node-vgpu-register"].replace("hami-core", "mig")
    return replace(node, annotations={"volcano.sh/node-vgpu-register": register})


@pytest.mark.parametrize(
    ("asked", "nodes", "told"),
    [
        pytest.param(pod(number=1, memory=6000), [mig_node("m")], True, id="there is nothing else"),
        pytest.param(pod(number=1, memory=20000), [mig_node("m"), *CLUSTER[:3]], True, id="all else is too small"),
        pytest.param(
            pod({TYPES: "A100"}, number=1, memory=6000), [mig_node("m"), *CLUSTER[:3]], True, id="another type"
        ),
        pytest.param(pod(number=1, memory=6000), [mig_node("m"), *CLUSTER[:3]], False, id="other cards take it too"),
        pytest.param(pod(number=1), [mig_node("m")], False, id="a whole card"),
    ],
)
def test_slices_are_told_of_where_only_mig_can_take_the_pod(asked, nodes, told):
    tables = MIG_TABLES
    assert (verdict(asked, inventory(*nodes, tables=tables), tables=tables).codes == ("CS113",)) is told


def test_nodes_that_say_nothing_new_are_not_summed_up_again():
    found = inventory(*CLUSTER)
    version = found.version
    for node in CLUSTER:
        offers, complaints = CATALOG.offers(node, Tables(), Settings())
        found.put(node.name, offers, complaints, CATALOG.dialects)
    assert found.version == version
    found.remove(NodeName("a0"))
    assert found.version == version + 1
    assert found.stock() == inventory(*CLUSTER[:-1]).stock()
    found.keep(frozenset({NodeName("t0")}))
    assert found.stock() == inventory(CLUSTER[0]).stock()


def test_nodes_that_offer_alike_are_judged_once():
    found = inventory(*CLUSTER).stock()
    (sold,) = found.by_dialect.values()
    assert len(sold.layouts) == 3


def test_cards_of_other_types_do_not_hide_that_too_many_are_asked_for():
    said = verdict(pod({TYPES: "A100"}, number=9), inventory(vgpu_node("h", "H100-80GB", 81920, count=9), *CLUSTER))
    (never,) = said.violations
    assert never.code == "CS404"
    assert never.remedy == "no node has 9 cards that could take it; the most is 8; ask for 8 cards or fewer"


def test_nodes_that_differ_in_nothing_but_how_often_they_split_are_told_apart():
    once = vgpu_node("o", "A30", 24576)
    register = once.annotations["volcano.sh/node-vgpu-register"].replace(",10,", ",1,")
    once = replace(once, annotations={"volcano.sh/node-vgpu-register": register})
    often = vgpu_node("p", "A30", 24576)
    two = pod(number=2, memory=100)
    two = two._replace(containers=(*two.containers, two.containers[0]._replace(name="more")))
    for nodes in ((once, often), (often, once)):
        assert verdict(two, inventory(*nodes)).message == ""
    assert not verdict(two, inventory(once)).allowed


def test_the_largest_card_is_the_largest_of_those_that_are_too_small():
    small, large = vgpu_node("s", "A30", 24576), vgpu_node("l", "NVIDIA A100-SXM4-80GB", 81920)
    found = verdict(pod({TYPES: "A30"}, number=1, memory=50000), inventory(small, large)).message
    assert "no card that it accepts has 50000 MiB; the largest is A30 with 24576 MiB on 1 node" in found


def test_a_kind_of_node_that_settings_describe_counts_like_a_node():
    there = vgpu_node("a", "H100-80GB", 81920)
    kind = NodeKind(name="h", annotations=tuple(there.annotations.items()), capacity=tuple(there.capacity.items()))
    found = inventory(vgpu_node("t", "Tesla T4", 15360), node_of(kind))
    found.keep(frozenset({NodeName("t")}))
    assert verdict(pod(number=1, memory=80000), found).message == ""
    assert verdict(pod({TYPES: "H100"}, number=2), found).message == ""
    assert verdict(pod(number=1, memory=90000), found).message == (
        "CS401 cards: no card has 90000 MiB; the largest is H100-80GB with 81920 MiB on nodes of a kind that is "
        "described in settings; ask for 81920 MiB or less"
    )


def test_with_more_kinds_of_nodes_than_are_judged_nothing_is_said():
    many = [vgpu_node(f"n{at}", "A30", 1000 + at) for at in range(513)]
    assert verdict(pod(number=1, memory=90000), inventory(*many[:512])).codes == ("CS401",)
    assert verdict(pod(number=1, memory=90000), inventory(*many)).message == ""
    crowd = pod(number=1, memory=90000)
    crowd = crowd._replace(containers=tuple(crowd.containers[0]._replace(name=f"c{at}") for at in range(43)))
    assert verdict(crowd, inventory(*many[:1])).message == ""


def test_what_a_plugin_holds_back_today_counts():
    node = vgpu_node("a", "A30", 24576)
    silent = at_its_best(replace(node, allocatable=dict.fromkeys(node.allocatable, "0")))
    assert verdict(pod(number=2), inventory(silent)).message == ""
    assert at_its_best(node) is node


def hami_node(name, mode, count=2):
    places = [{"start": at, "size": 1} for at in range(7)]
    small = {"name": "1g.5gb", "memoryMB": 4864, "core": 15, "sliceCount": 1, "placements": places}
    cards = [
        {"id": f"GPU-{name}-{at}", "index": at, "count": 7, "devmem": 40960, "devcore": 100, "type": "NVIDIA A100"}
        | {"mode": mode, "health": True, "migProfiles": [small] if mode == "mig" else []}
        for at in range(count)
    ]
    return Node(
        name=NodeName(name),
        annotations={"hami.io/node-nvidia-register": json.dumps(cards)},
        allocatable={"nvidia.com/gpu": str(7 * count)},
    )


@pytest.mark.parametrize(
    ("mode", "number", "annotations", "codes"),
    [
        pytest.param("mig", 9, {}, (), id="of cards that are cut two can do for nine"),
        pytest.param("hami-core", 9, {}, ("CS404",), id="of plain cards they cannot"),
        pytest.param("mig", 2, {"nvidia.com/use-gpuuuid": "GPU-a-0,GPU-x"}, (), id="one card that is cut is enough"),
        pytest.param("hami-core", 2, {"nvidia.com/use-gpuuuid": "GPU-a-0,GPU-x"}, ("CS406",), id="a plain one is not"),
    ],
)
def test_one_card_may_do_for_several_only_where_it_is_cut(mode, number, annotations, codes):
    limits = {"nvidia.com/gpu": str(number), "nvidia.com/gpumem": "4000"}
    asked = pod(annotations)._replace(containers=(Container("main", limits=limits),))
    assert verdict(asked, inventory(hami_node("a", mode))).codes == codes


@pytest.mark.parametrize(
    ("amounts", "why"),
    [
        pytest.param(({MEMORY: "10000"},) * 2, "memory: 5360 of 10000 MiB beside its other containers", id="memory"),
        pytest.param(
            ({MEMORY: "9", CORES: "100"}, {MEMORY: "9"}),
            "other containers: another container of the pod takes 100 % of its cores",
            id="cores",
        ),
    ],
)
def test_what_other_containers_of_the_pod_take_is_told_as_theirs(amounts, why):
    containers = tuple(Container(name=f"c{at}", limits={NUMBER: "1", **limits}) for at, limits in enumerate(amounts))
    found = verdict(pod()._replace(containers=containers), inventory(vgpu_node("t", "Tesla T4", 15360, count=1)))
    assert f"no node could take it, not even an empty one ({why}); ask for less" in found.message
