"""A process that cannot listen ends with 2 and one line: which flag, which address, why, and what to do."""

import os
import socket
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from certs.files import ensure
from certs.pair import WantedPair
from sandbox.demo.processes import clean_environ, free_port

ROOT = Path(__file__).parents[2]
KUBECONFIG = """
current-context: here
contexts: [{name: here, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
"""


@pytest.fixture
def folder(tmp_path):
    ensure(tmp_path / "certs", WantedPair(dns_names=("localhost",), days=30, ca_days=60), datetime.now(UTC))
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    return tmp_path


def ended(folder, module, **listen):
    here = f"127.0.0.1:{free_port()}"
    flags = {
        "webhook": ("--cert-dir", folder / "certs", "--no-inventory", "--listen", here, "--metrics-listen", here),
        "controller": ("--kubeconfig", folder / "kubeconfig", "--cert-dir", folder / "certs", "--listen", here),
    }[module]
    more = [word for flag, value in listen.items() for word in (f"--{flag.replace('_', '-')}", value)]
    ran = subprocess.run(
        [sys.executable, "-m", module, *map(str, flags), *more],
        capture_output=True, text=True, timeout=60, cwd=ROOT, check=False,
        env=clean_environ(os.environ),
    )  # fmt: skip
    said = [line for line in ran.stderr.splitlines() if line.startswith(f"{module}: ")]
    assert "Traceback" not in ran.stderr
    return ran.returncode, said


@pytest.mark.parametrize(
    ("module", "flag", "more"),
    [
        ("webhook", "listen", {}),
        ("webhook", "metrics_listen", {"listen": "127.0.0.1:0"}),
        ("controller", "listen", {}),
        ("controller", "preview_listen", {}),
    ],
)
def test_a_port_in_use_is_named_with_its_flag(folder, module, flag, more):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        found = ended(folder, module, **more, **{flag: address})
    why = "address already in use; end what listens there, or choose another port"
    assert found == (2, [f"{module}: --{flag.replace('_', '-')}: cannot listen on {address}: {why}"])


@pytest.mark.parametrize("module", ["webhook", "controller"])
@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("192.0.2.1:8443", "cannot assign requested address; choose an address of this machine"),
        ("nobody.invalid:8443", "there is no such host; choose an address of this machine"),
    ],
    ids=["not ours", "no host"],
)
def test_an_address_that_cannot_be_had_is_named_with_its_flag(folder, module, address, why):
    assert ended(folder, module, listen=address) == (2, [f"{module}: --listen: cannot listen on {address}: {why}"])
