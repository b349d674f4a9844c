"""The webhook's process: the end of a certificate, clients with one, slow ones, and a stop."""

import asyncio
import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import sys
import threading
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta

import pytest
import trustme

from certs.files import ensure
from certs.pair import WantedPair
from sandbox.demo.processes import clean_environ, free_port
from tests.support.worlds.processes import Children, until

DAYS_LEFT = "cardshare_webhook_certificate_days_left"
JSON = {"Content-Type": "application/json"}


def review(name="p", padding=0):
    pod = {
        "metadata": {"name": name, "annotations": {"padding": "x" * padding}},
        "spec": {"containers": [{"name": "m", "resources": {"limits": {"volcano.sh/vgpu-number": "1"}}}]},
    }
    request = {"uid": name, "kind": {"version": "v1", "kind": "Pod"}, "operation": "CREATE", "object": pod}
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


class Served:
    """A webhook with certificates for one day."""

    def __init__(self, children, folder, *flags, drain_s=1.0):
        self.certs = folder / "certs"
        self.make_certificates()
        self.port, self.plain_port = free_port(), free_port()
        argv = [
            sys.executable, "-m", "webhook", "--listen", f"127.0.0.1:{self.port}",
            "--metrics-listen", f"127.0.0.1:{self.plain_port}", "--cert-dir", self.certs, "--no-inventory",
            "--drain-s", drain_s, *flags,
        ]  # fmt: skip
        environ = clean_environ(os.environ)
        self.child = children.start(f"webhook-{self.port}", argv, env=environ, cwd=folder)
        until("webhook", self.is_up, deadline_s=90, children=[self.child])

    def make_certificates(self, ends_in=timedelta(days=1)):
        """Put others in their place, whose day ends so soon."""
        shutil.rmtree(self.certs, ignore_errors=True)
        made = datetime.now(UTC) - timedelta(days=1) + ends_in
        ensure(self.certs, WantedPair(dns_names=("localhost",), days=1, ca_days=9), made)

    def is_up(self):
        try:
            ready = self.ready()
        except OSError as e:
            return str(e)
        return "" if ready else "nothing said"

    def plain(self, path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.plain_port}{path}", timeout=30) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError as e:
            with e:
                return e.read().decode()

    def ready(self):
        return self.plain("/readyz").strip()

    def metric(self, name):
        found = [line for line in self.plain("/metrics").splitlines() if line.startswith(name)]
        return float(found[0].rpartition(" ")[2]) if found else 0.0

    def context(self):
        return ssl.create_default_context(cafile=self.certs / "ca.crt")

    def raw(self, context=None):
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        try:
            return (context or self.context()).wrap_socket(plain, server_hostname="localhost")
        except BaseException:
            plain.close()
            raise

    def call(self, body, context=None, headers=JSON):
        with contextlib.closing(
            http.client.HTTPSConnection("localhost", self.port, context=context or self.context(), timeout=60)
        ) as used:
            used.request("POST", "/mutate?timeout=10s", body, headers)
            with used.getresponse() as answer:
                return answer.status, answer.read()


@pytest.fixture(scope="module")
def children(tmp_path_factory):
    found = Children(tmp_path_factory.mktemp("logs"))
    yield found
    found.close()


def wait_for(what, true):
    until(what, lambda: "" if true() else "not yet", deadline_s=90)


def test_a_stop_loses_no_call(children, tmp_path):
    served = Served(children, tmp_path, drain_s=8)
    context, lost, answered = served.context(), [], []
    over = threading.Event()

    def keep_calling():
        connection = http.client.HTTPSConnection("localhost", served.port, context=context, timeout=60)
        while not over.is_set():
            try:
                connection.request("POST", "/mutate?timeout=10s", review(), JSON)
                with connection.getresponse() as answer:
                    answer.read()
                    answered.append(answer.status)
            except (OSError, http.client.HTTPException) as e:
                lost.append(repr(e))
        connection.close()

    threads = [threading.Thread(target=keep_calling) for _ in range(4)]
    for one in threads:
        one.start()
    wait_for("calls", lambda: len(answered) > 20)
    os.kill(served.child.pid, signal.SIGTERM)
    wait_for("draining", lambda: served.ready() == "draining")
    before = len(answered)
    # It goes on serving while others hear of it.
    wait_for("more calls", lambda: len(answered) > before + 20)
    over.set()
    for one in threads:
        one.join()
    assert lost == []
    assert set(answered) == {200}
    assert children.stop(served.child) == 0


def test_an_ended_certificate_is_not_served(children, tmp_path):
    served = Served(children, tmp_path)
    # Once the process is there: to start it may take longer.
    served.make_certificates(ends_in=timedelta(seconds=25))
    wait_for("the pair that ends soon", lambda: 0 < served.metric(DAYS_LEFT) < 0.001)
    assert served.call(review())[0] == 200
    assert "expires soon" in served.ready()
    with served.raw() as kept:
        wait_for("the end", lambda: "the certificate expired" in served.ready())
        trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE

        def refused():
            try:
                with served.raw(trusting):
                    return False
            except OSError:
                return True

        wait_for("a refusal", refused)
        assert "certificate expired" in served.child.log_tail()
        kept.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert kept.recv(100).startswith(b"HTTP/1.1 404 "), "who was let in is still answered"
    served.make_certificates()
    wait_for("a good one", lambda: served.ready() == "ok")

    def answered():
        try:
            return served.call(review())[0] == 200
        except OSError:
            return False

    wait_for("an answer", answered)
    assert children.stop(served.child) == 0


def client_context(served, authority, folder, identities=("apiserver.test",), common_name=None):
    leaf = authority.issue_cert(*identities, common_name=common_name)
    (folder / "client.pem").write_bytes(leaf.private_key_and_cert_chain_pem.bytes())
    context = served.context()
    context.load_cert_chain(folder / "client.pem")
    return context


def test_only_clients_of_the_named_authority_may_call(children, tmp_path):
    right, wrong = trustme.CA(), trustme.CA()
    right.cert_pem.write_to_path(tmp_path / "clients.pem")
    served = Served(children, tmp_path, "--client-ca", tmp_path / "clients.pem")
    assert served.call(review(), client_context(served, right, tmp_path))[0] == 200
    for context in (served.context(), client_context(served, wrong, tmp_path)):
        with pytest.raises((ssl.SSLError, OSError)):
            served.call(review(), context)
    assert served.ready() == "ok"
    wrong.cert_pem.write_to_path(tmp_path / "clients.pem")
    wait_for("the new authority", lambda: served.metric("cardshare_webhook_reloads_total") == 1)
    assert served.call(review(), client_context(served, wrong, tmp_path))[0] == 200
    with pytest.raises((ssl.SSLError, OSError)):
        served.call(review(), client_context(served, right, tmp_path))
    assert children.stop(served.child) == 0


def test_of_an_authority_only_clients_of_the_given_names_may_call(children, tmp_path):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "clients.pem")
    flags = ("--client-ca", tmp_path / "clients.pem", "--client-name", "front.test", "kube-apiserver")
    served = Served(children, tmp_path, *flags)
    right: list[tuple[tuple[str, ...], str | None]] = [(("x.test", "front.test"), None), ((), "kube-apiserver")]
    wrong: list[tuple[tuple[str, ...], str | None]] = [(("x.test",), None), (("kube@x.test",), "kube-apiserver-2")]
    for dns, common in right:
        assert served.call(review(), client_context(served, authority, tmp_path, dns, common))[0] == 200
    for dns, common in wrong:
        status, body = served.call(review(), client_context(served, authority, tmp_path, dns, common))[:2]
        assert status == 403
        assert b"no client of --client-name" in body
    assert served.metric('cardshare_serving_refused_calls_total{port="reviews",status="403"}') == 2
    assert served.ready() == "ok"
    assert children.stop(served.child) == 0


async def _slow(served, count):
    """Clients that each hold a connection and mean nothing by it."""
    context = served.context()
    opened = []
    half = b"POST /mutate?timeout=30s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9000\r\n"
    for i in range(count):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", served.port, ssl=context, server_hostname="localhost"
        )
        writer.write((b"", half, half + b"\r\n{")[i % 3])
        opened.append((reader, writer))
    return opened


@pytest.mark.may_block(reason="the calls beside the slow clients are made in a thread, the reading of metrics is not")
async def test_slow_clients_harm_nobody_and_are_bounded(children, tmp_path):
    served = await asyncio.to_thread(Served, children, tmp_path, "--max-connections", 40)
    opened = await _slow(served, 60)
    try:
        assert await asyncio.to_thread(served.metric, 'cardshare_serving_connections{port="reviews"}') <= 41
        assert (
            await asyncio.to_thread(served.metric, 'cardshare_serving_dropped_connections_total{port="reviews"}') >= 20
        )
        began = time.monotonic()
        for _ in range(20):
            assert (await asyncio.to_thread(served.call, review()))[0] == 200
        # Behind one of them, each would wait for 5 s.
        assert time.monotonic() - began < 60
    finally:
        for _, writer in opened:
            writer.close()
        for _, writer in opened:
            with contextlib.suppress(OSError, TimeoutError):
                await asyncio.wait_for(writer.wait_closed(), 5)
    assert await asyncio.to_thread(children.stop, served.child) == 0


def test_many_large_calls_take_turns_and_memory_stays_bounded(children, tmp_path):
    served = Served(children, tmp_path)
    context, body, statuses = served.context(), review(padding=6 * 2**20), []

    def call():
        statuses.append(served.call(body, context)[0])

    threads = [threading.Thread(target=call) for _ in range(24)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert statuses == [200] * 24
    assert served.child.peak_rss_mib() < 180
    assert children.stop(served.child) == 0


def test_calls_in_one_packet_are_answered_in_order(children, tmp_path):
    served = Served(children, tmp_path)
    head = b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    bodies = [review(f"p{i}") for i in range(5)]
    with served.raw() as found:
        found.sendall(b"".join(head % len(body) + body for body in bodies))
        received = b""
        while received.count(b'"uid"') < 5:
            received += found.recv(65_536)
    at = [received.index(f'"uid":"p{i}"'.encode()) for i in range(5)]
    assert at == sorted(at)
    assert children.stop(served.child) == 0
