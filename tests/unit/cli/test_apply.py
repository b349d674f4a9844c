"""``kubectl cards apply`` evicts nobody without need, whatever the API server answers and whoever else works there."""

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import pytest

from cli.__main__ import _agreed
from cli.alone import TIMING
from cli.apply import StoppedError, UnusablePlanError, carry_out, id_of, plan_in
from cli.options import Apply, Plan, PlanTarget
from cli.plan import NothingToPlanError, fetch_plan
from core.moving.who import MOVING
from core.port.cards import CardWish
from core.view.plan import still_helps
from kube.errors import ApiError, from_answer
from kube.lease import Instant, Lease
from kube.transport import Response
from tests.unit.cli.test_plan import node, pod

pytestmark = pytest.mark.looptime

STATUS = b'{"kind":"Status"}'
OPTIONS = Apply(file="x", kubeconfig="", context="", yes=True, timeout_s=600)
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/cardshare-apply"
TAKEN = {"holderIdentity": "other", "leaseDurationSeconds": 15, "renewTime": "x", "acquireTime": "x"}
BUDGET = "Cannot evict pod as it would violate the pod's disruption budget."


class Api:
    """Nodes a and b; a pod on each, of which that on a may move; and a pod that needs a whole node.

    Attributes:
        objects: by path. clusters: the uids of namespace kube-system. lease_status: why there is no Lease.
        calls: what was written. before: called before each answer; it may change the objects, or return a status to
        answer.
    """

    namespace = "team"

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.clusters = ["here"]
        self.lease_status = 404
        self.calls: list[str] = []
        self.before: Callable[[str, str], int | None] = lambda *_: None
        for one in (node("a"), node("b")):
            self.objects[f"/api/v1/nodes/{one['metadata']['name']}"] = one
        self.add(pod("s-1", 1000, "a", owner="serve"))
        self.add(pod("alone", 1000, "b"))
        self.add(pod("train", 10_000, number=2))

    def add(self, one: dict[str, Any], created: str = "2026-01-01T00:00:00Z") -> None:
        one["metadata"]["creationTimestamp"] = created
        self.objects[path_of(one["metadata"]["name"])] = one

    def gone(self, name: str) -> None:
        del self.objects[path_of(name)]

    def is_on(self, name: str) -> bool:
        return "nodeName" in self.objects.get(path_of(name), {"spec": {}})["spec"]

    def bind(self, name: str, on: str, card: int = 0) -> None:
        """Bind a pod, as the controller does, from its card number *card* on."""
        one = self.objects[path_of(name)]
        limits = one["spec"]["containers"][0]["resources"]["limits"]
        memory, number = limits["volcano.sh/vgpu-memory"], int(limits["volcano.sh/vgpu-number"])
        given = "".join(f"{on}-{at},NVIDIA,{memory},0:" for at in range(card, card + number))
        one["metadata"]["annotations"] |= {
            "volcano.sh/vgpu-ids-new": given,
            "volcano.sh/vgpu-node": on,
            "volcano.sh/vgpu-time": "1",
        }
        one["spec"]["nodeName"], one["status"] = on, {"phase": "Running"}

    def rob(self) -> None:
        """Have another process hold the Lease."""
        self.objects[LEASE] = {"metadata": {"resourceVersion": "9"}, "spec": TAKEN}

    @property
    def evicted(self) -> list[str]:
        return [one.split("/")[-2] for one in self.calls if one.endswith("/eviction")]

    @property
    def closed(self) -> list[str]:
        nodes = [one for path, one in self.objects.items() if path.startswith("/api/v1/nodes/")]
        return [one["metadata"]["name"] for one in nodes if MOVING in str(one.get("spec"))]

    def lease(self, verb: str, body: Any) -> Response:
        """Keep the Lease of those who apply."""
        found = self.objects.get(LEASE)
        if verb != "GET":
            sent = json.loads(body)
            told = found["metadata"]["resourceVersion"] if found else ""
            if (verb == "POST" and found) or (verb == "PATCH" and sent["metadata"]["resourceVersion"] != told):
                raise from_answer(verb, LEASE, 409, {}, STATUS)
            found = {"metadata": {"resourceVersion": f"{told}1"}, "spec": sent["spec"]}
            self.objects[LEASE] = found
        if found is None:
            raise from_answer(verb, LEASE, self.lease_status, {}, STATUS)
        return self.answer(found)

    async def request(self, verb: str, path: str, *, params: Any = None, body: Any = None, **_: Any) -> Response:
        if "/leases" in path:
            return self.lease(verb, body)
        status = self.before(verb, path)
        if status:
            said = BUDGET if status == 429 else "told to"
            raise from_answer(verb, path, status, {}, json.dumps({"kind": "Status", "message": said}).encode())
        if verb == "GET" and path in self.objects:
            return self.answer(self.objects[path])
        if verb == "GET":
            return self.answer({"metadata": {"resourceVersion": "7"}, "items": self.items(verb, path, params or {})})
        if not (params or {}).get("dryRun"):
            self.calls.append(f"{verb} {path}")
        found = self.objects.get(path.removesuffix("/eviction"))
        if found is None:
            raise from_answer(verb, path, 404, {}, STATUS)
        sent = json.loads(body)
        if path.endswith("/eviction"):
            if sent["deleteOptions"]["preconditions"]["uid"] != found["metadata"]["uid"]:
                raise from_answer(verb, path, 409, {}, STATUS)
            if not (params or {}).get("dryRun"):
                del self.objects[path.removesuffix("/eviction")]
        else:
            found["spec"] = found.get("spec", {}) | sent["spec"]
        return self.answer(found)

    @staticmethod
    def answer(value: Any) -> Response:
        if "metadata" in value:
            value["metadata"].setdefault("resourceVersion", "1")
        return Response(status=200, headers={}, body=json.dumps({"kind": "Object", **value}).encode())

    def items(self, verb: str, path: str, params: dict[str, str]) -> list[Any]:
        if path == "/api/v1/nodes":
            return [one for name, one in self.objects.items() if name.startswith(path)]
        if path.startswith("/api/v1/") and path.endswith("/pods"):
            pods = [one for name, one in self.objects.items() if "/pods/" in name]
            wanted = params.get("fieldSelector", "")
            return [
                one for one in pods if not wanted or bool(one["spec"].get("nodeName")) is (wanted == "spec.nodeName!=")
            ]
        if path == "/api/v1/namespaces":
            return [{"metadata": {"name": "kube-system", "uid": uid}} for uid in self.clusters]
        if "/configmaps/" in path:
            raise from_answer(verb, path, 404, {}, STATUS)
        return []


def path_of(name: str) -> str:
    return f"/api/v1/namespaces/team/pods/{name}"


def asking(shape: CardWish | None = None) -> Plan:
    asked = PlanTarget("2 x whole T4", shape) if shape else PlanTarget("x", None, "pod", "team", "train")
    return Plan(asked=asked, kubeconfig="", context="")


class Applied:
    """One run of apply; *ask* gets the questions, which are answered with *agrees*."""

    def __init__(
        self, api: Api, plan: Any, ask: list[str] | None = None, *, agrees: bool = True, **options: Any
    ) -> None:
        self.said: list[str] = []

        async def agree(question: str) -> bool:
            (ask if ask is not None else []).append(question)
            return agrees

        told = replace(OPTIONS, **options)
        self.run = carry_out(api, plan, told, say=self.said.append, ask=agree, poll_s=0.0)

    async def stopped(self) -> str:
        with pytest.raises(StoppedError) as e:
            await self.run
        return str(e.value)


async def agree(_: str) -> bool:
    return True


async def planned(api: Api, shape: CardWish | None = None) -> Any:
    plan = await fetch_plan(api, asking(shape), "team")
    assert [one.pod for one in plan.moves] == ["team/s-1"]
    return plan


def playing(api: Api) -> None:
    """The ReplicaSet replaces s-1, the controller binds the replacement to b and then train to a."""

    def play(verb: str, path: str) -> None:
        if path_of("s-1") not in api.objects and path_of("s-2") not in api.objects:
            api.add(pod("s-2", 1000, owner="serve"), "2026-01-03T00:00:00Z")
        elif path_of("s-2") in api.objects and not api.is_on("s-2"):
            api.bind("s-2", "b")
        elif api.is_on("s-2") and not api.is_on("train"):
            api.bind("train", "a")

    api.before = play


class Clock:
    """The virtual time of the loop. ahead_s: how much longer nothing ran."""

    ahead_s = 0.0

    def __call__(self) -> Instant:
        now_s = asyncio.get_running_loop().time() + self.ahead_s
        return Instant(now_s, now_s)


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """The clock of the Lease, which no load of the machine can make expire."""
    clock = Clock()
    monkeypatch.setattr("cli.alone.Lease", partial(Lease, clocks=clock))
    monkeypatch.setattr("cli.apply._BUDGET_S", 0.0)
    return clock


async def test_a_pod_moves_and_the_one_that_waits_gets_in():
    api = Api()
    plan = await planned(api)
    playing(api)
    one = Applied(api, plan)
    await one.run
    assert api.evicted == ["s-1"]
    assert one.said[-2:] == ["done: placed team/train", "node a is open again"]


async def test_to_undo_a_plan_that_closed_no_node_says_so():
    api = Api()
    one = Applied(api, await planned(api), undo=True)
    await one.run
    assert one.said == ["no node is closed by this plan"]


async def test_a_plan_names_its_cluster_and_is_applied_nowhere_else():
    api = Api()
    plan = await planned(api)
    assert plan.cluster == "here"
    api.clusters = ["elsewhere"]
    ways: tuple[dict[str, Any], ...] = ({}, {"undo": True}, {"dry_run": True})
    for options in ways:
        with pytest.raises(UnusablePlanError, match="it was made for another cluster; choose that with --context"):
            await Applied(api, plan, **options).run
    api.clusters = []
    assert "namespace kube-system cannot be listed" in await Applied(api, plan).stopped()
    await Applied(api, replace(plan, cluster=""), dry_run=True).run
    assert api.calls == []


async def test_two_plans_are_not_applied_at_once():
    api = Api()
    plan = await planned(api)
    asked = asyncio.Event()

    async def never(_: str) -> bool:
        asked.set()
        await asyncio.Event().wait()
        return True

    first = asyncio.create_task(carry_out(api, plan, replace(OPTIONS, yes=False), say=print, ask=never, poll_s=0.0))
    await asked.wait()
    second = Applied(api, plan)
    assert "another kubectl cards apply runs: '" in await second.stopped()
    assert second.said[0].startswith("waiting for another kubectl cards apply: '")
    assert api.calls == []
    first.cancel()
    with suppress(asyncio.CancelledError):
        await first
    playing(api)
    await Applied(api, plan).run
    assert api.evicted == ["s-1"]


async def test_who_loses_the_lease_evicts_nobody():
    api = Api()
    plan = await planned(api)

    async def robbed(_: str) -> bool:
        api.rob()
        await asyncio.Event().wait()
        return True

    with pytest.raises(StoppedError, match=r"another kubectl cards apply may run: lease .* is held by 'other'"):
        await carry_out(api, plan, replace(OPTIONS, yes=False), say=print, ask=robbed, poll_s=0.0)
    assert api.calls == []
    assert api.objects[LEASE]["spec"]["holderIdentity"] == "other"


async def test_who_loses_the_lease_in_a_long_search_evicts_nobody(monkeypatch, clock):
    api = Api()
    plan = await planned(api)

    def slow(*args):
        if api.closed:
            api.rob()
            clock.ahead_s = TIMING.duration_s
        return still_helps(*args)

    monkeypatch.setattr("cli.apply.still_helps", slow)

    async def agree(question: str) -> bool:
        return bool(question)

    with pytest.raises(StoppedError, match="another kubectl cards apply may run"):
        await carry_out(api, plan, OPTIONS, say=print, ask=agree, poll_s=0.0)
    assert api.evicted == []


async def test_who_may_not_read_the_lease_is_told_at_once():
    api = Api()
    plan = await planned(api)
    api.lease_status = 403
    assert (
        "Lease kube-system/cardshare-apply keeps plans from being applied at once" in await Applied(api, plan).stopped()
    )


async def test_a_pod_that_gets_its_node_between_two_lists_is_not_gone():
    api = Api()
    plan = await planned(api)
    playing(api)
    lists = 0

    def play(verb, path, base=api.before):
        nonlocal lists
        lists += path == "/api/v1/pods"
        is_between = path == "/api/v1/pods" and lists % 2 == 0
        if not api.is_on("s-2"):
            base(verb, path)
        elif is_between and not api.is_on("train"):
            api.bind("train", "a")

    api.before = play
    await Applied(api, plan).run
    assert not api.closed


async def test_while_a_budget_refuses_the_plan_is_looked_at_again():
    api = Api()
    plan = await planned(api)

    def play(verb, path):
        if path.endswith("/eviction"):
            api.add(pod("new-1", 9500))
            api.bind("new-1", "b")
            api.add(pod("new-2", 9500))
            api.bind("new-2", "b", 1)
            api.before = lambda *_: None
            return 429
        return None

    api.before = play
    assert "there is no room elsewhere for pod team/s-1 any more" in await Applied(api, plan).stopped()
    assert api.evicted == []
    assert not api.closed


@pytest.mark.parametrize("status", [429, 500, 409])
async def test_a_pod_that_is_never_evicted_stops_the_plan(status):
    api = Api()
    plan = await planned(api)
    api.before = lambda _, path: status if path.endswith("/eviction") else None
    one = Applied(api, plan, timeout_s=0)
    assert (await one.stopped()).startswith("pod team/s-1 is not evicted: POST ")
    assert not any("evicted team/s-1" in line for line in one.said)
    assert not api.closed


async def test_an_eviction_whose_answer_is_lost_is_not_repeated():
    api = Api()
    plan = await planned(api)
    playing(api)

    def play(verb, path, base=api.before):
        if path.endswith("/eviction"):
            api.gone("s-1")
            api.calls.append(f"POST {path}")
            return 504
        return base(verb, path)

    api.before = play
    await Applied(api, plan).run
    assert api.evicted == ["s-1"]


async def test_a_run_goes_on_while_the_pod_that_an_earlier_run_evicted_still_leaves():
    api = Api()
    plan = await planned(api)
    playing(api)
    leaving, base, looks = api.objects[path_of("s-1")], api.before, 0
    leaving["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z"

    def play(verb, path):
        nonlocal looks
        looks += path == "/api/v1/pods"
        if looks == 5 and path_of("s-1") in api.objects:
            api.gone("s-1")
        base(verb, path)

    api.before = play
    await Applied(api, plan).run
    assert api.evicted == []
    assert api.is_on("train")


async def test_nobody_moves_for_a_shape_for_which_there_is_room_by_now():
    api = Api()
    plan = await planned(api, CardWish(2, None, None, "T4"))
    api.gone("alone")
    asked: list[str] = []
    one = Applied(api, plan, yes=False, ask=asked)
    await one.run
    assert (api.evicted, asked) == ([], [])
    assert "there is room already on b; no more pods have to move" in one.said
    assert "done: there is room for 2 x whole T4 on b" in one.said


async def test_nobody_moves_after_someone_has_opened_the_nodes():
    api = Api()
    plan = await planned(api)

    def play(verb, path):
        if path.endswith("/eviction"):
            api.objects["/api/v1/nodes/a"]["spec"]["taints"] = []
            api.before = lambda *_: None
            return 429
        return None

    api.before = play
    assert "someone else has opened node a" in await Applied(api, plan).stopped()
    assert api.evicted == []


async def test_another_pod_of_the_same_name_is_not_let_in():
    api = Api()
    plan = await planned(api)

    def play(verb, path):
        if verb == "GET" and path == path_of("train"):
            api.add(pod("train", 10_000, number=2) | {"status": {"phase": "Pending"}})
            api.objects[path]["metadata"]["uid"] = "another"

    api.before = play
    assert "another pod has the name" in await Applied(api, plan).stopped()
    assert not [one for one in api.calls if one.startswith("PATCH") and "/pods/" in one]
    assert not api.closed


@pytest.mark.parametrize(("status", "kept"), [(403, 1), (409, 1), (429, 1), (500, 1), (403, 100), (500, 100)])
async def test_whatever_call_fails_the_nodes_are_open_at_the_end_or_it_is_said_how_to_open_them(status, kept):
    plan = await planned(Api())
    for number in range(100):
        api = Api()
        playing(api)
        calls = 0

        def play(verb, path, base=api.before, number=number):
            nonlocal calls
            calls += 1
            base(verb, path)
            return status if number <= calls - 1 < number + kept else None

        api.before = play
        said = ""
        try:
            await Applied(api, plan, timeout_s=0 if kept > 1 else 600).run
        except (ApiError, StoppedError) as e:
            said = str(e)
        assert not api.closed or "--undo" in said, (number, said)
        assert len(api.evicted) <= 1
        if calls <= number:
            return
    raise AssertionError


@pytest.mark.parametrize("is_robbed", [True, False], ids=["robbed", "interrupted"])
async def test_whenever_a_run_ends_early_it_says_how_to_open_the_nodes_that_it_closed(is_robbed):
    plan = await planned(Api())
    closed = set[bool]()
    for number in range(100):
        api = Api()
        playing(api)
        one, request, calls, hangs = Applied(api, plan), api.request, 0, asyncio.Event()

        async def asked(verb, path, api=api, request=request, number=number, hangs=hangs, **words):
            nonlocal calls
            counts = LEASE in api.objects and path != LEASE
            calls += counts
            if counts and calls == number + 1:
                hangs.set()
                if is_robbed:
                    api.rob()
                await asyncio.Event().wait()
            return await request(verb, path, **words)

        api.request = asked  # type: ignore[method-assign]
        running = asyncio.create_task(one.run)
        hanging = asyncio.create_task(hangs.wait())
        await asyncio.wait([running, hanging], return_when=asyncio.FIRST_COMPLETED)
        hanging.cancel()
        if running.done():
            assert closed == {False, True}
            return await running
        if not is_robbed:
            running.cancel()
        with pytest.raises(StoppedError if is_robbed else asyncio.CancelledError) as e:
            await running
        told = str(e.value) if is_robbed else " ".join(one.said)
        assert not api.closed or "open them with --undo" in told, (number, told)
        closed.add(bool(api.closed))
    raise AssertionError


@pytest.mark.parametrize("is_resumed", [True, False], ids=["resumed", "first run"])
async def test_who_answers_no_is_told_how_to_open_the_nodes_that_an_earlier_run_closed(is_resumed):
    api = Api()
    plan = await planned(api)
    if is_resumed:
        taint = {"key": MOVING, "value": id_of(plan), "effect": "NoSchedule"}
        api.objects["/api/v1/nodes/a"]["spec"] = {"taints": [taint]}
        toleration = {"key": MOVING, "operator": "Equal", "value": id_of(plan), "effect": "NoSchedule"}
        api.objects[path_of("train")]["spec"]["tolerations"] = [toleration]
    told = await Applied(api, plan, agrees=False, yes=False).stopped()
    assert told.startswith("nothing was evicted; answer y, or give --yes")
    assert ("open them with --undo" in told, bool(api.closed)) == (is_resumed, is_resumed)
    assert api.evicted == []


@pytest.mark.parametrize("part", ["/configmaps/", "/resourceclaims", "/podgroups", "/poddisruptionbudgets"])
async def test_nobody_moves_while_something_cannot_be_read_that_the_plan_was_made_from(part):
    api = Api()
    member = api.objects[path_of("alone")]["metadata"]
    member["annotations"] |= {"scheduling.k8s.io/group-name": "g"}
    plan = await planned(api)
    api.before = lambda _, path: 500 if part in path else None
    assert "something that the plan was made from cannot be read now" in await Applied(api, plan).stopped()
    assert api.evicted == []
    api.before = lambda _, path: 403 if part in path else None
    again = await fetch_plan(api, asking(), "team")
    one = Applied(api, again, dry_run=True)
    await one.run
    assert "pod team/s-1 would be evicted from a" in one.said


async def test_lines_that_nobody_reads_keep_no_node_closed():
    api = Api()
    plan = await planned(api)
    playing(api)

    def say(line):
        if line.startswith(("evicted", "node")):
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        await carry_out(api, plan, OPTIONS, say=say, ask=agree, poll_s=0.0)
    assert not api.closed


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"deletionTimestamp": "2026-01-02T00:00:00Z"}, "pod team/train, for which room is made, is gone"),
        ({"gates": True}, "moves do not help pod team/train: it has scheduling gates"),
        ({"message": "CS530 Wait until pods of queue q end"}, "moves do not help pod team/train: CS530 Wait"),
    ],
)
async def test_nobody_moves_for_a_pod_that_room_does_not_let_in(changes, says):
    api = Api()
    plan = await planned(api)
    one = api.objects[path_of("train")]
    if "gates" in changes:
        one["spec"]["schedulingGates"] = [{"name": "x"}]
    elif "message" in changes:
        condition = {"type": "PodScheduled", "status": "False", "reason": "x", "message": changes["message"]}
        one["status"]["conditions"] = [condition]
    else:
        one["metadata"] |= changes
    assert says in await Applied(api, plan).stopped()
    assert api.evicted == []
    with pytest.raises(NothingToPlanError):
        await fetch_plan(api, asking(), "team")


def changed(text, *path):
    """The plan as YAML, with the last of *path* at the place that the others name."""
    value = text
    *keys, last, new = path
    for key in keys:
        value = value[key]
    value[last] = new
    return text


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("moves", 0, "pod", "s-1"), "found the pod 's-1', which is not NAMESPACE/NAME"),
        (("moves", 0, "uid", ""), "each move needs a uid of its own"),
        (("places", []), "it lacks the nodes on which room is made"),
        (("places", 0, "node", ""), "it lacks the nodes on which room is made"),
    ],
)
async def test_an_edited_plan_is_refused(change, says):
    plan = changed(msgspec.to_builtins(await planned(Api())), *change)
    with pytest.raises(UnusablePlanError, match=says):
        plan_in(json.dumps(plan))


async def test_a_plan_with_a_move_twice_is_refused():
    plan = msgspec.to_builtins(await planned(Api()))
    with pytest.raises(UnusablePlanError, match="each move needs a uid of its own"):
        plan_in(json.dumps(plan | {"moves": plan["moves"] * 2}))


@pytest.mark.parametrize("text", ["[" * 100_000, "{a: " * 5000, "state: 2024-99-99", "version: " + "9" * 5000, ""])
def test_rubbish_is_no_plan(text):
    with pytest.raises(UnusablePlanError):
        plan_in(text)


async def test_a_plan_for_a_shape_whose_node_is_unknown_stops():
    api = Api()
    plan = changed(msgspec.to_builtins(await planned(api, CardWish(2, None, None, "T4"))), "places", 0, "node", "x")
    api.gone("alone")  # so that there is room without a move
    assert "node x, on which room is made, does not exist" in await Applied(api, plan_in(json.dumps(plan))).stopped()
    assert api.calls == []


@pytest.mark.parametrize("limits", [{}, {"volcano.sh/vgpu-number": "x"}, {"volcano.sh/vgpu-number": "1" * 99}])
async def test_a_plan_for_a_shape_that_asks_rubbish_evicts_nobody(limits):
    api = Api()
    plan = msgspec.to_builtins(await planned(api, CardWish(2, None, None, "T4"))) | {"limits": limits}
    with suppress(StoppedError):
        await Applied(api, plan_in(json.dumps(plan))).run
    assert api.evicted == []


@pytest.fixture
def terminal(monkeypatch):
    """Standard input is a terminal; what is written to the returned descriptor is typed."""
    keys, end = os.openpty()
    with os.fdopen(end, "rb", buffering=0) as typed:
        monkeypatch.setattr(sys, "stdin", typed)
        yield keys
    os.close(keys)


@pytest.mark.parametrize(("typed", "is_agreed"), [(b"y\n", True), (b"Yes\n", True), (b"\n", False), (b"\x04", False)])
async def test_only_yes_is_yes(terminal, typed, is_agreed):
    os.write(terminal, typed)
    assert await _agreed("Evict 1 pod?") is is_agreed


def test_who_interrupts_the_question_does_not_wait_for_an_answer(terminal):
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(_agreed("Evict 1 pod?"), 0.05))
    assert time.monotonic() - began < 60
    os.write(terminal, b"\n")
    for one in threading.enumerate():
        if one is not threading.current_thread() and one.daemon:
            one.join(1)
