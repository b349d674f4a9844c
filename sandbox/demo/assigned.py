"""What a bound pod's annotations promise in each protocol, and whether its containers see exactly that; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from sandbox.players import (
    ascend_hami_protocol,
    gpushare_protocol,
    hami_instances,
    mindcluster_protocol,
    nvidia,
    vendors,
    vgpu_protocol,
)
from sandbox.players.mig import visible_ids

Json = dict[str, Any]

_VGPU: Final = "volcano.sh/vgpu-ids-new"
_HAMI: Final = re.compile(r"hami\.io/(?P<word>.+)-devices-allocated")
_SHARES: Final = "hami.io/vgpu-devices-allocated"
_GPUS_SEEN: Final = "NVIDIA_VISIBLE_DEVICES"
NOT_REPORTED: Final = "the device plugin has not reported its NPUs yet"
_NPUS_SEEN: Final = "ASCEND_VISIBLE_DEVICES"


def cards_of(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """Return the cards in a bound pod's assignment: ids, or numbers if the protocol has only those.

    A slice is shown as its card, with its layout or template if the protocol appends it to the card's name.
    """
    if _VGPU in annotations:
        return tuple(device.id for device in vgpu_devices(annotations))
    if devices := (*hami_shares(annotations), *(device for _, device in hami_devices(annotations))):
        return tuple(device.id for device in devices)
    text = annotations.get(mindcluster_protocol.ASSIGNED) or annotations.get(gpushare_protocol.INDEX, "")
    return tuple(text.split(",")) if text else ()


def vgpu_devices(annotations: Mapping[str, str]) -> tuple[vgpu_protocol.Assigned, ...]:
    """Return the shares of a vGPU assignment; none if the plugin could not read it."""
    try:
        segments = vgpu_protocol.decode(annotations.get(_VGPU, ""))
    except vgpu_protocol.PluginPanicError:
        return ()
    return tuple(device for segment in segments for device in segment)


def hami_devices(annotations: Mapping[str, str]) -> Iterator[tuple[str, ascend_hami_protocol.Assigned]]:
    """Yield the chips of an assignment in the HAMi protocol for Ascend, each with its type's common word."""
    for key, text in annotations.items():
        match = _HAMI.fullmatch(key)
        if match is not None and key != _SHARES:
            try:
                segments = ascend_hami_protocol.decode(text)
            except ascend_hami_protocol.RequestError:
                continue
            yield from ((match["word"], device) for segment in segments for device in segment)


def hami_shares(annotations: Mapping[str, str]) -> tuple[ascend_hami_protocol.Assigned, ...]:
    """Return the shares of NVIDIA cards in an assignment of HAMi."""
    try:
        segments = ascend_hami_protocol.decode(annotations.get(_SHARES, ""))
    except ascend_hami_protocol.RequestError:
        return ()
    return tuple(device for segment in segments for device in segment)


def unseen(pod: Json, envs: Iterable[Mapping[str, str]]) -> str:
    """Return what is wrong with the cards that the containers of a running *pod* see, "" if nothing."""
    envs = tuple(envs)
    env = {key: value for given in envs for key, value in given.items()}
    annotations = vgpu_protocol.annotations_of(pod)
    if shares := hami_shares(annotations):
        cards = sorted(card for given in envs for card in given.get(_GPUS_SEEN, "").split(",") if card)
        given_ids = hami_instances.visible_ids(annotations) or [one.id for one in shares]
        return _compared({_GPUS_SEEN: ",".join(cards)}, _GPUS_SEEN, ",".join(sorted(given_ids)))
    if mindcluster_protocol.ASSIGNED in annotations:
        return _unseen_npus(annotations, env)
    chips = tuple(hami_devices(annotations))
    if chips and not chips[0][0].startswith("Ascend"):
        return _compared(env, vendors.SEEN, ",".join(device.id for _, device in chips))
    if chips:
        # The ids of played chips end with the number by which containers see them.
        return _compared(env, _NPUS_SEEN, ",".join(device.id.rpartition("-")[2] for _, device in chips))
    if _VGPU in annotations:
        # Every container sees only its own; a card that two of them share is promised once.
        own = (card for given in envs for card in given.get(_GPUS_SEEN, "").split(",") if card)
        env[_GPUS_SEEN] = ",".join(dict.fromkeys(own))
    promised = ",".join(visible_ids(cards_of(annotations)))
    whole = _whole_gpus(pod)
    if not whole or promised:
        return _compared(env, _GPUS_SEEN, promised)
    # Only the device plugin knows which ones.
    seen = set(env.get(_GPUS_SEEN, "").split(",")) - {""}
    if len(seen) == whole:
        return ""
    return f"its container sees the cards {env.get(_GPUS_SEEN)!r}, promised were {whole} whole ones"


def _unseen_npus(annotations: Mapping[str, str], env: Mapping[str, str]) -> str:
    """MindCluster's plugin reports its allocation afterwards; it may swap pods with equal requests."""
    text, seen = annotations[mindcluster_protocol.ASSIGNED], env.get(_NPUS_SEEN, "")
    if mindcluster_protocol.REAL not in annotations:
        return NOT_REPORTED
    real = mindcluster_protocol.decode_real(annotations[mindcluster_protocol.REAL])
    assigned = mindcluster_protocol.decode(text)
    if (
        assigned is not None
        and len(assigned.chips) == len(real)
        and {one.template for one in real} == {assigned.template}
        and {str(one.id) for one in real} == set(seen.split(","))
    ):
        return ""
    return (
        f"its container sees the NPUs {seen!r}, reported were {annotations[mindcluster_protocol.REAL]!r} for {text!r}"
    )


def _compared(env: Mapping[str, str], variable: str, promised: str) -> str:
    if env.get(variable, "") == promised:
        return ""
    return f"its container sees the cards {env.get(variable)!r}, promised were {promised!r}"


def _whole_gpus(pod: Json) -> int:
    containers = pod.get("spec", {}).get("containers", [])
    limits = [container.get("resources", {}).get("limits") or {} for container in containers]
    return sum(int(limit.get(nvidia.RESOURCE, 0)) for limit in limits)
