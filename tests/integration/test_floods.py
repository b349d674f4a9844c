"""Each process with 1,024 files, which is what most systems give, and 1,200 silent connections on one of its ports."""

import contextlib
import json
import os
import socket
import ssl
import sys
import time
import urllib.request
from datetime import UTC, datetime

import pytest
import trustme

from certs.files import ensure
from certs.pair import WantedPair
from runtime.process import raise_file_limit
from sandbox.demo.processes import clean_environ, free_port
from tests.support.worlds.processes import Children, until

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

    def __init__(self, children, folder, module, *more):
        self.certs = folder / "certs"
        ensure(self.certs, WantedPair(dns_names=("localhost",), days=1, ca_days=9), datetime.now(UTC))
        (folder / "kubeconfig").write_text(KUBECONFIG)
        self.plain, self.tls = free_port(), free_port()
        flags = {
            "webhook": ("--no-inventory", "--metrics-listen", f"127.0.0.1:{self.plain}", "--listen"),
            "controller": (
                "--kubeconfig", folder / "kubeconfig", "--listen", f"127.0.0.1:{self.plain}", "--preview-listen",
            ),
        }[module]  # fmt: skip
        argv = (sys.executable, "-m", module, "--cert-dir", self.certs, *flags, f"127.0.0.1:{self.tls}")
        limited = ["bash", "-c", f'ulimit -n {FILES}; exec "$@"', "limited", *map(str, argv), *more]
        environ = clean_environ(os.environ)
        self.child = children.start(f"{module}-{self.plain}", limited, env=environ, cwd=folder)
        until(module, self.why_not_serving, deadline_s=90, children=[self.child])

    def why_not_serving(self):
        try:
            self.greet()
            return "" if self.health() == "ok\n" else "not yet"
        except OSError as e:
            return str(e)

    def health(self, path="/healthz"):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.plain}{path}", timeout=8) as answer:
            return answer.read().decode()

    def session(self):
        """A TLS session, with the certificate of a client where there is one."""
        context = ssl.create_default_context(cafile=self.certs / "ca.crt")
        if (self.certs.parent / "client.pem").exists():
            context.load_cert_chain(self.certs.parent / "client.pem")
        plain = socket.create_connection(("127.0.0.1", self.tls), timeout=8)
        try:
            return context.wrap_socket(plain, server_hostname="localhost")
        except BaseException:
            plain.close()
            raise

    def greet(self):
        """Make a TLS session, and use it."""
        with self.session() as session:
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
                silent.append(socket.create_connection(("127.0.0.1", getattr(flooded, port)), timeout=8))
        for _ in range(3):
            assert flooded.health() == "ok\n"
            flooded.greet()
        name = "plain" if port == "plain" else {"webhook": "reviews", "controller": "trusted"}[module]
        dropped = f'cardshare_serving_dropped_connections_total{{port="{name}"}} '

        def too_few():
            figures = flooded.health("/metrics").splitlines()
            (found,) = [float(line.removeprefix(dropped)) for line in figures if line.startswith(dropped)]
            return "" if found >= SILENT - FILES else f"{found} dropped"

        until("its count", too_few, deadline_s=60.0)
        assert "Too many open files" not in flooded.child.log_tail(200)
        assert children.stop(flooded.child) == 0
    finally:
        for one in silent:
            one.close()
        children.close()


def dry_run(padding=0):
    pod = {
        "metadata": {"name": "p", "annotations": {"padding": "x" * padding}},
        "spec": {"containers": [{"name": "m", "resources": {"limits": {"volcano.sh/vgpu-number": "1"}}}]},
    }
    request = {
        "uid": "r",
        "kind": {"version": "v1", "kind": "Pod"},
        "operation": "CREATE",
        "object": pod,
        "dryRun": True,
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    body = json.dumps(review, separators=(",", ":")).encode()
    head = (
        f"POST /validate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


@pytest.fixture
def children(tmp_path):
    found = Children(tmp_path / "logs")
    yield found
    found.close()


def test_dry_runs_that_are_sent_ahead_while_a_preview_is_pending_are_not_kept(children, tmp_path):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "clients.crt")
    authority.issue_cert(common_name="kube-apiserver").private_key_and_cert_chain_pem.write_to_path(
        tmp_path / "client.pem"
    )
    with socket.create_server(("127.0.0.1", 0)) as silent:
        asked = f"https://127.0.0.1:{silent.getsockname()[1]}"
        known = ("--client-ca", str(tmp_path / "clients.crt"), "--client-name", "kube-apiserver")
        asks = ("--preview-url", asked, "--preview-ca", str(tmp_path / "clients.crt"))
        flooded = Flooded(children, tmp_path, "webhook", *known, *asks)
        before_mib = flooded.child.peak_rss_mib()
        many, sent, end_s = dry_run() * 1000, 0, time.monotonic() + 1.5
        with flooded.session() as session:
            session.settimeout(0.2)
            # More than is ever read ahead.
            while time.monotonic() < end_s or sent <= len(many):
                with contextlib.suppress(TimeoutError):
                    sent += session.send(many)
        assert flooded.child.peak_rss_mib() - before_mib < 40
        flooded.greet()
        assert children.stop(flooded.child) == 0


@pytest.mark.parametrize("sent", ["half a large body", "calls whose answers are not read"])
def test_what_many_connections_send_is_bounded_in_total(children, tmp_path, sent):
    flooded = Flooded(children, tmp_path, "webhook")
    body = dry_run(6 * 2**20)
    content = body[: len(body) // 2] if sent == "half a large body" else dry_run() * 5000
    opened = []
    try:
        for _ in range(500):
            one = flooded.session()
            opened.append(one)
            one.setblocking(False)
            with contextlib.suppress(OSError):
                for at in range(0, len(content), 65_536):
                    one.send(content[at : at + 65_536])
        flooded.greet()
        # The manifest allows 512, and an inventory takes up to 50 of them.
        assert flooded.child.peak_rss_mib() < 450
    finally:
        for one in opened:
            one.close()
    assert children.stop(flooded.child) == 0
