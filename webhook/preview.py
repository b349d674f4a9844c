"""Asks the controller where the pod of a dry run would go, and adds a warning if the answer comes in time."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import structlog

from core.wire.previews import preview_sentence, previewed_pod, with_warning
from kube.credentials import Credentials, Tls
from kube.errors import ApiError, CredentialsError
from kube.transport import Transport
from webhook.metrics import Metrics

_log: Final = structlog.get_logger()

PATH: Final = "/v1/preview"
# A person waits for the answer.
_PATIENCE_S: Final = 0.5
# The controller serves at most this many calls of one caller at a time.
_AT_A_TIME: Final = 8
_TELL_S: Final = 60.0


class ControllerSource:
    """The controller's address, authority and token; every read loads the files again."""

    def __init__(self, url: str, ca: Path, token: Path | None) -> None:
        self._url = url
        self._ca = ca
        self._token = token

    async def read(self, *, rejected: bool = False) -> Credentials:
        """See `CredentialSource`."""
        del rejected
        return await asyncio.to_thread(self._read)

    def why_not_readable(self) -> str:
        """Return why the files cannot be read now, or "". They may appear later."""
        try:
            self._read()
        except CredentialsError as e:
            return str(e)
        return ""

    def _read(self) -> Credentials:
        try:
            token = self._token.read_text(encoding="ascii").strip() if self._token is not None else ""
            ca_pem = self._ca.read_text(encoding="ascii")
        except OSError as e:
            raise CredentialsError(f"preview: {e.filename}: {(e.strerror or str(e)).lower()}") from e
        except ValueError as e:
            raise CredentialsError(f"preview: {self._ca} or {self._token}: it is not ASCII text") from e
        authorization = f"Bearer {token}" if token else ""
        return Credentials(server=self._url, authorization=authorization, tls=Tls(ca_pem=ca_pem))


class Previewer:
    """Asks the controller, and opens connections on first use; the owner must close it."""

    def __init__(self, source: ControllerSource, metrics: Metrics) -> None:
        self._source = source
        self._metrics = metrics
        self._stack = AsyncExitStack()
        self._transport: Transport | None = None
        self._turns = asyncio.Semaphore(_AT_A_TIME)
        self._opening = asyncio.Lock()
        self._told_s = -_TELL_S

    async def close(self) -> None:
        """Close the connections."""
        await self._stack.aclose()

    def is_wanted(self, body: bytes | bytearray) -> bool:
        """See `Previews`. A text search is enough to dismiss nearly all reviews."""
        return b'"dryRun":true' in body or b'"dryRun": true' in body

    async def completed(self, body: bytes | bytearray, answer: bytes, deadline_s: float) -> bytes:
        """See `Previews`."""
        pod = previewed_pod(body, answer)
        if pod is None:
            return answer
        outcome = "failed"
        try:
            # The timeout includes the wait for a turn.
            async with asyncio.timeout(min(_PATIENCE_S, deadline_s)), self._turns:
                text = await self._ask(pod)
            outcome = "told" if text else "nothing to report"
            return with_warning(answer, text) if text else answer
        except (TimeoutError, ApiError, CredentialsError) as e:
            self._tell(e)
            return answer
        finally:
            self._metrics.previews[outcome] += 1

    async def _ask(self, pod: bytes) -> str:
        transport = await self._open()
        response = await transport.request("POST", PATH, body=pod, deadline_s=_PATIENCE_S, wait_out_pause=False)
        return preview_sentence(response.body)

    async def _open(self) -> Transport:
        async with self._opening:
            if self._transport is None:
                transport = Transport(self._source, user_agent="cardshare-webhook")
                self._transport = await self._stack.enter_async_context(transport)
            return self._transport

    def _tell(self, error: Exception) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s - self._told_s >= _TELL_S:
            self._told_s = now_s
            _log.warning("no preview; dry runs are answered without one", error=str(error) or type(error).__name__)
