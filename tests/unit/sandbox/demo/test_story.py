"""The demo's story: every example is in one chapter, a chapter ends once, and what is shown is the most telling."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from sandbox.demo.examples import find
from sandbox.demo.outcomes import Sighting
from sandbox.demo.picture import CardBar, Part, lines
from sandbox.demo.play import ExampleVerdict
from sandbox.demo.story import CHAPTERS, Chapters, fullest, one_of_each

_EXAMPLES = Path(__file__).parents[4] / "docs" / "examples"


def test_every_example_is_in_one_chapter():
    names = [example.name for example in find([_EXAMPLES])]
    assert Counter(name for chapter in CHAPTERS.values() for name in chapter) == Counter([*names, "volcano-jobs"])


def test_a_chapter_is_printed_once_its_last_example_ended_with_all_that_went_wrong():
    first, second = CHAPTERS["A forged assignment takes no card"]
    chapters = Chapters(examples={first, second})
    good = ExampleVerdict(example=first, claim="a is placed")
    bad = ExampleVerdict(example=first, claim="b is placed", problems=("it waits",))
    assert chapters.ended(first, [good, bad]) == ("", "")
    assert chapters.ended(second, [good]) == (
        "✗",
        "A forged assignment takes no card (1 of 3 outcomes not as declared)",
    )
    assert Chapters(examples={second}).ended(second, [good])[0] == "✓"


def bar(card: str, label: str, *pods: str) -> CardBar:
    return CardBar(
        node="n", card=card, label=label, total=9, unit="cards", parts=tuple(Part(pod=pod, amount=1) for pod in pods)
    )


def test_of_each_kind_the_card_with_most_holders_is_shown():
    bars = (bar("a", "T4, mps", "p"), bar("b", "A10, mps", "p", "q"), bar("c", "whole A10"), bar("d", "whole T4", "r"))
    assert [shown.card for shown in fullest(bars)] == ["b", "d"]


def test_more_holders_than_are_named_are_counted():
    (_, line) = lines((bar("a", "T4, mps", "p", "q", "r"),), most_parts=2)
    assert line.endswith("p 1, q 1 and 1 more")


def test_of_those_that_wait_and_those_refused_the_shortest_answer_is_shown():
    condition = {"type": "PodScheduled", "status": "False", "message": "CS502 no cards"}
    waiting = {"spec": {}, "status": {"conditions": [condition]}}
    seen = {
        "long": Sighting(denial="webhook denied the request: CS101 a longer answer"),
        "short": Sighting(denial="webhook denied the request: CS101 no"),
        "waits": Sighting(pod=waiting),
        "runs": Sighting(pod={"spec": {"nodeName": "n"}}),
    }
    assert list(one_of_each(seen)) == [("waits waits", "CS502 no cards"), ("short was denied", "CS101 no")]
