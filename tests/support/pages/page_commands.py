"""The commands in the code blocks of the pages, and what proves that each works.

A comment before a block, which no reader of the rendered page sees, names the proof: ``<!-- run by TEST -->``, with the
path of a test, or ``<!-- not run: WHY -->``. A block of another language than a shell's has no commands; output that
stands alone is ``text``.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[3]
# Pages about what others do, and about decisions and versions of the past, give no commands to follow.
_ELSEWHERE: Final = ("docs/protocol/", "docs/decisions/", "docs/skills/", "CHANGELOG.md")
_NO_SHELL: Final = frozenset({"yaml", "json", "mermaid", "text", "python", "toml", "promql"})
_BLOCK: Final = re.compile(
    r"(?:^ *<!-- (?P<mark>[^\n]*?) -->\n\n?)?^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
_HEREDOC: Final = re.compile(r"<<'?(\w+)'?\n.*?^\1$", re.MULTILINE | re.DOTALL)
_COMMENT: Final = re.compile(r"(?:^|\s+)# .*")


class Block(NamedTuple):
    """A code block with *commands* in *page* (a path from the root), at *line*; *mark*: the comment before it."""

    page: str
    line: int
    mark: str
    text: str
    commands: tuple[str, ...]

    @property
    def run_by(self) -> tuple[str, ...]:
        """The tests that its mark names: ``PATH`` or ``PATH::NAME``."""
        return tuple(self.mark.removeprefix("run by ").split(", ")) if self.mark.startswith("run by ") else ()

    @property
    def why_not_run(self) -> str:
        """The reason in its mark, or ""."""
        return self.mark.partition("not run: ")[2]


def pages() -> list[Path]:
    """The pages whose commands people follow."""
    found = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "deploy/wheels/README.md"])
    return [one for one in found if not one.relative_to(ROOT).as_posix().startswith(_ELSEWHERE)]


def blocks(page: Path) -> Iterator[Block]:
    """Yield the blocks of *page* that have commands."""
    text = page.read_text(encoding="utf-8")
    for found in _BLOCK.finditer(text):
        commands = tuple(_commands(found["text"]))
        if found["language"] not in _NO_SHELL and commands:
            line = text.count("\n", 0, found.start("indent")) + 1
            yield Block(page.relative_to(ROOT).as_posix(), line, found["mark"] or "", found["text"], commands)


def _commands(text: str) -> Iterator[str]:
    """Yield the commands of a block: its lines after ``$ ``, or if it has none, all that it says."""
    joined = _HEREDOC.sub("<<", text).replace("\\\n", " ")
    lines = joined.splitlines()
    shown = [line[2:] for line in lines if line.startswith("$ ")]
    for line in shown or lines:
        command = " ".join(_COMMENT.sub("", line).split())
        if command:
            yield command
