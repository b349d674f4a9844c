import pytest

from controller.deciding.changes import holds_the_same
from core.catalog import standard_catalog
from core.model import Container
from core.tables import Tables
from tests.support.worlds.world import pod

MARKS = standard_catalog().marks()
BOUND = pod(
    "p",
    node_name="n1",
    annotations={
        "volcano.sh/vgpu-ids-new": "n1-0,NVIDIA,1000,0:",
        "volcano.sh/devices-to-allocate": "n1-0,NVIDIA,1000,0:",
        "volcano.sh/gpu-index": "0",
    },
)


def with_annotations(**changes):
    return BOUND._replace(annotations={**BOUND.annotations, **changes})


def test_a_plugins_mark_changes_nothing_that_a_pod_holds():
    served = with_annotations(**{"volcano.sh/devices-to-allocate": "", "volcano.sh/bind-phase": "success"})
    assert holds_the_same(BOUND, served, MARKS)
    assert holds_the_same(served, BOUND, MARKS)
    assert not holds_the_same(BOUND, served, frozenset())


@pytest.mark.parametrize("key", ["volcano.sh/vgpu-ids-new", "volcano.sh/gpu-index", "somebody.example/else"])
def test_any_other_annotation_may_change_what_a_pod_holds_also_beside_a_mark(key):
    changed = with_annotations(**{key: "other", "volcano.sh/bind-phase": "success"})
    assert not holds_the_same(BOUND, changed, MARKS)


@pytest.mark.parametrize("key", sorted(MARKS))
@pytest.mark.parametrize(
    ("resource", "cards"),
    [
        ("volcano.sh/vgpu-number", {"volcano.sh/vgpu-ids-new": "n1-0,NVIDIA,1000,0:"}),
        ("volcano.sh/gpu-memory", {"volcano.sh/gpu-index": "0"}),
        ("volcano.sh/gpu-number", {"volcano.sh/gpu-index": "0"}),
    ],
)
def test_no_dialect_reads_a_mark_of_what_a_pod_holds(resource, cards, key):
    def held(annotations):
        one = BOUND._replace(annotations=annotations, containers=(Container(name="main", limits={resource: "1"}),))
        return [dialect.held(one, (), Tables()) for dialect in standard_catalog().dialects.values()]

    assert sum(one is not None for one in held(cards)) == 1
    assert held({**cards, key: "7"}) == held(cards)


def test_marks_are_only_some_of_what_assigns_cards():
    assert standard_catalog().assignment_keys(Tables()) | {"cardshare.io/segment-queue"} > MARKS
