"""What Workloads are told in one round: whether all of their pods fit now, and that no two get the same room."""

import json
from dataclasses import replace

import pytest

from controller.kueue.asking import AdmissionRound, KueueObjects
from controller.reporting.work import Work
from core.admission.rulebook import rulebook
from core.explaining import explain
from core.kueue import Additions, AdmissionCheck, CheckState, Flavor
from core.model import Taint, Toleration
from core.settings import Policy
from core.wire.kueue import decode_workload
from core.wire.policies import PriorityClass, ResourceQuota
from tests.support.worlds.kueue import check, condition, reserved, workload
from tests.support.worlds.world import MEMORY, NUMBER, World, node, on, pod

AT_S = 1_795_600_800.0  # 2026-11-25T10:00:00Z


class Asked(World):
    """A world with Kueue's Workloads."""

    def __init__(self, *nodes, **settings):
        super().__init__(*nodes, **settings)
        self.known = KueueObjects(lambda: self.now_s)
        self.known.put_check(AdmissionCheck("fits", "cardshare.io/fits"))
        self.known.put_check(AdmissionCheck("other", "example.com/other"))
        self.known.put_flavor(Flavor("any", Additions()))

    def has(
        self,
        name,
        *,
        memory=1000,
        pods=1,
        state="Pending",
        flavor="any",
        limits=None,
        more=(),
        said=(),
        job="",
        notes=(),
        **spec,
    ):
        """Show a Workload of *job* with quota for *pods* pods of *memory* MiB each, and with annotations *notes*."""
        limits = {NUMBER: "1", MEMORY: str(memory)} if limits is None else limits
        made = workload(name, limits, pods=pods, **spec)
        made["metadata"] |= {"ownerReferences": [{"kind": "Job", "name": job or name}], "annotations": dict(notes)}
        made["status"] = reserved(check(state) | dict(said), pods=pods, flavor=flavor, more=more)
        self.known.put_workload(decode_workload(json.dumps(made).encode()))

    async def answers(self, now_s=AT_S, meanwhile=lambda: None):
        """What each Workload is told; *meanwhile*: what happens once the round has begun."""
        ledger = self.ledger
        book = rulebook(ledger.settings, ledger.tables, ledger.catalog)
        asking = AdmissionRound(self.scheduler, self.known, self.why, book, Work(lambda: self.now_s))
        meanwhile()
        before = ledger.cursor
        asks = self.known.asking(now_s)
        found = {one.name: answer async for one, answer in asking.answers(asks, now_s) if answer is not None}
        assert ledger.cursor == before
        return found

    async def states(self, now_s=AT_S):
        return {name: answer.state.value for name, answer in (await self.answers(now_s)).items()}

    async def why(self, shape, ledger, barred):
        return explain.refused(ledger, shape, self.scheduler.cluster.search.policy.cards), 0.0


async def test_all_of_its_pods_fit_or_it_is_told_how_many_do_and_why_no_more():
    world = Asked(node("n1", cards=2))
    world.has("two", memory=6000, pods=2)
    world.has("three", memory=3000, pods=3)
    found = await world.answers()
    assert found["three"].state is CheckState.READY  # in the order of age and name
    assert found["two"].state is CheckState.RETRY
    assert found["two"].message.startswith("CS501 1 of 2 pods fit at once now. The next: 0/1 nodes are available")
    assert "4000 of 6000 MiB" in found["two"].message


async def test_one_that_does_not_fit_takes_nothing_from_the_next():
    world = Asked(node("n1"))
    world.has("a", memory=6000, pods=2)
    world.has("b", memory=6000)
    assert await world.states() == {"a": "Retry", "b": "Ready"}


async def test_who_has_the_higher_priority_is_asked_first():
    world = Asked(node("n1"))
    world.has("a", memory=6000)
    world.has("b", memory=6000)
    world.known.put_workload(world.known.workloads["default/b"]._replace(priority=1))
    assert await world.states() == {"b": "Ready", "a": "Retry"}


async def test_what_was_promised_is_kept_until_its_pods_have_their_room():
    world = Asked(node("n1"))
    world.has("first", memory=3000, pods=2, state="Ready")
    world.has("second", memory=6000)
    assert await world.states() == {"second": "Retry"}
    world.adds(pod("p", memory=3000, owner="Job/first"))
    world.plan()
    assert await world.states() == {"second": "Retry"}  # 3000 are held, 3000 still promised
    world.has("third", memory=4000)
    assert (await world.states())["third"] == "Ready"
    world.gone("p")  # it had its room: nothing is kept for it any more
    assert await world.states() == {"second": "Ready", "third": "Retry"}


async def test_a_pod_that_is_placed_after_a_round_began_is_promised_its_room_in_that_round_still():
    world = Asked(node("n1"))
    world.has("first", memory=5000, state="Ready")
    world.has("second", memory=6000)

    def placed():
        world.adds(pod("p", memory=5000, owner="Job/first"))
        world.plan()

    found = await world.answers(meanwhile=placed)
    assert found["second"].state is CheckState.RETRY
    assert await world.states() == {"second": "Retry"}


async def test_a_promise_that_is_not_kept_lapses_after_a_minute():
    world = Asked(node("n1"))
    world.has("first", memory=3000, pods=2, state="Ready")
    world.has("second", memory=6000)
    # Never admitted: asked again after a minute, as the older one.
    assert await world.states(AT_S + 61) == {"first": "Ready", "second": "Retry"}
    world.has("first", memory=3000, pods=2, state="Ready", more=[condition("Admitted")])
    assert await world.states(AT_S + 59) == {"second": "Retry"}
    assert await world.states(AT_S + 61) == {"second": "Ready"}
    assert "default/first" not in world.known.workloads


@pytest.mark.parametrize("off_s", [0, -3600, 3600], ids=["the same clock", "a clock behind", "a clock ahead"])
async def test_who_comes_back_after_a_no_waits_for_the_next_and_is_told_yes_meanwhile_if_room_frees(off_s):
    world = Asked(node("n1"))
    world.adds(pod("p", memory=8000))
    world.plan()
    world.has("a", memory=6000, said={"retryCount": 2, "message": "Reset to Pending"})
    world.now_s += 29
    (waits,) = (await world.answers(AT_S + off_s + 29)).values()
    assert (waits.state, waits.message[:6]) == (CheckState.PENDING, "CS501 ")
    world.has("a", memory=6000, said={"retryCount": 2, "message": waits.message})
    assert await world.states(AT_S + off_s + 29) == {}  # it is told already
    world.now_s += 1
    assert await world.states(AT_S + off_s + 30) == {"a": "Retry"}
    world.has("a", memory=6000, said={"retryCount": 3, "message": "Reset to Pending"})
    assert await world.states(AT_S + off_s + 30) == {"a": "Pending"}
    world.gone("p")
    assert await world.states(AT_S + off_s + 30) == {"a": "Ready"}


async def test_who_waits_on_is_not_asked_for_a_while_and_a_round_goes_on_where_one_ended():
    world = Asked(node("n1"))
    for name in "abc":
        world.has(name)
    known = world.known
    known.rest(known.workloads["default/a"], world.now_s + 5)
    known.ended_with = known.workloads["default/b"]
    assert [one.name for one in known.asking(AT_S)] == ["c", "b"]
    assert [one.name for one in known.asking(AT_S)] == ["b", "c"]
    world.now_s += 5
    assert [one.name for one in known.asking(AT_S)] == ["a", "b", "c"]
    known.rest(known.workloads["default/a"], world.now_s + 5)
    world.has("a")
    assert [one.name for one in known.asking(AT_S)] == ["a", "b", "c"]


async def test_a_promise_lapses_after_a_minute_whatever_becomes_of_the_clocks():
    world = Asked(node("n1"))
    world.has("first", memory=3000, pods=2, state="Ready")
    world.has("second", memory=6000)
    # This clock was set back by an hour since the answer.
    assert await world.states(AT_S - 3600) == {"second": "Retry"}
    world.now_s += 59
    assert await world.states(AT_S - 3541) == {"second": "Retry"}
    world.now_s += 1
    assert await world.states(AT_S - 3540) == {"first": "Ready", "second": "Retry"}
    # Kueue's clock is ahead by an hour.
    world.has("first", memory=3000, pods=2, state="Ready", more=[condition("Admitted", at="2026-11-25T11:00:00Z")])
    assert await world.states() == {"second": "Retry"}
    world.now_s += 60
    assert await world.states() == {"second": "Ready"}


async def test_pods_are_judged_as_the_webhook_completes_them():
    world = Asked(node("n1"))
    world.has("other", schedulerName="another")
    world.has("cpu", limits={"cpu": "1"})
    world.has("empty", pods=0)
    world.has("wrong", limits={NUMBER: "1", MEMORY: "x"})
    world.has("whole", limits={NUMBER: "1"})
    found = await world.answers()
    assert {name for name, one in found.items() if "nothing that cardshare places" in one.message} == {
        "other",
        "cpu",
        "empty",
    }
    assert found["wrong"].message.startswith("CS540 ")
    assert found["wrong"].state is CheckState.RETRY
    assert "n1" in found["whole"].message


async def test_flavors_say_which_nodes_and_one_that_is_missing_is_told():
    taint = Taint(key="gpu", effect="NoSchedule")
    world = Asked(node("n1", labels={"pool": "a"}), node("n2", labels={"pool": "b"}, taints=(taint,)))
    tolerated = (Toleration(key="gpu", operator="Exists"),)
    world.known.put_flavor(Flavor("b", Additions(selector={"pool": "b"})))
    world.known.put_flavor(Flavor("b-too", Additions(selector={"pool": "b"}, tolerations=tolerated)))
    world.has("kept-off", flavor="b")
    world.has("let-in", flavor="b-too")
    world.has("lost", flavor="gone")
    found = await world.answers()
    assert {name: one.state.value for name, one in found.items()} == {
        "kept-off": "Retry",
        "let-in": "Ready",
        "lost": "Retry",
    }
    assert "on n2;" in found["let-in"].message
    assert "ResourceFlavor 'gone'" in found["lost"].message


async def test_what_the_namespace_has_left_is_spent_once():
    world = Asked(node("n1", cards=4))
    quota = ResourceQuota("default", "q", {f"limits.{MEMORY}": 5000}, {})
    world.scheduler.cluster.budgets.quotas.replaced([quota])
    world.has("a", memory=3000)
    world.has("b", memory=3000)
    found = await world.answers()
    assert found["a"].state is CheckState.READY
    assert found["b"].message.startswith("CS532 ")


@pytest.mark.parametrize("pods", [1, 2])  # all of the promised pods fit, or as many as fit now
async def test_what_is_promised_is_spent_of_what_the_namespace_has(pods):
    world = Asked(node("n1"), node("n2", memory=2000))
    quota = ResourceQuota("default", "q", {f"limits.{MEMORY}": 9000}, {})
    world.scheduler.cluster.budgets.quotas.replaced([quota])
    world.has("promised", memory=8000, pods=pods, state="Ready")
    world.has("next", memory=1500)
    found = await world.answers()
    assert found["next"].state is CheckState.RETRY
    assert f"1500 {MEMORY} requested, 1000 of 9000 left" in found["next"].message


async def test_more_pods_than_can_be_judged_are_refused_unjudged():
    world = Asked(node("n1"))
    world.has("huge", pods=2**31 - 1)
    (answer,) = (await world.answers()).values()
    assert answer.state is CheckState.RETRY
    assert "write at most 10000 pods" in answer.message


@pytest.mark.parametrize("large_first", [True, False])
async def test_whoever_stands_first_in_a_workload_all_fit_if_they_do_in_some_order(large_first):
    world = Asked(node("n1", cards=1, memory=10_000), node("n2", cards=1, memory=4000))
    made = workload("w", {NUMBER: "1", MEMORY: "4000"}, pods=1)
    small = made["spec"]["podSets"][0]
    (large,) = workload("w", {NUMBER: "1", MEMORY: "10000"})["spec"]["podSets"]
    both = [large | {"name": "large"}, small | {"name": "small"}]
    made["spec"]["podSets"] = both if large_first else both[::-1]
    made["status"] = reserved()
    world.known.put_workload(decode_workload(json.dumps(made).encode()))
    assert await world.states() == {"w": "Ready"}


def of_two(name, small, large, state="Pending"):
    """A Workload of a pod of *small* MiB and one of *large* MiB, in this order."""
    made = workload(name, {NUMBER: "1", MEMORY: str(small)})
    (other,) = workload(name, {NUMBER: "1", MEMORY: str(large)})["spec"]["podSets"]
    made["spec"]["podSets"].append(other | {"name": "large"})
    made["status"] = reserved(check(state))
    return decode_workload(json.dumps(made).encode())


async def test_a_promise_keeps_the_room_of_all_of_its_pods_in_whatever_order_they_fit():
    world = Asked(node("n1", memory=10_000), node("n2", memory=4500))
    world.adds(pod("p", memory=5000))
    world.plan()
    world.known.put_workload(of_two("first", 4000, 5000))
    assert await world.states() == {"first": "Ready"}
    world.known.put_workload(of_two("first", 4000, 5000, state="Ready"))
    world.has("second", memory=4500)
    assert await world.states() == {"second": "Retry"}


async def test_promises_are_kept_in_the_order_in_which_they_were_made():
    world = Asked(node("n1", memory=10_000), node("n2", memory=4500))
    world.adds(pod("p", memory=5000))
    world.plan()
    world.has("b", memory=5000, state="Ready")
    world.has("a", memory=4000, state="Ready", said={"lastTransitionTime": "2026-11-25T10:00:01Z"})
    world.has("second", memory=4500)
    assert await world.states(AT_S + 2) == {"second": "Retry"}


def keeping_free():
    """A world that keeps n2 free, which has room for 6000 MiB; n1 has 5000."""
    labeled = [node(name, labels={"name": name}) for name in ("n1", "n2")]
    world = Asked(*labeled, policy=Policy.SPREAD, keep_free_after_s=5.0)
    world.adds(pod("a", memory=4000, constraints=on("n1")), pod("b", memory=4000, constraints=on("n2")))
    world.adds(pod("big", memory=10_000))
    world.plan()
    world.adds(pod("c", memory=1000, constraints=on("n1"), created_s=2_000_000_000))
    world.plan()
    world.now_s += 6.0
    world.plan()
    assert world.scheduler.reservations.barred_to_new(0) == {"n2"}
    return world


async def test_no_promise_is_kept_on_a_node_that_its_pods_may_not_go_to():
    world = keeping_free()
    world.has("first", memory=5000, state="Ready")
    world.has("second", memory=5000)
    assert await world.states() == {"second": "Retry"}


async def test_pods_have_the_priority_of_the_class_that_their_template_names():
    world = keeping_free()
    world.scheduler.cluster.groups.classes.replaced([PriorityClass("high", 1000)])
    world.has("any", memory=6000)
    world.has("high", memory=6000, priorityClassName="high")
    assert await world.states() == {"any": "Retry", "high": "Ready"}


async def test_a_workload_that_is_admitted_already_is_told_yes_because_kueue_would_evict_its_running_pods():
    # Kueue adds a check that is new in a ClusterQueue to all of its Workloads, and evicts even admitted ones for Retry.
    world = Asked(node("n1"))
    world.adds(pod("p", memory=6000, owner="Job/runs"))
    world.plan()
    world.has("runs", memory=6000, more=[condition("Admitted")])
    assert await world.states() == {"runs": "Ready"}


async def test_pods_of_an_admitted_workload_that_have_ended_keep_no_capacity_from_others():
    world = Asked(node("n1", cards=2))
    world.adds(pod("p", memory=6000, owner="Job/half"))
    world.plan()
    since = {"lastTransitionTime": "2026-11-25T09:00:00Z"}
    more = [condition("Admitted", at="2026-11-25T09:00:00Z")]
    world.has("half", memory=6000, pods=2, more=more, said=since)
    (answer,) = (await world.answers()).values()
    world.has("half", memory=6000, pods=2, more=more, state="Ready", said={"message": answer.message})
    world.has("next", memory=6000)
    assert await world.states(AT_S + 1) == {"next": "Ready"}


# What Kueue v0.20.0-devel (ff69552e7) writes when an elastic Job grows: pkg/controller/jobframework/reconciler.go,
# prepareWorkloadSlice; its pods carry the second annotation, too.
SLICE = "kueue.x-k8s.io/workload-slice-name"
GROWN = {
    "kueue.x-k8s.io/elastic-job": "true",
    SLICE: "job-train-1",
    "kueue.x-k8s.io/workload-slice-replacement-for": "default/job-train-1",
}


@pytest.mark.parametrize("owner", ["Job/train", "RayCluster/train"])
async def test_of_a_job_that_grows_only_the_new_pods_need_capacity(owner):
    world = Asked(node("n1", cards=2))
    world.adds(pod("p", memory=6000, owner=owner, annotations={SLICE: "job-train-1"}))
    world.plan()
    world.has("job-train-2", memory=6000, pods=2, job="train", notes=GROWN)
    assert await world.states() == {"job-train-2": "Ready"}


async def test_of_a_job_that_grows_its_pod_without_cards_is_not_asked_for_again():
    one = node("n1")
    world = Asked(replace(one, allocatable={**one.allocatable, "cpu": "3"}))
    labels = {"kueue.x-k8s.io/podset": "main"}
    world.adds(pod("head", limits={"cpu": "2"}, labels=labels, annotations={SLICE: "job-train-1"}))
    assert world.placed()
    made = workload("job-train-2", {"cpu": "2"}, schedulerName="cardshare")
    (other,) = workload("any", {NUMBER: "1", MEMORY: "1000"})["spec"]["podSets"]
    made["spec"]["podSets"].append(other | {"name": "workers"})
    made["metadata"]["annotations"] = GROWN
    made["status"] = reserved()
    world.known.put_workload(decode_workload(json.dumps(made).encode()))
    assert await world.states() == {"job-train-2": "Ready"}
    world.gone("head")
    assert not world.scheduler.cluster.of_kueue


async def test_a_job_that_cannot_grow_waits_because_kueue_would_stop_all_of_its_pods():
    world = Asked(node("n1"))
    world.adds(pod("p", memory=6000, owner="Job/train"))
    world.plan()
    world.has("job-train-2", memory=6000, pods=2, job="train", notes=GROWN, said={"retryCount": 2})
    world.now_s += 3600
    (waits,) = (await world.answers()).values()
    assert (waits.state, waits.message[:6]) == (CheckState.PENDING, "CS501 ")
    world.has("job-train-2", memory=6000, pods=2, job="train", notes=GROWN, said={"message": waits.message})
    world.now_s += 3600
    assert await world.states() == {}  # it says so already
    world.gone("p")
    world.has("job-train-2", memory=6000, job="train", notes=GROWN, said={"message": waits.message})
    assert await world.states() == {"job-train-2": "Ready"}


async def test_a_job_that_grew_and_was_evicted_is_told_no_as_any_other():
    world = Asked(node("n1"))
    more = [condition("Evicted", "False")]
    world.has("job-train-2", memory=6000, pods=2, job="train", notes=GROWN, more=more)
    assert await world.states() == {"job-train-2": "Retry"}


async def test_a_job_that_grew_while_its_former_workload_was_evicted_is_told_no_as_any_other():
    world = Asked(node("n1"))
    world.has("job-train-1", memory=6000, more=[condition("Evicted")])
    world.has("job-train-2", memory=6000, pods=2, job="train", notes=GROWN)
    assert await world.states() == {"job-train-2": "Retry"}


async def test_pods_that_are_being_deleted_keep_no_place_for_those_that_come_after_them():
    world = Asked(node("n1"))
    world.adds(pod("p", memory=6000, owner="Job/train"))
    assert world.placed()
    world.shows(world.seen("p"), deleting=True)
    world.has("job-train-2", memory=6000, job="train", notes=GROWN)
    assert await world.states() == {"job-train-2": "Pending"}
