"""Reads example manifests and their declared outcomes.

``X.yaml`` has pods, and ``X.outcome.yaml`` beside it their outcomes, in the format of `Expectation` and `Step` in YAML;
`docs/examples/README.md` documents it. `sandbox.demo.outcomes` judges them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import yaml

Json = dict[str, Any]

_T = TypeVar("_T")
_OUTCOME_SUFFIX: Final = ".outcome.yaml"
# Keys of lists of texts, which may also be one text; and keys of patterns or annotations by key.
_LISTS: Final = frozenset({"node", "reason", "warning", "stripped", "denied", "deploy"})
_MAPS: Final = frozenset({"env", "annotations", "events", "with"})


class ExampleError(ValueError):
    """An example or its outcomes are unreadable; names the file and the problem."""


class Outcome(StrEnum):
    """The outcome of a pod: it runs, waits, is denied, is admitted without forged keys, or was evicted."""

    PLACED = "placed"
    WAITING = "waiting"
    DENIED = "denied"
    STRIPPED = "stripped"
    EVICTED = "evicted"


class _Declared(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of the format; an unknown key is an error, so that a typo cannot skip a check."""


class Expectation(_Declared, frozen=True, kw_only=True):
    """The expected outcome of one pod; empty or None fields are not checked.

    node: patterns (``*``), of which one must match; cards: their number, or patterns that must match in order; env and
    annotations map a key to a pattern; reason and warning are texts that must occur; stripped: keys whose forged value
    must be gone; events map the reason of an event to a pattern of its message.
    """

    pod: str
    outcome: Outcome
    node: tuple[str, ...] = ()
    cards: int | tuple[str, ...] | None = None
    same_cards_as: str = ""
    env: dict[str, str] = {}
    annotations: dict[str, str] = {}
    reason: tuple[str, ...] = ()
    warning: tuple[str, ...] = ()
    stripped: tuple[str, ...] = ()
    events: dict[str, str] = {}


class Step(_Declared, frozen=True, kw_only=True, rename={"changes": "with", "expectations": "pods"}):
    """A step after the first outcomes: apply or delete a pod, or write annotations to it.

    A pod that a step applies is not applied before. denied: texts in the refusal of the write; empty = it must succeed.
    """

    apply: str = ""
    delete: str = ""
    annotate: str = ""
    changes: dict[str, str | None] = {}
    denied: tuple[str, ...] = ()
    expectations: tuple[Expectation, ...] = ()

    @property
    def pod(self) -> str:
        return self.apply or self.delete or self.annotate


class ClusterChanges(_Declared, frozen=True, kw_only=True):
    """Required deviations from the defaults.

    settings: keys of cardshare.yaml. deploy: optional manifests of deploy/. hami: sections of HAMi's
    device-config.yaml.
    """

    settings: dict[str, Any] = {}
    deploy: tuple[str, ...] = ()
    hami: dict[str, Any] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One file of manifests with its outcomes, if there are any."""

    name: str
    path: Path
    manifests: tuple[Json, ...]
    expectations: tuple[Expectation, ...] = ()
    steps: tuple[Step, ...] = ()
    cluster: ClusterChanges = field(default_factory=ClusterChanges)


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
    (top, *_) = (*_documents(declared), {})
    try:
        found = _read(top, "the file", _File)
        steps = tuple(_step(entry, f"after[{at}]") for at, entry in enumerate(found.after))
        expectations, cluster = _pods(found.pods, "pods"), _read(_texts(found.cluster), "cluster", ClusterChanges)
    except ExampleError as e:
        raise ExampleError(f"{declared}: {e}") from e
    rounds = (expectations, *(step.expectations for step in steps))
    named = {expected.pod for one in rounds for expected in one} | {step.pod for step in steps}
    unknown = sorted(named - {doc["metadata"]["name"] for doc in manifests})
    if unknown:
        raise ExampleError(f"{declared}: no manifest in {path.name} is named {', '.join(unknown)}")
    return Example(
        name=path.stem, path=path, manifests=manifests, expectations=expectations, steps=steps, cluster=cluster
    )


def _documents(path: Path) -> list[Any]:
    try:
        return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    except OSError as e:
        raise ExampleError(f"{path}: {e.strerror}") from e
    except yaml.YAMLError as e:
        raise ExampleError(f"{path}: no YAML: {e}") from e


class _File(_Declared, frozen=True, kw_only=True):
    cluster: dict[str, Any] = {}
    pods: dict[str, dict[str, Any]] = {}
    after: list[dict[str, Any]] = []


def _step(entry: Json, where: str) -> Step:
    if len({"apply", "delete", "annotate"} & entry.keys()) != 1:
        raise ExampleError(f"{where}: write one of apply, delete and annotate")
    pods = _pods(entry.get("pods", {}), f"{where}.pods")
    return _read({**_texts(entry), "pods": pods}, where, Step)


def _pods(entries: Any, where: str) -> tuple[Expectation, ...]:
    found = _read(entries, where, dict[str, dict[str, Any]])
    return tuple(_read({**_texts(one), "pod": name}, f"{where}.{name}", Expectation) for name, one in found.items())


def _texts(entry: Json) -> Json:
    """Return *entry* with numbers of YAML as text where a text belongs, and one text as a list of it."""
    found = dict(entry)
    for key, value in entry.items():
        if key in _LISTS or (key == "cards" and isinstance(value, list)):
            found[key] = [str(one) for one in (value if isinstance(value, list) else [value])]
        elif key in _MAPS and isinstance(value, dict):
            found[key] = {str(name): None if one is None else str(one) for name, one in value.items()}
    return found


def _read(values: Any, where: str, kind: type[_T]) -> _T:
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as e:
        raise ExampleError(f"{where}: {e}; docs/examples/README.md has the format") from e
