"""Whatever of a pod silently has no effect is told, with what holds instead."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from core.admission.advice import advice, ineffective, with_warnings
from core.admission.mutate import judge_new
from core.admission.rulebook import rulebook
from core.catalog import Asked, standard_catalog
from core.dialects.hami.table import HamiTable
from core.dialects.vgpu.table import VgpuTable
from core.inventory import Inventory
from core.model import Container, NodeName, Pod, PodUid
from core.settings import DialectName, Settings, Tables
from core.warnings import AdmissionWarning
from tests.support.devices import ascend, vendors
from tests.support.devices.catalogs import catalog_of
from tests.support.devices.reviewed import reviewed
from tests.support.devices.toy import MEMORY as TOY_MEMORY
from tests.support.devices.toy import Toy, ToyRequest

BOOK = rulebook(Settings(), Tables(), standard_catalog())
NUMBER, MEMORY, CORES = "volcano.sh/vgpu-number", "volcano.sh/vgpu-memory", "volcano.sh/vgpu-cores"
PERCENT, MODE = "volcano.sh/vgpu-memory-percentage", "volcano.sh/vgpu-mode"
CHIP, CHIP_MEMORY, SLICING = "huawei.com/Ascend310P", "huawei.com/Ascend310P-memory", "huawei.com/vnpu-mode"
NPU, SHARE, PLAIN = "huawei.com/npu-core", "volcano.sh/gpu-memory", "nvidia.com/gpu"
LEVEL, DVPP, CONTROLLER = "vnpu-level", "vnpu-dvpp", {"ring-controller.atlas": "ascend-310P"}
TYPES, INDEX, AVOID = "nvidia.com/use-gputype", "cardshare.io/gpu-index", "cardshare.io/avoid-cards"


def pod(limits, annotations=None, labels=None):
    main = Container(name="main", limits={key: str(value) for key, value in limits.items()})
    labels = {**(CONTROLLER if NPU in limits else {}), **(labels or {})}
    return Pod(
        uid=PodUid("u"), namespace="n", name="p", annotations=annotations or {}, labels=labels, containers=(main,)
    )


def told(asked):
    verdict = with_warnings(judge_new(reviewed(asked), "dana", BOOK), BOOK)
    assert verdict.allowed, verdict.message
    return [one.text for one in verdict.warnings if one.code == "CS116"]


@pytest.mark.parametrize(
    ("asked", "place", "words"),
    [
        (pod({NUMBER: 1, MEMORY: 3000, PERCENT: 50}), f'container "main": limit {MEMORY}: found \'3000\'',
         f"{PERCENT} 50 overrides it"),
        (pod({NUMBER: 1, MEMORY: 0}), f'container "main": limit {MEMORY}: found \'0\'', "all memory of the card"),
        (pod({CHIP: 1, CHIP_MEMORY: 0}), f'container "main": limit {CHIP_MEMORY}: found \'0\'', "all memory"),
        (pod({NUMBER: 1, CORES: 30}, {MODE: "mig"}), f'container "main": limit {CORES}: found \'30\'', "mode mig"),
        (pod({NUMBER: 1, CORES: 30}, {MODE: "mig"}), f'container "main": limit {CORES}: found \'30\'',
         f"leave it out; without {MEMORY} it takes all memory of a card"),
        (pod({NUMBER: 1}, {"volcano.sh/vgpu-podgroup-policy": "pack"}),
         "annotation volcano.sh/vgpu-podgroup-policy: found 'pack'", "write spread"),
        (pod({CHIP: 1}, {SLICING: "hami-cor"}), f"annotation {SLICING}: found 'hami-cor'", "write hami-core"),
        (pod({SHARE: 5}, {TYPES: "A100"}), f"annotation {TYPES}: found 'A100'", f"pods that ask for {SHARE}"),
        (pod({SHARE: 5}, {AVOID: "GPU-1,2"}), f"annotation {AVOID}: found 'GPU-1'", "positions such as '0,2'"),
        (pod({PLAIN: 1}, {MODE: "mig"}), f"annotation {MODE}: found 'mig'", f"pods that ask for {PLAIN}"),
        (pod({CHIP: 1}, {INDEX: "0"}), f"annotation {INDEX}: found '0'", f"pods that ask for {CHIP}"),
        (pod({CHIP: 1}, {"hami.io/use-Ascend910A-uuid": "A"}), "annotation hami.io/use-Ascend910A-uuid", CHIP),
        (pod({NPU: 2}, {MODE: "mig"}), f"annotation {MODE}: found 'mig'", f"pods that ask for {NPU}"),
        (pod({NPU: 2}, {LEVEL: "high"}), f"annotation {LEVEL}: found 'high'", "as a label only"),
        (pod({NUMBER: 1}, {MEMORY: "3000"}), f"annotation {MEMORY}: found '3000'", "among a container's limits"),
        (pod({NUMBER: 1}, labels={MODE: "mig"}), f"label {MODE}: found 'mig'", "as an annotation only"),
        (pod({NUMBER: 1}, labels={LEVEL: "high"}), f"label {LEVEL}: found 'high'", f"only pods with {NPU}"),
        (pod({NPU: 8}, labels={LEVEL: "high"}), f"label {LEVEL}: found 'high'", "8 AI cores are whole chips"),
        (pod({NPU: 8}, labels={DVPP: "maybe"}), f"label {DVPP}: found 'maybe'", "8 AI cores are whole chips"),
        (pod({NPU: 2}, labels={LEVEL: "High"}), f"label {LEVEL}: found 'High'", "it is read as low"),
        (pod({NPU: 1}, labels={LEVEL: "high"}), f"label {LEVEL}: found 'high'", "is vir01 at any level"),
        (pod({NPU: 4}, labels={LEVEL: "high", DVPP: "yes"}), f"label {LEVEL}: found 'high'", "vir04_4c_dvpp at any"),
    ],
    ids=lambda value: value[:60] if isinstance(value, str) else "",
)  # fmt: skip
def test_what_has_no_effect_is_told_with_what_holds(asked, place, words):
    (text,) = told(asked)
    assert text.startswith(place)
    assert ("it has no effect, because" in text) == ("it asks for all" not in text and "it limits no cores" not in text)
    assert words in text


@pytest.mark.parametrize(
    "asked",
    [
        pod({NUMBER: 2, MEMORY: 3000, CORES: 30}, {MODE: "hami-core", TYPES: "A100", INDEX: "0,1", AVOID: "GPU-7"}),
        pod({NUMBER: 1, PERCENT: 50}, {"volcano.sh/vgpu-podgroup-policy": "spread"}),
        pod({NUMBER: 1, CORES: 0}, {MODE: "mig"}),
        pod({SHARE: 5}, {INDEX: "0,1", AVOID: "2"}),
        pod({PLAIN: 1}, {TYPES: "A100"}),
        pod({CHIP: 1, CHIP_MEMORY: 3072}, {"hami.io/use-Ascend310P-uuid": "A", SLICING: "hami-core"}),
        pod({NPU: 2}, labels={LEVEL: "high", DVPP: "null"}),
        pod({NPU: 4}, labels={LEVEL: "low", DVPP: "no"}),
        pod({NPU: 8}, labels={LEVEL: "low", DVPP: "null"}),
        pod({NUMBER: 0}, {MODE: "mig"}),
        pod({"cpu": 1}, {MODE: "mig"}),
        pod({SHARE: 5}, {MODE: ""}),
        pod({"cpu": 1}, labels={LEVEL: "high"}),
    ],
)
def test_what_has_its_effect_is_not_spoken_of(asked):
    assert told(asked) == []


@pytest.mark.parametrize("share", [{MEMORY: 3000}, {CORES: 30}, {PERCENT: 50}])
def test_shares_of_no_card_are_denied(share):
    verdict = judge_new(reviewed(pod({NUMBER: 0, **share})), "dana", BOOK).verdict
    (name,) = share
    assert verdict.message == (
        f"CS203 container \"main\": limit {NUMBER}: found '0'; write {NUMBER}: 1, or leave out {name} as well"
    )


@pytest.mark.parametrize("share", [{MEMORY: 3000}, {CORES: 30}, {PERCENT: 50}])
def test_shares_for_an_init_container_are_denied(share):
    first = Container(name="first", limits={key: str(value) for key, value in {NUMBER: 0, **share}.items()})
    asked = pod({"cpu": 1})._replace(init_containers=(first,))
    verdict = judge_new(reviewed(asked), "dana", BOOK).verdict
    assert verdict.message == (
        f'CS205 init container "first": ask for {NUMBER} in a normal container; init containers get no card'
    )


def test_a_chip_wanted_and_refused_is_denied():
    asked = pod({CHIP: 1}, {"hami.io/use-Ascend310P-uuid": "A,B", "hami.io/no-use-Ascend310P-uuid": "B"})
    verdict = judge_new(reviewed(asked), "dana", BOOK).verdict
    assert verdict.codes == ("CS206",)
    assert "found 'B'" in verdict.message


@pytest.mark.parametrize(("soft", "codes"), [(False, ["CS114"]), (True, ["CS405"])], ids=["templates", "soft slices"])
def test_a_pod_that_gets_no_chip_is_told_of_no_template(soft, codes):
    catalog, inventory = standard_catalog(), Inventory()
    offers, complaints = catalog.offers(ascend.node("Ascend310P", ["U0"], soft=soft), Tables(), Settings())
    inventory.put(NodeName("a"), offers, complaints, catalog.dialects)
    book = BOOK.with_stock(inventory.stock())
    verdict = with_warnings(judge_new(reviewed(pod({CHIP: 1, CHIP_MEMORY: 5000})), "dana", book), book)
    assert [one.code for one in verdict.warnings] == codes


@pytest.mark.parametrize("default", [0, 5000])
@pytest.mark.parametrize("name", ["nvidia.com/gpumem", "nvidia.com/gpumem-percentage"])
def test_none_of_hamis_memory_is_all_of_it_unless_there_is_a_default(name, default):
    tables = Tables(sections=(HamiTable(installed=True, default_memory=default),))
    book = rulebook(Settings(), tables, standard_catalog())
    verdict = with_warnings(judge_new(reviewed(pod({PLAIN: 1, name: 0})), "dana", book), book)
    told = [one.text for one in verdict.warnings if name in one.text]
    assert ["asks for all memory of the card" in one for one in told] == ([] if default else [True])


OTHERS = rulebook(Settings(), vendors.TABLES, standard_catalog())
AMD, HYGON = {"amd.com/gpu": 1}, {"hygon.com/dcunum": 1}


@pytest.mark.parametrize(
    ("limits", "keys"),
    [
        (AMD, ("amd.com/use-gputype", "amd.com/nouse-gputype")),
        (HYGON, ("hygon.com/use-dcutype", "hygon.com/nouse-dcutype")),
    ],
    ids=["amd", "hygon"],
)
def test_types_of_every_vendor_are_checked(limits, keys):
    both = judge_new(reviewed(pod(limits, dict(zip(keys, ("MI300X,X1", "mi300x"), strict=True)))), "dana", OTHERS)
    assert both.verdict.message == (
        f"CS206 annotations {keys[0]} and {keys[1]}: found 'MI300X'; name each in one of the two only"
    )
    for key in keys:
        wrong = judge_new(reviewed(pod(limits, {key: "MI300X;MI210"})), "dana", OTHERS).verdict
        assert wrong.codes == ("CS108",)
        assert f"annotation {key}: found 'MI300X;MI210'" in wrong.message


def test_what_a_dialect_does_not_read_that_reads_nothing_is_told():
    vgpu = standard_catalog().dialects[DialectName("vgpu")]
    book = rulebook(Settings(), Tables(), catalog_of(Toy(), vgpu))
    asked = Asked(dialect=Toy.name, request=ToyRequest(5))
    (found,) = ineffective(reviewed(pod({TOY_MEMORY: 5}, {TYPES: "A100"})), asked, book)
    assert f"it is not read on pods that ask for {TOY_MEMORY}" in found.text


@pytest.mark.parametrize(
    ("limits", "mib_per_unit", "words"),
    [
        ({NUMBER: 1, MEMORY: 16}, 1, f"limit {MEMORY}: write 16384 for 16 GiB; found '16', which is 16 MiB of a card"),
        ({NUMBER: 1, MEMORY: 63}, 1, "write 64512 for 63 GiB"),
        ({NUMBER: 1, MEMORY: 64}, 1, ""),
        ({NUMBER: 1, MEMORY: 0}, 1, ""),
        ({NUMBER: 1, MEMORY: 6}, 10, "write 615 for 6 GiB; found '6', which is 60 MiB of a card"),
        ({NUMBER: 1, MEMORY: 7}, 10, ""),
        ({NUMBER: 1, MEMORY: 1}, 1024, ""),
        ({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 8}, 1, "limit nvidia.com/gpumem: write 8192 for 8 GiB"),
        ({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 8}, 8, ""),
    ],
)
def test_memory_that_no_process_starts_with_is_told_with_the_figure_that_was_meant(limits, mib_per_unit, words):
    vgpu, hami = (kind(named=kind().named._replace(mib_per_unit=mib_per_unit)) for kind in (VgpuTable, HamiTable))
    tables = Tables(sections=(vgpu, hami))
    book = rulebook(Settings(), tables, standard_catalog())
    verdict = with_warnings(judge_new(reviewed(pod(limits)), "dana", book), book)
    found = [one.text for one in verdict.warnings if one.code == "CS119"]
    assert [words in text for text in found] == ([True] if words else [])
    assert all(len(f"CS119 {text}") < 256 for text in found)


def test_that_there_are_more_such_parts_than_are_told_is_told():
    keys = sorted(BOOK.preferences)[:9]
    *parts, more = told(pod({"cpu": 1}, labels=dict.fromkeys(keys, "x")))
    assert [one.split(":")[0] for one in parts] == [f"label {key}" for key in keys[:8]]
    assert more == "correct these first; there are more like these"
    assert len(told(pod({"cpu": 1}, labels=dict.fromkeys(keys[:8], "x")))) == 8


@pytest.mark.interpreted(reason="a stand-in for a dialect")
@pytest.mark.parametrize(("many", "more"), [(8, []), (9, ["correct these first; there are more like these"])])
def test_that_a_dialect_advises_more_than_is_told_is_told(many, more):
    found = [AdmissionWarning("CS119", str(at)) for at in range(many)]
    dialect = SimpleNamespace(advice=lambda *_: iter(found))
    book: Any = SimpleNamespace(stock=None, tables=None, catalog=SimpleNamespace(dialects={"toy": dialect}))
    asked: Any = SimpleNamespace(dialect="toy", request=None)
    assert [one.text for one in advice(cast(Any, None), asked, book)] == [*map(str, range(8)), *more]
