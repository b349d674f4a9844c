"""What the Dockerfile copies and runs is what the manifests need."""

import re

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


def test_the_image_has_core_compiled_unless_it_is_built_with_another_word():
    text = (DEPLOY.parent / "Dockerfile").read_text()
    assert text.index("ARG CORE=compiled\n") < text.index("FROM ")
    stages = dict(re.findall(r"^FROM (\S+) AS (core-\w+)$", text, re.MULTILINE))
    assert stages == {"packages": "core-interpreted", "core-interpreted": "core-compiled"}
    compiling = text.partition(" AS core-compiled\n")[2].partition("\nFROM ")[0]
    assert "-r /packages/requirements-compile.lock" in compiling
    assert "--require-hashes" in compiling
    assert compiling.rstrip().endswith(" /scripts/building/compile_core.py --in-place /app")
    last = text.rpartition("\nFROM ")[2]
    assert "FROM core-${CORE} AS core\n" in text
    assert "COPY --from=core /app /app\n" in last
    assert not re.search(r"apt-get|mypy|compile_core", last)


def test_the_image_holds_all_rooms_that_its_commands_import():
    copied = set(re.findall(r"^COPY (\S+) /app/", (DEPLOY.parent / "Dockerfile").read_text(), re.MULTILINE))
    rooms = "|".join(("core", "runtime", "kube", "webhook", "controller", "certs", "cli", "sandbox"))
    for room in copied:
        for path in (DEPLOY.parent / room).rglob("*.py"):
            used = re.findall(rf"^\s*(?:from|import) ({rooms})\b", path.read_text(), re.MULTILINE)
            assert set(used) <= copied, path
