"""Each node's verdict on pods that mind nodes and each other is that of Kubernetes' documentation.

A cluster lives through pods and nodes that come, change and go, and trials that are kept or not. After each step a few
pods that wait are judged on every node, twice over: by the ledger, which keeps up what it counted, and by a judge that
reads the manifests anew. The best candidate is one of those that neither refuses.
"""

from __future__ import annotations

from random import Random

import pytest

from core.ledger import Ledger
from core.model import NodeName, Pod, PodUid
from core.placing.candidates import Candidates
from core.placing.decide import decide, shape_of, still_fits
from core.placing.score import NodePolicy
from core.placing.shape import Shape, better, scan
from core.settings import Policy, Settings, Tables
from core.topology.counting import Topology
from core.wire.nodes import node_from_object
from core.wire.pods import pod_from_object
from tests.support.devices.catalogs import catalog_of
from tests.support.devices.toy import Toy
from tests.support.judging.by_the_book import Cluster
from tests.support.judging.clusters import NAMESPACES, node, pod, pod_labels

RULE = NodePolicy(Policy.SPREAD, 1)


class World:
    """The same cluster twice."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.book = Cluster(NAMESPACES)
        self.ledger = Ledger(catalog_of(Toy()), Tables(), Settings())
        if seed % 3 == 0:
            self.ledger.topology = Topology(views_max=2)
        self.ledger.topology.set_namespaces(NAMESPACES)
        self.candidates = Candidates(self.ledger, RULE)
        self.waiting = [self.named(f"w{number}") for number in range(4)]
        self.made = 0
        for number in range(self.chance.randint(2, 5)):
            self.set_node(f"n{number}")

    def named(self, name):
        manifest = pod(name, self.chance)
        manifest["metadata"]["uid"] = name
        return manifest

    def set_node(self, name):
        manifest = node(name, self.chance)
        self.book.nodes[name] = manifest
        self.ledger.set_node(node_from_object(manifest))

    def show(self, manifest):
        """A pod that is on a node, as the API server shows it."""
        self.book.pods[manifest["metadata"]["name"]] = manifest
        self.ledger.count(pod_from_object(manifest))

    def step(self):
        chance, book = self.chance, self.book
        draw = chance.random()
        if draw < 0.5 or not book.pods:
            self.made += 1
            manifest = self.named(f"p{self.made}")
            manifest["spec"]["nodeName"] = chance.choice([*book.nodes, "gone"])
            self.show(manifest)
            return
        name = chance.choice(sorted(book.pods))
        manifest = book.pods[name]
        if draw < 0.65:
            del book.pods[name]
            self.ledger.release(PodUid(name))
        elif draw < 0.75:
            self.show({**manifest, "metadata": {**manifest["metadata"], "labels": pod_labels(chance)}})
        elif draw < 0.8:
            gone_at = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
            self.show({**manifest, "metadata": {**manifest["metadata"], **gone_at}})
        elif draw < 0.84:
            self.show({**manifest, "status": {"phase": "Succeeded"}})
            del book.pods[name]
        elif draw < 0.93:
            self.set_node(f"n{chance.randint(0, 6)}")
        elif len(book.nodes) > 1:
            gone = chance.choice(sorted(book.nodes))
            del book.nodes[gone]
            self.ledger.remove_node(NodeName(gone))

    def judge(self, manifest, ledger=None):
        """The best node for a waiting pod, which is judged on all of them."""
        ledger = ledger or self.ledger
        shown: Pod = pod_from_object(manifest)
        shape = shape_of(shown, ledger)
        assert isinstance(shape, Shape)
        for name, where in self.book.nodes.items():
            refusals = self.book.refusals(manifest, where)
            taken = better(ledger, RULE, shape, ledger.states[NodeName(name)], None) is not None
            assert taken == (not refusals), (name, refusals, manifest, self.book.pods, self.book.nodes)
        return shown, shape

    def place(self, manifest, *, kept):
        """Promise a waiting pod its best node, in a trial."""
        shown, shape = self.judge(manifest)
        placement = decide(self.candidates, shown, shape)
        found = scan(self.ledger, RULE, shape)
        assert (placement is None) == (found is None)
        if placement is None or found is None:
            return
        assert placement.node == found.node
        with self.ledger.trial() as trial:
            self.ledger.reserve(placement)
            self.book.pods[manifest["metadata"]["name"]] = {
                **manifest,
                "spec": {**manifest["spec"], "nodeName": str(placement.node)},
            }
            assert still_fits(self.ledger, RULE, shape, placement)
            for one in self.waiting:
                if one is not manifest:
                    self.judge(one)
            if kept:
                trial.keep()
        if kept:
            self.waiting.remove(manifest)
            self.made += 1
            self.waiting.append(self.named(f"w-{self.made}"))
        else:
            del self.book.pods[manifest["metadata"]["name"]]


@pytest.mark.parametrize("seed", range(120))
def test_every_verdict_is_that_of_the_documentation(seed):
    world = World(seed)
    for number in range(25):
        world.step()
        for manifest in world.waiting:
            world.judge(manifest)
        if number % 4 == 3:
            world.judge(world.waiting[0], world.ledger.fork())
        world.place(world.chance.choice(world.waiting), kept=world.chance.random() < 0.5)
        for manifest in world.waiting:
            world.judge(manifest)
