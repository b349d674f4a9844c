"""The flags of ``python -m certs``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from certs.cluster import Pair, SecretsPlace
from certs.pair import WantedPair
from core.names import LABEL, is_object_name
from runtime import flags
from runtime.flags import FlagKind, flag, several
from runtime.listening import Address


def _is_dns_name(text: str) -> bool:
    return is_object_name(text.lower().removeprefix("*."))


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _pair(text: str) -> tuple[str, str] | None:
    secret, _, name = text.partition("=")
    is_good = is_object_name(secret) and (_is_address(name) or _is_dns_name(name))
    return (secret, name) if is_good else None


_LABEL: Final = flags.judged(
    LABEL.fullmatch, "write up to 63 lower-case letters, digits or '-', with a letter or digit at both ends"
)
_OBJECT: Final = flags.judged(is_object_name, "write the object's name: lower-case letters, digits, '-' and '.'")
_DNS: Final = flags.judged(_is_dns_name, "write a DNS name such as 'web.example.org'")
_IP: Final = flags.judged(_is_address, "write an address such as '127.0.0.1'", "ADDRESS")
_PAIR: Final = FlagKind(_pair, "write SECRET=NAME, a DNS name or an address", ("", ""), "SECRET=NAME")
_DAYS: Final = flags.whole(1, 99_999, "DAYS")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    service: str = flag(_LABEL, "Service in front of the webhook")
    namespace: str = flag(_LABEL, "namespace of that Service")
    dns: tuple[str, ...] = several(_DNS, "an additional DNS name; repeatable")
    ip_addresses: tuple[str, ...] = several(_IP, "an additional IP address; repeatable", name="--ip")
    days: int = flag(_DAYS, "days that the pair is valid", "90")
    ca_days: int = flag(_DAYS, "days that the CA is valid", "1825")
    secret: str = flag(_OBJECT, "store the pair in this Secret in --namespace")
    ca_secret: str = flag(_OBJECT, "store the CA and its key in this Secret")
    pairs: tuple[tuple[str, str], ...] = several(
        _PAIR, "Secret of another pair of the CA, for this name or address; repeatable", name="--pair"
    )
    webhooks: tuple[str, ...] = several(
        _OBJECT, "webhook configuration that trusts the Secret's pair; repeatable", name="--webhook"
    )
    kubeconfig: str = flag(flags.FILE, "kubeconfig file (default: the pod's own credentials, KUBECONFIG)")

    @property
    def dns_names(self) -> tuple[str, ...]:
        """The names that pods and the API server may use for the Service, and the additional ones."""
        inside = f".{self.namespace}.svc"
        of_service = ("", f".{self.namespace}", inside, f"{inside}.cluster.local") if self.service else ()
        return (*(f"{self.service}{rest}" for rest in of_service), *self.dns)

    @property
    def wanted(self) -> WantedPair:
        """The specification of the first pair."""
        return WantedPair(
            dns_names=self.dns_names, ip_addresses=self.ip_addresses, days=self.days, ca_days=self.ca_days
        )

    @property
    def place(self) -> SecretsPlace:
        """Where authority and pairs are stored; each pair beside the first has the names given to its Secret."""
        named: dict[str, list[str]] = {}
        for secret, name in self.pairs:
            named.setdefault(secret, []).append(name)
        more = {
            secret: replace(
                self.wanted,
                dns_names=tuple(name for name in names if not _is_address(name)),
                ip_addresses=tuple(filter(_is_address, names)),
            )
            for secret, names in named.items()
        }
        return SecretsPlace(
            namespace=self.namespace,
            authority=self.ca_secret,
            pairs=tuple(Pair(secret=one, wanted=names) for one, names in ({self.secret: self.wanted} | more).items()),
            service=self.service,
            webhooks=self.webhooks,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ensure(_Kept):
    """Keep or create a good pair in *directory*."""

    directory: Path = flag(
        flags.PATH, "directory for the files", name="--dir", missing="name the directory of the certificate files"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EnsureInCluster(_Kept):
    """Keep authority and pairs in Secrets that webhook configurations trust; with *rotate*, replace them all."""

    rotate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Run(_Kept):
    """Keep authority and pairs in Secrets that webhook configurations trust, and check them again and again."""

    every_s: float = flag(flags.seconds(0.1, 3600), "seconds between checks", "3", name="--every")
    metrics_listen: Address = flag(flags.ADDRESS, "metrics and health", ":8081")
    log_format: flags.LogFormat = flag(flags.LOG_FORMAT, "log format", "json")
    pod: flags.ObjectName | None = flag(flags.optional(flags.OBJECT), "this process's own pod, whose condition it sets")


def parse(argv: Sequence[str], environ: Mapping[str, str]) -> Ensure | EnsureInCluster | Run:
    """Read flags, and ``CARDSHARE_<FLAG>`` for the flags that are not given; variables separate list items by commas.

    Raises:
        ConfigError: lists every problem.
        SystemExit: ``--help``, or an unknown flag.
    """
    given = _parser().parse_args(argv)
    if given.command == "run":
        return flags.checked(Run, given, environ, _conflicts)
    has_secret = getattr(given, "secret", environ.get("CARDSHARE_SECRET"))
    if given.command == "ensure" and (not has_secret or getattr(given, "directory", environ.get("CARDSHARE_DIR"))):
        return flags.checked(Ensure, given, environ, _conflicts)
    found = flags.checked(EnsureInCluster, given, environ, _conflicts)
    return replace(found, rotate=given.command == "rotate")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m certs",
        allow_abbrev=False,
        description="Creates and renews the webhook's certificates: tls.crt, tls.key, ca.crt, ca.key.",
        epilog="Exit status: 0 all is well, 1 something is not, 2 wrong flags.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="ensure | rotate | run")
    for name, of, told in (
        ("ensure", Ensure, "create a pair if there is no valid one; safe to repeat"),
        ("rotate", EnsureInCluster, "create a new CA and pair now; the old CA stays trusted"),
        ("run", Run, "keep Secrets and caBundles valid until stopped"),
    ):
        flags.add(commands.add_parser(name, help=told, allow_abbrev=False), flags.declared(of))
    return parser


def _conflicts(options: _Kept) -> Iterator[str]:
    called, secret = flags.declared(type(options)), options.secret
    if options.service and not options.namespace:
        yield f"{called['namespace']}: missing; name the namespace of the Service"
    if options.namespace and not options.service and not secret:
        yield f"{called['service']}: missing; a namespace alone names nothing"
    if not (options.service or options.dns or options.ip_addresses):
        yield f"{called['service']}: missing; name the Service, or give --dns or --ip"
    if options.ca_days < options.days:
        yield f"{called['ca_days']}: found {options.ca_days}; write at least --days ({options.days})"
    if not isinstance(options, Ensure) and not secret:
        yield f"{called['secret']}: missing; name the Secret that is to be kept"
    elif isinstance(options, Ensure) and secret:
        yield f"{called['directory']}: leave it out; a pair is kept in files or in a Secret"
    elif options.webhooks and not secret:
        yield f"{called['secret']}: missing; name the Secret that --webhook is to trust"
    if secret and not options.namespace and not options.service:  # with a Service, this problem is already listed
        yield f"{called['namespace']}: missing; name the namespace of the Secret"
    if secret and not options.ca_secret:
        yield f"{called['ca_secret']}: missing; name the Secret of the authority and its key"
    secrets = [name for name in (options.ca_secret, secret, *dict(options.pairs)) if name]
    for name in sorted({name for name in secrets if secrets.count(name) > 1}):
        yield f"--ca-secret, --secret, --pair: Secret '{name}' is named twice; give each its own"
