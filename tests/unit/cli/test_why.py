"""What happened to a pod, as text: who reads it knows nothing of cardshare's words."""

import re

import pytest

from cli.options import Why as PlanTarget
from cli.options import parse
from cli.why import story
from core.history.pods import Life, PodEvent, What
from core.model import Phase, PodUid
from core.view.explained import Event
from core.view.history import why, why_by_api
from tests.support.worlds.world import pod

AT = 1_700_000_000  # 2023-11-14T22:13:20Z


def life(*events: PodEvent, uid: str = "u1") -> Life:
    return Life(PodUid(uid), "team/train", events)


def happened(what: What, after_s: int, text: str = "", code: str = "", times: int = 1, since_s: int = 0) -> PodEvent:
    return PodEvent(what, AT + (since_s or after_s), AT + after_s, times, after_s, code, text)


def test_a_pod_that_waited_for_more_than_an_hour():
    found = why(
        "team/train",
        [
            life(
                happened(What.ASKED, 0, "nvidia.com/gpu: 1"),
                happened(What.WAITS, 3700, "CS501 no node fits", "CS501", times=3, since_s=2),
                happened(What.RESERVED, 3723, "gpu-1"),
                happened(What.SENT, 3723, "gpu-1: GPU-0 (4000 MiB)"),
                happened(What.BOUND, 3723, "gpu-1"),
                happened(What.SERVED, 3724),
                happened(What.GONE, 4000),
            )
        ],
    )
    assert story(found).splitlines() == [
        "team/train was bound 1 h 2 min 3 s after its creation",
        "TIME                  WHAT HAPPENED",
        "2023-11-14T22:13:20Z  it was created and asked for nvidia.com/gpu: 1",
        "2023-11-14T23:15:00Z  it waited: CS501 no node fits (3 times since 2023-11-14T22:13:22Z)",
        "2023-11-14T23:15:23Z  a place on node gpu-1 was reserved for it",
        "2023-11-14T23:15:23Z  its Binding was sent, with gpu-1: GPU-0 (4000 MiB)",
        "2023-11-14T23:15:23Z  it was bound: gpu-1",
        "2023-11-14T23:15:24Z  its device plugin gave it its cards",
        "2023-11-14T23:20:00Z  it was deleted",
    ]


def test_pods_of_one_name_are_told_apart_and_the_record_of_a_standby_is_named():
    first, second = life(happened(What.ASKED, 0)), life(happened(What.ASKED, 60), uid="u2")
    lines = story(why("team/train", [first, second], as_of_s=AT + 100, notes=["the store is gone"])).splitlines()
    assert lines.count("team/train was not bound while this was recorded") == 2
    assert lines[-2:] == [
        "note: this was stored at 2023-11-14T22:15:00Z; what happened later may be missing",
        "note: the store is gone",
    ]


def test_every_kind_of_event_has_its_sentences():
    shown = story(why("team/train", [life(*(happened(what, 1) for what in What))]))
    assert "something" not in shown
    assert len(shown.splitlines()) == 2 + len(What)


def test_text_of_others_cannot_control_a_terminal():
    shown = story(why("team/train", [life(happened(What.WAITS, 1, "\x1b[2Jgone\nroot"))]))
    assert "\x1b" not in shown
    assert len(shown.splitlines()) == 3


@pytest.mark.parametrize("is_over", [False, True])
def test_conditions_and_events_tell_less(is_over):
    waits = "CS501 no node fits"
    shown = pod("train")._replace(
        namespace="team", created_s=AT, scheduled_message=waits, phase=Phase.FAILED if is_over else Phase.PENDING
    )
    events = [Event(time="2023-11-14T22:14:00Z", reason="FailedScheduling", message=waits, count=2)]
    events.append(Event(time="2023-11-14T22:15:00Z", reason="Pulled", message="an image", count=1))
    found = why_by_api(shown, events)
    kinds = [(one.what, one.code, one.times) for one in found.lives[0].events]
    wanted = [("asked", "", 1), ("waits", "CS501", 2), ("event", "", 1), *([("ended", "", 1)] if is_over else [])]
    assert kinds == wanted
    assert found.source == "conditions"
    assert "Pulled: an image" in story(found)
    without = why_by_api(shown, [])
    assert [one.what for one in without.lives[0].events][:2] == ["asked", "waits"]
    assert re.search("unknown +it waited: CS501", story(without))


def test_a_pod_on_a_node_was_bound_whatever_events_say():
    on_node = pod("train")._replace(namespace="team", node_name="gpu-1", created_s=AT, start_s=AT + 5)
    assert "team/train was bound 5 s after its creation" in story(why_by_api(on_node, []))
    assert "team/train was bound\n" in story(why_by_api(on_node._replace(start_s=0), []))


@pytest.mark.parametrize(
    ("words", "namespace", "name"),
    [(["train"], "", "train"), (["team/train"], "team", "train"), (["pod/train", "-n", "team"], "team", "train")],
)
def test_a_pod_is_named_as_for_explain(words, namespace, name):
    asked = parse(["why", *words], {})
    assert isinstance(asked, PlanTarget)
    assert (asked.pod.namespace or asked.namespace, asked.pod.name) == (namespace, name)


@pytest.mark.parametrize("words", [["job/train"], ["a/train", "-n", "b"], [], ["a/b/c"]])
def test_other_names_are_refused_in_one_line(words, capsys):
    with pytest.raises(SystemExit) as ended:
        parse(["why", *words], {})
    assert ended.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_without_a_record_events_are_in_their_order_and_no_first_time_is_made_up():
    one = pod("a", node_name="n1", created_s=AT, start_s=AT + 60)
    events = [
        Event(time="2023-11-14T22:13:25Z", reason="FailedScheduling", message="CS501 none fits", count=3),
        Event(time="2023-11-14T22:15:00Z", reason="Preempted", message="by b", count=1),
    ]
    assert story(why_by_api(one, events)).splitlines()[1:] == [
        "TIME                  WHAT HAPPENED",
        "2023-11-14T22:13:20Z  it was created",
        "2023-11-14T22:13:25Z  it waited: CS501 none fits (3 times)",
        "2023-11-14T22:14:20Z  it was bound: n1",
        "2023-11-14T22:15:00Z  it was evicted: by b",
    ]


@pytest.mark.parametrize("time", ["yesterday", "2023-11-14T22:13:25", ""])
def test_a_time_in_no_known_form_is_shown_and_not_counted_with(time):
    events = [Event(time=time, reason="Scheduled", message="on n1", count=1)]
    assert story(why_by_api(pod("a", created_s=AT), events)).splitlines()[0] == "default/a was bound"
