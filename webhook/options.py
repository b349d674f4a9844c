"""The flags of ``python -m webhook``."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from runtime import flags
from runtime.files import Files
from runtime.flags import flag, unique
from runtime.listening import Address

# Environment variables that may name the API server: see kube.credentials.
_CLUSTER: Final = ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")
_CLIENT: Final = flags.judged(str.strip, "write a name of the API server's client certificate")
# Missing at first: the first certificate and the token may appear after this process starts.
_LATER: Final = flags.optional(flags.PATH)
_EXISTING: Final = flags.optional(flags.EXISTING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The flags. cluster: the environment variables that name the API server."""

    cert_dir: Path = flag(
        flags.PATH,
        "directory with tls.crt, tls.key and ca.crt; reloaded when they change",
        missing="name the directory of tls.crt, tls.key and ca.crt",
    )
    listen: Address = flag(flags.ADDRESS, "address of /mutate, /validate and /configuration, over TLS", "0.0.0.0:8443")
    metrics_listen: Address = flag(flags.ADDRESS, "address of health and metrics", ":8081")
    settings: Path | None = flag(_EXISTING, "cardshare.yaml, or a directory with it and volcano-scheduler.conf")
    device_config: Path | None = flag(_EXISTING, "device-config.yaml of the device plugins")
    last_good: Path | None = flag(_LATER, "the last good settings, for a start with invalid ones")
    trusted: frozenset[str] = unique(
        flags.NAMESPACE,
        "namespaces whose ConfigMaps count as configuration, such as kube-system,volcano-system; default none",
        name="--trust-namespaces",
        listed=True,
    )
    hami_config: str = flag(flags.CONFIG_MAP, "ConfigMap with HAMi's device-config.yaml; overrides the settings")
    kubeconfig: str = flag(flags.FILE, "kubeconfig file, for ConfigMaps and the inventory of cards")
    inventory: bool = flag(flags.OFF, "do not use the cluster's cards in admission", name="--no-inventory")
    client_ca: Path | None = flag(_EXISTING, "CA certificates (PEM) of the clients that may call; default any")
    client_names: frozenset[str] = unique(
        _CLIENT,
        "accept only clients with this common name or DNS name in their certificate; repeatable",
        name="--client-name",
    )
    max_connections: int = flag(flags.whole(8, 65_536), "most connections; one more closes the longest idle", "400")
    preview_url: str = flag(flags.URL, "https://host:port of the controller, asked on dry runs; default none")
    preview_ca: Path | None = flag(_LATER, "CA certificates (PEM) of the controller; required with --preview-url")
    preview_token: Path | None = flag(_LATER, "file with the token for the controller, read at each call")
    log_format: flags.LogFormat = flag(flags.LOG_FORMAT, "log format", "json")
    drain_s: float = flag(flags.seconds(0, 600), "time to keep serving after SIGTERM", "5")
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
    """Read the command line and the environment; see `runtime.flags.parse`."""
    parser = argparse.ArgumentParser(
        prog="python -m webhook",
        allow_abbrev=False,
        description="Answers the API server's admission reviews of pods. `python -m webhook check -f FILE` checks "
        "manifests without a cluster.",
    )
    options = flags.parse(parser, Options, argv, environ, _conflicts)
    return replace(options, cluster={name: environ[name] for name in _CLUSTER if name in environ})


def _conflicts(options: Options) -> Iterator[str]:
    called = flags.declared(Options)
    if options.trusted and not options.inventory:
        yield (f"{called['trusted']}: ConfigMaps are read from the API server; leave --no-inventory out")
    if options.preview_url and options.preview_ca is None:
        yield f"{called['preview_ca']}: missing; name the PEM file that proves the controller"
    if options.client_names and options.client_ca is None:
        yield f"{called['client_ca']}: missing; name the CA that verifies the clients' certificates"
