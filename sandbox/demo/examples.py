"""Reads example manifests and their declared outcomes.

``X.yaml`` has pods, and ``X.outcome.yaml`` beside it their outcomes, in the format of `Expectation` and `Step` in YAML;
`docs/examples/README.md` documents it. `sandbox.demo.outcomes` judges them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import yaml

Json = dict[str, Any]

_OUTCOME_SUFFIX: Final = ".outcome.yaml"


class ExampleError(ValueError):
    """An example or its outcomes are unreadable; names the file and the problem."""


class Outcome(StrEnum):
    """The outcome of a pod: it runs, waits, is denied, is admitted without forged keys, or was evicted."""

    PLACED = "placed"
    WAITING = "waiting"
    DENIED = "denied"
    STRIPPED = "stripped"
    EVICTED = "evicted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """The expected outcome of one pod; empty or None fields are not checked.

    nodes and card_ids are patterns (``*``), of which one must match, or all in order; env and annotations map a key to
    a pattern; reason and warning are texts that must occur; stripped: keys whose forged value must be gone; events map
    the reason of an event to a pattern of its message.
    """

    pod: str
    outcome: Outcome
    nodes: tuple[str, ...] = ()
    card_count: int | None = None
    card_ids: tuple[str, ...] = ()
    same_cards_as: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    reason: tuple[str, ...] = ()
    warning: tuple[str, ...] = ()
    stripped: tuple[str, ...] = ()
    events: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step after the first outcomes: apply or delete a pod, or write annotations to it.

    A pod that a step applies is not applied before. denied: texts in the refusal of the write; empty = it must succeed.
    """

    apply: str = ""
    delete: str = ""
    annotate: str = ""
    changes: Mapping[str, str | None] = field(default_factory=dict)
    denied: tuple[str, ...] = ()
    expectations: tuple[Expectation, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Required deviations from the defaults: keys of cardshare.yaml, and optional manifests of deploy/."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    deploy: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One file of manifests with its outcomes, if there are any."""

    name: str
    path: Path
    manifests: tuple[Json, ...]
    expectations: tuple[Expectation, ...] = ()
    steps: tuple[Step, ...] = ()
    cluster: Cluster = field(default_factory=Cluster)


def find(places: Iterable[Path]) -> tuple[Example, ...]:
    """Read the examples in these files and folders, in the given order, within a folder by name.

    Raises:
        ExampleError: a place is missing or empty, or a file cannot be read.
    """
    paths: list[Path] = []
    for place in places:
        found = sorted(place.glob("*.yaml")) if place.is_dir() else [place]
        manifests = [path for path in found if not path.name.endswith(_OUTCOME_SUFFIX)]
        if not manifests:
            raise ExampleError(f"{place}: no manifests here; name a .yaml file, or a folder of them")
        paths += manifests
    return tuple(read(path) for path in paths)


def read(path: Path) -> Example:
    """Read one example with its outcomes.

    Raises:
        ExampleError: a file is missing, is not YAML, or has unknown content.
    """
    manifests = tuple(doc for doc in _documents(path) if doc is not None)
    for doc in manifests:
        if not isinstance(doc, dict) or not doc.get("kind") or not doc.get("metadata", {}).get("name"):
            raise ExampleError(f"{path}: every document needs apiVersion, kind and metadata.name")
    declared = path.with_name(path.stem + _OUTCOME_SUFFIX)
    if not declared.is_file():
        return Example(name=path.stem, path=path, manifests=manifests)
    reader = _Reader(declared)
    expectations, steps = reader.expectations(), reader.steps()
    rounds = (expectations, *(step.expectations for step in steps))
    named = {expected.pod for one in rounds for expected in one}
    named |= {step.apply or step.delete or step.annotate for step in steps}
    unknown = sorted(named - {doc["metadata"]["name"] for doc in manifests})
    if unknown:
        raise ExampleError(f"{declared}: no manifest in {path.name} is named {', '.join(unknown)}")
    return Example(
        name=path.stem,
        path=path,
        manifests=manifests,
        expectations=expectations,
        steps=steps,
        cluster=reader.cluster(),
    )


def _documents(path: Path) -> list[Any]:
    try:
        return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    except OSError as e:
        raise ExampleError(f"{path}: {e.strerror}") from e
    except yaml.YAMLError as e:
        raise ExampleError(f"{path}: no YAML: {e}") from e


class _Reader:
    """Reads the outcomes of one example; an unknown key is an error, so that a typo cannot skip a check."""

    def __init__(self, path: Path) -> None:
        self._path = path
        documents = _documents(path)
        self._top = self._mapping(documents[0] if documents else {}, "the file", ("cluster", "pods", "after"))

    def cluster(self) -> Cluster:
        values = self._mapping(self._top.get("cluster", {}), "cluster", ("settings", "deploy"))
        settings = self._mapping(values.get("settings", {}), "cluster.settings")
        return Cluster(settings=dict(settings), deploy=_texts(values.get("deploy")))

    def expectations(self) -> tuple[Expectation, ...]:
        return self._pods(self._top.get("pods", {}), "pods")

    def steps(self) -> tuple[Step, ...]:
        entries = self._top.get("after", [])
        if not isinstance(entries, list):
            raise ExampleError(f"{self._path}: after: write a list of steps")
        return tuple(self._step(entry, f"after[{i}]") for i, entry in enumerate(entries))

    def _step(self, entry: Any, where: str) -> Step:
        values = self._mapping(entry, where, ("apply", "delete", "annotate", "with", "denied", "pods"))
        if len({"apply", "delete", "annotate"} & set(values)) != 1:
            raise ExampleError(f"{self._path}: {where}: write one of apply, delete and annotate")
        return Step(
            apply=str(values.get("apply", "")),
            delete=str(values.get("delete", "")),
            annotate=str(values.get("annotate", "")),
            changes={
                str(key): None if value is None else str(value)
                for key, value in self._mapping(values.get("with", {}), f"{where}.with").items()
            },
            denied=_texts(values.get("denied")),
            expectations=self._pods(values.get("pods", {}), f"{where}.pods"),
        )

    def _pods(self, entries: Any, where: str) -> tuple[Expectation, ...]:
        return tuple(self._pod(name, entry, f"{where}.{name}") for name, entry in self._mapping(entries, where).items())

    def _pod(self, name: str, entry: Any, where: str) -> Expectation:
        known = (
            *("outcome", "node", "cards", "same_cards_as", "env"),
            *("annotations", "reason", "warning", "stripped", "events"),
        )
        values = self._mapping(entry, where, known)
        try:
            outcome = Outcome(values.get("outcome", ""))
        except ValueError as e:
            raise ExampleError(f"{self._path}: {where}.outcome: write one of {', '.join(Outcome)}") from e
        cards = values.get("cards")
        return Expectation(
            pod=name,
            outcome=outcome,
            nodes=_texts(values.get("node")),
            card_count=cards if isinstance(cards, int) else None,
            card_ids=_texts(cards) if isinstance(cards, list) else (),
            same_cards_as=str(values.get("same_cards_as", "")),
            env=self._patterns(values, "env", where),
            annotations=self._patterns(values, "annotations", where),
            reason=_texts(values.get("reason")),
            warning=_texts(values.get("warning")),
            stripped=_texts(values.get("stripped")),
            events=self._patterns(values, "events", where),
        )

    def _patterns(self, values: Mapping[str, Any], key: str, where: str) -> dict[str, str]:
        entries = self._mapping(values.get(key, {}), f"{where}.{key}")
        return {str(name): str(pattern) for name, pattern in entries.items()}

    def _mapping(self, value: Any, where: str, known: tuple[str, ...] = ()) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            raise ExampleError(f"{self._path}: {where}: write keys and values")
        unknown = sorted(str(key) for key in value if known and key not in known)
        if unknown:
            raise ExampleError(f"{self._path}: {where}: unknown {', '.join(unknown)}; known are {', '.join(known)}")
        return value


def _texts(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    return tuple(str(entry) for entry in value) if isinstance(value, list) else (str(value),)
