"""How the Volcano share plugin finds its pod and cards, as pure functions.

Source: volcano-sh/devices, according to the protocol reference (nvidia 1.9, 2.2, 2.3, 5.3, 10.8).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sandbox.api.quantities import QuantityError, value_of

MEMORY: Final = "volcano.sh/gpu-memory"
NUMBER: Final = "volcano.sh/gpu-number"
INDEX: Final = "volcano.sh/gpu-index"
PREDICATE_TIME: Final = "volcano.sh/predicate-time"
ASSIGNED: Final = "volcano.sh/gpu-assigned"
UNHEALTHY: Final = "volcano.sh/gpu-unhealthy-ids"
LOCK: Final = "gpu"

_MISSING_TIME: Final = 2**64 - 1
_UNSIGNED: Final = re.compile(r"[0-9]{1,20}", re.ASCII)
_INDEX: Final = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)


class IndexAnnotationError(Exception):
    """The pod's ``gpu-index`` is missing or unreadable, or names a card that the node lacks."""


def amount(container: Mapping[str, Any]) -> int:
    """Return the request that the plugin assumes for the container: its gpu-memory if set, else its gpu-number."""
    limits = container.get("resources", {}).get("limits") or {}
    return _whole(limits.get(MEMORY, "0")) or _whole(limits.get(NUMBER, "0"))


def candidate(pods: Sequence[Mapping[str, Any]], asked: int) -> Mapping[str, Any] | None:
    """Return the pod that the plugin serves: the oldest by predicate-time with a container of exactly this amount.

    Init containers are ignored. Equal times keep the order of *pods* (the real order is arbitrary).

    Args:
        pods: the node's pending pods as JSON.
        asked: the number of device ids in kubelet's call.
    """
    open_pods = sorted((pod for pod in pods if _is_open(pod)), key=_predicate_time)
    return next((pod for pod in open_pods if any(amount(c) == asked for c in _containers(pod))), None)


def indices(pod: Mapping[str, Any], card_count: int) -> tuple[int, ...]:
    """Return the cards of ``gpu-index``.

    Raises:
        IndexAnnotationError: missing, unreadable, or a card that is not on the node.
    """
    text = _annotations(pod).get(INDEX)
    if text is None:
        raise IndexAnnotationError(f"pod has no annotation {INDEX}")
    pieces = text.split(",")
    if not all(_INDEX.fullmatch(piece) for piece in pieces):
        raise IndexAnnotationError(f"failed to parse annotation {INDEX}: {text!r}")
    found = tuple(int(piece) for piece in pieces)
    for index in found:
        if not 0 <= index < card_count:
            raise IndexAnnotationError(f"failed to find the dev for pod: no card {index}")
    return found


def _is_open(pod: Mapping[str, Any]) -> bool:
    if pod["metadata"].get("deletionTimestamp") or pod.get("status", {}).get("reason") == "UnexpectedAdmissionError":
        return False
    if _annotations(pod).get(ASSIGNED, "false") != "false":
        return False
    return any(amount(container) > 0 for container in _containers(pod))


def _predicate_time(pod: Mapping[str, Any]) -> int:
    text = _annotations(pod).get(PREDICATE_TIME, "")
    return min(_MISSING_TIME, int(text)) if _UNSIGNED.fullmatch(text) else _MISSING_TIME


def _containers(pod: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    containers: Sequence[Mapping[str, Any]] = pod["spec"]["containers"]
    return containers


def _annotations(pod: Mapping[str, Any]) -> Mapping[str, str]:
    found: Mapping[str, str] = pod["metadata"].get("annotations") or {}
    return found


def _whole(text: object) -> int:
    try:
        return int(value_of(text))
    except QuantityError:
        return 0
