"""``python -m sandbox`` says what it cannot use, and stops clean."""

import asyncio
import os
import signal
import socket
import stat
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


async def start(*arguments, **environment):
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", "-m", "sandbox", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, **environment},
    )


async def ended(*arguments, **environment):
    process = await start(*arguments, **environment)
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ("- {labels: {}}", "missing required field `name`"),
        ("- {name: a, plugin: {kind: abacus}}", "unknown device plugin 'abacus'"),
        ("- {name: a, plugin: {kind: vgpu, beads: 3}}", "unknown keys beads"),
    ],
)
async def test_a_node_file_that_cannot_be_used_ends_it_with_2(tmp_path, nodes, words):
    path = tmp_path / "nodes.yaml"
    path.write_text(nodes)
    code, out, err = await ended("--nodes", str(path))
    assert (code, out) == (2, "")
    assert f"sandbox: {path}: " in err
    assert words in err


async def test_a_missing_file_and_a_taken_port_end_it_with_2(tmp_path):
    code, _, err = await ended("--nodes", str(tmp_path / "none.yaml"))
    assert (code, err) == (2, f"sandbox: --nodes: {tmp_path}/none.yaml: no such file or directory\n")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        code, _, err = await ended(CARDSHARE_LISTEN=address)
    assert code == 2
    assert err == (
        f"sandbox: --listen: cannot listen on {address}: address already in use; "
        "end what listens there, or choose another port\n"
    )


async def test_what_cannot_be_used_is_told_with_its_flag():
    code, out, err = await ended("--seed", "x", "--listen", "nowhere")
    assert (code, out) == (2, "")
    assert err == (
        "sandbox: --listen (CARDSHARE_LISTEN): found 'nowhere'; write host:port such as ':8080'\n"
        "sandbox: --seed (CARDSHARE_SEED): found 'x'; write a number from 0 to 1000000000000000000\n"
    )


async def test_it_stops_clean_and_its_kubeconfig_is_private(tmp_path):
    kubeconfig = tmp_path / "kubeconfig"
    process = await start("--kubeconfig-out", str(kubeconfig), "--authorization", "rbac")
    async with asyncio.timeout(60):
        assert (await process.stdout.readline()).startswith(b"sandbox ready: https://127.0.0.1:")
        assert stat.S_IMODE(kubeconfig.stat().st_mode) == 0o600
        process.send_signal(signal.SIGTERM)
        _, err = await process.communicate()
    assert (process.returncode, err) == (0, b"")
