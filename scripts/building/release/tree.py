"""The image's file tree, as the Dockerfile makes it, without a builder: what its last stage copies, and the packages.

Taken from the packages that are installed here, which are those of the lock by their hashes. Python itself, and what
the base image has, are no part of it. Core is interpreted.
"""

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from scripts.building.release import onefile

ROOT: Final = onefile.ROOT
LOCK: Final = ROOT / "requirements.lock"
_COPIED: Final = re.compile(r"^COPY ([a-z]+) (/app/[a-z]+)$", re.MULTILINE)
# Where the interpreter of the virtual environment finds packages.
SITE: Final = "venv/lib/python3/site-packages"


def environ(dockerfile: str) -> Mapping[str, str]:
    """What the image sets for every process, PATH aside."""
    (line,) = re.findall(r"^ENV (.+)$", dockerfile, re.MULTILINE)
    found = dict(each.split("=", 1) for each in line.split())
    return {name: value for name, value in found.items() if name != "PATH"}


def build(folder: Path) -> None:
    """Write the tree into *folder*, which is made.

    Raises:
        ValueError: what is installed is not what the lock names.
    """
    copied = _COPIED.findall((ROOT / "Dockerfile").read_text(encoding="utf-8"))
    for room, place in copied:
        shutil.copytree(ROOT / room, folder / place.lstrip("/"), ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for package, wanted in onefile.locked(LOCK.read_text(encoding="utf-8")).items():
        onefile.copy_package(package, wanted, folder / SITE)
