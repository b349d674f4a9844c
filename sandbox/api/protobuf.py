"""Decodes the objects that kubectl's create commands send as protobuf, whatever the server prefers.

Answers are JSON, which kubectl accepts. A table describes a message: field number -> (name, type). The tables cover the
fields that kubectl writes. Source: the generated.proto files of k8s.io/api, v0.36.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

Json = dict[str, Any]

_MAGIC: Final = b"k8s\x00"


class ProtobufError(ValueError):
    """The bytes are not a known object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """The fields of one message."""

    fields: Mapping[int, tuple[str, Type]]


# text, raw, bytes (base64 in JSON), int, bool, time, map and bytes-map (keys are text), or a message; in a tuple:
# repeated.
Type = str | Message | tuple[str] | tuple[Message]


def _message(**fields: tuple[int, Type]) -> Message:
    return Message(fields={number: (name, what) for name, (number, what) in fields.items()})


_OWNER: Final = _message(
    kind=(1, "text"), name=(3, "text"), uid=(4, "text"), apiVersion=(5, "text"), controller=(6, "bool")
)
_META: Final = _message(
    name=(1, "text"),
    generateName=(2, "text"),
    namespace=(3, "text"),
    uid=(5, "text"),
    resourceVersion=(6, "text"),
    creationTimestamp=(8, "time"),
    labels=(11, "map"),
    annotations=(12, "map"),
    ownerReferences=(13, (_OWNER,)),
    finalizers=(14, ("text",)),
)
_REFERENCE: Final = _message(name=(1, "text"))
_RULE: Final = _message(
    verbs=(1, ("text",)),
    apiGroups=(2, ("text",)),
    resources=(3, ("text",)),
    resourceNames=(4, ("text",)),
    nonResourceURLs=(5, ("text",)),
)
_SUBJECT: Final = _message(kind=(1, "text"), apiGroup=(2, "text"), name=(3, "text"), namespace=(4, "text"))
_ROLE_REF: Final = _message(apiGroup=(1, "text"), kind=(2, "text"), name=(3, "text"))
_ROLE: Final = _message(metadata=(1, _META), rules=(2, (_RULE,)))
_BINDING: Final = _message(metadata=(1, _META), subjects=(2, (_SUBJECT,)), roleRef=(3, _ROLE_REF))
_ACCESS: Final = _message(
    resourceAttributes=(
        1,
        _message(
            namespace=(1, "text"),
            verb=(2, "text"),
            group=(3, "text"),
            version=(4, "text"),
            resource=(5, "text"),
            subresource=(6, "text"),
            name=(7, "text"),
        ),
    ),
    nonResourceAttributes=(2, _message(path=(1, "text"), verb=(2, "text"))),
)
_TOKEN: Final = _message(audiences=(1, ("text",)), expirationSeconds=(4, "int"))
_DELETE: Final = _message(
    gracePeriodSeconds=(1, "int"),
    preconditions=(2, _message(uid=(1, "text"), resourceVersion=(2, "text"))),
    orphanDependents=(3, "bool"),
    propagationPolicy=(4, "text"),
    dryRun=(5, ("text",)),
)
_KINDS: Final[Mapping[str, Message]] = {
    "Namespace": _message(metadata=(1, _META)),
    "ConfigMap": _message(metadata=(1, _META), data=(2, "map"), binaryData=(3, "bytes-map"), immutable=(4, "bool")),
    "Secret": _message(
        metadata=(1, _META), data=(2, "bytes-map"), type=(3, "text"), stringData=(4, "map"), immutable=(5, "bool")
    ),
    "ServiceAccount": _message(metadata=(1, _META), imagePullSecrets=(3, (_REFERENCE,))),
    "PriorityClass": _message(
        metadata=(1, _META),
        value=(2, "int"),
        globalDefault=(3, "bool"),
        description=(4, "text"),
        preemptionPolicy=(5, "text"),
    ),
    "Role": _ROLE,
    "ClusterRole": _ROLE,
    "RoleBinding": _BINDING,
    "ClusterRoleBinding": _BINDING,
    "SelfSubjectAccessReview": _message(metadata=(1, _META), spec=(2, _ACCESS)),
    "SelfSubjectReview": _message(metadata=(1, _META)),
    "TokenRequest": _message(metadata=(1, _META), spec=(2, _TOKEN)),
    "Eviction": _message(metadata=(1, _META), deleteOptions=(2, _DELETE)),
    "DeleteOptions": _DELETE,
}
_ENVELOPE: Final = _message(typeMeta=(1, _message(apiVersion=(1, "text"), kind=(2, "text"))), raw=(2, "raw"))
_MAP_ENTRY: Final = _message(key=(1, "text"), value=(2, "raw"))


def decode(raw: bytes) -> Json:
    """Decode the object in *raw*.

    Raises:
        ProtobufError: *raw* is truncated, or of an unknown kind.
    """
    if not raw.startswith(_MAGIC):
        raise ProtobufError("it does not begin as an object of Kubernetes does")
    try:
        envelope = _read(_ENVELOPE, raw[len(_MAGIC) :])
        named = envelope.get("typeMeta", {})
        message = _KINDS.get(named.get("kind", ""))
        if message is None:
            raise ProtobufError(
                f"objects of kind {named.get('kind', '')!r} are not read from it; "
                "write them as YAML and apply that: add --dry-run=client -o yaml | kubectl apply -f -"
            )
        return {**named, **_read(message, envelope.get("raw", b""))}
    except (IndexError, UnicodeDecodeError) as e:
        raise ProtobufError("the message is damaged") from e


def _read(message: Message, raw: bytes) -> Json:
    found: Json = {}
    for number, value in _fields(raw):
        if number not in message.fields:
            continue
        name, what = message.fields[number]
        if isinstance(what, tuple):
            found.setdefault(name, []).append(_value(what[0], value))
        elif what in ("map", "bytes-map"):
            entry = _read(_MAP_ENTRY, _bytes(value))
            inner = _value("text" if what == "map" else "bytes", entry.get("value", b""))
            found.setdefault(name, {})[entry.get("key", "")] = inner
        else:
            found[name] = _value(what, value)
    # Protobuf expresses "absent" by empty texts and zero times.
    return {name: value for name, value in found.items() if value not in ("", None)}


def _value(what: str | Message, value: int | bytes) -> Any:
    if isinstance(what, Message):
        return _read(what, _bytes(value))
    match what:
        case "int":
            return value if isinstance(value, int) and value < 2**63 else int(value) - 2**64
        case "bool":
            return bool(value)
        case "raw":
            return _bytes(value)
        case "bytes":
            return base64.b64encode(_bytes(value)).decode()
        case "time":
            seconds = next((v for n, v in _fields(_bytes(value)) if n == 1), None)
            return None if not isinstance(seconds, int) or seconds >= 2**40 else _time(seconds)
        case _:
            return _bytes(value).decode("utf-8")


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise ProtobufError("a field is of another type than expected")
    return value


def _fields(raw: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(raw):
        tag, at = _varint(raw, at)
        match tag & 7:
            case 0:
                number, at = _varint(raw, at)
                yield tag >> 3, number
            case 2:
                size, at = _varint(raw, at)
                if at + size > len(raw):
                    raise ProtobufError("the message is cut short")
                yield tag >> 3, raw[at : at + size]
                at += size
            case 1:
                at += 8
            case 5:
                at += 4
            case other:
                raise ProtobufError(f"wire type {other} is unknown")


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ProtobufError("a number is too long")
