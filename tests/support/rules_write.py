"""``scripts/rules``: writes the pages of the rules."""

import asyncio
import shutil
import sys
import tempfile
from pathlib import Path

from tests.support.rules import MESSAGES, TABLE, messages, read_rules, table
from tests.support.rules_run import play


def main() -> int:
    """Write both pages; 1 without kubectl."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        sys.stderr.write("scripts/rules: kubectl is not on PATH; put it there\n")
        return 1
    rules = read_rules()
    TABLE.write_text(table(rules), encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        said = asyncio.run(play(rules, Path(folder), kubectl))
    MESSAGES.write_text(messages(rules, said), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
