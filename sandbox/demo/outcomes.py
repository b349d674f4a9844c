"""Compares a pod's state with its expected outcome, in sentences; pure.

A placed pod must also meet an invariant: its containers see exactly the cards that its annotations promise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from sandbox.demo.assigned import cards_of, unseen
from sandbox.demo.examples import Expectation, Outcome
from sandbox.demo.user import Told
from sandbox.players import vgpu_protocol

Json = dict[str, Any]


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
        return {} if self.pod is None else vgpu_protocol.annotations_of(self.pod)

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
    if expected.nodes and not any(fnmatchcase(seen.node, pattern) for pattern in expected.nodes):
        yield f"placed on {seen.node}, not on {' or '.join(expected.nodes)}"
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
    if expected.card_count is not None and len(seen.cards) != expected.card_count:
        yield f"it holds {len(seen.cards)} cards ({', '.join(seen.cards)}), not {expected.card_count}"
    wanted = expected.card_ids
    if wanted and not (
        len(wanted) == len(seen.cards) and all(fnmatchcase(card, p) for card, p in zip(seen.cards, wanted, strict=True))
    ):
        yield f"it holds the cards {', '.join(seen.cards)}, not {', '.join(wanted)}"
    other = expected.same_cards_as
    if other and cards_by_pod.get(other) != (seen.node, seen.cards):
        yield f"it holds {seen.cards} on {seen.node}, not the cards of {other}: {cards_by_pod.get(other)}"


def _kept_clean(expected: Expectation, seen: Sighting) -> Iterator[str]:
    forged = vgpu_protocol.annotations_of(seen.manifest)
    for key in expected.stripped:
        if key not in forged:
            yield f"the manifest forges no {key}, so that this cannot be checked"
        elif seen.annotations.get(key) == forged[key]:
            yield f"the forged annotation {key} is still there: {forged[key]}"
    for key, pattern in expected.annotations.items():
        if not fnmatchcase(seen.annotations.get(key, ""), pattern):
            yield f"annotation {key} is {seen.annotations.get(key)!r}, not {pattern!r}"
