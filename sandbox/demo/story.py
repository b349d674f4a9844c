"""The demo as a story of thirty lines: its examples in chapters, then a few informative cards and reasons."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from sandbox.demo.outcomes import Sighting
from sandbox.demo.picture import CardBar
from sandbox.demo.play import ExampleVerdict

JOBS: Final = "Volcano Jobs: gangs start whole, queues share"
CHAPTERS: Final[Mapping[str, tuple[str, ...]]] = {
    JOBS: ("volcano-jobs",),
    "Ascend NPUs: slices by template, soft slices, whole chips": (
        *("ascend", "ascend-chips", "ascend-soft", "ascend-whole"),
        *("mindcluster", "mindcluster-templates", "mindcluster-downgrade", "npu-and-gpu"),
    ),
    "A wrong request is denied, with what to write instead": (
        *("ascend-refused", "hami-refused", "mindcluster-refused", "cores-150", "mode-typo"),
        "gpu-index-whole",
    ),
    "A forged assignment takes no card": ("forged-assignment", "forged-update"),
    "Cards shared by memory, and whole cards": (
        *("gpu-memory", "gpu-number", "gpu-sharing"),
        *("whole-gpu-types", "multi-gpu", "distributed-gpu"),
    ),
    "HAMi's requests, served by HAMi's own device plugins": ("hami-shares", "hami-cards", "hami-vendors"),
    "Slices of NVIDIA cards: memory, compute, MIG, MPS": (
        *("hami-core", "vgpu-training", "memory-only", "memory-percentage"),
        *("mig", "mig-layouts", "mps", "mode-chosen"),
    ),
    "Chosen cards: by model, by position, never an unhealthy one": (
        *("use-gputype", "nouse-gputype", "gpu-index", "gpu-unhealthy-ids"),
    ),
    "The rest of the pod counts: volumes, ports, images, spreading": (
        *("host-ports", "image-locality", "keep-apart", "pvc-training", "spread", "without-cards"),
    ),
    "A pod that waits says why; an urgent one may evict": ("never-fits", "preemption", "waits-for-room"),
}
_CARDS_SHOWN: Final = 7


@dataclass(slots=True, kw_only=True)
class Chapters:
    """Counts the outcomes of the examples by chapter.

    Attributes:
        examples: the examples that are still to be played.
    """

    examples: set[str]
    _verdicts_by_chapter: dict[str, list[ExampleVerdict]] = field(default_factory=dict)

    def ended(self, example: str, verdicts: Iterable[ExampleVerdict]) -> tuple[str, str]:
        """Return the mark and the line of the chapter that ends with *example* and *verdicts*; "" if it continues."""
        self.examples.discard(example)
        title = next(title for title, examples in CHAPTERS.items() if example in examples)
        found = self._verdicts_by_chapter.setdefault(title, [])
        found += verdicts
        if self.examples & {*CHAPTERS[title]}:
            return "", ""
        wrong = sum(bool(verdict.problems) for verdict in found)
        said = f"{wrong} of {len(found)} outcomes not as declared" if wrong else f"{len(found)} outcomes"
        return "✗" if wrong else "✓", f"{title} ({said})"


def fullest(bars: Sequence[CardBar]) -> tuple[CardBar, ...]:
    """Return the cards with the most holders, one of each kind, in the order of *bars*."""
    by_label: dict[str, CardBar] = {}
    for bar in bars:
        kind = "whole" if bar.label.startswith("whole ") else bar.label.rpartition(", ")[2]
        if kind not in by_label or len(bar.parts) > len(by_label[kind].parts):
            by_label[kind] = bar
    shown = sorted(by_label.values(), key=lambda bar: -len(bar.parts))[:_CARDS_SHOWN]
    return tuple(bar for bar in bars if bar in shown)


def one_of_each(seen: Mapping[str, Sighting]) -> Iterator[tuple[str, str]]:
    """Yield a waiting pod and a denied pod with the shortest answers."""
    waiting = {name: sighting.waiting_reason for name, sighting in seen.items() if not sighting.node}
    denied = {name: sighting.denial.partition("denied the request: ")[2] for name, sighting in seen.items()}
    for verb, answers in (("waits", waiting), ("was denied", denied)):
        found = min(((len(text), name) for name, text in answers.items() if text), default=None)
        if found is not None:
            yield f"{found[1]} {verb}", answers[found[1]]
