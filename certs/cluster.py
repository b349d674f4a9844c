"""Keeps authority and pairs in Secrets, and makes webhook configurations trust them, through the API server.

The authority, with its signing key, has its own Secret, and so has each pair: a server reads only its own pair. The
order of steps keeps admission calls working: store the authority, let every bundle trust the old and the new one, then
replace the leaves. Several processes may run this at once, and each may die at any point; the next run continues from
the current state.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from functools import cache
from typing import Final
from urllib.parse import quote, urlsplit

import msgspec

from certs.pair import (
    PairVerdict,
    State,
    StoredPem,
    WantedPair,
    is_issued_by_signer,
    judge,
    judge_authority,
    merged_bundle,
    signed,
    signer_of,
    succeeded,
)
from certs.secrets import ClusterCalls, FoundSecret, fetch, store
from core.wire.objects import ObjectMeta
from kube.calls import JSON_PATCH
from kube.errors import ApiConflictError, ApiError, ApiNotFoundError, UndecodableError

_CONFIGURATIONS: Final = "/apis/admissionregistration.k8s.io/v1"
_KINDS: Final = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
_ATTEMPTS: Final = 6
_FIRST_PAUSE_S: Final = 0.2

# An API server learns of a changed bundle through a watch, and several servers do so at different times.
SETTLE_S: Final = 3.0

_UNPROCESSABLE: Final = 422


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The Secret of a serving pair, and the pair's specification."""

    secret: str
    wanted: WantedPair


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretsPlace:
    """Where authority and pairs are stored, and which configurations must trust them.

    Attributes:
        namespace: namespace of the Secrets and the Service.
        authority: name of the Secret with the authority and its key.
        pairs: the pairs that the authority signs, at least one; the webhook's first.
        service: the webhook's Service, as webhook configurations name it; "" if they use only URLs.
        webhooks: names of webhook configurations, mutating, validating or both.
    """

    namespace: str
    authority: str
    pairs: tuple[Pair, ...]
    service: str = ""
    webhooks: tuple[str, ...] = ()

    @property
    def secrets(self) -> tuple[str, ...]:
        """The names of all Secrets, the authority's first."""
        return (self.authority, *(pair.secret for pair in self.pairs))


class Done(StrEnum):
    """The action taken on a Secret."""

    KEPT = "kept"
    MADE = "made"
    PUT_BACK = "put_back"
    TAKEN_OVER = "taken_over"
    COMPLETED = "completed"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldSecret:
    """A Secret: its state before, its content now, and the action taken."""

    secret: str
    found: PairVerdict
    stored: StoredPem
    done: Done


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The result of `keep`.

    Attributes:
        authority: the authority's Secret.
        pairs: the pairs' Secrets, in the order of the place.
        webhooks: the webhook configurations that were checked.
        patched: webhook configurations whose bundle was changed.
        problems: why a webhook configuration cannot trust the authority, by its name.
    """

    authority: HeldSecret
    pairs: tuple[HeldSecret, ...]
    webhooks: tuple[str, ...]
    patched: tuple[str, ...]
    problems: dict[str, str]

    @property
    def secrets(self) -> tuple[HeldSecret, ...]:
        """All Secrets, the authority's first."""
        return (self.authority, *self.pairs)


# Content of Secrets by name.
Remembered = dict[str, StoredPem]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """State shared by all attempts. made: what this run created, so that a lost answer does not create it twice."""

    calls: ClusterCalls
    place: SecretsPlace
    now: datetime
    rotate: bool
    remembered: Remembered
    settle: Callable[[], Awaitable[object]]
    made: set[StoredPem] = field(default_factory=set)


async def keep(
    calls: ClusterCalls,
    place: SecretsPlace,
    now: datetime,
    *,
    rotate: bool = False,
    remembered: Remembered | None = None,
    settle_s: float = SETTLE_S,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    tell: Callable[[str], object] = lambda line: None,
) -> Kept:
    """Ensure that the Secrets hold a valid authority and valid pairs, and that every bundle trusts them first.

    With *rotate*, authority and pairs are replaced once in any case. If a Secret lost content that is *remembered* and
    still valid, that content is restored, because it is still served and trusted. An authority whose key is stored
    beside a pair, as in former versions, is moved to its own Secret. After a conflict or an unknown outcome, everything
    is read and judged again; *tell* receives a line before each retry.

    Raises:
        ApiError: the API server refuses or does not answer.
        UndecodableError: a webhook configuration has an unexpected form.
        ValueError: no certificate can be made from the specification.
    """
    run = _Run(
        calls=calls,
        place=place,
        now=now,
        rotate=rotate,
        remembered=remembered or {},
        settle=lambda: sleep(settle_s),
    )

    # Created once for each state of the Secrets. A new authority at every attempt would push those still in use out of
    # the bundles.
    @cache
    def successor(ca_pems: tuple[bytes, ...]) -> StoredPem:
        fresh = succeeded(ca_pems, place.pairs[0].wanted, now)
        run.made.add(fresh)
        return fresh

    for attempt in range(_ATTEMPTS):
        try:
            return await _keep_once(run, successor)
        except ApiError as e:
            # A failed `test` of a JSON patch is answered with 422, not 409 (measured).
            again = e.retryable or isinstance(e, ApiConflictError) or e.status == _UNPROCESSABLE
            if not again or attempt == _ATTEMPTS - 1:
                raise
            tell(f"{e}; trying again ({attempt + 2} of {_ATTEMPTS})")
            await sleep(max(e.retry_after_s or 0.0, _FIRST_PAUSE_S * 2**attempt))
    raise AssertionError("unreachable: the last attempt returns or raises")


async def _keep_once(run: _Run, successor: Callable[[tuple[bytes, ...]], StoredPem]) -> Kept:
    place = run.place
    first, *rest = [await fetch(run.calls, place.namespace, name) for name in place.secrets]
    authority = _authority(run, first, rest, successor)
    if authority.done is not Done.KEPT:
        await store(run.calls, place.namespace, first, authority.stored)
    callee = _callee(place)
    trusted = await trust(run.calls, place.webhooks, callee, authority.stored.ca_pem, run.now)
    pairs = [_pair(run, pair, one, authority.stored) for pair, one in zip(place.pairs, rest, strict=True)]
    if place.webhooks and any(_changes_signer(run, *each, authority.stored) for each in zip(rest, pairs, strict=True)):
        await run.settle()
    for one, pair in zip(rest, pairs, strict=True):
        if pair.done is not Done.KEPT:
            await store(run.calls, place.namespace, one, pair.stored)
    return Kept(
        authority=authority,
        pairs=tuple(pairs),
        webhooks=place.webhooks,
        patched=trusted.patched,
        problems=trusted.problems,
    )


def _authority(
    run: _Run, first: FoundSecret, rest: list[FoundSecret], successor: Callable[[tuple[bytes, ...]], StoredPem]
) -> HeldSecret:
    """Return the signing authority: the current one, the remembered one, one stored beside a pair, or a new one."""
    found = judge_authority(first.stored, run.now)

    def held(known: StoredPem, done: Done) -> HeldSecret:
        return HeldSecret(secret=first.name, found=found, stored=_authority_alone(known), done=done)

    if not run.rotate or _authority_alone(first.stored) in run.made:
        if signer_of(first.stored, run.now) is not None:
            return held(first.stored, Done.KEPT)
        former = run.remembered.get(first.name, StoredPem())
        if signer_of(former, run.now) is not None:
            return held(former, Done.PUT_BACK)
        beside = next((one.stored for one in rest if signer_of(one.stored, run.now) is not None), None)
        if beside is not None:
            return held(beside, Done.TAKEN_OVER)
    # Authorities in use come first, because one predecessor stays.
    return held(successor((*(one.stored.ca_pem for one in rest), first.stored.ca_pem)), Done.MADE)


def _pair(run: _Run, pair: Pair, found: FoundSecret, authority: StoredPem) -> HeldSecret:
    """Return the pair to serve: the current one, the remembered one, or a new one."""

    def is_good(stored: StoredPem) -> bool:
        # The authority's Secret defines what is trusted; the bundle beside the pair is a copy.
        judged = replace(stored, ca_pem=authority.ca_pem)
        verdict = judge(judged, run.now, pair.wanted.dns_names, pair.wanted.ip_addresses)
        return verdict.state is State.GOOD and is_issued_by_signer(stored, authority, run.now)

    verdict = judge(found.stored, run.now, pair.wanted.dns_names, pair.wanted.ip_addresses)
    former = run.remembered.get(pair.secret, StoredPem())
    if is_good(found.stored):
        stored = _pair_alone(found.stored, authority)
        done = Done.KEPT if stored == found.stored else Done.COMPLETED
    elif is_good(former):
        stored, done = _pair_alone(former, authority), Done.PUT_BACK
    else:
        stored, done = signed(authority, pair.wanted, run.now), Done.MADE
    return HeldSecret(secret=pair.secret, found=verdict, stored=stored, done=done)


def _authority_alone(stored: StoredPem) -> StoredPem:
    return StoredPem(ca_pem=stored.ca_pem, ca_key_pem=stored.ca_key_pem)


def _pair_alone(stored: StoredPem, authority: StoredPem) -> StoredPem:
    return StoredPem(cert_pem=stored.cert_pem, key_pem=stored.key_pem, ca_pem=authority.ca_pem)


def _changes_signer(run: _Run, found: FoundSecret, pair: HeldSecret, authority: StoredPem) -> bool:
    """Return whether callers that trust only the old pair's issuer would reject the new pair."""
    is_served = pair.done is not Done.KEPT and bool(found.stored.cert_pem)
    return is_served and not is_issued_by_signer(found.stored, authority, run.now)


def _callee(place: SecretsPlace) -> Callee:
    served = place.pairs[0].wanted
    return Callee(
        namespace=place.namespace,
        service=place.service,
        hosts=frozenset({*served.dns_names, *served.ip_addresses}),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Callee:
    """Identifies the webhook entries that call this webhook.

    namespace, service: the Service that entries name; service is "" if they use only URLs. hosts: the hosts of such
    URLs.
    """

    namespace: str
    service: str
    hosts: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trusted:
    """The result of `trust`. patched: changed configurations by kind and name; problems: failures by configuration."""

    patched: tuple[str, ...]
    problems: dict[str, str]


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
    metadata: ObjectMeta
    webhooks: tuple[_Webhook, ...] | None = None


_decoder: Final = msgspec.json.Decoder(_Configuration)


async def trust(calls: ClusterCalls, names: tuple[str, ...], callee: Callee, ca_pem: bytes, now: datetime) -> Trusted:
    """Add *ca_pem* to the bundles of all entries in *names* that call *callee*.

    Raises:
        ApiError: the API server refuses or does not answer.
        UndecodableError: a configuration has an unexpected form.
    """
    patched: list[str] = []
    problems: dict[str, str] = {}
    for name in names:
        found = [await _fetch(calls, f"{kind}/{quote(name, safe='')}") for kind in _KINDS]
        entries = [webhook for one in found if one for webhook in one.webhooks or ()]
        if not any(found):
            problems[name] = f"webhook configuration {name}: there is none of that name; create it, then run this again"
        elif not any(_calls(webhook, callee) for webhook in entries):
            named = f"Service {callee.namespace}/{callee.service}" if callee.service else "a URL of ours"
            problems[name] = f"webhook configuration {name}: no entry names {named}; correct --service or its entries"
        for kind, configuration in zip(_KINDS, found, strict=True):
            changes = _changes(configuration, callee, ca_pem, now) if configuration else []
            if changes:
                path = f"{_CONFIGURATIONS}/{kind}/{quote(name, safe='')}"
                await calls.patch(path, msgspec.json.encode(changes), content_type=JSON_PATCH)
                patched.append(f"{kind}/{name}")
    return Trusted(patched=tuple(patched), problems=problems)


async def _fetch(calls: ClusterCalls, name: str) -> _Configuration | None:
    try:
        answer = await calls.get_raw(f"{_CONFIGURATIONS}/{name}")
    except ApiNotFoundError:
        return None
    try:
        return _decoder.decode(answer)
    except msgspec.MsgspecError as e:
        raise UndecodableError(f"{name} cannot be read: {e}") from e


def _changes(configuration: _Configuration, callee: Callee, ca_pem: bytes, now: datetime) -> list[dict[str, str]]:
    changes: list[dict[str, str]] = []
    for index, webhook in enumerate(configuration.webhooks or ()):
        if not _calls(webhook, callee):
            continue
        try:
            current = base64.b64decode(webhook.client_config.ca_bundle, validate=True)
        except (binascii.Error, ValueError):
            current = b""
        bundle = merged_bundle(ca_pem, current, now)
        if bundle != current:
            path = f"/webhooks/{index}/clientConfig/caBundle"
            changes.append({"op": "add", "path": path, "value": base64.b64encode(bundle).decode()})
    if not changes:
        return []
    # The index is correct only in the version that was read.
    version = configuration.metadata.resource_version or ""
    return [{"op": "test", "path": "/metadata/resourceVersion", "value": version}, *changes]


def _calls(webhook: _Webhook, callee: Callee) -> bool:
    config = webhook.client_config
    if config.service is not None:
        return (config.service.namespace, config.service.name) == (callee.namespace, callee.service)
    try:
        host = urlsplit(config.url).hostname or ""
    except ValueError:
        return False
    return host in callee.hosts
