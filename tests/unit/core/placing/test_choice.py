"""Which mode a pod without vgpu-mode gets, what settings prefer, and how that is told."""

from dataclasses import replace

import pytest

from core.catalog import standard_catalog
from core.ledger import Ledger, Placement
from core.model import Node, NodeName, Pod, PodUid
from core.placing.candidates import Candidates
from core.placing.choice import compared
from core.placing.decide import Shape, decide, node_policy, shape_of, still_fits, try_decide
from core.settings import Settings
from tests.support.devices.cards import TABLES, container, pod, record, vgpu_node

A100 = "NVIDIA-NVIDIA A100-SXM4-40GB"


def node(name: str, *records: str) -> Node:
    found = vgpu_node("".join(records))
    amounts = {**found.allocatable, "cpu": "8", "memory": "8Gi", "pods": "110"}
    return replace(found, name=NodeName(name), allocatable=amounts, capacity=amounts)


HAMI = node("hami", record("GPU-h", memory=40960))
MIG = node("mig", record("GPU-m", memory=40960, model=A100, mode="mig"))
MPS = node("mps", record("GPU-s", memory=49152, mode="mps"))
BOTH = node("both", record("GPU-b0", memory=40960), record("GPU-b1", memory=65536, mode="mps"))


def ledger_of(*nodes: Node, preference: tuple[str, ...] = ()) -> Ledger:
    ledger = Ledger(standard_catalog(), TABLES, Settings(mode_preference=preference))
    for one in nodes:
        ledger.set_node(one)
    return ledger


def wish(memory: int = 3000, mode: str = "") -> Pod:
    annotations = {"volcano.sh/vgpu-mode": mode} if mode else {}
    return pod(container(number=1, memory=memory), uid=PodUid("p"), annotations=annotations)


def placed(ledger: Ledger, asked: Pod) -> tuple[Shape, Placement | None]:
    shape = shape_of(asked, ledger)
    assert isinstance(shape, Shape)
    policy = node_policy(ledger.settings)
    found = decide(Candidates(ledger, policy), asked, shape)
    assert found == try_decide(ledger, policy, asked, shape)
    return shape, found


def where(ledger: Ledger, asked: Pod) -> str:
    found = placed(ledger, asked)[1]
    return found.node if found is not None else ""


@pytest.mark.parametrize(
    ("preference", "node_name"),
    [
        ((), "mig"),
        (("hami-core",), "hami"),
        (("mps", "hami-core"), "mps"),
        (("mig", "mps"), "mig"),
    ],
)
def test_the_best_score_decides_unless_settings_prefer_a_mode(preference, node_name):
    # 3000 MiB take 5120 of a card in mode mig, so that it scores best under binpack.
    assert where(ledger_of(HAMI, MIG, MPS, preference=preference), wish()) == node_name


def test_a_preference_gives_way_where_no_card_of_the_mode_fits():
    ledger = ledger_of(HAMI, MIG, preference=("mps", "mig"))
    assert where(ledger, wish()) == "mig"
    assert where(ledger, wish(memory=40961)) == ""
    assert where(ledger_of(HAMI, preference=("mps", "mig")), wish()) == "hami"


def test_a_pod_that_names_a_mode_gets_it_whatever_is_preferred():
    ledger = ledger_of(HAMI, MIG, MPS, preference=("mig",))
    assert where(ledger, wish(mode="mps")) == "mps"
    assert where(ledger, wish(mode="hami-core")) == "hami"


def test_what_was_placed_by_preference_still_fits_when_it_is_judged_again():
    ledger = ledger_of(BOTH, preference=("mps",))
    shape, found = placed(ledger, wish())
    assert found is not None
    assert found.dialect is not None
    assert [one.card for one in ledger.catalog.dialects[found.dialect].describe(found.assignment, ())] == ["GPU-b1"]
    ledger.reserve(found)
    assert still_fits(ledger, shape, found)


@pytest.mark.parametrize(
    ("nodes", "preference", "said"),
    [
        ((HAMI, MIG), (), "mig on mig; hami-core on hami scores lower: 3000 MiB; mps fits on no node"),
        (
            (HAMI, MIG),
            ("hami-core",),
            "hami-core on hami (preferred by settings); "
            "mig on mig scores higher, but is not preferred: 3000 MiB in a slice of 5120 MiB (1g.5gb); "
            "mps fits on no node",
        ),
        ((MPS,), (), "mps on mps; mig fits on no node"),
    ],
    ids=["by score", "by preference", "two words for one card"],
)
def test_the_choice_is_told_with_the_best_node_of_every_other_mode(nodes, preference, said):
    ledger = ledger_of(*nodes, preference=preference)
    shape, found = placed(ledger, wish())
    assert found is not None
    ledger.reserve(found)
    assert compared(ledger, node_policy(ledger.settings), shape, found) == said
    assert ledger.holding(PodUid("p")) is not None


def test_the_larger_slice_is_told_as_the_reason_for_a_lower_score():
    nearly_full = node("hami", record("GPU-h", memory=4096))
    ledger = ledger_of(nearly_full, MIG)
    shape, found = placed(ledger, wish())
    assert found is not None
    ledger.reserve(found)
    assert compared(ledger, node_policy(ledger.settings), shape, found) == (
        "hami-core on hami; mig on mig scores lower: 3000 MiB in a slice of 5120 MiB (1g.5gb); mps fits on no node"
    )


def test_there_is_nothing_to_tell_where_the_pod_names_its_mode():
    ledger = ledger_of(HAMI, MIG)
    shape, found = placed(ledger, wish(mode="mig"))
    assert found is not None
    ledger.reserve(found)
    assert compared(ledger, node_policy(ledger.settings), shape, found) == ""
