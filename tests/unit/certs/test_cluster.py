"""The pair in a Secret and the bundles that trust it, against an API server of dictionaries."""

import base64
import copy
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509

from certs.authority import new_authority
from certs.cluster import Place, keep
from certs.pair import State, Stored, Wanted, judge, renewed
from kube.errors import ApiConflictError, ApiForbiddenError, ApiNotFoundError, ApiRefusedError, ApiUnknownError

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
WANTED = Wanted(dns_names=("web.ns.svc",), days=90, ca_days=900)
PLACE = Place(namespace="ns", secret="tls", service="web", webhooks=("cards",))
SECRET = "/api/v1/namespaces/ns/secrets/tls"
MUTATING = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/cards"
VALIDATING = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/cards"
OURS = {"service": {"namespace": "ns", "name": "web"}}


class Cluster:
    """Objects by path, versions counted; *before_write* may fail a write or let another writer in first."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {}
        self.writes: list[str] = []
        self.version = 0
        self.before_write: list[Any] = []
        self.after_write: list[Any] = []

    def put(self, path, value) -> None:
        self.version += 1
        value = copy.deepcopy(value)
        value.setdefault("metadata", {})["resourceVersion"] = str(self.version)
        self.objects[path] = value

    async def get_raw(self, path, params=None) -> bytes:
        if path not in self.objects:
            raise ApiNotFoundError(verb="GET", path=path, status=404)
        return json.dumps(self.objects[path]).encode()

    async def apply(self, path, value, *, manager) -> bytes:
        self._begin("APPLY", path)
        if path not in self.objects:
            self.put(path, value)
        self._end("APPLY", path)
        return json.dumps(self.objects[path]).encode()

    async def patch(self, path, changes, *, content_type="", dry_run=False) -> bytes:
        self._begin("PATCH", path)
        value = copy.deepcopy(self.objects[path])
        if content_type == "application/json-patch+json":
            test, *adds = json.loads(changes)
            if test["value"] != value["metadata"]["resourceVersion"]:
                raise ApiRefusedError(verb="PATCH", path=path, status=422, reason="Invalid")
            for add in adds:
                value["webhooks"][int(add["path"].split("/")[2])]["clientConfig"]["caBundle"] = add["value"]
        else:
            if changes["metadata"]["resourceVersion"] != value["metadata"]["resourceVersion"]:
                raise ApiConflictError(verb="PATCH", path=path, status=409, reason="Conflict")
            value["data"] = {**value.get("data", {}), **changes["data"]}
        self.put(path, value)
        self._end("PATCH", path)
        return b"{}"

    def _begin(self, verb, path) -> None:
        if self.before_write:
            self.before_write.pop(0)(verb, path)

    def _end(self, verb, path) -> None:
        self.writes.append(f"{verb} {path}")
        if self.after_write:
            self.after_write.pop(0)(verb, path)

    def bundle(self, path=MUTATING, index=0) -> bytes:
        return base64.b64decode(self.objects[path]["webhooks"][index]["clientConfig"].get("caBundle", ""))

    def stored(self) -> Stored:
        data = {key: base64.b64decode(value) for key, value in self.objects[SECRET]["data"].items()}
        return Stored(
            cert_pem=data["tls.crt"], key_pem=data["tls.key"], ca_pem=data["ca.crt"], ca_key_pem=data["ca.key"]
        )

    def trusts_what_is_served(self, now) -> bool:
        stored = self.stored()
        seen = Stored(cert_pem=stored.cert_pem, key_pem=stored.key_pem, ca_pem=self.bundle())
        return judge(seen, now).serves


class Naps:
    def __init__(self) -> None:
        self.taken: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.taken.append(seconds)


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.put(MUTATING, {"webhooks": [{"name": "pods", "clientConfig": OURS}]})
    return made


@pytest.fixture
def naps() -> Naps:
    return Naps()


def nothing(verb: str, path: str) -> None:
    """Let the write pass."""


async def test_a_bare_cluster_gets_bundle_then_secret(cluster, naps):
    kept = await keep(cluster, PLACE, WANTED, NOW, sleep=naps)
    assert cluster.writes == [f"APPLY {SECRET}", f"PATCH {MUTATING}", f"PATCH {SECRET}"]
    assert cluster.trusts_what_is_served(NOW)
    assert (kept.written, kept.new_authority, kept.problems) == (True, True, ())
    assert kept.stored == cluster.stored()
    assert naps.taken == []


async def test_a_second_run_writes_nothing(cluster, naps):
    await keep(cluster, PLACE, WANTED, NOW, sleep=naps)
    cluster.writes.clear()
    kept = await keep(cluster, PLACE, WANTED, NOW + timedelta(days=30), sleep=naps)
    assert cluster.writes == []
    assert (kept.written, kept.patched, kept.found.state) == (False, (), State.GOOD)


@pytest.mark.parametrize("bundle", ["", "bm90IGEgY2VydA==", "%%%"], ids=["emptied", "garbage", "no base64"])
async def test_a_bundle_that_was_overwritten_is_put_back(cluster, naps, bundle):
    await keep(cluster, PLACE, WANTED, NOW, sleep=naps)
    cluster.put(MUTATING, {"webhooks": [{"name": "pods", "clientConfig": {**OURS, "caBundle": bundle}}]})
    kept = await keep(cluster, PLACE, WANTED, NOW, sleep=naps)
    assert kept.patched == ("mutatingwebhookconfigurations/cards",)
    assert not kept.written
    assert cluster.trusts_what_is_served(NOW)


async def test_a_leaf_that_is_due_is_renewed_without_touching_the_bundle(cluster, naps):
    await keep(cluster, PLACE, WANTED, NOW, sleep=naps)
    before = cluster.bundle()
    cluster.writes.clear()
    await keep(cluster, PLACE, WANTED, NOW + timedelta(days=61), sleep=naps)
    assert cluster.writes == [f"PATCH {SECRET}"]
    assert cluster.bundle() == before


async def test_while_an_authority_changes_the_bundle_trusts_what_is_served_after_every_write(cluster, naps):
    await keep(cluster, PLACE, WANTED, NOW, sleep=naps)
    await keep(cluster, PLACE, WANTED, NOW + timedelta(days=590), sleep=naps)
    cluster.writes.clear()
    late = NOW + timedelta(days=610)
    trusted = []
    cluster.after_write = [lambda verb, path: trusted.append(cluster.trusts_what_is_served(late))] * 2
    kept = await keep(cluster, PLACE, WANTED, late, settle_s=3.0, sleep=naps)
    assert kept.new_authority
    assert cluster.writes == [f"PATCH {MUTATING}", f"PATCH {SECRET}"]
    assert trusted == [True, True]
    assert naps.taken == [3.0]


async def test_a_rotation_makes_another_authority_that_is_trusted_before_it_is_served(cluster, naps):
    await keep(cluster, PLACE, WANTED, NOW, sleep=naps)
    before = cluster.stored()
    cluster.writes.clear()
    kept = await keep(cluster, PLACE, WANTED, NOW, rotate=True, settle_s=3.0, sleep=naps)
    assert (kept.found.state, kept.written, kept.new_authority) == (State.GOOD, True, True)
    assert cluster.writes == [f"PATCH {MUTATING}", f"PATCH {SECRET}"]
    assert naps.taken == [3.0]
    assert cluster.stored().key_pem != before.key_pem
    assert cluster.trusts_what_is_served(NOW)
    # Pods that have not read the Secret again yet serve the pair from before.
    assert judge(Stored(cert_pem=before.cert_pem, key_pem=before.key_pem, ca_pem=cluster.bundle()), NOW).serves


async def test_a_rotation_whose_answer_was_lost_is_not_done_twice(cluster, naps):
    await keep(cluster, PLACE, WANTED, NOW, sleep=naps)
    cluster.writes.clear()

    def lost(verb: str, path: str) -> None:
        raise ApiUnknownError(verb=verb, path=path, message="connection reset")

    cluster.after_write = [lost, lost]
    await keep(cluster, PLACE, WANTED, NOW, rotate=True, sleep=naps)
    assert cluster.writes == [f"PATCH {MUTATING}", f"PATCH {SECRET}"]
    assert cluster.trusts_what_is_served(NOW)


async def test_a_secret_that_was_deleted_leaves_the_authority_of_running_pods_trusted(cluster, naps):
    await keep(cluster, PLACE, WANTED, NOW, sleep=naps)
    served = cluster.stored()
    del cluster.objects[SECRET]
    await keep(cluster, PLACE, WANTED, NOW, sleep=naps)
    assert cluster.trusts_what_is_served(NOW)
    seen = Stored(cert_pem=served.cert_pem, key_pem=served.key_pem, ca_pem=cluster.bundle())
    assert judge(seen, NOW).serves


async def test_foreign_authorities_do_not_pile_up(cluster, naps):
    many = b"".join(new_authority("other", 900, NOW).cert_pem for _ in range(5))
    old = new_authority("expired", 1, NOW - timedelta(days=9)).cert_pem
    bundle = base64.b64encode(old + many).decode()
    cluster.put(MUTATING, {"webhooks": [{"name": "pods", "clientConfig": {**OURS, "caBundle": bundle}}]})
    await keep(cluster, PLACE, WANTED, NOW, sleep=naps)
    names = [cert.subject.rfc4514_string() for cert in x509.load_pem_x509_certificates(cluster.bundle())]
    assert names == ["CN=cardshare webhook CA", "CN=other", "CN=other"]


async def test_only_entries_of_our_service_or_address_are_touched(cluster, naps):
    other = {"service": {"namespace": "ns", "name": "else"}, "caBundle": "bm8="}
    urls = [{"url": "https://web.ns.svc:8443/mutate"}, {"url": "https://example.org/x"}, {"url": "https://[/"}]
    hooks = [{"name": f"h{i}", "clientConfig": config} for i, config in enumerate([other, OURS, *urls])]
    cluster.put(VALIDATING, {"webhooks": hooks})
    kept = await keep(cluster, PLACE, WANTED, NOW, sleep=naps)
    assert kept.patched == ("mutatingwebhookconfigurations/cards", "validatingwebhookconfigurations/cards")
    after = [bool(cluster.bundle(VALIDATING, i)) for i in range(5)]
    assert after == [True, True, True, False, False]
    assert cluster.bundle(VALIDATING, 0) == b"no"


@pytest.mark.parametrize(
    ("name", "service", "says"),
    [("nothing", "web", "none of that name"), ("cards", "else", "no entry names Service ns/else")],
    ids=["absent", "not ours"],
)
async def test_a_configuration_that_cannot_trust_us_is_a_problem_and_the_secret_is_made_all_the_same(
    cluster, naps, name, service, says
):
    place = Place(namespace="ns", secret="tls", service=service, webhooks=(name,))
    kept = await keep(cluster, place, WANTED, NOW, sleep=naps)
    assert len(kept.problems) == 1
    assert says in kept.problems[0]
    assert SECRET in cluster.objects


async def test_of_two_that_start_at_once_one_pair_stays_and_is_trusted(cluster, naps):
    def other_replica(verb: str, path: str) -> None:
        theirs = renewed(Stored(), WANTED, NOW)
        parts = {"tls.crt": theirs.cert_pem, "tls.key": theirs.key_pem}
        parts |= {"ca.crt": theirs.ca_pem, "ca.key": theirs.ca_key_pem}
        cluster.put(SECRET, {"data": {name: base64.b64encode(pem).decode() for name, pem in parts.items()}})

    cluster.before_write = [nothing, nothing, other_replica]
    kept = await keep(cluster, PLACE, WANTED, NOW, sleep=naps)
    assert not kept.written
    assert cluster.trusts_what_is_served(NOW)


async def test_a_configuration_that_changed_after_it_was_read_is_read_again(cluster, naps):
    swapped = [{"name": "new", "clientConfig": {"url": "https://example.org"}}, {"name": "pods", "clientConfig": OURS}]
    cluster.before_write = [nothing, lambda verb, path: cluster.put(MUTATING, {"webhooks": swapped})]
    await keep(cluster, PLACE, WANTED, NOW, sleep=naps)
    assert cluster.bundle(index=0) == b""
    assert cluster.bundle(index=1)


async def test_a_write_of_unknown_outcome_is_looked_at_again(cluster, naps):
    def lost(verb: str, path: str) -> None:
        raise ApiUnknownError(verb=verb, path=path, message="connection reset")

    cluster.after_write = [lost, lost, lost]
    kept = await keep(cluster, PLACE, WANTED, NOW, sleep=naps)
    assert kept.found.state is State.GOOD
    assert cluster.writes == [f"APPLY {SECRET}", f"PATCH {MUTATING}", f"PATCH {SECRET}"]
    assert cluster.bundle() == cluster.stored().ca_pem


@pytest.mark.parametrize("count", [1, 100], ids=["forbidden", "never answers"])
async def test_what_cannot_be_done_is_told_and_not_tried_for_ever(cluster, naps, count):
    kind = ApiForbiddenError if count == 1 else ApiUnknownError

    def fail(verb: str, path: str) -> None:
        raise kind(verb=verb, path=path, message="no")

    cluster.before_write = [fail] * count
    told: list[str] = []
    with pytest.raises(kind):
        await keep(cluster, PLACE, WANTED, NOW, sleep=naps, tell=told.append)
    assert len(cluster.before_write) == (0 if count == 1 else 94)
    assert [line.rpartition("; ")[2] for line in told] == (
        [] if count == 1 else [f"trying again ({at} of 6)" for at in range(2, 7)]
    )


@pytest.mark.parametrize("data", [None, {"tls.crt": "%%%", "tls.key": "eA=="}], ids=["empty", "garbled"])
async def test_a_secret_that_holds_no_pair_gets_one(cluster, naps, data):
    cluster.put(SECRET, {"data": data} if data else {"data": {}})
    await keep(cluster, PLACE, WANTED, NOW, sleep=naps)
    assert cluster.trusts_what_is_served(NOW)
