import pytest

from controller.deciding.pending import holds_the_same, is_served
from core.catalog import standard_catalog
from core.model import Container, Phase, PodUid
from core.settings import Tables
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


def test_nothing_of_a_pod_is_new_when_its_plugin_has_written_its_marks():
    served = with_annotations(**{"volcano.sh/devices-to-allocate": "", "volcano.sh/bind-phase": "success"})
    assert is_served(BOUND, served._replace(resource_version="9"), MARKS)
    assert not is_served(BOUND, served, frozenset())
    assert not is_served(BOUND, with_annotations(**{"volcano.sh/gpu-index": "1"}), MARKS)


OTHERS = {
    "started": True,
    "init_done": True,
    "deleting": True,
    "phase": Phase.RUNNING,
    "priority": 1,
    "labels": {"a": "b"},
    "status_reason": "Evicted",
    "containers": (Container(name="other"),),
    "uid": PodUid("other"),
}


@pytest.mark.parametrize("field", OTHERS)
def test_a_pod_of_which_anything_else_is_new_is_looked_at_whole(field):
    served = with_annotations(**{"volcano.sh/bind-phase": "success"})
    assert not is_served(BOUND, served._replace(**{field: OTHERS[field]}), MARKS)
