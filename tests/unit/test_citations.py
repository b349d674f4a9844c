"""What code cites is in the tree: a section of a page, a step or case of it, or a defect by its number.

A citation is a page's name and sections of it, as in ``nvidia 2.4 step 9, 2.8``, or a defect's number, as in ``H-16``.
"""

import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PROTOCOLS = sorted((ROOT / "docs/protocol").glob("*.md"))
PAGES = {page.stem: page for page in PROTOCOLS} | {
    "facts": ROOT / "docs/maintainers/facts.md",
    "architecture": ROOT / "docs/maintainers/architecture.md",
}
# Names by which pages outside the tree were cited.
ELSEWHERE = ("design", "packing", "style")
FOLDERS = sorted(path for path in ROOT.iterdir() if path.is_dir() and path.name not in {"docs", "build", "shared"})
SUFFIXES = {".py", ".yaml", ".yml", ".toml", ".md", ".tpl", ".txt", ""}
# What upstream answers, names of worked examples, sums of Go modules, and the law.
DATA = ("tests/data/", "tests/realapi/go.", "tests/unit/sandbox/players/plugin_examples.yaml", "LICENSE")

PAGE = re.compile(rf"\b({'|'.join({*PAGES, *ELSEWHERE})})(?:\.md)? (?=\d)")
SECTION = re.compile(r"(\d+(?:\.\d+)*)(?![\w-]| ?%)")
STEP = re.compile(r"(?:(steps?|cases?) )?(\d+[a-z]?)(?![\w.%-])")
BETWEEN = re.compile(r"(?:,? (?:and|to) |[,;] )")
BRACKETS = re.compile(r" \([^()]*\)")
DEFECT = re.compile(r"(?<![\w.\-/])([SPOG][1-9]\d?|(?:H|M|C|D|HN)-[1-9]\d?)(?![\w\-/\[]|\.\w)")
NAMELESS = re.compile(r"(?<!\d )\b[Ss]ections? \d[\d.]*")
# What a file must have for anything in it to be one of these.
LIKELY = re.compile(rf"\b(?:{'|'.join({*PAGES, *ELSEWHERE, '[Ss]ections?'})})(?:\.md)?\s+(?:# )?\d|{DEFECT.pattern}")
HEADING = re.compile(r"^#{2,4} (\d+(?:\.\d+)*)\.? (?=\S)", re.MULTILINE)
ROW = re.compile(r"^\| ([A-Z]+-?\d+) \|(.*)\|$", re.MULTILINE)


class Cited(NamedTuple):
    """A section of a page; step: of its list, or "case" and the number of a row, "" for the whole section."""

    page: str
    section: str
    step: str = ""


@cache
def sections(page: str) -> dict[str, str]:
    """The text under each numbered heading of *page*, down to the next one."""
    if page not in PAGES:
        return {}
    pieces = HEADING.split(PAGES[page].read_text(encoding="utf-8"))
    return dict(zip(pieces[1::2], pieces[2::2], strict=True))


@cache
def defects() -> dict[str, str]:
    """The rest of its row by each defect's number."""
    return {number: rest for page in PROTOCOLS for number, rest in ROW.findall(page.read_text(encoding="utf-8"))}


def cited(text: str) -> Iterator[Cited]:
    """Every section that *text* cites."""
    for found in PAGE.finditer(text):
        yield from _places(found[1], text, found.end())


def _places(page: str, text: str, at: int) -> Iterator[Cited]:
    section, listed = "", ""
    while True:
        whole, step = SECTION.match(text, at), STEP.match(text, at)
        if section and step is not None and (step[1] or listed or not step[2].isdigit()):
            # Behind "steps" a number without a point is one more of them.
            listed = listed or ("case" if (step[1] or "").startswith("case") else "step")
            yield Cited(page, section, f"case {step[2]}" if listed == "case" else step[2])
            at = step.end()
        elif whole is not None:
            section, listed = whole[1], ""
            at = whole.end()
            if STEP.match(text, at + 1) is None or not re.match(r" (?:step|case)", text[at:]):
                yield Cited(page, section)
        else:
            return
        if brackets := BRACKETS.match(text, at):
            at = brackets.end()
        if re.match(r" (?:step|case)", text[at:]):
            at += 1
        elif between := BETWEEN.match(text, at):
            at = between.end()
        else:
            return


def is_there(one: Cited) -> bool:
    """Whether a page has what is cited."""
    body = sections(one.page).get(one.section)
    if body is None or not one.step:
        return body is not None
    if one.step.startswith("case "):
        return f"| {one.step.removeprefix('case ')} |" in body
    number, letter = re.fullmatch(r"(\d+)([a-z]?)", one.step).groups()  # type: ignore[union-attr]
    item = re.search(rf"^{number}\. (.*?)(?=^\d+\. |\Z)", body, re.MULTILINE | re.DOTALL)
    return item is not None and (not letter or re.search(rf"^ +{letter}\. ", item[1], re.MULTILINE) is not None)


def unresolved(text: str) -> list[str]:
    """What *text* cites and no page has."""
    lost = [" ".join(filter(None, one)) for one in cited(text) if not is_there(one)]
    lost += [number for number in DEFECT.findall(text) if number not in defects()]
    return lost + [f"'{found}' of which page" for found in NAMELESS.findall(text)]


def told(path: Path) -> Iterator[tuple[int, str]]:
    """(line, text) of what *path* tells people: comments and strings of Python, all of other files."""
    text = path.read_text(encoding="utf-8")
    if not LIKELY.search(text):
        return
    if path.suffix != ".py" and not text.startswith("#!/usr/bin/env python"):
        yield 1, " ".join(line.strip().removeprefix("#").strip() for line in text.splitlines())
        return
    comment: list[str] = []
    last = first = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        line = token.start[0]
        if token.type == tokenize.COMMENT:
            if line != last + 1:
                yield first, " ".join(comment)
                comment, first = [], line
            comment.append(token.string.lstrip("# "))
            last = line
        elif token.type == tokenize.STRING:
            yield line, " ".join(token.string.split())
    yield first, " ".join(comment)


@cache
def files() -> tuple[Path, ...]:
    """Every file that could cite something."""
    inside = (path for folder in FOLDERS if folder.name[0] != "." for path in folder.rglob("*"))
    found = (path for path in (*inside, *ROOT.iterdir()) if path.is_file() and path.suffix in SUFFIXES)
    return tuple(
        path
        for path in sorted(found)
        if not str(path.relative_to(ROOT)).startswith(DATA)
        and path != Path(__file__)
        and "__pycache__" not in path.parts
    )


def test_every_citation_is_found_and_resolves():
    places = [(path, line, text) for path in files() for line, text in told(path)]
    found = [one for _, _, text in places for one in cited(text)]
    assert len(found) > 150
    assert {one.page for one in found} == set(PAGES)
    assert sum(len(DEFECT.findall(text)) for _, _, text in places) > 100
    lost = [f"{path.relative_to(ROOT)}:{line}: {what}" for path, line, text in places for what in unresolved(text)]
    assert lost == []


def test_pages_cite_no_more_than_code_does():
    for page in sorted((ROOT / "docs").rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        assert [one for one in unresolved(text) if "of which page" not in one] == [], page.name


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("as the page says (nvidia 2.8).", [("nvidia", "2.8")]),
        ("nvidia 2.2 steps 9 and 10", [("nvidia", "2.2", "9"), ("nvidia", "2.2", "10")]),
        ("nvidia 2.2 steps 8 to 11, 2.9, 5.3", [("2.2", "8"), ("2.2", "11"), ("2.9",), ("5.3",)]),
        ("ascend 1.10, 2.1 step 5, 2.2, D-1", [("1.10",), ("2.1", "5"), ("2.2",)]),
        ("nvidia 2.9, 5.2 (P1, P20), 7.2.", [("2.9",), ("5.2",), ("7.2",)]),
        ("(nvidia 2.4, 9g)", [("2.4",), ("2.4", "9g")]),
        ("nvidia 7.2, 7.3; facts 3.3, case 41", [("7.2",), ("7.3",), ("facts", "3.3"), ("facts", "3.3", "case 41")]),
        ("nvidia 1.7 and ascend 6.3", [("nvidia", "1.7"), ("ascend", "6.3")]),
        ("nvidia.md 3.13 for 4 cards", [("nvidia", "3.13")]),
        ("of nvidia 100 % and 2 cards", []),
    ],
)
def test_a_citation_is_read_as_it_is_meant(text, found):
    read = [tuple(filter(None, one)) for one in cited(text)]
    assert [one if wanted[0] in PAGES else one[1:] for one, wanted in zip(read, found, strict=True)] == found


@pytest.mark.parametrize(
    "made_up",
    [
        "nvidia 2.88",
        "nvidia 3.3 to 3.99",
        "ascend 2.2 step 77",
        "nvidia 2.4 step 9z",
        "facts 3.3, case 999",
        "architecture 42",
        "design 7",
        "hami 1.55",
        "as they are told (S77)",
        "with H-2 and H-99",
        "as section 5.1 says",
    ],
)
def test_what_was_made_up_is_found_out(made_up):
    assert unresolved(made_up)
    assert unresolved(f"# Source: protocol reference, {made_up}; RFC 3339")


def test_what_is_there_is_not_found_out():
    assert unresolved("nvidia 2.8, 2.4 step 9g; S22, H-16, D-1; ascend 4.2, RFC 8446") == []
