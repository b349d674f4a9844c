"""Which nodes a pod accepts, as kube-scheduler would have it."""

from dataclasses import replace

import pytest

from core import model
from core.constraints import ports, taints
from core.model import Container, Node, NodeConstraints, NodeName, Pod, PodUid, Requirement, Taint, Toleration
from tests.support.judging.asking import CONSTRAINTS, asking


def facts(**about):
    return model.facts_of(Node(name=NodeName("n1"), **about))


def pod(*containers, init=(), overhead=None, resources=None):
    return Pod(
        uid=PodUid("u"),
        namespace="d",
        name="p",
        containers=containers,
        init_containers=init,
        overhead=overhead or {},
        resources=resources or {},
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
    assert dict(model.amounts_of(asked)) == {"cpu": 4100, "memory": 4 * 2**30, "pods": 1}


def test_sidecars_run_beside_containers_and_later_init_containers():
    asked = pod(container(cpu="1"), init=(container(sidecar=True, cpu="2"), container(cpu="2")))
    assert dict(model.amounts_of(asked)) == {"cpu": 4000, "pods": 1}


def test_limits_stand_in_for_requests_that_are_not_given():
    asked = pod(Container(name="c", limits={"example.com/x": "2", "cpu": "1"}, requests={"cpu": "500m"}))
    assert dict(model.amounts_of(asked)) == {"cpu": 500, "example.com/x": 2, "pods": 1}


@pytest.mark.parametrize(
    ("whole", "cpu"),
    [
        pytest.param({"cpu": "32"}, 32_250, id="more than its containers"),
        pytest.param({"cpu": "500m"}, 750, id="less than they"),
        pytest.param({"memory": "1Gi"}, 2250, id="not of this"),
        pytest.param({"example.com/x": "1"}, 2250, id="of what it cannot ask so"),
    ],
)
def test_what_is_asked_for_the_whole_pod_stands_for_its_containers(whole, cpu):
    amounts = dict(model.amounts_of(pod(container(cpu="2"), overhead={"cpu": "250m"}, resources=whole)))
    assert amounts["cpu"] == cpu
    assert amounts.get("memory", 0) == (2**30 if "memory" in whole else 0)
    assert "example.com/x" not in amounts


def listening(*found, sidecar=False):
    return Container(name="c", host_ports=found, sidecar=sidecar)


def test_ports_of_init_containers_are_free_again_before_anybody_could_ask():
    asked = pod(listening(("TCP", "", 80)), init=(listening(("TCP", "", 81)), listening(("UDP", "", 82), sidecar=True)))
    assert asked.host_ports == (("UDP", "", 82), ("TCP", "", 80))


@pytest.mark.parametrize(
    ("held", "wanted", "in_use"),
    [
        pytest.param(("TCP", "", 80), ("TCP", "", 80), True, id="the same"),
        pytest.param(("TCP", "", 80), ("TCP", "", 81), False, id="another port"),
        pytest.param(("UDP", "", 80), ("TCP", "", 80), False, id="another protocol"),
        pytest.param(("TCP", "10.0.0.1", 80), ("TCP", "10.0.0.2", 80), False, id="another address"),
        pytest.param(("TCP", "10.0.0.1", 80), ("TCP", "10.0.0.1", 80), True, id="the same address"),
        pytest.param(("TCP", "10.0.0.1", 80), ("TCP", "", 80), True, id="wanted on all addresses"),
        pytest.param(("TCP", "0.0.0.0", 80), ("TCP", "10.0.0.1", 80), True, id="held on all addresses"),
        pytest.param(("TCP", "", 80), ("TCP", "0.0.0.0", 80), True, id="all addresses, in both spellings"),
    ],
)
def test_a_host_port_is_one_protocols_on_an_address_or_on_all(held, wanted, in_use):
    there = ports.reserve(None, (held,))
    assert bool(ports.in_use((wanted,), there)) is in_use
    assert ports.release(there, (held,)) == {}


def test_a_port_that_two_hold_is_free_when_both_have_given_it_back():
    port = ("TCP", "", 80)
    both = ports.reserve(ports.reserve(None, (port,)), (port,))
    one = ports.release(both, (port,))
    assert ports.in_use((port,), one) == (port,)
    assert ports.in_use((port,), ports.release(one, (port,))) == ()


def test_resources_that_cards_account_for_are_minded_only_where_they_are_advertised():
    asked = pod(Container(name="c", limits={"volcano.sh/vgpu-memory": "99", "volcano.sh/vgpu-number": "1"}))
    needed, accounted = model.parted(model.amounts_of(asked), frozenset({"volcano.sh/vgpu-memory"}))
    assert dict(needed) == {"pods": 1, "volcano.sh/vgpu-number": 1}
    assert dict(accounted) == {"volcano.sh/vgpu-memory": 99}
    for advertised, used, free in (
        ({}, 0, None),
        ({"volcano.sh/vgpu-memory": "100"}, 1, None),
        ({"volcano.sh/vgpu-memory": "100"}, 2, 98),
        ({"volcano.sh/vgpu-memory": "0"}, 0, 0),
    ):
        node, held = facts(allocatable=advertised), {"volcano.sh/vgpu-memory": used}
        short = () if free is None else (("volcano.sh/vgpu-memory", 99, free),)
        assert model.account_shortages(accounted, node, held) == short
        assert model.has_account(accounted, node.allocatable, held) is not bool(short)


def test_shortages_say_what_is_wanted_and_what_is_free():
    node = facts(allocatable={"cpu": "4", "pods": "10"})
    assert model.shortages((("cpu", 3000), ("pods", 1)), node, {"cpu": 2000}) == (("cpu", 3000, 2000),)
    assert model.shortages((("example.com/x", 1),), node, {}) == (("example.com/x", 1, 0),)
    assert not model.has_room((("cpu", 2001),), node.allocatable, {"cpu": 2000})
    assert model.has_room((("cpu", 2000),), node.allocatable, {"cpu": 2000})


NAMED = Requirement(key="metadata.name", operator="In", values=("n1",), of_field=True)
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
        pytest.param({"affinity": ((NAMED,),)}, {}, None, id="the node that is named"),
        pytest.param(
            {"affinity": ((replace(NAMED, values=("n2",)),),)},
            {"labels": {"metadata.name": "n2"}},
            "required node affinity",
            id="a label is no field",
        ),
        pytest.param(
            {"affinity": ((replace(NAMED, operator="NotIn"),),)}, {}, "required node affinity", id="any other node"
        ),
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
        pytest.param({"features": ("F",)}, {"features": ("E", "F")}, None, id="a feature that the node declares"),
        pytest.param({"features": ("F",)}, {"features": ("E",)}, "no declared feature F", id="one that it does not"),
    ],
)
def test_static_rules_admit_or_say_why_not(constraints, node, answer):
    features = constraints.pop("features", ())
    asked, there = asking(NodeConstraints(**constraints), features=features), facts(**node)
    told = [one.key for one in CONSTRAINTS.bars(asked, there)]
    assert told == ([] if answer is None else [answer])
    assert CONSTRAINTS.admits(asked, there) is not bool(told)


@pytest.mark.parametrize(
    ("operator", "value", "there", "met"),
    [
        ("Gt", "900", "950", True), ("Gt", "950", "950", False), ("Gt", "950", "900", False),
        ("Lt", "5", "4", True), ("Lt", "5", "5", False), ("Lt", "-5", "-6", True), ("Lt", "5", "", False),
        ("Gt", "5", "07", False), ("Gt", "+5", "6", False), ("Gt", "5", "high", False), ("Lt", "5", str(2**63), False),
        ("Near", "5", "5", False), ("Equal", "5", "5", True),
    ],
)  # fmt: skip
def test_tolerations_compare_values_as_in_kubernetes(operator, value, there, met):
    toleration = Toleration(key="sla", operator=operator, value=value)
    assert taints.tolerates((toleration,), Taint(key="sla", value=there, effect="NoExecute")) is met
    assert not taints.tolerates((toleration,), Taint(key="other", value=there, effect="NoExecute"))


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
        ("Gt", ("5",), "0" * 30 + "6", True), ("Gt", ("-5",), "6", False), ("Lt", ("+5",), "4", False),
    ],
)  # fmt: skip
def test_match_expressions_read_as_in_kubernetes(operator, values, label, met):
    labels = {} if label is None else {"k": label}
    assert model.satisfies(labels, Requirement(key="k", operator=operator, values=values)) is met
