"""A scheduler extender's question and answer, as kube-scheduler and Cluster Autoscaler's simulation write them.

Source: kubernetes, k8s.io/kube-scheduler/extender/v1: ExtenderArgs, ExtenderFilterResult. Go writes these keys with a
capital letter and reads them with any; so does this module.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from core.errors import InvalidRequestError
from core.model import Node, Pod
from core.wire.nodes import decode_node
from core.wire.pods import decode_pod

# No cluster has more nodes, and no autoscaler asks about so many.
NODES_MAX: Final = 20_000
_BODY: Final = "ExtenderArgs"


class _List(msgspec.Struct, frozen=True):
    items: list[msgspec.Raw] | None = None


class Candidate(NamedTuple):
    """One node of the question: its object and the object's JSON, or only its name."""

    name: str
    node: Node | None = None
    text: bytes = b""


class ExtenderArgs(NamedTuple):
    """Whether *pod* fits on each of *candidates*; has_objects: they came as objects, and go back as such."""

    pod: Pod
    candidates: tuple[Candidate, ...]
    has_objects: bool


_keys: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_list: Final = msgspec.json.Decoder(_List | None)
_names: Final = msgspec.json.Decoder(list[str] | None)


def decode_extender_args(text: bytes | bytearray) -> ExtenderArgs:
    """Decode ExtenderArgs.

    Raises:
        InvalidRequestError: they are unreadable; names the place.
    """
    keys = {key.lower(): raw for key, raw in _decoded(_keys, text, _BODY, "write a JSON object").items()}
    if "pod" not in keys:
        raise InvalidRequestError(f"{_BODY}.Pod", "", "write the pod that is to be placed")
    pod = decode_pod(bytes(keys["pod"]))
    listed = _decoded(_list, keys.get("nodes", b"null"), f"{_BODY}.Nodes", "write a list of nodes")
    names = _decoded(_names, keys.get("nodenames", b"null"), f"{_BODY}.NodeNames", "write a list of names")
    if listed is not None:
        found = [bytes(raw) for raw in listed.items or ()]
        _bound(len(found))
        return ExtenderArgs(pod, tuple(_candidate(one) for one in found), has_objects=True)
    if names is None:
        raise InvalidRequestError(f"{_BODY}.Nodes", "", "write Nodes or NodeNames")
    _bound(len(names))
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


def _candidate(text: bytes) -> Candidate:
    node = decode_node(text)
    return Candidate(str(node.name), node, text)


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
