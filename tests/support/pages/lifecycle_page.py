"""The diagrams of a pod's life, from the tables: `python -m tests.support.pages.lifecycle_page`."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from controller.deciding import lifecycle

PAGE: Final = Path(__file__).parents[3] / "docs/maintainers/pod-lifecycle.md"
_SKIPPED: Final = (lifecycle.StageEvent.LEAVE, lifecycle.StageEvent.MISTRUST)


def page() -> str:
    """The page with its diagrams as the tables are now."""
    stages = _diagram(
        (before or "[*]", event, after or "[*]")
        for (before, event), after in lifecycle.TABLE.items()
        if event not in _SKIPPED
    )
    attempts = _diagram((before, news, after) for (before, news), after in lifecycle.ATTEMPTS.items())
    made = iter((stages, f"    [*] --> {lifecycle.AttemptState.SENT}\n{attempts}"))
    return re.sub(
        r"(?<=```mermaid\nstateDiagram-v2\n).*?(?=\n```)", lambda _: next(made), PAGE.read_text(), flags=re.DOTALL
    )


def _diagram(steps: Iterable[tuple[str, str, str]]) -> str:
    """*steps* (from, why, to), those between the same two as one."""
    edges: dict[tuple[str, str], list[str]] = {}
    for before, why, after in steps:
        edges.setdefault((before, after), []).append(why)
    return "\n".join(f"    {before} --> {after}: {', '.join(whys)}" for (before, after), whys in edges.items())


if __name__ == "__main__":
    PAGE.write_text(page())
