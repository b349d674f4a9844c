"""python -m certs as a process, and its files in a handshake over a real socket."""

import os
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from threading import Thread

import pytest


def run(*argv: str, **environ: str) -> subprocess.CompletedProcess[str]:
    # Nothing but what the test says: a CARDSHARE_ variable of the shell must not take part.
    clean = {"PATH": os.environ["PATH"], "PYTHONSAFEPATH": "1", **environ}
    return subprocess.run(
        [sys.executable, "-m", "certs", *argv],
        env=clean,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def ensure(directory: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return run("ensure", "--dir", str(directory), "--service", "web", "--namespace", "cards", *more)


def handshake(directory: Path, name: str) -> str:
    """Serve the directory's pair once on loopback; the TLS version that a strict client agreed on for *name*."""
    server_context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server_context.load_cert_chain(directory / "tls.crt", directory / "tls.key")
    client_context = ssl.create_default_context(cafile=str(directory / "ca.crt"))
    client_context.verify_flags |= ssl.VERIFY_X509_STRICT
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                try:
                    with server_context.wrap_socket(connection, server_side=True) as tls:
                        tls.recv(1)
                except OSError:
                    return  # the client refused us: its side of the test says so

        thread = Thread(target=serve)
        thread.start()
        try:
            with (
                socket.create_connection(listener.getsockname(), timeout=10) as plain,
                client_context.wrap_socket(plain, server_hostname=name) as tls,
            ):
                return tls.version() or ""
        finally:
            thread.join(timeout=10)


def test_a_strict_client_trusts_the_files_under_every_name_and_no_other(tmp_path):
    done = ensure(tmp_path, "--dns", "localhost", "--ip", "127.0.0.1")
    assert done.returncode == 0, done.stderr
    for name in ("web", "web.cards", "web.cards.svc", "web.cards.svc.cluster.local", "localhost", "127.0.0.1"):
        assert handshake(tmp_path, name) == "TLSv1.3"
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(tmp_path, "web.other.svc")


def test_a_second_run_keeps_every_byte_and_says_so(tmp_path):
    ensure(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    again = ensure(tmp_path)
    assert again.returncode == 0
    assert "good: expires in" in again.stdout
    assert "made" not in again.stdout
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_wrong_flags_exit_2_with_every_problem():
    done = run("ensure", "--ip", "nowhere", "--days", "-1")
    assert done.returncode == 2
    for flag in ("--dir", "--ip", "--days"):
        assert f"certs: {flag} " in done.stderr


def test_a_directory_that_cannot_be_made_is_one_clear_line(tmp_path):
    (tmp_path / "file").write_text("")
    done = ensure(tmp_path / "file" / "certs")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "it is no directory; name one" in done.stderr


def test_no_key_is_printed(tmp_path):
    done = ensure(tmp_path)
    assert "PRIVATE" not in done.stdout + done.stderr
