"""``python -m certs ensure|rotate|run|status``: the webhook's certificate files, made, kept and judged."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, assert_never

from certs.cluster import Kept, keep
from certs.files import ensure, publish, read, why_not_written
from certs.keeper import Keeper
from certs.options import Ensure, EnsureInCluster, Run, Status, parse
from certs.pair import describe, judge
from core.errors import ConfigError
from kube.calls import Calls
from kube.credentials import choose_source, mistake_in
from kube.errors import ApiError, CredentialsError, UndecodableError
from kube.transport import Transport

# What a shell shows of a process that SIGINT ended.
_INTERRUPTED: Final = 128 + 2


def main(argv: Sequence[str], environ: Mapping[str, str], now: datetime) -> int:
    """Do what the flags say; 0 where all is well, 1 where it is not, 2 where the flags are wrong."""
    try:
        options = parse(argv, environ)
    except ConfigError as e:
        for problem in e.problems:
            _tell(problem)
        return 2
    try:
        match options:
            case Ensure():
                return _ensure(options, now)
            case EnsureInCluster():
                return _ensure_in_cluster(options, environ, now)
            case Run():
                return _run(options, environ)
            case Status():
                return _status(options, now)
            case _:
                assert_never(options)
    except KeyboardInterrupt:
        return _INTERRUPTED


def _ensure(options: Ensure, now: datetime) -> int:
    try:
        done = ensure(options.directory, options.wanted, now, rotate=options.rotate)
    except OSError as e:
        _tell(why_not_written(options.directory, e))
        return 1
    if done.written:
        signer = "a new authority" if done.new_authority else "the authority that was there"
        print(f"{options.directory}: was {done.found.text}; made a new pair, signed by {signer}")
    print(f"{options.directory}: {done.stands.text}")
    return 0 if done.stands.serves else 1


def _ensure_in_cluster(options: EnsureInCluster, environ: Mapping[str, str], now: datetime) -> int:
    place = options.place
    if mistake := mistake_in(kubeconfig=options.kubeconfig, environ=environ):
        _tell(mistake)
        return 2
    try:
        kept = asyncio.run(_keep(options, environ, now))
        copied = options.directory is not None and publish(options.directory, kept.stored)
    except (ApiError, CredentialsError, UndecodableError) as e:
        _tell(str(e))
        return 1
    except OSError as e:
        _tell(why_not_written(options.directory or Path(), e))
        return 1
    for name in kept.patched:
        print(f"{name}: trusts the Secret's authority now")
    if kept.written:
        signer = "a new authority" if kept.new_authority else "the authority that was there"
        print(f"Secret {place.namespace}/{place.secret}: was {kept.found.text}; made a new pair, signed by {signer}")
    if copied:
        print(f"{options.directory}: copied from the Secret")
    stands = judge(kept.stored, now, options.wanted.dns_names, options.wanted.ip_addresses)
    print(f"Secret {place.namespace}/{place.secret}: {stands.text}")
    for problem in kept.problems:
        _tell(problem)
    return 0 if stands.serves and not kept.problems else 1


def _run(options: Run, environ: Mapping[str, str]) -> int:
    if mistake := mistake_in(kubeconfig=options.kubeconfig, environ=environ):
        _tell(mistake)
        return 2
    try:
        asyncio.run(_keep_on(options, environ))
    except CredentialsError as e:
        _tell(str(e))
        return 1
    return 0


async def _keep_on(options: Run, environ: Mapping[str, str]) -> None:
    """Keep until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    source = choose_source(kubeconfig=options.kubeconfig, environ=environ)
    async with Transport(source, user_agent="cardshare-certs") as transport, asyncio.TaskGroup() as tasks:
        keeper = Keeper(
            Calls(transport),
            options.place,
            options.wanted,
            every_s=options.every_s,
            clock=lambda: datetime.now(UTC),
            tell=_tell,
        )
        running = tasks.create_task(keeper.run(), name="keep")
        await stop.wait()
        running.cancel()


async def _keep(options: EnsureInCluster, environ: Mapping[str, str], now: datetime) -> Kept:
    source = choose_source(kubeconfig=options.kubeconfig, environ=environ)
    async with Transport(source, user_agent="cardshare-certs") as transport:
        return await keep(Calls(transport), options.place, options.wanted, now, rotate=options.rotate, tell=_tell)


def _tell(line: str) -> None:
    print(f"certs: {line}", file=sys.stderr, flush=True)


def _status(options: Status, now: datetime) -> int:
    stored = read(options.directory)
    verdict = judge(stored, now, options.dns_names, options.ip_addresses)
    print(f"{options.directory}: {verdict.text}")
    if verdict.serves:
        print(f"{options.directory}: {describe(stored.cert_pem)}")
    return 0 if verdict.serves else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ, datetime.now(UTC)))
