"""The demo as a command: its exit codes, and that nothing of it stays behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_POD = """
apiVersion: v1
kind: Pod
metadata: {name: small, annotations: {volcano.sh/vgpu-mode: hami-core}}
spec:
  containers: [{name: c, image: i, resources: {limits: {volcano.sh/vgpu-memory: 100}}}]
"""


@asynccontextmanager
async def demo(*words: str | Path) -> AsyncIterator[Process]:
    """The demo in a process group of its own, killed in the end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "sandbox.demo", *map(str, words)),
        stdout=PIPE,
        stderr=STDOUT,
        cwd=_ROOT,
        env={**os.environ, "PYTHONSAFEPATH": "1"},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def output(process: Process) -> str:
    told, _ = await process.communicate()
    return told.decode()


def example(folder: Path, outcome: str) -> Path:
    path = folder / "small.yaml"
    path.write_text(_POD)
    (folder / "small.outcome.yaml").write_text(outcome)
    return path


def running_with(text: str) -> list[int]:
    """The processes whose command line contains *text*. Linux only."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and text.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


async def test_without_files_it_tells_a_story_of_a_screen_and_what_to_do_next():
    async with demo() as process:
        told = await output(process)
    assert process.returncode == 0, told
    assert len(told.splitlines()) <= 50, told
    assert re.search(r"^all \d+ outcomes are as declared$", told, re.MULTILINE)
    assert "scripts/demo --verbose" in told


async def test_settings_that_no_process_takes_are_1_and_no_traceback(tmp_path):
    path = example(tmp_path, "cluster: {settings: {policy: nonsense}}\npods: {small: {outcome: placed}}")
    async with demo(path, "--logs", tmp_path / "kept") as process:
        told = await output(process)
    assert process.returncode == 1, told
    assert "the webhook does not take the settings; its log ends with:" in told
    assert told.endswith(f"The demo is over.\nLogs and kubeconfigs are in {tmp_path / 'kept'}\n")
    assert "Traceback" not in told


async def test_a_broken_declaration_is_1_and_named(tmp_path):
    path = example(tmp_path, "pods: {small: {outcome: denied}}")
    async with demo(path, "--logs", tmp_path / "kept") as process:
        told = await output(process)
    assert process.returncode == 1, told
    assert "✗ small: declared: small is denied; but it was admitted" in told
    assert (tmp_path / "kept" / "logs" / "controller.log").is_file()


async def test_what_is_applied_without_a_declaration_is_shown_and_is_0(tmp_path):
    path = tmp_path / "small.yaml"
    path.write_text(_POD)
    async with demo(path) as process:
        told = await output(process)
    assert process.returncode == 0, told
    assert "100 of 15360 MiB   small 100" in told
    assert "nothing was declared" in told


@pytest.mark.parametrize("place", ["/proc/x", "file"])
async def test_logs_that_cannot_be_kept_are_2_and_one_line(tmp_path, place):
    (tmp_path / "file").touch()
    async with demo("--logs", tmp_path / place) as process:
        told = await output(process)
    assert process.returncode == 2
    assert re.search(r"error: --logs: .*(it cannot be written: no such file|it is no directory)", told)


async def test_a_kind_that_cannot_be_applied_is_2_and_named(tmp_path):
    path = tmp_path / "set.yaml"
    path.write_text("apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: a}\n")
    async with demo(path) as process:
        told = await output(process)
    assert process.returncode == 2
    kinds = "Pod, ConfigMap, PersistentVolumeClaim, Deployment, Job, PriorityClass"
    assert f"set.yaml: apps/v1 StatefulSet: the demo applies only {kinds}; remove it" in told


async def test_a_missing_file_is_2(tmp_path):
    async with demo(tmp_path / "nothing.yaml") as process:
        told = await output(process)
    assert process.returncode == 2
    assert "nothing.yaml: No such file" in told


needs_proc = pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="looks for processes in /proc (Linux)")


@asynccontextmanager
async def kept_demo(folder: Path) -> AsyncIterator[tuple[Process, str]]:
    """A demo with --keep and what it told, once it is over and waits; its two processes were seen running."""
    path = example(folder, "pods: {small: {outcome: placed, cards: 1}}")
    async with demo(path, "--keep", "--logs", folder / "kept") as process:
        told = await until_it_waits(process)
        assert len(left_running(folder)) == 2
        yield process, told


async def until_it_waits(process: Process) -> str:
    """What a demo with --keep has told once it is over and waits."""
    told = ""
    async with asyncio.timeout(180):
        while "Ctrl-C ends it" not in told:
            assert process.stdout is not None
            line = (await process.stdout.readline()).decode()
            assert line, told
            told += line
    return told


def left_running(folder: Path) -> list[int]:
    kept = folder / "kept"
    return sorted({*running_with(str(kept / "certs")), *running_with(str(kept / "controller.kubeconfig"))})


@needs_proc
async def test_all_as_declared_is_0_shows_the_card_and_a_kept_demo_ends_when_told_to(tmp_path):
    async with kept_demo(tmp_path) as (process, told):
        assert "✓ small is placed, as declared" in told
        assert "100 of 15360 MiB   small 100" in told
        assert "the one outcome is as declared" in told
        process.send_signal(signal.SIGINT)
        rest = await output(process)
    assert process.returncode == 0, rest
    assert left_running(tmp_path) == []


@needs_proc
@pytest.mark.parametrize(("name", "number"), [("controller", signal.SIGKILL), ("webhook", signal.SIGTERM)])
async def test_a_kept_demo_says_when_one_of_its_processes_ends_and_ends_with_1(tmp_path, name, number):
    async with kept_demo(tmp_path) as (process, _):
        # Both have the pair of certificates, and the controller alone a kubeconfig of its own.
        of_controller = set(running_with(str(tmp_path / "kept" / "controller.kubeconfig")))
        others = set(left_running(tmp_path)) - of_controller
        (pid,) = {"controller": of_controller, "webhook": others}[name]
        os.kill(pid, number)
        rest = await output(process)
    assert process.returncode == 1, rest
    how = "was ended by SIGKILL" if number is signal.SIGKILL else "ended with code 0"
    assert f"{name} {how}; its log says at last:" in rest
    assert f"Logs and kubeconfigs are in {tmp_path / 'kept'}" in rest
    assert left_running(tmp_path) == []


@needs_proc
async def test_a_demo_that_is_killed_leaves_nothing_running_either(tmp_path):
    async with kept_demo(tmp_path) as (process, _):
        process.kill()
        await process.wait()
        async with asyncio.timeout(180):
            while left_running(tmp_path):  # noqa: ASYNC110 - other processes are looked for
                await asyncio.sleep(0.05)


@needs_proc
async def test_what_stays_up_previews_explains_takes_settings_and_leaves_nothing_running(tmp_path: Path):
    async with kept_demo(tmp_path) as (process, told):
        kept = tmp_path / "kept"
        kubectl = os.environ | {"KUBECONFIG": str(kept / "kubeconfig")}
        other = tmp_path / "other.yaml"
        for name in ("cardshare", "volcano") if shutil.which("kubectl") else ():
            other.write_text(_POD.replace("small", "other").replace("spec:", f"spec:\n  schedulerName: {name}", 1))
            asked = await _run(kubectl, "kubectl", "apply", "--dry-run=server", "-f", other)
            assert re.search("Warning: would be placed now on t4-", asked), asked
        added = re.search(r"export PATH=(\S+):\$PATH", told)
        assert added is not None
        assert (Path(added[1]) / "kubectl-cards").is_file(), "kubectl finds no plugin"
        exports = dict(re.findall(r"(CARDSHARE_\w+)=(\S+)", told))
        for command in ("explain POD", "why POD", "simulate --drain t4-a"):
            assert f"kubectl cards {command}\n" in told
            words = command.replace("POD", "small").split()
            by_controller = await _run(kubectl | exports, sys.executable, "-m", "cli", *words)
            assert "small" in by_controller
            assert "answers" not in by_controller, "the controller took the token"
        own = await _run(kubectl, sys.executable, "-m", "cli", "simulate", "--drain", "t4-a")
        assert own.splitlines()[1] == by_controller.splitlines()[1], "the settings are the controller's"
        settings = re.search(r"after an edit: (\S+)", told)
        assert settings is not None
        assert "scheduler_names: [cardshare, volcano]" in await asyncio.to_thread(Path(settings[1]).read_text)
        assert "certificate expires soon" not in (kept / "logs" / "webhook.log").read_text()
        process.terminate()
        rest = await output(process)
    assert process.returncode == 0, rest
    assert left_running(tmp_path) == []


async def test_cards_of_other_vendors_are_offered_while_the_demo_stays_up(tmp_path: Path):
    path = _ROOT / "docs" / "examples" / "hami-vendors.yaml"
    async with demo("--keep", "--logs", tmp_path / "logs", path) as process:
        await until_it_waits(process)
        kubectl = os.environ | {"KUBECONFIG": str(tmp_path / "logs" / "kubeconfig")}
        cards = await _run(kubectl, sys.executable, "-m", "cli", "get")
        assert "default/amd-share" in cards
        assert "not offered" not in cards
        process.terminate()
        await process.wait()


async def _run(environ: dict[str, str], *words: str | Path) -> str:
    process = await asyncio.create_subprocess_exec(
        *map(str, words),
        stdout=PIPE,
        stderr=STDOUT,
        cwd=_ROOT,
        env={**environ, "PYTHONSAFEPATH": "1", "PYTHONPATH": "."},
    )
    return await output(process)
