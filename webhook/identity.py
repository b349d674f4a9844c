"""Keeps the TLS port's certificate pair and the authority of its clients up to date; decides which clients may call."""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import structlog

from certs import serving
from certs.serving import Loaded
from core.errors import ConfigError, quoted
from webhook.metrics import Metrics

_log: Final = structlog.get_logger()

# The webhook stops being ready this long before its certificate expires, so that routing can change in time.
READY_MARGIN: Final = timedelta(minutes=1)
# The warning comes late because the pair is renewed after two thirds of its life, with retries.
_WARN_BEFORE: Final = timedelta(days=7)
_COMMON_NAME: Final = "commonName"
_DNS: Final = "DNS"
# Refused clients are logged this often.
_TELL_S: Final = 60.0


class TlsIdentity:
    """The live TLS context, and the files it was made from."""

    def __init__(self, directory: Path, client_ca: Path | None, metrics: Metrics) -> None:
        """Read the files.

        Raises:
            ConfigError: lists every problem.
        """
        self._client_ca = client_ca
        self._metrics = metrics
        self._is_refusing = False
        self._has_warned = False
        # The content of the client authority's file at its last refusal, and the reason.
        self._clients_refused: tuple[bytes | None, str] | None = None
        problems: list[str] = []
        self._clients: bytes | None = None
        try:
            self._clients = serving.read_client_ca(client_ca) if client_ca is not None else None
            self.context: ssl.SSLContext = serving.server_context(self._clients)
        except ConfigError as e:
            problems += e.problems
        self._source: Final = serving.PairFiles(directory)
        pair: Loaded | None = None
        try:
            pair = self._source.look(datetime.now(UTC))
        except ConfigError as e:
            problems += e.problems
        if problems or pair is None:
            raise ConfigError(problems)
        self._take(pair)

    def _take(self, pair: Loaded) -> bool:
        is_taken = self._source.serve(self.context, pair)
        self._metrics.certificate_expires_s = self._source.serving.expires.timestamp()
        return is_taken

    def why_not_ready(self, now: datetime) -> str:
        """Return why no calls should be routed here, or ""."""
        ends = self._source.serving.expires
        if now >= ends:
            return f"the certificate expired at {ends.isoformat()}"
        if now >= ends - READY_MARGIN:
            return f"the certificate expires soon, at {ends.isoformat()}"
        return ""

    async def look(self, now: datetime, renew: Callable[[ssl.SSLContext], None]) -> None:
        """Apply changes of the files; call *renew* with a context that must replace the current one."""
        await self._look_at_pair(now)
        if self._client_ca is not None:
            await self._look_at_clients(self._client_ca, renew)
        self._look_at_time(now)

    async def _look_at_pair(self, now: datetime) -> None:
        try:
            pair = await asyncio.to_thread(self._source.look, now)
            is_taken = pair is not None and self._take(pair)
        except ConfigError as e:
            self._refused(str(e))
            return
        if is_taken:
            self._has_warned = False
            self._metrics.reloads["certificate"] += 1
            _log.info("certificate replaced", expires=self._source.serving.expires.isoformat())

    async def _look_at_clients(self, path: Path, renew: Callable[[ssl.SSLContext], None]) -> None:
        clients: bytes | None = None
        try:
            clients = await asyncio.to_thread(serving.read_client_ca, path)
            if clients == self._clients:
                self._clients_refused = None
                return
            # A context can trust more authorities later but never fewer, so a change needs a new context.
            context = serving.server_context(clients)
            serving.use(context, self._source.serving.stored)
        except (ConfigError, ssl.SSLError, OSError) as e:
            if self._clients_refused != (clients, str(e)):
                self._clients_refused = clients, str(e)
                self._refused(str(e))
            return
        self._clients, self._clients_refused = clients, None
        self.context = context
        self._is_refusing = False
        renew(context)
        self._metrics.reloads["client_ca"] += 1
        _log.info("client CA replaced")

    def _look_at_time(self, now: datetime) -> None:
        ends = self._source.serving.expires
        if (now >= ends) != self._is_refusing:
            self._is_refusing = now >= ends
            if self._is_refusing:
                serving.refuse_handshakes(self.context)
                _log.error("certificate expired; no new connection is accepted", ended=ends.isoformat())
            else:
                serving.allow_handshakes(self.context)
        if now >= ends - _WARN_BEFORE and not self._has_warned:
            self._has_warned = True
            _log.warning("certificate expires soon; check why it is not renewed", ends=ends.isoformat())

    def _refused(self, error: str) -> None:
        self._metrics.reload_failures["certificate"] += 1
        _log.warning("certificate rejected", error=error)


class Clients:
    """Admits callers whose certificates carry one of *names*; without names, admits every caller."""

    def __init__(self, names: frozenset[str], clock: Callable[[], float]) -> None:
        self._names = names
        self._clock = clock
        self._told_s = -_TELL_S

    def why_not(self, certificate: Mapping[str, Any]) -> str:
        """Return why the owner of *certificate* (from `ssl.SSLSocket.getpeercert`) may not call, or "" if it may."""
        if not self._names:
            return ""
        found = names_in(certificate)
        if not found.isdisjoint(self._names):
            return ""
        shown = quoted(", ".join(sorted(found)), 256)
        now_s = self._clock()
        if now_s - self._told_s >= _TELL_S:
            self._told_s = now_s
            _log.warning("client refused", names=shown, wanted=", ".join(sorted(self._names)))
        return f"the client's certificate names {shown}, and no client of --client-name"


def names_in(certificate: Mapping[str, Any]) -> frozenset[str]:
    """Return the common names of a certificate's subject and its DNS alternative names."""
    common = [value for part in certificate.get("subject", ()) for kind, value in part if kind == _COMMON_NAME]
    return frozenset([*common, *(value for kind, value in certificate.get("subjectAltName", ()) if kind == _DNS)])
