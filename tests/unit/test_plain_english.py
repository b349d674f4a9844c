"""The English pages have no sentence that is too long, and none of the phrases that have to be read twice.

docs/maintainers/writing.md has the rules, and the pages that do not follow them yet.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT = Path(__file__).parents[2]
RULES = ROOT / "docs/maintainers/writing.md"
CHINESE = ROOT / "docs/zh"
# The guideline is 25; a sentence that lists names may need some more.
MAX_WORDS: Final = 30

PHRASES: Final = (
    r"of (?:which|whose|whom)",
    r"(?:in|by|for|with|to|from|on) (?:whose|whom)",
    r"who(?:ever|m)",
    r"nobody",
    r"(?:tell|tells|told)",
    r"(?:is|are|was|were) to be",
    r"be (?:it|they) \w+ or",
    r"what of",
    r"where (?:there|it|they|none|nothing) (?:is|are|has|have)",
    r"only where",
    r"(?:of|by) (?:ours|yours|its own making)",
    r"(?:anew|afresh|thereof|whereby|wherein|therein)",
    r"mistake of ours",
    r"(?:mend|mends|mended)",
    r"one after the other",
    r"whatever it",
    r"(?:cannot|can|may) be had",
    r"for ever",
    r"(?:hand|hands|handed) out",
    r"(?:sell|sells|sold)",
    r"(?:heed|heeds|heeded)",
    r"(?:the way of a|what becomes of)",
)
PHRASE = re.compile(rf"\b(?:{'|'.join(PHRASES)})\b", re.IGNORECASE)
FENCED = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
QUOTED = re.compile(r"`[^`]+`")
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
# A line that begins a block of its own: heading, list item, quotation, numbered item.
BLOCK = re.compile(r"^(?:#+ |[-*>] |\d+\. )", re.MULTILINE)
# A full stop, not that of "e.g." or of "0.5", before something that may begin a sentence. Semicolons do not end one.
SENTENCE = re.compile(r"(?<=[.!?:])[\"')*]*\s+")


def unfinished() -> set[Path]:
    """The pages that docs/maintainers/writing.md lists as not rewritten yet."""
    listed = re.findall(r"^- `([^`]+)`$", RULES.read_text(encoding="utf-8"), re.MULTILINE)
    found = {name: set(ROOT.glob(name)) for name in listed}
    assert [name for name, pages in found.items() if not pages] == [], "docs/maintainers/writing.md lists what is gone"
    return set().union(*found.values())


PAGES = sorted(
    page
    for page in {*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")} - unfinished() - {RULES}
    if CHINESE not in page.parents
)


def prose(text: str) -> str:
    """The page without code blocks; what stands in backticks and behind links counts as one word."""
    return LINK.sub(r"\1", QUOTED.sub("X", FENCED.sub("\n", text)))


def sentences(text: str) -> Iterator[str]:
    """Every sentence outside tables."""
    for block in re.split(r"\n\s*\n", BLOCK.sub("\n\n", prose(text))):
        lines = [line for line in block.splitlines() if not line.lstrip().startswith("|")]
        for line in SENTENCE.split(" ".join(" ".join(lines).split())):
            if line:
                yield line


def findings(text: str) -> list[str]:
    long = [f"{len(one.split())} words: {one}" for one in sentences(text) if len(one.split()) > MAX_WORDS]
    lines = prose(text).splitlines()
    return long + [f"'{found[0]}': {line[:160]}" for line in lines for found in PHRASE.finditer(line)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_is_plain_english(page: Path):
    assert findings(page.read_text(encoding="utf-8")) == [], "docs/maintainers/writing.md says how to write it"


@pytest.mark.parametrize(
    "text",
    [
        "A card of which the memory is full.",
        "| `a` | those to whom it is told |",
        "It is to be\nstarted again, and " + "on and " * 15 + "on.",
        "- " + "word " * 31,
    ],
    ids=["phrase", "table", "lines", "item"],
)
def test_what_has_to_be_read_twice_is_found(text: str):
    assert findings(text)


@pytest.mark.parametrize(
    "text",
    ["| " + "word " * 40 + "|", "```\n" + "of which " * 40 + "\n```", "`of which`", ("word " * 20 + ". ") * 3],
    ids=["table", "block", "code", "short"],
)
def test_code_and_the_length_of_rows_are_left_alone(text: str):
    assert findings(text) == []
