"""What looks like a key of ours and is none is told with the one that was meant; keys of others are let be."""

import pytest

from core.admission.advice import strange, with_warnings
from core.admission.mutate import judge_new
from core.admission.rulebook import rulebook
from core.catalog import standard_catalog
from core.dialects.hami_vendors.table import VendorNames
from core.dialects.vgpu.table import VgpuTable
from core.model import Container, Pod, PodUid
from core.settings import Settings, Tables
from tests.support.devices import vendors
from tests.support.devices.reviewed import reviewed

BOOK = rulebook(Settings(), Tables(), standard_catalog())


def pod(annotations=(), limits=(), requests=()):
    main = Container(name="main", limits=dict.fromkeys(limits, "1"), requests=dict.fromkeys(requests, "1"))
    return Pod(
        uid=PodUid("u"), namespace="n", name="p", annotations=dict.fromkeys(annotations, "1"), containers=(main,)
    )


def told(asked, before=None, book=BOOK):
    return [one.text for one in strange(reviewed(asked), reviewed(before) if before is not None else None, book)]


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("cardshare.io/gpu-indx", "cardshare.io/gpu-index"),
        ("volcano.sh/vgpu-mod", "volcano.sh/vgpu-mode"),
        ("volcano.sh/vgpu-Mode", "volcano.sh/vgpu-mode"),
        ("nvidia.com/use-gputyp", "nvidia.com/use-gputype"),
        ("nvidia.com/nouse-gputypes", "nvidia.com/nouse-gputype"),
        ("volcano.sh/vgpu-use-gpuuid", "volcano.sh/vgpu-use-gpuuuid"),
        ("huawei.com/vnpu-mod", "huawei.com/vnpu-mode"),
        ("hami.io/use-Ascend910B4-1-uid", "hami.io/use-Ascend910B4-1-uuid"),
    ],
)
def test_an_annotation_is_told_with_the_key_that_was_meant(key, meant):
    assert told(pod([key])) == [f"annotation {key}: this key is unknown; did you mean {meant}?"]


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("volcano.sh/vgpu-memroy", "volcano.sh/vgpu-memory"),
        ("volcano.sh/vgpu-mem", "volcano.sh/vgpu-memory"),
        ("volcano.sh/vgpu-core", "volcano.sh/vgpu-cores"),
        ("huawei.com/Ascend910B4-memry", "huawei.com/Ascend910B4-memory"),
        ("huawei.com/Ascend910b4", "huawei.com/Ascend910B4"),
        ("huawei.com/Ascned310P", "huawei.com/Ascend310P"),
        ("huawei.com/npu-cores", "huawei.com/npu-core"),
    ],
)
def test_a_resource_is_told_with_the_one_that_was_meant(key, meant):
    words = "no device plugin is known to offer this resource"
    assert told(pod(limits=[key], requests=[key])) == [f'container "main": limit {key}: {words}; did you mean {meant}?']


@pytest.mark.parametrize("port", vendors.PORTS, ids=lambda port: port.name)
def test_what_is_misspelt_of_a_vendor_is_told_where_hami_has_its_section(port):
    book = rulebook(Settings(), vendors.TABLES, standard_catalog())
    for key in port.own_wishes:
        assert told(pod([f"{key}s"]), book=book) == [f"annotation {key}s: this key is unknown; did you mean {key}?"]
    for key in port.names(vendors.TABLES).resources:
        (text,) = told(pod(limits=[f"{key}s"]), book=book)
        assert text.endswith(f"did you mean {key}?")
        assert told(pod(limits=[f"{key}s"])) == []


@pytest.mark.parametrize(
    ("key", "resource", "meant"),
    [
        ("nvidia.com/use-gpu-type", "volcano.sh/vgpu-number", "nvidia.com/use-gputype"),
        ("hami.io/use-gputype", "volcano.sh/vgpu-number", "nvidia.com/use-gputype"),
        ("hami.io/use-gpu-type", "nvidia.com/gpumem", "nvidia.com/use-gputype"),
        ("volcano.sh/nouse-gputype", "volcano.sh/gpu-memory", "nvidia.com/nouse-gputype"),
        ("hygon.com/use-dcutype", "nvidia.com/gpumem", "nvidia.com/use-gputype"),
        ("nvidia.com/no-use-npu-uuid", "nvidia.com/gpumem", "nvidia.com/nouse-gpuuuid"),
        ("hami.io/use-gpuuuid", "volcano.sh/vgpu-number", "volcano.sh/vgpu-use-gpuuuid"),
        ("hami.io/use-gpuuuid", "nvidia.com/gpumem", "nvidia.com/use-gpuuuid"),
        ("hami.io/vgpu-mode", "nvidia.com/gpumem", "nvidia.com/vgpu-mode"),
        ("hami.sh/vgpu-mode", "volcano.sh/vgpu-number", "volcano.sh/vgpu-mode"),
        ("nvidia.com/gpu-scheduler-policy", "nvidia.com/gpumem", "hami.io/gpu-scheduler-policy"),
        ("volcano.com/gpu-index", "volcano.sh/gpu-number", "cardshare.io/gpu-index"),
    ],
)
def test_the_right_words_under_a_wrong_prefix_are_told_on_pods_with_cards(key, resource, meant):
    assert told(pod([key], limits=[resource])) == [f"annotation {key}: this key is unknown; did you mean {meant}?"]
    if not key.startswith(tuple(BOOK.key_prefixes)):
        assert told(pod([key], limits=["cpu"])) == []
    of_others = pod([key], limits=[resource])._replace(scheduler_name="hami-scheduler")
    assert key.startswith(tuple(BOOK.key_prefixes)) or told(of_others) == []


@pytest.mark.parametrize("resource", ["volcano.sh/vgpu-number", "nvidia.com/gpumem"])
@pytest.mark.parametrize("key", ["nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb"])
def test_a_resource_of_another_plugin_is_told_beside_shares(key, resource):
    (text,) = told(pod(limits=[key, resource]))
    assert text.startswith(f'container "main": limit {key}: cardshare does not support this resource; leave it out')
    assert told(pod(limits=[key])) == []


def test_a_resource_under_a_prefix_that_nobody_has_is_told_wherever_it_stands():
    for key in ("volcano.com/vgpu-number", "volcano.com/gpu-memory"):
        (text,) = told(pod(limits=[key]))
        assert text.endswith(f"cardshare does not support this resource; write volcano.sh/{key.partition('/')[2]}")


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("volcano.com/gpu-mem", "volcano.sh/gpu-memory"),
        ("volcano.com/vgpu-numbr", "volcano.sh/vgpu-number"),
        ("volcano.com/gpu", "one of volcano.sh/gpu-memory, volcano.sh/gpu-number, volcano.sh/vgpu-cores, "),
    ],
)
def test_a_resource_under_that_prefix_is_told_with_one_that_exists(key, meant):
    (text,) = told(pod(limits=[key]))
    assert f"cardshare does not support this resource; write {meant}" in text


def test_under_our_own_prefix_every_strange_key_is_told():
    (text,) = told(pod(["cardshare.io/x"]))
    assert text.endswith("this key is unknown; write one of cardshare.io/avoid-cards, cardshare.io/gpu-index")


OF_OTHERS = [
    # Volcano's own, on pods of its jobs and of its schedulers.
    "volcano.sh/job-name", "volcano.sh/job-namespace", "volcano.sh/job-version", "volcano.sh/job-retry-count",
    "volcano.sh/queue-name", "volcano.sh/task-spec", "volcano.sh/task-index", "volcano.sh/template-uid",
    "volcano.sh/createdByJobTemplate", "volcano.sh/preemptable", "volcano.sh/cooldown-time",
    "volcano.sh/revocable-zone", "volcano.sh/jdb-min-available", "volcano.sh/jdb-max-unavailable",
    "volcano.sh/numa-topology-policy", "volcano.sh/qos-level", "volcano.sh/network-topology-mode",
    "volcano.sh/network-topology-highest-tier", "volcano.sh/role-name", "volcano.sh/mutex.lock",
    # HAMi's.
    "nvidia.com/priority", "nvidia.com/vgpu-mode", "nvidia.com/cuda-compat",
    "hami.io/gpu-scheduler-policy", "hami.io/node-scheduler-policy", "hami.io/resource-pool",
    "hami.io/use-Ascend910D-uuid", "hami.io/mutex.lock",
    # NVIDIA's: device plugin, operator, sandboxed workloads.
    "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb", "nvidia.com/mig-1g.5gb.shared", "nvidia.com/mig-7g.80gb",
    "nvidia.com/gpu.product", "nvidia.com/gpu.workload.config", "nvidia.com/vgpu", "nvidia.com/pgpu",
    "nvidia.com/GA100_A100_PCIE_40GB", "nvidia.com/GRID_T4-1Q", "nvidia.com/gpu-driver-upgrade-drain.skip",
    "nvidia.com/mig.config", "nvidia.com/imex-channel",
    # MindCluster's: other whole cards, and reports.
    "huawei.com/Ascend310", "huawei.com/Ascend310P-V", "huawei.com/Ascend310P-VPro",
    "huawei.com/Ascend310P-IPro", "huawei.com/Ascend910-16c", "huawei.com/Ascend910B", "huawei.com/Ascend910D",
    "huawei.com/npu", "huawei.com/npu-memory-usage", "huawei.com/recover_policy_path", "huawei.com/schedule_policy",
    "huawei.com/kltDev", "huawei.com/AscendReal",
    # What people write themselves.
    "example.com/gpu-index", "gpu-index", "app.kubernetes.io/name", "prometheus.io/scrape",
]  # fmt: skip


def test_a_model_of_iluvatar_that_is_not_on_is_no_misspelling_of_another():
    tables = Tables(sections=(VendorNames(dialect="iluvatar_mr_v100"),))
    book = rulebook(Settings(), tables, standard_catalog())
    assert told(pod(["hami.io/use-BI-V100-uuid"], limits=["iluvatar.ai/BI-V100-vgpu"]), book=book) == []
    (found,) = told(pod(limits=["iluvatar.ai/MR-V100-vgpus"]), book=book)
    assert found.endswith("did you mean iluvatar.ai/MR-V100-vgpu?")


@pytest.mark.parametrize("key", OF_OTHERS)
def test_keys_of_others_are_let_be(key):
    assert told(pod([key], limits=[key])) == []


VENDORS = rulebook(Settings(), vendors.TABLES, standard_catalog())


@pytest.mark.parametrize("key", ["cambricon.com/mlu", "mthreads.com/gpu"])
def test_whole_cards_of_vendors_plugins_are_let_be_where_their_shares_are_read(key):
    assert told(pod(limits=[key]), book=VENDORS) == []


def test_shares_of_an_earlier_hami_are_told_with_those_of_today_and_not_with_whole_cards():
    (text,) = told(pod(limits=["enflame.com/vgcu"]), book=VENDORS)
    assert text.endswith(
        "cardshare does not support this resource; write enflame.com/drs-gcu, and how many slices of a card the pod "
        "needs"
    )


def test_all_that_cardshare_reads_is_known():
    assert told(pod(BOOK.preferences | BOOK.protected, limits=BOOK.resources)) == []


def test_of_a_changed_pod_only_what_is_new_is_told():
    before = pod(["volcano.sh/vgpu-mod"], limits=["volcano.sh/vgpu-memroy"])
    after = pod(["volcano.sh/vgpu-mod", "cardshare.io/gpu-indx"], limits=["volcano.sh/vgpu-memroy"])
    assert [one.partition(":")[0] for one in told(after, before)] == ["annotation cardshare.io/gpu-indx"]


def test_a_pod_of_nothing_but_strange_keys_is_told_of_the_first_ones():
    assert len(told(pod([f"cardshare.io/{i}" for i in range(10_000)]))) == 5


def test_a_pod_that_asks_for_no_card_by_a_slip_is_told():
    asked = pod(limits=["huawei.com/npu-cores"])
    verdict = with_warnings(judge_new(reviewed(asked), "dana", BOOK), BOOK)
    assert (verdict.allowed, verdict.edits, verdict.codes) == (True, (), ("CS115",))


@pytest.mark.parametrize("key", ["volcano.sh/vgpu-number", "volcano.sh/gpu-memory"])
def test_a_resource_among_the_annotations_is_told_of_a_pod_that_asks_for_no_card(key):
    verdict = with_warnings(judge_new(reviewed(pod([key])), "dana", BOOK), BOOK)
    assert (verdict.allowed, verdict.edits, verdict.codes) == (True, (), ("CS116",))
    (told_of,) = verdict.warnings
    assert told_of.text.endswith("it has no effect, because it is a resource: write it among a container's limits")


CHIP = "huawei.com/Ascend310P with huawei.com/Ascend310P-memory, or huawei.com/npu-core"


@pytest.mark.parametrize(
    ("key", "instead"),
    [
        ("aliyun.com/gpu-mem", "write volcano.sh/gpu-memory"),
        ("huawei.com/Ascend310P-1c", f"write {CHIP}"),
        ("huawei.com/ascend310p-4c.3cpu.ndvpp", f"write {CHIP}"),
        ("huawei.com/Ascend910", "write the chip's model such as huawei.com/Ascend910A"),
    ],
)
def test_resources_of_others_are_told_with_what_says_the_same_here(key, instead):
    words = "cardshare does not support this resource"
    assert told(pod(limits=[key])) == [f'container "main": limit {key}: {words}; {instead}']


@pytest.mark.parametrize("scheduler", ["volcano", "hami-scheduler"])
def test_words_of_others_are_let_be_on_pods_of_their_schedulers(scheduler):
    asked = pod(["nvidia.com/use-gpuuuid"], limits=["nvidia.com/gpumem"])._replace(scheduler_name=scheduler)
    assert told(asked) == []


def test_resources_of_others_that_the_cluster_serves_are_its_own():
    table = VgpuTable(named=VgpuTable().named._replace(memory="nvidia.com/gpumem"))
    book = rulebook(Settings(), Tables(sections=(table,)), standard_catalog())
    assert [*strange(reviewed(pod(limits=["nvidia.com/gpumem"])), None, book)] == []
