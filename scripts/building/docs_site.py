"""Builds the pages of this checkout as a site: navigation, search in both languages, no broken link, no network.

``scripts/docs`` runs it. The navigation comes from the tables of docs/index.md and docs/zh/index.md. Sphinx renders
with MyST, which reads pages as GitHub does. This module is also an extension of Sphinx, for search in Chinese.
"""

import argparse
import re
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pygments.lexers.special import TextLexer
from sphinx.cmd.build import main as sphinx_build
from sphinx.search.zh import SearchChinese

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT: Final = Path(__file__).resolve().parents[2]
_LINK: Final = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
_CHINESE: Final = re.compile(r"[\u4e00-\u9fff]+")
# One of the tables of docs/index.md and docs/zh/index.md: whom it is for, and its rows.
_TABLE: Final = re.compile(r"^\| (?:page|页面) \| (?:for )?(.+?) \|\n\|[-| ]+\|\n((?:\|.*\n?)+)", re.MULTILINE)
_CONF: Final = """\
import sys

sys.path.insert(0, {building!r})
project = author = copyright = "cardshare"
release = {release!r}
extensions = ["myst_parser", "sphinx_copybutton", "docs_site"]
root_doc = "README"
myst_heading_anchors = 6
html_theme = "furo"
html_title = "cardshare {release}"
html_search_language = "zh"
html_show_sphinx = html_copy_source = False
"""


class SearchInBothLanguages(SearchChinese):  # type: ignore[misc] # check runs without Sphinx
    """Finds Chinese by pairs of characters, which needs no dictionary, and Latin words as English ones."""

    js_splitter_code = """\
function splitQuery(query) {
  const words = query.match(/[A-Za-z0-9_]+/g) || [];
  for (const run of query.match(/[\\u4e00-\\u9fff]+/g) || []) {
    for (let i = 0; i + 1 < run.length; i++) words.push(run.slice(i, i + 2));
  }
  return words;
}
"""

    def split(self, input: str) -> list[str]:  # noqa: A002 - Sphinx names it so
        """The words to index of a text."""
        return [*super().split(_CHINESE.sub(" ", input)), *pairs(input)]


def pairs(text: str) -> Iterator[str]:
    """Every two Chinese characters that stand side by side."""
    for run in _CHINESE.findall(text):
        yield from (run[i : i + 2] for i in range(len(run) - 1))


def setup(app: "Sphinx") -> dict[str, Any]:
    """What Sphinx calls."""
    app.add_search_language(SearchInBothLanguages)
    app.add_lexer("mermaid", TextLexer)
    return {"parallel_read_safe": True}


def build(out: Path) -> int:
    """Build the site into *out*; Sphinx's exit status, which is not 0 if a link leads nowhere."""
    release = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    with tempfile.TemporaryDirectory() as name:
        staged = Path(name)
        _stage(staged)
        building = str(Path(__file__).parent)
        (staged / "conf.py").write_text(_CONF.format(building=building, release=release), encoding="utf-8")
        return int(sphinx_build(["--quiet", "--fail-on-warning", "--keep-going", "-b", "html", str(staged), str(out)]))


def _stage(staged: Path) -> None:
    """The pages, what they link to, and the navigation."""
    pages = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
    linked = {(page.parent / link).resolve() for page in pages for link in _links(page)}
    files = {path for path in linked if path.is_file() and ROOT in path.parents}
    for path in {*pages, *files}:
        place = staged / path.relative_to(ROOT)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, place)
    pages = sorted(path for path in {*pages, *files} if path.suffix == ".md")
    named: set[Path] = {ROOT / "README.md"}
    with (staged / "README.md").open("a", encoding="utf-8") as start:
        for index in ("docs/index.md", "docs/zh/index.md"):
            start.writelines(_navigation(ROOT / index, named))
    # What the tables do not name is found from its folder's first page; what has none, by its links alone.
    for page in pages:
        if page not in named:
            place = staged / page.relative_to(ROOT)
            place.write_text("---\norphan: true\n---\n" + place.read_text(encoding="utf-8"), encoding="utf-8")


def _links(page: Path) -> Iterator[str]:
    return (link for link in _LINK.findall(page.read_text(encoding="utf-8")) if "://" not in link)


def _navigation(index: Path, named: set[Path]) -> Iterator[str]:
    """A list of pages for each table of *index*; those that are new go into *named*."""
    text = index.read_text(encoding="utf-8")
    for number, (caption, rows) in enumerate(_TABLE.findall(text)):
        paths = dict.fromkeys((index.parent / link).resolve() for link in _LINK.findall(rows))
        first = [index] if not number else []
        new = [path for path in (*first, *paths) if path not in named and path.suffix == ".md"]
        named.update(new)
        listed = "\n".join(str(path.relative_to(ROOT).with_suffix("")) for path in new)
        if listed:
            yield f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{listed}\n```\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of ``scripts/docs``."""
    parser = argparse.ArgumentParser(prog="scripts/docs", description="Builds the pages of this checkout as a site.")
    parser.add_argument("folder", nargs="?", default="dist/docs", type=Path, help="where to; default dist/docs")
    out = parser.parse_args(argv).folder
    status = build(out)
    if not status:
        shutil.copy(out / "README.html", out / "index.html")
        sys.stdout.write(f"{out / 'index.html'}\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
