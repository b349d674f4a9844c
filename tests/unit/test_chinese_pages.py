"""docs/zh has the pages that users and operators begin with in Chinese, and they keep up with the English ones.

What sentences say no test can compare. It can compare headings, code blocks, tables, links, what stands in backticks,
and figures.
"""

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.unit.test_pages import LINK, anchor_of

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
CHINESE = DOCS / "zh"
OPERATORS = ("defragmentation", "frameworks", "install", "kueue", "simulate", "troubleshooting", "waiting", "web")
ENGLISH = [
    ROOT / "README.md",
    DOCS / "index.md",
    *sorted((DOCS / "users").glob("*.md")),
    *(DOCS / "operators" / f"{name}.md" for name in OPERATORS),
]
# The Chinese README ends with a table of the words that the Chinese pages use: there is nothing to compare it with.
TERMS = "\n## 术语\n"
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^(#+) (.+)$", re.MULTILINE)
TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)
BY_NAME = pytest.mark.parametrize("page", ENGLISH, ids=lambda page: str(page.relative_to(ROOT)))


def chinese(page: Path) -> Path:
    """Where *page* stands in Chinese, be it there or not."""
    return CHINESE / (page.relative_to(DOCS) if page.is_relative_to(DOCS) else page.relative_to(ROOT))


def text_of(page: Path) -> str:
    """The page without comments, the line that leads to the other language, and the table of terms."""
    text = page.read_text(encoding="utf-8").partition(TERMS)[0]
    return re.sub(r"^(?:\[(?:中文|English)\]\(\S+\)| *<!-- .* -->\n)\n", "", text, flags=re.MULTILINE)


def both(page: Path) -> tuple[str, str]:
    return text_of(page), text_of(chinese(page))


def headings(text: str) -> list[str]:
    return [found[2] for found in HEADING.finditer(FENCED.sub("", text))]


def sections(text: str) -> list[str]:
    """What stands between one heading and the next, without code blocks."""
    return HEADING.split(FENCED.sub("", text))[::3]


def in_backticks(text: str) -> set[str]:
    return {" ".join(found.split()) for found in re.findall(r"`([^`]+)`", text)}


def tables(text: str) -> list[list[set[str]]]:
    """What stands in backticks, by row and table."""
    return [[in_backticks(row) for row in found[0].splitlines()[2:]] for found in TABLE.finditer(FENCED.sub("", text))]


def figures(text: str) -> Counter[str]:
    """How often each figure or code stands in a text: links, and what stands in backticks, aside."""
    return Counter(re.findall(r"(?:CS)?\d+(?:[.,:]\d+)*", re.sub(r"`[^`]+`|\]\([^)]+\)", "", text)))


def links(page: Path) -> Counter[tuple[Path, int | None]]:
    """(file, which of its headings) that *page* leads to; files that are there in Chinese as their Chinese form."""
    found: Counter[tuple[Path, int | None]] = Counter()
    for link in LINK.findall(text_of(page)):
        path, _, anchor = link.partition("#")
        if "://" in link:
            found[Path(link), None] += 1
            continue
        target = (page.parent / path).resolve() if path else page
        at = [anchor_of(one) for one in headings(target.read_text(encoding="utf-8"))].index(anchor) if anchor else None
        found[chinese(target) if target in ENGLISH else target, at] += 1
    return found


def test_the_pages_in_chinese_are_those_that_are_compared():
    assert sorted(CHINESE.rglob("*.md")) == sorted(map(chinese, ENGLISH))


@BY_NAME
def test_each_language_leads_to_the_other_at_the_top(page: Path):
    for here, name, there in ((page, "中文", chinese(page)), (chinese(page), "English", page)):
        found = re.search(rf"^\[{name}\]\((\S+)\)$", here.read_text(encoding="utf-8"), re.MULTILINE)
        assert found is not None
        assert found.string[: found.start()].count("\n") <= 2
        assert (here.parent / found[1]).resolve() == there


@BY_NAME
def test_headings_are_of_the_same_levels_in_the_same_order(page: Path):
    english, other = ([len(found[1]) for found in HEADING.finditer(FENCED.sub("", text))] for text in both(page))
    assert other == english
    assert len(set(headings(both(page)[1]))) == len(other)


@BY_NAME
def test_code_blocks_are_the_same(page: Path):
    english, other = (FENCED.findall(text) for text in both(page))
    assert other == english


@BY_NAME
def test_tables_have_the_same_rows_with_the_same_words_of_code(page: Path):
    english, other = map(tables, both(page))
    assert other == english, f"{chinese(page).relative_to(ROOT)} has other rows in its tables than the English page"


@BY_NAME
def test_sections_have_the_same_words_of_code_and_no_figure_is_missing(page: Path):
    for at, (english, other) in enumerate(zip(*map(sections, both(page)), strict=True)):
        title = ["", *headings(both(page)[0])][at]
        where = f"{chinese(page).relative_to(ROOT)} does not say what the English page does, section {title!r}"
        assert in_backticks(other) == in_backticks(english), where
        assert figures(english) - figures(other) == Counter(), where


@BY_NAME
def test_links_lead_to_the_same_places(page: Path):
    assert links(chinese(page)) == links(page)
