"""A kube-apiserver with its etcd, for tests: ready in seconds, on loopback only, gone with the tests.

    async with RealApi(find(os.environ), logs=folder) as api:
        ... api.url, api.ca_file, api.admin_token, api.kubeconfig ...

RBAC is on and service accounts get tokens. The admission plugins TaintNodesByCondition and ServiceAccount are off: the
first taints every new node until a node lifecycle controller says otherwise, the second wants a controller manager to
make service accounts, and neither runs here. Where the binaries come from is left to
`tests.support.servers.realapi_binaries`.

By hand: `python -m tests.support.servers.realapi --serve --kubeconfig-out F`.
"""

import argparse
import asyncio
import base64
import http.client
import json
import os
import random
import secrets
import shutil
import socket
import ssl
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from certs.authority import Leaf, issue, new_authority
from sandbox.cluster import API_SERVER
from tests.support.servers.realapi_binaries import Binaries, RealApiUnavailable, cache_folder, find_or_build
from tests.support.worlds.processes import Child, Children, until

READY_WITHIN_S: Final = 180.0
_HOST: Final = "127.0.0.1"
_SHM: Final = Path("/dev/shm")
_SHM_BYTES_WANTED: Final = 2 * 2**30
_STARTS: Final = 3
# Below the ports that the kernel hands to connections (32768 and up on Linux): a server that was stopped for a
# while finds its port free again.
_PORTS: Final = range(20_000, 32_000)
_DISABLED_ADMISSION: Final = "TaintNodesByCondition,ServiceAccount"
# Of kube-controller-manager: what makes and ends pods, counts them for quotas, and clears up after its owners.
_CONTROLLERS: Final = (
    "deployment-controller",
    "replicaset-controller",
    "statefulset-controller",
    "daemonset-controller",
    "job-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "resourcequota-controller",
)


def admission_configuration(kubeconfig: str) -> dict[str, Any]:
    """What has an API server show webhooks the client certificate in *kubeconfig*."""
    group = "apiserver.config.k8s.io/v1"
    shown = {"apiVersion": group, "kind": "WebhookAdmissionConfiguration", "kubeConfigFile": kubeconfig}
    names = ("MutatingAdmissionWebhook", "ValidatingAdmissionWebhook")
    plugins = [{"name": name, "configuration": shown} for name in names]
    return {"apiVersion": group, "kind": "AdmissionConfiguration", "plugins": plugins}


def webhook_kubeconfig(certificate: str, key: str) -> dict[str, Any]:
    """The certificate and its key, in base64, for every webhook."""
    user = {"client-certificate-data": certificate, "client-key-data": key}
    return {"apiVersion": "v1", "kind": "Config", "users": [{"name": "*", "user": user}]}


class RealApi:
    """One API server with its etcd. Make it, `start` it (or `async with`), `stop` it; it belongs to no event loop."""

    def __init__(self, binaries: Binaries, *, logs: Path, apiserver_args: tuple[str, ...] = ()) -> None:
        """Nothing is started yet.

        Args:
            binaries: what to run.
            logs: folder for `etcd.log`, `kube-apiserver.log` and others; made, and kept.
            apiserver_args: added to the API server's arguments; the last of two equal flags wins.
        """
        self.binaries = binaries
        self.logs = logs
        self.admin_token = secrets.token_hex(16)
        self.url = ""
        self.ready_after_s = 0.0
        self._apiserver_args = apiserver_args
        self._children: Children | None = None
        self._folder = Path()
        self._port = 0
        self._etcd_port = 0
        self._etcd: Child | None = None
        self._apiserver: Child | None = None
        self._context: ssl.SSLContext | None = None

    async def __aenter__(self) -> "RealApi":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def ca_file(self) -> Path:
        """The authority of the server's certificate, PEM."""
        return self._folder / "ca.crt"

    @property
    def kubeconfig(self) -> Path:
        """A kubeconfig of a member of system:masters."""
        return self._folder / "admin.kubeconfig"

    @property
    def children(self) -> Children:
        """For further processes that are to end before the server does; their logs go to the same folder."""
        assert self._children is not None, "start() comes first"
        return self._children

    @property
    def apiserver(self) -> Child:
        """The running kube-apiserver, for its CPU and memory."""
        assert self._apiserver is not None, "the API server is not running"
        return self._apiserver

    @property
    def etcd(self) -> Child:
        """The running etcd, for its CPU and memory."""
        assert self._etcd is not None, "etcd is not running"
        return self._etcd

    async def start(self) -> None:
        """Start etcd and the API server and return when it is ready.

        Raises:
            RuntimeError: it did not become ready; the text quotes the logs. Nothing is left running.
        """
        await asyncio.to_thread(self._start)

    async def stop(self) -> None:
        """End all processes and remove all data but the logs. Twice does no harm."""
        await asyncio.to_thread(self._stop)

    async def stop_apiserver(self) -> None:
        """Let the API server be away: connections are refused until `start_apiserver`. etcd keeps its data."""
        await asyncio.to_thread(self._stop_apiserver)

    async def start_apiserver(self) -> None:
        """Bring the API server back on the same address with the same data, certificates and tokens."""
        await asyncio.to_thread(self._start_apiserver)

    async def compact(self) -> int:
        """Forget all of etcd's history up to now and return the revision, which is the oldest that can be read.

        The API server's watch cache still answers for what it saw; `stop_apiserver` and `start_apiserver` empty it.
        Source: etcd v3.6 gRPC gateway, KV.Compact and Maintenance.Status.
        """
        return await asyncio.to_thread(self._compact)

    async def token_for(self, service_account: str, namespace: str, *, expiration_s: int = 3600) -> str:
        """A token of an existing service account, by TokenRequest; the server allows no less than 600 seconds.

        Raises:
            RuntimeError: the server refused.
        """
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{service_account}/token"
        answer = await asyncio.to_thread(self._call, "POST", path, {"spec": {"expirationSeconds": expiration_s}})
        return str(answer["status"]["token"])

    def write_kubeconfig(self, path: Path, token: str) -> Path:
        """Write a kubeconfig that logs in with *token*, readable by its owner only, and return *path*."""
        ca = base64.b64encode(self.ca_file.read_bytes()).decode()
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "realapi",
            "clusters": [{"name": "realapi", "cluster": {"server": self.url, "certificate-authority-data": ca}}],
            "users": [{"name": "realapi", "user": {"token": token}}],
            "contexts": [{"name": "realapi", "context": {"cluster": "realapi", "user": "realapi"}}],
        }
        _write_private(path, json.dumps(config).encode())
        return path

    async def start_scheduler(self, *, requests_per_s: int = 5_000) -> Child:
        """Start kube-scheduler as an administrator, to compare with; ends with the server, or by `stop_child`.

        Raises:
            RealApiUnavailable: there is no kube-scheduler.
            RuntimeError: it did not become ready.
        """
        return await asyncio.to_thread(self._start_scheduler, requests_per_s)

    async def start_controller_manager(self, *flags: str, more: Sequence[str] = ()) -> Child:
        """Start kube-controller-manager as an administrator, which runs workloads, quotas, garbage and namespaces.

        What judges nodes is left out: nobody here beats as kubelets do. Ends with the server, or by `stop_child`.
        more: further controllers.

        Raises:
            RealApiUnavailable: there is no kube-controller-manager.
            RuntimeError: it did not become ready.
        """
        return await asyncio.to_thread(self._start_controller_manager, flags, more)

    async def stop_child(self, child: Child) -> None:
        """End a process that runs beside the server."""
        await asyncio.to_thread(self.children.stop, child)

    def _start(self) -> None:
        begun_s = time.monotonic()
        self._children = Children(self.logs)
        try:
            self._folder = Path(tempfile.mkdtemp(prefix="cardshare-realapi-", dir=_data_parent()))
            self._children.keep_folder(self._folder)
            self._write_credentials()
            self._start_etcd()
            self._start_apiserver()
        except BaseException:
            self._stop()
            raise
        self.ready_after_s = time.monotonic() - begun_s

    def _stop(self) -> None:
        if self._children is not None:
            self._children.close()
        self._apiserver = self._etcd = None

    def _write_credentials(self) -> None:
        now = datetime.now(UTC)
        authority = new_authority("cardshare test authority", 2, now)
        names = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
        leaf = issue(authority, names, (_HOST, "10.0.0.1"), 2, now)
        # In this format the file serves as the public key too; in PKCS8 the server finds none in it.
        signing_key = ec.generate_private_key(ec.SECP256R1()).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
        self.ca_file.write_bytes(authority.cert_pem)
        (self._folder / "tls.crt").write_bytes(leaf.cert_pem)
        _write_private(self._folder / "tls.key", leaf.key_pem)
        _write_private(self._folder / "sa.key", signing_key)
        # Source: Kubernetes documentation, "Static token file": token, user, uid, "group,...".
        _write_private(self._folder / "tokens.csv", f'{self.admin_token},admin,admin,"system:masters"\n'.encode())
        self._context = ssl.create_default_context(cafile=str(self.ca_file))
        self._write_admission(issue(authority, (API_SERVER,), (), 2, now, for_client=True))

    def _write_admission(self, client: Leaf) -> None:
        """Have the server show *client* to every webhook that asks who calls, as docs/operators/webhook.md tells."""
        shown = webhook_kubeconfig(*(base64.b64encode(pem).decode() for pem in (client.cert_pem, client.key_pem)))
        kubeconfig = self._folder / "webhooks.kubeconfig"
        _write_private(kubeconfig, json.dumps(shown).encode())
        admission = admission_configuration(str(kubeconfig))
        (self._folder / "admission.json").write_text(json.dumps(admission), encoding="utf-8")

    def _start_etcd(self) -> None:
        for attempt in range(1, _STARTS + 1):
            self._etcd_port, peer_port = _free_ports(2)
            client, peer = f"http://{_HOST}:{self._etcd_port}", f"http://{_HOST}:{peer_port}"
            self._etcd = self.children.start(
                "etcd",
                [
                    self.binaries.etcd,
                    "--name=tests",
                    f"--data-dir={self._folder / 'etcd'}",
                    f"--listen-client-urls={client}",
                    f"--advertise-client-urls={client}",
                    f"--listen-peer-urls={peer}",
                    f"--initial-advertise-peer-urls={peer}",
                    f"--initial-cluster=tests={peer}",
                    "--log-level=warn",
                    "--unsafe-no-fsync",
                ],
                env=_environment(self._folder),
            )
            try:
                until("etcd", self._etcd_not_ready, deadline_s=READY_WITHIN_S, children=(self._etcd,))
            except RuntimeError:
                if attempt == _STARTS or not _port_was_taken(self.children, self._etcd):
                    raise
                shutil.rmtree(self._folder / "etcd", ignore_errors=True)
            else:
                return

    def _start_apiserver(self) -> None:
        # Chosen once: whoever holds the address finds the server there again after an outage.
        chosen = self._port != 0
        for attempt in range(1, _STARTS + 1):
            if not chosen:
                (self._port,) = _free_ports(1)
                self.url = f"https://{_HOST}:{self._port}"
                self.write_kubeconfig(self.kubeconfig, self.admin_token)
            self._apiserver = self.children.start(
                "kube-apiserver", self._apiserver_argv(), env=_environment(self._folder)
            )
            watched = (self._apiserver, self.etcd)
            try:
                until("kube-apiserver", self._apiserver_not_ready, deadline_s=READY_WITHIN_S, children=watched)
            except RuntimeError:
                if chosen or attempt == _STARTS or not _port_was_taken(self.children, self._apiserver):
                    raise
            else:
                return

    def _apiserver_argv(self) -> list[str | Path]:
        folder = self._folder
        return [
            self.binaries.kube_apiserver,
            f"--etcd-servers=http://{_HOST}:{self._etcd_port}",
            f"--bind-address={_HOST}",
            f"--advertise-address={_HOST}",
            f"--secure-port={self._port}",
            f"--tls-cert-file={folder / 'tls.crt'}",
            f"--tls-private-key-file={folder / 'tls.key'}",
            f"--cert-dir={folder}",
            f"--token-auth-file={folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--endpoint-reconciler-type=none",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={folder / 'sa.key'}",
            f"--service-account-signing-key-file={folder / 'sa.key'}",
            f"--disable-admission-plugins={_DISABLED_ADMISSION}",
            f"--admission-control-config-file={folder / 'admission.json'}",
            *self._apiserver_args,
        ]

    def _stop_apiserver(self) -> None:
        self.children.stop(self.apiserver, grace_s=10.0)
        self._apiserver = None

    def _compact(self) -> int:
        status = _call_etcd(self._etcd_port, "/v3/maintenance/status", {})
        revision = int(status["header"]["revision"])
        _call_etcd(self._etcd_port, "/v3/kv/compaction", {"revision": str(revision), "physical": True})
        return revision

    def _start_scheduler(self, requests_per_s: int) -> Child:
        if self.binaries.kube_scheduler is None:
            raise RealApiUnavailable("kube-scheduler not found; name it with KUBE_SCHEDULER")
        config = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {
                "kubeconfig": str(self.kubeconfig),
                "qps": requests_per_s,
                "burst": requests_per_s,
            },
        }
        config_file = self._folder / "scheduler.json"
        config_file.write_text(json.dumps(config), encoding="utf-8")
        flags = (f"--config={config_file}",)
        return self._start_component("kube-scheduler", self.binaries.kube_scheduler, flags, "/readyz")

    def _start_controller_manager(self, flags: Sequence[str], more: Sequence[str]) -> Child:
        if self.binaries.kube_controller_manager is None:
            raise RealApiUnavailable("kube-controller-manager not found; name it with KUBE_CONTROLLER_MANAGER")
        ours = (
            f"--kubeconfig={self.kubeconfig}",
            f"--controllers={','.join((*_CONTROLLERS, *more))}",
            "--leader-elect=false",
            "--kube-api-qps=500",
            "--kube-api-burst=500",
            *flags,
        )
        binary = self.binaries.kube_controller_manager
        return self._start_component("kube-controller-manager", binary, ours, "/healthz")

    def _start_component(self, name: str, binary: Path, flags: tuple[str, ...], ready: str) -> Child:
        """Start what is a client of the server and serves its own health at *ready*, and wait for that."""
        (port,) = _free_ports(1)
        child = self.children.start(
            name,
            [
                binary,
                f"--authentication-kubeconfig={self.kubeconfig}",
                f"--authorization-kubeconfig={self.kubeconfig}",
                f"--bind-address={_HOST}",
                f"--secure-port={port}",
                f"--tls-cert-file={self._folder / 'tls.crt'}",
                f"--tls-private-key-file={self._folder / 'tls.key'}",
                *flags,
            ],
            env=_environment(self._folder),
        )
        until(name, lambda: self._not_ready(port, ready), deadline_s=READY_WITHIN_S, children=(child,))
        return child

    def _etcd_not_ready(self) -> str:
        try:
            _call_etcd(self._etcd_port, "/v3/maintenance/status", {})
        except (OSError, http.client.HTTPException, RuntimeError) as e:
            return str(e) or repr(e)
        return ""

    def _apiserver_not_ready(self) -> str:
        if why_not := self._not_ready(self._port):
            return why_not
        # Made by hooks that /readyz does not wait for, one after the other.
        for path in ("/api/v1/namespaces/default", "/api/v1/namespaces/default/services/kubernetes"):
            status, _ = self._exchange(self._port, "GET", path, None, self.admin_token)
            if status != 200:
                return f"{path} is not there"
        return ""

    def _not_ready(self, port: int, path: str = "/readyz") -> str:
        """Ask as anybody may: that the answer is not 403 shows RBAC's own rules to be in place too."""
        try:
            status, text = self._exchange(port, "GET", path, None, None)
        except (OSError, http.client.HTTPException) as e:
            return str(e) or repr(e)
        return "" if status == 200 else text[-1000:].decode(errors="replace")

    def _call(self, verb: str, path: str, body: object) -> Any:
        status, answer = self._exchange(self._port, verb, path, body, self.admin_token)
        if not 200 <= status < 300:
            raise RuntimeError(f"{verb} {path}: {status}: {answer[:1000].decode(errors='replace')}")
        return json.loads(answer)

    def _exchange(self, port: int, verb: str, path: str, body: object, token: str | None) -> tuple[int, bytes]:
        connection = http.client.HTTPSConnection(_HOST, port, timeout=30, context=self._context)
        try:
            headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
            connection.request(verb, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


def _call_etcd(port: int, path: str, body: object) -> Any:
    connection = http.client.HTTPConnection(_HOST, port, timeout=30)
    try:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
    finally:
        connection.close()
    if answer.status != 200:
        raise RuntimeError(f"etcd {path}: {answer.status}: {text[:500].decode(errors='replace')}")
    return json.loads(text)


def _port_was_taken(children: Children, child: Child) -> bool:
    children.stop(child)
    return "address already in use" in child.log_tail()


def _free_ports(count: int) -> tuple[int, ...]:
    """Ports of loopback that nothing listens on; another process may still be quicker, hence the second attempts."""
    free: list[int] = []
    for port in random.sample(_PORTS, len(_PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind((_HOST, port))
            except OSError:
                continue
        free.append(port)
        if len(free) == count:
            return tuple(free)
    raise RuntimeError(f"no {count} free ports between {_PORTS.start} and {_PORTS.stop} on {_HOST}")


def _data_parent() -> Path | None:
    """A memory disk where there is one with room for a test's etcd, or else where temporary files go."""
    try:
        roomy = shutil.disk_usage(_SHM).free >= _SHM_BYTES_WANTED
    except OSError:
        return None
    return _SHM if roomy and os.access(_SHM, os.W_OK) else None


def _environment(home: Path) -> dict[str, str]:
    """Little of the tests' own environment: a proxy there would take the server's calls to webhooks away."""
    kept = {name: os.environ[name] for name in ("PATH", "GOGC") if name in os.environ}
    return {"PATH": os.defpath, **kept, "HOME": str(home), "TMPDIR": str(home)}


def _write_private(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)


def _print_binaries(binaries: Binaries) -> None:
    for name in (field.name for field in fields(binaries)):
        path = getattr(binaries, name)
        size = f"{path.stat().st_size / 1e6:.0f} MB" if path else ""
        sys.stdout.write(f"{name.replace('_', '-')}: {path or 'not found'} {size}\n")


async def _serve(binaries: Binaries, kubeconfig_out: Path) -> None:
    logs = Path(tempfile.mkdtemp(prefix="cardshare-realapi-logs-"))
    async with RealApi(binaries, logs=logs) as api:
        api.write_kubeconfig(kubeconfig_out, api.admin_token)
        sys.stdout.write(
            f"ready after {api.ready_after_s:.1f} s at {api.url}; kubeconfig {kubeconfig_out}; logs {logs}\n"
        )
        sys.stdout.flush()
        await asyncio.Event().wait()


def main(argv: list[str]) -> int:
    """The command; see `--help`."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.servers.realapi", description="A real API server for tests."
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--build", action="store_true", help="build what is missing, print where the binaries are")
    what.add_argument("--serve", action="store_true", help="run until interrupted")
    parser.add_argument("--kubeconfig-out", type=Path, metavar="F", help="with --serve: where to write a kubeconfig")
    options = parser.parse_args(argv)
    if options.serve and options.kubeconfig_out is None:
        parser.error("--serve needs --kubeconfig-out F")
    begun_s = time.monotonic()
    try:
        binaries = find_or_build(os.environ)
    except RealApiUnavailable as e:
        sys.stderr.write(f"realapi: {e.reason}\n")
        return 1
    if options.build:
        _print_binaries(binaries)
        sys.stdout.write(f"cache: {cache_folder(os.environ)}\nafter {time.monotonic() - begun_s:.1f} s\n")
        return 0
    try:
        asyncio.run(_serve(binaries, options.kubeconfig_out))
    except KeyboardInterrupt:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
