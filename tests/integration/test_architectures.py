"""The image can be built for the two architectures of the installation page: its packages have wheels of both."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.building.release.tree import ROOT

PAGE = (ROOT / "docs/operators/install.md").read_text(encoding="utf-8")
# By Docker's name and by that of wheels.
WHEELS = {"amd64": "x86_64", "arm64": "aarch64"}
# Of glibc; Debian 12 has 2.36.
GLIBC = ("2_17", "2_27", "2_28")


def resolved(folder: Path, *platforms: str) -> "subprocess.CompletedProcess[str]":
    """Let pip choose wheels of all locked packages, by their hashes, and fetch none of them."""
    words = ["--dry-run", "--no-deps", "--require-hashes", "--only-binary", ":all:", "--target", str(folder)]
    for lock in ("requirements.lock", "requirements-compile.lock"):
        words += ["-r", str(ROOT / lock)]
    asked = [sys.executable, "-m", "pip", "-q", "install", *words, *(f"--platform={one}" for one in platforms)]
    return subprocess.run(asked, env=dict(os.environ), capture_output=True, text=True, check=False, timeout=280)


@pytest.mark.parametrize("name", WHEELS)
def test_every_locked_package_has_a_wheel_of_the_architecture(name, tmp_path):
    (named,) = re.findall(r"^docker buildx build --platform (\S+) ", PAGE, re.MULTILINE)
    assert named == ",".join(f"linux/{one}" for one in WHEELS)
    done = resolved(tmp_path, *(f"manylinux_{glibc}_{WHEELS[name]}" for glibc in GLIBC))
    if done.returncode and resolved(tmp_path).returncode:
        pytest.skip("pip reaches no package index here")
    assert done.returncode == 0, done.stderr
