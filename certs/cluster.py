"""Keeps the pair in a Secret, and the webhook configurations' caBundle trusting it, through the API server.

The order is what keeps admission calls from failing: first every bundle trusts the old and the new authority, then the
leaf changes. Any number may run this at a time, and each may die anywhere: the next run goes on from what is there.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Final, Protocol
from urllib.parse import quote, urlsplit

import msgspec

from certs.files import CA_FILE, CA_KEY_FILE, CERT_FILE, KEY_FILE
from certs.pair import PairVerdict, State, Stored, Wanted, authority_due, judge, merged_bundle, renewed
from kube.calls import JSON_PATCH, MERGE_PATCH, Body
from kube.errors import ApiConflictError, ApiError, ApiNotFoundError, UndecodableError

_CONFIGURATIONS: Final = "/apis/admissionregistration.k8s.io/v1"
_KINDS: Final = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")

_ATTEMPTS: Final = 6
_FIRST_PAUSE_S: Final = 0.2

# An API server learns of a changed bundle by watch, and several servers do so one after the other.
SETTLE_S: Final = 3.0

_UNPROCESSABLE: Final = 422

_MANAGER: Final = "cardshare-certs"


class ClusterCalls(Protocol):
    """What of `kube.calls.Calls` is needed here."""

    async def get_raw(self, path: str, params: Mapping[str, str] | None = None) -> bytes:
        """See `Calls.get_raw`."""
        ...

    async def apply(self, path: str, value: Body, *, manager: str) -> bytes:
        """See `Calls.apply`."""
        ...

    async def patch(self, path: str, changes: Body, *, content_type: str = MERGE_PATCH, dry_run: bool = False) -> bytes:
        """See `Calls.patch`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the pair is kept, and who is to trust it.

    Attributes:
        namespace: the Secret's, and the Service's.
        secret: the Secret's name.
        service: the Service's name, as webhook configurations name it; "" where they name URLs only.
        webhooks: names of webhook configurations, mutating, validating or both.
    """

    namespace: str
    secret: str
    service: str = ""
    webhooks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What `keep` found and left.

    Attributes:
        found: how the Secret's pair stood.
        stored: the pair that the Secret holds now.
        written: whether the Secret was written.
        new_authority: whether another authority signs now.
        patched: webhook configurations whose bundle was changed.
        problems: a line for each webhook configuration that cannot be made to trust the pair.
    """

    found: PairVerdict
    stored: Stored
    written: bool
    new_authority: bool
    patched: tuple[str, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """What one attempt needs."""

    calls: ClusterCalls
    place: Place
    wanted: Wanted
    now: datetime
    will_do: Callable[[Stored], bool]
    renew: Callable[[Stored], Stored]
    settle: Callable[[], Awaitable[object]]


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class _Secret(msgspec.Struct, frozen=True, rename="camel"):
    metadata: _Metadata
    data: dict[str, str] | None = None


class _Service(msgspec.Struct, frozen=True):
    namespace: str = ""
    name: str = ""


class _ClientConfig(msgspec.Struct, frozen=True, rename="camel"):
    service: _Service | None = None
    url: str = ""
    ca_bundle: str = ""


class _Webhook(msgspec.Struct, frozen=True, rename="camel"):
    client_config: _ClientConfig


class _Configuration(msgspec.Struct, frozen=True, rename="camel"):
    metadata: _Metadata
    webhooks: tuple[_Webhook, ...] | None = None


_secret_decoder: Final = msgspec.json.Decoder(_Secret)
_configuration_decoder: Final = msgspec.json.Decoder(_Configuration)


async def keep(
    calls: ClusterCalls,
    place: Place,
    wanted: Wanted,
    now: datetime,
    *,
    rotate: bool = False,
    remembered: Stored | None = None,
    settle_s: float = SETTLE_S,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    tell: Callable[[str], object] = lambda line: None,
) -> Kept:
    """Keep a good pair in the Secret, or make one; and let every bundle trust it before it is served.

    With *rotate* the authority and the pair are made anew, once, whatever is there. A good pair that is *remembered* is
    put back instead of making one: it is what is served, and trusted, still. What another writer changed
    meanwhile, or what may have been written, is read again and judged anew; *tell* takes a line before each time.

    Raises:
        ApiError: the API server refuses, or cannot be made to answer.
        UndecodableError: a webhook configuration is not what it should look like.
        ValueError: *wanted* makes no certificate.
    """
    # Made once for one state of the Secret: a new authority with every attempt would push those that are still
    # served out of the bundles.
    made: set[Stored] = set()

    @cache
    def renew(stored: Stored) -> Stored:
        if remembered is not None and not rotate and _is_good(remembered, wanted, now):
            return remembered
        fresh = renewed(stored, wanted, now, new_signer=rotate)
        made.add(fresh)
        return fresh

    def will_do(stored: Stored) -> bool:
        # Found again after an answer that was lost, what this run made is not to be made once more.
        return _is_good(stored, wanted, now) and (not rotate or stored in made)

    run = _Run(
        calls=calls,
        place=place,
        wanted=wanted,
        now=now,
        will_do=will_do,
        renew=renew,
        settle=lambda: sleep(settle_s),
    )
    for attempt in range(_ATTEMPTS):
        try:
            return await _keep_once(run)
        except ApiError as e:
            # A failed `test` of a JSON patch is 422, not 409 (measured).
            again = e.retryable or isinstance(e, ApiConflictError) or e.status == _UNPROCESSABLE
            if not again or attempt == _ATTEMPTS - 1:
                raise
            tell(f"{e}; trying again ({attempt + 2} of {_ATTEMPTS})")
            await sleep(max(e.retry_after_s or 0.0, _FIRST_PAUSE_S * 2**attempt))
    raise AssertionError("unreachable: the last attempt returns or raises")


def _is_good(stored: Stored, wanted: Wanted, now: datetime) -> bool:
    found = judge(stored, now, wanted.dns_names, wanted.ip_addresses)
    return found.state is State.GOOD and not authority_due(stored, now)


async def _keep_once(run: _Run) -> Kept:
    stored, version = await _fetch_secret(run.calls, run.place)
    found = judge(stored, run.now, run.wanted.dns_names, run.wanted.ip_addresses)
    good = run.will_do(stored)
    fresh = stored if good else run.renew(stored)
    patched, problems = await _trust(run, fresh.ca_pem)
    new_authority = fresh.ca_key_pem != stored.ca_key_pem
    if not good:
        if new_authority and stored.cert_pem and run.place.webhooks:
            await run.settle()
        await _store(run.calls, run.place, fresh, version)
    return Kept(
        found=found,
        stored=fresh,
        written=not good,
        new_authority=new_authority,
        patched=patched,
        problems=problems,
    )


async def _fetch_secret(calls: ClusterCalls, place: Place) -> tuple[Stored, str]:
    """The Secret's pair and resourceVersion; where there is no such Secret, an empty one is made.

    By an apply: the right to create is held to the Secret's name then, and one that others made meanwhile stays.
    """
    try:
        answer = await calls.get_raw(_secret_path(place))
    except ApiNotFoundError:
        labels = {"app.kubernetes.io/managed-by": "cardshare"}
        metadata = {"name": place.secret, "namespace": place.namespace, "labels": labels}
        empty = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}
        answer = await calls.apply(_secret_path(place), empty, manager=_MANAGER)
    try:
        secret = _secret_decoder.decode(answer)
    except msgspec.MsgspecError as e:
        raise UndecodableError(f"Secret {place.namespace}/{place.secret} cannot be read: {e}") from None
    complaints: list[str] = []
    data = secret.data or {}
    stored = Stored(
        cert_pem=_decoded(data, CERT_FILE, complaints),
        key_pem=_decoded(data, KEY_FILE, complaints),
        ca_pem=_decoded(data, CA_FILE, complaints),
        ca_key_pem=_decoded(data, CA_KEY_FILE, []),
        complaints=tuple(complaints),
    )
    return stored, secret.metadata.resource_version


async def _store(calls: ClusterCalls, place: Place, stored: Stored, version: str) -> None:
    parts = {
        CERT_FILE: stored.cert_pem,
        KEY_FILE: stored.key_pem,
        CA_FILE: stored.ca_pem,
        CA_KEY_FILE: stored.ca_key_pem,
    }
    data = {name: base64.b64encode(pem).decode() for name, pem in parts.items()}
    # Of that version only: two that renew at once must not each leave half of a pair.
    changes = {"metadata": {"resourceVersion": version}, "data": data}
    await calls.patch(_secret_path(place), changes, content_type=MERGE_PATCH)


async def _trust(run: _Run, ca_pem: bytes) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Let all configurations trust *ca_pem*: those that were changed, and a line for each that cannot be."""
    patched: list[str] = []
    problems: list[str] = []
    for name in run.place.webhooks:
        found = [await _fetch_configuration(run, f"{kind}/{quote(name, safe='')}") for kind in _KINDS]
        entries = [webhook for one in found if one for webhook in one.webhooks or ()]
        if not any(found):
            problems.append(f"webhook configuration {name}: there is none of that name; create it, then run this again")
        elif not any(_is_ours(webhook, run.place, run.wanted) for webhook in entries):
            named = f"Service {run.place.namespace}/{run.place.service}" if run.place.service else "a URL of ours"
            problems.append(f"webhook configuration {name}: no entry names {named}; correct --service or its entries")
        for kind, configuration in zip(_KINDS, found, strict=True):
            changes = _bundle_changes(run, configuration, ca_pem) if configuration else []
            if changes:
                path = f"{_CONFIGURATIONS}/{kind}/{quote(name, safe='')}"
                await run.calls.patch(path, msgspec.json.encode(changes), content_type=JSON_PATCH)
                patched.append(f"{kind}/{name}")
    return tuple(patched), tuple(problems)


async def _fetch_configuration(run: _Run, name: str) -> _Configuration | None:
    try:
        answer = await run.calls.get_raw(f"{_CONFIGURATIONS}/{name}")
    except ApiNotFoundError:
        return None
    try:
        return _configuration_decoder.decode(answer)
    except msgspec.MsgspecError as e:
        raise UndecodableError(f"{name} cannot be read: {e}") from e


def _bundle_changes(run: _Run, configuration: _Configuration, ca_pem: bytes) -> list[dict[str, str]]:
    changes: list[dict[str, str]] = []
    for index, webhook in enumerate(configuration.webhooks or ()):
        if not _is_ours(webhook, run.place, run.wanted):
            continue
        try:
            current = base64.b64decode(webhook.client_config.ca_bundle, validate=True)
        except (binascii.Error, ValueError):
            current = b""
        bundle = merged_bundle(ca_pem, current, run.now)
        if bundle != current:
            path = f"/webhooks/{index}/clientConfig/caBundle"
            changes.append({"op": "add", "path": path, "value": base64.b64encode(bundle).decode()})
    if not changes:
        return []
    # The index is only right in the version that was read.
    version = configuration.metadata.resource_version
    return [{"op": "test", "path": "/metadata/resourceVersion", "value": version}, *changes]


def _is_ours(webhook: _Webhook, place: Place, wanted: Wanted) -> bool:
    config = webhook.client_config
    if config.service is not None:
        return (config.service.namespace, config.service.name) == (place.namespace, place.service)
    try:
        host = urlsplit(config.url).hostname or ""
    except ValueError:
        return False
    return host in {*wanted.dns_names, *wanted.ip_addresses}


def _decoded(data: Mapping[str, str], name: str, complaints: list[str]) -> bytes:
    try:
        return base64.b64decode(data.get(name, ""), validate=True)
    except (binascii.Error, ValueError):
        complaints.append(f"{name} is no base64")
        return b""


def _secret_path(place: Place) -> str:
    return f"/api/v1/namespaces/{quote(place.namespace, safe='')}/secrets/{quote(place.secret, safe='')}"
