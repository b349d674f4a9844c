"""How good a node is for pods that prefer some is what docs/decisions/0013 says, and the best of them is found.

The cluster of `test_node_fit`, in which pods have preferences too: on every node that takes a pod the score is compared
with one that is summed up from the manifests anew, and the candidates with a scan of all nodes.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from core.ledger import Ledger
from core.model import NodeName
from core.placing.candidates import Candidates
from core.placing.decide import NodePolicy, Shape, better, liking_of, scan, shape_of
from core.settings import NodeWeights, Policy, Settings, Tables
from core.wire.nodes import node_from_object
from core.wire.pods import pod_from_object
from tests.property import test_node_fit
from tests.support.devices.catalogs import catalog_of
from tests.support.devices.toy import Toy
from tests.support.judging import clusters

WEIGHTS = (
    NodeWeights(),
    NodeWeights(node_affinity=1, pod_affinity=0, pod_topology_spread=3, taint_toleration=1),
    NodeWeights(node_affinity=0, pod_affinity=5, pod_topology_spread=0, taint_toleration=0, least_requested=1),
)


class World(test_node_fit.World):
    """One in which pods and nodes have more to be compared by."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        weights = WEIGHTS[seed % len(WEIGHTS)]
        settings = Settings(policy=Policy.SPREAD, node_weights=weights)
        before, self.ledger = self.ledger, Ledger(catalog_of(Toy()), Tables(), settings)
        self.ledger.topology.set_namespaces(clusters.NAMESPACES)
        for node in before.nodes():
            self.ledger.set_node(node)
        self.rule = NodePolicy(Policy.SPREAD, 1, weights)
        self.candidates = Candidates(self.ledger, self.rule)

    def named(self, name):
        manifest = clusters.with_wishes(super().named(name), self.chance)
        manifest["metadata"]["uid"] = name
        manifest["spec"]["containers"][0]["image"] = self.chance.choice(("i", "j", "k"))
        return manifest

    def set_node(self, name):
        manifest = clusters.with_soft_taints(clusters.node(name, self.chance), self.chance)
        there = [one for one in "ij" if self.chance.random() < 0.5]
        manifest["status"]["images"] = [{"names": [f"{one}:latest"], "sizeBytes": 900 * 2**20} for one in there]
        self.book.nodes[name] = manifest
        self.ledger.set_node(node_from_object(manifest))

    def judge(self, manifest, ledger=None):
        """The scores of all nodes that take a waiting pod, beside what its preferences make of them."""
        ledger = ledger or self.ledger
        shown = pod_from_object(manifest)
        shape = shape_of(shown, ledger)
        assert isinstance(shape, Shape)
        weights = self.rule.others
        for name, where in self.book.nodes.items():
            state = ledger.states[NodeName(name)]
            found = better(ledger, self.rule, shape, state, None)
            if found is None:
                continue
            points = self.book.points(manifest, where)
            wanted = (
                weights.node_affinity * points.node_affinity
                + weights.pod_affinity * points.pod_affinity
                + weights.pod_topology_spread * points.spread
                + weights.taint_toleration * points.taints
            )
            none = replace(weights, node_affinity=0, pod_affinity=0, pod_topology_spread=0, taint_toleration=0)
            bare = better(ledger, NodePolicy(Policy.SPREAD, 1, none), without_wishes(shape), state, None)
            assert bare is not None
            got = bare.rank.minus_score - found.rank.minus_score
            assert got == pytest.approx(float(Fraction(wanted)), abs=1e-6), (name, manifest, self.book.pods)
        liking = liking_of(shown, self.ledger)
        best = self.candidates.best(shape, liking=liking)
        assert best == scan(self.ledger, self.rule, shape, liking=liking)
        return shown, shape


def without_wishes(shape: Shape) -> Shape:
    return Shape(
        dialect=shape.dialect,
        request=shape.request,
        amounts=shape.amounts,
        asked=shape.asked._replace(preferred=()),
    )


@pytest.mark.parametrize("seed", range(60))
def test_every_score_is_the_sum_of_what_the_documentation_counts(seed):
    world = World(seed)
    world.live(world.step, steps=20)
