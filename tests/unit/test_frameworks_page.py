"""docs/operators/frameworks.md has a row for each workload that is played, with its outcome, and no other."""

import re
from pathlib import Path

from tests.support.worlds.frameworks import FOLDER, Player, frameworks

PAGE = (Path(__file__).parents[2] / "docs/operators/frameworks.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| \[(?P<name>[^]]+)\]\(#[^)]+\) \| (.+) \|$", re.MULTILINE)


def test_each_workload_that_is_played_has_a_row_with_its_outcome():
    rows = [
        (found["name"], *(cell.replace("`", "") for cell in found[2].split(" | ")[:3])) for found in ROW.finditer(PAGE)
    ]
    played = [(one.name, one.version, case.name, case.outcome) for one in frameworks() for case in one.cases]
    assert sorted(rows) == sorted(played)


def test_each_row_says_what_to_write():
    assert [found["name"] for found in ROW.finditer(PAGE) if len(found[2].split(" | ")) != 4] == []


def test_each_file_names_its_framework_once_and_takes_only_steps_that_there_are():
    found = tuple(frameworks())
    assert len({one.name for one in found}) == len(found) == len(list(FOLDER.iterdir()))
    verbs = {verb for one in found for case in one.cases for step in case.steps for verb in step}
    assert verbs <= {name for name in vars(Player) if not name.startswith("_")}
