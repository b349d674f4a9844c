import json

import pytest

from core.errors import InvalidRequestError
from core.groups import HyperNode, Members
from core.model import Requirement
from core.wire.hyper_nodes import decode_hyper_node, salvage_hyper_node


def text(**spec):
    return json.dumps({"metadata": {"name": "s", "uid": "u"}, "spec": spec, "status": {"nodeCount": 2}}).encode()


def member(kind, **selector):
    return {"type": kind, "selector": selector}


def test_members_are_nodes_by_name_pattern_and_labels_and_hyper_nodes_by_name():
    labels = {"matchLabels": {"rack": "a"}, "matchExpressions": [{"key": "gpu", "operator": "Exists"}]}
    members = [
        member("Node", exactMatch={"name": "n0"}),
        member("Node", regexMatch={"pattern": "^n[1-3]$"}),
        member("Node", labelMatch=labels),
        member("HyperNode", exactMatch={"name": "t"}),
        member("HyperNode", regexMatch={"pattern": ".*"}),
        member("Node"),
    ]
    assert decode_hyper_node(text(tier=2, tierName="block", members=members)) == HyperNode(
        name="s",
        tier=2,
        tier_name="block",
        members=(
            Members(name="n0"),
            Members(pattern="^n[1-3]$"),
            Members(
                labels=(
                    Requirement(key="rack", operator="In", values=("a",)),
                    Requirement(key="gpu", operator="Exists"),
                )
            ),
            Members(name="t", is_inner=True),
        ),
    )


def test_an_empty_selector_selects_no_node():
    members = [member("Node", labelMatch={}), member("Node", labelMatch={"matchLabels": {}, "matchExpressions": []})]
    assert decode_hyper_node(text(members=members)).members == ()


def test_what_says_nothing_has_no_members():
    assert decode_hyper_node(b'{"metadata":{"name":"s"}}') == HyperNode(name="s")


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"members": [member("Node", regexMatch={"pattern": "n["})]}, r"spec.members\[0\].selector.regexMatch.pattern"),
        (
            {"members": [member("Node", regexMatch={"pattern": r"^([a-z0-9-]+\.?)+\.local$"})]},
            "repeat nothing that has a repeat, ",
        ),
        ({"tier": "one"}, "tier"),
        ({"tier": -1}, "tier"),
    ],
)
def test_what_cannot_be_read_is_told_and_has_no_members(spec, problem):
    with pytest.raises(InvalidRequestError, match=problem):
        decode_hyper_node(text(**spec))
    assert salvage_hyper_node(text(**spec)) == HyperNode(name="s")


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+",
        "(a*)*b",
        "((a+)b)*",
        "(?:x{1,9}y?)+",
        "(a+){2,}",
        "(b(a+|c))+?",
        "([)]+)+",
        "(?P<n>a+)*",
        "(a|a)+b",
        "(a?a)+b",
    ],
)
def test_a_pattern_that_python_may_search_for_ever_is_refused(pattern):
    with pytest.raises(InvalidRequestError, match="repeat nothing that has a repeat, "):
        decode_hyper_node(text(members=[member("Node", regexMatch={"pattern": pattern})]))


@pytest.mark.parametrize(
    "pattern",
    [
        *("(?=a)", "(?!a)b", "(?<=a)b", "(?<!a)b", r"(a)\1", "(?P<n>a)(?P=n)", "(?>a)", "a(?#b)", "(a)?(?(1)b)"),
        *("a*+", "a?+", "a{1,2}+", r"a\Z", "x{,3}", "[[:alpha:]]", "[^a[:digit:]]", "(?x)a # :)\n+", "(?s-i:a)(?a:b)"),
    ],
)
@pytest.mark.filterwarnings("ignore:Possible nested set")
def test_a_pattern_that_go_reads_in_another_way_is_refused(pattern):
    with pytest.raises(InvalidRequestError, match="Go's regular expressions"):
        decode_hyper_node(text(members=[member("Node", regexMatch={"pattern": pattern})]))


@pytest.mark.parametrize(
    "pattern",
    [
        ".*.*.*.*.*x",
        "(a?){30}a{30}",
        "a?" * 30 + "a{30}",
        "(a|aa){30}b",
        "(a|aa)" * 30 + "b",
        "((a?){6}b){6}",
        "(a+){6}b",
    ],
)
def test_a_pattern_with_more_ways_to_match_a_name_than_a_search_can_try_is_refused(pattern):
    with pytest.raises(InvalidRequestError, match="write at most 4 repeats in a row"):
        decode_hyper_node(text(members=[member("Node", regexMatch={"pattern": pattern})]))


@pytest.mark.parametrize(
    "pattern",
    [
        "^node-[0-9]+$",
        "a+b*c{1,3}",
        "(gpu|cpu)-[0-9]+",
        "([a-f]{4}-)+x",
        "([+*]-)+",
        r"(\+\*)*",
        "(a+)?",
        "(a+)b+",
        ".*-.*-.*-.*x",
        "(?i)a",
        "(?i:a)b+?",
        r"[\d\]:[]+",
        "|".join(f"^rack-{at}-[0-9]+$" for at in range(40)),
        "^(rack-1|rack-2|rack-3)-[0-9]+-?[a-z]+-[0-9]+-[a-z]+$",
        "^[a-f]{8}-?([0-9]{4}-){3}x{12}$",
        "a{}b{",
    ],
)
def test_other_patterns_are_taken(pattern):
    (found,) = decode_hyper_node(text(members=[member("Node", regexMatch={"pattern": pattern})])).members
    assert found.pattern == pattern


def test_the_tier_of_what_cannot_be_read_stays():
    bad = text(tier=2, tierName="block", members=[member("Node", regexMatch={"pattern": "n["})])
    assert salvage_hyper_node(bad) == HyperNode(name="s", tier=2, tier_name="block")
