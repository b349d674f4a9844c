"""README.md opens with a pod and what kubectl shows of it; other pages name every script, directory and page."""

import re
from pathlib import Path

import yaml

from core.wire.pods import pod_from_object
from tests.support.pages.cards_page import RUNNING, commands

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SCRIPTS = (ROOT / "docs" / "maintainers" / "scripts.md").read_text(encoding="utf-8")
INDEX = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
# What git or tools leave beside the tree.
NO_ROOMS = {"build", "dist", "shared"}


def test_its_first_lines_are_a_pod_that_the_shown_run_has():
    found = re.search(r"```yaml\n(.*?)```", README, re.DOTALL)
    assert found is not None
    assert README[: found.start()].count("\n") <= 6
    assert found[1].count("\n") <= 10
    shown = pod_from_object(yaml.safe_load(found[1]))
    (ran,) = [one for one in map(pod_from_object, RUNNING) if one.name == shown.name]
    assert shown.annotations == ran.annotations
    assert [one.limits for one in shown.containers] == [one.limits for one in ran.containers]


def test_kubectl_follows_and_says_something():
    assert len(commands(README)) >= 2
    assert "default/train (12000 MiB, 60 % cores)" in README.partition("```\n$ kubectl")[2].partition("```")[0]


def test_every_folder_is_a_room_of_its_table_and_every_room_is_a_folder():
    table = SCRIPTS.partition("\n## Repository layout\n")[2]
    named = re.findall(r"^\| `([\w/]+)/` \|", table, re.MULTILINE)
    folders = {one.name for one in ROOT.iterdir() if one.is_dir() and one.name[0] not in "._"} - NO_ROOMS
    assert {name for name in named if "/" not in name} == folders
    assert [name for name in named if not (ROOT / name).is_dir()] == []


def test_every_script_is_told():
    named = set(re.findall(r"scripts/(\w+)", SCRIPTS))
    assert {one.name for one in (ROOT / "scripts").iterdir() if one.is_file()} == named


def test_every_page_is_in_its_table():
    # Pages that a page of its own lists, and those in another language.
    listed = ("docs/decisions", "docs/examples", "docs/zh")
    pages = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")}
    wanted = {page for page in pages if not page.startswith(listed)} - {"docs/index.md"}
    assert wanted - {f"docs/{page}" for page in re.findall(r"\]\(([\w/.-]+\.md)\)", INDEX)} == set()


def test_the_readme_is_read_on_one_screen_and_a_half():
    assert re.sub(r"^<!-- .* -->\n\n", "", README, flags=re.MULTILINE).count("\n") <= 110
