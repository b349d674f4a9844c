"""What a run of ``python -m certs`` is to do, read from flags and environment and checked whole."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from certs.cluster import Place
from certs.pair import Wanted
from core.errors import ConfigError

DEFAULT_DAYS: Final = 90
DEFAULT_CA_DAYS: Final = 1825
DEFAULT_EVERY_S: Final = 3.0
_MAX_EVERY_S: Final = 3600.0

# RFC 1123, as the API server takes it for the name of a namespace or Service.
_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_MAX_DNS_NAME: Final = 253


@dataclass(frozen=True, slots=True, kw_only=True)
class Ensure:
    """Keep a good pair for *wanted* in *directory*, or make one; with *rotate*, make one whatever is there."""

    directory: Path
    wanted: Wanted
    rotate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EnsureInCluster:
    """Keep a good pair for *wanted* in a Secret, trusted by the webhook configurations; and copy it to *directory*."""

    place: Place
    wanted: Wanted
    directory: Path | None
    kubeconfig: str
    rotate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Keep a good pair for *wanted* in a Secret, trusted by the webhook configurations, looking every *every_s*."""

    place: Place
    wanted: Wanted
    kubeconfig: str
    every_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """Judge what lies in *directory*, for the names given."""

    directory: Path
    dns_names: tuple[str, ...]
    ip_addresses: tuple[str, ...]


def parse(argv: Sequence[str], environ: Mapping[str, str]) -> Ensure | EnsureInCluster | Run | Status:
    """Read flags, and ``CARDSHARE_<FLAG>`` for those not given; lists are separated by commas there.

    Raises:
        ConfigError: with every problem, not only the first.
        SystemExit: ``--help``, or a flag that does not exist.
    """
    flags = _parser().parse_args(argv)
    problems: list[str] = []
    directory = _one(flags, environ, "dir")
    secret = _one(flags, environ, "secret") if flags.command != "status" else ""
    if flags.command == "run" and not secret:
        problems.append("--secret (CARDSHARE_SECRET): missing; name the Secret that is to be kept")
    elif not directory and not secret:
        problems.append("--dir (CARDSHARE_DIR): missing; name the directory of the certificate files")
    dns_names = (*_service_names(flags, environ, problems), *_dns_names(flags, environ, problems))
    addresses = _addresses(flags, environ, problems)
    if flags.command == "status":
        if problems:
            raise ConfigError(problems)
        return Status(directory=Path(directory), dns_names=dns_names, ip_addresses=addresses)
    wanted = _wanted(flags, environ, dns_names, addresses, problems)
    place = _place(flags, environ, problems)
    every_s = _seconds(flags, environ, problems) if flags.command == "run" else 0.0
    if problems:
        raise ConfigError(problems)
    if flags.command == "run":
        return Run(place=place, wanted=wanted, kubeconfig=_one(flags, environ, "kubeconfig"), every_s=every_s)
    if not secret:
        return Ensure(directory=Path(directory), wanted=wanted, rotate=flags.command == "rotate")
    return EnsureInCluster(
        place=place,
        wanted=wanted,
        directory=Path(directory) if directory else None,
        kubeconfig=_one(flags, environ, "kubeconfig"),
        rotate=flags.command == "rotate",
    )


def _wanted(
    flags: argparse.Namespace,
    environ: Mapping[str, str],
    dns_names: tuple[str, ...],
    addresses: tuple[str, ...],
    problems: list[str],
) -> Wanted:
    if not _one(flags, environ, "service") and not dns_names and not addresses:
        problems.append("--service (CARDSHARE_SERVICE): missing; name the Service, or give --dns or --ip")
    days = _days(flags, environ, "days", DEFAULT_DAYS, problems)
    ca_days = _days(flags, environ, "ca-days", DEFAULT_CA_DAYS, problems)
    if ca_days < days and not problems:
        problems.append(f"--ca-days (CARDSHARE_CA_DAYS): found {ca_days}; write at least --days ({days})")
    return Wanted(dns_names=dns_names, ip_addresses=addresses, days=days, ca_days=ca_days)


def _place(flags: argparse.Namespace, environ: Mapping[str, str], problems: list[str]) -> Place:
    secret, webhooks = _one(flags, environ, "secret"), _many(flags, environ, "webhook")
    service, namespace = _one(flags, environ, "service"), _one(flags, environ, "namespace")
    if webhooks and not secret:
        problems.append("--secret (CARDSHARE_SECRET): missing; name the Secret that --webhook is to trust")
    if secret and not namespace and not service:  # with a Service it has been told already
        problems.append("--namespace (CARDSHARE_NAMESPACE): missing; name the namespace of the Secret")
    for flag, names in (("secret", (secret,) if secret else ()), ("webhook", webhooks)):
        problems.extend(
            f"--{flag} ({_variable(flag)}): found '{name}'; "
            "write the object's name: lower-case letters, digits, '-' and '.'"
            for name in names
            if len(name) > _MAX_DNS_NAME or not all(_LABEL.fullmatch(label) for label in name.split("."))
        )
    return Place(namespace=namespace, secret=secret, service=service, webhooks=webhooks)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m certs",
        description="Makes, keeps and judges the webhook's certificates: tls.crt, tls.key, ca.crt, ca.key.",
        epilog="Every flag may be given as CARDSHARE_<FLAG> (--ca-days: CARDSHARE_CA_DAYS); a flag wins. "
        "Exit status: 0 all is well, 1 it is not, 2 wrong flags.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="ensure | rotate | run | status")
    ensure = commands.add_parser("ensure", help="keep a good pair, or make one; safe to repeat")
    rotate = commands.add_parser("rotate", help="make a new authority and pair now; the old authority stays trusted")
    run = commands.add_parser("run", help="keep a Secret and who trusts it good, until stopped")
    status = commands.add_parser("status", help="judge what is there; changes nothing")
    for command in (ensure, rotate, status):
        command.add_argument("--dir", metavar="D", help="directory of the files")
    run.set_defaults(dir="")
    run.add_argument("--every", metavar="S", help=f"seconds between two looks (default {DEFAULT_EVERY_S:g})")
    for command in (ensure, rotate, run, status):
        command.add_argument("--service", metavar="S", help="Service in front of the webhook")
        command.add_argument("--namespace", metavar="N", help="namespace of that Service")
        command.add_argument("--dns", metavar="NAME", action="append", help="one more DNS name; may be repeated")
        command.add_argument("--ip", metavar="ADDRESS", action="append", help="an address; may be repeated")
    for command in (ensure, rotate, run):
        command.add_argument("--days", metavar="DAYS", help=f"life of the pair (default {DEFAULT_DAYS})")
        command.add_argument("--ca-days", metavar="DAYS", help=f"life of the authority (default {DEFAULT_CA_DAYS})")
        command.add_argument(
            "--secret", metavar="NAME", help="keep the pair in this Secret of --namespace; --dir gets a copy"
        )
        command.add_argument(
            "--webhook",
            metavar="NAME",
            action="append",
            help="webhook configuration whose caBundle is to trust the Secret's pair; may be repeated",
        )
        command.add_argument(
            "--kubeconfig", metavar="F", help="how to reach the API server (default: as a pod, KUBECONFIG)"
        )
    return parser


def _one(flags: argparse.Namespace, environ: Mapping[str, str], flag: str) -> str:
    given: str | None = getattr(flags, flag.replace("-", "_"))
    return environ.get(_variable(flag), "") if given is None else given


def _many(flags: argparse.Namespace, environ: Mapping[str, str], flag: str) -> tuple[str, ...]:
    given: list[str] | None = getattr(flags, flag)
    if given is not None:
        return tuple(given)
    return tuple(item.strip() for item in environ.get(_variable(flag), "").split(",") if item.strip())


def _variable(flag: str) -> str:
    return "CARDSHARE_" + flag.upper().replace("-", "_")


def _service_names(flags: argparse.Namespace, environ: Mapping[str, str], problems: list[str]) -> tuple[str, ...]:
    service, namespace = _one(flags, environ, "service"), _one(flags, environ, "namespace")
    if service and not namespace:
        problems.append("--namespace (CARDSHARE_NAMESPACE): missing; name the namespace of the Service")
    secret = _one(flags, environ, "secret") if flags.command != "status" else ""
    if namespace and not service and not secret:
        problems.append("--service (CARDSHARE_SERVICE): missing; a namespace alone names nothing")
    for flag, value in (("service", service), ("namespace", namespace)):
        if value and not _LABEL.fullmatch(value):
            problems.append(
                f"--{flag} ({_variable(flag)}): found '{value}'; "
                "write up to 63 lower-case letters, digits or '-', with a letter or digit at both ends"
            )
    if not service or not namespace:
        return ()
    return tuple(f"{service}{rest}" for rest in ("", *_suffixes(namespace)))


def _suffixes(namespace: str) -> tuple[str, ...]:
    return f".{namespace}", f".{namespace}.svc", f".{namespace}.svc.cluster.local"


def _dns_names(flags: argparse.Namespace, environ: Mapping[str, str], problems: list[str]) -> tuple[str, ...]:
    names = _many(flags, environ, "dns")
    for name in names:
        labels = name.lower().removeprefix("*.").split(".")
        if len(name) > _MAX_DNS_NAME or not all(_LABEL.fullmatch(label) for label in labels):
            problems.append(f"--dns (CARDSHARE_DNS): found '{name}'; write a DNS name such as 'web.example.org'")
    return names


def _addresses(flags: argparse.Namespace, environ: Mapping[str, str], problems: list[str]) -> tuple[str, ...]:
    addresses = _many(flags, environ, "ip")
    for address in addresses:
        try:
            ip_address(address)
        except ValueError:
            problems.append(f"--ip (CARDSHARE_IP): found '{address}'; write an address such as '127.0.0.1'")
    return addresses


def _days(flags: argparse.Namespace, environ: Mapping[str, str], flag: str, default: int, problems: list[str]) -> int:
    text = _one(flags, environ, flag)
    if not text:
        return default
    if not re.fullmatch(r"[1-9][0-9]{0,4}", text):
        problems.append(f"--{flag} ({_variable(flag)}): found '{text}'; write whole days, 1 to 99999")
        return default
    return int(text)


def _seconds(flags: argparse.Namespace, environ: Mapping[str, str], problems: list[str]) -> float:
    text = _one(flags, environ, "every")
    if not text:
        return DEFAULT_EVERY_S
    if re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,3})?", text) and 0.1 <= float(text) <= _MAX_EVERY_S:
        return float(text)
    problems.append(f"--every (CARDSHARE_EVERY): found '{text}'; write seconds, 0.1 to {_MAX_EVERY_S:g}")
    return DEFAULT_EVERY_S
