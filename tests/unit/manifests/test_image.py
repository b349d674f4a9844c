"""What the Dockerfile copies and runs is what the manifests need."""

import re
import subprocess

import pytest

from tests.support.pages.shipped import DEPLOY, TEMPLATES, container


def test_the_image_holds_the_packages_that_the_manifests_run_and_runs_them_as_their_user():
    text = (DEPLOY.parent / "Dockerfile").read_text()
    for title in TEMPLATES:
        assert container(title)["image"] == "cardshare"
        python, flag, module = container(title)["command"]
        assert (python, flag) == ("python", "-m")
        assert f"COPY {module} /app/{module}\n" in text
    assert "USER 65532:65532" in text
    assert "--require-hashes" in text
    assert "PYTHONSAFEPATH=1" in text


def test_the_image_is_built_from_nothing_that_is_kept_out_of_its_build():
    text = (DEPLOY.parent / "Dockerfile").read_text()
    let_in = {line[1:] for line in (DEPLOY.parent / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert set(re.findall(r"^COPY ([^-]\S*) ", text, re.MULTILINE)) == let_in


def test_the_image_has_core_compiled_if_it_can_be():
    text = (DEPLOY.parent / "Dockerfile").read_text()
    # Debian's buildah leaves out a stage whose name a variable gives: only the base may be named so.
    assert set(re.findall(r"^FROM (\S+)", text, re.MULTILINE)) == {"${BASE}", "packages"}
    compiling = text.partition(" AS core\n")[2].partition("\nFROM ")[0]
    assert "ARG CORE=auto\n" in compiling
    assert "-r /packages/requirements-compile.lock" in compiling
    assert "--require-hashes" in compiling
    last = text.rpartition("\nFROM ")[2]
    assert "COPY --from=core /app /app\n" in last
    assert not re.search(r"apt-get|mypy|compile_core", last)


@pytest.mark.parametrize(
    ("core", "has_headers", "compiles", "code", "says"),
    [
        ("auto", True, True, 0, "compiled here"),
        ("auto", True, False, 0, "the image has it interpreted"),
        ("auto", False, True, 0, "the image has it interpreted"),
        ("compiled", True, True, 0, "compiled here"),
        ("compiled", True, False, 1, ""),
        ("compiled", False, True, 2, ""),
        ("interpreted", True, True, 0, ""),
        ("compild", True, True, 2, "CORE=compild: write auto, compiled or interpreted"),
    ],
)
def test_core_is_interpreted_where_it_cannot_be_compiled_unless_it_must_be(
    tmp_path, core, has_headers, compiles, code, says
):
    stage = (DEPLOY.parent / "Dockerfile").read_text().partition(" AS core\n")[2].partition("\nFROM ")[0]
    (command,) = re.findall(r"^RUN ((?:.*\\\n)*.*)$", stage, re.MULTILINE)
    (tmp_path / "Python.h").touch()
    headers = tmp_path if has_headers else tmp_path / "none"
    programs = {"gcc": "", "python": f'case "$*" in *sysconfig*) echo {headers};; esac'}
    programs["compile"] = "echo compiled here" if compiles else "exit 1"
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o700)
    command = command.replace(
        "/venv/bin/python /scripts/building/compile_core.py --in-place /app", f"{tmp_path}/compile"
    )
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "CORE": core}
    done = subprocess.run(["sh", "-c", command], env=env, capture_output=True, text=True, check=False, timeout=100)
    assert (done.returncode, says in done.stdout + done.stderr) == (code, True), done
    assert ("compiled here" in done.stdout) is (says == "compiled here")


def test_the_image_holds_all_rooms_that_its_commands_import():
    copied = set(re.findall(r"^COPY (\S+) /app/", (DEPLOY.parent / "Dockerfile").read_text(), re.MULTILINE))
    rooms = "|".join(("core", "runtime", "kube", "webhook", "controller", "certs", "cli", "sandbox"))
    for room in copied:
        for path in (DEPLOY.parent / room).rglob("*.py"):
            used = re.findall(rf"^\s*(?:from|import) ({rooms})\b", path.read_text(), re.MULTILINE)
            assert set(used) <= copied, path
