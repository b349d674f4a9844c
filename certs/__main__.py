"""``python -m certs ensure|rotate|run``: creates and renews the webhook's certificates."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, assert_never

import structlog
from prometheus_client import generate_latest

from certs.cluster import Kept, keep
from certs.files import ensure, why_not_written
from certs.keeper import CertificateFigures, Keeper, told_of
from certs.options import Ensure, EnsureInCluster, Run, parse
from certs.pair import judge, judge_authority
from core.errors import ConfigError
from core.names import CERTIFICATES_KEPT
from kube.calls import Calls
from kube.condition import OwnCondition
from kube.credentials import choose_source, mistake_in
from kube.errors import ApiError, CredentialsError, UndecodableError
from kube.transport import Transport
from runtime.process import configure_log, stop_event
from runtime.serving import ServingFigures, plain_port

# The exit status that a shell reports after SIGINT.
_INTERRUPTED: Final = 128 + 2
_log: Final = structlog.get_logger()


def main(argv: Sequence[str], environ: Mapping[str, str], now: datetime) -> int:
    """Run the command in *argv*; 0 on success, 1 on failure, 2 for invalid flags."""
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
            case _:
                assert_never(options)
    except KeyboardInterrupt:
        return _INTERRUPTED


def _ensure(options: Ensure, now: datetime) -> int:
    try:
        done = ensure(options.directory, options.wanted, now)
    except OSError as e:
        _tell(why_not_written(options.directory, e))
        return 1
    if done.written:
        print(f"{options.directory}: was {done.found.text}; made a new pair")
    print(f"{options.directory}: {done.stands.text}")
    return 0 if done.stands.serves else 1


def _ensure_in_cluster(options: EnsureInCluster, environ: Mapping[str, str], now: datetime) -> int:
    place = options.place
    if mistake := mistake_in(kubeconfig=options.kubeconfig, environ=environ):
        _tell(mistake)
        return 2
    try:
        kept = asyncio.run(_keep(options, environ, now))
    except (ApiError, CredentialsError, UndecodableError) as e:
        _tell(str(e))
        return 1
    for name in kept.patched:
        print(f"{name}: trusts the authority now")
    for one in kept.secrets:
        if line := told_of(one, place.namespace):
            print(line)
    verdicts = [judge_authority(kept.authority.stored, now)]
    for pair, one in zip(place.pairs, kept.pairs, strict=True):
        verdicts.append(judge(one.stored, now, pair.wanted.dns_names, pair.wanted.ip_addresses))
    for one, verdict in zip(kept.secrets, verdicts, strict=True):
        print(f"Secret {place.namespace}/{one.secret}: {verdict.text}")
    for problem in kept.problems.values():
        _tell(problem)
    return 0 if all(verdict.serves for verdict in verdicts) and not kept.problems else 1


def _run(options: Run, environ: Mapping[str, str]) -> int:
    if mistake := mistake_in(kubeconfig=options.kubeconfig, environ=environ):
        _tell(mistake)
        return 2
    configure_log(options.log_format)
    try:
        asyncio.run(_keep_on(options, environ))
    except ConfigError as e:
        for problem in e.problems:
            _tell(problem)
        return 2
    except CredentialsError as e:
        _tell(str(e))
        return 1
    return 0


async def _keep_on(options: Run, environ: Mapping[str, str]) -> None:
    """Run the keeper until SIGTERM or SIGINT."""
    stop = stop_event()
    figures = CertificateFigures(_clock)
    port = plain_port(lambda: [figures.trouble] if figures.trouble else [], lambda: generate_latest(figures.registry))
    figures.registry.register(ServingFigures((port,)))
    source = choose_source(kubeconfig=options.kubeconfig, environ=environ)
    await port.start(options.metrics_listen, "--metrics-listen")
    try:
        async with Transport(source, user_agent="cardshare-certs") as transport, asyncio.TaskGroup() as tasks:
            calls = Calls(transport)
            keeper = Keeper(calls, options.place, figures, every_s=options.every_s, clock=_clock, tell=_log.info)
            running = [tasks.create_task(keeper.run(), name="keep")]
            if options.pod is not None:
                told = OwnCondition(calls, options.pod, CERTIFICATES_KEPT, figures.verdict)
                running.append(tasks.create_task(told.run(), name="condition"))
            await stop.wait()
            for one in running:
                one.cancel()
    finally:
        await port.stop(1.0)


def _clock() -> datetime:
    return datetime.now(UTC)


async def _keep(options: EnsureInCluster, environ: Mapping[str, str], now: datetime) -> Kept:
    source = choose_source(kubeconfig=options.kubeconfig, environ=environ)
    async with Transport(source, user_agent="cardshare-certs") as transport:
        return await keep(Calls(transport), options.place, now, rotate=options.rotate, tell=_tell)


def _tell(line: str) -> None:
    print(f"certs: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ, datetime.now(UTC)))
