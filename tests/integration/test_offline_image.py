"""The image's packages from a folder of wheels: the Dockerfile's own command, run where there is no network.

The wheels are packed here from what is installed, and the lock has their hashes.
"""

import hashlib
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from scripts.building.release import onefile, tree
from tests.support.node import apart

ROOT = tree.ROOT
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
PYTHON = Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}"


def pack(package, version, wheels, scratch):
    """A wheel of an installed package; its name and hash."""
    site = scratch / package
    onefile.copy_package(package, version, site)
    (about,) = site.glob("*.dist-info/WHEEL")
    (*_, tag) = re.findall(r"^Tag: (\S+)$", about.read_text(encoding="utf-8"), re.MULTILINE)
    wheel = wheels / f"{package.replace('-', '_').replace('.', '_')}-{version}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path in sorted(one for one in site.rglob("*") if one.is_file()):
            # What lies outside the packages, programs and the like, is not of the wheel as it is installed.
            archive.write(path, path.relative_to(site))
    return f"{package}=={version} --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"


@pytest.fixture(scope="module")
def context(tmp_path_factory):
    """What the build is given: wheels and a lock."""
    folder, scratch = tmp_path_factory.mktemp("context"), tmp_path_factory.mktemp("scratch")
    (folder / "wheels").mkdir()
    wanted = onefile.locked(tree.LOCK.read_text(encoding="utf-8"))
    lines = [pack(package, version, folder / "wheels", scratch) for package, version in wanted.items()]
    (folder / "requirements.lock").write_text("".join(lines), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def unshared():
    """How a process gets a network of its own, which leads nowhere."""
    if subprocess.run([PYTHON, "-m", "pip", "--version"], check=False, capture_output=True).returncode:
        pytest.skip(f"{PYTHON} has no pip")
    return apart.unshared("--net")


def install(context, unshared, image):
    """The stage of packages, as the Dockerfile has it, with its places below *image*."""
    stage = DOCKERFILE.partition(" AS packages\n")[2].partition("\nFROM ")[0]
    assert re.findall(r"^COPY (.*)$", stage, re.MULTILINE) == [
        "deploy/wheels /packages",
        "requirements.lock /packages/",
    ]
    assert re.findall(r"^ARG (\w+)=", stage, re.MULTILINE) == ["PIP_NO_INDEX"]
    (command,) = re.findall(r"^RUN ((?:.*\\\n)*.*)$", stage, re.MULTILINE)
    packages = image / "packages"
    packages.mkdir(parents=True)
    for path in (*(context / "wheels").iterdir(), context / "requirements.lock"):
        os.link(path, packages / path.name)
    for place in ("/venv", "/packages"):
        command = re.sub(rf"(?<=[ =]){place}\b", f"{image}{place}", command)
    (image / "bin").mkdir()
    (image / "bin/python").symlink_to(PYTHON)
    ended = subprocess.run(
        [*unshared, "sh", "-c", command],
        # Bytecode is not looked at.
        env={"PATH": f"{image}/bin:/usr/bin:/bin", "PIP_NO_INDEX": "1", "PIP_COMPILE": "0", "HOME": str(image)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    return ended.returncode, ended.stdout + ended.stderr


def files(site):
    """What is installed, by its place; without bytecode and pip's own notes, of which the lists of files follow."""
    kept = (path.relative_to(site) for path in site.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return {str(path) for path in kept if path.name not in {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"}}


def test_packages_from_wheels_are_those_of_the_image_without_a_network(context, unshared, tmp_path):
    code, said = install(context, unshared, tmp_path / "image")
    assert code == 0, said
    tree.build(tmp_path / "tree")
    (site,) = (tmp_path / "image/venv/lib").glob("python3.*/site-packages")
    assert files(site) == files(tmp_path / "tree" / tree.SITE)
    paths = f"{tmp_path / 'tree/app'}:{site}"
    ended = subprocess.run(
        [*unshared, PYTHON, "-S", "-m", "webhook", "--help"],
        env={"PYTHONPATH": paths, "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.stdout.startswith("usage: "), ended.stderr


def test_a_wheel_that_is_another_than_the_lock_names_and_one_that_is_missing_end_the_build(context, unshared, tmp_path):
    other = tmp_path / "context"
    (other / "wheels").mkdir(parents=True)
    for path in (context / "wheels").iterdir():
        os.link(path, other / "wheels" / path.name)
    lock = (context / "requirements.lock").read_text(encoding="utf-8")
    (other / "requirements.lock").write_text(re.sub(r"(idna.*sha256:)\w{8}", r"\g<1>00000000", lock), encoding="utf-8")
    code, said = install(other, unshared, tmp_path / "forged")
    assert code != 0
    assert "DO NOT MATCH THE HASHES" in said
    (missing,) = (other / "wheels").glob("idna-*")
    missing.unlink()
    code, said = install(other, unshared, tmp_path / "missing")
    assert code != 0
    assert "No matching distribution found for idna" in said
