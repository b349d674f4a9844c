import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.groups import HyperNode, Members
from core.model import NodeName, Requirement
from core.placing import domains
from core.placing.domains import HyperNodes

NODES = tuple(NodeName(f"n{at}") for at in range(4))


class Counting(dict[str, str]):
    """Labels that count how often one of them is read."""

    reads = 0

    def get(self, key, default=None):
        self.reads += 1
        return super().get(key, default)


def having(key, *values, operator="In"):
    return Requirement(key=key, operator=operator, values=values)


members = st.one_of(
    st.builds(lambda at: Members(name=f"n{at}"), st.integers(0, 3)),
    st.builds(lambda at: Members(name=f"h{at}", is_inner=True), st.integers(0, 4)),
    st.builds(lambda text: Members(pattern=text), st.sampled_from(("^n[01]$", "2", "^x", "n"))),
    st.builds(
        lambda asked: Members(labels=tuple(asked)),
        st.lists(
            st.one_of(
                st.builds(having, st.sampled_from("ab"), st.sampled_from("12"), st.sampled_from("123")),
                st.builds(lambda key: having(key, operator="Exists"), st.sampled_from("ab")),
                st.builds(lambda key: having(key, "1", operator="NotIn"), st.sampled_from("ab")),
            ),
            max_size=2,
        ),
    ),
)
hyper_nodes = st.lists(st.lists(members, max_size=3), max_size=5).map(
    lambda drawn: [HyperNode(name=f"h{at}", tier=at, members=tuple(some)) for at, some in enumerate(drawn)]
)
labels = st.dictionaries(st.sampled_from("ab"), st.sampled_from("123"))


def meets(found, one):
    value = found.get(one.key)
    return {"In": value in one.values, "Exists": value is not None, "NotIn": value not in one.values}[one.operator]


def has(one, node, found, all_, seen=()):
    """Whether HyperNode *one* has a node, by its definition."""
    return any(
        (m.is_inner and m.name in all_ and m.name not in seen and has(all_[m.name], node, found, all_, (*seen, m.name)))
        or (not m.is_inner and m.name == node)
        or bool(m.pattern and re.search(m.pattern, node))
        or (m.labels is not None and all(meets(found, each) for each in m.labels))
        for m in one.members
    )


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(hyper_nodes, labels), min_size=1, max_size=3))
def test_a_node_is_in_the_hyper_nodes_that_have_it_however_these_change(drawn):
    network = None
    for some, found in drawn:
        network = HyperNodes(some, network)
        all_ = {one.name: one for one in some}
        for node in NODES:
            expected = [(one.tier, (one.name,)) for one in some if has(one, node, found, all_, (one.name,))]
            assert list(network.around(node, found)) == sorted(expected)


def test_a_node_is_compared_with_the_labels_that_it_has():
    network = HyperNodes(
        HyperNode(name=f"h{at}", tier=1, members=(Members(labels=(having("rack", f"r{at}"),)),)) for at in range(500)
    )
    found = Counting(rack="r7", zone="z")
    assert network.around(NODES[0], found) == ((1, ("h7",)),)
    assert found.reads <= 2


@pytest.mark.interpreted(reason="how many are remembered at most is another number here")
def test_what_is_known_of_nodes_that_are_gone_is_forgotten_however_often_hyper_nodes_change(monkeypatch):
    monkeypatch.setattr(domains, "_KNOWN_MAX", 8)
    one = HyperNode(name="h", tier=1, members=(Members(pattern="^n"),))
    network = HyperNodes([one])
    for at in range(100):
        network = HyperNodes([one], network)
        assert network.around(NodeName(f"n{at}"), {}) == ((1, ("h",)),)
    assert len(network._matched) <= 8
