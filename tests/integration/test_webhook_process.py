"""The webhook as a process of its own, called over TLS as the API server calls it."""

import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from datetime import UTC, datetime
from pathlib import Path

import pytest

from certs.files import ensure
from certs.pair import WantedPair
from sandbox.demo.processes import clean_environ, free_port
from tests.support.worlds.processes import Children, until

ROOT = Path(__file__).parents[2]
WANTED = WantedPair(dns_names=("localhost",), days=30, ca_days=60)
JSON = {"Content-Type": "application/json"}
FILES = {"settings": "cardshare.yaml", "scheduler": "volcano-scheduler.conf", "devices": "device-config.yaml"}


OPENED: list[http.client.HTTPConnection] = []


@pytest.fixture(autouse=True)
def _closes_connections():
    yield
    while OPENED:
        OPENED.pop().close()


class Webhook:
    def __init__(self, children, folder, *flags):
        self.certs = folder / "certs"
        if not self.certs.exists():
            ensure(self.certs, WANTED, datetime.now(UTC))
        self.port, self.plain_port = free_port(), free_port()
        argv = [
            sys.executable, "-m", "webhook", "--listen", f"127.0.0.1:{self.port}",
            "--metrics-listen", f"127.0.0.1:{self.plain_port}", "--cert-dir", self.certs, "--no-inventory",
            "--drain-s", "1", *flags,
        ]  # fmt: skip
        environ = clean_environ(os.environ)
        self.child = children.start(f"webhook-{self.port}", argv, env=environ, cwd=folder)
        until("webhook", self.why_not_ready, deadline_s=90, children=[self.child])

    def why_not_ready(self):
        try:
            return "" if self.plain("/readyz") == "ok\n" else "not yet"
        except OSError as e:
            return str(e)

    def plain(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.plain_port}{path}", timeout=30) as answer:
            return answer.read().decode()

    def metric(self, name):
        # The sum over all labels: which of them there are depends on what was asked before.
        found = [line for line in self.plain("/metrics").splitlines() if line.startswith((f"{name} ", f"{name}{{"))]
        return sum(float(line.rpartition(" ")[2]) for line in found)

    def context(self):
        return ssl.create_default_context(cafile=self.certs / "ca.crt")

    def connection(self, context=None):
        found = http.client.HTTPSConnection("localhost", self.port, context=context or self.context(), timeout=60)
        OPENED.append(found)
        return found

    def call(self, body, path="/mutate?timeout=10s", method="POST", headers=JSON, connection=None):
        used = connection or self.connection()
        used.request(method, path, body, headers)
        with used.getresponse() as answer:
            found = answer.status, answer.read()
        if connection is None:
            used.close()
        return found

    def raw(self):
        return self.context().wrap_socket(
            socket.create_connection(("127.0.0.1", self.port), timeout=60), server_hostname="localhost"
        )


@pytest.fixture(scope="module")
def children(tmp_path_factory):
    found = Children(tmp_path_factory.mktemp("logs"))
    yield found
    found.close()


@pytest.fixture(scope="module")
def webhook(children, tmp_path_factory):
    return Webhook(children, tmp_path_factory.mktemp("webhook"))


def review(padding=0, **limits):
    pod = {
        "metadata": {"name": "p", "annotations": {"padding": "x" * padding}},
        "spec": {"containers": [{"name": "m", "resources": {"limits": limits or {"volcano.sh/vgpu-number": "1"}}}]},
    }
    request = {"uid": "r1", "kind": {"version": "v1", "kind": "Pod"}, "operation": "CREATE", "object": pod}
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


def allowed(answer):
    status, body = answer
    assert status == 200, body
    return json.loads(body)["response"]["allowed"]


def test_a_review_is_answered_over_tls(webhook):
    status, body = webhook.call(review())
    response = json.loads(body)["response"]
    assert (status, response["uid"], response["allowed"], response["patchType"]) == (200, "r1", True, "JSONPatch")


@pytest.mark.parametrize(
    ("method", "path", "headers", "body", "status"),
    [
        ("GET", "/mutate", JSON, None, 405),
        ("PUT", "/mutate", JSON, b"{}", 405),
        ("POST", "/", JSON, b"{}", 404),
        ("POST", "/mutate/", JSON, b"{}", 404),
        ("POST", "/mutate", {"Content-Type": "text/plain"}, b"{}", 415),
        ("POST", "/mutate", {}, b"{}", 415),
        ("POST", "/mutate", {**JSON, "Content-Encoding": "gzip"}, b"{}", 415),
        ("POST", "/mutate", JSON, b"", 400),
        ("POST", "/mutate", JSON, b"null", 400),
        ("POST", "/mutate", JSON, b"[" * 200_000, 400),
        ("POST", "/mutate", JSON, b"\xff\xfe", 400),
        ("POST", "/mutate", JSON, b'{"request":' + b"9" * 5_000, 400),
        ("POST", "/mutate", {**JSON, "X-Long": "x" * 9_000}, b"{}", 431),
        ("POST", "/mutate", {"Content-Type": "application/json; charset=utf-8"}, review(), 200),
        ("POST", "/validate", JSON, review(), 200),
    ],
)
def test_each_call_has_its_status(webhook, method, path, headers, body, status):
    assert webhook.call(body, path, method, headers)[0] == status
    assert allowed(webhook.call(review())), "and the process goes on"


def test_the_body_is_capped_while_it_is_read(webhook):
    fixed = len(review())
    cap = 7 * 2**20
    assert allowed(webhook.call(review(cap - fixed)))
    assert webhook.call(review(cap - fixed + 1))[0] == 413

    def endless():
        for _ in range(200):
            yield b" " * 65_536

    # Who does not say how long it is, as the API server always does, is told so before any of it is read.
    connection = webhook.connection()
    try:
        connection.request("POST", "/mutate", endless(), JSON, encode_chunked=True)
        with connection.getresponse() as answer:
            assert answer.status == 411
    except (BrokenPipeError, ConnectionResetError, ssl.SSLError):
        pass  # told and closed while we were still sending
    assert webhook.child.peak_rss_mib() < 140


def test_half_a_body_is_not_waited_for(webhook):
    took_s = []
    for _ in range(3):
        with webhook.raw() as found:
            found.sendall(
                b"POST /mutate?timeout=500ms HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                b"Content-Length: 1000\r\n\r\n{"
            )
            began = time.monotonic()
            assert found.recv(100).startswith(b"HTTP/1.1 408 ")
            took_s.append(time.monotonic() - began)
    # The least: what else runs on the machine may hold up one of them.
    assert min(took_s) < 5


def test_old_protocols_and_plain_text_are_refused(webhook):
    context = webhook.context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    assert allowed(webhook.call(review(), connection=webhook.connection(context)))
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    with pytest.raises(ssl.SSLError):
        webhook.call(review(), connection=webhook.connection(old))
    plain = http.client.HTTPConnection("127.0.0.1", webhook.port, timeout=60)
    OPENED.append(plain)
    with pytest.raises((http.client.HTTPException, OSError)):
        webhook.call(review(), connection=plain)


def test_a_connection_is_kept_and_used_again(webhook):
    connection = webhook.connection()
    for _ in range(3):
        assert allowed(webhook.call(review(), connection=connection))


def test_the_plain_port_tells_health_and_figures(webhook):
    assert webhook.plain("/healthz") == "ok\n"
    before = webhook.metric("cardshare_webhook_reviews_total")
    webhook.call(review())
    assert webhook.metric("cardshare_webhook_reviews_total") == before + 1
    assert webhook.metric("cardshare_webhook_certificate_expires_timestamp_seconds") > time.time()


def served(webhook):
    with webhook.raw() as found:
        return found.getpeercert(binary_form=True)


def wait_for(what, true):
    until(what, lambda: "" if true() else "not yet", deadline_s=90)


def test_a_changed_pair_is_served_and_a_broken_one_is_not(children, tmp_path):
    webhook = Webhook(children, tmp_path)
    kept = webhook.connection()
    assert allowed(webhook.call(review(), connection=kept))
    first = served(webhook)
    failures = "cardshare_webhook_reload_failures_total"

    (webhook.certs / "tls.crt").write_bytes(b"-----BEGIN CERT")
    wait_for("a refused pair", lambda: webhook.metric(failures) == 1)
    (webhook.certs / "tls.key").unlink()
    wait_for("a refused pair", lambda: webhook.metric(failures) == 2)
    assert served(webhook) == first
    assert webhook.plain("/readyz") == "ok\n"

    shutil.rmtree(webhook.certs)
    ensure(webhook.certs, WANTED, datetime.now(UTC))
    wait_for("the new pair", lambda: webhook.metric("cardshare_webhook_reloads_total") >= 1)
    assert served(webhook) != first
    assert allowed(webhook.call(review(), connection=kept)), "a connection that stood goes on"
    assert children.stop(webhook.child) == 0


def test_a_config_map_as_the_kubelet_mounts_it_is_followed_without_a_restart(children, tmp_path):
    """The kubelet exchanges a link to the folder of one version; the files are links through it."""
    mounted = tmp_path / "mounted"
    mounted.mkdir()

    def version(name, **texts):
        (mounted / f"..{name}").mkdir()
        for key, text in texts.items():
            (mounted / f"..{name}" / FILES[key]).write_text(text)
            if not (mounted / FILES[key]).is_symlink():
                (mounted / FILES[key]).symlink_to(Path("..data") / FILES[key])
        (mounted / "..data_tmp").symlink_to(f"..{name}")
        (mounted / "..data_tmp").rename(mounted / "..data")

    version("1", settings="dialects: [vgpu]\n", scheduler="", devices="nvidia: {}\n")
    webhook = Webhook(children, tmp_path, "--settings", mounted, "--device-config", mounted)
    assert allowed(webhook.call(review()))
    noted = "actions: 'enqueue, preempt'\n"
    version("2", settings="dialects: [gpu_memory]\n", scheduler=noted, devices="nvidia: {gpuMemoryFacto: 2}\n")
    wait_for("the new settings", lambda: not allowed(webhook.call(review())))
    assert webhook.metric("cardshare_webhook_configuration_notes") == 2
    refused = "cardshare_webhook_configuration_refused"
    for i, bad in enumerate(({"settings": "dialect: [vgpu]\n"}, {"devices": "nvidia: {gpuMemoryFactor: -1}\n"})):
        good = {"settings": "dialects: [gpu_memory]\n", "scheduler": noted, "devices": ""}
        version(f"bad{i}", **(good | bad))
        wait_for("the refusal", lambda: webhook.metric(refused) == 1)
        assert not allowed(webhook.call(review())), "the last good one stays in force"
        version(f"good{i}", **good)
        wait_for("the end of the refusal", lambda: webhook.metric(refused) == 0)
    version("3", settings="dialects: [vgpu]\n", scheduler=noted, devices="")
    wait_for("the last settings", lambda: allowed(webhook.call(review())))
    said = webhook.child.log_tail(100)
    assert said.count("action 'preempt': has no effect here") == 1
    assert said.count("did you mean 'dialects'?") == 1
    assert said.count("did you mean 'gpuMemoryFactor'?") == 1
    assert children.stop(webhook.child) == 0


def test_files_that_vanish_and_come_back_unchanged_are_refused_and_in_force_again(children, tmp_path):
    file = tmp_path / "settings.yaml"
    file.write_text("dialects: [vgpu]\n")
    webhook = Webhook(children, tmp_path, "--settings", file)
    for count in (1, 2):
        file.rename(tmp_path / "away")
        wait_for("the refusal", lambda: webhook.metric("cardshare_webhook_configuration_refused") == 1)
        assert webhook.metric("cardshare_webhook_reload_failures_total") == count
        assert allowed(webhook.call(review()))
        (tmp_path / "away").rename(file)
        wait_for("the end", lambda: webhook.metric("cardshare_webhook_configuration_refused") == 0)
    assert children.stop(webhook.child) == 0


def test_changed_settings_are_taken_and_broken_ones_are_not(children, tmp_path):
    file = tmp_path / "settings.yaml"
    file.write_text("dialects: [vgpu]\n")
    webhook = Webhook(children, tmp_path, "--settings", file)
    assert allowed(webhook.call(review()))
    file.write_text("dialects: [gpu_memory]\n")
    wait_for("the new settings", lambda: not allowed(webhook.call(review())))
    file.write_text("dialects: [no]\n")
    wait_for("the refusal", lambda: webhook.metric("cardshare_webhook_reload_failures_total") == 1)
    assert not allowed(webhook.call(review()))
    assert children.stop(webhook.child) == 0


def test_a_stop_answers_while_it_drains_and_ends_with_0(children, tmp_path):
    webhook = Webhook(children, tmp_path, "--drain-s", "8")
    kept = webhook.connection()
    assert allowed(webhook.call(review(), connection=kept))
    os.kill(webhook.child.pid, signal.SIGTERM)

    def draining():
        try:
            webhook.plain("/readyz")
        except urllib.error.HTTPError as e:
            with e:
                return e.code == 503 and e.read() == b"draining\n"
        return False

    wait_for("draining", draining)
    assert allowed(webhook.call(review(), connection=kept))
    assert allowed(webhook.call(review()))
    assert children.stop(webhook.child) == 0
    assert "webhook stopped" in webhook.child.log_tail()


def test_a_bad_configuration_ends_with_2_and_every_problem(tmp_path):
    settings = tmp_path / "settings.yaml"
    settings.write_text("polcy: 1\nschedule_weight: -1\n")
    ran = subprocess.run(
        [sys.executable, "-m", "webhook", "--cert-dir", tmp_path / "none", "--settings", settings],
        capture_output=True, text=True, timeout=120, cwd=ROOT, check=False,
    )  # fmt: skip
    assert ran.returncode == 2
    lines = [line for line in ran.stderr.splitlines() if line.startswith("webhook: ")]
    assert len(lines) == 3, ran.stderr


def test_a_kubeconfig_that_cannot_be_right_ends_with_2_unless_no_inventory_is_wanted(children, tmp_path):
    missing = tmp_path / "missing"
    ensure(tmp_path / "certs", WANTED, datetime.now(UTC))
    ran = subprocess.run(
        [sys.executable, "-m", "webhook", "--cert-dir", tmp_path / "certs", "--kubeconfig", missing],
        capture_output=True, text=True, timeout=120, cwd=ROOT, check=False,
    )  # fmt: skip
    told = f"webhook: kubeconfig {missing}: there is no such file; check the path; or give --no-inventory"
    assert (ran.returncode, ran.stderr.splitlines()) == (2, [told])
    webhook = Webhook(children, tmp_path, "--kubeconfig", missing)  # with --no-inventory, as all here
    assert allowed(webhook.call(review()))


def test_the_process_loads_no_client_library_and_no_numpy():
    code = (
        "import sys, webhook.__main__; "
        "print([name for name in ('kubernetes_asyncio', 'jsonpatch', 'numpy') if name in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd=ROOT, check=True
    )
    assert ran.stdout == "[]\n"
