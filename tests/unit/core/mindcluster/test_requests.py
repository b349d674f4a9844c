"""What a pod may ask, and what it is told to write instead."""

from typing import Any

import pytest

from core.dialects.mindcluster.dialect import MindCluster
from core.dialects.mindcluster.pods import Request
from core.dialects.mindcluster.table import MindClusterTable
from core.model import Container
from core.settings import Tables
from tests.support.devices.mindcluster import CORES, npu_pod

DIALECT: Any = MindCluster()


def refusal(pod, tables: Tables = Tables()) -> str:  # noqa: B008 (a frozen value)
    found = DIALECT.request(pod, tables)
    assert isinstance(found, tuple), found
    assert not isinstance(found, Request)
    return "; ".join(map(str, found))


def test_a_pod_without_ai_cores_asks_nothing():
    assert DIALECT.request(npu_pod(0), Tables()) is None
    assert DIALECT.request(npu_pod(1, containers=(Container(name="c"),)), Tables()) is None


@pytest.mark.parametrize(
    ("cores", "row"), [(3, "vir04_3c"), (5, "huawei.com/npu-core: 8"), (12, "huawei.com/npu-core: 16")]
)
def test_other_numbers_of_cores_are_told_the_row_that_would_fit(cores, row):
    assert row in refusal(npu_pod(cores))


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(("dvpp", "row"), [("yes", "vir04_4c_dvpp"), ("no", "vir04_3c_ndvpp")])
def test_dvpp_with_one_or_two_cores_is_told_both_ways_out(cores, dvpp, row):
    text = refusal(npu_pod(cores, dvpp, "low"))
    assert f"label vnpu-dvpp: found '{dvpp}'" in text
    assert row in text
    assert {1: "vir01", 2: "vir02_1c"}[cores] in text


@pytest.mark.parametrize("dvpp", ["maybe", "", "NULL", "YES"])
def test_other_words_for_dvpp_are_refused(dvpp):
    assert "write yes, no or null" in refusal(npu_pod(4, dvpp))


def test_two_containers_or_an_init_container_with_ai_cores_are_refused():
    one = Container(name="a", limits={CORES: "1"})
    assert "one container" in refusal(npu_pod(1, containers=(one, Container(name="b", limits={CORES: "1"}))))
    assert 'init container "a"' in refusal(npu_pod(1, init_containers=(one,)))
    assert 'init container "a"' in refusal(npu_pod(1, containers=(), init_containers=(one,)))


@pytest.mark.parametrize("labels", [{}, {"ring-controller.atlas": "ascend-910"}])
def test_a_pod_without_the_label_is_told_which_one_to_write(labels):
    assert "label ring-controller.atlas" in refusal(npu_pod(2, labels=labels))


@pytest.mark.parametrize("text", ["1.5", "-1", "x", "100Gi"])
def test_ai_cores_that_are_no_whole_number_are_refused(text):
    assert "write a" in refusal(npu_pod(1, containers=(Container(name="c", limits={CORES: text}),)))


def test_nothing_is_placed_where_devices_are_cut_in_advance():
    assert "presetVirtualDevice" in refusal(
        npu_pod(2), Tables(sections=(MindClusterTable(preset_virtual_device=True),))
    )


def test_only_requests_count_as_limits():
    assert DIALECT.request(npu_pod(1, containers=(Container(name="c", requests={CORES: "8"}),)), Tables()) == (8, None)


def test_labels_that_change_nothing_make_no_other_shape():
    assert DIALECT.request(npu_pod(1, level="high"), Tables()) == DIALECT.request(npu_pod(1), Tables())
    assert DIALECT.request(npu_pod(8, "no", "high"), Tables()) == DIALECT.request(npu_pod(8), Tables())
    assert DIALECT.request(npu_pod(2, level="high"), Tables()) != DIALECT.request(npu_pod(2), Tables())
