"""The pages show of ``kubectl cards`` what it says, and its own page lists every field of its JSON."""

import dataclasses
import re
import shlex

import pytest

from cli.options import Output, parse
from core.view import fits as view_fits
from core.view import queues as view_queues
from core.view.cards import Card, Cards, Node, Share, Total
from core.view.explained import Event, Explained, Held
from core.view.history import Happened, PodLife, Why
from core.view.waiting import Waiting, WaitingPod, WaitingQueue, WaitingReason
from tests.support.pages.cards_page import NODES, PAGE, PAGES, SCHEMA, commands, play, schema, written


async def test_kubectl_cards_says_what_the_pages_show(rig):
    pages = [path.read_text(encoding="utf-8") for path in PAGES]
    async with rig(nodes=NODES) as world:
        said = await play(world, "".join(pages))
    assert pages == [written(page, said) for page in pages], "run scripts/rules"


def test_the_schema_is_that_of_the_fields():
    assert SCHEMA.read_text(encoding="utf-8") == schema(), "run scripts/rules"


def test_each_command_is_shown():
    shown = [parse(shlex.split(command.partition("; ")[0]), {}) for command in commands(PAGE.read_text())]
    found = {(type(one).__name__, getattr(one, "output", None)) for one in shown}
    names = ("Get", "Explain", "Why", "Waits", "Fits", "Queues")
    assert found == {
        *((name, form) for name in names for form in (Output.TEXT, Output.JSON)),
        ("Get", Output.WIDE),
    }


@pytest.mark.parametrize(
    ("heading", "kinds"),
    [
        ("get", (Cards, Node, Card, Share, Total)),
        ("explain", (Explained, Held, Event)),
        ("queues", (view_queues.Queues, view_queues.QueueState, view_queues.QueueAmount)),
        ("fits", (view_fits.Fits, view_fits.Fit, view_fits.FitType)),
        ("why", (Why, PodLife, Happened)),
        ("waiting", (Waiting, WaitingPod, WaitingReason, WaitingQueue)),
    ],
)
def test_every_field_is_listed_and_no_other(heading, kinds):
    table = PAGE.read_text().split(f"| field of `{heading}` | |\n|---|---|\n")[1].split("\n\n")[0]
    cells = [line.split(" | ")[0] for line in table.splitlines()]
    listed = {part for cell in cells for name in re.findall(r"`([^`]+)`", cell) for part in re.findall(r"\w+", name)}
    assert listed == {field.name for kind in kinds for field in dataclasses.fields(kind)}
