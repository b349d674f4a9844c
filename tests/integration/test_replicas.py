"""Two and three controllers: one decides, whatever happens to it; and none decides on what it cannot see."""

import asyncio
import signal
from functools import partial
from typing import Any

import pytest

from sandbox.client import ApiStatusError
from tests.integration.test_controller_faults import HOOKED, away, conditions, hook
from tests.support.servers.replicas import LEASE, LONG, QUICK, replicas
from tests.support.worlds.controller_rig import NODES, PODS, pod, share

CARDS = 2
VGPU = "volcano_vgpu_device"
CROWD = tuple(
    {"name": f"t4-{at}", "plugin": {"kind": "vgpu", "model": "Tesla T4", "memory_mib": 15360, "count": CARDS}}
    for at in range(20)
)


def now():
    return asyncio.get_running_loop().time()


async def bound(world):
    return sum(bool(one["spec"].get("nodeName")) for one in await world.client.list(PODS))


async def ends(replica, code):
    async with asyncio.timeout(60):
        assert await replica.running.process.wait() == code
    assert "Traceback" not in replica.running.log_tail(200)


# -- who decides -------------------------------------------------------------------------------------------------


async def test_46_a_killed_leader_is_followed_once_its_lease_has_run_out(rig):
    """Within 17 s, as tests/unit/kube/test_lease.py holds in virtual time."""
    async with rig(nodes=NODES[:1]) as world, replicas(world) as several:
        first, second = await several.start(), await several.start()
        await world.add(pod("a", share(1000)))
        await world.phase("a")
        first.running.signal(signal.SIGKILL)
        await world.add(pod("b", share(1000)))
        await world.phase("b")
        await several.sound()
        assert several.epochs() == [first.name, second.name]


async def test_47_a_leader_that_ends_is_followed_at_once(rig):
    """Within 3 s, as tests/unit/kube/test_lease.py holds in virtual time."""
    async with rig(nodes=NODES[:1]) as world, replicas(world) as several:
        first, second = await several.start(*LONG), await several.start(*LONG)
        await world.add(pod("a", share(1000)))
        await world.phase("a")
        first.running.signal(signal.SIGTERM)
        ended_s = now()
        # Until it has let go it may still bind what comes.
        await ends(first, 0)
        await world.add(pod("b", share(1000)))
        await world.phase("b")
        # By a Lease that is not released it would be a minute.
        assert second.proxy.times("POST", "/b/binding")[0] - ended_s < 45.0
        await several.sound()
        assert several.epochs() == [first.name, second.name]


async def test_only_the_leader_shows_figures_of_pods_nodes_and_cards_so_a_sum_counts_each_once(rig):
    async with rig(nodes=NODES[:1]) as world, replicas(world) as several:
        first, second = await several.start(), await several.start()
        assert await several.leader() is first
        await world.add(pod("a", share(1000)), pod("large", share(99999)))
        await world.phase("a")
        await world.waits("large", "CS502")

        async def both():
            texts = [(await one.get("/metrics"))[1] for one in (first, second)]
            assert "cardshare_leading 0.0" in texts[1]
            lines = [line for text in texts for line in text.splitlines() if not line.startswith("#")]
            return [line for line in lines if not line.endswith(" 0.0") and "{" in line]

        async def refused():
            waiting = [line for line in await both() if line.startswith("cardshare_pending_pods{")]
            return waiting == ['cardshare_pending_pods{waiting_for="refused"} 1.0']

        await world.until(refused)
        cards = [line.split("{")[1].split("}")[0] for line in await both() if line.startswith(f"{VGPU}_memory_limit{{")]
        assert len(cards) == len(set(cards)) > 0


async def test_54_two_controllers_and_a_crowd_overcommit_no_card_although_the_leader_is_killed_in_the_middle(rig):
    async with rig(nodes=CROWD) as world, replicas(world) as several:
        for _ in range(2):
            await several.start(*QUICK)
        first = await several.leader()
        # Four fit on each of the 40 cards.
        await world.add(*[pod(f"p{at}", share(3800)) for at in range(160)])

        async def at_least(count):
            return await bound(world) >= count

        await world.until(lambda: at_least(20), 60.0)
        first.running.signal(signal.SIGKILL)
        await world.add(*[pod(f"late{at}", share(3800)) for at in range(8)])
        await world.until(lambda: at_least(160), 120.0)
        await several.sound()
        assert await bound(world) == 160
        failed = [one for one in await world.client.list(PODS) if one["status"].get("phase") == "Failed"]
        assert failed == []


@pytest.mark.parametrize("way", ["hole", "cut", "500", "429"])
async def test_48_12_a_leader_that_reaches_nobody_stops_writing_and_ends_before_another_begins(rig, way):
    async with rig(nodes=NODES[:1]) as world, replicas(world) as several:
        first, second = await several.start(*QUICK), await several.start(*QUICK)
        assert await several.leader() is first
        await world.add(pod("a", share(1000)))
        await world.phase("a")
        first.proxy.way = way
        await world.add(*[pod(f"p{at}", share(1000 + at)) for at in range(6)])
        for at in range(6):
            await world.phase(f"p{at}")
        await ends(first, 1)
        assert "could not be renewed for 5 s" in first.running.log_tail()
        # The last that it sent has ended before the other one begins.
        assert second.writes()[0][0] - first.writes()[-1][0] >= 6.0
        await several.sound()


async def test_49_a_leader_that_was_stopped_for_a_while_writes_nothing_when_it_goes_on(rig):
    async with rig(nodes=NODES[:1]) as world, replicas(world) as several:
        first, _ = await several.start(*QUICK), await several.start(*QUICK)
        await world.add(*[pod(f"p{at}", share(1000 + at)) for at in range(12)])

        async def some():
            return await bound(world) >= 2

        await world.until(some)
        first.running.signal(signal.SIGSTOP)
        await several.leader(but=first)
        stopped_s = now()
        await world.add(*[pod(f"late{at}", share(2000 + at)) for at in range(4)])
        for at in range(4):
            await world.phase(f"late{at}")
        first.running.signal(signal.SIGCONT)
        await ends(first, 1)
        assert [one for one in first.writes() if one[0] > stopped_s] == []
        await several.sound()


EDITS = {
    "deleted": None,
    "holder empty": {"holderIdentity": ""},
    "renewTime 1970": {"renewTime": "1970-01-01T00:00:00.000000Z"},
    "duration 1": {"leaseDurationSeconds": 1},
    "duration 1e9": {"leaseDurationSeconds": 10**9},
}


async def renewed_after(world, time):
    """The lease, once it was renewed after *time*."""
    try:
        found = (await world.client.get(LEASE))["spec"]
    except ApiStatusError:
        return None
    return found if found["renewTime"] > time else None


async def test_52_a_lease_that_is_deleted_or_edited_by_hand_is_mended_and_changes_no_leader(rig):
    async with rig(nodes=NODES[:1]) as world, replicas(world) as several:
        first, _ = await several.start(*QUICK), await several.start(*QUICK)
        assert await several.leader() is first
        for at, spec in enumerate(EDITS.values()):
            holder, edited_at = (await world.client.get(LEASE))["spec"]["holderIdentity"], ""
            if spec is None:
                await world.client.delete(LEASE)
            else:
                edited_at = (await world.client.patch(LEASE, {"spec": spec}))["spec"]["renewTime"]
            found = await world.until(partial(renewed_after, world, edited_at))
            assert (found["holderIdentity"], found["leaseDurationSeconds"]) == (holder, 8)
            await world.add(pod(f"p{at}", share(1000)))
            await world.phase(f"p{at}")
        assert several.epochs() == [first.name]


async def test_52_a_lease_that_a_person_gives_to_another_ends_its_holder_and_is_waited_out(rig):
    async with rig(nodes=NODES[:1]) as world, replicas(world) as several:
        first, second = await several.start(*QUICK), await several.start(*QUICK)
        assert await several.leader() is first
        await world.client.patch(LEASE, {"spec": {"holderIdentity": "somebody"}})
        await ends(first, 1)
        assert "is held by 'somebody'" in first.running.log_tail()
        await world.add(pod("p", share(1000)))
        await world.phase("p")
        assert await several.leader() is second
        await several.sound()


async def test_a_standby_is_ready_writes_nothing_and_rewrites_no_condition_when_it_takes_over(rig):
    async with rig(nodes=NODES[:1]) as world, replicas(world) as several:
        first, second = await several.start(*QUICK), await several.start(*QUICK)
        await world.add(pod("never", share(15000)), pod("fits", share(15000)), pod("waits", share(14000)))
        await world.phase("never")
        await world.phase("fits")
        before = await world.waits("waits", "MiB free")
        assert (await second.get("/readyz"))[0] == 200
        assert (await first.leads(), await second.leads(), second.writes()) == (True, False, [])
        version = (await world.get("waits"))["metadata"]["resourceVersion"]
        assert await world.processes.stop(first.running) == 0
        await several.leader(but=first)
        # The condition is not among what the new one writes about a later pod.
        await world.add(pod("later", share(15000)))
        await world.waits("later", "MiB free")
        assert (await world.get("waits"))["metadata"]["resourceVersion"] == version
        await world.client.delete(f"{PODS}/fits", grace_s=0)
        await world.phase("waits")
        assert before["reason"]
        await several.sound()


async def test_what_a_leader_did_not_come_to_its_successor_does(rig):
    async with rig(nodes=NODES[:1]) as world, replicas(world) as several:
        first, second = await several.start(*QUICK), await several.start(*QUICK)
        assert await several.leader() is first
        # Nothing that it is to say gets through.
        first.proxy.way = "500"
        await world.add_unreadable_node("bad")
        await world.add(pod("huge", share(99_999)))
        assert await several.leader(but=first) is second
        await world.waits("huge", "99999 MiB")
        await world.until(lambda: world.told("bad", "CardsUnusable"))
        await world.until(lambda: world.told("huge", "FailedScheduling"))


async def test_a_successor_binds_although_of_one_namespace_a_missing_webhook_lets_no_conditions_be_written(rig):
    async with rig(nodes=NODES[:1]) as world, replicas(world) as several, away() as url:
        first, second = await several.start(*QUICK), await several.start(*QUICK)
        await world.ensure("/api/v1/namespaces", HOOKED)
        huge = pod("huge", share(99_999))
        huge["metadata"]["namespace"] = HOOKED
        await world.client.create(f"/api/v1/namespaces/{HOOKED}/pods", huge)
        await world.until(partial(conditions, world, HOOKED, "huge"))
        await hook(world, url, "pods/status")
        first.running.signal(signal.SIGKILL)
        await world.add(pod("p", share(1000)))
        await world.phase("p")
        assert several.epochs() == [first.name, second.name]


async def test_volcanos_name_is_given_up_while_its_scheduler_is_there_and_its_lease_held_when_it_is_not(rig):
    async with rig(nodes=NODES[:1]) as world, replicas(world) as several:
        await world.ensure("/api/v1/namespaces", "volcano-system")
        names = ("--scheduler-name", "cardshare", "--scheduler-name", "volcano")
        one = await several.start(*QUICK, *names)

        def named(name):
            found = pod(name, share(1000))
            found["spec"]["schedulerName"] = "volcano"
            return found

        async def given_up(wanted):
            return f"cardshare_scheduler_name_given_up {wanted}.0" in (await one.get("/metrics"))[1]

        await world.add(named("a"))
        await world.phase("a")
        # Its scheduler's pod appears, before it could place anything. What a tenant labels so says nothing.
        running: dict[str, Any] = {"metadata": {"name": "volcano-scheduler-0", "labels": {"app": "volcano-scheduler"}}}
        running |= {"spec": {"containers": [{"name": "c", "image": "i"}]}}
        theirs = "/api/v1/namespaces/volcano-system/pods"
        await world.client.create(PODS, running)
        await world.add(named("before"))
        await world.phase("before")
        await world.client.create(theirs, running)
        await world.until(lambda: given_up(1))
        why = "pod volcano-system/volcano-scheduler-0 (label app=volcano-scheduler) is there"
        assert await one.get("/readyz") == (200, f"ok\npods with schedulerName volcano are ignored here: {why}\n")
        await world.add(named("b"), pod("ours", share(1000)))
        await world.phase("ours")
        assert not (await world.get("b"))["spec"].get("nodeName")
        events = await world.client.list("/api/v1/namespaces/cardshare-system/events")
        assert "SchedulerNameGivenUp" in {event["reason"] for event in events}
        await world.client.delete(f"{theirs}/volcano-scheduler-0", grace_s=0)
        await world.phase("b")
        assert await one.get("/readyz") == (200, "ok\n")


# -- what a decision is founded on -------------------------------------------------------------------------------


TWO = ({**NODES[0], "name": "t4-a"}, {**NODES[0], "name": "t4-b"})


@pytest.mark.parametrize("kind", ["nodes", "pods"])
async def test_14_nothing_is_decided_while_a_watch_is_refused(rig, kind):
    async with rig(nodes=NODES[:1]) as world, replicas(world) as several:
        one = await several.start()
        await world.add(pod("a", share(1000)))
        await world.phase("a")
        one.proxy.refused[f"/{kind}"] = "403"

        async def unready():
            return f"forbidden: watch {kind}" in (await one.get("/readyz"))[1]

        await world.until(unready)
        await world.add(pod("p", share(1000)))
        asked = len(one.proxy.times("GET", f"/{kind}"))

        async def asked_again():
            return len(one.proxy.times("GET", f"/{kind}")) >= asked + 2

        await world.until(asked_again)
        assert not (await world.get("p"))["spec"].get("nodeName")
        one.proxy.refused.clear()
        await world.phase("p")


async def test_14_nothing_is_bound_to_a_node_whose_deletion_a_silent_watch_keeps_back(rig):
    async with rig(nodes=NODES[:1], expects=("missing-node",)) as world, replicas(world) as several:
        one = await several.start()
        await world.add(pod("a", share(1000)))
        await world.phase("a")
        one.proxy.held.add("/nodes")

        async def stale():
            status, text = await one.get("/readyz")
            return status == 503 and "stale: watch nodes" in text

        # Bookmarks go astray as well, and so do the ends of watches; what was on its way still arrives.
        await world.until(stale)
        await world.client.delete("/api/v1/nodes/t4-a")
        await world.add(pod("p", share(1000)))

        async def pending():
            _, text = await one.get("/metrics")
            found = [line for line in text.splitlines() if line.startswith("cardshare_pending_pods{")]
            return sum(float(line.rpartition(" ")[2]) for line in found)

        # If it acted on the pod, it would do so by now.
        await world.until(pending)
        one.proxy.held.clear()

        async def ready():
            return (await one.get("/readyz"))[0] == 200

        await world.until(ready)
        await world.waits("p", "CS5")

        async def is_fresh():
            _, text = await one.get("/metrics")
            (age,) = [line.rpartition(" ")[2] for line in text.splitlines() if 'age_seconds{kind="nodes"}' in line]
            return float(age) < 15.0

        await world.until(is_fresh)
