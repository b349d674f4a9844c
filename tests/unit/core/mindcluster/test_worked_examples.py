"""The worked examples of the protocol reference (M01 to M13), and the user guide's table line by line."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from core.dialects.mindcluster.chips import in_flight
from core.dialects.mindcluster.dialect import MindCluster
from core.dialects.mindcluster.templates import DECISIONS, TEMPLATES
from core.ledger import Ledger
from core.model import NodeName, Phase, Pod, PodUid
from core.placing.decide import node_policy, scan, shape_of
from core.port.handoff import Stamp
from core.settings import DialectName, Settings, Tables
from core.waiting import Wait
from tests.conform.mindcluster_scores import Fitting, scores
from tests.support.devices.catalogs import catalog_of
from tests.support.devices.mindcluster import npu_bound, npu_node, npu_pod

DATA = Path(__file__).parents[3] / "data"
DIALECT: Any = MindCluster()
SETTINGS = Settings(dialects=frozenset({DialectName("mindcluster")}))
EXAMPLES = {
    one["id"]: one
    for one in yaml.safe_load_all((DATA / "ascend-examples.yaml").read_text())
    if one and str(one.get("mode", "")).startswith("mindcluster")
}
TABLE = yaml.safe_load((DATA / "ascend-mindcluster-310p.yaml").read_text())
VGROUPS = {template.name: template.device_type for template in TEMPLATES.values()}


class World:
    """One node, its pods, and the plugin's reports."""

    def __init__(self, node: dict[str, Any]) -> None:
        self.ledger = Ledger(catalog_of(DIALECT), Tables(), SETTINGS)
        unhealthy = tuple(node.get("unhealthy", ()))
        self.ledger.set_node(npu_node(node["chips"], unhealthy=unhealthy, allocatable=node.get("allocatable")))

    def place(self, pod: Pod) -> tuple[str, Any]:
        """(value of huawei.com/npu-core, assignment), or ("", None)."""
        shape: Any = shape_of(pod, self.ledger)
        found = None if isinstance(shape, Wait) else scan(self.ledger, node_policy(SETTINGS), shape)
        if found is None:
            return "", None
        stamp = Stamp(node=NodeName("node-a"), now_s=1, order=2)
        return DIALECT.annotations(found.placed.assignment, stamp, Tables())["huawei.com/npu-core"], found.placed

    def count(self, pod: Pod, core: str, real: str) -> None:
        annotations = {"huawei.com/npu-core": core, **({"huawei.com/AscendReal": real} if real else {})}
        self.ledger.count(pod._replace(node_name="node-a", annotations=annotations))

    @property
    def chips(self) -> Any:
        return self.ledger.states[NodeName("node-a")].offers[DialectName("mindcluster")]

    def free(self) -> dict[int, list[Any]]:
        return {one.fixed.id: [one.free_cores, one.free_cpus, one.dvpp] for one in self.chips}


def real_name(core: str, vgroup: int) -> str:
    if "-" not in core:
        return ",".join(f"Ascend310P-{one}" for one in core.split(","))
    chip, template = core.split("-")
    return f"Ascend310P-{VGROUPS[template]}-100-{chip}_{vgroup}"


@pytest.mark.parametrize("case", EXAMPLES["M01"]["cases"], ids=lambda case: "-".join(map(str, case["pod"])))
def test_every_line_of_the_decision_table_gives_its_template_on_an_idle_node(case):
    core, _ = World({"chips": 4}).place(npu_pod(*case["pod"]))
    assert core == case.get("core", "")


@pytest.mark.parametrize("example", [f"M0{n}" for n in (2, 3, 4, 6, 7, 8)] + ["M05a", "M05b", "M09a", "M09b", "M10"])
def test_pods_in_turn_get_the_chips_of_the_worked_example(example):
    example = EXAMPLES[example]
    world = World(example["node"])
    for step in example["pods"]:
        pod = npu_pod(*step["pod"], name=step["name"])
        core, placed = world.place(pod)
        assert core == step.get("core", ""), step
        if placed is None:
            continue
        assert (placed.score < 51) is step.get("downgraded", False)
        world.count(pod, core, real_name(core, step.get("vg", 0)) if example.get("writeback", True) else "")
        free = world.free()
        for chip, figures in step.get("free", {}).items():
            assert free[chip] == figures, (step, chip)


@pytest.mark.parametrize("case", EXAMPLES["M11"]["cases"], ids=lambda case: str(case["pod"][2]))
def test_the_node_that_the_reference_scores_highest_is_chosen(case):
    ledger = Ledger(catalog_of(DIALECT), Tables(), SETTINGS)
    for name, node in EXAMPLES["M11"]["nodes"].items():
        ledger.set_node(npu_node(node["chips"], name=name))
        for at, core in enumerate(node["running"]):
            cores = TEMPLATES[core.split("-")[1]].cores
            held = npu_bound(core, real_name(core, at), name=f"{name}-{at}", cores=cores, node_name=name)
            ledger.count(held)
    shape: Any = shape_of(npu_pod(*case["pod"]), ledger)
    fitting = []
    for name, state in ledger.states.items():
        placed = DIALECT.place(state.offers[DIALECT.name], shape.request, SETTINGS.policy)
        idle = sum(one.free_cores for one in state.offers[DIALECT.name])
        fitting.append(Fitting(idle, name, placed.assignment.share.template != shape.request.choice.template.name))
    assert scores(fitting) == case["scores"]
    found: Any = scan(ledger, node_policy(SETTINGS), shape)
    text = DIALECT.annotations(found.placed.assignment, Stamp(node=found.node, now_s=1, order=2), Tables())
    assert [found.node, text["huawei.com/npu-core"]] == case["chosen"]


def test_one_pod_carries_chip_and_template_and_a_time_in_nanoseconds():
    example = EXAMPLES["M12"]
    labels = example["pod_labels"]
    pod = npu_pod(2, labels["vnpu-dvpp"], labels["vnpu-level"])
    assert pod.labels == labels
    _, placed = World({"chips": 4}).place(pod)
    written = example["written_before_or_with_bind"]
    stamp = Stamp(node=NodeName("node-a"), now_s=1787303731, order=int(written["predicate-time"]))
    assert DIALECT.annotations(placed.assignment, stamp, Tables()) == written
    assert DIALECT.next_stamp((), 1787303731) == int(written["predicate-time"]) + 1


def test_after_a_restart_reported_devices_count_and_pods_in_flight_limit_templates():
    example = EXAMPLES["M13"]
    world = World(example["node"])
    for one in example["existing"]:
        cores = TEMPLATES[one["core"].split("-")[1]].cores if "-" in one["core"] else 8
        world.ledger.count(
            npu_bound(
                one["core"],
                one["real"],
                name=one["name"],
                cores=cores,
                phase=Phase(one["phase"]),
                deleting=one.get("deleting", False),
            )
        )
    assert world.free() == example["free"]
    assert [one.fixed.id for one in world.chips if one.unstable] == example["unstable"]
    assert in_flight(world.chips) == sum(TEMPLATES[name].bit for name in example["in_flight_templates"])
    for step in example["then"]:
        assert world.place(npu_pod(*step["pod"]))[0] == step.get("core", "")
    world.ledger.release(PodUid("B"))
    freed = example["if_B_ends"]["required_chip_freed"]
    assert world.free()[freed] == [8, 7, "yes"]


# The table that the user guide prints: AI cores, vnpu-dvpp, vnpu-level, whether it must downgrade, template.
GUIDE = (
    (1, "null", "any", None, "vir01"),
    (2, "null", "low", None, "vir02_1c"),
    (2, "null", "high", False, "vir02"),
    (2, "null", "high", True, "vir02_1c"),
    (4, "yes", "low", None, "vir04_4c_dvpp"),
    (4, "no", "low", None, "vir04_3c_ndvpp"),
    (4, "null", "low", None, "vir04_3c"),
    (4, "yes", "high", None, "vir04_4c_dvpp"),
    (4, "no", "high", None, "vir04_3c_ndvpp"),
    (4, "null", "high", False, "vir04"),
    (4, "null", "high", True, "vir04_3c"),
)


@pytest.mark.parametrize(("cores", "dvpp", "level", "downgrade", "template"), GUIDE)
def test_every_line_of_the_guides_table_gives_its_template(cores, dvpp, level, downgrade, template):
    levels = {"any": ("low", "high", "best", None), "low": ("low", "best", "", None), "high": ("high",)}[level]
    for one in levels:
        world = World({"chips": 1})
        if downgrade:
            # So few AI CPUs are left that the better template does not fit: 2 cores and 1 CPU, or 4 cores and 3.
            for at in range(3 if cores == 2 else 1):
                taken = "0-vir02" if cores == 2 else "0-vir04"
                held = npu_bound(taken, real_name(taken, at), name=f"held-{at}", cores=cores)
                world.ledger.count(held)
        assert world.place(npu_pod(cores, dvpp, one))[0] == f"0-{template}", one


@pytest.mark.parametrize("cores", [8, 16, 24])
@pytest.mark.parametrize("dvpp", ["yes", "no", "null", "maybe", ""])
@pytest.mark.parametrize("level", ["low", "high"])
def test_whole_chips_are_given_whatever_dvpp_and_level_say(cores, dvpp, level):
    assert World({"chips": 4}).place(npu_pod(cores, dvpp, level))[0] == ",".join(map(str, range(cores // 8)))


def test_templates_and_table_are_those_of_the_reference():
    for name, row in TABLE["templates"].items():
        template = TEMPLATES[name]
        ours = (template.cores, template.cpus, template.dvpp, template.device_type)
        assert ours == (row["aicore"], row["aicpu"], row["dvpp"], row["device_type"])
    assert len(TEMPLATES) == len(TABLE["templates"])
    for row in TABLE["selection"]:
        if row["template"] is None:
            continue
        for high in {"*": (False, True), "low": (False,), "high": (True,)}[row["level"]]:
            choice = DECISIONS[row["cores"], row["dvpp"], high]
            assert choice.template.name == row["template"]
            assert (choice.downgraded.name if choice.downgraded else None) == row.get("downgraded")
