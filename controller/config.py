"""The controller's flags and environment, validated together."""

import argparse
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from core.errors import ConfigError, quoted
from core.settings import SCHEDULER_NAME_REMEDY, is_scheduler_name
from kube.calls import BIND_DEADLINE_S
from kube.lease import MAX_DURATION_S, Timing
from runtime.files import Files
from runtime.listening import Address, read_address
from runtime.options import LogFormat, add_log_format, read_config_map, read_log_format, read_namespaces

AUDIENCE: Final = "cardshare-controller"
LEASE: Final = "cardshare-system/cardshare-controller"
NO_LEASE: Final = "none"
_TIMING: Final = Timing()
_LEAST_RETRY_S: Final = 0.1


class PodName(NamedTuple):
    """The pod of a process."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class LeaseName(NamedTuple):
    """The Lease that replicas compete for."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The validated command line.

    settings_file: cardshare.yaml, or a directory with it and volcano-scheduler.conf, or "" for the defaults.
    scheduler_names: those of the flags; empty = those of the settings. identity: the reporter in events.
    preview_listen: None = no previews are served. cert_dir: the certificate pair of the previews' port.
    audience: required audience of callers' tokens.
    pod: the pod of this process, whose condition shows whether the configuration is in force; None = no such pod.
    trusted: namespaces whose third-party ConfigMaps are trusted.
    last_good: directory of the settings that were in force last, for a start with refused settings.
    keep_in: the ConfigMap that stores them and is mounted there.
    history_in: the ConfigMap that stores what happened, for the next leader.
    lease: None = no other process can run. timing: of the lease.
    hami_config: HAMi's ConfigMap as NAMESPACE/NAME; "" for the one that the settings name.
    shadow: decide and write nothing; report what would be done. kueue: whether to answer Kueue's admission checks.
    extender_listen: None = no scheduler extender is served. extender_client_ca: the authorities of its clients.
    """

    listen: Address
    kubeconfig: str
    settings_file: str
    scheduler_names: tuple[str, ...]
    identity: str
    preview_listen: Address | None = None
    cert_dir: str = ""
    audience: str = AUDIENCE
    pod: PodName | None = None
    trusted: frozenset[str] = frozenset()
    last_good: str = ""
    keep_in: PodName | None = None
    history_in: PodName | None = None
    lease: LeaseName | None = None
    timing: Timing = _TIMING
    shadow: bool = False
    log_format: LogFormat = LogFormat.JSON
    hami_config: str = ""
    kueue: bool = False
    extender_listen: Address | None = None
    extender_client_ca: str = ""

    @property
    def files(self) -> Files:
        """The files of the configuration."""
        return Files(settings=_path(self.settings_file), last_good=_path(self.last_good))


def parse(argv: Sequence[str], environ: Mapping[str, str]) -> Config:
    """Read *argv*, and the environment (CARDSHARE_<FLAG>) for flags that are not given.

    Raises:
        ConfigError: lists every problem.
        SystemExit: --help, or an unknown flag.
    """
    given = _parser(environ).parse_args(argv)
    problems: list[str] = []
    listen = _listen(given.listen, problems)
    names = _names(given.scheduler_name, environ, problems)
    preview_listen = None
    if given.preview_listen:
        preview_listen = _listen(given.preview_listen, problems, "--preview-listen")
        if not given.cert_dir:
            problems.append(
                f"{_called('--cert-dir')}: missing; name the directory of tls.crt and tls.key for --preview-listen"
            )
    extender_listen = _extender(given, problems)
    pod = _pod(given.pod, problems)
    trusted = read_namespaces(given.trust_namespaces, _called("--trust-namespaces"), problems)
    hami_config = read_config_map(given.hami_config, _called("--hami-config"), problems)
    keep_in = _pod(given.keep_last_good, problems, "--keep-last-good")
    history_in = _pod(given.keep_history, problems, "--keep-history")
    lease = _lease(given.lease, problems)
    timing = _timing(given, problems)
    shadow = _switch("--shadow", given.shadow, problems)
    kueue = _switch("--kueue", given.kueue, problems)
    log_format = read_log_format(given, environ, problems)
    if problems:
        raise ConfigError(problems)
    return Config(
        listen=listen,
        kubeconfig=given.kubeconfig,
        settings_file=given.settings,
        scheduler_names=names,
        identity=given.identity or socket.gethostname(),
        preview_listen=preview_listen,
        cert_dir=given.cert_dir,
        audience=given.audience,
        pod=pod,
        trusted=trusted,
        last_good=given.last_good,
        keep_in=keep_in,
        history_in=history_in,
        lease=lease,
        timing=timing,
        shadow=shadow,
        log_format=log_format,
        hami_config=hami_config,
        kueue=kueue,
        extender_listen=extender_listen,
        extender_client_ca=given.extender_client_ca,
    )


def _path(text: str) -> Path | None:
    return Path(text) if text else None


def _parser(environ: Mapping[str, str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m controller", description="Schedules pods that request shares of cards.", allow_abbrev=False
    )

    def flag(name: str, default: str, text: str) -> None:
        told = f"{text} (default {default})" if default else text
        parser.add_argument(name, default=environ.get(_variable(name)) or default, help=f"{told} [{_variable(name)}]")

    def switch(name: str, text: str) -> None:
        default, told = environ.get(_variable(name)) or "", f"{text} [{_variable(name)}]"
        parser.add_argument(name, nargs="?", const="true", default=default, help=told)

    flag("--listen", "0.0.0.0:8080", "address for metrics and health, without TLS")
    flag("--kubeconfig", "", "kubeconfig file; default the pod's own credentials")
    flag("--settings", "", "cardshare.yaml, or a directory with it and volcano-scheduler.conf")
    flag("--preview-listen", "", "address for /v1/preview and /v1/explain, over TLS; default none")
    flag("--cert-dir", "", "directory with tls.crt, tls.key and ca.crt for --preview-listen; the files may come later")
    flag("--extender-listen", "", "address for the scheduler extender, over TLS; default none")
    flag("--extender-client-ca", "", "CA certificates (PEM) of the extender's clients, which show a certificate")
    flag("--audience", AUDIENCE, "audience that callers' tokens must have")
    flag("--pod", "", "namespace/name of the controller's own pod, whose condition it sets; default none")
    flag(
        "--trust-namespaces",
        "",
        "comma-separated namespaces whose ConfigMaps count as configuration, such as kube-system, volcano-system, "
        "mindx-dl; default none",
    )
    flag("--hami-config", "", "namespace/name of the ConfigMap with HAMi's device-config.yaml; overrides the settings")
    flag("--last-good", "", "directory with the last good settings, used if the current ones are invalid at start")
    flag("--keep-last-good", "", "namespace/name of the ConfigMap that stores the settings in force; default none")
    flag(
        "--keep-history",
        "",
        "namespace/name of the ConfigMap that stores what happened to pods and cards; default none",
    )
    flag("--identity", "", "identity in events and the lease; default the host name")
    flag("--lease", LEASE, "namespace/name of the leader election Lease; 'none' only if no other controller can run")
    flag("--lease-duration", f"{_TIMING.duration_s:g}", "seconds that the lease is valid; the same for all replicas")
    flag(
        "--lease-renew-deadline",
        f"{_TIMING.renew_deadline_s:g}",
        "seconds without a renewal after which the process ends",
    )
    flag("--lease-retry-period", f"{_TIMING.retry_s:g}", "seconds between attempts to acquire or renew the lease")
    add_log_format(parser)
    switch("--shadow", "decide but write nothing: report what would become of another scheduler's pods")
    switch("--kueue", "answer Kueue's AdmissionChecks of controller cardshare.io/fits: do a workload's pods fit now")
    parser.add_argument(
        "--scheduler-name",
        action="append",
        help="schedule pods with this schedulerName; repeatable [CARDSHARE_SCHEDULER_NAME, comma-separated]",
    )
    return parser


def _extender(given: argparse.Namespace, problems: list[str]) -> Address | None:
    if not given.extender_listen:
        return None
    for flag, text, wanted in (
        ("--cert-dir", given.cert_dir, "the directory of tls.crt and tls.key"),
        ("--extender-client-ca", given.extender_client_ca, "the file with the CA certificates of its clients"),
    ):
        if not text:
            problems.append(f"{_called(flag)}: missing; name {wanted} for --extender-listen")
    return _listen(given.extender_listen, problems, "--extender-listen")


def _variable(flag: str) -> str:
    return "CARDSHARE_" + flag.removeprefix("--").replace("-", "_").upper()


def _called(flag: str) -> str:
    return f"{flag} ({_variable(flag)})"


def _names(given: Sequence[str] | None, environ: Mapping[str, str], problems: list[str]) -> tuple[str, ...]:
    names = tuple(given or environ.get("CARDSHARE_SCHEDULER_NAME", "").replace(",", " ").split())
    problems += [
        f"{_called('--scheduler-name')}: found {quoted(name, 256)}; {SCHEDULER_NAME_REMEDY}"
        for name in names
        if not is_scheduler_name(name)
    ]
    return names


def _listen(text: str, problems: list[str], name: str = "--listen") -> Address:
    found = read_address(text)
    if found is None:
        problems.append(f"{_called(name)}: found {quoted(text, 256)}; write an address such as '0.0.0.0:8080'")
    return found or Address(host="", port=0)


def _pod(text: str, problems: list[str], flag: str = "--pod") -> PodName | None:
    namespace, _, name = text.partition("/")
    if namespace and name and "/" not in name:
        return PodName(namespace, name)
    if text:
        problems.append(f"{_called(flag)}: found {quoted(text, 256)}; write NAMESPACE/NAME")
    return None


def _lease(text: str, problems: list[str]) -> LeaseName | None:
    if text == NO_LEASE:
        return None
    namespace, _, name = text.partition("/")
    if not (namespace and name and "/" not in name):
        problems.append(f"{_called('--lease')}: found {quoted(text, 256)}; write NAMESPACE/NAME, or '{NO_LEASE}'")
    return LeaseName(namespace, name)


def _switch(name: str, text: str, problems: list[str]) -> bool:
    if text not in ("", "true", "false"):
        problems.append(f"{_called(name)}: found {quoted(text, 256)}; write true or false")
    return text == "true"


def _timing(given: argparse.Namespace, problems: list[str]) -> Timing:
    known = len(problems)
    timing = Timing(
        duration_s=_seconds("--lease-duration", given.lease_duration, MAX_DURATION_S, problems),
        renew_deadline_s=_seconds("--lease-renew-deadline", given.lease_renew_deadline, MAX_DURATION_S, problems),
        retry_s=_seconds("--lease-retry-period", given.lease_retry_period, MAX_DURATION_S, problems),
    )
    if len(problems) > known:
        return timing
    if timing.retry_s < _LEAST_RETRY_S:
        problems.append(
            f"{_called('--lease-retry-period')}: found {timing.retry_s:g}; write at least {_LEAST_RETRY_S:g}"
        )
    if timing.duration_s < BIND_DEADLINE_S + 2.0 * timing.retry_s:
        least_s = BIND_DEADLINE_S + 2.0 * timing.retry_s
        problems.append(
            f"{_called('--lease-duration')}: found {timing.duration_s:g}; write at least {least_s:g}: a Binding takes "
            f"up to {BIND_DEADLINE_S:g} s, and a renewal may fail once"
        )
    if not 2.0 * timing.retry_s <= timing.renew_deadline_s < timing.duration_s:
        problems.append(
            f"{_called('--lease-renew-deadline')}: found {timing.renew_deadline_s:g}; write less than --lease-duration "
            f"({timing.duration_s:g}), and at least twice --lease-retry-period ({timing.retry_s:g})"
        )
    return timing


def _seconds(name: str, text: str, most_s: float, problems: list[str]) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if 0.0 <= value <= most_s:
        return value
    problems.append(f"{_called(name)}: found {quoted(text, 256)}; write seconds from 0 to {most_s:g}")
    return 0.0
