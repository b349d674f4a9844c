"""Every shipped example becomes what its declaration says, with webhook and controller as real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.demo.examples import Example, find
from sandbox.demo.stage import Stage
from tests.support.worlds.examples import broken_declarations

_EXAMPLES = find([Path(__file__).parents[2] / "docs" / "examples"])


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("example", _EXAMPLES, ids=lambda example: example.name)
async def test_an_example_alone_on_the_cluster_becomes_what_it_declares(shared_stage: Stage, example: Example):
    assert await broken_declarations(shared_stage, [example]) == []


@pytest.mark.asyncio(loop_scope="session")
async def test_settings_that_an_example_asks_for_are_taken_back_before_the_next_one_is_applied(shared_stage: Stage):
    """A webhook that has just taken other settings knows no cards, and could not warn."""
    switching = [one for one in _EXAMPLES if one.cluster.settings]
    warned = [one for one in _EXAMPLES if one.name == "never-fits"]
    assert switching
    assert warned
    assert await broken_declarations(shared_stage, [switching[0], *warned]) == []


@pytest.mark.asyncio(loop_scope="session")
async def test_an_example_leaves_no_cards_held_for_the_next(shared_stage: Stage):
    """A pod removed by force would hold its cards for seconds, and the fullest node that fits is preferred."""
    for name in ("mig", "memory-only"):
        assert await broken_declarations(shared_stage, [one for one in _EXAMPLES if one.name == name]) == []


@pytest.mark.asyncio(loop_scope="session")
async def test_all_examples_together_become_what_they_declare_and_stay_so(shared_stage: Stage):
    assert await broken_declarations(shared_stage, _EXAMPLES) == []
