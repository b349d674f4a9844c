"""What the API server, or the way to it, answered when it did not do what was asked.

The split that matters is what became of a write: `ApiRefusedError` and everything below it were certainly not
written, `ApiUnknownError` perhaps was. A read may be repeated after either. What to do next is the caller's choice.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar, Final

import msgspec

# What an error quotes of a body that is not the API server's: enough to recognise a proxy's page, never a whole one.
MAX_QUOTED_CHARACTERS: Final = 256
MAX_MESSAGE_CHARACTERS: Final = 1_024


class ConflictKind(StrEnum):
    """Which precondition a 409 speaks of; told by the message, because the reason is the same for all."""

    ALREADY_BOUND = "already-bound"
    ALREADY_EXISTS = "already-exists"
    DELETING = "deleting"
    GATED = "gated"
    OTHER_UID = "other-uid"
    CHANGED = "changed"
    OTHER = "other"


class CredentialsError(Exception):
    """Nothing to log in with: a file, a context or a plugin is wrong. The text is one line that says which."""


class UndecodableError(Exception):
    """A list, an event or an object is not what its kind should look like; raised by decoders."""


class ApiError(Exception):
    """A call that did not succeed, with the facts of it.

    Attributes:
        verb: the HTTP method, upper case.
        path: the path asked for, without server and query.
        status: the HTTP status, or 0 where no answer came.
        reason: the API server's word for it (`Conflict`, `Expired`, ...), or "" where it gave none.
        message: what happened, for people, at most 1,024 characters.
        retry_after_s: seconds after which the server wants to be asked again, or `None`.
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

    def __str__(self) -> str:
        answered = " ".join(filter(None, (str(self.status or ""), self.reason)))
        head = f"{self.verb} {self.path}: " + (f"{answered}: " if answered else "")
        return head + self.message + (f"; {self.advice}" if self.advice else "")


class ApiRefusedError(ApiError):
    """Certainly not written: the server said no, or was never reached."""


class ApiForbiddenError(ApiRefusedError):
    """403, or 401: these credentials may not do this, or somebody else forbids it for this object."""

    @property
    def is_missing_right(self) -> bool:
        """Whether the API server's authorizer says so, and not, for one object, its admission or a webhook."""
        return _FORBIDDEN.search(self.message) is not None and "denied the request" not in self.message

    def __str__(self) -> str:
        refused = _FORBIDDEN.search(self.message)
        right = "that right"
        if refused:
            kind = ".".join(filter(None, (refused["resource"], refused["group"])))
            right = f"the right to {refused['verb']} {kind} (a role with that verb and resource, bound to it)"
        return f"{super().__str__()}; give this account {right}, or use other credentials"


class ApiUnauthorizedError(ApiForbiddenError):
    """401: the server does not know who asks."""

    @property
    def is_missing_right(self) -> bool:
        """Whoever is not known has no right to anything."""
        return True

    def __str__(self) -> str:
        told = ApiError.__str__(self)
        return f"{told}; log in again: the token or client certificate is wrong, has expired or is of another cluster"


class ApiNotFoundError(ApiRefusedError):
    """404: there is no such object, or no such kind in this cluster."""


class ApiConflictError(ApiRefusedError):
    """409: the object is not, or no longer, what the call assumed."""

    @property
    def kind(self) -> ConflictKind:
        """Which assumption failed."""
        return conflict_kind(self.reason, self.message)


class ApiGoneError(ApiRefusedError):
    """410: the version or page asked for is no longer kept; list again."""

    retryable = True


class ApiThrottledError(ApiRefusedError):
    """429, or 503 with `Retry-After`: not now; not before `retry_after_s`."""

    retryable = True


class ApiUnreachableError(ApiRefusedError):
    """No connection was made, so nothing was sent."""

    advice = "check the address, the network and the certificate authority"
    retryable = True


class ApiUnknownError(ApiError):
    """Perhaps written: the connection ended, the time ran out or the server failed after the call was sent."""

    retryable = True


class ApiUnreadableError(ApiError):
    """The answer to a read came but cannot be used: cut off, too long, or not what was asked for."""

    retryable = True


class _StatusDetails(msgspec.Struct, frozen=True, rename="camel"):
    retry_after_seconds: int = 0


class _Status(msgspec.Struct, frozen=True):
    """Source: Kubernetes API reference, meta/v1 Status."""

    message: str | None = ""
    reason: str | None = ""
    code: int | None = 0
    details: _StatusDetails | None = None


# Source: kube-apiserver v1.36, apiserver/pkg/endpoints/handlers/responsewriters (forbiddenMessage).
_FORBIDDEN: Final = re.compile(
    r'cannot (?P<verb>[a-z]+) resource "(?P<resource>[^"]+)"(?: in API group "(?P<group>[^"]*)")?'
)
_status_decoder: Final = msgspec.json.Decoder(_Status)

_BY_STATUS: Final[Mapping[int, type[ApiError]]] = {
    401: ApiUnauthorizedError,
    403: ApiForbiddenError,
    404: ApiNotFoundError,
    409: ApiConflictError,
    410: ApiGoneError,
    429: ApiThrottledError,
}


def from_answer(verb: str, path: str, status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """The error that an answer stands for; *body* may be anything at all.

    Args:
        verb: the HTTP method.
        path: the path asked for.
        status: the HTTP status, 300 or above.
        headers: the answer's, found whatever their case (`CIMultiDict` and the like).
        body: a meta/v1 Status, or a proxy's page.
    """
    told = _read_status(body)
    retry_after_s = _retry_after_s(headers, told)
    message = (told.message or "") if told else _quoted(headers, body)
    return _class_of(status, retry_after_s)(
        verb=verb,
        path=path,
        status=status,
        reason=printable((told.reason or "") if told else "", 64),
        message=message or "no message",
        retry_after_s=retry_after_s,
    )


def from_event(verb: str, path: str, code: int, reason: str, message: str) -> ApiError:
    """The error that an `ERROR` event inside a watch stands for; its HTTP status was 200."""
    kind = ApiGoneError if reason in ("Expired", "Gone") else _class_of(code or 500, None)
    return kind(verb=verb, path=path, status=code, reason=printable(reason, 64), message=message)


def conflict_kind(reason: str, message: str) -> ConflictKind:
    """Which precondition a 409 with this *reason* and *message* speaks of.

    Source: kube-apiserver v1.36, pkg/registry/core/pod/storage (assignPod) and apiserver's precondition checks.
    """
    for words, kind in (
        ("already assigned to node", ConflictKind.ALREADY_BOUND),
        ("schedulingGates", ConflictKind.GATED),
        ("is being deleted", ConflictKind.DELETING),
        ("UID in precondition", ConflictKind.OTHER_UID),
        ("uid mismatch", ConflictKind.OTHER_UID),
        ("object has been modified", ConflictKind.CHANGED),
        ("ResourceVersion in precondition", ConflictKind.CHANGED),
    ):
        if words in message:
            return kind
    return ConflictKind.ALREADY_EXISTS if reason == "AlreadyExists" else ConflictKind.OTHER


def printable(text: str, limit: int) -> str:
    """*text* on one line, without control characters, at most *limit* characters: fit for logs and events."""
    cut = text[: limit + 1]
    line = "".join(c if c.isprintable() else " " for c in cut)
    return line if len(line) <= limit else line[: limit - 3] + "..."


def _class_of(status: int, retry_after_s: float | None) -> type[ApiError]:
    if status == 503 and retry_after_s is not None:
        return ApiThrottledError
    if status >= 500:
        return ApiUnknownError
    return _BY_STATUS.get(status, ApiRefusedError)


def _read_status(body: bytes) -> _Status | None:
    try:
        return _status_decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _retry_after_s(headers: Mapping[str, str], told: _Status | None) -> float | None:
    text = headers.get("Retry-After", "")
    # The other form, a date, would compare the server's clock with ours; the API server never sends it.
    if text.isascii() and text.isdigit() and len(text) <= 6:
        return float(text)
    if told and told.details and told.details.retry_after_seconds > 0:
        return float(min(told.details.retry_after_seconds, 999_999))
    return None


def _quoted(headers: Mapping[str, str], body: bytes) -> str:
    if not body:
        return "an answer without a body"
    kind = printable(headers.get("Content-Type", "no content type"), 64)
    text = printable(body[: 4 * MAX_QUOTED_CHARACTERS].decode("utf-8", "replace"), MAX_QUOTED_CHARACTERS)
    return f"the answer is not the API server's ({kind}): {text!r}; look for a proxy in between"
