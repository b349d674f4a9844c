"""Queries the controller over TLS with an audience-bound token: why a pod waits, what a change would do, and more."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec

from cli.options import SERVER_NAME, Controller
from core.errors import escaped
from core.view.history import Why
from core.view.simulated import Simulated
from core.wire.changes import Change, encode_change
from kube.transport import cause_of

_T = TypeVar("_T")
_DEADLINE_S: Final = 5.0
# An answer lists a few nodes and their cards.
_MAX_BYTES: Final = 4 * 2**20
# A simulation takes up to 120 s, and lists every affected pod.
_SIMULATION_S: Final = 135.0
_SIMULATION_MAX_BYTES: Final = 20 * 2**20
_SHADOW: Final = "/v1/shadow"
# Calls that the controller refuses before it identifies the caller are answered with one line (`runtime.calls`).
_LINE_MAX: Final = 300
_NO_PAGE: Final = "there is nothing here; ask /"
# OpenSSL: X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH.
_OTHER_NAME: Final = frozenset({62, 64})
# What an Authorization header may carry after "Bearer".
_TOKEN: Final = re.compile("[!-~]+")
_decoder: Final = msgspec.json.Decoder(dict[str, Any])


class NoAnswerError(Exception):
    """The controller gives no answer; the text is one line with the reason."""


class UnusableError(NoAnswerError):
    """The controller cannot use what it was given; the text is one line with the reason."""


class UnreadFileError(UnusableError):
    """A file that the command line names cannot be read; the text is one line with the flag and the reason."""


async def ask(controller: Controller, namespace: str, pod: str) -> Mapping[str, Any]:
    """Return the controller's view of a pod: its node, or why it waits.

    Raises:
        NoAnswerError: the controller gives no answer.
    """
    return await _ask(controller, f"/v1/explain/{quote(namespace, safe='')}/{quote(pod, safe='')}")


async def ask_why(controller: Controller, namespace: str, pod: str) -> Why:
    """Return what the controller remembers of the pods of that name; none if it remembers nothing.

    Raises:
        NoAnswerError: the controller gives no answer.
    """
    path = f"/v1/history/pods/{quote(namespace, safe='')}/{quote(pod, safe='')}"
    return _as(Why, await _ask(controller, path, unknown="unknown"), controller)


async def ask_simulated(controller: Controller, change: Change) -> Simulated:
    """Return what would happen if *change* was made.

    Raises:
        UnusableError: it cannot be made, or a file of the command line cannot be read.
        NoAnswerError: the controller gives no answer.
    """
    return _as(Simulated, await _ask(controller, "/v1/simulate", body=encode_change(change)), controller)


async def ask_shadow(controller: Controller) -> Mapping[str, Any]:
    """Return the findings of a controller in shadow mode.

    Raises:
        UnreadFileError: a file of the command line cannot be read.
        NoAnswerError: the controller gives no answer, or is not in shadow mode.
    """
    return await _ask(controller, _SHADOW)


async def ask_held(controller: Controller) -> Sequence[Mapping[str, Any]]:
    """Return what force-deleted pods still hold, in the form of the controller's ``/v1/held``.

    Raises:
        NoAnswerError: the controller gives no answer.
    """
    found = (await _ask(controller, "/v1/held")).get("held", ())
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else ()


def _as(kind: type[_T], answer: Mapping[str, Any], controller: Controller) -> _T:
    try:
        return msgspec.convert(answer, kind)
    except msgspec.MsgspecError as e:
        raise NoAnswerError(f"the controller at {controller.url} answers something else: {e}") from e


async def _ask(controller: Controller, path: str, *, unknown: str = "", body: bytes | None = None) -> Mapping[str, Any]:
    """Return the answer of 200 to a GET, or to a POST of *body*; or of 404 with the state *unknown*.

    Raises:
        UnreadFileError: a file of the command line cannot be read.
        UnusableError: *body* is refused.
        NoAnswerError: there is no answer.
    """
    context, token = await asyncio.to_thread(_read, controller)
    try:
        status, found = await _call(controller, path, token, context, body)
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as e:
        why = "no answer in time" if isinstance(e, TimeoutError) else cause_of(e)
        if getattr(getattr(e, "certificate_error", None), "verify_code", 0) in _OTHER_NAME:
            why += f"; give the name in it, such as {SERVER_NAME}"
        raise NoAnswerError(f"the controller at {controller.url} does not answer: {why}") from e
    try:
        answer = _decoder.decode(found)
    except (msgspec.MsgspecError, UnicodeDecodeError) as e:
        raise NoAnswerError(_unread(status, found, path, controller.url)) from e
    if status == 400:
        raise UnusableError(str(answer.get("text", "")))
    if status != 200 and (not unknown or answer.get("state") != unknown):
        raise NoAnswerError(f"the controller answers {status}: {answer.get('text', '')}")
    return answer


def _unread(status: int, body: bytes, path: str, url: str) -> str:
    """Return the meaning of an answer that is not JSON: a one-line refusal, or another server."""
    line = body.decode("utf-8", "replace").strip()
    if status == 200 or not line or len(line) > _LINE_MAX or "\n" in line or line.startswith("<"):
        return f"what answers {status} at {url} is not the controller"
    if status == 404 and path == _SHADOW and line.startswith(_NO_PAGE):
        return f"ask a controller that runs with --shadow; the one at {url} runs without it"
    return f"the controller at {url} answers {status}: {escaped(line)}"


def _read(controller: Controller) -> tuple[ssl.SSLContext, str]:
    """Return what verifies the controller, and the token for it.

    Raises:
        UnreadFileError: a file of them cannot be read.
    """
    try:
        context = ssl.create_default_context(cafile=controller.ca_file or None)
    except (ssl.SSLError, OSError) as e:
        why = "it holds no certificate" if isinstance(e, ssl.SSLError) else cause_of(e)
        raise UnreadFileError(f"--controller-ca {controller.ca_file}: {why}") from e
    if not controller.token_file:
        return context, ""
    try:
        token = Path(controller.token_file).read_text(encoding="utf-8", errors="replace").strip()
    except (OSError, ValueError) as e:
        raise UnreadFileError(f"--token-file {controller.token_file}: {cause_of(e)}") from e
    # A command that failed leaves its file empty, or with its message.
    if not _TOKEN.fullmatch(token):
        raise UnreadFileError(f"--token-file {controller.token_file}: it holds no token")
    return context, token


async def _call(
    controller: Controller, path: str, token: str, context: ssl.SSLContext, body: bytes | None
) -> tuple[int, bytes]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    verb, total_s, most = ("GET", _DEADLINE_S, _MAX_BYTES)
    if body is not None:
        verb, total_s, most = ("POST", _SIMULATION_S, _SIMULATION_MAX_BYTES)
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=total_s, sock_connect=_DEADLINE_S)) as session,
        session.request(
            verb,
            f"{controller.url}{path}",
            data=body,
            headers=headers,
            ssl=context,
            server_hostname=controller.server_name or None,
            allow_redirects=False,
        ) as answer,
    ):
        parts, size = list[bytes](), 0
        async for part in answer.content.iter_any():
            parts.append(part)
            size += len(part)
            if size > most:
                raise ValueError(f"its answer is longer than {most} bytes")
        return answer.status, b"".join(parts)
