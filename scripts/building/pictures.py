"""Draws the pictures of the pages from text: docs/pictures/NAME.yaml becomes NAME.svg, for light and dark pages."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

import yaml

PICTURES: Final = Path(__file__).resolve().parents[2] / "docs" / "pictures"
_STYLE: Final = """\
<style>
svg { --ink: #1f2328; --quiet: #59636e; --box: #f6f8fa; --line: #8c959f; --ours: #ddf4ff; --edge: #0969da; }
@media (prefers-color-scheme: dark) {
  svg { --ink: #f0f6fc; --quiet: #9198a1; --box: #151b23; --line: #656c76; --ours: #0c2d4d; --edge: #4493f8; }
}
text { font: 13px system-ui, sans-serif; fill: var(--quiet); text-anchor: middle; }
.title { font-weight: 600; font-size: 15px; fill: var(--ink); }
rect { fill: var(--box); stroke: var(--line); }
.ours rect { fill: var(--ours); stroke: var(--edge); }
path { stroke: var(--line); stroke-width: 1.5; fill: none; }
marker path { fill: var(--line); stroke: none; }
</style>
<defs>
<marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto-start-reverse">
<path d="M0 0L8 4L0 8z"/>
</marker>
</defs>"""
_LINE_PX: Final = 18


def drawn(picture: Mapping[str, Any]) -> str:
    """The SVG of a *picture*: its boxes by name, and arrows between their edges."""
    width, height = picture["size"]
    title = escape(picture["title"])
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{title}">'
    boxes = picture["boxes"]
    parts = [head, f"<title>{title}</title>", _STYLE]
    parts += [part for box in boxes.values() for part in _box(box)]
    parts += [part for arrow in picture["arrows"] for part in _arrow(arrow, boxes)]
    return "\n".join((*parts, "</svg>\n"))


def _box(box: Mapping[str, Any]) -> Iterator[str]:
    (x, y), (width, height) = box["at"], box["size"]
    yield '<g class="ours">' if box.get("ours") else "<g>"
    yield f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="8"/>'
    # The text stands in the middle, title and lines together.
    lines = [("title", box["title"]), *(("", line) for line in box["lines"])]
    top = y + (height - _LINE_PX * len(lines)) // 2 + 14
    for number, (kind, line) in enumerate(lines):
        style = f' class="{kind}"' if kind else ""
        yield f'<text{style} x="{x + width // 2}" y="{top + number * _LINE_PX}">{escape(line)}</text>'
    yield "</g>"


def _arrow(arrow: Mapping[str, Any], boxes: Mapping[str, Any]) -> Iterator[str]:
    (x1, y1), (x2, y2) = _edge(boxes, *arrow["from"]), _edge(boxes, *arrow["to"])
    both = ' marker-start="url(#head)"' if arrow.get("both") else ""
    yield f'<path d="M{x1} {y1}L{x2} {y2}" marker-end="url(#head)"{both}/>'
    if "text" in arrow:
        # Above an arrow that is level, else to its right.
        x, y, style = (x1 + x2) // 2, (y1 + y2) // 2 - 8, ""
        if y1 != y2:
            x, y, style = x + 12, y + 12, ' style="text-anchor: start"'
        yield f'<text x="{x}" y="{y}"{style}>{escape(arrow["text"])}</text>'


def _edge(boxes: Mapping[str, Any], name: str, side: str, along: int | None = None) -> tuple[int, int]:
    """A point on the edge of a box: its middle, or *along* pixels from its left or top."""
    (x, y), (width, height) = boxes[name]["at"], boxes[name]["size"]
    if side in ("left", "right"):
        return x + (width if side == "right" else 0), y + (height // 2 if along is None else along)
    return x + (width // 2 if along is None else along), y + (height if side == "bottom" else 0)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of ``scripts/pictures``."""
    if argv or len(sys.argv) > 1:
        sys.stderr.write("scripts/pictures: it takes nothing but --help\n")
        return 2
    for path in sorted(PICTURES.glob("*.yaml")):
        out = path.with_suffix(".svg")
        out.write_text(drawn(yaml.safe_load(path.read_text(encoding="utf-8"))), encoding="utf-8")
        sys.stdout.write(f"{out}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
