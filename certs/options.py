"""The options of ``python -m certs``, read from flags and environment and validated together."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from certs.cluster import Pair, Place
from certs.pair import Wanted
from core.errors import ConfigError
from runtime.listening import Address, read_address
from runtime.options import LogFormat, add_log_format, read_log_format

DEFAULT_DAYS: Final = 90
DEFAULT_CA_DAYS: Final = 1825
DEFAULT_EVERY_S: Final = 3.0
DEFAULT_METRICS_LISTEN: Final = ":8081"
_MAX_EVERY_S: Final = 3600.0

# RFC 1123, as the API server applies it to names of namespaces and Services.
_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_MAX_DNS_NAME: Final = 253


@dataclass(frozen=True, slots=True, kw_only=True)
class Ensure:
    """Keep or create a good pair for *wanted* in *directory*; with *rotate*, replace it in any case."""

    directory: Path
    wanted: Wanted
    rotate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EnsureInCluster:
    """Keep authority and pairs in Secrets that webhook configurations trust; copy the first pair to *directory*."""

    place: Place
    directory: Path | None
    kubeconfig: str
    rotate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Keep authority and pairs in Secrets that webhook configurations trust, and check every *every_s* seconds.

    metrics_listen: address of the metrics. pod: namespace and name of the pod whose condition shows the state; None for
    none.
    """

    place: Place
    kubeconfig: str
    every_s: float
    metrics_listen: Address
    pod: tuple[str, str] | None
    log_format: LogFormat = LogFormat.JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """Judge the pair in *directory* for the given names."""

    directory: Path
    dns_names: tuple[str, ...]
    ip_addresses: tuple[str, ...]


def parse(argv: Sequence[str], environ: Mapping[str, str]) -> Ensure | EnsureInCluster | Run | Status:
    """Read flags, and ``CARDSHARE_<FLAG>`` for the flags that are not given; variables separate list items by commas.

    Raises:
        ConfigError: lists every problem.
        SystemExit: ``--help``, or an unknown flag.
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
    place = _place(flags, environ, wanted, problems)
    if flags.command == "run":
        return _run(flags, environ, place, problems)
    if problems:
        raise ConfigError(problems)
    if not secret:
        return Ensure(directory=Path(directory), wanted=wanted, rotate=flags.command == "rotate")
    return EnsureInCluster(
        place=place,
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


def _run(flags: argparse.Namespace, environ: Mapping[str, str], place: Place, problems: list[str]) -> Run:
    every_s = _seconds(flags, environ, problems)
    text = _one(flags, environ, "metrics-listen") or DEFAULT_METRICS_LISTEN
    listen = read_address(text)
    if listen is None:
        problems.append(
            f"--metrics-listen (CARDSHARE_METRICS_LISTEN): found '{text}'; write host:port, such as ':8081'"
        )
    pod = _one(flags, environ, "pod")
    namespace, slash, name = pod.partition("/")
    if pod and not (slash and all(map(_is_object_name, (namespace, name)))):
        problems.append(f"--pod (CARDSHARE_POD): found '{pod}'; write NAMESPACE/NAME")
    log_format = read_log_format(flags, environ, problems)
    if problems or listen is None:
        raise ConfigError(problems)
    return Run(
        place=place,
        kubeconfig=_one(flags, environ, "kubeconfig"),
        every_s=every_s,
        metrics_listen=listen,
        pod=(namespace, name) if pod else None,
        log_format=log_format,
    )


def _place(flags: argparse.Namespace, environ: Mapping[str, str], wanted: Wanted, problems: list[str]) -> Place:
    secret, webhooks = _one(flags, environ, "secret"), _many(flags, environ, "webhook")
    service, namespace = _one(flags, environ, "service"), _one(flags, environ, "namespace")
    authority = _one(flags, environ, "ca-secret")
    if webhooks and not secret:
        problems.append("--secret (CARDSHARE_SECRET): missing; name the Secret that --webhook is to trust")
    if secret and not namespace and not service:  # with a Service, this problem is already listed
        problems.append("--namespace (CARDSHARE_NAMESPACE): missing; name the namespace of the Secret")
    if secret and not authority:
        problems.append("--ca-secret (CARDSHARE_CA_SECRET): missing; name the Secret of the authority and its key")
    more = _pairs(flags, environ, wanted, problems)
    secrets = [name for name in (authority, secret, *(pair.secret for pair in more)) if name]
    problems.extend(
        f"--ca-secret, --secret, --pair: Secret '{name}' is named twice; give each its own"
        for name in sorted({name for name in secrets if secrets.count(name) > 1})
    )
    for flag, names in (("ca-secret", [authority]), ("secret", [secret]), ("webhook", webhooks)):
        problems.extend(
            f"--{flag} ({_variable(flag)}): found '{name}'; "
            "write the object's name: lower-case letters, digits, '-' and '.'"
            for name in names
            if name and not _is_object_name(name)
        )
    pairs = (Pair(secret=secret, wanted=wanted), *more)
    return Place(namespace=namespace, authority=authority, pairs=pairs, service=service, webhooks=webhooks)


def _pairs(
    flags: argparse.Namespace, environ: Mapping[str, str], wanted: Wanted, problems: list[str]
) -> tuple[Pair, ...]:
    """Return the pairs beside that of --secret, each with the names given to its Secret."""
    named: dict[str, list[str]] = {}
    for text in _many(flags, environ, "pair"):
        secret, _, name = text.partition("=")
        if _is_object_name(secret) and (_is_address(name) or _is_dns_name(name)):
            named.setdefault(secret, []).append(name)
        else:
            problems.append(f"--pair (CARDSHARE_PAIR): found '{text}'; write SECRET=NAME, a DNS name or an address")
    return tuple(
        Pair(
            secret=secret,
            wanted=replace(
                wanted,
                dns_names=tuple(name for name in names if not _is_address(name)),
                ip_addresses=tuple(filter(_is_address, names)),
            ),
        )
        for secret, names in named.items()
    )


def _is_object_name(text: str) -> bool:
    return len(text) <= _MAX_DNS_NAME and all(_LABEL.fullmatch(label) for label in text.split("."))


def _is_dns_name(text: str) -> bool:
    return _is_object_name(text.lower().removeprefix("*."))


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m certs",
        description="Creates, renews and checks the webhook's certificates: tls.crt, tls.key, ca.crt, ca.key.",
        epilog="Each flag has an environment variable CARDSHARE_<FLAG> (--ca-days: CARDSHARE_CA_DAYS); "
        "the flag takes precedence. Exit status: 0 all is well, 1 something is not, 2 wrong flags.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="ensure | rotate | run | status")
    ensure = commands.add_parser("ensure", help="create a pair if there is no valid one; safe to repeat")
    rotate = commands.add_parser("rotate", help="create a new CA and pair now; the old CA stays trusted")
    run = commands.add_parser("run", help="keep Secrets and caBundles valid until stopped")
    status = commands.add_parser("status", help="check what is there; changes nothing")
    for command in (ensure, rotate, status):
        command.add_argument("--dir", metavar="D", help="directory for the files")
    run.set_defaults(dir="")
    run.add_argument("--every", metavar="S", help=f"seconds between checks (default {DEFAULT_EVERY_S:g})")
    run.add_argument(
        "--metrics-listen", metavar="ADDRESS", help=f"metrics and health (default {DEFAULT_METRICS_LISTEN})"
    )
    add_log_format(run)
    run.add_argument("--pod", metavar="NAMESPACE/NAME", help="this process's own pod, whose condition it sets")
    for command in (ensure, rotate, run, status):
        command.add_argument("--service", metavar="S", help="Service in front of the webhook")
        command.add_argument("--namespace", metavar="N", help="namespace of that Service")
        command.add_argument("--dns", metavar="NAME", action="append", help="an additional DNS name; repeatable")
        command.add_argument("--ip", metavar="ADDRESS", action="append", help="an additional IP address; repeatable")
    for command in (ensure, rotate, run):
        command.add_argument("--days", metavar="DAYS", help=f"days that the pair is valid (default {DEFAULT_DAYS})")
        command.add_argument("--ca-days", metavar="DAYS", help=f"days that the CA is valid (default {DEFAULT_CA_DAYS})")
        command.add_argument(
            "--secret", metavar="NAME", help="store the pair in this Secret in --namespace; --dir gets a copy"
        )
        command.add_argument("--ca-secret", metavar="NAME", help="store the CA and its key in this Secret")
        command.add_argument(
            "--pair",
            metavar="SECRET=NAME",
            action="append",
            help="store another pair of the same CA in this Secret, for this name or address; repeatable",
        )
        command.add_argument(
            "--webhook",
            metavar="NAME",
            action="append",
            help="webhook configuration whose caBundle trusts the Secret's pair; repeatable",
        )
        command.add_argument(
            "--kubeconfig", metavar="F", help="kubeconfig file (default: the pod's own credentials, KUBECONFIG)"
        )
    return parser


def _one(flags: argparse.Namespace, environ: Mapping[str, str], flag: str) -> str:
    given: str | None = getattr(flags, flag.replace("-", "_"), None)
    return environ.get(_variable(flag), "") if given is None else given


def _many(flags: argparse.Namespace, environ: Mapping[str, str], flag: str) -> tuple[str, ...]:
    given: list[str] | None = getattr(flags, flag, None)
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
    problems.extend(
        f"--dns (CARDSHARE_DNS): found '{name}'; write a DNS name such as 'web.example.org'"
        for name in names
        if not _is_dns_name(name)
    )
    return names


def _addresses(flags: argparse.Namespace, environ: Mapping[str, str], problems: list[str]) -> tuple[str, ...]:
    addresses = _many(flags, environ, "ip")
    problems.extend(
        f"--ip (CARDSHARE_IP): found '{address}'; write an address such as '127.0.0.1'"
        for address in addresses
        if not _is_address(address)
    )
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
