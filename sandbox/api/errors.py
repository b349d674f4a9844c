"""The error answers of the API server double: HTTP status, reason and text, as a Status object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

# The start of each kind of reason, and its name in a Status.
_CAUSES: Final = {
    "Required value": "FieldValueRequired",
    "Forbidden": "FieldValueForbidden",
    "Duplicate value": "FieldValueDuplicate",
    "Unsupported value": "FieldValueNotSupported",
    "Too long": "FieldValueTooLong",
}


class StatusError(Exception):
    """The server refuses.

    Attributes:
        code: the HTTP status.
        reason: the machine-readable reason.
        message: the text for people.
        headers: additional headers of the response, such as ``Retry-After``.
        details: the subject of the refusal, for machines.
    """

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        headers: Mapping[str, str] | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.headers = dict(headers or {})
        self.details = dict(details or {})

    def status(self) -> dict[str, Any]:
        """Return the Status object for the body."""
        optional: dict[str, Any] = {"reason": self.reason} if self.reason else {}
        if self.details or self.code == 404:
            optional["details"] = self.details  # kubectl reads it of every 404
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            **optional,
            "code": self.code,
        }


def not_found(resource: str, name: str) -> StatusError:
    """Return 404 for an object."""
    return StatusError(404, "NotFound", f'{resource} "{name}" not found')


def forbidden(resource: str, name: str, why: str) -> StatusError:
    """Return 403 for a write that admission denies."""
    return StatusError(403, "Forbidden", f'{resource} "{name}" is forbidden: {why}')


def conflict(resource: str, name: str, why: str) -> StatusError:
    """Return 409 for a write based on another state."""
    return StatusError(409, "Conflict", f'Operation cannot be fulfilled on {resource} "{name}": {why}')


def already_exists(resource: str, name: str) -> StatusError:
    """Return 409 for a name that exists."""
    return StatusError(409, "AlreadyExists", f'{resource} "{name}" already exists')


def invalid(kind: str, name: str, reasons: Sequence[str], group: str = "") -> StatusError:
    """Return 422 for an object that violates rules; each of *reasons* starts with the field's path."""
    title = f"{kind}.{group}" if group else kind
    why = reasons[0] if len(reasons) == 1 else f"[{', '.join(reasons)}]"
    details = {"name": name, "group": group, "kind": kind, "causes": [_cause(reason) for reason in reasons]}
    return StatusError(
        422,
        "Invalid",
        f'{title} "{name}" is invalid: {why}',
        details={key: value for key, value in details.items() if value},
    )


def _cause(reason: str) -> dict[str, str]:
    field, _, message = reason.partition(": ")
    word = next((word for start, word in _CAUSES.items() if message.startswith(start)), "FieldValueInvalid")
    return {"reason": word, "message": message, "field": field}


def bad_request(message: str) -> StatusError:
    """Return 400 for an unreadable request."""
    return StatusError(400, "BadRequest", message)


def expired(message: str) -> StatusError:
    """Return 410 for a revision that is no longer kept."""
    return StatusError(410, "Expired", message)


def internal(message: str) -> StatusError:
    """Return 500 for an internal error of the real server."""
    return StatusError(500, "InternalError", f"Internal error occurred: {message}")
