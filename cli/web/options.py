"""The options of ``python -m cli.web``, read from flags and environment and validated together."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from core.configuration import OWN_MAP
from core.errors import ConfigError, quoted
from core.wire.history import HISTORY_MAP
from runtime.listening import Address, read_address
from runtime.options import LogFormat, add_log_format, read_config_map, read_log_format

LISTEN: Final = ":8443"
METRICS_LISTEN: Final = ":8081"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The validated command line.

    cert_dir: directory of tls.crt, tls.key and ca.crt. audiences: required audiences of callers' tokens; empty for
    those of the API server. own_map, history_map: the ConfigMaps of cardshare's own settings, and of what its
    controller remembers, NAMESPACE/NAME.
    """

    listen: Address
    metrics_listen: Address
    cert_dir: Path
    kubeconfig: str = ""
    audiences: tuple[str, ...] = ()
    own_map: str = OWN_MAP
    history_map: str = HISTORY_MAP
    log_format: LogFormat = LogFormat.JSON


def parse(argv: Sequence[str], environ: Mapping[str, str]) -> Options:
    """Read *argv*, and the environment (CARDSHARE_<FLAG>) for flags that are not given.

    Raises:
        ConfigError: lists every problem.
        SystemExit: --help, or an unknown flag.
    """
    given = parser(environ).parse_args(argv)
    problems: list[str] = []
    listen = _address("--listen", given.listen, problems)
    metrics_listen = _address("--metrics-listen", given.metrics_listen, problems)
    if not given.cert_dir:
        problems.append(f"{_called('--cert-dir')}: missing; name the directory of tls.crt, tls.key and ca.crt")
    own_map = read_config_map(given.settings_map, _called("--settings-map"), problems)
    history_map = read_config_map(given.history_map, _called("--history-map"), problems)
    log_format = read_log_format(given, environ, problems)
    if problems:
        raise ConfigError(problems)
    return Options(
        listen=listen,
        metrics_listen=metrics_listen,
        cert_dir=Path(given.cert_dir),
        kubeconfig=given.kubeconfig,
        audiences=tuple(given.audience.replace(",", " ").split()),
        own_map=own_map,
        history_map=history_map,
        log_format=log_format,
    )


def parser(environ: Mapping[str, str]) -> argparse.ArgumentParser:
    """Return the parser of the flags."""
    made = argparse.ArgumentParser(
        prog="python -m cli.web",
        description="Serves the page of the cluster's cards to callers with a token of the cluster.",
        allow_abbrev=False,
    )

    def flag(name: str, default: str, text: str) -> None:
        told = f"{text} (default {default})" if default else text
        made.add_argument(name, default=environ.get(_variable(name)) or default, help=f"{told} [{_variable(name)}]")

    flag("--listen", LISTEN, "address of the page, over TLS")
    flag("--metrics-listen", METRICS_LISTEN, "address for metrics and health, without TLS")
    flag("--cert-dir", "", "directory with tls.crt, tls.key and ca.crt; the files may come later")
    flag("--kubeconfig", "", "kubeconfig file; default the pod's own credentials")
    flag("--audience", "", "audiences that callers' tokens must have, comma-separated; default the API server's")
    flag("--settings-map", OWN_MAP, "namespace/name of the ConfigMap with cardshare's settings")
    flag("--history-map", HISTORY_MAP, "namespace/name of the ConfigMap in which the controller stores its history")
    add_log_format(made)
    return made


def _address(name: str, text: str, problems: list[str]) -> Address:
    found = read_address(text)
    if found is None:
        problems.append(f"{_called(name)}: found {quoted(text, 256)}; write an address such as '0.0.0.0:8443'")
    return found or Address(host="", port=0)


def _variable(flag: str) -> str:
    return "CARDSHARE_" + flag.removeprefix("--").replace("-", "_").upper()


def _called(flag: str) -> str:
    return f"{flag} ({_variable(flag)})"
