"""Keeps authority and pairs in Secrets, and the webhook configurations' caBundle trusting them, through the API server.

The authority, with the key that signs, has a Secret of its own, and so has each pair: who serves reads its pair alone.
The order is what keeps admission calls from failing: the authority is stored, then every bundle trusts the old and the
new one, then the leaves change. Any number may run this at a time, and each may die anywhere: the next run goes on from
what is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from functools import cache
from typing import Final

from certs.bundles import Callee, trust
from certs.pair import (
    PairVerdict,
    State,
    Stored,
    Wanted,
    is_issued_by_signer,
    judge,
    judge_authority,
    signed,
    signer_of,
    succeeded,
)
from certs.secrets import ClusterCalls, Found, fetch, store
from kube.errors import ApiConflictError, ApiError

_ATTEMPTS: Final = 6
_FIRST_PAUSE_S: Final = 0.2

# An API server learns of a changed bundle by watch, and several servers do so one after the other.
SETTLE_S: Final = 3.0

_UNPROCESSABLE: Final = 422


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A Secret with a serving pair, and what that is to be."""

    secret: str
    wanted: Wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where authority and pairs are kept, and who is to trust them.

    Attributes:
        namespace: the Secrets', and the Service's.
        authority: name of the Secret with the authority and its key.
        pairs: those that the authority signs, at least one; the webhook's first.
        service: the webhook's Service, as webhook configurations name it; "" where they name URLs only.
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
    """What was done with a Secret."""

    KEPT = "kept"
    MADE = "made"
    PUT_BACK = "put_back"
    TAKEN_OVER = "taken_over"
    COMPLETED = "completed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A Secret: how it was found, what it holds now, and what was done with it."""

    secret: str
    found: PairVerdict
    stored: Stored
    done: Done


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What `keep` found and left.

    Attributes:
        authority: the authority's Secret.
        pairs: the pairs' Secrets, in the order of the place.
        webhooks: webhook configurations that were looked at.
        patched: webhook configurations whose bundle was changed.
        problems: why a webhook configuration cannot be made to trust the authority, by its name.
    """

    authority: Held
    pairs: tuple[Held, ...]
    webhooks: tuple[str, ...]
    patched: tuple[str, ...]
    problems: dict[str, str]

    @property
    def secrets(self) -> tuple[Held, ...]:
        """All of them, the authority's first."""
        return (self.authority, *self.pairs)


# What Secrets held, by their names.
Remembered = dict[str, Stored]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """What all attempts share. made: what this run made, so that it is not made once more after an answer was lost."""

    calls: ClusterCalls
    place: Place
    now: datetime
    rotate: bool
    remembered: Remembered
    settle: Callable[[], Awaitable[object]]
    made: set[Stored] = field(default_factory=set)


async def keep(
    calls: ClusterCalls,
    place: Place,
    now: datetime,
    *,
    rotate: bool = False,
    remembered: Remembered | None = None,
    settle_s: float = SETTLE_S,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    tell: Callable[[str], object] = lambda line: None,
) -> Kept:
    """Keep a good authority and good pairs in their Secrets, or make them; and let every bundle trust them before.

    With *rotate* authority and pairs are made anew, once, whatever is there. What is *remembered* and good is put back
    where a Secret lost it: it is what is served, and trusted, still. An authority whose key lies beside a pair, as
    it did in former versions, is taken over, and the key taken out there. What another writer changed meanwhile, or
    what may have been written, is read again and judged anew; *tell* takes a line before each time.

    Raises:
        ApiError: the API server refuses, or cannot be made to answer.
        UndecodableError: a webhook configuration is not what it should look like.
        ValueError: what is wanted makes no certificate.
    """
    run = _Run(
        calls=calls,
        place=place,
        now=now,
        rotate=rotate,
        remembered=remembered or {},
        settle=lambda: sleep(settle_s),
    )

    # Made once for one state of the Secrets: a new authority with every attempt would push those that are still
    # served out of the bundles.
    @cache
    def successor(ca_pems: tuple[bytes, ...]) -> Stored:
        fresh = succeeded(ca_pems, place.pairs[0].wanted, now)
        run.made.add(fresh)
        return fresh

    for attempt in range(_ATTEMPTS):
        try:
            return await _keep_once(run, successor)
        except ApiError as e:
            # A failed `test` of a JSON patch is 422, not 409 (measured).
            again = e.retryable or isinstance(e, ApiConflictError) or e.status == _UNPROCESSABLE
            if not again or attempt == _ATTEMPTS - 1:
                raise
            tell(f"{e}; trying again ({attempt + 2} of {_ATTEMPTS})")
            await sleep(max(e.retry_after_s or 0.0, _FIRST_PAUSE_S * 2**attempt))
    raise AssertionError("unreachable: the last attempt returns or raises")


async def _keep_once(run: _Run, successor: Callable[[tuple[bytes, ...]], Stored]) -> Kept:
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


def _authority(run: _Run, first: Found, rest: list[Found], successor: Callable[[tuple[bytes, ...]], Stored]) -> Held:
    """The authority that is to sign: the one that is there, the one that was, one from beside a pair, or a new one."""
    found = judge_authority(first.stored, run.now)

    def held(known: Stored, done: Done) -> Held:
        return Held(secret=first.name, found=found, stored=_authority_alone(known), done=done)

    if not run.rotate or _authority_alone(first.stored) in run.made:
        if signer_of(first.stored, run.now) is not None:
            return held(first.stored, Done.KEPT)
        former = run.remembered.get(first.name, Stored())
        if signer_of(former, run.now) is not None:
            return held(former, Done.PUT_BACK)
        beside = next((one.stored for one in rest if signer_of(one.stored, run.now) is not None), None)
        if beside is not None:
            return held(beside, Done.TAKEN_OVER)
    # What is served comes first: of the authorities from before, one stays.
    return held(successor((*(one.stored.ca_pem for one in rest), first.stored.ca_pem)), Done.MADE)


def _pair(run: _Run, pair: Pair, found: Found, authority: Stored) -> Held:
    """The pair that is to be served: the one that is there, the one that was, or a new one."""

    def is_good(stored: Stored) -> bool:
        # Trusted is what the authority's Secret says; what lies beside the pair is a copy of that.
        judged = replace(stored, ca_pem=authority.ca_pem)
        verdict = judge(judged, run.now, pair.wanted.dns_names, pair.wanted.ip_addresses)
        return verdict.state is State.GOOD and is_issued_by_signer(stored, authority, run.now)

    verdict = judge(found.stored, run.now, pair.wanted.dns_names, pair.wanted.ip_addresses)
    former = run.remembered.get(pair.secret, Stored())
    if is_good(found.stored):
        stored = _pair_alone(found.stored, authority)
        done = Done.KEPT if stored == found.stored else Done.COMPLETED
    elif is_good(former):
        stored, done = _pair_alone(former, authority), Done.PUT_BACK
    else:
        stored, done = signed(authority, pair.wanted, run.now), Done.MADE
    return Held(secret=pair.secret, found=verdict, stored=stored, done=done)


def _authority_alone(stored: Stored) -> Stored:
    return Stored(ca_pem=stored.ca_pem, ca_key_pem=stored.ca_key_pem)


def _pair_alone(stored: Stored, authority: Stored) -> Stored:
    return Stored(cert_pem=stored.cert_pem, key_pem=stored.key_pem, ca_pem=authority.ca_pem)


def _changes_signer(run: _Run, found: Found, pair: Held, authority: Stored) -> bool:
    """Whether callers that trust only who issued the pair before would refuse the one after."""
    is_served = pair.done is not Done.KEPT and bool(found.stored.cert_pem)
    return is_served and not is_issued_by_signer(found.stored, authority, run.now)


def _callee(place: Place) -> Callee:
    served = place.pairs[0].wanted
    return Callee(
        namespace=place.namespace,
        service=place.service,
        hosts=frozenset({*served.dns_names, *served.ip_addresses}),
    )
