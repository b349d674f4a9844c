"""What scripts/release builds: kubectl-cards as one file, bills of materials, the chart, and versions that agree."""

import asyncio
import io
import json
import re
import subprocess
import sys
import tarfile
from base64 import b64decode
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from scripts.building.release import build, image, onefile, provenance
from scripts.building.release.sbom import sbom
from tests.support.servers.helm import CHART
from tests.support.worlds.controller_rig import NODES
from tests.support.worlds.rig_double import double_rig

ROOT = build.ROOT
LOCKS = ("requirements.lock", "requirements-cli.lock")


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    path = tmp_path_factory.mktemp("one") / "kubectl-cards"
    onefile.build(path)
    return path


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Where the one file unpacks itself for all: each new place takes 5 s of CPU, most of it to compile modules."""
    return tmp_path_factory.mktemp("home")


def alone(one, home, *words):
    """How the one file ends, run by a Python without any package."""
    python = str(Path(sys.base_prefix) / f"bin/python{sys.version_info[0]}.{sys.version_info[1]}")
    asked = [python, "-I", "-S", str(one), *words]
    env = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
    return subprocess.run(asked, env=env, capture_output=True, text=True, check=False, timeout=280)


def test_every_file_says_the_same_version():
    assert list(build.mistakes(build.version())) == []
    assert len(list(build.mistakes("9.9.9"))) == 9


def test_the_one_file_runs_on_a_python_that_has_nothing_else(one, home):
    assert build.run_alone(one, home, "--version") == f"kubectl-cards {build.version()}\n"
    ended = alone(one, home, "get")
    assert (ended.stdout, ended.stderr.partition(": ")[0]) == ("", "kubectl cards")
    assert one.stat().st_mode & 0o111


def test_the_one_file_unpacks_itself_once(one, home, tmp_path):
    for _ in range(2):
        ended = alone(one, home, "get", "--kubeconfig", str(tmp_path / "none"))
        assert (ended.returncode, ended.stdout) == (2, "")
    assert len(list((home / ".cache/kubectl-cards").iterdir())) == 1


async def test_the_one_file_lists_cards(one, home, tmp_path):
    async with double_rig(tmp_path, NODES) as world:
        kubeconfig = await asyncio.to_thread(world.write_admins_kubeconfig)
        ended = await asyncio.to_thread(alone, one, home, "get", "--kubeconfig", str(kubeconfig))
        assert "GPU-t4-a-0" in ended.stdout


def test_a_folder_that_cannot_be_written_to_is_one_line(one, tmp_path):
    (tmp_path / ".cache").write_text("no folder")
    ended = alone(one, tmp_path, "--version")
    assert ended.returncode == 1
    assert re.fullmatch(r"kubectl cards: it cannot unpack itself \(.*XDG_CACHE_HOME\n", ended.stderr)


def test_what_the_one_file_holds_is_locked_as_for_the_processes():
    whole = onefile.locked((ROOT / LOCKS[0]).read_text())
    small = onefile.locked((ROOT / LOCKS[1]).read_text())
    assert small.keys() < whole.keys()
    assert small == {name: whole[name] for name in small}


@pytest.mark.parametrize("lock", LOCKS)
def test_a_bill_names_every_package_of_the_lock_with_its_hashes(lock):
    text = (ROOT / lock).read_text()
    bill = json.loads(sbom(text, name="x", version="1"))
    assert {one["name"]: one["version"] for one in bill["components"]} == onefile.locked(text)
    hashes = [one["value"] for part in bill["components"] for one in part["properties"] if "sha256" in one["name"]]
    assert sorted(hashes) == sorted(re.findall(r"--hash=sha256:([0-9a-f]{64})", text))
    assert bill["dependencies"][0]["dependsOn"] == [one["bom-ref"] for one in bill["components"]]
    assert all(one.get("licenses") for one in bill["components"] if one["name"] in {"aiohttp", "pyyaml", "msgspec"})


def test_the_packed_chart_is_the_chart_and_the_same_every_time():
    packed = build.packed(CHART)
    assert packed == build.packed(CHART)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        texts = {entry.name: archive.extractfile(entry) for entry in archive if entry.isfile()}
        found = {name: text.read() for name, text in texts.items() if text is not None}
    expected = {
        f"cardshare/{path.relative_to(CHART)}": path.read_bytes() for path in CHART.rglob("*") if path.is_file()
    }
    assert found == expected


def test_the_notes_are_what_the_changelog_says_of_this_version():
    notes = build.notes(build.version())
    assert notes.startswith("The first version to install.")
    assert "## [" not in notes
    assert build.notes("9.9.9") == ""


@pytest.fixture
def built(tmp_path):
    files = [tmp_path / name for name in ("b.whl", "a.tgz")]
    for path in files:
        path.write_text(path.name)
    said = provenance.statement(files, version="9.9.9", commit="c0ffee", locks=[ROOT / LOCKS[0]])
    return files, said


def test_the_provenance_names_every_file_by_its_digest_and_where_it_came_from(built):
    files, said = built
    found = json.loads(said)
    assert [one["name"] for one in found["subject"]] == ["a.tgz", "b.whl"]
    assert {one["digest"]["sha256"] for one in found["subject"]} == {provenance.sha256_of(path) for path in files}
    sources = {one["name"]: one["digest"] for one in found["predicate"]["buildDefinition"]["resolvedDependencies"]}
    assert sources == {
        "source": {"gitCommit": "c0ffee"},
        LOCKS[0]: {"sha256": provenance.sha256_of(ROOT / LOCKS[0])},
    }


def test_a_signed_statement_verifies_with_the_public_key_alone(built, tmp_path):
    _, said = built
    key = Ed25519PrivateKey.generate()
    pem = tmp_path / "key.pem"
    pem.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    envelope = json.loads(provenance.signed(said, pem))
    payload = b64decode(envelope["payload"])
    assert payload == said
    # DSSE: the type and the body, each after its length.
    kind = envelope["payloadType"]
    text = f"DSSEv1 {len(kind)} {kind} {len(payload)} ".encode() + payload
    (signature,) = envelope["signatures"]
    key.public_key().verify(b64decode(signature["sig"]), text)
    with pytest.raises(InvalidSignature):
        key.public_key().verify(b64decode(signature["sig"]), text + b" ")


@pytest.mark.parametrize("text", ["", "no key", None, "rsa"])
def test_a_file_that_holds_no_key_to_sign_with_is_named(text, built, tmp_path):
    pem = tmp_path / "key.pem"
    if text == "rsa":
        other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        pem.write_bytes(other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    elif text is not None:
        pem.write_text(text)
    with pytest.raises(provenance.UnusableKeyError, match=re.escape(str(pem))):
        provenance.signed(built[1], pem)


@pytest.mark.parametrize("builder", ["buildah", "docker", "podman"])
def test_the_image_is_made_by_the_builder_that_is_there(builder, tmp_path, monkeypatch):
    program = tmp_path / "bin" / builder
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    image.build(ROOT, "9.9.9", tmp_path / "image.tar")
    build_words, save_words = (tmp_path / "asked").read_text().splitlines()
    assert build_words.split()[0] == "build"
    assert "cardshare:9.9.9" in build_words
    assert str(tmp_path / "image.tar") in save_words


def test_without_a_builder_or_with_one_that_fails_there_is_no_image_and_a_reason(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(image.NoImageError, match="none of buildah, docker and podman"):
        image.build(ROOT, "9.9.9", tmp_path / "image.tar")
    failing = tmp_path / "docker"
    failing.write_text("#!/bin/sh\necho 'pull access denied' >&2\nexit 1\n")
    failing.chmod(0o755)
    with pytest.raises(image.NoImageError, match="docker build: pull access denied"):
        image.build(ROOT, "9.9.9", tmp_path / "image.tar")
