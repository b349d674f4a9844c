"""Who may place the pods that name another's scheduler, in virtual time."""

import asyncio

import pytest

from controller.actions import Announce
from controller.scheduler_names import HAMI, VOLCANO, SchedulerName, SchedulerNames
from core.model import Phase, PodUid
from kube.errors import ApiForbiddenError, ApiUnknownError
from kube.lease import Lease
from tests.support.servers.fake_leases import Clocks, FakeLeases, Way
from tests.support.worlds.world import World, node, pod

pytestmark = pytest.mark.looptime


class Played:
    """A leader's view of the name, and Volcano's lease."""

    def __init__(self, *, rival=VOLCANO, lease=None, is_sent=None):
        self.leases = FakeLeases()
        self.leases.spec = lease
        self.way = Way(self.leases)
        self.lease = Lease(
            self.way, namespace="volcano-system", name="volcano", identity="us", clocks=Clocks(), makes=False
        )
        self.sent: set[PodUid] = set()
        self.changes = 0
        self.events: list[Announce] = []
        self.given_up = asyncio.Event()
        self.is_wanted = True
        loop = asyncio.get_running_loop()
        self.name = SchedulerName(
            rival,
            is_wanted=lambda: self.is_wanted,
            is_sent=is_sent or self.sent.__contains__,
            changed=self.change,
            tell=self.tell,
            trusted=("mine",),
            clock=loop.time,
        )
        self.task = loop.create_task(self.name.run(self.lease if rival.lease else None, 7.0), name="name")

    def tell(self, event):
        self.events.append(event)
        self.given_up.set()

    def change(self):
        self.changes += 1


@pytest.fixture
async def play():
    played = []

    def begin(**options):
        played.append(Played(**options))
        return played[-1]

    yield begin
    for one in played:
        one.task.cancel()
        await asyncio.wait([one.task])


def theirs(**changes):
    spec = {"holderIdentity": "volcano-0", "leaseDurationSeconds": 15, "leaseTransitions": 3}
    return spec | {"renewTime": "2026-01-01T00:00:00.000000Z", "acquireTime": "2026-01-01T00:00:00.000000Z"} | changes


def named(name, **changes):
    return pod(name)._replace(scheduler_name=VOLCANO.name, **changes)


def scheduler(**changes):
    found = {"namespace": "volcano-system", "labels": {"app": "volcano-scheduler"}} | changes
    return pod("volcano-scheduler-1")._replace(**found)


async def test_where_there_is_no_such_lease_the_name_is_ours_and_none_is_made(play):
    one = play()
    assert one.name.given_up
    await asyncio.sleep(2.0)
    assert (one.name.given_up, one.changes, one.events, one.leases.spec) == ("", 1, [], None)


async def test_a_lease_that_another_renews_keeps_the_name_from_us_and_one_that_it_lets_go_is_held(play):
    one = play(lease=theirs())
    for at in range(20):
        await asyncio.sleep(2.0)
        one.leases.edit(renewTime=f"2026-01-01T00:00:{at:02}.000000Z")
        assert "is held by 'volcano-0'" in one.name.given_up
    assert [event.reason for event in one.events] == ["SchedulerNameGivenUp"]
    await asyncio.sleep(18.0)
    assert (one.name.given_up, one.leases.spec["holderIdentity"]) == ("", "us")
    await asyncio.sleep(60.0)
    assert (one.name.given_up, one.changes) == ("", 1)


async def test_a_lease_that_appears_takes_the_name_from_us(play):
    one = play()
    await asyncio.sleep(2.0)
    one.leases.spec = theirs()
    await asyncio.sleep(2.0)
    assert (bool(one.name.given_up), one.changes) == (True, 2)


async def test_a_lease_that_we_cannot_renew_is_given_up_before_another_can_have_it(play):
    one = play(lease=theirs(holderIdentity="", leaseDurationSeconds=1))
    await asyncio.sleep(3.0)
    assert (one.name.given_up, one.leases.spec["holderIdentity"]) == ("", "us")
    one.given_up.clear()
    one.way.before = lambda verb: ApiUnknownError(verb=verb, path="/l", status=500) if verb == "PATCH" else None
    renewed_s = one.leases.writes[-1][0]
    async with asyncio.timeout(20.0):
        await one.given_up.wait()
    assert asyncio.get_running_loop().time() - renewed_s <= 9.0


async def test_a_lease_passes_on_once_the_name_is_not_configured_any_more(play):
    one = play(lease=theirs(holderIdentity="", leaseDurationSeconds=1))
    await asyncio.sleep(10.0)
    assert (one.name.given_up, one.leases.spec["holderIdentity"]) == ("", "us")
    one.is_wanted = False
    await asyncio.sleep(1.0)
    writes = len(one.leases.writes)
    await asyncio.sleep(60.0)
    assert len(one.leases.writes) == writes
    one.leases.apply(theirs())
    one.is_wanted = True
    for _ in range(10):
        assert one.name.given_up
        await asyncio.sleep(1.0)
    assert "is held by 'volcano-0'" in one.name.given_up
    await asyncio.sleep(20.0)
    assert (one.name.given_up, one.leases.spec["holderIdentity"]) == ("", "us")


async def test_where_the_lease_may_not_be_read_the_operators_word_counts(play):
    one = play()
    one.way.before = lambda verb: ApiForbiddenError(verb=verb, path="/l", status=403)
    await asyncio.sleep(2.0)
    assert one.name.given_up == ""


async def test_a_lease_that_cannot_be_read_for_another_reason_keeps_the_name_from_us(play):
    one = play()
    one.way.before = lambda verb: ApiUnknownError(verb=verb, path="/l", status=500)
    await asyncio.sleep(10.0)
    assert one.name.given_up


async def test_a_pod_of_volcanos_scheduler_takes_the_name_from_us_while_it_is_there(play):
    one = play()
    await asyncio.sleep(2.0)
    one.name.seen(scheduler())
    await asyncio.sleep(1.0)
    assert "label app=volcano-scheduler" in one.name.given_up
    one.name.seen(scheduler(phase=Phase.SUCCEEDED))
    await asyncio.sleep(1.0)
    assert one.name.given_up == ""
    one.name.replaced([scheduler()])
    await asyncio.sleep(1.0)
    assert one.name.given_up
    one.name.gone(scheduler().uid)
    await asyncio.sleep(1.0)
    assert (one.name.given_up, one.changes) == ("", 5)


@pytest.mark.parametrize(("namespace", "believed"), [("volcano-system", True), ("mine", True), ("tenant", False)])
async def test_only_a_pod_where_tenants_make_none_is_taken_for_volcanos_scheduler(play, namespace, believed):
    one = play()
    await asyncio.sleep(2.0)
    one.name.seen(scheduler(namespace=namespace))
    await asyncio.sleep(1.0)
    assert bool(one.name.given_up) is believed


async def test_somebody_else_s_binding_of_such_a_pod_takes_the_name_from_us_for_five_minutes(play):
    one = play()
    await asyncio.sleep(2.0)
    one.name.seen(named("ours"))
    one.sent.add(named("ours").uid)
    one.name.seen(named("ours", node_name="n1"))
    one.name.seen(named("early", node_name="n1"))  # bound before it was first seen: by whom, nobody can say
    await asyncio.sleep(1.0)
    assert one.name.given_up == ""
    one.name.seen(named("theirs"))
    one.name.seen(named("theirs", node_name="n1"))
    await asyncio.sleep(299.0)
    assert one.name.given_up == "another client bound pod default/theirs"
    await asyncio.sleep(2.0)
    assert one.name.given_up == ""


async def test_hamis_name_is_ours_until_a_pod_of_hamis_scheduler_is_seen_or_its_binding(play):
    one = play(rival=HAMI)
    await asyncio.sleep(1.0)
    assert one.name.given_up == ""
    theirs = scheduler(namespace="kube-system", labels={"app.kubernetes.io/component": "hami-scheduler"})
    one.name.seen(theirs)
    one.name.seen(scheduler())
    await asyncio.sleep(1.0)
    assert one.name.given_up == (
        "pod kube-system/volcano-scheduler-1 (label app.kubernetes.io/component=hami-scheduler) is there"
    )
    assert "pods with schedulerName hami-scheduler are ignored here" in one.events[-1].message
    one.name.gone(theirs.uid)
    waiting = pod("w")._replace(scheduler_name="hami-scheduler")
    one.name.seen(waiting)
    await asyncio.sleep(1.0)
    assert one.name.given_up == ""
    one.name.seen(waiting._replace(node_name="n1"))
    await asyncio.sleep(1.0)
    assert one.name.given_up == "another client bound pod default/w"
    assert one.leases.writes == []


async def test_every_name_is_judged_by_itself(play):
    volcanos, hamis = play(), play(rival=HAMI)
    names = SchedulerNames((volcanos.name, hamis.name))
    await asyncio.sleep(2.0)
    names.seen(scheduler())
    await asyncio.sleep(1.0)
    assert names.given_up.keys() == {"volcano"}
    theirs = pod("h")._replace(namespace="kube-system", labels={"app.kubernetes.io/component": "hami-scheduler"})
    names.replaced([theirs])
    await asyncio.sleep(1.0)
    assert names.given_up.keys() == {"hami-scheduler"}


async def test_a_pod_whose_node_was_read_after_a_lost_answer_was_bound_by_us(play):
    world = World(node("n1"), scheduler_names=("volcano",))
    one = play(is_sent=world.scheduler.has_sent)
    await asyncio.sleep(2.0)
    for name in "ab":
        world.adds(named(name))
        one.name.seen(world.seen(name))
    for bind in world.binds():
        world.loses(bind)
        bound = world.seen(bind.pod.name)._replace(
            node_name=bind.node, resource_version="900", annotations={**bind.annotations}
        )
        if bind.pod.name == "a":
            world.reads_back(bound)
        one.name.seen(bound)
    await asyncio.sleep(2.0)
    assert one.name.given_up == ""
    # No Binding of this one was sent.
    world.adds(named("c", gated=True))
    one.name.seen(world.seen("c"))
    one.name.seen(world.seen("c")._replace(node_name="n1"))
    await asyncio.sleep(2.0)
    assert one.name.given_up == "another client bound pod default/c"


async def test_a_pod_that_an_earlier_leader_binds_late_was_not_bound_by_another_scheduler(play):
    world = World(node("n1"), scheduler_names=("volcano",))
    one = play(is_sent=world.scheduler.has_sent)
    world.adds(named("late"))
    one.name.seen(world.seen("late"))
    world.scheduler.take_over(["volcano"])
    await asyncio.sleep(2.0)
    one.name.seen(world.seen("late")._replace(node_name="n1", resource_version="900"))
    await asyncio.sleep(2.0)
    assert one.name.given_up == ""
    # This one began to wait later, and no earlier leader knows it.
    world.adds(named("new", gated=True))
    one.name.seen(world.seen("new"))
    one.name.seen(world.seen("new")._replace(node_name="n1", resource_version="901"))
    await asyncio.sleep(2.0)
    assert one.name.given_up == "another client bound pod default/new"
