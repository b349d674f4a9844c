"""The flags of ``python -m controller``."""

import argparse
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from core.errors import quoted
from core.names import DEFAULT_SCHEDULER_NAME
from core.settings import NOT_OWNED, SCHEDULER_NAME_REMEDY, is_scheduler_name
from kube.calls import BIND_DEADLINE_S
from kube.lease import MAX_DURATION_S, Timing
from runtime import flags
from runtime.files import Files
from runtime.flags import FlagKind, flag, several, unique
from runtime.listening import Address

_NO_LEASE: Final = flags.ObjectName("", "none")
_TIMING: Final = Timing()
_ADDRESS: Final = flags.optional(flags.ADDRESS)
_OBJECT: Final = flags.optional(flags.OBJECT)
_PATH: Final = flags.optional(flags.PATH)
# The shortest, and a lease that is valid for a Binding and two attempts.
_RETRY_S: Final = 0.1
_LEAST_S: Final = BIND_DEADLINE_S + 2.0 * _RETRY_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The flags. scheduler_names: empty = those of the settings. shadow: decide, and write nothing."""

    listen: Address = flag(flags.ADDRESS, "address for metrics and health, without TLS", "0.0.0.0:8080")
    kubeconfig: str = flag(flags.FILE, "kubeconfig file; default the pod's own credentials")
    settings: Path | None = flag(_PATH, "cardshare.yaml, or a directory with it and volcano-scheduler.conf")
    preview_listen: Address | None = flag(_ADDRESS, "address for /v1/preview and /v1/explain, over TLS; default none")
    cert_dir: str = flag(flags.FILE, "directory with tls.crt, tls.key and ca.crt; the files may come later")
    extender_listen: Address | None = flag(_ADDRESS, "address for the scheduler extender, over TLS; default none")
    extender_client_ca: str = flag(flags.FILE, "CA certificates (PEM) of the extender's clients")
    audience: str = flag(flags.TEXT, "audience that callers' tokens must have", "cardshare-controller")
    pod: flags.ObjectName | None = flag(_OBJECT, "the controller's own pod, whose condition it sets; default none")
    trusted: frozenset[str] = unique(
        flags.NAMESPACE,
        "namespaces whose ConfigMaps count as configuration, such as kube-system,mindx-dl; default none",
        name="--trust-namespaces",
        listed=True,
    )
    hami_config: str = flag(flags.CONFIG_MAP, "ConfigMap with HAMi's device-config.yaml; overrides the settings")
    last_good: Path | None = flag(_PATH, "the last good settings, for a start with invalid ones")
    keep_last_good: flags.ObjectName | None = flag(_OBJECT, "ConfigMap that stores the settings in force; default none")
    keep_history: flags.ObjectName | None = flag(
        _OBJECT, "ConfigMap that stores what happened to pods and cards; default none"
    )
    identity: str = flag(flags.TEXT, "identity in events and the lease; default the host name")
    lease: flags.ObjectName | None = flag(
        FlagKind(
            lambda text: _NO_LEASE if text == _NO_LEASE.name else flags.OBJECT.read(text),
            "write NAMESPACE/NAME, or 'none'",
            None,
            "NAMESPACE/NAME",
        ),
        "leader election Lease; 'none' only if no other controller can run",
        "cardshare-system/cardshare-controller",
    )
    lease_duration: float = flag(
        flags.seconds(_LEAST_S, MAX_DURATION_S),
        "validity of the lease; the same for all replicas",
        f"{_TIMING.duration_s:g}",
    )
    lease_renew_deadline: float = flag(
        flags.seconds(2.0 * _RETRY_S, MAX_DURATION_S),
        "time without a renewal after which the process ends",
        f"{_TIMING.renew_deadline_s:g}",
    )
    lease_retry_period: float = flag(
        flags.seconds(_RETRY_S, MAX_DURATION_S),
        "time between attempts to acquire or renew the lease",
        f"{_TIMING.retry_s:g}",
    )
    log_format: flags.LogFormat = flag(flags.LOG_FORMAT, "log format", "json")
    shadow: bool = flag(flags.SWITCH, "write nothing; report what would become of another scheduler's pods")
    kueue: bool = flag(flags.SWITCH, "answer Kueue's AdmissionChecks of controller cardshare.io/fits")
    scheduler_names: tuple[str, ...] = several(
        flags.judged(is_scheduler_name, SCHEDULER_NAME_REMEDY),
        "schedule pods with this schedulerName; repeatable",
        name="--scheduler-name",
    )

    @property
    def timing(self) -> Timing:
        """The timing of the lease."""
        return Timing(
            duration_s=self.lease_duration, renew_deadline_s=self.lease_renew_deadline, retry_s=self.lease_retry_period
        )

    @property
    def files(self) -> Files:
        """The files of the configuration."""
        return Files(settings=self.settings, last_good=self.last_good)


def parse(argv: Sequence[str], environ: Mapping[str, str]) -> Config:
    """Read the command line and the environment; see `runtime.flags.parse`."""
    parser = argparse.ArgumentParser(
        prog="python -m controller",
        description="Schedules pods that request shares of cards.",
        epilog="`python -m controller audit` takes the same flags, reads the cluster once and prints its faults.",
        allow_abbrev=False,
    )
    config = flags.parse(parser, Config, argv, environ, _conflicts)
    lease = None if config.lease == _NO_LEASE else config.lease
    return replace(config, identity=config.identity or socket.gethostname(), lease=lease)


def _conflicts(config: Config) -> Iterator[str]:
    called, timing = flags.declared(Config), config.timing
    for listen, name in ((config.preview_listen, "--preview-listen"), (config.extender_listen, "--extender-listen")):
        if listen is not None and not config.cert_dir:
            yield f"{called['cert_dir']}: missing; name the directory of tls.crt and tls.key for {name}"
    if config.extender_listen is not None and not config.extender_client_ca:
        yield (
            f"{called['extender_client_ca']}: missing; name the file with the CA certificates of its clients for "
            "--extender-listen"
        )
    if DEFAULT_SCHEDULER_NAME in config.scheduler_names and not config.shadow:
        yield f"{called['scheduler_names']}: found {quoted(DEFAULT_SCHEDULER_NAME)}; {NOT_OWNED}"
    if timing.duration_s < (least_s := BIND_DEADLINE_S + 2.0 * timing.retry_s):
        yield (
            f"{called['lease_duration']}: found {timing.duration_s:g}; write at least {least_s:g}: a Binding takes "
            f"up to {BIND_DEADLINE_S:g} s, and a renewal may fail once"
        )
    elif not 2.0 * timing.retry_s <= timing.renew_deadline_s < timing.duration_s:
        yield (
            f"{called['lease_renew_deadline']}: found {timing.renew_deadline_s:g}; write less than --lease-duration "
            f"({timing.duration_s:g}), and at least twice --lease-retry-period ({timing.retry_s:g})"
        )
