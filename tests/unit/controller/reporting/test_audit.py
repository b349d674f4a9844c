"""The audit of a running controller: what it finds wrong it looks at again, repairs, and tells."""

import pytest

from controller.actions import Inbox
from controller.metrics import Metrics
from controller.reporting.audit import AGAIN_S, COLLECTED_S, Audit
from core.model import NodeName
from core.settings import DialectName
from kube.errors import ApiUnreachableError, UndecodableError
from tests.support.worlds.world import World, node, pod

VGPU = DialectName("vgpu")


class AtOnce(Inbox):
    """An inbox whose owner works off what it is told as soon as it is."""

    async def put_and_wait(self, message):
        self.put(message)
        self.work(1.0)


class StopError(Exception):
    """Enough rounds."""


class Rig:
    """An owner, and the API server's side of an audit: the pods that it would list."""

    def __init__(self):
        self.world = World(node("n1", cards=2))
        self.world.adds(pod("a", memory=9000), pod("b", memory=9000))
        self.world.placed()
        self.metrics = Metrics()
        self.inbox = AtOnce(lambda: 0.0)
        self.slept: list[float] = []
        self.between = None
        self.lists = 0
        self.audit = Audit(
            self.world.scheduler, self.inbox, self.fetch, self.metrics, list_again=self.list_again, sleep=self.sleep
        )
        self.listed = None

    def list_again(self):
        self.lists += 1

    async def sleep(self, seconds):
        self.slept.append(seconds)
        self.world.now_s += seconds
        if seconds == AGAIN_S and self.between is not None:
            self.between()

    async def fetch(self, name):
        if self.listed is not None:
            return self.listed
        return [one for one in self.world.pods.values() if one.node_name == name]

    async def looks(self):
        """Look at the node; the findings that stand."""
        await self.audit.look_at(NodeName("n1"))
        return [one["text"] for one in self.audit.report()["findings"]]

    async def rounds(self, count):
        """Finish rounds; the findings that stand."""

        async def stops(seconds):
            if self.audit.rounds == count:
                raise StopError
            await self.sleep(seconds)

        self.audit._sleep = stops
        with pytest.raises(StopError):
            await self.audit.run()
        return [one["fault"] for one in self.audit.report()["findings"]]

    def repairs(self):
        return self.metrics.registry.get_sample_value("cardshare_audit_repairs_total")

    def used(self):
        return [one.used for one in self.world.ledger.catalog.dialects[VGPU].tally(self.cards())]

    def cards(self):
        return self.world.ledger.states[NodeName("n1")].offers[VGPU]


@pytest.fixture
def rig():
    return Rig()


async def test_a_true_ledger_is_looked_at_once_and_left_alone(rig):
    assert await rig.looks() == []
    assert (rig.slept, rig.repairs()) == ([], 0.0)


@pytest.mark.drifts(reason="what was not shown is what it is about")
async def test_a_pod_that_was_not_seen_bound_is_counted_after_a_second_look(rig):
    missed = rig.world.seen("a")._replace(uid="uid-c", name="c", resource_version="900")
    rig.listed = [*rig.world.pods.values(), missed]
    texts = await rig.looks()
    assert (rig.slept, rig.repairs()) == ([AGAIN_S], 1.0)
    assert any("default/c" in text for text in texts)
    assert "uid-c" in rig.world.holders("n1")
    assert [one.reason for one in rig.world.announced() if one.about.kind == "Node"][:1] == ["LedgerRepaired"]


@pytest.mark.drifts(reason="what was not shown is what it is about")
async def test_a_pod_that_the_mirror_shows_between_the_looks_is_no_drift(rig):
    late = rig.world.seen("a")._replace(uid="uid-c", name="c", resource_version="900")
    rig.listed = [*rig.world.pods.values(), late]
    rig.between = lambda: rig.world.scheduler.pod_changed(late)
    await rig.looks()
    assert rig.repairs() == 0.0


@pytest.mark.drifts(reason="what was not shown is what it is about")
async def test_a_pod_that_was_not_seen_to_go_is_released(rig):
    rig.listed = [rig.world.seen("a")]
    await rig.looks()
    rig.world.passes(6.0)
    assert rig.world.holders("n1") == {"uid-a"}
    assert sorted(rig.used()) == [0, 9000]
    # It may be there without a node.
    assert rig.lists == 1


async def test_a_pod_that_is_only_promised_is_no_drift(rig):
    rig.world.adds(pod("c", memory=500))
    rig.world.binds()
    assert await rig.looks() == []
    assert "uid-c" in rig.world.holders("n1")


async def test_a_state_that_is_not_the_sum_of_its_holders_is_made_anew(rig):
    ledger, name = rig.world.ledger, NodeName("n1")
    state = ledger.states[name]
    ledger.states[name] = state._replace(offers={VGPU: ledger.empty_cards(name, VGPU)})
    assert rig.used() == [0, 0]
    [text, *_] = await rig.looks()
    assert "not the sum of what is held" in text
    assert rig.used() == [9000, 9000]
    assert await rig.looks() == []


async def test_a_card_over_its_total_is_told_once_and_stands_until_it_is_not(rig):
    rig.world.scheduler.nodes.changed(node("n1", cards=2, memory=8000, version="2"))
    rig.world.announced()
    assert len(await rig.looks()) == 2
    assert {one.reason for one in rig.world.announced()} == {"CardsOvercommitted"}
    assert len(await rig.looks()) == 2
    assert rig.world.announced() == []
    rig.world.gone("a")
    rig.world.gone("b")
    assert await rig.looks() == []


async def test_a_pod_that_another_scheduler_put_on_a_full_card_is_blamed(rig):
    theirs = rig.world.seen("a")._replace(uid="uid-c", name="c", scheduler_name="volcano")
    rig.world.pods[theirs.uid] = theirs
    rig.world.scheduler.pod_changed(theirs)
    [text] = await rig.looks()
    assert "bound by another scheduler are among its holders: default/c" in text
    [found] = rig.audit.report()["findings"]
    assert found["fault"] == "foreign-overcommit"


@pytest.mark.drifts(reason="what was not shown is what it is about")
async def test_events_of_a_node_name_no_pod_and_the_report_does(rig):
    rig.world.scheduler.nodes.changed(node("n1", cards=2, memory=8000, version="2"))
    missed = rig.world.seen("a")._replace(uid="uid-c", name="c", resource_version="900")
    other = missed._replace(uid="uid-d", name="d")
    rig.listed = [*rig.world.pods.values(), missed, other]
    rig.world.announced()
    texts = await rig.looks()
    told = [one for one in rig.world.announced() if one.about.kind == "Node"]
    assert sorted(one.reason for one in told) == ["CardsOvercommitted", "CardsOvercommitted", "LedgerRepaired"]
    for name in ("a", "b", "c", "d"):
        assert any(f"default/{name}" in text for text in texts)
    assert not [one.message for one in told if "default/" in one.message or "uid-" in one.message]
    assert all("/v1/audit" in one.message for one in told)
    assert [one.message for one in told if "its holders: 4 pods" in one.message]


@pytest.mark.parametrize("round_s", [30.0, 600.0])
async def test_pods_that_a_removed_node_leaves_are_told_only_if_nothing_collects_them(rig, round_s):
    rig.world.configures(audit_round_s=round_s)
    rig.world.scheduler.nodes.changed(node("n2", cards=2))
    rig.world.scheduler.nodes.gone(NodeName("n1"))
    assert await rig.rounds(2) == ([] if round_s < COLLECTED_S else ["missing-node", "missing-node"])
    for name in ("a", "b"):
        rig.world.gone(name)
    assert await rig.rounds(9) == []
    assert set(rig.slept) == {round_s}


@pytest.mark.parametrize("round_s", [30.0, 600.0])
async def test_pods_that_stay_on_a_removed_node_are_told_and_delay_no_round(rig, round_s):
    rig.world.configures(audit_round_s=round_s)
    rig.world.scheduler.nodes.changed(node("n2", cards=2))
    rig.world.scheduler.nodes.gone(NodeName("n1"))
    assert await rig.rounds(9) == ["missing-node", "missing-node"]
    assert set(rig.slept) == {round_s}


@pytest.mark.parametrize(
    "failure",
    [
        ApiUnreachableError(verb="GET", path="/api/v1/pods", status=0, message="refused"),
        UndecodableError("a list cannot be read: it is a proxy's page"),
    ],
    ids=["unreachable", "a proxy's page"],
)
async def test_an_api_server_that_does_not_answer_ends_no_audit(rig, failure):
    async def fails(_):
        raise failure

    rig.audit._fetch = fails
    assert await rig.looks() == []
    assert rig.metrics.registry.get_sample_value("cardshare_api_errors_total", {"call": "audit node"}) == 1.0
