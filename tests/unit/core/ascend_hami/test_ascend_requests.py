"""What pods may ask of Ascend chips, and what is said of those that may not."""

from dataclasses import replace

import pytest

from core.dialects.ascend_hami.table import AscendTable
from core.model import Container, Pod, PodUid
from core.selection import CardSelection
from core.settings import Tables
from core.sharing.request import Ask, Request, Resources
from core.sharing.slices import WHOLE, Profile
from tests.support.devices import ascend
from tests.support.devices.ascend import DIALECT, TABLES

WORD = "Ascend310P"
WORDS = [chip.named.type for chip in TABLES.of(AscendTable).chips]


def codes(found, tables=TABLES):
    asked = DIALECT.request(found, tables)
    return [] if asked is None or isinstance(asked, Request) else [one.code for one in asked]


def test_a_pod_without_chips_asks_nothing():
    other = Container(name="c", limits={"cpu": "1", "nvidia.com/gpu": "1", "huawei.com/npu-core": "2"})
    assert DIALECT.request(Pod(uid=PodUid("p"), namespace="d", name="p", containers=(other,)), TABLES) is None


def test_memory_is_rounded_up_to_a_template_and_none_is_a_whole_chip():
    found = ascend.request(ascend.pod(WORD, [1, 4096], [2]))
    cut = Profile("vir02", 6144, 6144, counted=(2, 2))
    assert found.asks == (Ask(0, 1, 6144, 0, 0, profile=cut), Ask(1, 2, 0, 100, 0, profile=WHOLE))
    assert (found.type, found.segments, found.modes) == (WORD, 2, ("template",))


@pytest.mark.parametrize("word", WORDS)
def test_every_chip_type_is_asked_by_its_own_names_alone(word):
    asked = DIALECT.request(ascend.pod(word, [1, 1]), TABLES)
    assert isinstance(asked, Request)
    assert asked.type == word


def test_memory_of_another_chip_type_is_not_taken_for_ones_own():
    long, short = ascend.chip("Ascend910B4-1"), ascend.chip("Ascend910B4")
    mixed = Container(name="c", limits={long.named.cards: "1", short.named.memory: "8192"})
    found = Pod(uid=PodUid("p"), namespace="d", name="p", containers=(mixed,))
    assert "CS206" in codes(found)


def test_two_chip_types_in_one_pod_are_refused():
    both = ascend.pod("Ascend910B4", [1])
    both = both._replace(containers=(*both.containers, *ascend.pod("Ascend910B4-1", [1]).containers))
    assert codes(both) == ["CS206"]


@pytest.mark.parametrize(
    ("amounts", "code"),
    [
        ((1, 24577), "CS102"),
        ((1, "16Gi"), "CS101"),
        ((1, "6Gi"), "CS101"),
        ((1, "3Ki"), "CS101"),
        ((1, "-5"), "CS101"),
        ((1, "0.5"), "CS101"),
        (("-1",), "CS101"),
        ((0, 3072), "CS203"),
        ((0, None, 20), "CS203"),
        ((2, 3072), "CS207"),
        ((1, 3072, 50), "CS208"),
        ((None, 3072), "CS203"),
    ],
    ids=str,
)
def test_what_the_plugin_cannot_do_is_refused(amounts, code):
    assert code in codes(ascend.pod(WORD, amounts))


@pytest.mark.parametrize("memory", ["4096", "4e3", "4k"])
def test_a_plain_number_is_read_as_the_api_server_writes_it(memory):
    assert isinstance(DIALECT.request(ascend.pod(WORD, [1, memory]), TABLES), Request)


def test_several_chips_may_be_asked_for_by_a_memory_that_rounds_up_to_all_of_it():
    found = ascend.request(ascend.pod("Ascend910B4-1", [2, 40000]))
    assert found.asks[0].profile == Profile("the whole chip", 65536, 65536, counted=(20, 7))
    assert found.modes == ()


def test_a_soft_slice_keeps_its_memory_and_may_have_cores():
    found = DIALECT.request(ascend.pod(WORD, [2, 4095, 60], soft=True), TABLES)
    assert isinstance(found, Request)
    assert found.asks == (Ask(0, 2, 4095, 0, 60),)
    assert found.modes == ("soft",)


def test_a_soft_slice_of_more_than_all_cores_is_refused():
    assert codes(ascend.pod(WORD, [1, 4096, 101], soft=True)) == ["CS103"]


def test_any_other_word_for_the_mode_means_templates():
    assert ascend.request(ascend.pod(WORD, [1], annotations={"huawei.com/vnpu-mode": "soft"})).modes == ()


def test_the_word_template_keeps_whole_chips_off_soft_nodes():
    found = ascend.pod(WORD, [1], annotations={"huawei.com/vnpu-mode": "template"})
    assert ascend.request(found).modes == ("template",)
    assert list(DIALECT.warnings(found, ascend.request(found), TABLES)) == []


@pytest.mark.parametrize("word", ["enpu", " ENPU", "ubs-virt", "vcann-rt"])
def test_enpu_is_refused_by_each_of_its_names(word):
    assert codes(ascend.pod(WORD, [1, 4096], annotations={"huawei.com/vnpu-mode": word})) == ["CS104"]


def test_cores_of_zero_are_no_request_for_cores():
    assert isinstance(DIALECT.request(ascend.pod(WORD, [1, 3072, 0]), TABLES), Request)


def test_init_containers_ask_before_the_others_and_sidecars_stay():
    found = ascend.pod(WORD, [1, 3072])._replace(
        init_containers=(ascend.container(WORD, [1, 6144]), ascend.container(WORD, [1, 3072], sidecar=True)),
    )
    asks = ascend.request(found).asks
    assert [(ask.container, ask.initial, ask.sidecar) for ask in asks] == [
        (2, False, False),
        (1, False, True),
        (0, True, False),
    ]


def test_lists_of_devices_are_for_one_chip_type_and_trimmed():
    notes = {"hami.io/use-Ascend310P-uuid": " U0 , U1 ", "hami.io/no-use-Ascend310P-uuid": "U1"}
    wish = ascend.request(ascend.pod(WORD, [1], annotations=notes)).selection
    assert wish == CardSelection(use_uuids=frozenset({"U0", "U1"}), no_use_uuids=frozenset({"U1"}))
    other = {"hami.io/use-Ascend910A-uuid": "U0"}
    assert not ascend.request(ascend.pod(WORD, [1], annotations=other)).selection.use_uuids


def test_names_come_from_the_configuration():
    chip = replace(
        ascend.chip(WORD), named=Resources("example.com/npu", "example.com/npu-mem", "example.com/npu-core", type=WORD)
    )
    tables = Tables(sections=(AscendTable(chips=(chip,)),))
    limits = {"example.com/npu": "1", "example.com/npu-mem": "1"}
    found = Pod(uid=PodUid("p"), namespace="d", name="p", containers=(Container(name="c", limits=limits),))
    assert isinstance(DIALECT.request(found, tables), Request)
    assert DIALECT.request(found, TABLES) is None
    assert DIALECT.names(tables).uncounted == {"example.com/npu-mem", "example.com/npu-core"}
    assert DIALECT.request(ascend.pod(WORD, [1]), tables) is None


def test_the_keys_of_all_chip_types_are_protected():
    keys = DIALECT.names(TABLES).assignment_keys
    assert {"hami.io/Ascend910B4-1-devices-allocated", "huawei.com/Ascend910B4", "hami.io/vgpu-node"} <= keys
    assert len(keys) == 5 + 3 * len(WORDS)


@pytest.mark.parametrize(("memory", "mib"), [("8Gi", 8192), ("5000Mi", 5000), ("8Ki", 1)])
def test_memory_with_a_suffix_is_told_once_with_what_to_write(memory, mib):
    (said,) = DIALECT.request(ascend.pod("Ascend910B4", [1, memory]), TABLES)  # type: ignore[misc]  # it is wrong
    assert (said.code, said.found) == ("CS101", f"'{memory}'")
    assert said.remedy == f"the unit is MiB already; write a whole number such as '{mib}'"
