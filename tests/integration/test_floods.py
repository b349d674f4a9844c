"""Each process with 1,024 files, which is what most systems give, and 1,200 silent connections on one of its ports."""

import contextlib
import os
import socket
import ssl
import sys
import time
import urllib.request
from datetime import UTC, datetime
from pathlib import Path

import pytest

from certs.files import ensure
from certs.pair import Wanted
from runtime.process import raise_file_limit
from sandbox.demo.processes import free_port
from tests.support.processes import Children, until

ROOT = Path(__file__).parents[2]
FILES, SILENT = 1024, 1200
KUBECONFIG = """
current-context: here
contexts: [{name: here, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
"""


@pytest.fixture(scope="module", autouse=True)
def _files():
    if raise_file_limit() < SILENT + 200:
        pytest.skip("this process may not open so many files")


class Flooded:
    """A process that may open few files; none of what it serves is of use without a cluster, but all is served."""

    def __init__(self, children, folder, module):
        self.certs = folder / "certs"
        ensure(self.certs, Wanted(dns_names=("localhost",), days=1, ca_days=9), datetime.now(UTC))
        (folder / "kubeconfig").write_text(KUBECONFIG)
        self.plain, self.tls = free_port(), free_port()
        flags = {
            "webhook": ("--no-inventory", "--metrics-listen", f"127.0.0.1:{self.plain}", "--listen"),
            "controller": (
                "--kubeconfig", folder / "kubeconfig", "--listen", f"127.0.0.1:{self.plain}", "--preview-listen",
            ),
        }[module]  # fmt: skip
        argv = (sys.executable, "-m", module, "--cert-dir", self.certs, *flags, f"127.0.0.1:{self.tls}")
        limited = ["bash", "-c", f'ulimit -n {FILES}; exec "$@"', "limited", *map(str, argv)]
        environ = {**os.environ, "PYTHONSAFEPATH": "1", "PYTHONPATH": str(ROOT)}
        self.child = children.start(f"{module}-{self.plain}", limited, env=environ, cwd=folder)
        until(module, self.why_not_serving, deadline_s=30, children=[self.child])

    def why_not_serving(self):
        try:
            self.greet()
            return "" if self.health() == "ok\n" else "not yet"
        except OSError as e:
            return str(e)

    def health(self, path="/healthz"):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.plain}{path}", timeout=5) as answer:
            return answer.read().decode()

    def greet(self):
        """Make a TLS session."""
        context = ssl.create_default_context(cafile=self.certs / "ca.crt")
        with (
            socket.create_connection(("127.0.0.1", self.tls), timeout=5) as found,
            context.wrap_socket(found, server_hostname="localhost") as session,
        ):
            session.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert session.recv(100).startswith(b"HTTP/1.1 404 ")


@pytest.mark.parametrize("port", ["plain", "tls"])
@pytest.mark.parametrize("module", ["webhook", "controller"])
def test_silent_connections_keep_nobody_out(tmp_path, module, port):
    children = Children(tmp_path / "logs")
    silent = []
    try:
        flooded = Flooded(children, tmp_path, module)
        for _ in range(SILENT):
            with contextlib.suppress(OSError):
                silent.append(socket.create_connection(("127.0.0.1", getattr(flooded, port)), timeout=5))
        for _ in range(3):
            assert flooded.health() == "ok\n"
            flooded.greet()
            time.sleep(0.3)
        figures = flooded.health("/metrics")
        name = "plain" if port == "plain" else {"webhook": "reviews", "controller": "trusted"}[module]
        dropped = f'cardshare_serving_dropped_connections_total{{port="{name}"}} '
        (found,) = [float(line.removeprefix(dropped)) for line in figures.splitlines() if line.startswith(dropped)]
        assert found >= SILENT - FILES
        assert "Too many open files" not in flooded.child.log_tail(200)
        assert children.stop(flooded.child, grace_s=20) == 0
    finally:
        for one in silent:
            one.close()
        children.close()
