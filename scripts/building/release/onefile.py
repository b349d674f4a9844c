"""kubectl-cards as one file: everything that it needs, for a Python that has nothing else.

Taken from the packages that are installed here, which are those of the lock by their hashes. Compiled modules cannot be
imported from an archive: the file unpacks itself once, into the user's cache.
"""

import hashlib
import importlib.metadata
import re
import shutil
import sys
import sysconfig
import tempfile
import zipapp
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[3]
LOCK: Final = ROOT / "requirements-cli.lock"
_ROOMS: Final = ("core", "runtime", "kube", "cli")
_LOCKED: Final = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)", re.MULTILINE)

# Runs before anything else is there: the standard library alone, any Python 3.
_BEGIN: Final = '''\
"""Unpacks this file once, and runs what is in it."""

import os
import sys
import tempfile
import zipfile

DIGEST = {digest!r}
MADE_FOR = {made_for!r}


def made_for():
    import sysconfig

    return "Python %d.%d on %s" % (sys.version_info[0], sys.version_info[1], sysconfig.get_platform())


def unpacked():
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = os.path.join(home, "kubectl-cards", DIGEST)
    if os.path.isdir(folder):
        return folder
    try:
        os.makedirs(os.path.dirname(folder), mode=0o700, exist_ok=True)
        part = tempfile.mkdtemp(dir=os.path.dirname(folder))
    except OSError as e:
        sys.exit("kubectl cards: it cannot unpack itself (%s); name a folder for it with XDG_CACHE_HOME" % e)
    with zipfile.ZipFile(os.path.dirname(os.path.abspath(__file__))) as archive:
        archive.extractall(part, [name for name in archive.namelist() if name.startswith("site/")])
    try:
        # All or nothing, whoever else unpacks at the same time.
        os.rename(part, folder)
    except OSError:
        import shutil

        shutil.rmtree(part, ignore_errors=True)
    return folder


if made_for() != MADE_FOR:
    sys.exit("kubectl cards: this file is for %s; here is %s" % (MADE_FOR, made_for()))
sys.path.insert(0, os.path.join(unpacked(), "site"))
from cli.start import main  # noqa: E402

sys.exit(main())
'''


def locked(text: str) -> dict[str, str]:
    """The versions by name that a lock names."""
    return {name.lower(): version for name, version in _LOCKED.findall(text)}


def build(target: Path) -> None:
    """Write *target*, an executable file.

    Raises:
        ValueError: what is installed is not what the lock names.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        site = folder / "site"
        for room in _ROOMS:
            shutil.copytree(ROOT / room, site / room, ignore=shutil.ignore_patterns("__pycache__"))
        for package, wanted in locked(LOCK.read_text(encoding="utf-8")).items():
            copy_package(package, wanted, site)
        made_for = f"Python {sys.version_info[0]}.{sys.version_info[1]} on {sysconfig.get_platform()}"
        begin = _BEGIN.format(digest=_digest(site), made_for=made_for)
        (folder / "__main__.py").write_text(begin, encoding="utf-8")
        python = f"/usr/bin/env python{sys.version_info[0]}.{sys.version_info[1]}"
        zipapp.create_archive(folder, target, interpreter=python, compressed=True)


def copy_package(package: str, wanted: str, site: Path) -> None:
    """Copy the files of an installed *package* into *site*.

    Raises:
        ValueError: it is not of the version *wanted*.
    """
    found = importlib.metadata.distribution(package)
    if found.version != wanted:
        raise ValueError(f"{package}: found {found.version}, the lock names {wanted}; run scripts/setup")
    for file in found.files or ():
        if ".." in file.parts or file.suffix == ".pyc":
            continue
        to = site / file
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(str(file.locate()), to)


def _digest(site: Path) -> str:
    """A name for all files together."""
    whole = hashlib.sha256()
    for path in _files(site):
        whole.update(f"{path.relative_to(site)} ".encode())
        whole.update(path.read_bytes())
    return whole.hexdigest()[:32]


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())
