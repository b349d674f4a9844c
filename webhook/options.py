"""The options of ``python -m webhook``, read from flags and environment and validated together."""

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from core.errors import ConfigError, quoted
from runtime.files import Files
from runtime.listening import Address, read_address
from runtime.options import LogFormat, add_log_format, read_config_map, read_log_format, read_namespaces

_LISTEN: Final = "0.0.0.0:8443"
_METRICS_LISTEN: Final = ":8081"
_DRAIN_S: Final = "5"
_MAX_CONNECTIONS: Final = "400"
# Environment variables that may name the API server: see kube.credentials.
_CLUSTER: Final = ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")
_URL: Final = re.compile(r"https://[A-Za-z0-9.\[\]:-]{1,253}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The validated flags.

    drain_s: how long to keep serving after SIGTERM, until no Service routes calls here. client_ca: authority of the
    callers; None = any caller.
    client_names: certificate names that may call; empty = all. cluster: the environment variables that name the API
    server.
    preview_url: the controller's URL, or "" for none. preview_ca: its authority. preview_token: the token to send.
    last_good: directory of the last usable texts, for a start with unusable ones.
    trusted: namespaces whose third-party ConfigMaps are trusted.
    hami_config: HAMi's ConfigMap as NAMESPACE/NAME; "" = the one that the settings name.
    """

    listen: Address
    metrics_listen: Address
    cert_dir: Path
    settings: Path | None
    device_config: Path | None
    kubeconfig: str
    inventory: bool
    drain_s: float
    client_ca: Path | None = None
    client_names: frozenset[str] = frozenset()
    max_connections: int = int(_MAX_CONNECTIONS)
    preview_url: str = ""
    preview_ca: Path | None = None
    preview_token: Path | None = None
    last_good: Path | None = None
    trusted: frozenset[str] = frozenset()
    log_format: LogFormat = LogFormat.JSON
    hami_config: str = ""
    cluster: Mapping[str, str] = field(default_factory=dict)

    @property
    def files(self) -> Files:
        """The files of the configuration."""
        return Files(settings=self.settings, devices=self.device_config, last_good=self.last_good)

    @property
    def knows_callers(self) -> bool:
        """Whether callers prove that they are the API server. An authority alone may also vouch for others."""
        return self.client_ca is not None and bool(self.client_names)

    @property
    def names_a_kubeconfig(self) -> bool:
        """Whether a kubeconfig is named. If not, the webhook may run without an inventory."""
        return bool(self.kubeconfig or self.cluster.get("KUBECONFIG"))


def parse(argv: Sequence[str], environ: Mapping[str, str]) -> Options:
    """Read flags, and ``CARDSHARE_<FLAG>`` for the flags that are not given.

    Raises:
        ConfigError: lists every problem.
        SystemExit: ``--help``, or an unknown flag.
    """
    flags = _parser().parse_args(argv)
    problems: list[str] = []
    cert_dir = _text(flags, environ, "cert_dir")
    if not cert_dir:
        problems.append("--cert-dir (CARDSHARE_CERT_DIR): missing; name the directory of tls.crt, tls.key and ca.crt")
    options = Options(
        listen=_address(flags, environ, "listen", _LISTEN, problems),
        metrics_listen=_address(flags, environ, "metrics_listen", _METRICS_LISTEN, problems),
        cert_dir=Path(cert_dir),
        settings=_path(flags, environ, "settings", problems),
        device_config=_path(flags, environ, "device_config", problems),
        last_good=_later(flags, environ, "last_good"),
        trusted=read_namespaces(_text(flags, environ, "trust_namespaces"), _name("trust_namespaces"), problems),
        hami_config=read_config_map(_text(flags, environ, "hami_config"), _name("hami_config"), problems),
        kubeconfig=_text(flags, environ, "kubeconfig"),
        inventory=not (flags.no_inventory or _switch(environ, "no_inventory", problems)),
        drain_s=_seconds(flags, environ, "drain_s", _DRAIN_S, problems),
        client_ca=_path(flags, environ, "client_ca", problems),
        client_names=_names(flags, environ, problems),
        max_connections=_whole(flags, environ, "max_connections", (_MAX_CONNECTIONS, 8, 65_536), problems),
        preview_url=_url(flags, environ, "preview_url", problems),
        # The first certificate and the token may appear after this process starts.
        preview_ca=_later(flags, environ, "preview_ca"),
        preview_token=_later(flags, environ, "preview_token"),
        log_format=read_log_format(flags, environ, problems),
        cluster={name: environ[name] for name in _CLUSTER if name in environ},
    )
    if options.trusted and not options.inventory:
        problems.append(
            f"{_name('trust_namespaces')}: ConfigMaps are read from the API server; leave --no-inventory out"
        )
    if problems:
        raise ConfigError(problems)
    return options


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m webhook",
        description="Answers the API server's admission reviews of pods. `python -m webhook check -f FILE` checks "
        "manifests without a cluster.",
        epilog="Each flag has an environment variable CARDSHARE_<FLAG>; the flag takes precedence.",
    )
    parser.add_argument(
        "--listen", help=f"host:port for /mutate, /validate and /configuration, over TLS (default {_LISTEN})"
    )
    parser.add_argument("--metrics-listen", help=f"host:port for health and metrics (default {_METRICS_LISTEN})")
    parser.add_argument("--cert-dir", help="directory with tls.crt, tls.key and ca.crt; reloaded when they change")
    parser.add_argument("--settings", help="cardshare.yaml, or a directory with it and volcano-scheduler.conf")
    parser.add_argument("--device-config", help="device-config.yaml of the device plugins")
    parser.add_argument(
        "--last-good", help="directory with the last good settings, used if the current ones are invalid at start"
    )
    parser.add_argument(
        "--trust-namespaces",
        help="comma-separated namespaces whose ConfigMaps count as configuration, such as kube-system, "
        "volcano-system; default none",
    )
    parser.add_argument(
        "--hami-config", help="namespace/name of the ConfigMap with HAMi's device-config.yaml; overrides the settings"
    )
    parser.add_argument("--kubeconfig", help="kubeconfig file, for ConfigMaps and the inventory of cards")
    parser.add_argument("--no-inventory", action="store_true", help="do not use the cluster's cards in admission")
    parser.add_argument(
        "--client-ca", help="CA certificates (PEM) of the clients that may call; reloaded when they change"
    )
    parser.add_argument(
        "--client-name",
        action="extend",
        nargs="+",
        metavar="NAME",
        help="accept only clients with this common name or DNS name in their certificate",
    )
    parser.add_argument(
        "--max-connections",
        help=f"most connections; one more closes the connection that is idle longest (default {_MAX_CONNECTIONS})",
    )
    parser.add_argument("--preview-url", help="https://host:port of the controller, asked on dry runs; default none")
    parser.add_argument("--preview-ca", help="CA certificates (PEM) of the controller; required with --preview-url")
    parser.add_argument("--preview-token", help="file with the token for the controller, read at each call")
    add_log_format(parser)
    parser.add_argument("--drain-s", help=f"seconds to keep serving after SIGTERM (default {_DRAIN_S})")
    return parser


def variable(flag: str) -> str:
    """Return the environment variable of a flag."""
    return f"CARDSHARE_{flag.upper()}"


def _name(flag: str) -> str:
    return f"--{flag.replace('_', '-')} ({variable(flag)})"


def _text(flags: argparse.Namespace, environ: Mapping[str, str], flag: str, default: str = "") -> str:
    given = getattr(flags, flag)
    return given if given is not None else environ.get(variable(flag)) or default


def _address(
    flags: argparse.Namespace, environ: Mapping[str, str], flag: str, default: str, problems: list[str]
) -> Address:
    text = _text(flags, environ, flag, default)
    found = read_address(text)
    if found is None:
        problems.append(f"{_name(flag)}: found {quoted(text)}; write host:port such as '0.0.0.0:8443' or ':8081'")
    return found or Address(host="", port=0)


def _path(flags: argparse.Namespace, environ: Mapping[str, str], flag: str, problems: list[str]) -> Path | None:
    text = _text(flags, environ, flag)
    if not text:
        return None
    if not Path(text).exists():
        problems.append(f"{_name(flag)}: found {quoted(text, 256)}; there is no such file")
    return Path(text)


def _later(flags: argparse.Namespace, environ: Mapping[str, str], flag: str) -> Path | None:
    text = _text(flags, environ, flag)
    return Path(text) if text else None


def _url(flags: argparse.Namespace, environ: Mapping[str, str], flag: str, problems: list[str]) -> str:
    text = _text(flags, environ, flag).rstrip("/")
    if text and not _URL.fullmatch(text):
        problems.append(f"{_name(flag)}: found {quoted(text, 256)}; write https://host:port")
    if text and not _text(flags, environ, "preview_ca"):
        problems.append(f"{_name('preview_ca')}: missing; name the PEM file that proves the controller")
    return text


def _names(flags: argparse.Namespace, environ: Mapping[str, str], problems: list[str]) -> frozenset[str]:
    given = flags.client_name or environ.get(variable("client_name"), "").replace(",", " ").split()
    if given and not _text(flags, environ, "client_ca"):
        problems.append(f"{_name('client_ca')}: missing; name the CA that verifies the clients' certificates")
    if not all(one.strip() for one in given):
        problems.append(f"{_name('client_name')}: found ''; write a name of the API server's client certificate")
    return frozenset(given)


def _whole(
    flags: argparse.Namespace,
    environ: Mapping[str, str],
    flag: str,
    bounds: tuple[str, int, int],
    problems: list[str],
) -> int:
    default, least, most = bounds
    text = _text(flags, environ, flag, default)
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else -1
    if not least <= value <= most:
        problems.append(f"{_name(flag)}: found {quoted(text)}; write a whole number from {least} to {most}")
    return value


def _seconds(
    flags: argparse.Namespace, environ: Mapping[str, str], flag: str, default: str, problems: list[str]
) -> float:
    text = _text(flags, environ, flag, default)
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 600:
        problems.append(f"{_name(flag)}: found {quoted(text)}; write seconds from 0 to 600")
    return value


def _switch(environ: Mapping[str, str], flag: str, problems: list[str]) -> bool:
    text = environ.get(variable(flag), "").strip().lower()
    if text not in {"", "true", "false", "1", "0"}:
        problems.append(f"{variable(flag)}: found {quoted(text)}; write true or false")
    return text in {"true", "1"}
