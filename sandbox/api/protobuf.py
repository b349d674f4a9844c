"""Decodes the objects that kubectl's create commands and questions send as protobuf, whatever the server prefers.

Answers are JSON, which kubectl accepts. The refusal of other kinds says how to send them as YAML. Source: the
generated.proto files of k8s.io/api, v0.36.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any, Final

Json = dict[str, Any]
# The fields that kubectl writes, by number. Each is a name, for a text, or with ":int", ":bool", ":map" (of texts),
# ":bytes" (a map in base64) or ":list" (of texts); or a pair of a name and the fields of a message, more with ":list".
# Numbers are kept if they are 0: the value of a class has no omitempty, and the others are sent only if they are given.
Message = Mapping[int, Any]

_MAGIC: Final = b"k8s\x00"
_META: Final[Message] = {1: "name", 3: "namespace", 11: "labels:map", 12: "annotations:map"}
_NAMED: Final[Message] = {1: ("metadata", _META)}
_ATTRIBUTES: Final[Message] = dict(
    enumerate(("namespace", "verb", "group", "version", "resource", "subresource", "name"), start=1)
)
_ACCESS: Final[Message] = {
    1: ("resourceAttributes", _ATTRIBUTES),
    2: ("nonResourceAttributes", {1: "path", 2: "verb"}),
}
_DELETE: Final[Message] = {
    1: "gracePeriodSeconds:int",
    2: ("preconditions", {1: "uid", 2: "resourceVersion"}),
    4: "propagationPolicy",
    5: "dryRun:list",
}
_RULE: Final[Message] = dict(
    enumerate(("verbs:list", "apiGroups:list", "resources:list", "resourceNames:list", "nonResourceURLs:list"), start=1)
)
_ROLE: Final[Message] = {**_NAMED, 2: ("rules:list", _RULE)}
_SUBJECT: Final[Message] = {1: "kind", 2: "apiGroup", 3: "name", 4: "namespace"}
_BINDING: Final[Message] = {
    **_NAMED,
    2: ("subjects:list", _SUBJECT),
    3: ("roleRef", {1: "apiGroup", 2: "kind", 3: "name"}),
}
_KINDS: Final[Mapping[str, Message]] = {
    "Namespace": _NAMED,
    "ServiceAccount": _NAMED,
    "Role": _ROLE,
    "ClusterRole": _ROLE,
    "RoleBinding": _BINDING,
    "ClusterRoleBinding": _BINDING,
    "PriorityClass": {**_NAMED, 2: "value:int", 3: "globalDefault:bool", 4: "description", 5: "preemptionPolicy"},
    "Secret": {**_NAMED, 2: "data:bytes", 3: "type"},
    "SelfSubjectReview": _NAMED,
    "ConfigMap": {**_NAMED, 2: "data:map", 3: "binaryData:bytes"},
    "SelfSubjectAccessReview": {**_NAMED, 2: ("spec", _ACCESS)},
    "TokenRequest": {**_NAMED, 2: ("spec", {1: "audiences:list", 4: "expirationSeconds:int"})},
    "Eviction": {**_NAMED, 2: ("deleteOptions", _DELETE)},
    "DeleteOptions": _DELETE,
}
_TYPE: Final[Message] = {1: ("typeMeta", {1: "apiVersion", 2: "kind"})}


class ProtobufError(ValueError):
    """The bytes are not a known object."""


def decode(raw: bytes) -> Json:
    """Decode the object in *raw*.

    Raises:
        ProtobufError: *raw* is truncated, or of an unknown kind.
    """
    if not raw.startswith(_MAGIC):
        raise ProtobufError("it does not begin as an object of Kubernetes does")
    envelope = raw[len(_MAGIC) :]
    try:
        named = _read(_TYPE, envelope).get("typeMeta", {})
        message = _KINDS.get(named.get("kind", ""))
        if message is None:
            raise ProtobufError(
                f"objects of kind {named.get('kind', '')!r} are not read from it; "
                "write them as YAML and apply that: add --dry-run=client -o yaml | kubectl apply -f -"
            )
        body = next((value for number, value in _fields(envelope) if number == 2), b"")
        return {**named, **_read(message, body)}
    except (IndexError, UnicodeDecodeError) as e:
        raise ProtobufError("the message is damaged") from e


def _read(message: Message, raw: int | bytes) -> Json:
    found: Json = {}
    for number, value in _fields(_bytes(raw)):
        field = message.get(number, ":unknown")
        if isinstance(field, tuple):
            (name, _, several), inner = field[0].partition(":"), _read(field[1], value)
            found[name] = [*found.get(name, ()), inner] if several else inner
            continue
        name, _, kind = field.partition(":")
        match kind:
            case "unknown":
                continue
            case "int":
                found[name] = _int(value)
            case "bool":
                found[name] = bool(_int(value))
            case "map" | "bytes":
                entry = _read({1: "key", 2: "value" if kind == "map" else "value:base64"}, value)
                found.setdefault(name, {})[entry.get("key", "")] = entry.get("value", "")
            case "base64":
                found[name] = base64.b64encode(_bytes(value)).decode()
            case "list":
                found.setdefault(name, []).append(_text(value))
            case _:
                found[name] = _text(value)
    # Protobuf expresses "absent" by empty texts and by false; the API server leaves both out of what it stores.
    return {name: value for name, value in found.items() if value != "" and value is not False}


def _int(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise ProtobufError("a field is of another type than expected")
    return value if value < 2**63 else value - 2**64


def _text(value: int | bytes) -> str:
    return _bytes(value).decode("utf-8")


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
