"""Compares a pod's state with its expected outcome, in sentences; pure.

A placed pod must also meet an invariant: its containers see exactly the cards that its annotations promise, in each
protocol.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

from sandbox.demo.examples import Expectation, Outcome
from sandbox.players import (
    ascend_hami_protocol,
    enflame,
    gpushare,
    hami_instances,
    mindcluster_protocol,
    nvidia,
    vendors,
    vgpu_protocol,
)
from sandbox.players.mig import visible_ids
from sandbox.players.objects import annotations_of, limits_of

Json = dict[str, Any]


_VGPU: Final = "volcano.sh/vgpu-ids-new"
_HAMI: Final = re.compile(r"hami\.io/(?P<word>.+?)(?:-devices)?-allocated")
SHARES: Final = "vgpu"
_GPUS_SEEN: Final = "NVIDIA_VISIBLE_DEVICES"
NOT_REPORTED: Final = "the device plugin has not reported its NPUs yet"
_NPUS_SEEN: Final = "ASCEND_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One event of a pod."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """The state of one pod at one moment.

    denial: the API server's refusal, "" if the pod was admitted. warnings: its warnings on admission. pod: the object,
    None if it is gone. manifest: what was sent. events: its events, if they are expected. env_by_container: what the
    device plugins gave.
    """

    denial: str = ""
    warnings: tuple[str, ...] = ()
    pod: Json | None = None
    manifest: Json = field(default_factory=dict)
    events: tuple[Told, ...] = ()
    env_by_container: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def node(self) -> str:
        """The node that the pod is bound to, "" if none."""
        return "" if self.pod is None else str(self.pod["spec"].get("nodeName", ""))

    @property
    def phase(self) -> str:
        """Its phase, "" if it is gone."""
        return "" if self.pod is None else str(self.pod.get("status", {}).get("phase", ""))

    @property
    def annotations(self) -> Mapping[str, str]:
        """Its annotations in the API server."""
        return {} if self.pod is None else annotations_of(self.pod)

    @property
    def waiting_reason(self) -> str:
        """The message of its PodScheduled condition while that is false."""
        conditions = [] if self.pod is None else self.pod.get("status", {}).get("conditions") or []
        return next(
            (str(c.get("message", "")) for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False"),
            "",
        )

    @property
    def cards(self) -> tuple[str, ...]:
        """The cards that its annotations promise, see `cards_of`."""
        return cards_of(self.annotations)


def complaints(
    expected: Expectation, seen: Sighting, cards_by_pod: Mapping[str, tuple[str, tuple[str, ...]]]
) -> tuple[str, ...]:
    """Return what is not (or not yet) as expected, one sentence each; empty = as expected.

    Args:
        expected: the expected outcome.
        seen: the pod now.
        cards_by_pod: node and cards of the other pods, for ``same_cards_as``.
    """
    return tuple(_all(expected, seen, cards_by_pod))


def _all(
    expected: Expectation, seen: Sighting, cards_by_pod: Mapping[str, tuple[str, tuple[str, ...]]]
) -> Iterator[str]:
    yield from _warned(expected, seen)
    match expected.outcome:
        case Outcome.DENIED:
            yield from _denied(expected, seen)
            return
        case _ if seen.denial:
            yield f"denied: {seen.denial}"
            return
        case Outcome.EVICTED:
            yield from _evicted(seen)
        case _ if seen.pod is None:
            yield "the pod does not exist"
            return
        case Outcome.PLACED:
            yield from _placed(expected, seen)
            yield from _on_cards(expected, seen, cards_by_pod)
        case Outcome.WAITING:
            yield from _waiting(expected, seen)
        case Outcome.STRIPPED:
            pass
    yield from _told(expected, seen)
    yield from _kept_clean(expected, seen)


def _warned(expected: Expectation, seen: Sighting) -> Iterator[str]:
    said = "\n".join(seen.warnings)
    for text in expected.warning:
        if text not in said:
            yield f"no warning says {text!r}; said was: {said or 'nothing'}"


def _denied(expected: Expectation, seen: Sighting) -> Iterator[str]:
    if not seen.denial:
        yield "it was admitted and should have been denied"
    for text in expected.reason if seen.denial else ():
        if text not in seen.denial:
            yield f"the denial does not say {text!r}: {seen.denial}"


def _waiting(expected: Expectation, seen: Sighting) -> Iterator[str]:
    if seen.node:
        yield f"it was placed on {seen.node} and should wait"
        return
    if not seen.waiting_reason:
        yield "nothing says why it waits"
    for text in expected.reason if seen.waiting_reason else ():
        if text not in seen.waiting_reason:
            yield f"the reason does not say {text!r}: {seen.waiting_reason}"


def _evicted(seen: Sighting) -> Iterator[str]:
    if seen.pod is not None:
        yield f"it is still there{' and leaving' if seen.pod['metadata'].get('deletionTimestamp') else ''}"


def _told(expected: Expectation, seen: Sighting) -> Iterator[str]:
    for reason, pattern in expected.events.items():
        said = [one.message for one in seen.events if one.reason == reason]
        if not any(fnmatchcase(message, pattern) for message in said):
            yield f"no event {reason} says {pattern!r}; said was: {'; '.join(said) or 'nothing'}"


def _placed(expected: Expectation, seen: Sighting) -> Iterator[str]:
    if not seen.node:
        why = seen.waiting_reason
        yield f"not placed: {why}" if why else "not placed yet"
        return
    if expected.node and not any(fnmatchcase(seen.node, pattern) for pattern in expected.node):
        yield f"placed on {seen.node}, not on {' or '.join(expected.node)}"
    if seen.phase != "Running":
        status = (seen.pod or {}).get("status", {})
        why = f"{status.get('reason', '')} {status.get('message', '')}".strip()
        yield f"{seen.phase or 'no phase'}, not Running{': ' if why else ''}{why}"
        return
    if wrong := unseen(seen.pod or {}, seen.env_by_container.values()):
        yield wrong
    env = {key: value for given in seen.env_by_container.values() for key, value in given.items()}
    for key, pattern in expected.env.items():
        if not fnmatchcase(env.get(key, ""), pattern):
            yield f"its container received {key}={env.get(key)!r}, not {pattern!r}"


def _on_cards(
    expected: Expectation, seen: Sighting, cards_by_pod: Mapping[str, tuple[str, tuple[str, ...]]]
) -> Iterator[str]:
    if not seen.node:
        return
    wanted = expected.cards
    if isinstance(wanted, int):
        if len(seen.cards) != wanted:
            yield f"it holds {len(seen.cards)} cards ({', '.join(seen.cards)}), not {wanted}"
    elif wanted and not (
        len(wanted) == len(seen.cards) and all(fnmatchcase(card, p) for card, p in zip(seen.cards, wanted, strict=True))
    ):
        yield f"it holds the cards {', '.join(seen.cards)}, not {', '.join(wanted)}"
    other = expected.same_cards_as
    if other and cards_by_pod.get(other) != (seen.node, seen.cards):
        yield f"it holds {seen.cards} on {seen.node}, not the cards of {other}: {cards_by_pod.get(other)}"


def _kept_clean(expected: Expectation, seen: Sighting) -> Iterator[str]:
    forged = annotations_of(seen.manifest)
    for key in expected.stripped:
        if key not in forged:
            yield f"the manifest forges no {key}, so that this cannot be checked"
        elif seen.annotations.get(key) == forged[key]:
            yield f"the forged annotation {key} is still there: {forged[key]}"
    for key, pattern in expected.annotations.items():
        if not fnmatchcase(seen.annotations.get(key, ""), pattern):
            yield f"annotation {key} is {seen.annotations.get(key)!r}, not {pattern!r}"


def cards_of(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """Return the cards in a bound pod's assignment: ids, or numbers if the protocol has only those.

    A slice is shown as its card, with its layout or template if the protocol appends it to the card's name.
    """
    if _VGPU in annotations:
        return tuple(device.id for device in vgpu_devices(annotations))
    if devices := tuple(device.id for _, device in hami_devices(annotations)):
        return devices
    text = annotations.get(mindcluster_protocol.ASSIGNED) or annotations.get(gpushare.INDEX, "")
    return tuple(text.split(",")) if text else ()


def vgpu_devices(annotations: Mapping[str, str]) -> tuple[vgpu_protocol.VgpuDevice, ...]:
    """Return the shares of a vGPU assignment; none if the plugin could not read it."""
    try:
        segments = vgpu_protocol.decode(annotations.get(_VGPU, ""))
    except vgpu_protocol.PluginPanicError:
        return ()
    return tuple(device for segment in segments for device in segment)


def hami_devices(annotations: Mapping[str, str]) -> Iterator[tuple[str, ascend_hami_protocol.HamiDevice]]:
    """Yield the devices of an assignment in HAMi's protocol, each with the word of its kind, `SHARES` for NVIDIA's."""
    for key, text in annotations.items():
        if (match := _HAMI.fullmatch(key)) is not None:
            with contextlib.suppress(ascend_hami_protocol.HamiRequestError):
                yield from ((match["word"], one) for segment in ascend_hami_protocol.decode(text) for one in segment)


def hami_shares(annotations: Mapping[str, str]) -> tuple[ascend_hami_protocol.HamiDevice, ...]:
    """Return the shares of NVIDIA cards in an assignment of HAMi."""
    return tuple(device for word, device in hami_devices(annotations) if word == SHARES)


def unseen(pod: Json, envs: Iterable[Mapping[str, str]]) -> str:
    """Return what is wrong with the cards that the containers of a running *pod* see, "" if nothing."""
    envs = tuple(envs)
    env = {key: value for given in envs for key, value in given.items()}
    annotations = annotations_of(pod)
    if shares := hami_shares(annotations):
        cards = sorted(card for given in envs for card in given.get(_GPUS_SEEN, "").split(",") if card)
        given_ids = hami_instances.visible_ids(annotations) or [one.id for one in shares]
        return _compared({_GPUS_SEEN: ",".join(cards)}, _GPUS_SEEN, ",".join(sorted(given_ids)))
    if mindcluster_protocol.ASSIGNED in annotations:
        return _unseen_npus(annotations, env)
    chips = tuple(hami_devices(annotations))
    if chips and chips[0][0] in vendors.WHOLE:
        found = [one for given in envs for one in given.get(vendors.SEEN, "").split(",") if one]
        told = f"its containers see {len(set(found))} cards, promised were {len(chips)} whole ones"
        return "" if len(set(found)) == len(chips) else told
    if chips and chips[0][0] == "enflame-vgpu":
        # One card for all containers of the pod.
        return _compared(env, enflame.SEEN, annotations.get(enflame.MINOR, ""))
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
    return sum(int(limits_of(one).get(nvidia.RESOURCE, 0)) for one in containers)
