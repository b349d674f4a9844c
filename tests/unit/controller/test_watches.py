import asyncio
import json
import time
from contextlib import asynccontextmanager
from math import inf
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from controller.actions import Inbox
from controller.scheduler_names import SchedulerNames
from controller.watches import InboxSink, Watches
from kube.errors import ApiForbiddenError, ApiUnknownError
from kube.reflector import Reflector
from kube.transport import Response
from tests.support.worlds.world import World

pytestmark = pytest.mark.looptime

BUDGETS = json.dumps(
    {
        "metadata": {"resourceVersion": "7"},
        "items": [
            {
                "metadata": {"namespace": "default", "name": "one", "uid": "u", "resourceVersion": "7"},
                "spec": {"selector": {"matchLabels": {"app": "one"}}},
                "status": {"disruptionsAllowed": 0},
            }
        ],
    }
).encode()


class Source:
    """An API server with one disruption budget, on which nothing happens."""

    async def request(self, verb, path, **_):
        assert (verb, path) == ("GET", "/apis/policy/v1/poddisruptionbudgets")
        return Response(status=200, headers={}, body=BUDGETS)

    @asynccontextmanager
    async def stream(self, path, params, **_):
        yield self._nothing()

    async def _nothing(self):
        await asyncio.Event().wait()
        yield b""


QUOTAS = [
    {"metadata": {"namespace": "team", "name": "good"}, "spec": {"hard": {"limits.nvidia.com/gpumem": "2k"}}},
    {"metadata": {"namespace": "team", "name": "bad"}, "spec": {"hard": {"limits.nvidia.com/gpumem": "many"}}},
    {"metadata": {"namespace": "team", "name": "cpu"}, "spec": {"hard": {"limits.cpu": "4"}}},
]


class Quotas(Source):
    """An API server with three ResourceQuotas, or one that refuses to list them."""

    def __init__(self, *, forbidden=0.0):
        """*forbidden*: how many lists are refused."""
        self._forbidden = forbidden

    async def request(self, verb, path, **_):
        assert (verb, path) == ("GET", "/api/v1/resourcequotas")
        self._forbidden -= 1
        if self._forbidden >= 0:
            raise ApiForbiddenError(verb="GET", path=path, status=403, message="resourcequotas is forbidden")
        body = {"metadata": {"resourceVersion": "7"}, "items": QUOTAS}
        return Response(status=200, headers={}, body=json.dumps(body).encode())


def watches_of(world, inbox):
    return Watches(world.scheduler, inbox, None, frozenset(), SchedulerNames(()))


class Began:
    """In place of a task group: what was begun, to be ended."""

    def __init__(self):
        self._tasks = []

    def create_task(self, running, *, name=""):
        self._tasks.append(asyncio.create_task(running, name=name))

    def end(self):
        for task in self._tasks:
            task.cancel()


async def working(inbox):
    while True:
        inbox.work(float("inf"))
        await asyncio.sleep(0.1)


async def quotas_of(world, source):
    """What is known of quotas when the watches go on to pods."""
    inbox, began = Inbox(asyncio.get_running_loop().time), Began()
    began.create_task(working(inbox))
    try:
        await watches_of(world, inbox)._follow_quotas(began, source)
    finally:
        began.end()
    return world.scheduler.cluster.budgets.quotas.of("team")


async def test_quotas_are_known_before_pods_are_and_one_that_cannot_be_read_holds_nobody_and_is_told():
    world = World()
    assert await quotas_of(world, Quotas()) == {"good": {"nvidia.com/gpumem": 2000}}
    (told,) = world.announced()
    assert (told.reason, told.about.kind, told.about.name) == ("ObjectUnreadable", "ResourceQuota", "bad")
    assert "no pod waits for it: spec.hard.limits.nvidia.com/gpumem" in told.message


async def test_where_quotas_may_not_be_read_nobody_waits_for_them():
    assert await quotas_of(World(), Quotas(forbidden=inf)) == {}


async def test_one_refusal_that_passes_while_an_api_server_starts_leaves_nothing_unknown():
    assert await quotas_of(World(), Quotas(forbidden=1)) == {"good": {"nvidia.com/gpumem": 2000}}


async def test_budgets_are_not_known_once_preemption_is_off_however_late_the_owner_hears_of_them():
    world, inbox = World(preemption=True), Inbox(asyncio.get_running_loop().time)
    watches = Watches(
        world.scheduler,
        inbox,
        None,  # what follows the configuration has no part in it
        frozenset(),
        SchedulerNames(()),
    )
    following = asyncio.create_task(watches._follow_budgets(Source()))
    await asyncio.sleep(3.0)
    inbox.work(float("inf"))
    assert world.scheduler.cluster.occupants.disruption_budgets is not None
    await asyncio.sleep(3.0)
    world.configures(preemption=False)
    await asyncio.sleep(3.0)
    inbox.work(float("inf"))
    assert world.scheduler.cluster.occupants.disruption_budgets is None
    world.configures(preemption=True)
    await asyncio.sleep(3.0)  # they are listed again, and not taken yet
    world.configures(preemption=False)
    await asyncio.sleep(3.0)
    inbox.work(float("inf"))
    assert world.scheduler.cluster.occupants.disruption_budgets is None
    following.cancel()


class Closed(Source):
    """An API server that lets nobody list."""

    async def request(self, verb, path, **_):
        raise ApiForbiddenError(verb=verb, path=path, status=403, message="it is forbidden")


async def test_it_is_logged_once_that_nothing_is_evicted_for_lack_of_a_right():
    watches = watches_of(World(preemption=True), Inbox(asyncio.get_running_loop().time))
    with capture_logs() as logs:
        following = asyncio.create_task(watches._follow_budgets(Closed()))
        await asyncio.sleep(60.0)
        following.cancel()
    assert [(one["event"], one["remedy"]) for one in logs if "evicted" in one["event"]] == [
        (
            "listing PodDisruptionBudgets is forbidden; no pod is evicted for others",
            "give the controller the rights of deploy/preemption.yaml",
        )
    ]


class Broken(Source):
    """An API server with nothing, that cannot read the objects of one kind."""

    def __init__(self, kind):
        self._kind = kind

    async def request(self, verb, path, **_):
        if path.endswith(self._kind):
            raise ApiUnknownError(verb=verb, path=path, status=500, message="conversion webhook failed")
        body = {"metadata": {"resourceVersion": "7"}, "items": []}
        return Response(status=200, headers={}, body=json.dumps(body).encode())


async def test_a_start_that_waits_for_a_kind_that_cannot_be_listed_says_so():
    inbox, began = Inbox(asyncio.get_running_loop().time), Began()
    watches, why = watches_of(World(), inbox), "failing: list hypernodes: conversion webhook failed"
    began.create_task(working(inbox))
    began.create_task(watches.cluster(began, Broken("/hypernodes")))
    await asyncio.sleep(60.0)
    assert watches.reasons() == ["nodes: not listed yet", "pods: not listed yet", why]
    began.end()


@pytest.mark.parametrize("silent", ["nodes", "pods"])
def test_nothing_is_decided_once_nothing_has_confirmed_for_15_s_that_a_watch_is_complete(silent):
    """docs/operators/controller.md says so; how long a process takes until it says so no other test bounds."""
    watches, synced = watches_of(World(), None), asyncio.Event()
    synced.set()
    for ago_s, is_current in ((10.0, True), (15.1, False)):
        for name in ("nodes", "pods"):
            current_s = time.monotonic() - (ago_s if name == silent else 0.0)
            watches.reflectors[name] = SimpleNamespace(state="", synced=synced, current_s=current_s)
        assert watches.is_current() is is_current
        assert [one.partition(":")[2] for one in watches.reasons()] == (
            [] if is_current else [f" watch {silent}: nothing came for 15 s; nothing is decided"]
        )


class Listed:
    """The watch of pods at a version, in place of a reflector; a list brings the server's version."""

    def __init__(self, version, listed):
        self.version, self.counters = version, SimpleNamespace(lists=0, replaced=0)
        self._listed = listed

    def list_again(self):
        self.version = self._listed
        self.counters.lists += 1
        self.counters.replaced = self.counters.lists


class At:
    """An API server at a version, and how far the watch came while it was asked."""

    def __init__(self, version, reflector, meanwhile=""):
        self._version, self._reflector, self._meanwhile = version, reflector, meanwhile

    async def get_raw(self, path, params):
        assert (path, params) == ("/api/v1/pods", {"limit": "1"})
        self._reflector.version = self._meanwhile or self._reflector.version
        return json.dumps({"metadata": {"resourceVersion": self._version}, "items": []}).encode()


@pytest.mark.parametrize(
    ("watched", "meanwhile", "current", "lists"),
    [
        pytest.param("30", "", "30", 0, id="the watch has delivered all"),
        pytest.param("20", "40", "30", 0, id="the watch delivers more while the server is asked"),
        pytest.param("20", "", "30", 1, id="the watch stays behind"),
        pytest.param("50", "", "30", 1, id="etcd was restored, and the watch does not know"),
    ],
)
async def test_a_new_leader_knows_all_earlier_writes(watched, meanwhile, current, lists):
    inbox = Inbox(asyncio.get_running_loop().time)
    watches = watches_of(World(), inbox)
    reflector = watches.reflectors["pods"] = Listed(watched, current)
    at_work = asyncio.create_task(working(inbox))
    await watches.catch_up(At(current, reflector, meanwhile))
    at_work.cancel()
    assert reflector.counters.replaced == lists


class Lists(Source):
    """An API server that answers lists of pods one after the other, each as it was when the list began."""

    def __init__(self, *versions):
        self.begun = asyncio.Semaphore(0)
        self.answers = asyncio.Semaphore(0)
        self._versions = iter(versions)

    async def request(self, verb, path, **_):
        version = next(self._versions)
        self.begun.release()
        await self.answers.acquire()
        body = json.dumps({"metadata": {"resourceVersion": version}, "items": []}).encode()
        return Response(status=200, headers={}, body=body)


async def test_a_new_leader_does_not_take_a_list_that_began_before_for_all_earlier_writes():
    inbox = Inbox(asyncio.get_running_loop().time)
    watches, server = watches_of(World(), inbox), Lists("20", "25", "30")
    sink: InboxSink[bytes] = InboxSink(
        inbox, replaced=lambda pods: None, changed=lambda pod: None, gone=lambda pod: None
    )
    reflector = watches.reflectors["pods"] = Reflector(server, "/api/v1/pods", decode=bytes, sink=sink)
    tasks = [asyncio.create_task(working(inbox)), asyncio.create_task(reflector.run())]
    server.answers.release()
    await reflector.synced.wait()
    await server.begun.acquire()
    reflector.list_again()
    await server.begun.acquire()
    catching_up = asyncio.create_task(watches.catch_up(At("30", reflector)))
    for version, is_caught_up in (("20", False), ("25", False), ("30", True)):
        await asyncio.sleep(1.0)
        assert (reflector.version, catching_up.done()) == (version, is_caught_up)
        server.answers.release()
    for task in tasks:
        task.cancel()
