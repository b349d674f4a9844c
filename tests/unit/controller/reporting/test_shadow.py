"""What a shadow says of a cluster that another schedules: of pods that wait, of what is wrong, and of its Bindings."""

from controller.actions import Inbox
from controller.reporting.shadow import NEEDLESS_S, Onlooker, Round, Shadow, judge
from controller.reporting.work import Work
from core.explaining import explain
from core.groups import GroupPhase, GroupSpec, GroupStatus, QueueSpec
from core.model import GroupKey, GroupKind, NodeName
from core.wire.policies import ResourceQuota
from tests.support.worlds.world import START_UNIX_S, World, node, on, pod

ADMITTED = GroupStatus(phase=GroupPhase.INQUEUE)
IDS = "volcano.sh/vgpu-ids-new"


class Beside(World):
    """A world that another schedules, and a shadow beside it."""

    def __init__(self, *nodes, **settings):
        super().__init__(*nodes, scheduler=Onlooker, scheduler_names=("volcano",), **settings)
        assert isinstance(self.scheduler, Onlooker)
        self.shadow = Shadow(
            self.scheduler,
            Inbox(lambda: self.now_s),
            self.why,
            self.metrics,
            is_current=lambda: True,
            clock=lambda: self.now_s,
            wall=lambda: START_UNIX_S + self.now_s,
        )

    async def why(self, shape, ledger, barred):
        assert not barred
        return explain.refused(ledger, shape, self.scheduler.cluster.search.policy.cards), 0.0

    async def told(self):
        await self.shadow.look()
        return self.report()

    def report(self):
        found = self.shadow.report()
        assert found is not None
        return found

    async def judged(self):
        """Of each pod that waits, by name: its node, or the code of why it waits."""
        return {one["pod"].partition("/")[2]: one.get("node") or one["code"] for one in (await self.told())["pods"]}

    def binds_otherwise(self, name, to, card, memory=1000):
        """The other scheduler binds a pod to a card of its choice."""
        before = self.seen(name)
        ids = f"{card},NVIDIA,{memory},0:;"
        marks = {IDS: ids, "volcano.sh/vgpu-node": to, "volcano.sh/devices-to-allocate": ids}
        return self.shows(before, node_name=to, annotations={**before.annotations, **marks})


def asks(name, **fields):
    return pod(name, scheduler_name="volcano", **fields)


async def test_pods_are_placed_one_after_the_other_and_the_rest_is_told_why_not():
    world = Beside(node("n1"))
    world.adds(asks("a", memory=6000), asks("b", memory=6000, priority=1), asks("c", memory=3000))
    assert await world.judged() == {"b": "n1", "a": "CS501", "c": "n1"}
    found = {one["pod"]: one for one in (await world.told())["pods"]}
    assert found["default/b"]["cards"] == [{"card": "n1-0", "share": "6000 MiB"}]
    assert "4000 of 6000 MiB" in found["default/a"]["text"] or "1000 of 6000 MiB" in found["default/a"]["text"]


async def test_nothing_of_a_round_is_kept_and_nothing_is_to_be_done_outside():
    world = Beside(node("n1"))
    world.adds(asks("a"), asks("b"))
    before = world.ledger.states[NodeName("n1")]
    await world.told()
    assert world.ledger.states[NodeName("n1")] is before
    assert not world.scheduler.cluster.actions
    assert {world.stage("a"), world.stage("b")} == {"ready"}


async def test_a_pod_waits_without_need_once_it_has_had_a_place_for_long_and_no_longer_than_it_waits():
    world = Beside(node("n1"))
    world.adds(asks("a"), asks("big", memory=10_000))
    world.adds(asks("never", memory=90_000))
    assert (await world.told())["without_need"] == 0
    world.now_s += NEEDLESS_S
    found = await world.told()
    assert (found["without_need"], [one["pod"] for one in found["pods"] if one["without_need"]]) == (1, ["default/a"])
    world.binds_otherwise("a", "n1", "n1-0")
    assert world.report()["without_need"] == 0
    # The room went, and came again: the time begins anew.
    world.adds(asks("b"))
    await world.told()
    world.now_s += NEEDLESS_S / 2
    world.binds_otherwise("big", "n1", "n1-0", 9000)
    await world.told()
    world.gone("big")
    world.now_s += NEEDLESS_S / 2
    assert (await world.told())["without_need"] == 0


async def test_bindings_of_another_are_counted_as_they_are_and_compared_with_what_would_have_been_done():
    world = Beside(node("n1", cards=2), node("n2"))
    world.adds(asks("first"), asks("second"), asks("third"), asks("fourth", memory=9000), asks("fifth", memory=9500))
    world.binds_otherwise("first", "n1", "n1-0")
    world.binds_otherwise("second", "n1", "n1-1")
    world.binds_otherwise("third", "n2", "n2-0")
    world.binds_otherwise("fourth", "n1", "n1-0", 9000)
    world.binds_otherwise("fifth", "n1", "n1-0", 9500)
    await world.shadow.look()
    found = world.report()
    assert sum(found["bindings"].values()) == 5
    assert found["bound"] == 5
    outcomes = {one["pod"].partition("/")[2]: one["outcome"] for one in found["differences"]}
    assert outcomes["second"] == "other-cards"
    assert outcomes["third"] == "other-node"
    assert outcomes["fifth"] == "refused"
    (over,) = [one for one in found["findings"] if "overcommit" in one["fault"]]
    assert over["node"] == "n1"
    assert "n1-0" in over["text"]
    instead = {one["pod"]: one["instead"] for one in found["differences"]}["default/fifth"]["text"]
    assert instead.startswith("no node fits; n1: ")
    world.shadow.fill()
    text = {
        (sample.name, *sample.labels.values()): sample.value
        for family in world.metrics.registry.collect()
        for sample in family.samples
    }
    assert text["cardshare_shadow_bindings_total", "refused"] == 1
    assert text["cardshare_audit_findings", over["fault"]] == 1
    assert text["cardshare_shadow_pods", "fits"] == 0


async def test_members_of_a_gang_fit_together_or_none_does():
    world = Beside(node("n1"))
    key = GroupKey(kind=GroupKind.VOLCANO, namespace="default", name="g")
    world.groups_are(
        GroupSpec(key=key, uid="g", min_member=2, queue="q", status=ADMITTED), queues=[QueueSpec(name="q")]
    )
    named = {"scheduling.k8s.io/group-name": "g"}
    world.adds(*(asks(name, memory=6000, annotations=named) for name in ("a", "b")))
    assert set((await world.judged()).values()) == {"CS520"}
    world.scheduler.nodes.changed(node("n2"))
    assert sorted((await world.judged()).values()) == ["n1", "n2"]


async def test_a_queue_gives_no_more_than_it_has_in_one_round():
    world = Beside(node("n1"))
    queue = QueueSpec(name="q", capability={"volcano.sh/vgpu-memory": 2500})
    keys = [GroupKey(kind=GroupKind.VOLCANO, namespace="default", name=f"g{at}") for at in range(3)]
    world.groups_are(
        *(GroupSpec(key=key, uid=key.name, min_member=1, queue="q", status=ADMITTED) for key in keys), queues=[queue]
    )
    world.adds(*(asks(key.name, annotations={"scheduling.k8s.io/group-name": key.name}) for key in keys))
    assert sorted((await world.judged()).values()) == ["CS530", "n1", "n1"]


async def test_a_namespace_gives_no_more_than_its_quota_in_one_round():
    world = Beside(node("n1"))
    hard = {"limits.volcano.sh/vgpu-memory": 2500}
    world.scheduler.cluster.budgets.quotas.replaced([ResourceQuota("default", "q", hard, {})])
    world.adds(*(asks(name) for name in "abc"))
    assert sorted((await world.judged()).values()) == ["CS532", "n1", "n1"]


async def test_no_more_are_judged_than_there_is_room_for_and_the_rest_is_counted():
    world = Beside(node("n1"))
    world.adds(*(asks(f"p{at}") for at in range(5)))
    found = await judge(world.scheduler, world.why, Work(lambda: world.now_s), Round(), most=3)
    assert (len(found.judged), found.left_out) == (3, 2)


async def test_reasons_are_worked_out_for_so_many_kinds_of_pods(monkeypatch):
    monkeypatch.setattr("controller.reporting.shadow.EXPLAINED_MAX", 2)
    world = Beside(node("n1"))
    world.adds(*(asks(f"p{at}", memory=20_000 + at) for at in range(4)), asks("twin", memory=20_000))
    names = ("p0", "p1", "p2", "p3", "twin")
    codes = await world.judged()
    assert [codes[name] for name in names] == ["CS502", "CS502", "", "", "CS502"]
    codes = await world.judged()
    assert [codes[name] for name in names] == ["CS502"] * 5


async def test_pods_of_other_schedulers_are_not_judged():
    world = Beside(node("n1"))
    world.adds(asks("a"), asks("b")._replace(scheduler_name="third"), asks("c", constraints=on("nowhere")))
    assert (await world.judged()).keys() == {"a", "c"}
