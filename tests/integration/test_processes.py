"""That nothing started for a test outlives it, and each listens for itself: real processes, ended in each way."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from certs.authority import new_authority
from sandbox.cluster import kubeconfig_text
from sandbox.demo.processes import Launch, Processes, by_command, free_port
from tests.support.worlds.forking import forked
from tests.support.worlds.processes import Child, Children, until

ROOT = Path(__file__).resolve().parents[2]
DOUBLE = "tests.support.servers.playing"


def running(pid: int) -> bool:
    """Whether *pid* still runs; one that only waits for its parent to ask about its end does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def within(seconds: float, true: Callable[[], bool]) -> bool:
    end_s = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end_s:
            return False
        time.sleep(0.02)
    return True


def says_ready(child: Child) -> bool:
    return within(60, lambda: "ready" in child.log_tail())


@pytest.mark.parametrize("launch", [by_command, forked])
async def test_what_a_killed_process_leaves_is_beside_its_log(tmp_path: Path, launch: Launch):
    ca_pem = new_authority("a", 1, datetime.now(UTC)).cert_pem
    kubeconfig = tmp_path / "kubeconfig"
    server = f"https://127.0.0.1:{free_port()}"
    kubeconfig.write_text(kubeconfig_text(server=server, ca_pem=ca_pem, token="t", user="u"))
    async with Processes(tmp_path / "logs", os.environ, launch=launch) as processes:
        options = ("--kubeconfig", str(kubeconfig), "--listen", f"127.0.0.1:{free_port()}")
        killed = await processes.start("controller", "controller", options)
        # kubernetes_asyncio writes the authority to a file.
        async with asyncio.timeout(60):
            while not (left := list((tmp_path / "logs").glob("tmp*"))):  # noqa: ASYNC110 (nobody tells of it)
                await asyncio.sleep(0.05)
        killed.signal(signal.SIGKILL)
        await killed.process.wait()
    assert [path.read_bytes() for path in left] == [ca_pem]


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_when_the_tests_are_killed_their_processes_and_folders_go_too(tmp_path: Path, ending: signal.Signals):
    script = textwrap.dedent("""
        import sys, time
        from pathlib import Path
        from tests.support.worlds.processes import Children
        children = Children(Path(sys.argv[1]) / "logs")
        folder = Path(sys.argv[1]) / "data"
        folder.mkdir()
        children.keep_folder(folder)
        child = children.start("tree", ["/bin/sh", "-c", "sleep 300 & echo $!; wait"])
        while not (said := child.log.read_text()).endswith("\\n"):
            time.sleep(0.01)
        print(child.pid, said.strip(), flush=True)
        time.sleep(300)
    """)
    argv = [sys.executable, "-c", script, str(tmp_path), DOUBLE, str(tmp_path / "kubeconfig")]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env) as tests:
        assert tests.stdout is not None
        parent, grandchild = (int(word) for word in tests.stdout.readline().split())
        assert running(parent)
        assert running(grandchild)
        tests.send_signal(ending)
    assert within(60, lambda: not running(parent) and not running(grandchild))
    assert within(60, lambda: not (tmp_path / "data").exists())
    assert (tmp_path / "logs" / "tree.log").exists()


def test_what_ignores_the_request_to_end_is_killed(tmp_path: Path):
    children = Children(tmp_path)
    child = children.start("deaf", ["/bin/sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.05; done"])
    assert says_ready(child)
    assert children.stop(child, grace_s=0.2) == -signal.SIGKILL
    children.close()


def test_closing_ends_the_last_started_first_and_may_be_repeated(tmp_path: Path):
    children = Children(tmp_path)
    order = tmp_path / "order"
    for name in ("first", "second"):
        script = f"trap 'echo {name} >> {order}; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
        child = children.start(name, ["/bin/sh", "-c", script])
        assert says_ready(child)
    children.close()
    children.close()
    assert order.read_text(encoding="utf-8").split() == ["second", "first"]


def test_waiting_for_one_that_died_quotes_its_last_words(tmp_path: Path):
    children = Children(tmp_path)
    child = children.start("brief", ["/bin/sh", "-c", "echo no such flag; exit 3"])
    with pytest.raises(RuntimeError, match=r"(?s)server is not ready: connection refused.*exit code 3\nno such flag"):
        until("server", lambda: "connection refused", deadline_s=60, children=(child,))
    children.close()


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only")
async def test_a_fork_is_stopped_and_ends_as_what_is_started_by_its_command(tmp_path: Path):
    async with Processes(tmp_path, os.environ, launch=forked) as processes:
        wrong = await processes.start("wrong", "controller", ("--nonsense",))
        assert await processes.stop(wrong) in {2, -signal.SIGTERM}
        wrong = await processes.start("wrong", "controller", ("--nonsense",))
        assert await wrong.process.wait() == 2
        assert "error: unrecognized arguments: --nonsense" in wrong.log_tail()
        without = await processes.start("without", "controller.no_such_module", (), {"PYTHONSAFEPATH": "1"})
        assert await without.process.wait() == 1
        assert "No module named" in without.log_tail()
        serving = await processes.start("serving", DOUBLE, ("double", str(tmp_path / "kubeconfig")))
        pid = serving.process.pid
        assert await asyncio.to_thread(within, 60, lambda: "ready" in serving.log_tail())
        assert (os.getpgid(pid), os.getsid(pid), running(pid)) == (pid, pid, True)
        assert await processes.stop(serving) == 0
        killed = await processes.start("killed", DOUBLE, ("double", str(tmp_path / "kubeconfig")))
        killed.signal(signal.SIGKILL)
        assert await killed.process.wait() == -signal.SIGKILL
        assert not running(killed.process.pid)


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only")
def test_when_the_tests_are_killed_what_they_forked_goes_too(tmp_path: Path):
    script = textwrap.dedent("""
        import asyncio, os, sys
        from pathlib import Path
        from sandbox.demo.processes import Processes
        from tests.support.worlds.forking import forked, template
        async def main():
            async with Processes(Path(sys.argv[1]), os.environ, launch=forked) as processes:
                serving = await processes.start("serving", sys.argv[2], ("double", sys.argv[3]))
                print(serving.process.pid, template()._process.pid, flush=True)
                await asyncio.sleep(300)
        asyncio.run(main())
    """)
    argv = [sys.executable, "-c", script, str(tmp_path), DOUBLE, str(tmp_path / "kubeconfig")]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env=env) as tests:
        assert tests.stdout is not None
        pids = [int(word) for word in tests.stdout.readline().split()]
        assert all(map(running, pids))
        tests.kill()
    assert within(60, lambda: not any(map(running, pids)))


def test_no_two_are_told_of_the_same_free_port_and_each_can_be_listened_on():
    ports = [free_port() for _ in range(500)]
    assert len(set(ports)) == 500
    for port in ports[:3]:
        socket.create_server(("127.0.0.1", port)).close()
