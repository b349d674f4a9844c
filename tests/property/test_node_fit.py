"""Each node's verdict on pods that mind nodes and each other is that of Kubernetes' documentation.

A cluster lives through pods and nodes that come, change and go, and trials that are kept or not. After each step a few
pods that wait are judged on every node, twice over: by the ledger, which keeps up what it counted, and by a judge that
reads the manifests anew. The best candidate is one of those that neither refuses.
"""

from __future__ import annotations

import pytest

from core.model import NodeName, PodUid
from core.wire.nodes import node_from_object
from tests.support.judging.by_the_book import Cluster
from tests.support.judging.clusters import NAMESPACES, node, pod, pod_labels
from tests.support.judging.twice import Twice


class World(Twice):
    """Nodes with labels and taints, and pods that mind these and each other."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, Cluster(NAMESPACES), self.named)
        self.ledger.topology.set_namespaces(NAMESPACES)
        self.waiting = [self.named(f"w{number}") for number in range(4)]
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
        shown, shape = super().judge(manifest, ledger)
        assert shape is not None
        return shown, shape


@pytest.mark.parametrize("seed", range(80))
def test_every_verdict_is_that_of_the_documentation(seed):
    world = World(seed)
    world.live(world.step)
