"""docs/operators/troubleshooting.md quotes messages that the code has."""

import inspect
import re
from pathlib import Path

import pytest

from controller.reporting.audit import REASONS
from controller.reporting.configuration import ConfigurationReason
from core.constraints.constraint import Constraints
from core.constraints.every import every
from core.constraints.topology.counting import Topology
from core.constraints.volumes import ClaimVolumes, Needs, Volumes
from core.explaining import refusal
from core.model import Node, NodeConstraints, NodeName, Taint, facts_of
from core.names import CONFIGURATION_ACCEPTED
from tests.support.judging.asking import asking

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/operators/troubleshooting.md"
SECTIONS = ("A pod is pending", "Events that name a cause", "The controller is not ready")


def quoted() -> list[str]:
    """What stands in backticks in the first column of each table."""
    found: list[str] = []
    for section in SECTIONS:
        text = PAGE.read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
        for line in text.splitlines():
            if line.startswith("| `"):
                found += re.findall(r"`([^`]+)`", line.split("|")[1])
    return found


def code() -> str:
    text = "\n".join(
        path.read_text() for room in ("core", "controller", "kube") for path in (ROOT / room).rglob("*.py")
    )
    # Sentences go on over lines of source.
    return re.sub(r'"\s*f?"', "", text)


CODE = code()


@pytest.mark.parametrize("words", quoted())
def test_a_message_that_is_quoted_is_said(words: str):
    spoken = words.removesuffix(": ")
    assert spoken in CODE


def test_every_reason_why_a_node_or_its_cards_refuse_is_told():
    written = re.findall(r'\bkey ?= ?f?"([^"{]+)', inspect.getsource(refusal))
    assert {"insufficient", "no cards for"} <= {words.strip() for words in written}
    assert {*refusal.WHY.values(), *(words.strip() for words in written)} - set(quoted()) == set()


@pytest.mark.parametrize(
    ("about", "constraints"),
    [
        ({"taints": (Taint(key="a", effect="NoSchedule"),)}, {}),
        ({"ready": False, "unschedulable": True}, {}),
        ({}, {"selector": (("zone", "a"),)}),
        ({}, {"affinity": ()}),
    ],
    ids=("taint", "condition", "selector", "affinity"),
)
@pytest.mark.parametrize("needs", [Needs(nodes=((),)), Needs(shared=(ClaimVolumes(volumes=(), made=None),))])
def test_every_reason_why_a_constraint_refuses_a_node_is_told(about, constraints, needs):
    node = facts_of(Node(name=NodeName("n"), **about))
    wanted = asking(NodeConstraints(**constraints), features=("f",), volumes=needs, ports=(("TCP", "", 80),))
    kept = Constraints(every(Topology(), Volumes()))
    held = kept.reserved({}, wanted.use)
    keys = [one.key for one in (*kept.bars(wanted, node), *kept.conflicts(wanted, node, held))]
    assert len(keys) >= 4
    assert [key for key in keys if not key.startswith(tuple(quoted()))] == []


def test_every_event_is_told():
    events = set(re.findall(r'(?:reason=|\b_?announce(?:_node)?\([^"]+, )"([A-Z][A-Za-z]+)"', CODE)) - {
        "Scheduled",
        "FailedScheduling",
    }
    events -= {"Admitted", "Unschedulable"}  # of PodGroups: what becomes of each, and nothing that went wrong
    events -= {"Preempting", "Preempted"}  # of both sides of a preemption, and nothing that went wrong either
    events |= set(REASONS.values())
    assert events == {word for word in quoted() if re.fullmatch(r"([A-Z][a-z]+){2,}", word)}


def test_every_word_on_the_configuration_is_told():
    section = PAGE.read_text().split("\n## The configuration\n")[1].split("\n## ")[0]
    told = {tuple(re.findall(r"`(\w+)`", line)[:2]) for line in section.splitlines() if line.startswith("| `")}
    assert told == {(str(reason.accepted), reason.value) for reason in ConfigurationReason}
    assert CONFIGURATION_ACCEPTED in section


def test_files_that_are_named_are_there():
    for name in re.findall(r"deploy/[a-z/.]+yaml", PAGE.read_text()):
        assert (ROOT / name).is_file()
