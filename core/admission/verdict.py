"""The result of one review."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from core.catalog import Asked
from core.model import Container, ReviewedPod
from core.port.refusals import Violation
from core.warnings import AdmissionWarning
from core.wire.patches import Appended, Edit, Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Denied for *violations*, or admitted with *edits*; warnings are shown in both cases."""

    edits: tuple[Edit | Appended, ...] = ()
    violations: tuple[Violation, ...] = ()
    warnings: tuple[AdmissionWarning, ...] = ()

    @property
    def allowed(self) -> bool:
        """Whether the object is admitted."""
        return not self.violations

    @property
    def message(self) -> str:
        """Why it is denied, for people: every violation with its code."""
        return "; ".join([f"{one.code} {one}" for one in self.violations])

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of all findings, each once."""
        found = [one.code for one in self.violations] + [one.code for one in self.warnings]
        return tuple(dict.fromkeys(found))


class Judged(NamedTuple):
    """A verdict, and the inputs of warnings on the final state.

    pod: as it will be stored, except for its scheduler's name; None if there is nothing to report. asked: its card
    request, None if there is none that cardshare places, or if it is unchanged. before: the old pod, None for a new
    one.
    """

    verdict: Verdict
    pod: ReviewedPod | None = None
    asked: Asked | None = None
    before: ReviewedPod | None = None


# If many things are wrong for one reason, the first ones and the number of others are reported.
MAX_TOLD: Final = 16


def first_of(keys: Sequence[str], violation: Callable[[str], Violation]) -> tuple[Violation, ...]:
    """Return the *violation* of each of *keys*, limited to the first ones and the number of others."""
    told = tuple(map(violation, keys[:MAX_TOLD]))
    more = len(keys) - MAX_TOLD
    return (*told, replace(told[-1], remedy=f"the same goes for {more} more")) if more > 0 else told


NOTHING: Final = Verdict()
NO_WARNINGS: Final = Judged(NOTHING)
ANNOTATIONS: Final = ("metadata", "annotations")
_LABELS: Final = ("metadata", "labels")
SPEC: Final = ("spec",)


def edits_between(old: ReviewedPod, new: ReviewedPod, scheduler_name: str | None = None) -> tuple[Edit | Appended, ...]:
    """Return the edits from *old* to *new* that admission may make; *scheduler_name* overrides the new one's.

    They concern annotations, labels, names of scheduler and runtime class, and containers' resources and variables.
    """
    edits: list[Edit | Appended] = []
    if old.annotations is not new.annotations:
        edits += _edit(ANNOTATIONS, old.annotations, new.annotations)
    if old.labels is not new.labels:
        edits += _edit(_LABELS, old.labels, new.labels)
    wanted = new.scheduler_name if scheduler_name is None else scheduler_name
    named: dict[str, str | None] = {}
    if wanted != old.scheduler_name:
        named["schedulerName"] = wanted
    if new.runtime_class != old.runtime_class:
        named["runtimeClassName"] = new.runtime_class
    if named:
        edits.append(Edit(SPEC, named))
    if old.containers is not new.containers:
        edits += _containers("containers", zip(old.containers, new.containers, strict=True))
    if old.init_containers is not new.init_containers:
        edits += _containers("initContainers", zip(old.init_containers, new.init_containers, strict=True))
    return tuple(edits)


def _containers(where: str, pairs: Iterable[tuple[Container, Container]]) -> list[Edit | Appended]:
    edits: list[Edit | Appended] = []
    for i, (old, new) in enumerate(pairs):
        if old is not new:
            more = new.reach.env[len(old.reach.env) :]
            if more:
                edits.append(Appended(("spec", where, str(i), "env"), dict(more)))
            edits += _edit(("spec", where, str(i), "resources", "limits"), old.limits, new.limits)
            edits += _edit(("spec", where, str(i), "resources", "requests"), old.requests, new.requests)
    return edits


def _edit(place: Path, old: Mapping[str, str], new: Mapping[str, str]) -> tuple[Edit, ...]:
    values: dict[str, str | None] = {key: value for key, value in new.items() if old.get(key) != value}
    for key in old:
        if key not in new:
            values[key] = None
    return (Edit(place, values, old),) if values else ()
