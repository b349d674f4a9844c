"""The pair in a Secret and the bundles that trust it, against an API server of dictionaries."""

import base64
import copy
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509

from certs.authority import new_authority
from certs.cluster import Done, Pair, SecretsPlace, keep
from certs.pair import State, StoredPem, WantedPair, judge, renewed
from kube.errors import ApiConflictError, ApiForbiddenError, ApiNotFoundError, ApiRefusedError, ApiUnknownError

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
WANTED = WantedPair(dns_names=("web.ns.svc",), days=90, ca_days=900)
PAIRS = (Pair(secret="tls", wanted=WANTED),)
PLACE = SecretsPlace(namespace="ns", authority="ca", pairs=PAIRS, service="web", webhooks=("cards",))
SECRET = "/api/v1/namespaces/ns/secrets/tls"
AUTHORITY = "/api/v1/namespaces/ns/secrets/ca"
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
            data = {**value.get("data", {}), **changes["data"]}
            value["data"] = {name: text for name, text in data.items() if text is not None}
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

    def stored(self) -> StoredPem:
        """The pair, in a Secret that holds nothing else."""
        data = self.data(SECRET)
        assert data.keys() == {"tls.crt", "tls.key", "ca.crt"}
        return StoredPem(cert_pem=data["tls.crt"], key_pem=data["tls.key"], ca_pem=data["ca.crt"])

    def data(self, path) -> dict[str, bytes]:
        return {key: base64.b64decode(value) for key, value in self.objects[path]["data"].items()}

    def trusts_what_is_served(self, now) -> bool:
        stored = self.stored()
        seen = StoredPem(cert_pem=stored.cert_pem, key_pem=stored.key_pem, ca_pem=self.bundle())
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


def put(cluster, path, parts) -> None:
    cluster.put(path, {"data": {name: base64.b64encode(pem).decode() for name, pem in parts.items()}})


def nothing(verb: str, path: str) -> None:
    """Let the write pass."""


MADE_FROM_NOTHING = [
    *(f"APPLY {AUTHORITY}", f"APPLY {SECRET}"),
    *(f"PATCH {AUTHORITY}", f"PATCH {MUTATING}", f"PATCH {SECRET}"),
]
ROTATED = [f"PATCH {AUTHORITY}", f"PATCH {MUTATING}", f"PATCH {SECRET}"]


async def test_a_bare_cluster_gets_authority_then_bundle_then_pair(cluster, naps):
    kept = await keep(cluster, PLACE, NOW, sleep=naps)
    assert cluster.writes == MADE_FROM_NOTHING
    assert cluster.trusts_what_is_served(NOW)
    assert [one.done for one in kept.secrets] == [Done.MADE, Done.MADE]
    assert kept.problems == {}
    assert kept.pairs[0].stored == cluster.stored()
    assert cluster.data(AUTHORITY).keys() == {"ca.crt", "ca.key"}
    assert naps.taken == []


async def test_a_second_run_writes_nothing(cluster, naps):
    await keep(cluster, PLACE, NOW, sleep=naps)
    cluster.writes.clear()
    kept = await keep(cluster, PLACE, NOW + timedelta(days=30), sleep=naps)
    assert cluster.writes == []
    assert [(one.done, one.found.state) for one in kept.secrets] == [(Done.KEPT, State.GOOD)] * 2
    assert kept.patched == ()


@pytest.mark.parametrize("bundle", ["", "bm90IGEgY2VydA==", "%%%"], ids=["emptied", "garbage", "no base64"])
async def test_a_bundle_that_was_overwritten_is_put_back(cluster, naps, bundle):
    await keep(cluster, PLACE, NOW, sleep=naps)
    cluster.put(MUTATING, {"webhooks": [{"name": "pods", "clientConfig": {**OURS, "caBundle": bundle}}]})
    kept = await keep(cluster, PLACE, NOW, sleep=naps)
    assert kept.patched == ("mutatingwebhookconfigurations/cards",)
    assert [one.done for one in kept.secrets] == [Done.KEPT, Done.KEPT]
    assert cluster.trusts_what_is_served(NOW)


async def test_a_leaf_that_is_due_is_renewed_without_touching_the_bundle(cluster, naps):
    await keep(cluster, PLACE, NOW, sleep=naps)
    before = cluster.bundle()
    cluster.writes.clear()
    await keep(cluster, PLACE, NOW + timedelta(days=61), sleep=naps)
    assert cluster.writes == [f"PATCH {SECRET}"]
    assert cluster.bundle() == before


async def test_while_an_authority_changes_the_bundle_trusts_what_is_served_after_every_write(cluster, naps):
    await keep(cluster, PLACE, NOW, sleep=naps)
    await keep(cluster, PLACE, NOW + timedelta(days=590), sleep=naps)
    cluster.writes.clear()
    late = NOW + timedelta(days=610)
    trusted = []
    cluster.after_write = [lambda verb, path: trusted.append(cluster.trusts_what_is_served(late))] * 3
    kept = await keep(cluster, PLACE, late, settle_s=3.0, sleep=naps)
    assert kept.authority.done is Done.MADE
    assert cluster.writes == ROTATED
    assert trusted == [True, True, True]
    assert naps.taken == [3.0]


async def test_a_rotation_makes_another_authority_that_is_trusted_before_it_is_served(cluster, naps):
    await keep(cluster, PLACE, NOW, sleep=naps)
    before = cluster.stored()
    cluster.writes.clear()
    kept = await keep(cluster, PLACE, NOW, rotate=True, settle_s=3.0, sleep=naps)
    assert [(one.done, one.found.state) for one in kept.secrets] == [(Done.MADE, State.GOOD)] * 2
    assert cluster.writes == ROTATED
    assert naps.taken == [3.0]
    assert cluster.stored().key_pem != before.key_pem
    assert cluster.trusts_what_is_served(NOW)
    # Pods that have not read the Secret again yet serve the pair from before.
    assert judge(StoredPem(cert_pem=before.cert_pem, key_pem=before.key_pem, ca_pem=cluster.bundle()), NOW).serves


async def test_a_rotation_whose_answer_was_lost_is_not_done_twice(cluster, naps):
    await keep(cluster, PLACE, NOW, sleep=naps)
    cluster.writes.clear()

    def lost(verb: str, path: str) -> None:
        raise ApiUnknownError(verb=verb, path=path, message="connection reset")

    cluster.after_write = [lost, lost, lost]
    await keep(cluster, PLACE, NOW, rotate=True, sleep=naps)
    assert cluster.writes == ROTATED
    assert cluster.trusts_what_is_served(NOW)


async def test_a_secret_that_was_deleted_leaves_the_authority_of_running_pods_trusted(cluster, naps):
    await keep(cluster, PLACE, NOW, sleep=naps)
    served = cluster.stored()
    del cluster.objects[SECRET]
    await keep(cluster, PLACE, NOW, sleep=naps)
    assert cluster.trusts_what_is_served(NOW)
    seen = StoredPem(cert_pem=served.cert_pem, key_pem=served.key_pem, ca_pem=cluster.bundle())
    assert judge(seen, NOW).serves


async def test_foreign_authorities_do_not_pile_up(cluster, naps):
    many = b"".join(new_authority("other", 900, NOW).cert_pem for _ in range(5))
    old = new_authority("expired", 1, NOW - timedelta(days=9)).cert_pem
    bundle = base64.b64encode(old + many).decode()
    cluster.put(MUTATING, {"webhooks": [{"name": "pods", "clientConfig": {**OURS, "caBundle": bundle}}]})
    await keep(cluster, PLACE, NOW, sleep=naps)
    names = [cert.subject.rfc4514_string() for cert in x509.load_pem_x509_certificates(cluster.bundle())]
    assert names == ["CN=cardshare webhook CA", "CN=other", "CN=other"]


async def test_only_entries_of_our_service_or_address_are_touched(cluster, naps):
    other = {"service": {"namespace": "ns", "name": "else"}, "caBundle": "bm8="}
    urls = [{"url": "https://web.ns.svc:8443/mutate"}, {"url": "https://example.org/x"}, {"url": "https://[/"}]
    hooks = [{"name": f"h{i}", "clientConfig": config} for i, config in enumerate([other, OURS, *urls])]
    cluster.put(VALIDATING, {"webhooks": hooks})
    kept = await keep(cluster, PLACE, NOW, sleep=naps)
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
    place = SecretsPlace(namespace="ns", authority="ca", pairs=PAIRS, service=service, webhooks=(name,))
    kept = await keep(cluster, place, NOW, sleep=naps)
    assert kept.problems.keys() == {name}
    assert says in kept.problems[name]
    assert SECRET in cluster.objects


async def test_of_two_that_start_at_once_one_pair_stays_and_is_trusted(cluster, naps):
    def other_replica(verb: str, path: str) -> None:
        theirs = renewed(StoredPem(), WANTED, NOW)
        put(cluster, AUTHORITY, {"ca.crt": theirs.ca_pem, "ca.key": theirs.ca_key_pem})
        put(cluster, SECRET, {"tls.crt": theirs.cert_pem, "tls.key": theirs.key_pem, "ca.crt": theirs.ca_pem})

    cluster.before_write = [nothing, nothing, other_replica]
    kept = await keep(cluster, PLACE, NOW, sleep=naps)
    assert [one.done for one in kept.secrets] == [Done.KEPT, Done.KEPT]
    assert cluster.bundle() == cluster.data(AUTHORITY)["ca.crt"]
    assert cluster.trusts_what_is_served(NOW)


async def test_a_configuration_that_changed_after_it_was_read_is_read_again(cluster, naps):
    swapped = [{"name": "new", "clientConfig": {"url": "https://example.org"}}, {"name": "pods", "clientConfig": OURS}]
    cluster.before_write = [nothing] * 3 + [lambda verb, path: cluster.put(MUTATING, {"webhooks": swapped})]
    await keep(cluster, PLACE, NOW, sleep=naps)
    assert cluster.bundle(index=0) == b""
    assert cluster.bundle(index=1)


async def test_a_write_of_unknown_outcome_is_looked_at_again(cluster, naps):
    def lost(verb: str, path: str) -> None:
        raise ApiUnknownError(verb=verb, path=path, message="connection reset")

    cluster.after_write = [lost] * 5
    kept = await keep(cluster, PLACE, NOW, sleep=naps)
    assert [one.found.state for one in kept.secrets] == [State.GOOD, State.GOOD]
    assert cluster.writes == MADE_FROM_NOTHING
    assert cluster.bundle() == cluster.stored().ca_pem


@pytest.mark.parametrize("count", [1, 100], ids=["forbidden", "never answers"])
async def test_what_cannot_be_done_is_told_and_not_tried_for_ever(cluster, naps, count):
    kind = ApiForbiddenError if count == 1 else ApiUnknownError

    def fail(verb: str, path: str) -> None:
        raise kind(verb=verb, path=path, message="no")

    cluster.before_write = [fail] * count
    told: list[str] = []
    with pytest.raises(kind):
        await keep(cluster, PLACE, NOW, sleep=naps, tell=told.append)
    assert len(cluster.before_write) == (0 if count == 1 else 94)
    assert [line.rpartition("; ")[2] for line in told] == (
        [] if count == 1 else [f"trying again ({at} of 6)" for at in range(2, 7)]
    )


@pytest.mark.parametrize("data", [None, {"tls.crt": "%%%", "tls.key": "eA=="}], ids=["empty", "garbled"])
async def test_a_secret_that_holds_no_pair_gets_one(cluster, naps, data):
    cluster.put(SECRET, {"data": data} if data else {"data": {}})
    await keep(cluster, PLACE, NOW, sleep=naps)
    assert cluster.trusts_what_is_served(NOW)


MORE = Pair(secret="more", wanted=WantedPair(dns_names=("asked.ns.svc",), days=90, ca_days=900))
BOTH = SecretsPlace(namespace="ns", authority="ca", pairs=(*PAIRS, MORE), service="web", webhooks=("cards",))
MORE_SECRET = "/api/v1/namespaces/ns/secrets/more"


async def test_each_secret_holds_a_pair_for_its_own_names_by_one_authority(cluster, naps):
    await keep(cluster, BOTH, NOW, sleep=naps)
    ca_pem = cluster.data(AUTHORITY)["ca.crt"]
    for path, names, others in (
        (SECRET, WANTED.dns_names, MORE.wanted.dns_names),
        (MORE_SECRET, MORE.wanted.dns_names, WANTED.dns_names),
    ):
        data = cluster.data(path)
        assert data.keys() == {"tls.crt", "tls.key", "ca.crt"}
        assert data["ca.crt"] == ca_pem
        seen = StoredPem(cert_pem=data["tls.crt"], key_pem=data["tls.key"], ca_pem=ca_pem)
        assert judge(seen, NOW, names).state is State.GOOD
        assert judge(seen, NOW, others).state is State.NAMES_MISSING


def one_secret(cluster, now=NOW) -> StoredPem:
    """As the former layout has it: one Secret with one pair for all names, the authority and its key beside it."""
    all_names = WantedPair(dns_names=(*WANTED.dns_names, *MORE.wanted.dns_names), days=90, ca_days=900)
    theirs = renewed(StoredPem(), all_names, now)
    parts = {"tls.crt": theirs.cert_pem, "tls.key": theirs.key_pem, "ca.crt": theirs.ca_pem}
    put(cluster, SECRET, {**parts, "ca.key": theirs.ca_key_pem})
    entry = {"name": "pods", "clientConfig": {**OURS, "caBundle": base64.b64encode(theirs.ca_pem).decode()}}
    cluster.put(MUTATING, {"webhooks": [entry]})
    return theirs


async def test_the_authority_of_the_former_layout_is_taken_over_and_what_is_served_stays(cluster, naps):
    theirs = one_secret(cluster)
    trusted = []
    cluster.after_write = [lambda verb, path: trusted.append(cluster.bundle() == theirs.ca_pem)] * 9
    kept = await keep(cluster, BOTH, NOW, sleep=naps)
    assert [one.done for one in kept.secrets] == [Done.TAKEN_OVER, Done.COMPLETED, Done.MADE]
    assert cluster.data(AUTHORITY) == {"ca.crt": theirs.ca_pem, "ca.key": theirs.ca_key_pem}
    assert cluster.stored() == StoredPem(cert_pem=theirs.cert_pem, key_pem=theirs.key_pem, ca_pem=theirs.ca_pem)
    # First it stands in its own Secret, then it is taken out of the other.
    assert cluster.writes == [
        *(f"APPLY {AUTHORITY}", f"APPLY {MORE_SECRET}"),
        *(f"PATCH {AUTHORITY}", f"PATCH {SECRET}", f"PATCH {MORE_SECRET}"),
    ]
    assert (trusted, kept.patched, naps.taken) == ([True] * 5, (), [])
    cluster.writes.clear()
    await keep(cluster, BOTH, NOW, sleep=naps)
    assert cluster.writes == []


@pytest.mark.parametrize("at", range(5))
async def test_a_take_over_that_dies_anywhere_is_gone_on_with(cluster, naps, at):
    theirs = one_secret(cluster)

    def die(verb: str, path: str) -> None:
        raise ApiForbiddenError(verb=verb, path=path, message="the process is gone")

    cluster.before_write = [nothing] * at + [die]
    with pytest.raises(ApiForbiddenError):
        await keep(cluster, BOTH, NOW, sleep=naps)
    await keep(cluster, BOTH, NOW, sleep=naps)
    assert cluster.data(AUTHORITY) == {"ca.crt": theirs.ca_pem, "ca.key": theirs.ca_key_pem}
    assert cluster.stored().cert_pem == theirs.cert_pem
    assert cluster.bundle() == theirs.ca_pem


async def test_an_authority_beside_a_pair_that_is_due_is_succeeded_and_trusted_still(cluster, naps):
    theirs = one_secret(cluster, NOW - timedelta(days=610))
    kept = await keep(cluster, BOTH, NOW, settle_s=3.0, sleep=naps)
    assert [one.done for one in kept.secrets] == [Done.MADE, Done.MADE, Done.MADE]
    assert theirs.ca_pem in cluster.bundle()
    assert naps.taken == [3.0]
    assert cluster.trusts_what_is_served(NOW)


@pytest.mark.parametrize("at", range(3))
async def test_a_rotation_that_dies_anywhere_is_gone_on_with_by_the_next_run(cluster, naps, at):
    await keep(cluster, PLACE, NOW, sleep=naps)
    before = cluster.stored()

    def die(verb: str, path: str) -> None:
        assert cluster.trusts_what_is_served(NOW)
        raise ApiForbiddenError(verb=verb, path=path, message="the process is gone")

    cluster.before_write = [nothing] * at + [die]
    with pytest.raises(ApiForbiddenError):
        await keep(cluster, PLACE, NOW, rotate=True, sleep=naps)
    naps.taken.clear()
    await keep(cluster, PLACE, NOW, settle_s=3.0, sleep=naps)
    assert cluster.trusts_what_is_served(NOW)
    # Only where the new authority was stored is there something to go on with.
    assert (cluster.stored().cert_pem == before.cert_pem) is (at == 0)
    assert naps.taken == ([] if at == 0 else [3.0])
    assert cluster.stored().ca_pem == cluster.data(AUTHORITY)["ca.crt"]


@pytest.mark.parametrize("path", [AUTHORITY, SECRET])
async def test_a_secret_that_was_deleted_comes_back_with_what_is_remembered(cluster, naps, path):
    kept = await keep(cluster, PLACE, NOW, sleep=naps)
    before = copy.deepcopy(cluster.objects)
    del cluster.objects[path]
    again = await keep(cluster, PLACE, NOW, remembered={one.secret: one.stored for one in kept.secrets}, sleep=naps)
    assert [one.done for one in again.secrets if one.done is not Done.KEPT] == [Done.PUT_BACK]
    assert cluster.objects[path]["data"] == before[path]["data"]
    assert again.patched == ()


async def test_another_authority_in_its_secret_is_obeyed_and_the_one_before_stays_trusted(cluster, naps):
    kept = await keep(cluster, PLACE, NOW, sleep=naps)
    before = cluster.stored()
    own = renewed(StoredPem(), WANTED, NOW)
    put(cluster, AUTHORITY, {"ca.crt": own.ca_pem, "ca.key": own.ca_key_pem})
    again = await keep(
        cluster,
        PLACE,
        NOW,
        remembered={one.secret: one.stored for one in kept.secrets},
        settle_s=3.0,
        sleep=naps,
    )
    assert [one.done for one in again.secrets] == [Done.KEPT, Done.MADE]
    assert cluster.stored().ca_pem == own.ca_pem
    assert cluster.trusts_what_is_served(NOW)
    assert judge(StoredPem(cert_pem=before.cert_pem, key_pem=before.key_pem, ca_pem=cluster.bundle()), NOW).serves
    assert naps.taken == [3.0]
