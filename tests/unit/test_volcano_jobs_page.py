"""docs/users/volcano-jobs.md says what the code says."""

import re
from pathlib import Path

from controller.grouping.admitting import Headroom, refusal
from controller.grouping.groups import unsupported
from core.groups import GroupPhase, GroupSpec, QueueSpec
from core.model import GroupKey, GroupKind
from core.placing.queues import QueueTree

PAGE = (Path(__file__).parents[2] / "docs" / "users" / "volcano-jobs.md").read_text(encoding="utf-8")
KEY = GroupKey(GroupKind.VOLCANO, "default", "j")
CARDS = "volcano.sh/vgpu-number"
QUEUES = {"training": QueueSpec(name="training"), "other": QueueSpec(name="other", guarantee={CARDS: 8})}
OPEN = QueueSpec(name="training", capability={"cpu": 5000})


def group(cores):
    return GroupSpec(key=KEY, queue="training", min_resources={"cpu": 1000 * cores})


def why(cores, *queues, room=None):
    return refusal(group(cores), {one.name: one for one in queues}, room or Headroom(total={"cpu": 10**9}, used={}), {})


def test_the_messages_of_the_table_are_those_that_are_said():
    full = Headroom(total={"cpu": 10**9}, used={}, queued={"training": {"cpu": 4000}})
    said = {
        why(4, OPEN, room=full),
        why(4),
        why(4, QueueSpec(name="training", state="Closed")),
        why(20, QueueSpec(name="training"), room=Headroom(total={"cpu": 10_000}, used={})),
        refusal(
            GroupSpec(key=KEY, queue="training", min_resources={CARDS: 8}),
            QUEUES,
            Headroom(total={CARDS: 12}, used={}, tree=QueueTree(QUEUES.values())),
            {},
        ),
        unsupported(GroupSpec(key=KEY, problems=("spec.subGroupPolicy with one name twice",))),
    }
    assert set(re.findall(r"^\| `([^`]+ [^`]+)`", PAGE, re.MULTILINE)) - {"none, or `Pending`"} == said
    assert f"Message:               {why(4, OPEN, room=full)}" in PAGE


def test_every_phase_is_told():
    table = PAGE.partition("## The phases")[2].partition("## Why")[0]
    assert set(re.findall(r"`([A-Z][a-z]+)`(?:,| \|| or| \w* \|)", table)) >= {phase.value for phase in GroupPhase}
