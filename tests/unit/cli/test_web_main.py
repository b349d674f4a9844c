"""How the process of the page ends if it cannot begin."""

import socket
import subprocess
import sys
from datetime import UTC, datetime

from certs.files import ensure
from certs.pair import WantedPair

KUBECONFIG = """
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
"""


def test_a_port_that_is_taken_is_one_line(tmp_path):
    (tmp_path / "config").write_text(KUBECONFIG)
    ensure(tmp_path / "certs", WantedPair(dns_names=("localhost",), days=2, ca_days=9), datetime.now(UTC))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        files = ("--cert-dir", str(tmp_path / "certs"), "--kubeconfig", str(tmp_path / "config"))
        command = (sys.executable, "-m", "cli.web", "--listen", listen, "--metrics-listen", "127.0.0.1:0", *files)
        ended = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    (line,) = [line for line in ended.stderr.splitlines() if not line.startswith("{")]
    assert line.startswith(f"web: --listen: cannot listen on {listen}: ")
    assert ended.returncode == 2
