"""What HAMi's map says of a chip type beside its figures: memory's unit, the name of cores, modules of two dies."""

from dataclasses import replace
from typing import Any

import pytest

from core.admission.defaulting import complete_container
from core.admission.rulebook import rulebook
from core.catalog import standard_catalog
from core.dialects.ascend_hami.table import AscendTable
from core.model import Container
from core.port.refusals import Reason
from core.settings import Policy, Settings, Tables
from tests.support.devices import ascend
from tests.support.devices.ascend import DIALECT, cards_of, chip, pod
from tests.support.devices.texts import decode_device_config

B3 = "Ascend910B3"
C = "Ascend910C"
_DIES = replace(chip(B3), named=chip(B3).named._replace(cards=f"huawei.com/{C}", type=C), paired=True)
MODULES = Tables(sections=(AscendTable(chips=(_DIES,)),))


def tables(**names: Any) -> Tables:
    chips = (replace(chip(B3), named=chip(B3).named._replace(**names)),)
    return Tables(sections=(AscendTable(chips=chips),))


def asked(*containers: Any, given: Tables, word: str = B3, soft: bool = False) -> Any:
    return DIALECT.request(pod(word, *containers, soft=soft), given)


def warned(found: Any, given: Tables) -> Any:
    request = ascend.request(found, given)
    return [*DIALECT.warnings(found, request, given), *DIALECT.advice(found, request, given, None)]


def modules(*busy: int, count: int = 4) -> Any:
    """The dies of modules of two, those at some indices in use."""
    node = ascend.node(B3, [f"U{at}" for at in range(count)])
    text = node.annotations[f"hami.io/node-register-{B3}"].replace(B3, C)
    found = replace(
        node, annotations={f"hami.io/node-register-{C}": text}, allocatable={f"huawei.com/{C}": "16", "pods": "9"}
    )
    held = [ascend.holder(C, f"U{at},{C},65536,0:;", name=f"h{at}") for at in busy]
    return cards_of(found, *held, tables=MODULES)


def test_the_map_is_read_and_nothing_of_it_is_noted():
    text = """
vnpus:
  configs:
  - {chipName: Ascend910, commonWord: Ascend910C, resourceName: x.io/npu, resourceMemoryName: x.io/npu-memory,
     resourceCoreName: x.io/npu-vcore, memoryAllocatable: 65536, memoryCapacity: 65536, memoryFactor: 1024,
     aiCore: 20, aiCPU: 7, superPod: true, templates: [{name: vir05_1c_16g, memory: 16384, aiCore: 5, aiCPU: 1}]}
"""
    found = decode_device_config(text)
    ((_, table),) = found.found
    assert isinstance(table, AscendTable)
    (one,) = table.chips
    assert (one.named.mib_per_unit, one.named.cores, one.paired) == (1024, "x.io/npu-vcore", True)
    assert found.notes == ()
    assert chip(B3).named.cores == "huawei.com/Ascend910B3-core"


@pytest.mark.parametrize(
    ("units", "memory_mib"), [("32", 32768), ("17", 32768), ("16", 16384), ("1", 16384), ("64", 65536)]
)
def test_memory_is_counted_in_units_of_the_factor(units, memory_mib):
    found = asked((1, units), given=tables(mib_per_unit=1024))
    assert [one.memory for one in found.asks] == [memory_mib]
    soft = asked((1, units), given=tables(mib_per_unit=1024), soft=True)
    assert [one.memory for one in soft.asks] == [1024 * int(units)]


def test_what_is_told_of_memory_is_in_these_units_too():
    given = tables(mib_per_unit=1024)
    (wrong,) = asked((1, "65"), given=given)
    assert wrong.remedy == "an Ascend910B3 has 65536 MiB; write 64 or less"
    assert any("32" in one.remedy for one in asked((1, "32Gi"), given=given))
    (told,) = warned(pod(B3, (1, "17")), given)
    assert "write 32 to request exactly that" in told.text
    assert not warned(pod(B3, (1, "32")), given)
    cards = cards_of(ascend.node(B3, ["U0"]), tables=given)
    assert DIALECT.sold(cards, given)["huawei.com/Ascend910B3-memory"] == 64
    found = DIALECT.place(cards, asked((1, "17"), given=given), Policy.BINPACK)
    assert found is not None
    metered = DIALECT.metered(found.assignment, given)
    assert metered == {"huawei.com/Ascend910B3-memory": 32, "huawei.com/Ascend910B3-core": 0}


def test_cores_go_by_the_name_of_the_map():
    given = tables(cores="huawei.com/Ascend910B3-vcore")
    limits = {"huawei.com/Ascend910B3": "1", "huawei.com/Ascend910B3-vcore": "50"}
    named = pod(B3, soft=True)._replace(containers=(Container("c", limits=limits),))
    found: Any = DIALECT.request(named, given)
    assert [one.cores for one in found.asks] == [50]
    assert "huawei.com/Ascend910B3-core" not in DIALECT.names(given).resources


@pytest.mark.parametrize(
    ("count", "busy", "slots"),
    [
        (2, (), ["U0", "U1"]),
        (2, (0,), ["U2", "U3"]),
        (4, (), ["U0", "U1", "U2", "U3"]),
        (4, (3,), None),
        (2, (0, 2), None),
    ],
)
def test_dies_are_given_by_whole_modules(count, busy, slots):
    cards = modules(*busy)
    request = asked((count,), given=MODULES, word=C)
    found = DIALECT.place(cards, request, Policy.BINPACK)
    assert (None if found is None else [one.uuid for one in found.assignment.entries]) == slots
    if found is None:
        first = DIALECT.shortfalls(cards, request)[0]
        assert (first.reason, first.wanted, first.detail) == (Reason.CARD_COUNT, count, "in whole modules of two")
        assert first.free % 2 == 0


@pytest.mark.parametrize("count", ["1", "3", "7"])
def test_half_a_module_is_refused_where_nobody_has_completed_it(count):
    (wrong,) = asked((count,), given=MODULES, word=C)
    assert (wrong.code, wrong.remedy) == ("CS207", f"chips come in modules of two: write {int(count) + 1}")


@pytest.mark.parametrize(
    ("limits", "count"),
    [({f"huawei.com/{C}": "1"}, "2"), ({f"huawei.com/{C}": "4"}, "4"), ({f"huawei.com/{C}": "3"}, "3")],
)
def test_one_die_is_completed_to_its_module(limits, count):
    book = rulebook(Settings(), MODULES, standard_catalog())
    found = complete_container(Container("c", limits=limits), book)
    assert found.limits[f"huawei.com/{C}"] == found.requests[f"huawei.com/{C}"] == count
    assert complete_container(found, book) == found


def test_both_dies_of_a_module_may_be_cut_and_more_may_not():
    memory = chip(B3).named.memory
    for count, served in (("2", True), ("4", False)):
        limits = {f"huawei.com/{C}": count, memory: "16384"}
        found: Any = DIALECT.request(pod(C)._replace(containers=(Container("c", limits=limits),)), MODULES)
        if served:
            placed = DIALECT.place(modules(), found, Policy.BINPACK)
            assert placed is not None
            assert [one.profile for one in placed.assignment.entries] == ["vir05_1c_16g", "vir05_1c_16g"]
        else:
            assert [one.code for one in found] == ["CS207"]
