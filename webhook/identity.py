"""Keeps the TLS port's certificate pair and the authority of its clients up to date with their files."""

import asyncio
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import structlog

from certs import serving
from certs.serving import Loaded
from core.errors import ConfigError
from webhook.metrics import Metrics

_log: Final = structlog.get_logger()

# The webhook stops being ready this long before its certificate expires, so that routing can change in time.
READY_MARGIN: Final = timedelta(minutes=1)
# The warning comes late because the pair is renewed after two thirds of its life, with retries.
_WARN_BEFORE: Final = timedelta(days=7)


class Identity:
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
        self._source: Final = serving.Source(directory)
        pair: Loaded | None = None
        try:
            pair = self._source.look(datetime.now(UTC))
        except ConfigError as e:
            problems += e.problems
        if problems or pair is None:
            raise ConfigError(problems)
        self._take(pair)

    @property
    def _pair(self) -> Loaded:
        return self._source.serving

    def _take(self, pair: Loaded) -> bool:
        is_taken = self._source.serve(self.context, pair)
        self._metrics.certificate_expires_s = self._pair.expires.timestamp()
        return is_taken

    def why_not_ready(self, now: datetime) -> str:
        """Return why no calls should be routed here, or ""."""
        ends = self._pair.expires
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
            _log.info("certificate replaced", expires=self._pair.expires.isoformat())

    async def _look_at_clients(self, path: Path, renew: Callable[[ssl.SSLContext], None]) -> None:
        clients: bytes | None = None
        try:
            clients = await asyncio.to_thread(serving.read_client_ca, path)
            if clients == self._clients:
                self._clients_refused = None
                return
            # A context can trust more authorities later but never fewer, so a change needs a new context.
            context = serving.server_context(clients)
            serving.use(context, self._pair.stored)
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
        ends = self._pair.expires
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
