"""The table of ``kubectl cards fits``."""

import pytest

from cli.fits import UnusableFileError, fits_manifest, fits_table
from core.catalog import standard_catalog
from core.ledger import Ledger
from core.port.cards import CardWish
from core.settings import Settings, Tables
from core.view.fits import Fit, Fits, FitType, Place

A, B = "huawei.com/Ascend910A", "huawei.com/Ascend910B2"


def test_ways_of_one_protocol_are_told_apart_by_the_resource_to_ask_for():
    ways = (
        Fit(protocol="vgpu", limits={"volcano.sh/vgpu-number": "1"}, pods=0, is_all=True),
        Fit(protocol="ascend_hami", limits={A: "1"}, pods=0, is_all=True, code="CS501", stops="too little"),
        Fit(protocol="ascend_hami", limits={B: "1"}, pods=1, is_all=True, types=(FitType(type="B2", pods=1, nodes=1),)),
    )
    table = fits_table(Fits(namespace="default", ways=ways), CardWish(1, 9))
    assert [line.split("  ")[0] for line in table.splitlines()[1:4]] == [
        "vgpu",
        f"ascend_hami ({A})",
        f"ascend_hami ({B})",
    ]
    assert f"ascend_hami ({A}): the next pod does not fit: CS501 too little" in table
    assert "vgpu: 0 pods fit" in table


@pytest.mark.parametrize(
    ("resource", "told"),
    [
        ("nvidia.com/gpus", "no pod in it asks for cards; Pod a: warning: CS115 .* did you mean nvidia.com/gpu?"),
        ("cpu", "no pod in it asks for cards$"),
    ],
)
def test_a_manifest_without_cards_is_told_what_a_misspelt_resource_should_be(resource, told):
    limits = f'{{"resources": {{"limits": {{"{resource}": 1}}}}, "name": "c", "image": "i"}}'
    text = f'{{"apiVersion": "v1", "kind": "Pod", "metadata": {{"name": "a"}}, "spec": {{"containers": [{limits}]}}}}'
    with pytest.raises(UnusableFileError, match=told):
        fits_manifest(Place(Ledger(standard_catalog(), Tables(), Settings()), "default", (), ()), text)


def told_of(text: str) -> str:
    with pytest.raises(UnusableFileError) as found:
        fits_manifest(Place(Ledger(standard_catalog(), Tables(), Settings()), "default", (), ()), text)
    return str(found.value)


def test_a_manifest_of_other_kinds_is_told_that_no_pods_are_read_from_them():
    text = "\n---\n".join(
        f"{{apiVersion: {api}, kind: {kind}, metadata: {{name: a}}, spec: {{}}, data: {{a: b}}}}"
        for api, kind in (("v1", "ConfigMap"), ("ray.io/v1", "RayCluster"), ("v1", "ConfigMap"))
    )
    assert told_of(text) == (
        "no pod in it asks for cards; kinds from which no pods are read: v1 ConfigMap, ray.io/v1 RayCluster"
    )


@pytest.mark.parametrize(
    ("text", "kind"),
    [("{apiVersion: v1, kind: Deployment, spec: {a: b}}", "v1 Deployment"), ("image: {tag: a}", "no kind")],
)
def test_a_kind_of_another_api_is_told_with_its_api_and_an_object_without_kind_too(text, kind):
    assert told_of(text) == f"no pod in it asks for cards; kinds from which no pods are read: {kind}"


def test_a_workload_without_a_spec_is_told_to_have_one():
    text = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\n"
    assert told_of(text) == "line 1: write the spec of this Job; it has none"
