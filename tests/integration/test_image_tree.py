"""The image's file tree, without a builder: each command runs from it, with nothing else and no network."""

import subprocess
import sys
from pathlib import Path

import pytest

from core.names import VERSION
from scripts.building.release import tree
from tests.support.node import apart


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    folder = tmp_path_factory.mktemp("image")
    tree.build(folder)
    return folder


@pytest.fixture(scope="module")
def unshared():
    """How a process gets namespaces of its own."""
    return apart.unshared("--net", "--mount", "--pid", "--fork")


def run(image, unshared, folder, *words):
    """What a command of the image says, by a Python that has no package of its own."""
    python = Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    paths = {**tree.environ((tree.ROOT / "Dockerfile").read_text(encoding="utf-8"))}
    # The image has bytecode; here the first command writes what the others read.
    del paths["PYTHONDONTWRITEBYTECODE"]
    inside = f"{image}{paths['PYTHONPATH']}:{image / tree.SITE}"
    ended = subprocess.run(
        [*unshared, str(python), "-S", "-m", *words],
        env={**paths, "PYTHONPATH": inside, "PATH": "/nowhere"} | {"HOME": str(folder)},
        executable="/usr/bin/unshare",
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return ended.returncode, ended.stdout + ended.stderr


@pytest.mark.parametrize("module", ["webhook", "controller", "certs", "cli"])
def test_every_command_of_the_image_starts(image, unshared, tmp_path, module):
    code, said = run(image, unshared, tmp_path, module, "--help")
    assert (code, said.startswith("usage: ")) == (0, True), said


def test_the_image_judges_makes_certificates_and_knows_its_version(image, unshared, tmp_path):
    example = tree.ROOT / "docs" / "examples" / "memory-only.yaml"
    code, said = run(image, unshared, tmp_path, "webhook", "check", "-f", str(example))
    assert (code, "0 denied" in said) == (0, True), said
    code, said = run(image, unshared, tmp_path, "certs", "ensure", "--dir", str(tmp_path / "c"), "--dns", "localhost")
    assert (code, (tmp_path / "c/tls.crt").exists()) == (0, True), said
    assert run(image, unshared, tmp_path, "cli", "--version") == (0, f"kubectl-cards {VERSION}\n")


def test_the_controller_and_webhook_get_as_far_as_the_network_that_is_not_there(image, unshared, tmp_path):
    code, said = run(image, unshared, tmp_path, "controller", "--kubeconfig", str(tmp_path / "none"))
    assert (code, "Traceback" in said) == (2, False), said
    code, said = run(image, unshared, tmp_path, "webhook", "--cert-dir", str(tmp_path))
    assert (code, "tls.crt" in said, "Traceback" in said) == (2, True, False), said


def test_numpy_starts_no_thread_for_each_processor():
    code = "import numpy; print(open('/proc/self/status').read())"
    environ = {**tree.environ((tree.ROOT / "Dockerfile").read_text(encoding="utf-8")), "PYTHONPATH": ""}
    said = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True).stdout
    assert "Threads:\t1\n" in said


def test_no_package_of_development_and_no_test_is_in_it(image):
    found = {path.name for path in (image / tree.SITE).iterdir()} | {path.name for path in (image / "app").iterdir()}
    assert {"aiohttp", "core", "webhook", "controller", "certs", "cli"} <= found
    assert {"pytest", "mypy", "hypothesis", "sandbox", "tests", "scripts"} & found == set()
