"""Every shipped example becomes what it declares on a real API server, with the product installed by its manifests."""

from pathlib import Path

import pytest

from sandbox.demo.examples import Example, find
from tests.support.examples import broken_declarations
from tests.support.stage_realapi import Installed

_EXAMPLES = find([Path(__file__).parents[2] / "docs" / "examples"])


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("example", _EXAMPLES, ids=lambda example: example.name)
async def test_an_example_alone_on_the_cluster_becomes_what_it_declares(installed: Installed, example: Example):
    assert await broken_declarations(installed.stage, [example]) == []


@pytest.mark.asyncio(loop_scope="session")
async def test_all_examples_together_become_what_they_declare_and_stay_so(installed: Installed):
    assert await broken_declarations(installed.stage, _EXAMPLES) == []
