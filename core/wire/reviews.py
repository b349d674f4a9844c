"""Admission reviews: from the API server's request to a value, and from a verdict to its answer.

Source: Kubernetes API reference, admission.k8s.io/v1 AdmissionReview.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import msgspec

from core.errors import InvalidRequestError
from core.wire import reading, templates
from core.wire.reviewed_pods import PodObject

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"
# The API server cuts a warning at this length, and drops all of them if they have 4,096 characters together.
_MAX_WARNING: Final = 256
_MAX_WARNINGS: Final = 12
_MAX_MESSAGE: Final = 8 * 1024


class Operation(StrEnum):
    """The operation on the object."""

    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    CONNECT = "CONNECT"


class ObjectKind(msgspec.Struct, frozen=True, gc=False):
    """The kind of an object; the core group is ""."""

    group: str = ""
    version: str = ""
    kind: str = ""


POD: Final = ObjectKind(version="v1", kind="Pod")
# Sent to pods/binding, and to bindings, an older path for the same.
BINDING: Final = ObjectKind(version="v1", kind="Binding")
# The subresources of a pod through which its annotations can be written.
_WITH_ANNOTATIONS: Final = ("", "status")


# The node of the pod that a token was issued for (Kubernetes 1.30, ServiceAccountTokenPodNodeInfo).
_NODE_NAME: Final = "authentication.kubernetes.io/node-name"


class _User(msgspec.Struct, frozen=True, gc=False):
    username: str = ""
    extra: dict[str, tuple[str, ...] | None] | None = None


class _Head(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    uid: str
    kind: ObjectKind
    operation: Operation
    sub_resource: str = ""
    name: str = ""
    namespace: str = ""
    user_info: _User = _User()
    dry_run: bool | None = None


class Review(_Head, frozen=True, gc=False, rename="camel", kw_only=True):
    """One request; object and old_object are set for pods, and for Bindings with their metadata only.

    They are meaningless for every other `kind`.
    """

    object: PodObject | None = None
    old_object: PodObject | None = None

    @property
    def user_name(self) -> str:
        """The name of the requesting user."""
        return self.user_info.username

    @property
    def user_node(self) -> str:
        """The node of the requesting pod, "" if its token does not contain it."""
        return "".join((self.user_info.extra or {}).get(_NODE_NAME) or ())

    @property
    def is_new_pod(self) -> bool:
        """Whether a pod is being created."""
        return self.operation is Operation.CREATE and self.kind == POD and not self.sub_resource

    @property
    def is_changed_pod(self) -> bool:
        """Whether a pod is being changed, including by its status, through which annotations can change."""
        return self.operation is Operation.UPDATE and self.kind == POD and self.sub_resource in _WITH_ANNOTATIONS

    @property
    def is_binding(self) -> bool:
        """Whether a pod is being bound, which may also set annotations."""
        return self.operation is Operation.CREATE and self.kind == BINDING

    @property
    def is_debugged_pod(self) -> bool:
        """Whether containers for debugging are being added to a pod."""
        return self._is_pods("ephemeralcontainers")

    @property
    def is_resized_pod(self) -> bool:
        """Whether resources of a pod's containers are being changed in place."""
        return self._is_pods("resize")

    def _is_pods(self, sub_resource: str) -> bool:
        return self.operation is Operation.UPDATE and self.sub_resource == sub_resource and self.kind == POD

    @property
    def is_workload(self) -> bool:
        """Whether it concerns a kind that creates pods."""
        return not self.sub_resource and (self.kind.group, self.kind.kind) in templates.KINDS


class UnreadableObjectError(InvalidRequestError):
    """A review whose object does not have the form of its kind; its uid can be answered."""

    def __init__(self, uid: str, error: InvalidRequestError) -> None:
        super().__init__(error.field, "", error.remedy)
        self.uid = uid
        self.found = error.found
        self.args = error.args


class _Question(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    api_version: str
    kind: str
    request: Review


class _HeadQuestion(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    api_version: str
    kind: str
    request: _Head


class _Status(msgspec.Struct, frozen=True, gc=False):
    message: str
    reason: str
    code: int


class _Verdict(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    allowed: bool
    patch_type: str | None = None
    patch: bytes | None = None
    warnings: tuple[str, ...] = ()
    status: _Status | None = None


_decoder: Final = msgspec.json.Decoder(_Question)
_head_decoder: Final = msgspec.json.Decoder(_HeadQuestion)
_encoder: Final = msgspec.json.Encoder()


def decode_review(text: bytes | bytearray | memoryview) -> Review:
    """Decode one AdmissionReview, and its pods if it is about pods.

    Raises:
        UnreadableObjectError: its object is not a valid pod or Binding.
        InvalidRequestError: it is not a review, or of another version.
    """
    # Objects are decoded in the same pass: most reviews are of pods, and one pass costs two thirds of two.
    try:
        found = _decoder.decode(text)
    except reading.DECODE_ERRORS as e:
        return _without_objects(text, e)
    _check(found)
    request = found.request
    if request.object is None and (request.is_new_pod or request.is_changed_pod or request.is_binding):
        error = InvalidRequestError("object", "nothing", f"send the {request.kind.kind}")
        raise UnreadableObjectError(request.uid, error)
    if request.old_object is None and request.is_changed_pod:
        raise UnreadableObjectError(request.uid, InvalidRequestError("oldObject", "nothing", "send the pod"))
    return request


def _without_objects(text: bytes | bytearray | memoryview, error: Exception) -> Review:
    try:
        found = _head_decoder.decode(text)
    except reading.DECODE_ERRORS as e:
        raise reading.unreadable(KIND, e) from e
    _check(found)
    head = found.request
    if head.kind == BINDING or (head.kind == POD and not head.sub_resource):
        raise UnreadableObjectError(head.uid, reading.unreadable(KIND, error)) from error
    return Review(**{name: getattr(head, name) for name in head.__struct_fields__})


def _check(found: _Question | _HeadQuestion) -> None:
    if found.api_version != API_VERSION or found.kind != KIND:
        raise InvalidRequestError(KIND, f"{found.api_version} {found.kind}", f"send {API_VERSION} {KIND}")
    if not found.request.uid:
        raise InvalidRequestError(f"{KIND} request.uid", "", "send the uid that the answer must repeat")


class ReviewReply(bytes):
    """An answer without its uid, which is shared by reviews with the same verdict."""

    __slots__ = ()


def encode_answer(uid: str, reply: ReviewReply) -> bytes:
    """Return the AdmissionReview that answers *uid* with *reply*."""
    return b"".join((_HEAD, _encoder.encode(uid), reply))


def admit(patch: bytes = b"", warnings: Sequence[str] = ()) -> ReviewReply:
    """Return an answer that admits, with *patch* (RFC 6902, as JSON) and *warnings* for the user."""
    return _reply(
        _Verdict(
            allowed=True,
            patch_type="JSONPatch" if patch else None,
            patch=patch or None,
            warnings=_shown(warnings),
        )
    )


def deny(message: str, code: int = 422, reason: str = "Invalid", warnings: Sequence[str] = ()) -> ReviewReply:
    """Return an answer that denies, with *message* for the user and *code* as HTTP status."""
    status = _Status(message=message[:_MAX_MESSAGE], reason=reason, code=code)
    return _reply(_Verdict(allowed=False, warnings=_shown(warnings), status=status))


_HEAD: Final = f'{{"apiVersion":"{API_VERSION}","kind":"{KIND}","response":{{"uid":'.encode()


def _reply(verdict: _Verdict) -> ReviewReply:
    # The uid goes first, so the object's opening brace is removed.
    return ReviewReply(b"," + _encoder.encode(verdict)[1:] + b"}")


def _shown(warnings: Sequence[str]) -> tuple[str, ...]:
    if not warnings:
        return ()
    shown = [_cut("".join([c if c.isprintable() else " " for c in one])) for one in warnings[:_MAX_WARNINGS]]
    return tuple(shown)


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_WARNING else text[: _MAX_WARNING - 1] + "…"
