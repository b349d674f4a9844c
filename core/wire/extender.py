"""A scheduler extender's question and answer, as kube-scheduler and Cluster Autoscaler's simulation write them.

Source: kubernetes, k8s.io/kube-scheduler/extender/v1: ExtenderArgs, ExtenderFilterResult. Go writes these keys with a
capital letter, and did without; both are read.

Of nodes in the question only the names are read: most of them are nodes of the cluster, whose objects do not matter.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from core.errors import InvalidRequestError
from core.model import Pod
from core.wire.objects import Head
from core.wire.pods import decode_pod

# No cluster has more nodes, and no autoscaler asks about so many.
NODES_MAX: Final = 20_000
_BODY: Final = "ExtenderArgs"
_NONE: Final = msgspec.Raw()
_NULL: Final = msgspec.Raw(b"null")


class _Args(msgspec.Struct, frozen=True):
    """The keys, as Go writes them now and before."""

    Pod: msgspec.Raw = _NONE
    pod: msgspec.Raw = _NONE
    Nodes: msgspec.Raw = _NULL
    nodes: msgspec.Raw = _NULL
    NodeNames: msgspec.Raw = _NULL
    nodenames: msgspec.Raw = _NULL


class _Names(msgspec.Struct, frozen=True):
    items: list[Head] | None = None


class _Texts(msgspec.Struct, frozen=True):
    items: list[msgspec.Raw] | None = None


class Candidate(NamedTuple):
    """One node of the question: its name, and its object's JSON, which may be unreadable; "" if only it is named."""

    name: str
    text: bytes = b""


class ExtenderArgs(NamedTuple):
    """Whether *pod* fits on each of *candidates*; has_objects: they came as objects, and go back as such."""

    pod: Pod
    candidates: tuple[Candidate, ...]
    has_objects: bool


_args: Final = msgspec.json.Decoder(_Args)
_named: Final = msgspec.json.Decoder(_Names | None)
_texts: Final = msgspec.json.Decoder(_Texts)
_names: Final = msgspec.json.Decoder(list[str] | None)


def decode_extender_args(text: bytes | bytearray) -> ExtenderArgs:
    """Decode ExtenderArgs.

    Raises:
        InvalidRequestError: they are unreadable; names the place.
    """
    keys = _decoded(_args, text, _BODY, "write a JSON object")
    asked, nodes = bytes(keys.Pod or keys.pod), _given(keys.Nodes, keys.nodes)
    if not asked:
        raise InvalidRequestError(f"{_BODY}.Pod", "", "write the pod that is to be placed")
    pod, place = decode_pod(asked), f"{_BODY}.Nodes"
    listed = _decoded(_named, nodes, place, "write a list of nodes, each with metadata.name")
    if listed is not None:
        named = listed.items or []
        _bound(len(named))
        found = _decoded(_texts, nodes, place, "write a list of nodes").items or []
        candidates = (Candidate(one.metadata.name, bytes(raw)) for one, raw in zip(named, found, strict=True))
        return ExtenderArgs(pod, tuple(candidates), has_objects=True)
    names_text = _given(keys.NodeNames, keys.nodenames)
    _bound(bytes(names_text).count(b",") + 1)  # names have none
    names = _decoded(_names, names_text, f"{_BODY}.NodeNames", "write a list of names")
    if names is None:
        raise InvalidRequestError(place, "", "write Nodes or NodeNames")
    return ExtenderArgs(pod, tuple(Candidate(name) for name in names), has_objects=False)


def encode_filter_result(args: ExtenderArgs, refused: Mapping[str, str]) -> bytes:
    """Encode which candidates of *args* fit; *refused*: why the others do not, by name."""
    fitting = [one for one in args.candidates if one.name not in refused]
    if args.has_objects:
        nodes = {"apiVersion": "v1", "kind": "NodeList", "metadata": {}, "items": [_raw(one.text) for one in fitting]}
        return _encode(nodes=nodes, refused=refused)
    return _encode(names=[one.name for one in fitting], refused=refused)


def encode_filter_error(text: str) -> bytes:
    """Encode that the question cannot be answered."""
    return _encode(error=text)


def _encode(
    *,
    nodes: Mapping[str, Any] | None = None,
    names: Sequence[str] | None = None,
    refused: Mapping[str, str] | None = None,
    error: str = "",
) -> bytes:
    result = {
        "Nodes": nodes,
        "NodeNames": names,
        "FailedNodes": refused or {},
        "FailedAndUnresolvableNodes": {},
        "Error": error,
    }
    return msgspec.json.encode(result) + b"\n"


def _given(now: msgspec.Raw, before: msgspec.Raw) -> msgspec.Raw:
    return before if bytes(now) == b"null" else now


def _raw(text: bytes) -> msgspec.Raw:
    return msgspec.Raw(text)


def _bound(count: int) -> None:
    if count > NODES_MAX:
        raise InvalidRequestError(f"{_BODY}.Nodes", str(count), f"write at most {NODES_MAX} nodes")


def _decoded(decoder: Any, text: bytes | bytearray | msgspec.Raw, place: str, remedy: str) -> Any:
    try:
        return decoder.decode(text)
    except (ValueError, RecursionError) as e:
        raise InvalidRequestError(place, str(e), remedy) from e
