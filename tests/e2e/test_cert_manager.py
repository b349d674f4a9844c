"""Certificates by cert-manager on a real API server: by its own controllers and injector, not by our idea of them."""

import asyncio
import json
import os
import shlex
import ssl
import sys
from base64 import b64encode
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import pytest_asyncio
import trustme

from tests.support.servers.cert_manager import ADMISSION, PAIRS, Held, OfCertManager, cert_manager
from tests.support.servers.creating import creating
from tests.support.servers.fixtures_realapi import binaries_or_skip, logs_folder
from tests.support.servers.manifests import NAMESPACE, built, find, kubectl, reached_at, text_of
from tests.support.servers.mounted import MountedSecret
from tests.support.servers.realapi import RealApi
from tests.support.servers.rest import connect, eventually
from tests.support.servers.stage_realapi import installed_stage

pytestmark = pytest.mark.asyncio(loop_scope="session")

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLES, PAGE = DOCS / "examples", DOCS / "operators" / "install.md"
OURS = "serviceaccounts,roles,rolebindings,jobs,cronjobs,deployments,clusterroles,clusterrolebindings"
SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"
AUTHORITY, WEBHOOK = "cardshare-cert-manager-ca", PAIRS[0]  # Secrets
FILES = ("tls.crt", "tls.key", "ca.crt")
# How long after a Secret its files are exchanged: of a kubelet, a minute or two.
LAG_S = 4.0
WITHIN_S = 90.0


@asynccontextmanager
async def serving(name, tmp_path_factory):
    """A server with cert-manager."""
    logs = logs_folder(name, tmp_path_factory)
    async with RealApi(binaries_or_skip(), logs=logs) as api, cert_manager(api):
        yield api


@asynccontextmanager
async def mounting(installed, admin):
    """The webhook's Secret is mounted meanwhile as a kubelet does it, some time after it changed."""
    folder = installed.runner.folder / "webhook" / "certs"
    for name in FILES:
        (folder / name).unlink()
    mount = MountedSecret(admin, f"{SECRETS}/{WEBHOOK}", folder, FILES, LAG_S)
    await mount.look()
    following = asyncio.create_task(mount.follow(), name="mounted")
    try:
        yield
    finally:
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def installed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cert-manager")
    async with (
        serving("cert-manager", tmp_path_factory) as api,
        installed_stage(api, folder, overlay="cert-manager", certificates=OfCertManager()) as found,
    ):
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def held(installed):
    api = installed.api
    async with connect(api.url, api.ca_file, api.admin_token) as admin, mounting(installed, admin):
        yield Held(admin)


def port_of(documents):
    """Where the webhook is reached."""
    return find(documents, "Service", "cardshare-webhook")["spec"]["ports"][0]["port"]


async def served(port):
    """The certificate that is shown at a port, PEM."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return ssl.DER_cert_to_PEM_cert(shown)


async def test_every_manifest_is_taken_and_nothing_of_our_own_certificates_is_left(installed, held):
    assert installed.complaints == ""
    assert installed.certificates.count("condition met") == 3
    names, _ = await kubectl(installed.api, "-n", NAMESPACE, "get", OURS, "-o", "name")
    assert "cardshare-webhook" in names
    assert "cardshare-certs" not in names
    for name in PAIRS:
        secret = (await held.admin.get(f"{SECRETS}/{name}")).body
        assert (secret["type"], secret["data"].keys()) == ("kubernetes.io/tls", set(FILES))
    pair = await held.secret(WEBHOOK)
    assert pair["ca.crt"] == (await held.secret(AUTHORITY))["tls.crt"]
    await until_served(installed, held)
    await held.until_trusted(pair["ca.crt"])
    before = await held.bundles()
    await kubectl(installed.api, "apply", "-f", "-", text=text_of(installed.documents))
    assert await held.bundles() == before


async def test_a_pod_with_cards_is_admitted_and_placed_and_a_dry_run_is_told_where(installed):
    person = ("--kubeconfig", str(installed.stage.kubeconfig))
    manifest = ("-f", str(EXAMPLES / "memory-only.yaml"))

    # By the controller's pair, which the webhook trusts.
    async def told():
        return (await kubectl(installed.api, *person, "create", "--dry-run=server", *manifest))[1]

    await eventually(told, lambda found: "would be placed now on" in found)
    try:
        await kubectl(installed.api, *person, "apply", *manifest)
        await kubectl(installed.api, *person, "wait", "--for=condition=Ready", "pod/memory-only", "--timeout=90s")
    finally:
        await kubectl(installed.api, *person, "delete", "pod", "memory-only", "--force", "--grace-period=0")


def emptied(configuration):
    """The entries of a webhook configuration, with nothing in their caBundle."""
    return [{**one, "clientConfig": {**one["clientConfig"], "caBundle": ""}} for one in configuration["webhooks"]]


async def doctor(api):
    """The codes of all that doctor finds."""
    argv = [sys.executable, "-m", "cli", "doctor", "-o", "json", "--kubeconfig", str(api.kubeconfig)]
    process = await asyncio.create_subprocess_exec(*argv, env=os.environ, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    return {one["code"] for one in json.loads(out)["findings"]}


async def test_doctor_finds_nothing_wrong_with_the_certificates_until_something_is(installed, held):
    about_trust = {"CS621", "CS622", "CS623"}
    assert not about_trust & await doctor(installed.api)
    # Nobody who could put it back runs for this moment.
    wrong = f"{ADMISSION}/mutatingwebhookconfigurations/cardshare"
    before = (await held.admin.get(wrong)).body
    unasked = {"metadata": {"annotations": {"cert-manager.io/inject-ca-from": None}}, "webhooks": emptied(before)}
    assert (await held.admin.patch(wrong, unasked)).status == 200
    try:
        assert about_trust & await doctor(installed.api) == {"CS622"}
    finally:
        asked = {"metadata": {"annotations": before["metadata"]["annotations"]}}
        assert (await held.admin.patch(wrong, asked)).status == 200
    # The injector again.
    await held.until_trusted((await held.secret(WEBHOOK))["ca.crt"])


async def until_served(installed, held):
    """Wait until the webhook shows what its Secret holds then: cert-manager may issue once more, unasked."""
    port = port_of(installed.documents)

    async def both():
        return (await held.secret(WEBHOOK))["tls.crt"].decode(), await served(port)

    await eventually(both, lambda found: found[0] == found[1], deadline_s=WITHIN_S)


@asynccontextmanager
async def creates(installed):
    """Pods with cards, created all the time; and a wait for some more of them."""
    async with creating(installed.api, "default", pause_s=0.25, dry_run=True) as found:

        async def go_on():
            await found.until(found.answered + 50)

        await go_on()
        yield found, go_on


@pytest.mark.slow
async def test_no_create_is_lost_while_certificates_are_renewed_or_deleted(installed, held):
    async with creates(installed) as (found, go_on):
        before = await held.secret(WEBHOOK)
        renewed = await held.renew(WEBHOOK)
        assert renewed["tls.key"] != before["tls.key"]
        await until_served(installed, held)
        await go_on()
        await kubectl(installed.api, "-n", NAMESPACE, "delete", "secret", WEBHOOK)
        made = await held.until_another(WEBHOOK, renewed)
        await until_served(installed, held)
        await go_on()
        # The authority has its key still: it is trusted with the pair from before, and with the one that is to come.
        authority = await held.secret(AUTHORITY)
        again = await held.renew("cardshare-ca")
        assert again["tls.key"] == authority["tls.key"]
        await go_on()
        signed = await held.renew(WEBHOOK)
        assert signed["ca.crt"] == again["tls.crt"] != made["ca.crt"]
        await held.until_trusted(signed["ca.crt"])
        await go_on()
        await until_served(installed, held)
        await go_on()
    assert found.lost == []


def from_the_page():
    """What docs/operators/install.md says to do before the change from certificates of our own."""
    section = PAGE.read_text(encoding="utf-8").partition("\n## Certificates by cert-manager\n")[2].partition("\n## ")[0]
    (block,) = (one for one in section.split("```")[1::2] if "kubectl delete clusterrole" in one)
    return [shlex.split(line)[1:] for line in block.strip().splitlines()]


async def to_cert_managers(installed, held):
    """Change over from certificates of our own as the page says."""
    for words in from_the_page():
        await kubectl(installed.api, *words)
    certificates = OfCertManager()
    documents = certificates.here(reached_at(await built(installed.api, "cert-manager"), port_of(installed.documents)))
    await kubectl(installed.api, "apply", "-f", "-", text=text_of(documents))
    await certificates.made(installed.runner, documents)
    names, _ = await kubectl(installed.api, "-n", NAMESPACE, "get", OURS, "-o", "name")
    assert "cardshare-certs" not in names


async def to_another(installed, held):
    """As where the key has leaked."""
    before = await held.secret(AUTHORITY)
    await kubectl(installed.api, "-n", NAMESPACE, "delete", "secret", AUTHORITY)
    another = await held.until_another(AUTHORITY, before)
    assert another["tls.key"] != before["tls.key"]
    assert (await held.renew(WEBHOOK))["ca.crt"] == another["tls.crt"]


async def to_a_companys(installed, held):
    """Have a ClusterIssuer sign that is there for others too."""
    authority = trustme.CA()
    pair = {"tls.crt": authority.cert_pem.bytes(), "tls.key": authority.private_key_pem.bytes()}
    data = {name: b64encode(content).decode() for name, content in pair.items()}
    # Where cert-manager looks for what ClusterIssuers name.
    await held.admin.made("/api/v1/namespaces", {"metadata": {"name": "cert-manager"}})
    secret = {"metadata": {"name": "company"}, "type": "kubernetes.io/tls", "data": data}
    await held.admin.made("/api/v1/namespaces/cert-manager/secrets", secret)
    issuer = {"metadata": {"name": "company"}, "spec": {"ca": {"secretName": "company"}}}
    kind = {"apiVersion": "cert-manager.io/v1", "kind": "ClusterIssuer"}
    await held.admin.made("/apis/cert-manager.io/v1/clusterissuers", kind | issuer)
    before = await held.secret(WEBHOOK)
    reference = {"name": "company", "kind": "ClusterIssuer", "group": None}
    path = f"/apis/cert-manager.io/v1/namespaces/{NAMESPACE}/certificates/{WEBHOOK}"
    assert (await held.admin.patch(path, {"spec": {"issuerRef": reference}})).status == 200
    assert (await held.until_another(WEBHOOK, before))["ca.crt"] == pair["tls.crt"]


@pytest.mark.slow
async def test_an_authority_is_trusted_beside_those_before_and_no_create_is_lost(tmp_path, tmp_path_factory):
    async with (
        serving("cert-manager-change", tmp_path_factory) as api,
        installed_stage(api, tmp_path, overlay="default") as installed,
        connect(api.url, api.ca_file, api.admin_token) as admin,
        mounting(installed, admin),
        creates(installed) as (found, go_on),
    ):
        held = Held(admin)
        authorities = [(await held.secret(WEBHOOK))["ca.crt"]]
        for change in (to_cert_managers, to_another, to_a_companys):
            await change(installed, held)
            pair = await held.secret(WEBHOOK)
            assert pair["ca.crt"] not in authorities
            authorities.append(pair["ca.crt"])
            for one in authorities:
                await held.until_trusted(one)
            await go_on()
            await until_served(installed, held)
            await go_on()
        assert found.lost == []
        # As the page ends the trust in those before.
        for kind in ("mutating", "validating"):
            path = f"{ADMISSION}/{kind}webhookconfigurations/cardshare"
            await admin.patch(path, {"webhooks": emptied((await admin.get(path)).body)})
        alone = {b64encode(authorities[-1]).decode()}
        await eventually(held.bundles, lambda found: set(found) == alone)
