"""Plays examples against a cluster: applies them, runs their steps, and waits for their outcomes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sandbox.demo.examples import Example, Expectation, Outcome, Step
from sandbox.demo.outcomes import Sighting, complaints
from sandbox.demo.user import Answer, KubectlUser

Json = dict[str, Any]

_LOOK_EVERY_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleVerdict:
    """One expected outcome as a sentence, and its problems; none = as expected."""

    example: str
    claim: str
    problems: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class Play:
    """Remembers the API server's answer for every applied pod.

    Attributes:
        user: applies the manifests.
        env_of: returns what the containers of a pod (namespace/name) received from device plugins.
        tell: receives a line for people after each action.
        judged: receives every verdict.
    """

    user: KubectlUser
    env_of: Callable[[str], Mapping[str, Mapping[str, str]]]
    tell: Callable[[str], None] = lambda line: None
    judged: Callable[[ExampleVerdict], None] = lambda verdict: None
    _answers: dict[str, Answer] = field(default_factory=dict)
    _manifests: dict[str, Json] = field(default_factory=dict)
    _standing: dict[str, tuple[str, Expectation]] = field(default_factory=dict)

    async def run(self, example: Example, *, within_s: float) -> tuple[ExampleVerdict, ...]:
        """Apply *example*, wait for its outcomes, run its steps; return all verdicts.

        Args:
            example: the example.
            within_s: time limit of each round of outcomes.
        """
        later = {step.apply for step in example.steps}
        first = [manifest for manifest in example.manifests if manifest["metadata"]["name"] not in later]
        for manifest in first:
            await self._apply(manifest)
        verdicts = list(await self._await(example.name, example.expectations, within_s))
        if not example.expectations:
            await self._settle(tuple(m["metadata"]["name"] for m in first), within_s)
        for step in example.steps:
            verdicts += await self._step(example, step, within_s)
        return tuple(verdicts)

    async def final(self) -> tuple[ExampleVerdict, ...]:
        """Judge the latest expected outcome of every pod that was not deleted once more."""
        pods = {name: expected for name, (_, expected) in self._standing.items()}
        judged = await self._judge(tuple(pods.values()))
        return tuple(_verdict(self._standing[expected.pod][0], expected, problems) for expected, problems in judged)

    async def sightings(self) -> Mapping[str, Sighting]:
        """Return the current state of every applied pod."""
        return {name: await self._see(name) for name in self._answers}

    async def _apply(self, manifest: Json) -> None:
        name = manifest["metadata"]["name"]
        answer = await self.user.apply(manifest)
        self._answers[name] = answer
        self._manifests[name] = manifest
        for warning in answer.warnings:
            self.tell(f"Warning: {warning}")
        self.tell(f"{name}: applied" if answer.accepted else f"{name}: DENIED: {answer.message}")

    async def _step(self, example: Example, step: Step, within_s: float) -> tuple[ExampleVerdict, ...]:
        if step.apply:
            await self._apply(next(m for m in example.manifests if m["metadata"]["name"] == step.apply))
            return await self._await(example.name, step.expectations, within_s)
        pod = step.delete or step.annotate
        if step.delete:
            command = f"delete pod {pod}"
            self.tell(f"kubectl {command}")
            answer = await self.user.delete(pod)
            self._standing.pop(pod, None)
        else:
            changes = " ".join(f"{key}-" if value is None else f"{key}={value}" for key, value in step.changes.items())
            command = f"annotate pod {pod}"
            self.tell(f"kubectl {command} --overwrite {changes}")
            answer = await self.user.annotate(pod, step.changes)
        self.tell(f"{pod}: done" if answer.accepted else f"{pod}: DENIED: {answer.message}")
        claim = f"kubectl {command} is {'denied' if step.denied else 'taken'}"
        write = ExampleVerdict(example=example.name, claim=claim, problems=_write_problems(step, answer))
        self.judged(write)
        return (write, *await self._await(example.name, step.expectations, within_s))

    async def _await(
        self, example: str, expectations: tuple[Expectation, ...], within_s: float
    ) -> tuple[ExampleVerdict, ...]:
        for expected in expectations:
            self._standing[expected.pod] = (example, expected)
        until = time.monotonic() + within_s
        while True:
            judged = await self._judge(expectations)
            if all(not problems or self._decided(e) for e, problems in judged) or time.monotonic() >= until:
                break
            await asyncio.sleep(_LOOK_EVERY_S)
        verdicts = tuple(_verdict(example, expected, problems) for expected, problems in judged)
        for verdict in verdicts:
            self.judged(verdict)
        return verdicts

    def _decided(self, expected: Expectation) -> bool:
        """Return whether admission has decided the outcome, so that waiting cannot change it."""
        answer = self._answers.get(expected.pod)
        return expected.outcome is Outcome.DENIED or answer is None or not answer.accepted

    async def _judge(self, expectations: tuple[Expectation, ...]) -> list[tuple[Expectation, tuple[str, ...]]]:
        seen = {e.pod: await self._see(e.pod, with_events=bool(e.events)) for e in expectations}
        for other in {expected.same_cards_as for expected in expectations if expected.same_cards_as}:
            seen.setdefault(other, await self._see(other))
        places = {name: (sighting.node, sighting.cards) for name, sighting in seen.items()}
        return [(expected, complaints(expected, seen[expected.pod], places)) for expected in expectations]

    async def _settle(self, pods: tuple[str, ...], within_s: float) -> None:
        """Wait until each of *pods* runs, or has a reason why it does not."""
        until = time.monotonic() + within_s
        while time.monotonic() < until:
            seen = [await self._see(pod) for pod in pods]
            if all(s.denial or s.waiting_reason or s.phase not in ("", "Pending") for s in seen):
                return
            await asyncio.sleep(_LOOK_EVERY_S)

    async def _see(self, pod: str, *, with_events: bool = False) -> Sighting:
        answer = self._answers.get(pod)
        if answer is None or not answer.accepted:
            message = answer.message if answer is not None else "it was never applied"
            return Sighting(denial=message, warnings=answer.warnings if answer is not None else ())
        uid = str(answer.object["metadata"]["uid"])
        return Sighting(
            warnings=answer.warnings,
            events=await self.user.events(pod, uid) if with_events else (),
            pod=await self.user.get(pod),
            manifest=self._manifests[pod],
            env_by_container=self.env_of(f"{self.user.namespace}/{pod}"),
        )


def _verdict(example: str, expected: Expectation, problems: tuple[str, ...]) -> ExampleVerdict:
    return ExampleVerdict(example=example, claim=f"{expected.pod} is {expected.outcome}", problems=problems)


def _write_problems(step: Step, answer: Answer) -> tuple[str, ...]:
    if not step.denied:
        return () if answer.accepted else (f"the write was denied: {answer.message}",)
    if answer.accepted:
        return ("the write was accepted and should have been denied",)
    return tuple(
        f"the denial does not say {text!r}: {answer.message}" for text in step.denied if text not in answer.message
    )
