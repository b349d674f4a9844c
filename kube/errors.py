"""Errors of calls to the API server, from the server or from the connection.

The classes differ by the fate of a write: `ApiRefusedError` and its subclasses were certainly not written;
`ApiUnknownError` was perhaps written. A read may be repeated after either. The caller decides what to do next.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar, Final

import msgspec

# An error quotes this much of a foreign body: enough to recognise a proxy's page, never a whole one.
MAX_QUOTED_CHARACTERS: Final = 256
MAX_MESSAGE_CHARACTERS: Final = 1_024
# A longer `Retry-After` is a mistake, an attack, or a maintenance page's guess; one request a minute is harmless.
MAX_RETRY_AFTER_S: Final = 60.0


class ConflictKind(StrEnum):
    """The precondition that a 409 reports, taken from the message because the reason is the same for all."""

    ALREADY_BOUND = "already-bound"
    ALREADY_EXISTS = "already-exists"
    DELETING = "deleting"
    GATED = "gated"
    OTHER_UID = "other-uid"
    CHANGED = "changed"
    OTHER = "other"


class CredentialsError(Exception):
    """No usable credentials: a file, a context or a plugin is wrong. The text is one line that names it."""


class UndecodableError(Exception):
    """A list, an event or an object does not have the form of its kind; raised by decoders."""


class ApiError(Exception):
    """A failed call.

    Attributes:
        verb: the HTTP method, upper case.
        path: the requested path, without server and query.
        status: the HTTP status, or 0 without an answer.
        reason: the API server's reason (`Conflict`, `Expired`, ...), or "" if it gave none.
        message: the failure in words, at most 1,024 characters.
        retry_after_s: seconds after which the server accepts another try, at most `MAX_RETRY_AFTER_S`, or `None`.
    """

    advice: ClassVar[str] = ""
    retryable: ClassVar[bool] = False

    def __init__(
        self,
        *,
        verb: str,
        path: str,
        status: int = 0,
        reason: str = "",
        message: str = "",
        retry_after_s: float | None = None,
    ) -> None:
        self.verb = verb
        self.path = path
        self.status = status
        self.reason = reason
        self.message = printable(message, MAX_MESSAGE_CHARACTERS)
        self.retry_after_s = retry_after_s
        super().__init__(verb, path, status, reason, self.message)

    @property
    def is_of_budget(self) -> bool:
        """Whether a PodDisruptionBudget forbids an eviction; if not, a 429 means that the server asks for time."""
        return self.path.endswith("/eviction") and _BUDGET in self.message

    @property
    def is_of_kind(self) -> bool:
        """Whether the API server still reads all objects of this kind, and serves the others."""
        return self.message.startswith(_READING_KIND)

    def __str__(self) -> str:
        answered = " ".join(filter(None, (str(self.status or ""), self.reason)))
        head = f"{self.verb} {self.path}: " + (f"{answered}: " if answered else "")
        return head + self.message + (f"; {self.advice}" if self.advice else "")


class ApiRefusedError(ApiError):
    """Certainly not written: the server refused, or was never reached."""


class ApiForbiddenError(ApiRefusedError):
    """403 or 401: these credentials lack the right, or another component forbids the call for this object."""

    @property
    def is_missing_right(self) -> bool:
        """Whether the API server's authorizer refused, and not admission or a webhook for one object."""
        return _FORBIDDEN.search(self.message) is not None and "denied the request" not in self.message

    def __str__(self) -> str:
        refused = _FORBIDDEN.search(self.message)
        right = "that right"
        if refused:
            kind = ".".join(filter(None, (refused["resource"], refused["group"])))
            right = f"the right to {refused['verb']} {kind} (a role with that verb and resource, bound to it)"
        return f"{super().__str__()}; give this account {right}, or use other credentials"


class ApiUnauthorizedError(ApiForbiddenError):
    """401: the server does not recognize the credentials."""

    @property
    def is_missing_right(self) -> bool:
        """Always true: an unknown caller has no rights."""
        return True

    def __str__(self) -> str:
        told = ApiError.__str__(self)
        return f"{told}; log in again: the token or client certificate is wrong, has expired or is of another cluster"


class ApiNotFoundError(ApiRefusedError):
    """404 by the API server: the object or its kind does not exist in this cluster."""


class ApiConflictError(ApiRefusedError):
    """409: the object differs from what the call assumed."""

    @property
    def kind(self) -> ConflictKind:
        """The assumption that failed."""
        return conflict_kind(self.reason, self.message)


class ApiGoneError(ApiRefusedError):
    """410: the requested version or page is no longer kept; list again."""

    retryable = True


class ApiThrottledError(ApiRefusedError):
    """429, or the API server's 503 with `Retry-After`: do not try again before `retry_after_s`."""

    retryable = True


class ApiWebhookError(ApiRefusedError):
    """500, because the API server has to ask an admission webhook and cannot: it does so before it writes."""

    retryable = True


class ApiUnreachableError(ApiRefusedError):
    """No connection was made, so nothing was sent."""

    advice = "check the address, the network and the certificate authority"
    retryable = True


class ApiUnknownError(ApiError):
    """Perhaps written: the connection ended, time ran out, or the server failed after the call was sent."""

    retryable = True


class ApiUnreadableError(ApiError):
    """The answer to a read is unusable: cut off, too long, or of another form."""

    retryable = True


class _StatusDetails(msgspec.Struct, frozen=True, rename="camel"):
    retry_after_seconds: int = 0


class _Status(msgspec.Struct, frozen=True):
    """Source: Kubernetes API reference, meta/v1 Status."""

    kind: str | None = ""
    message: str | None = ""
    reason: str | None = ""
    code: int | None = 0
    details: _StatusDetails | None = None


# Source: kube-apiserver v1.36, apiserver/pkg/endpoints/handlers/responsewriters (forbiddenMessage).
_FORBIDDEN: Final = re.compile(
    r'cannot (?P<verb>[a-z]+) resource "(?P<resource>[^"]+)"(?: in API group "(?P<group>[^"]*)")?'
)
# The API server's answer for the path of a kind that is not installed. Source: kube-apiserver v1.36,
# apiserver/pkg/util/notfoundhandler.
_NO_SUCH_PATH: Final = b"404 page not found"
_BUDGET: Final = "disruption budget"
# Answered to watches, and to lists with selectors; the longer it takes, the more time the API server asks for, up to
# 30 s. Source: kube-apiserver since v1.31, apiserver/pkg/storage/cacher (Watch, calculateRetryAfterForUnreadyCache).
_READING_KIND: Final = "storage is (re)initializing"
# Source: kube-apiserver v1.37, apiserver/pkg/admission/plugin/webhook (dispatchers) and apiserver/pkg/util/webhook.
_WEBHOOK: Final = 'Internal error occurred: failed calling webhook "'
_status_decoder: Final = msgspec.json.Decoder(_Status)
# Authenticating proxies answer the first two for the API server, which itself answers 429 in plain text.
_OF_PROXIES_TOO: Final = frozenset({401, 403, 429})

_BY_STATUS: Final[Mapping[int, type[ApiError]]] = {
    401: ApiUnauthorizedError,
    403: ApiForbiddenError,
    404: ApiNotFoundError,
    409: ApiConflictError,
    410: ApiGoneError,
    429: ApiThrottledError,
}


def from_answer(verb: str, path: str, status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """Return the error for an answer; *body* may be anything.

    Args:
        verb: the HTTP method.
        path: the requested path.
        status: the HTTP status, 300 or above.
        headers: the answer's headers, with case-insensitive keys (`CIMultiDict` and the like).
        body: a meta/v1 Status, or a proxy's page.
    """
    told = _read_status(body)
    retry_after_s = _retry_after_s(headers, told)
    message = (told.message or "") if told else _quoted(headers, body)
    # A proxy's page says nothing about objects, and may replace the answer of a server that has written.
    is_a_proxys = status not in _OF_PROXIES_TOO and not _is_of_server(path, told, body)
    is_webhooks = status == 500 and message.startswith(_WEBHOOK)
    kind = ApiUnknownError if is_a_proxys else ApiWebhookError if is_webhooks else _class_of(status, retry_after_s)
    return kind(
        verb=verb,
        path=path,
        status=status,
        reason=printable((told.reason or "") if told else "", 64),
        message=message or "no message",
        retry_after_s=retry_after_s,
    )


def from_page(verb: str, path: str, status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """Return the error for an answer of 200 to 299 that is no object of the API server's, such as a proxy's page.

    A write may not have happened, and a read shows nothing.
    """
    return ApiUnknownError(verb=verb, path=path, status=status, message=_quoted(headers, body))


def from_failure(verb: str, path: str, body: bytes) -> ApiError:
    """Return the error for an answer of 200 to 299 with a Status that reports a failure.

    So the API server refuses to evict a pod with several disruption budgets: it answers 201, and its Status says 500.
    Source: kube-apiserver v1.37, pkg/registry/core/pod/storage/eviction.go; the handler of a POST sends 201 with it.
    """
    told = _read_status(body) or _Status()
    kind = _BY_STATUS.get(told.code or 0, ApiRefusedError)
    reason = printable(told.reason or "", 64)
    return kind(verb=verb, path=path, status=told.code or 0, reason=reason, message=told.message or "no message")


def from_event(verb: str, path: str, code: int, reason: str, message: str) -> ApiError:
    """Return the error for an `ERROR` event inside a watch, whose HTTP status was 200."""
    kind = ApiGoneError if reason in ("Expired", "Gone") else _class_of(code or 500, None)
    return kind(verb=verb, path=path, status=code, reason=printable(reason, 64), message=message)


def conflict_kind(reason: str, message: str) -> ConflictKind:
    """Return the precondition that a 409 with this *reason* and *message* reports.

    Source: kube-apiserver v1.36, pkg/registry/core/pod/storage (assignPod) and apiserver's precondition checks.
    """
    for words, kind in (
        ("already assigned to node", ConflictKind.ALREADY_BOUND),
        ("schedulingGates", ConflictKind.GATED),
        ("is being deleted", ConflictKind.DELETING),
        ("UID in precondition", ConflictKind.OTHER_UID),
        ("UID in the precondition", ConflictKind.OTHER_UID),  # of a deletion or an eviction
        ("uid mismatch", ConflictKind.OTHER_UID),
        ("object has been modified", ConflictKind.CHANGED),
        ("ResourceVersion in precondition", ConflictKind.CHANGED),
        ("ResourceVersion in the precondition", ConflictKind.CHANGED),
    ):
        if words in message:
            return kind
    return ConflictKind.ALREADY_EXISTS if reason == "AlreadyExists" else ConflictKind.OTHER


def printable(text: str, limit: int) -> str:
    """Return *text* on one line, without control characters, cut to *limit* characters, for logs and events."""
    cut = text[: limit + 1]
    line = cut if cut.isprintable() else "".join(c if c.isprintable() else " " for c in cut)
    return line if len(line) <= limit else line[: limit - 3] + "..."


def _class_of(status: int, retry_after_s: float | None) -> type[ApiError]:
    if status == 503 and retry_after_s is not None:
        return ApiThrottledError
    if status >= 500:
        return ApiUnknownError
    return _BY_STATUS.get(status, ApiRefusedError)


def _is_of_server(path: str, told: _Status | None, body: bytes) -> bool:
    """Return whether the API server refused, and not a proxy; only kinds that are not installed have no Status."""
    return (told is not None and told.kind == "Status") or (path.startswith("/apis/") and body.strip() == _NO_SUCH_PATH)


def _read_status(body: bytes) -> _Status | None:
    try:
        return _status_decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _retry_after_s(headers: Mapping[str, str], told: _Status | None) -> float | None:
    text = headers.get("Retry-After", "")
    # The other form, a date, would compare two clocks; the API server never sends it.
    if text.isascii() and text.isdigit() and len(text) <= 6:
        return min(float(text), MAX_RETRY_AFTER_S)
    if told and told.details and told.details.retry_after_seconds > 0:
        return float(min(told.details.retry_after_seconds, MAX_RETRY_AFTER_S))
    return None


def _quoted(headers: Mapping[str, str], body: bytes) -> str:
    if not body:
        return "an answer without a body"
    kind = printable(headers.get("Content-Type", "no content type"), 64)
    text = printable(body[: 4 * MAX_QUOTED_CHARACTERS].decode("utf-8", "replace"), MAX_QUOTED_CHARACTERS)
    return f"the answer is not the API server's ({kind}): {text!r}; look for a proxy in between"
