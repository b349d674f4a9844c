"""Which nodes a pod accepts, as kube-scheduler would have it."""

import pytest

from core import nodefit
from core.model import Container, Node, NodeConstraints, NodeName, Pod, PodUid, Requirement, Taint, Toleration


def facts(**about):
    return nodefit.facts_of(Node(name=NodeName("n1"), **about))


def pod(*containers, init=(), overhead=None):
    return Pod(
        uid=PodUid("u"),
        namespace="d",
        name="p",
        containers=containers,
        init_containers=init,
        overhead=overhead or {},
    )


def container(sidecar=False, **requests):
    return Container(name="c", requests=requests, sidecar=sidecar)


def test_a_pod_takes_the_larger_of_its_init_phase_and_its_containers_plus_overhead():
    asked = pod(
        container(cpu="1", memory="1Gi"),
        container(cpu="500m"),
        init=(container(cpu="4"), container(sidecar=True, cpu="250m"), container(cpu="1", memory="4Gi")),
        overhead={"cpu": "100m"},
    )
    assert dict(nodefit.amounts_of(asked)) == {"cpu": 4100, "memory": 4 * 2**30, "pods": 1}


def test_sidecars_run_beside_containers_and_later_init_containers():
    asked = pod(container(cpu="1"), init=(container(sidecar=True, cpu="2"), container(cpu="2")))
    assert dict(nodefit.amounts_of(asked)) == {"cpu": 4000, "pods": 1}


def test_limits_stand_in_for_requests_that_are_not_given():
    asked = pod(Container(name="c", limits={"example.com/x": "2", "cpu": "1"}, requests={"cpu": "500m"}))
    assert dict(nodefit.amounts_of(asked)) == {"cpu": 500, "example.com/x": 2, "pods": 1}


def test_resources_that_cards_account_for_are_left_out():
    asked = pod(Container(name="c", limits={"volcano.sh/vgpu-memory": "99", "volcano.sh/vgpu-number": "1"}))
    left = nodefit.amounts_of(asked, frozenset({"volcano.sh/vgpu-memory"}))
    assert dict(left) == {"pods": 1, "volcano.sh/vgpu-number": 1}


def test_shortages_say_what_is_wanted_and_what_is_free():
    node = facts(allocatable={"cpu": "4", "pods": "10"})
    assert nodefit.shortages((("cpu", 3000), ("pods", 1)), node, {"cpu": 2000}) == (("cpu", 3000, 2000),)
    assert nodefit.shortages((("example.com/x", 1),), node, {}) == (("example.com/x", 1, 0),)
    assert not nodefit.has_room((("cpu", 2001),), node.allocatable, {"cpu": 2000})
    assert nodefit.has_room((("cpu", 2000),), node.allocatable, {"cpu": 2000})


TOLERATES_ALL = (Toleration(operator="Exists"),)


@pytest.mark.parametrize(
    ("constraints", "node", "answer"),
    [
        pytest.param({}, {}, None, id="nothing asked"),
        pytest.param({}, {"ready": False}, "not ready", id="not ready"),
        pytest.param({"tolerations": TOLERATES_ALL}, {"ready": False}, None, id="not ready, tolerated"),
        pytest.param({}, {"unschedulable": True}, "unschedulable (cordoned)", id="cordoned"),
        pytest.param(
            {}, {"taints": (Taint(key="a", value="b", effect="NoSchedule"),)}, "taint a=b:NoSchedule", id="taint"
        ),
        pytest.param({}, {"taints": (Taint(key="a", effect="PreferNoSchedule"),)}, None, id="soft taint"),
        pytest.param(
            {"tolerations": (Toleration(key="a", operator="Exists"),)},
            {"taints": (Taint(key="a", value="b", effect="NoExecute"),)},
            None,
            id="tolerated by key",
        ),
        pytest.param(
            {"tolerations": (Toleration(key="a", value="c"),)},
            {"taints": (Taint(key="a", value="b", effect="NoSchedule"),)},
            "taint a=b:NoSchedule",
            id="toleration of another value",
        ),
        pytest.param({"selector": (("zone", "x"),)}, {"labels": {"zone": "y"}}, "node selector zone=x", id="selector"),
        pytest.param({"affinity": ()}, {}, "required node affinity", id="affinity without terms matches nothing"),
        pytest.param({"affinity": ((),)}, {}, "required node affinity", id="an empty term matches nothing"),
        pytest.param(
            {
                "affinity": (
                    (Requirement(key="a", operator="In", values=("1",)),),
                    (Requirement(key="b", operator="Exists"),),
                )
            },
            {"labels": {"b": ""}},
            None,
            id="terms are alternatives",
        ),
    ],
)
def test_static_rules_admit_or_say_why_not(constraints, node, answer):
    assert nodefit.admits(NodeConstraints(**constraints), facts(**node)) == answer


@pytest.mark.parametrize(
    ("operator", "values", "label", "met"),
    [
        ("In", ("a", "b"), "a", True), ("In", ("a",), None, False), ("NotIn", ("a",), None, True),
        ("NotIn", ("a",), "a", False), ("Exists", (), "", True), ("Exists", (), None, False),
        ("DoesNotExist", (), None, True), ("DoesNotExist", (), "x", False), ("Gt", ("5",), "6", True),
        ("Gt", ("5",), "5", False), ("Lt", ("5",), "4", True), ("Lt", ("5",), "x", False),
        ("Gt", ("5",), "9" * 5000, False), ("Gt", (), "6", False), ("Near", ("5",), "5", False),
        ("Gt", ("5",), "1_0", False), ("Gt", ("1_0",), "11", False), ("Lt", ("5",), " 4", False),
        ("Gt", ("5",), "\uff16", False), ("Gt", ("5",), "+6", True), ("Lt", ("5",), str(-(2**63)), True),
        ("Gt", ("5",), "0" * 30 + "6", True),
    ],
)  # fmt: skip
def test_match_expressions_read_as_in_kubernetes(operator, values, label, met):
    labels = {} if label is None else {"k": label}
    assert nodefit.satisfies(labels, Requirement(key="k", operator=operator, values=values)) is met
