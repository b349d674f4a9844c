"""The reflector against a server that is told what to answer; time is virtual."""

import asyncio
import json
import re
from collections import deque
from contextlib import asynccontextmanager
from itertools import pairwise

import msgspec
import pytest

from kube.calls import is_newer
from kube.errors import (
    ApiForbiddenError,
    ApiGoneError,
    ApiNotFoundError,
    ApiThrottledError,
    ApiUnknownError,
    ApiUnreachableError,
)
from kube.reflector import EventKind, Pace, Reflector
from kube.transport import Purpose, Response

pytestmark = pytest.mark.looptime

PATH = "/api/v1/pods"
GOES_ON = "goes on"
# A change of an object, and its version.
SENT = re.compile(rb'\{"type": "(?:ADDED|MODIFIED|DELETED)", .*"resourceVersion": "(\d+)"')


def name(text: bytes) -> str:
    found: str = msgspec.json.decode(text)["metadata"]["name"]
    return found


def page(*names: str, version: str = "10", token: str = "") -> bytes:
    items = [{"metadata": {"name": one}} for one in names]
    return json.dumps({"metadata": {"resourceVersion": version, "continue": token}, "items": items}).encode()


def event(kind: str, of: str, version: str) -> bytes:
    return json.dumps({"type": kind, "object": {"metadata": {"name": of, "resourceVersion": version}}}).encode()


def bookmark(version: str) -> bytes:
    return event("BOOKMARK", "", version)


def failed(code: int, reason: str = "") -> bytes:
    return json.dumps({"type": "ERROR", "object": {"code": code, "reason": reason, "message": "m"}}).encode()


def error(kind, status=0, retry_after_s=None):
    return kind(verb="GET", path=PATH, status=status, message="m", retry_after_s=retry_after_s)


def now() -> float:
    return asyncio.get_running_loop().time()


class Server:
    """Answers lists and watches as told; the last answer of each is given for ever.

    versions: the answers to "check", which asks for one object to learn the version of the list. A watch begins with
    the events after its version that were sent before, unless the server *forgets* them.
    """

    def __init__(self, lists, watches, versions=("999",), *, forgets=False):
        self.forgets = forgets
        self.sent = []
        self.lists = deque(lists)
        self.watches = deque(watches)
        self.versions = deque(versions)
        self.asked = []

    def times(self, kind):
        return [at for at, what, _ in self.asked if what == kind]

    def params(self, kind):
        return [params for _, what, params in self.asked if what == kind]

    def _next(self, answers):
        return answers.popleft() if len(answers) > 1 else answers[0]

    async def request(self, verb, path, *, params, deadline_s, purpose):
        assert (verb, path) == ("GET", PATH)
        # The watches' connections suffice for one of each kind; beside them all kinds may ask at once.
        assert purpose is (Purpose.CALLS if params["limit"] == "1" else Purpose.WATCHES)
        if params["limit"] == "1":
            self.asked.append((now(), "check", dict(params)))
            answer = self._next(self.versions)
            answer = page("odd", version=answer) if isinstance(answer, str) else answer
        else:
            self.asked.append((now(), "list", dict(params)))
            answer = self._next(self.lists)
        if isinstance(answer, Exception):
            raise answer
        return Response(status=200, headers={}, body=answer)

    @asynccontextmanager
    async def stream(self, path, params, *, silence_s):
        self.asked.append((now(), "watch", dict(params)))
        answer = self._next(self.watches)
        if isinstance(answer, Exception):
            raise answer
        again = [line for version, line in self.sent if is_newer(str(version), params["resourceVersion"])]
        yield self._lines([*again, *answer])

    async def _lines(self, answer):
        for one in answer:
            if isinstance(one, Exception):
                raise one
            if one is GOES_ON:
                await asyncio.Event().wait()
            elif isinstance(one, int | float):
                await asyncio.sleep(one)
            else:
                self._note(one)
                yield one

    def _note(self, line):
        version = SENT.match(line)
        if version is not None and not self.forgets and line not in [one for _, one in self.sent]:
            self.sent.append((int(version[1]), line))


class Picture:
    """What a consumer knows, and every step to it."""

    def __init__(self):
        self.names = set()
        self.steps = []

    async def on_replace(self, objects, resource_version):
        self.names = set(objects)
        self.steps.append(("replace", tuple(objects), resource_version))

    async def on_event(self, kind, value):
        (self.names.discard if kind is EventKind.DELETED else self.names.add)(value)
        self.steps.append((str(kind), value))


def reflect(server, picture, **options):
    return Reflector(
        server,
        PATH,
        decode=name,
        sink=picture,
        clock=asyncio.get_running_loop().time,
        **({"jitter": lambda: 1.0} | options),
    )


async def play(reflector, seconds):
    task = asyncio.create_task(reflector.run(), name="reflector")
    await asyncio.wait([task], timeout=seconds)
    assert not task.done() or task.exception() is None, task.exception()
    task.cancel()
    await asyncio.wait([task])


async def test_pages_are_put_together_and_then_watched_from_their_version():
    server = Server([page("a", "b", token="t"), page("c")], [[event("ADDED", "d", "11"), GOES_ON]])
    picture = Picture()
    reflector = reflect(server, picture, selectors={"fieldSelector": "x=y"}, pace=Pace(page_limit=2))
    await play(reflector, 5)
    assert picture.steps == [("replace", ("a", "b", "c"), "10"), ("ADDED", "d")]
    assert server.params("list") == [
        {"fieldSelector": "x=y", "limit": "2"},
        {"fieldSelector": "x=y", "limit": "2", "continue": "t"},
    ]
    assert server.params("watch") == [
        {
            "fieldSelector": "x=y",
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": "10",
            "timeoutSeconds": "300",
        }
    ]
    assert reflector.synced.is_set()
    assert reflector.state == ""


async def test_a_watch_that_ends_goes_on_from_the_last_version_without_a_list():
    server = Server(
        [page("a")],
        [
            [event("DELETED", "a", "12"), bookmark("15"), 300],
            [event("ADDED", "b", "16"), error(ApiUnknownError)],
            [GOES_ON],
        ],
    )
    picture = Picture()
    await play(reflect(server, picture), 400)
    # The last one begins with the event that came before the connection broke, which is not passed on again.
    assert [params["resourceVersion"] for params in server.params("watch")] == ["10", "15", "15"]
    assert picture.steps[1:] == [("DELETED", "a"), ("ADDED", "b")]
    assert len(server.times("list")) == 1
    assert picture.names == {"b"}


async def test_a_watch_closed_every_second_is_opened_again_at_once_and_never_listed():
    server = Server([page("a")], [[1.0]])
    await play(reflect(server, Picture()), 60)
    assert len(server.times("list")) == 1
    assert 45 <= len(server.times("watch")) <= 60


@pytest.mark.parametrize("chance", [0.0, 1.0], ids=["longest waits", "shortest waits"])
@pytest.mark.parametrize(
    "answer",
    [
        [],
        [failed(500)],
        error(ApiUnknownError, 502),
        error(ApiThrottledError, 429),
        error(ApiForbiddenError, 403),
        [error(ApiUnknownError)],
    ],
    ids=["ends at once", "error event", "502", "429", "403", "reset at once"],
)
async def test_a_watch_that_never_works_is_asked_at_most_ten_times_in_thirty_seconds(answer, chance):
    server = Server([page("a")], [answer])
    reflector = reflect(server, Picture(), jitter=lambda: chance)
    await play(reflector, 1_000)
    times = [at for at, *_ in server.asked]
    assert all(sum(start <= at < start + 30 for at in times) <= 10 for start in times)
    assert reflector.state != ""


async def test_one_event_in_each_watch_that_ends_at_once_is_no_hot_loop():
    server = Server([page("a")], [[event("MODIFIED", "a", str(i))] for i in range(11, 500)])
    await play(reflect(server, Picture()), 30)
    assert len(server.times("watch")) <= 160


@pytest.mark.parametrize(
    "expired",
    [[failed(410, "Expired")], [failed(410)], error(ApiGoneError, 410), [event("ADDED", "x", "11"), failed(410)]],
    ids=["event", "event without reason", "status", "after an event"],
)
async def test_410_lists_again_and_the_vanished_are_gone(expired):
    server = Server([page("a", "b"), page("b", version="20")], [expired, [GOES_ON]])
    picture = Picture()
    reflector = reflect(server, picture)
    await play(reflector, 5)
    assert picture.names == {"b"}
    assert picture.steps[-1] == ("replace", ("b",), "20")
    assert server.params("watch")[-1]["resourceVersion"] == "20"
    assert reflector.counters.expired == 1


async def test_410_on_a_continue_token_begins_the_list_anew():
    server = Server([page("a", token="t"), error(ApiGoneError, 410), page("b")], [[GOES_ON]])
    picture = Picture()
    await play(reflect(server, picture), 5)
    assert picture.steps == [("replace", ("b",), "10")]
    assert "continue" not in server.params("list")[2]
    assert server.times("list")[2] >= 0.75


async def test_410_again_and_again_spaces_the_lists_out():
    server = Server([page("a")], [[failed(410)]])
    await play(reflect(server, Picture()), 300)
    times = server.times("list")
    gaps = [later - sooner for sooner, later in pairwise(times)]
    assert gaps[:5] == pytest.approx([0.75, 1.5, 3, 6, 12], abs=0.01)
    assert max(gaps) <= 30


async def test_410_after_a_long_good_watch_lists_at_once():
    server = Server([page("a")], [[120, failed(410)], [GOES_ON]])
    await play(reflect(server, Picture()), 150)
    assert server.times("list") == pytest.approx([0, 120], abs=0.01)


@pytest.mark.parametrize(
    "line",
    [b"<html>", b'{"type":"ADDED","object":{"metadata":{"na', b'{"type":"ODD","object":{}}', b"[" * 100_000],
    ids=["html", "truncated", "unknown type", "nested"],
)
async def test_a_line_that_cannot_be_read_is_counted_and_listed_over(line):
    server = Server([page("a"), page("a", "b")], [[line, event("ADDED", "c", "11")], [GOES_ON]])
    picture = Picture()
    reflector = reflect(server, picture)
    await play(reflector, 5)
    assert picture.names == {"a", "b"}
    assert reflector.counters.undecodable == 1
    assert reflector.state == ""


async def test_a_version_that_the_server_refuses_is_listed_over():
    server = Server([page("a"), page("b")], [error(ApiUnknownError, 504)] * 5 + [[GOES_ON]])
    picture = Picture()
    await play(reflect(server, picture), 120)
    assert picture.names == {"b"}


@pytest.mark.parametrize(
    "outage",
    [
        [[5, error(ApiUnknownError)]],
        [[5]],
        # A server that stops ends its watches as if their time were over, but earlier.
        [[290]],
        [[event("ADDED", "b", "900"), error(ApiUnknownError)]],
        [[5, error(ApiUnknownError)], error(ApiUnreachableError), error(ApiUnreachableError)],
        [error(ApiUnreachableError)],
        [[]],
    ],
    ids=["reset", "ended", "ended late", "after an event", "away for a while", "away after the list", "ended at once"],
)
async def test_a_server_whose_versions_went_back_is_listed_again(outage):
    # Etcd was restored. The server accepts a watch from a version that it has not reached, and sends nothing, not even
    # bookmarks, until it gets there; what changes before is never sent (kubernetes/kubernetes#107457).
    lists = [page("a", version="800"), page("old", version="500")]
    server = Server(lists, [*outage, [GOES_ON]], versions=["499"], forgets=True)
    picture = Picture()
    reflector = reflect(server, picture, selectors={"fieldSelector": "x=y"})
    await play(reflector, 320)
    assert picture.names == {"old"}
    assert server.params("watch")[-1]["resourceVersion"] == "500"
    assert server.params("check") == [{"fieldSelector": "x=y", "limit": "1"}]
    assert (len(server.times("list")), reflector.counters.expired, reflector.state) == (2, 1, "")


@pytest.mark.parametrize(
    "first",
    [event("ADDED", "c", "901"), event("MODIFIED", "b", "900"), bookmark("950")],
    ids=["later", "other", "none"],
)
async def test_a_server_that_has_reached_the_version_by_other_changes_is_listed_again(first):
    # Etcd was restored, and until the watch was opened again, as much was changed as before.
    outage = [event("ADDED", "b", "900"), bookmark("905"), 5, error(ApiUnknownError)]
    lists = [page("a", version="800"), page("old", version="960")]
    server = Server(lists, [outage, [first, GOES_ON], [GOES_ON]], versions=["950"], forgets=True)
    picture = Picture()
    reflector = reflect(server, picture)
    await play(reflector, 100)
    assert picture.names == {"old"}
    assert picture.steps[2:] == [("replace", ("old",), "960")]
    assert [params["resourceVersion"] for params in server.params("watch")] == ["800", "800", "960"]
    assert (reflector.counters.expired, reflector.state) == (1, "")


async def test_a_watch_that_never_shows_the_event_from_before_is_checked_again():
    outage = [event("ADDED", "b", "900"), 5, error(ApiUnknownError)]
    server = Server([page("a", version="800"), page("old", version="960")], [outage, [300], [GOES_ON]], forgets=True)
    await play(reflect(server, Picture()), 400)
    assert [params["resourceVersion"] for params in server.params("watch")] == ["800", "800", "800"]
    assert len(server.times("check")) == 2


async def test_versions_are_checked_once_after_each_watch_that_ended_early():
    watches = [[5, error(ApiUnknownError)], [7, bookmark("12"), 3], [GOES_ON]]
    server = Server([page("a")], watches, versions=["10", "12"])
    await play(reflect(server, Picture()), 1_000)
    assert server.times("check") == pytest.approx([5.75, 15.75], abs=0.01)
    assert (len(server.times("list")), len(server.times("watch"))) == (1, 3)


async def test_a_quiet_cluster_is_asked_for_watches_only():
    server = Server([page("a")], [[300]])
    await play(reflect(server, Picture()), 3_000)
    assert (len(server.times("list")), len(server.times("check")), len(server.times("watch"))) == (1, 0, 10)


async def test_a_version_that_cannot_be_checked_is_asked_for_again_and_keeps_the_state():
    failing = [error(ApiUnknownError, 503), error(ApiThrottledError, 429, 5.0), b"<html>"]
    lists = [page("a"), page("b", version="6")]
    server = Server(lists, [[5, error(ApiUnknownError)], [GOES_ON]], versions=failing)
    reflector = reflect(server, Picture())
    task, start = running(reflector), now()
    await asyncio.sleep(5.5)
    assert reflector.state == "failing: watch pods: m"
    await asyncio.sleep(30)
    assert len(server.times("check")) <= 4
    assert (server.params("watch")[-1]["resourceVersion"], reflector.state) == ("6", "")
    assert reflector.current_s > start + 5
    await ended(task)


async def test_versions_without_an_order_are_no_reason_to_list():
    server = Server([page("a", version="x9")], [[5, error(ApiUnknownError)], [GOES_ON]], versions=["x1"])
    await play(reflect(server, Picture()), 60)
    assert (len(server.times("list")), len(server.times("check"))) == (1, 1)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (error(ApiForbiddenError, 403), "forbidden: list pods: m"),
        (error(ApiUnreachableError), "unreachable: list pods: m"),
        (error(ApiThrottledError, 429, 1.0), "throttled: list pods: m"),
        (error(ApiUnknownError, 502), "failing: list pods: m"),
        (error(ApiNotFoundError, 404), "not found: list pods: m"),
        (b"<html>", "unreadable: list pods: a list cannot be read"),
    ],
    ids=["403", "unreachable", "429", "502", "404", "html"],
)
async def test_the_state_says_what_keeps_the_list_from_coming(answer, words):
    server = Server([answer], [[GOES_ON]])
    reflector = reflect(server, Picture())
    await play(reflector, 60)
    assert reflector.state.startswith(words)
    assert not reflector.synced.is_set()
    assert len(server.asked) <= 15


async def test_after_an_outage_the_list_comes_within_ten_seconds_of_its_end():
    server = Server([error(ApiUnknownError, 503)], [[GOES_ON]])
    reflector = reflect(server, Picture(), jitter=lambda: 0.0)
    task = asyncio.create_task(reflector.run(), name="reflector")
    await asyncio.sleep(120)
    server.lists = deque([page("a")])
    async with asyncio.timeout(10):
        await reflector.synced.wait()
    assert reflector.state == ""
    task.cancel()
    await asyncio.wait([task])


async def test_the_seconds_that_the_server_asks_for_are_waited():
    server = Server([error(ApiThrottledError, 429, 7.0), page("a")], [[GOES_ON]])
    await play(reflect(server, Picture()), 20)
    assert server.times("list") == pytest.approx([0, 7], abs=0.01)


async def test_a_list_goes_on_with_the_page_before_which_the_server_asked_for_time():
    held_back, slow = error(ApiThrottledError), error(ApiThrottledError, 429, 7.0)
    server = Server([page("a", token="t"), slow, page("b", token="u"), held_back, page("c")], [[GOES_ON]])
    picture = Picture()
    reflector = reflect(server, picture)
    task = running(reflector)
    await asyncio.sleep(3)
    assert (reflector.state, reflector.synced.is_set()) == ("throttled: list pods: m", False)
    await asyncio.sleep(17)
    assert picture.steps == [("replace", ("a", "b", "c"), "10")]
    assert [params.get("continue", "") for params in server.params("list")] == ["", "t", "t", "u", "u"]
    assert (reflector.state, reflector.counters.lists) == ("", 1)
    assert server.times("list")[2] - server.times("list")[1] == pytest.approx(7, abs=0.01)
    await ended(task)


async def test_a_forbidden_watch_says_so_and_recovers_without_a_list():
    server = Server([page("a")], [error(ApiForbiddenError, 403)])
    reflector = reflect(server, Picture())
    task = asyncio.create_task(reflector.run(), name="reflector")
    await asyncio.sleep(20)
    assert reflector.state == "forbidden: watch pods: m"
    server.watches = deque([[GOES_ON]])
    await asyncio.sleep(10)
    assert reflector.state == ""
    assert len(server.times("list")) == 1
    task.cancel()
    await asyncio.wait([task])


async def test_a_kind_that_is_not_installed_can_count_as_empty():
    server = Server([error(ApiNotFoundError, 404), page("a")], [[GOES_ON]])
    picture = Picture()
    reflector = reflect(server, picture, absent_is_empty=True)
    await play(reflector, 60)
    assert picture.steps == [("replace", (), ""), ("replace", ("a",), "10")]


async def test_the_first_path_that_is_served_counts_and_is_looked_for_at_each_list():
    class Upgraded(Server):
        served = "/api/v0/pods"

        async def request(self, verb, path, **rest):
            if path != self.served:
                raise error(ApiNotFoundError, 404)
            return await super().request(verb, PATH, **rest)

        def stream(self, path, params, **rest):
            assert path == self.served
            return super().stream(path, params, **rest)

    server = Upgraded([page("a"), page("b")], [[5, error(ApiNotFoundError, 404)], [GOES_ON]])
    picture = Picture()
    reflector = reflect(server, picture, absent_is_empty=True, older=("/api/v0/pods",))
    task = asyncio.create_task(reflector.run(), name="reflector")
    await asyncio.sleep(1)
    assert reflector.path == "/api/v0/pods"
    server.served = PATH
    await asyncio.sleep(100)
    assert reflector.path == PATH
    assert picture.steps == [("replace", ("a",), "10"), ("replace", ("b",), "10")]
    server.served = ""
    reflector.list_again()
    await asyncio.sleep(100)
    assert picture.steps[-1] == ("replace", (), "")
    task.cancel()
    await asyncio.wait([task])


@pytest.mark.parametrize(
    ("lists", "watch"),
    [
        ([page()], [event("ADDED", str(i), str(i + 11)) for i in range(1_000)]),
        ([page(str(i), token="t") for i in range(20)] + [page("last")], []),
    ],
    ids=["events", "pages"],
)
async def test_a_burst_lets_others_have_the_loop(lists, watch):
    class Watcher(Picture):
        turns = 0
        turns_when_told = 0

        async def on_replace(self, objects, resource_version):
            self.turns_when_told = self.turns

        async def on_event(self, kind, value):
            self.turns_when_told = self.turns

    picture = Watcher()

    async def other():
        while True:
            await asyncio.sleep(0 if picture.turns < 100 else 1)
            picture.turns += 1

    task = asyncio.create_task(other(), name="other")
    await play(reflect(Server(lists, [[*watch, GOES_ON]]), picture), 1)
    assert picture.turns_when_told >= 15
    task.cancel()
    await asyncio.wait([task])


async def test_an_event_without_a_version_loses_none():
    server = Server([page("a")], [[bookmark("12"), bookmark(""), 1], [GOES_ON]])
    await play(reflect(server, Picture()), 5)
    assert [params["resourceVersion"] for params in server.params("watch")] == ["10", "12"]


async def test_a_failure_before_it_does_not_excuse_a_list_from_waiting():
    server = Server([page("a")], [error(ApiUnknownError, 502), [failed(410)], [GOES_ON]])
    await play(reflect(server, Picture()), 30)
    assert server.times("list") == pytest.approx([0, 1.5], abs=0.01)


async def test_failures_with_good_watches_between_never_add_up_to_a_list():
    server = Server([page("a")], ([error(ApiUnknownError, 502)] * 4 + [[1.0]]) * 10 + [[GOES_ON]])
    await play(reflect(server, Picture()), 500)
    assert len(server.times("list")) == 1
    assert len(server.times("watch")) == 51


async def test_what_the_consumer_raises_ends_the_run():
    class Broken(Picture):
        async def on_event(self, kind, value):
            raise RuntimeError("ours")

    server = Server([page()], [[event("ADDED", "a", "11")]])
    with pytest.raises(RuntimeError, match="ours"):
        await reflect(server, Broken()).run()


async def test_the_time_of_the_last_word_is_known():
    server = Server([page()], [[10, bookmark("11"), GOES_ON]])
    reflector = reflect(server, Picture())
    start = now()
    await play(reflector, 100)
    assert reflector.last_seen_monotonic - start == pytest.approx(10, abs=0.01)


def running(reflector):
    return asyncio.create_task(reflector.run(), name="reflector")


async def ended(task):
    task.cancel()
    await asyncio.wait([task])


async def test_the_picture_is_current_when_an_event_a_bookmark_or_a_planned_end_came():
    server = Server([page("a")], [[5.0, bookmark("12"), 2.0, event("ADDED", "b", "13"), 3.0], [GOES_ON]])
    reflector = reflect(server, Picture())
    task, start = running(reflector), now()
    for second, current, version in ((1, 0, "10"), (6, 5, "12"), (8, 7, "13"), (12, 10, "13"), (60, 10, "13")):
        await asyncio.sleep(start + second - now())
        assert (reflector.current_s - start, reflector.version) == (pytest.approx(current, abs=0.1), version)
    await ended(task)


async def test_watches_that_open_and_say_nothing_leave_the_picture_as_old_as_it_is():
    server = Server([page("a")], [[15.0, error(ApiUnknownError)]])
    reflector = reflect(server, Picture())
    task, start = running(reflector), now()
    await asyncio.sleep(120)
    assert reflector.current_s == pytest.approx(start, abs=0.1)
    await ended(task)


async def test_watches_that_end_as_planned_are_followed_by_the_next_at_once_and_are_no_restarts():
    server = Server([page("a")], [[10.0]])
    reflector = reflect(server, Picture(), pace=Pace(watch_s=10.0))
    await play(reflector, 55)
    assert server.times("watch") == pytest.approx([0, 10, 20, 30, 40, 50], abs=0.1)
    assert reflector.counters.watch_restarts == 0


async def test_a_list_that_is_wanted_comes_at_once_and_what_was_watched_goes_on_after_it():
    server = Server([page("a"), page("a", "b", version="20")], [[GOES_ON], [event("ADDED", "c", "21"), GOES_ON]])
    picture = Picture()
    reflector = reflect(server, picture)
    task, start = running(reflector), now()
    await asyncio.sleep(3)
    reflector.list_again()
    await asyncio.sleep(1)
    assert picture.steps[1:] == [("replace", ("a", "b"), "20"), ("ADDED", "c")]
    assert [at - start for at in server.times("list")] == pytest.approx([0, 3], abs=0.01)
    assert (reflector.state, reflector.counters.watch_restarts) == ("", 0)
    await ended(task)


async def test_a_list_that_is_wanted_while_the_watch_fails_comes_after_the_wait():
    server = Server([page("a"), page("b", version="20")], [error(ApiForbiddenError, 403), [GOES_ON]])
    picture = Picture()
    reflector = reflect(server, picture)
    task = running(reflector)
    await asyncio.sleep(0.1)
    reflector.list_again()
    await asyncio.sleep(8)
    assert picture.names == {"b"}
    await ended(task)
