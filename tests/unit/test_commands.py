"""Each command on a page is run by a test, or its block says why not; what `kubectl cards` is given, it accepts."""

import re
import shlex
from pathlib import Path

import pytest

from cli.options import parse
from tests.support.pages import cards_page, rules
from tests.support.pages.page_commands import ROOT, Block, blocks, pages

CARDS = "kubectl cards "
BLOCKS = [block for page in pages() for block in blocks(page)]


def is_played(block: Block) -> bool:
    """Whether its output is compared with that of a run."""
    page = ROOT / block.page
    if page == rules.MESSAGES:
        return True
    return page in cards_page.PAGES and all(
        one.removeprefix(CARDS) in cards_page.commands(block.text) for one in block.commands
    )


def same_in_english(block: Block) -> Block | None:
    """The block of the English page with the same commands, of one in a Chinese page."""
    if not block.page.startswith("docs/zh/"):
        return None
    english = [ROOT / "docs" / block.page.removeprefix("docs/zh/"), ROOT / block.page.removeprefix("docs/zh/")]
    alike = (one for page in english if page.exists() for one in blocks(page) if one.commands == block.commands)
    return next(alike, None)


def proofless(block: Block) -> list[str]:
    """The commands of *block* that no test runs, without a reason."""
    told = same_in_english(block) or block
    if told.run_by or told.why_not_run or is_played(told):
        return []
    return [one for one in block.commands if not one.startswith(CARDS)]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda one: f"{one.page}:{one.line}")
def test_a_command_is_run_by_a_test_or_its_block_says_why_not(block):
    help_ = "write <!-- run by tests/... --> or <!-- not run: WHY --> before the block, or ```text for output"
    assert proofless(block) == [], help_
    assert bool(block.run_by) + bool(block.why_not_run) == bool(block.mark), "this mark is not known"


@pytest.mark.parametrize("block", [one for one in BLOCKS if one.run_by], ids=lambda one: f"{one.page}:{one.line}")
def test_a_test_that_a_block_names_is_there_and_is_of_this_page(block):
    for named in block.run_by:
        path, _, function = named.partition("::")
        source = (ROOT / path).read_text(encoding="utf-8")
        assert not function or f"def {function}(" in source
        words = {Path(block.page).name, *(word for one in block.commands for word in one.split() if "/" in word)}
        assert "page_commands" in source or any(word in source for word in words), path


@pytest.mark.parametrize("block", BLOCKS, ids=lambda one: f"{one.page}:{one.line}")
def test_what_kubectl_cards_is_given_it_accepts(block):
    for command in block.commands:
        if command.startswith(CARDS):
            assert parse(shlex.split(re.split(r"; |\s[|>&]", command)[0])[2:], {})


def test_a_script_that_a_page_runs_is_there():
    named = {word for block in BLOCKS for one in block.commands for word in one.split() if word.startswith("scripts/")}
    assert named
    assert [one for one in named if not (ROOT / one).is_file()] == []


def test_a_block_without_a_proof_is_found(monkeypatch):
    page = ROOT / "README.md"
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: "```\nrm -rf /\n```\n<!-- not run: no -->\n```\nls\n```\n")
    bare, marked = blocks(page)
    assert (proofless(bare), proofless(marked)) == (["rm -rf /"], [])
