"""The overlay cert-manager asks for what our own certificates would be, in the Secrets that are mounted."""

import pytest

from certs.options import Run, parse
from tests.support.servers.kustomized import overlay

OWN = overlay("default")
FOUND = overlay("cert-manager")


def one(documents, kind, name):
    (found,) = [each for each in documents if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def mounted(deployment):
    volumes = one(FOUND, "Deployment", deployment)["spec"]["template"]["spec"]["volumes"]
    (secret,) = [each["secret"] for each in volumes if "secret" in each]
    return secret


def ours():
    """What our own certificates are told to be."""
    (container,) = one(OWN, "Deployment", "cardshare-certs-keeper")["spec"]["template"]["spec"]["containers"]
    options = parse(container["args"], {})
    assert isinstance(options, Run)
    return options.place


PLACE = ours()


@pytest.mark.parametrize("pair", PLACE.pairs, ids=lambda pair: pair.secret)
def test_a_pair_is_what_our_own_would_be_in_the_secret_that_is_mounted(pair):
    spec = one(FOUND, "Certificate", pair.secret)["spec"]
    assert spec["secretName"] == pair.secret == mounted(pair.secret.replace("-tls", ""))["secretName"]
    # Its own name and no more: nobody calls it by another.
    assert spec["dnsNames"] == [f"{pair.secret.removesuffix('-tls')}.cardshare-system.svc"]
    assert set(spec["dnsNames"]) <= set(pair.wanted.dns_names)
    assert spec["duration"] == f"{pair.wanted.days * 24}h"
    assert spec["issuerRef"]["name"] == one(FOUND, "Issuer", PLACE.authority)["metadata"]["name"]


def test_the_authority_is_what_our_own_would_be_and_keeps_its_key():
    spec = one(FOUND, "Certificate", PLACE.authority)["spec"]
    assert spec["duration"] == f"{PLACE.pairs[0].wanted.ca_days * 24}h"
    assert (spec["isCA"], spec["privateKey"]["rotationPolicy"]) == (True, "Never")
    assert spec["secretName"] == one(FOUND, "Issuer", PLACE.authority)["spec"]["ca"]["secretName"]
    assert spec["secretName"] not in PLACE.secrets, "who signs is not changed by what removes or restores those"


@pytest.mark.parametrize("kind", ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"])
def test_every_entry_trusts_the_webhooks_certificate(kind):
    found = one(FOUND, kind, "cardshare")
    where = {"cert-manager.io/inject-ca-from": f"cardshare-system/{PLACE.pairs[0].secret}"}
    assert found["metadata"]["annotations"] == where
    assert {entry["clientConfig"]["service"]["name"] for entry in found["webhooks"]} == {PLACE.service}
    assert found["webhooks"] == one(OWN, kind, "cardshare")["webhooks"]


def test_everything_else_is_there_but_what_makes_our_own_certificates():
    def keys(documents):
        return {(each["kind"], each["metadata"]["name"]) for each in documents}

    gone, new = keys(OWN) - keys(FOUND), keys(FOUND) - keys(OWN)
    assert {name for _, name in gone} == {"cardshare-certs", "cardshare-certs-keeper", *PLACE.secrets}
    assert {kind for kind, name in gone if name in PLACE.secrets} == {"Secret"}
    assert {kind for kind, _ in new} == {"Issuer", "Certificate"}
