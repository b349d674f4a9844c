"""One cluster kept twice: by the ledger, and by a judge that reads the manifests anew for every verdict."""

from __future__ import annotations

from random import Random

from core.constraints.topology.counting import Topology
from core.ledger import Ledger
from core.model import NodeName
from core.placing.candidates import Candidates
from core.placing.decide import NodePolicy, Shape, better, decide, liking_of, scan, shape_of, still_fits
from core.settings import Policy, Settings, Tables
from core.waiting import Wait
from core.wire.pods import pod_from_object
from tests.support.devices.catalogs import catalog_of
from tests.support.devices.toy import Toy


def assert_explained(ledger, shape, state):
    """Constraints refuse a node exactly if they say why."""
    kept, asked, facts = ledger.constraints, shape.asked, state.facts
    assert kept.admits(asked, facts) == (not [*kept.bars(asked._replace(pods=()), facts)])
    assert kept.blocks(asked.pods, facts) == bool([*kept.bars(asked._replace(node=()), facts)])
    assert kept.fits(asked, facts, state.held) == (not [*kept.conflicts(asked, facts, state.held)])


class Twice:
    """A cluster that is drawn by chance.

    Attributes:
        book: the judge, with the manifests of nodes and pods by name.
        waiting: the manifests of pods that are on no node.
        made: how many pods were drawn since the first ones.
        rule: how nodes compare.
    """

    def __init__(self, seed, book, drawn):
        """Begin empty; *drawn*: the manifest of a new pod of some name."""
        self.chance = Random(seed)
        self.book = book
        topology = Topology(views_max=2) if seed % 3 == 0 else Topology()
        self.ledger = Ledger(catalog_of(Toy()), Tables(), Settings(), topology=topology)
        self.rule = NodePolicy(Policy.SPREAD, 1)
        self.candidates = Candidates(self.ledger, self.rule)
        self.waiting = []
        self.made = 0
        self.drawn = drawn

    def show(self, manifest):
        """A pod that is on a node, as the API server shows it."""
        self.book.pods[manifest["metadata"]["name"]] = manifest
        self.ledger.count(pod_from_object(manifest))

    def judge(self, manifest, ledger=None):
        """(a waiting pod, its shape), judged on all nodes; no shape: it cannot be placed whatever they have."""
        ledger = ledger or self.ledger
        shown = pod_from_object(manifest)
        shape = shape_of(shown, ledger)
        for name, where in self.book.nodes.items():
            refusals = self.book.refusals(manifest, where)
            if isinstance(shape, Wait):
                assert refusals, (shape, manifest)
                continue
            assert isinstance(shape, Shape)
            state = ledger.states[NodeName(name)]
            taken = better(ledger, self.rule, shape, state, None) is not None
            assert_explained(ledger, shape, state)
            assert taken == (not refusals), (name, refusals, manifest, self.book.pods, self.book.nodes)
        return shown, shape if isinstance(shape, Shape) else None

    def place(self, manifest, *, kept):
        """Promise a waiting pod its best node, in a trial."""
        shown, shape = self.judge(manifest)
        if shape is None:
            return
        placement = decide(self.candidates, shown, shape)
        found = scan(self.ledger, self.rule, shape, liking=liking_of(shown, self.ledger))
        assert (placement is None) == (found is None)
        if placement is None or found is None:
            return
        assert placement.node == found.node
        with self.ledger.trial() as trial:
            self.ledger.reserve(placement)
            spec = {**manifest["spec"], "nodeName": str(placement.node)}
            self.book.pods[manifest["metadata"]["name"]] = {**manifest, "spec": spec}
            assert still_fits(self.ledger, shape, placement)
            for one in self.waiting:
                if one is not manifest:
                    self.judge(one)
            if kept:
                trial.keep()
        if kept:
            self.waiting.remove(manifest)
            self.made += 1
            self.waiting.append(self.drawn(f"w-{self.made}"))
        else:
            del self.book.pods[manifest["metadata"]["name"]]

    def live(self, step, steps=25):
        """Let *step* happen so often; whoever waits is judged before and after one of them is placed."""
        for number in range(steps):
            step()
            for manifest in self.waiting:
                self.judge(manifest)
            if number % 4 == 3:
                self.judge(self.waiting[0], self.ledger.fork())
            self.place(self.chance.choice(self.waiting), kept=self.chance.random() < 0.5)
            for manifest in self.waiting:
                self.judge(manifest)
