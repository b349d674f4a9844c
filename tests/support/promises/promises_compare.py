"""Puts all promises to both servers, shows where the sandbox's lies, and writes what the real one answered.

python -m tests.support.promises.promises_compare [--only PART-OF-A-NAME] [--write]
"""

import argparse
import asyncio
import difflib
import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

from tests.support.promises.promises import KEPT, Server, kept, kept_by, load, text_of
from tests.support.promises.promises_servers import double, real
from tests.support.servers.realapi import RealApi
from tests.support.servers.realapi_binaries import find


def main(argv: list[str]) -> int:
    """The command; exit code 1 where the servers differ."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.promises.promises_compare")
    parser.add_argument("--only", default="", help="promises whose name contains this")
    parser.add_argument("--write", action="store_true", help="keep the real server's answers in tests/data")
    given = parser.parse_args(argv)
    return asyncio.run(_compare(given.only, write=given.write))


async def _compare(part: str, *, write: bool) -> int:
    names = [name for name in load() if part in name]
    with tempfile.TemporaryDirectory(prefix="promises-") as text:
        folder = Path(text)
        binaries = find(os.environ)
        async with RealApi(binaries, logs=folder / "logs") as api, double(folder) as ours:
            differing = [name for name in names if not await _same(name, real(api), ours, write=write)]
    sys.stdout.write(f"{len(names) - len(differing)} of {len(names)} promises are kept alike\n")
    return 1 if differing else 0


async def _same(name: str, theirs: Server, ours: Server, *, write: bool) -> bool:
    answers = [await _rows(server, name) for server in (theirs, ours)]
    if write:
        found = dict(kept()) if KEPT.exists() else {}
        await asyncio.to_thread(KEPT.write_text, text_of({**found, name: answers[0]}), encoding="utf-8")
    if answers[0] == answers[1]:
        return True
    lines = [text_of({name: rows}).splitlines() for rows in answers]
    differing = difflib.unified_diff(lines[0], lines[1], f"real: {name}", "sandbox", n=0, lineterm="")
    sys.stdout.write("\n".join(differing) + "\n")
    return False


async def _rows(server: Server, name: str) -> Any:
    try:
        return await kept_by(server, name)
    except Exception:  # noqa: BLE001 (what breaks a check is its answer: the others go on)
        return traceback.format_exc().splitlines()[-4:]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
