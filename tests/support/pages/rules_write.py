"""``scripts/rules``: writes the pages of the rules."""

import asyncio
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.support.pages.rules import MESSAGES, NODES, TABLE, Rule, Said, messages, read_rules, table
from tests.support.pages.rules_run import play
from tests.support.worlds.rig_double import double_rig


def main() -> int:
    """Write both pages; 1 without kubectl."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        sys.stderr.write("scripts/rules: kubectl is not on PATH; put it there\n")
        return 1
    rules = read_rules()
    TABLE.write_text(table(rules), encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        said = asyncio.run(_play(rules, Path(folder), kubectl))
    MESSAGES.write_text(messages(rules, said), encoding="utf-8")
    return 0


async def _play(rules: Sequence[Rule], folder: Path, kubectl: str) -> dict[str, list[Said]]:
    async with double_rig(folder, NODES) as world:
        return await play(rules, world, kubectl)


if __name__ == "__main__":
    sys.exit(main())
