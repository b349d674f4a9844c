"""The real API server is asked to create pods all the time (dry runs) while processes change the certificates.

From the layout of former versions to that of today, through a renewal and a change of authority at two thirds of their
lives, and a rotation by hand. Two webhooks read their Secret as kubelets mount it, one a moment after it was written
and one seconds later, so that pairs of both authorities are served at once.
"""

import asyncio
import base64
import ssl
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.support.servers.balancer import balancer
from tests.support.servers.creating import Creating, creating, until_completed
from tests.support.servers.mounted import MountedSecret
from tests.support.servers.realapi import RealApi
from tests.support.servers.rest import Rest, eventually
from tests.support.servers.rollout import Rollout
from tests.support.worlds.processes import Child

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
LIFE_S = 900.0
# By then, on however slow a machine, two webhooks serve the first pair, and it has been looked at.
PAIR_DUE_IN_S = 80.0
AUTHORITY_DUE_IN_S = 110.0
LAGS_S = (0.3, 5.0)
SECRETS = ("ca", "tls", "asked")
PAIR = ("tls.crt", "tls.key", "ca.crt")
# How late another API server may learn of a bundle, and how long until what it has learnt is too old to be judged by.
LATE_S, TOO_LATE_S = 1.0, 2.5
WITHIN_S = 180.0


def made(name: str, due: datetime, issuer: tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None):
    """A certificate two thirds of whose life are over at *due*, and its key; an authority, or signed by *issuer*."""
    key = ec.generate_private_key(ec.SECP256R1())
    begin = due - timedelta(seconds=LIFE_S * 2 / 3)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer[0].subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + timedelta(seconds=LIFE_S))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    if issuer:
        names = x509.SubjectAlternativeName([x509.DNSName(name)])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(issuer[1] if issuer else key, hashes.SHA256()), key


def former_layout(now: datetime) -> dict[str, bytes]:
    """One Secret: a pair, the authority, and the key of that beside it."""
    authority = made("cardshare webhook CA", now + timedelta(seconds=AUTHORITY_DUE_IN_S), None)
    pair = made("localhost", now + timedelta(seconds=PAIR_DUE_IN_S), authority)
    pem, own = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    found = {"ca.crt": authority[0].public_bytes(pem), "tls.crt": pair[0].public_bytes(pem)}
    for name, (_, key) in (("ca.key", authority), ("tls.key", pair)):
        found[name] = key.private_bytes(pem, own, serialization.NoEncryption())
    return found


def encoded(parts: dict[str, bytes]) -> dict[str, str]:
    return {name: base64.b64encode(content).decode() for name, content in parts.items()}


def configuration(namespace: str, port: int, ca_pem: bytes) -> dict[str, object]:
    entry = {
        "name": "certificates.cardshare.io",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": f"https://localhost:{port}/mutate", "caBundle": base64.b64encode(ca_pem).decode()},
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "timeoutSeconds": 10,
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
    }
    return {"metadata": {"name": f"certificates-{namespace}"}, "webhooks": [entry]}


class Cluster:
    """What the test sees of the Secrets, the bundle, and the ports of the webhooks."""

    def __init__(self, realapi: RealApi, admin: Rest, namespace: str) -> None:
        self.realapi, self.admin, self.namespace = realapi, admin, namespace
        self.secrets = f"/api/v1/namespaces/{namespace}/secrets"
        self.configuration = f"{CONFIGURATIONS}/certificates-{namespace}"
        self.ports: list[int] = []
        self.refused: list[object] = []
        self.handshakes = 0

    async def held(self) -> dict[str, dict[str, bytes]]:
        found = {name: (await self.admin.get(f"{self.secrets}/{name}")).body.get("data", {}) for name in SECRETS}
        return {name: {key: base64.b64decode(text) for key, text in data.items()} for name, data in found.items()}

    async def bundle(self) -> bytes:
        found = (await self.admin.get(self.configuration)).body
        return base64.b64decode(found["webhooks"][0]["clientConfig"]["caBundle"])

    def start(self, command: str, *more: str) -> Child:
        """``python -m certs`` on this cluster."""
        argv = [sys.executable, "-m", "certs", command, "--kubeconfig", str(self.realapi.kubeconfig)]
        argv += ["--namespace", self.namespace, "--dns", "localhost", "--ca-secret", "ca", "--secret", "tls"]
        argv += ["--pair", "asked=asked.example.org", "--webhook", f"certificates-{self.namespace}", *more]
        return self.realapi.children.start(f"certs-{command}-{self.namespace}", argv)

    async def finish(self, command: str) -> str:
        child = await asyncio.to_thread(self.start, command)
        await eventually(lambda: _code(child), lambda code: code is not None, deadline_s=WITHIN_S)
        assert child.exit_code == 0, child.log_tail()
        return child.log_tail()

    async def until_held(self, good: Callable[[dict[str, dict[str, bytes]]], bool]) -> dict[str, dict[str, bytes]]:
        return await eventually(self.held, good, deadline_s=WITHIN_S)

    async def until_served(self) -> None:
        """Wait until every webhook serves the pair of its Secret, which may be renewed meanwhile."""
        for port in self.ports:
            await eventually(partial(self._both, port), lambda found: found[0] == found[1], deadline_s=WITHIN_S)

    async def _both(self, port: int) -> tuple[bytes, bytes | None]:
        """The certificate that the Secret holds, and the one that is shown at a port, DER."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        pem = (await self.held())["tls"]["tls.crt"]
        return ssl.PEM_cert_to_DER_cert(pem.decode()), await _handshake(port, context)

    async def probe(self) -> None:
        """Do as an API server that learns of the bundle later: shake hands with each webhook, again and again."""
        while True:
            learnt_at = time.monotonic()
            bundle = await self.bundle()
            await asyncio.sleep(LATE_S)
            context = ssl.create_default_context(cadata=bundle.decode())
            for port in self.ports:
                try:
                    await _handshake(port, context)
                except ssl.SSLError as e:
                    if time.monotonic() - learnt_at < TOO_LATE_S:
                        self.refused.append(e)
                else:
                    self.handshakes += 1


class Keeper:
    """``certs run``, once it was started."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._child: Child | None = None

    async def start(self) -> None:
        flags = ("--every", "0.5", "--metrics-listen", "127.0.0.1:0")
        self._child = await asyncio.to_thread(self._cluster.start, "run", *flags)

    async def stop(self) -> int | None:
        """Its exit code; None where it never was."""
        if self._child is None:
            return None
        return await asyncio.to_thread(self._cluster.realapi.children.stop, self._child)


async def _handshake(port: int, context: ssl.SSLContext) -> bytes | None:
    """The certificate that is shown, DER."""
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return bytes(shown)


async def _code(child: Child) -> int | None:
    return child.exit_code


@pytest.mark.slow
async def test_no_create_is_lost_from_the_former_layout_through_renewal_and_rotation(
    realapi: RealApi, admin: Rest, namespace: str, tmp_path
):
    cluster = Cluster(realapi, admin, namespace)
    former = former_layout(datetime.now(UTC))
    await admin.made(cluster.secrets, {"metadata": {"name": "tls"}, "data": encoded(former)})
    mounts = [
        MountedSecret(admin, f"{cluster.secrets}/tls", tmp_path / f"mount-{at}", PAIR, lag_s)
        for at, lag_s in enumerate(LAGS_S)
    ]
    async with balancer() as front:
        rollout = Rollout(realapi.children, tmp_path, front)
        for mount in mounts:
            await mount.look()
            replica = await rollout.start_one(mount.folder)
            rollout.replicas.append(replica)
            cluster.ports.append(replica.backend.port)
        await admin.made(CONFIGURATIONS, configuration(namespace, front.port, former["ca.crt"]))
        keeper = Keeper(cluster)
        try:
            async with asyncio.TaskGroup() as tasks:
                beside = [tasks.create_task(one.follow()) for one in mounts]
                beside.append(tasks.create_task(cluster.probe()))
                await until_completed(admin, namespace)
                async with creating(realapi, namespace, pause_s=0.5, dry_run=True) as creates:
                    await play(cluster, keeper, creates, former)
                for one in beside:
                    one.cancel()
        finally:
            await admin.delete(cluster.configuration)
            await rollout.stop()
            code = await keeper.stop()
    assert creates.lost == []
    assert cluster.refused == []
    assert cluster.handshakes > 20
    assert front.refused == 0
    assert code == 0


async def play(cluster: Cluster, keeper: Keeper, creates: Creating, former: dict[str, bytes]) -> None:
    """Change the certificates, one way after the other; after each, creates go on by what is served then."""

    async def go_on() -> None:
        await cluster.until_served()
        await creates.until(creates.answered + 30)

    await go_on()
    assert (await cluster.held())["tls"] == former, "too slow a machine: the pair was due before anything began"
    await cluster.finish("ensure")
    found = await cluster.held()
    assert found["ca"] == {name: former[name] for name in ("ca.crt", "ca.key")}
    assert found["tls"] == {name: former[name] for name in PAIR}
    assert found["asked"].keys() == set(PAIR)
    assert await cluster.bundle() == former["ca.crt"]
    await go_on()

    # Nobody asks for it: two thirds of the pair's life are over, then of the authority's.
    await keeper.start()
    found = await cluster.until_held(lambda found: found["tls"]["tls.crt"] != former["tls.crt"])
    assert found["ca"]["ca.key"] == former["ca.key"]
    renewed = found["tls"]["tls.crt"]
    await go_on()
    found = await cluster.until_held(lambda found: found["tls"]["ca.crt"] == found["ca"]["ca.crt"] != former["ca.crt"])
    assert found["tls"]["tls.crt"] != renewed
    # Both are trusted while pairs of both are served.
    assert former["ca.crt"] in found["ca"]["ca.crt"]
    assert former["ca.crt"] in await cluster.bundle()
    await go_on()

    before = found
    await cluster.finish("rotate")
    found = await cluster.held()
    for name in SECRETS:
        assert all(found[name][key] != before[name][key] for key in found[name]), name
    await go_on()
    assert (await cluster.held()) == found
