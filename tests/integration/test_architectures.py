"""The image can be built for the two architectures of the installation page: its packages have wheels of both.

Pip is asked only for what the wheels that are installed here, by the same hashes, do not show: it reads each file that
an index has of a package.
"""

import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.building.release import onefile
from scripts.building.release.tree import ROOT

PAGE = (ROOT / "docs/operators/install.md").read_text(encoding="utf-8")
# By Docker's name and by that of wheels.
WHEELS = {"amd64": "x86_64", "arm64": "aarch64"}
# Of glibc; Debian 12 has 2.36.
GLIBC = ("2_17", "2_27", "2_28")
# One package of a lock, with its hashes.
LOCKED = re.compile(r"^([A-Za-z0-9._-]+)==(?:.*\\\n)*.*\n", re.MULTILINE)


def asked(*platforms: str) -> str:
    """What of the locks no installed wheel shows to be there for one of *platforms*: one for any may be made here."""
    locks = "".join((ROOT / lock).read_text("utf-8") for lock in ("requirements.lock", "requirements-compile.lock"))
    packages = {one[1]: one[0] for one in LOCKED.finditer(locks)}
    assert set(packages) == set(onefile.locked(locks))
    return "".join(text for name, text in packages.items() if installed_for(name).isdisjoint(platforms))


def installed_for(package: str) -> set[str]:
    """The platforms of the wheel that *package* was installed from."""
    about = importlib.metadata.distribution(package).read_text("WHEEL") or ""
    return set(re.findall(r"^Tag: .*-(\S+)$", about, re.MULTILINE))


def resolved(folder: Path, lock: str, *platforms: str) -> "subprocess.CompletedProcess[str]":
    """Let pip choose wheels of all packages of *lock*, by their hashes, and fetch none of them."""
    (folder / "asked.lock").write_text(lock, encoding="utf-8")
    words = ["--dry-run", "--no-deps", "--require-hashes", "--only-binary", ":all:", "--target", str(folder)]
    words += ["-r", str(folder / "asked.lock"), *(f"--platform={one}" for one in platforms)]
    install = [sys.executable, "-m", "pip", "-q", "install", *words]
    return subprocess.run(install, env=dict(os.environ), capture_output=True, text=True, check=False, timeout=280)


@pytest.mark.parametrize("name", WHEELS)
def test_every_locked_package_has_a_wheel_of_the_architecture(name, tmp_path):
    (named,) = re.findall(r"^docker buildx build --platform (\S+) ", PAGE, re.MULTILINE)
    assert named == ",".join(f"linux/{one}" for one in WHEELS)
    platforms = [f"manylinux_{glibc}_{WHEELS[name]}" for glibc in GLIBC]
    lock = asked(*platforms)
    done = resolved(tmp_path, lock, *platforms)
    if done.returncode and resolved(tmp_path, lock).returncode:
        pytest.skip("pip reaches no package index here")
    assert done.returncode == 0, done.stderr
