"""docs/operators/node-fit.md says of each rule by which test it is shown, and names what no rule decides."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/operators/node-fit.md").read_text()


def rows(title: str) -> list[list[str]]:
    section = PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]
    found = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| ")]
    return found[1:]


@cache
def known_in(file: str) -> set[str]:
    tree = ast.parse((ROOT / "tests" / f"{file}.py").read_text(encoding="utf-8"))
    functions = ast.FunctionDef | ast.AsyncFunctionDef
    return {one.name.removeprefix("test_") for one in ast.walk(tree) if isinstance(one, functions)}


@pytest.mark.parametrize(
    "row", [*rows("What is judged"), *rows("Which of them is taken")], ids=lambda row: row[0].strip()
)
def test_each_rule_is_shown_by_tests_that_are_there(row):
    named = re.findall(r"`([\w/]+)::(\w+)`", row[-1])
    assert named
    assert [f"{file}::{test}" for file, test in named if test not in known_in(file)] == []


def test_all_that_no_rule_decides_is_named():
    source = (ROOT / "core/wire/pods.py").read_text().split("def _unjudged(")[1].split("\ndef ")[0]
    names = {name.split("{")[0].strip() for name in re.findall(r'f"([^"]+)"', source)}
    told = {name for row in rows("What is not judged yet") for name in re.findall(r"`([^`]+)`", row[-1])}
    assert names
    assert names <= told
