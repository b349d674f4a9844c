"""The skill for agents: its commands can be given, and the fields that it names are in the answers."""

import json
import re
from pathlib import Path

import pytest

from cli.options import parse
from core.waiting import cause_of

ROOT = Path(__file__).parents[2]
SKILL = (ROOT / "docs/skills/cardshare/SKILL.md").read_text(encoding="utf-8")
SCHEMA = (ROOT / "docs/operators/kubectl-cards.schema.json").read_text(encoding="utf-8")
COMMANDS = sorted(set(re.findall(r"`kubectl cards ([^`]+ [^`]+)`", SKILL)))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_can_be_given(command):
    assert parse(command.replace("NAMESPACE", "team-a").split(), {})


def test_it_says_what_it_is_for_in_its_head():
    head = SKILL.split("---\n")[1]
    assert head.startswith("name: cardshare\ndescription: ")
    assert len(head.split("description: ")[1]) < 1024


def test_the_fields_that_it_names_are_in_the_schema():
    named = {word for one in re.findall(r"`([a-z_.\[\]]+)`", SKILL) for word in re.findall(r"[a-z_]+", one)}
    fields = {"state", "text", "code", "queue", "place", "line", "holds", "capability", "guarantee", "nodes", "cards"}
    fields |= {"held_by", "ways", "pods", "types", "protocol", "stops", "first"}
    assert fields <= named
    known = set(re.findall(r'"([a-z_]+)": \{', SCHEMA))
    assert fields - known == set()
    json.loads(SCHEMA)


def test_the_codes_that_it_names_are_causes():
    codes = re.findall(r"\bCS\d{3}\b", SKILL)
    assert codes
    assert [code for code in codes if cause_of(code) is None] == []
