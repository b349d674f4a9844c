"""What ``kubectl cards waiting`` shows of pods, and that places in line are those in which they are decided."""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

import pytest

from cli.options import By
from cli.waiting import waiting_table
from controller.deciding.queue import SchedulingQueue
from controller.grouping.groups import Groups
from core.groups import GroupSpec
from core.model import MEMBER_OF, GroupKey, GroupKind, Phase, Pod
from core.settings import GroupSettings
from core.view.waiting import Lines, Waiting, has_place, waiting
from core.waiting import Cause, Wait
from core.wire.policies import PriorityClass
from tests.support.worlds.world import START_UNIX_S, pod

REFUSED = Wait(
    Cause.UNSCHEDULABLE,
    "0/4 nodes are available: 4 too little free memory on every card. Nearest: t4-a GPU-0: 5360 of 8000 MiB free. "
    "Ask for at most 5360 MiB of memory, or wait until enough of a card is free. "
    "A new node with 2 x Tesla T4 would take it.",
)
HIGH = {"high": PriorityClass("high", 100)}


def ours(one: Pod) -> bool:
    return one.scheduler_name == "cardshare"


def refused(name: str, wait: Wait = REFUSED, **fields: Any) -> Pod:
    return pod(name, scheduled_reason=wait.cause.reason, scheduled_message=wait.message, **fields)


def key(name: str, namespace: str = "default") -> GroupKey:
    return GroupKey(GroupKind.VOLCANO, namespace, name)


def group(name: str, **fields) -> GroupSpec:
    return GroupSpec(key=key(name), **fields)


def shown(pods: Sequence[Pod], lines: Lines | None = None, **options) -> Waiting:
    return waiting(pods, lines or Lines(), is_ours=ours, **options)


def test_a_refused_pod_says_what_is_nearest_and_what_would_help():
    (found,) = shown([refused("p")]).pods
    assert (found.code, found.reason, found.since) == ("CS501", "Unschedulable", "2027-01-15T08:00:00Z")
    assert found.text == f"default/p waits (Unschedulable): {REFUSED.message}"
    assert found.nearest == "t4-a GPU-0: 5360 of 8000 MiB free"
    assert found.change == "Ask for at most 5360 MiB of memory, or wait until enough of a card is free"
    assert (found.queue, found.place, found.line) == ("default", 1, 1)


def test_pods_that_have_a_node_have_ended_or_are_leaving_do_not_wait():
    others = [pod("a", node_name="n"), pod("b", phase=Phase.FAILED), pod("c", deleting=True)]
    assert shown(others).pods == ()


def test_what_is_not_known_is_none_and_the_table_says_so():
    stranger = pod("s", scheduler_name="other", scheduled_reason="Unschedulable", scheduled_message="0/3 nodes")
    found = shown([pod("p", created_s=0), stranger, pod("g", gated=True)], Lines(is_complete=False))
    by_name = {one.pod: one for one in found.pods}
    assert by_name["default/p"].since is None
    assert [by_name[f"default/{name}"].queue for name in "psg"] == ["default", None, "default"]
    assert {one.place for one in found.pods} == {one.line for one in found.pods} == {None}
    assert by_name["default/s"].code == by_name["default/s"].nearest == by_name["default/s"].change == ""
    assert found.pods[-1].pod == "default/p"
    rows = [line.split() for line in waiting_table(found, By.POD, "").splitlines()]
    assert rows[-1] == ["default/p", "-", "-", "unknown", "default", "-", "-", "-"]


def test_a_pod_with_gates_is_not_in_line():
    found = {one.pod: one for one in shown([pod("a", gated=True), pod("b", created_s=START_UNIX_S + 1)]).pods}
    assert (found["default/a"].place, found["default/a"].queue) == (None, "default")
    assert (found["default/b"].place, found["default/b"].line) == (1, 1)


def test_a_group_of_a_kind_that_may_not_be_read_leaves_the_queue_unknown():
    lines = Lines(unread={GroupKind.VOLCANO}, is_complete=False)
    (found,) = shown([pod("p", annotations={MEMBER_OF: "g"})], lines).pods
    assert (found.queue, found.place) == (None, None)


def test_places_count_pods_of_all_namespaces_and_only_those_of_one_are_shown():
    pods = [pod("a", namespace="other"), pod("b", created_s=START_UNIX_S + 1)]
    (found,) = shown(pods, namespace="default").pods
    assert (found.pod, found.place, found.line) == ("default/b", 2, 2)
    assert shown(pods, namespace="nobody").pods == ()


def test_reasons_are_counted_the_most_frequent_first():
    quota = Wait(Cause.WAITING_FOR_QUOTA, "waits because ...")
    pods = [refused(f"p{at}", created_s=START_UNIX_S + at) for at in range(7)]
    found = shown([*pods, refused("q", quota), pod("new", created_s=START_UNIX_S + 9)]).reasons
    assert [(one.code, one.pods) for one in found] == [("CS501", 7), ("", 1), ("CS532", 1)]
    assert found[0].oldest == "2027-01-15T08:00:00Z"
    assert found[0].first == tuple(f"default/p{at}" for at in range(5))
    assert [one.change for one in found] == [Cause.UNSCHEDULABLE.value.remedy, "", quota.cause.value.remedy]


def test_queues_say_who_is_next_and_why_their_pods_wait():
    lines = Lines(groups={key("g"): group("g", queue="q")})
    member = {MEMBER_OF: "g"}
    pods = [refused("a", annotations=member), refused("b", priority=5, annotations=member), pod("c")]
    found = shown(pods, lines)
    assert [(one.queue, one.pods, one.next, dict(one.reasons)) for one in found.queues] == [
        ("q", 2, "default/b", {"CS501": 2}),
        ("default", 1, "default/c", {"": 1}),
    ]
    lines_of_text = waiting_table(found, By.QUEUE, "").splitlines()
    assert lines_of_text[1].split() == ["q", "2", "2027-01-15T08:00:00Z", "default/b", "2", "CS501"]
    assert lines_of_text[2].endswith("1 not decided yet")


@pytest.mark.parametrize(("namespace", "says"), [("", "in any namespace"), ("team", "in namespace team")])
@pytest.mark.parametrize("by", By)
def test_that_nobody_waits_is_said(by: By, namespace: str, says: str):
    assert waiting_table(shown([]), by, namespace) == f"no pod waits {says}"


def test_no_line_of_text_controls_the_terminal():
    wait = Wait(Cause.NEVER_FITS, "0/1 nodes are available: 1 odd. Nearest: n1 card 0: \x1b[31m. Ask for less.")
    assert "\x1b" not in waiting_table(shown([refused("p", wait)]), By.POD, "")


def decided_first(pods: Sequence[Pod], groups: Groups, line_of: Callable[[Pod], str]) -> Mapping[str, list[str]]:
    """By line, the pods in the order in which the controller's own queue names them."""
    found: dict[str, list[str]] = {}
    queue = SchedulingQueue(line_of, standing_of=groups.standing)
    for one in sorted(pods, key=lambda one: one.key):
        queue.ready(queue.seen(one))
    while (entry := queue.pop(0.0)) is not None:
        found.setdefault(entry.line, []).append(entry.pod.key)
    return found


@pytest.mark.parametrize("seed", range(20))
def test_places_are_the_order_in_which_the_controller_decides(seed: int):
    chance = Random(seed)
    specs = [
        group(
            f"g{at}",
            queue=chance.choice(("q", "r", "")),
            min_member=chance.randint(1, 3),
            priority_class=chance.choice(("", "high")),
            priority=chance.choice((None, None, 50)),
        )
        for at in range(3)
    ]
    pods = [
        pod(
            f"p{at}",
            priority=chance.choice((0, 0, 60)),
            created_s=START_UNIX_S + chance.randint(0, 5),
            annotations=chance.choice(({}, {MEMBER_OF: f"g{chance.randint(0, 2)}"})),
            node_name=chance.choice(("", "", "n")),
            phase=chance.choice((Phase.PENDING, Phase.PENDING, Phase.RUNNING)),
        )
        for at in range(20)
    ]
    pods = [one if one.node_name else one._replace(phase=Phase.PENDING) for one in pods]
    groups = Groups(lambda _: None, lambda _: None, GroupSettings())
    groups.classes.update(HIGH)
    for spec in specs:
        groups.changed(spec)
    for one in pods:
        groups.pod_changed(one)
    members: dict[GroupKey, int] = {}
    for one in pods:
        if has_place(one) and MEMBER_OF in one.annotations:
            at = key(one.annotations[MEMBER_OF])
            members[at] = members.get(at, 0) + 1
    lines = Lines(groups={spec.key: spec for spec in specs}, members=members, classes=HIGH)
    found = shown(pods, lines)
    by_line: dict[str, list[tuple[int, str]]] = {}
    for row in found.pods:
        assert row.queue is not None
        assert row.place is not None
        by_line.setdefault(row.queue, []).append((row.place, row.pod))
    unbound = [one for one in pods if not one.node_name]
    expected = decided_first(unbound, groups, lambda one: lines.queue(one) or "")
    assert {line: [name for _, name in sorted(those)] for line, those in by_line.items()} == expected
