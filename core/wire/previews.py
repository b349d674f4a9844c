"""Previews for dry runs: extracts the pod from the review, and adds the controller's answer as a warning."""

from typing import Final

import msgspec

from core.errors import InvalidRequestError
from core.model import Pod
from core.wire import reading
from core.wire.pods import decode_pod
from core.wire.reviews import POD, ObjectKind, Operation

# The API server cuts a warning at this length, and drops all of them if they have 4,096 characters together.
_MAX_WARNING: Final = 256
_MAX_WARNINGS_BYTES: Final = 3_500


class _Request(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    kind: ObjectKind
    operation: Operation
    sub_resource: str = ""
    dry_run: bool | None = None
    object: msgspec.Raw = msgspec.Raw(b"null")


class _Kind(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    api_version: str | None = None
    kind: str | None = None


class _Question(msgspec.Struct, frozen=True, gc=False):
    request: _Request


class _Preview(msgspec.Struct, frozen=True, gc=False):
    """The part of the controller's answer (controller/reporting/answers.py) that is shown."""

    state: str
    text: str


class _Answer(msgspec.Struct, gc=False):
    apiVersion: str  # noqa: N815 (as it is sent)
    kind: str
    response: dict[str, msgspec.Raw]


_question_decoder: Final = msgspec.json.Decoder(_Question)
_preview_decoder: Final = msgspec.json.Decoder(_Preview)
_answer_decoder: Final = msgspec.json.Decoder(_Answer)
_encoder: Final = msgspec.json.Encoder()
_texts_decoder: Final = msgspec.json.Decoder(list[str])


def asked_pod(text: bytes) -> Pod:
    """Decode the pod that a caller asks about; it may leave out apiVersion and kind.

    Raises:
        InvalidRequestError: *text* is another object or unreadable, or the pod has no container.
    """
    found = _kind_of(text)
    if (found.api_version or "v1", found.kind or "Pod") != ("v1", "Pod"):
        named = " ".join(filter(None, (found.api_version, found.kind)))
        raise InvalidRequestError("kind", named, "send a pod: apiVersion v1, kind Pod")
    pod = decode_pod(text)
    if not pod.containers:
        raise InvalidRequestError("pod spec.containers", "nothing", "write at least one container")
    return pod


_kind_of: Final = reading.reader("pod", _Kind, lambda found: found)


def previewed_pod(review: bytes | bytearray, answer: bytes) -> bytes | None:
    """Return the JSON of the pod that a dry run creates and *answer* admits; None for every other review."""
    try:
        request = _question_decoder.decode(review).request
        admitted = bytes(_answer_decoder.decode(answer).response["allowed"]) == b"true"
    except (*reading.DECODE_ERRORS, KeyError):
        return None
    is_new_pod = request.kind == POD and request.operation is Operation.CREATE and not request.sub_resource
    if not (request.dry_run and is_new_pod and admitted):
        return None
    return bytes(request.object)


def preview_sentence(preview: bytes) -> str:
    """Return the controller's answer as a warning; "" if there is none or it is unreadable."""
    try:
        found = _preview_decoder.decode(preview)
    except reading.DECODE_ERRORS:
        return ""
    match found.state:
        case "fits":
            return f"would be placed now on {found.text}"
        case "refused":
            return f"would wait now: {found.text}"
        case "waits":
            return f"would wait: it {found.text}"
        case _:
            return ""


def with_warning(answer: bytes, text: str) -> bytes:
    """Return *answer* with *text* as its first warning, because the last ones are dropped first."""
    found = _answer_decoder.decode(answer)
    shown = "".join([c if c.isprintable() else " " for c in text])
    if len(shown) > _MAX_WARNING:
        shown = shown[: _MAX_WARNING - 1] + "…"
    old = found.response.get("warnings")
    warnings = [shown, *(_texts_decoder.decode(old) if old is not None else ())]
    while len(warnings) > 1 and len("".join(warnings).encode()) > _MAX_WARNINGS_BYTES:
        warnings.pop()
    found.response["warnings"] = msgspec.Raw(_encoder.encode(warnings))
    return _encoder.encode(found)
