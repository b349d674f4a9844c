"""Plays examples against a cluster as a user of kubectl: applies them, runs their steps, waits for their outcomes."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from sandbox.client import ApiClient, collection_of
from sandbox.demo.examples import Example, Expectation, Outcome, Step
from sandbox.demo.outcomes import Sighting, Told, complaints

Json = dict[str, Any]

_LOOK_EVERY_S = 0.05
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
# RFC 9110 warn-value: code, agent, quoted text; only 299 is ever sent.
_WARNING: Final = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')
_ESCAPED: Final = re.compile(r"\\(.)")
# The only cluster-scoped kind of these.
PRIORITY_CLASS: Final = "PriorityClass"
# The kinds of objects of examples, with their apiVersion.
KINDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("Pod", "ConfigMap", "PersistentVolumeClaim"), "v1"),
    "Deployment": "apps/v1",
    "Job": "batch/v1",
    PRIORITY_CLASS: "scheduling.k8s.io/v1",
}


def can_apply(manifest: Mapping[str, Any]) -> bool:
    """Return whether `KubectlUser.apply` supports the kind of *manifest*."""
    return (str(manifest["kind"]), manifest.get("apiVersion")) in KINDS.items()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The API server's answer: status, its text on refusal, its warnings, and the object on success."""

    status: int
    message: str = ""
    warnings: tuple[str, ...] = ()
    object: Json = field(default_factory=dict)

    @property
    def accepted(self) -> bool:
        return self.status < 400


class KubectlUser:
    """One user at one API server, with an opened client."""

    namespace = "default"

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def apply(self, manifest: Mapping[str, Any]) -> Answer:
        """``kubectl apply``: create a missing object, otherwise patch it towards the manifest."""
        path = self._collection(manifest)
        name = manifest["metadata"]["name"]
        annotations = manifest["metadata"].get("annotations") or {}
        recorded = {**annotations, _LAST_APPLIED: msgspec.json.encode(manifest, order="sorted").decode() + "\n"}
        body = {**manifest, "metadata": {**manifest["metadata"], "annotations": recorded}}
        if (await self._call("GET", f"{path}/{name}")).status == 404:
            return await self._call("POST", f"{path}?fieldManager=kubectl-client-side-apply", body)
        return await self._patch(f"{path}/{name}", body, "application/strategic-merge-patch+json")

    async def annotate(self, pod: str, annotations: Mapping[str, str | None]) -> Answer:
        """``kubectl annotate --overwrite pod``; None removes a key."""
        body = {"metadata": {"annotations": dict(annotations)}}
        return await self._patch(self.pod_path(pod), body, "application/merge-patch+json")

    async def delete(self, pod: str, *, grace_s: int = 1) -> Answer:
        """``kubectl delete pod --grace-period``."""
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": grace_s}
        return await self._call("DELETE", self.pod_path(pod), options)

    async def get(self, pod: str) -> Json | None:
        """``kubectl get pod -o json``; None if there is none."""
        answer = await self._call("GET", self.pod_path(pod))
        return answer.object if answer.accepted else None

    async def events(self, pod: str, uid: str) -> tuple[Told, ...]:
        """``kubectl events --for pod/``, without events of earlier pods with its name."""
        path = f"/api/v1/namespaces/{self.namespace}/events?fieldSelector=involvedObject.name={pod}"
        found = (await self._call("GET", path)).object.get("items", ())
        return tuple(
            Told(reason=str(one.get("reason", "")), message=str(one.get("message", "")))
            for one in found
            if one["involvedObject"].get("uid") == uid
        )

    def pod_path(self, pod: str) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods/{pod}"

    def _collection(self, manifest: Mapping[str, Any]) -> str:
        if manifest["kind"] == PRIORITY_CLASS:
            return collection_of(manifest)
        metadata = {"namespace": self.namespace, **manifest["metadata"]}
        return collection_of({**manifest, "metadata": metadata})

    async def _patch(self, path: str, body: Mapping[str, Any], content_type: str) -> Answer:
        return await self._call("PATCH", path, body, content_type)

    async def _call(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Answer:
        status, warned, raw = await self._client.exchange(method, path, body, media=content_type)
        found = msgspec.json.decode(raw)
        warnings = tuple(_ESCAPED.sub(r"\1", text) for header in warned for text in _WARNING.findall(header))
        message = str(found.get("message", "")) if status >= 400 else ""
        return Answer(status=status, message=message, warnings=warnings, object=found)


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
        pod = step.pod
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
