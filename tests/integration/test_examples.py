"""Every shipped example becomes what its declaration says, with webhook and controller as real processes."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from sandbox.demo.examples import Example, find
from sandbox.demo.stage import Stage, running_stage
from tests.support.examples import broken_declarations

_EXAMPLES = find([Path(__file__).parents[2] / "docs" / "examples"])


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """One embedded cluster with the product installed, for all examples in turn."""
    async with running_stage(tmp_path_factory.mktemp("stage"), os.environ) as stage:
        yield stage


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("example", _EXAMPLES, ids=lambda example: example.name)
async def test_an_example_alone_on_the_cluster_becomes_what_it_declares(cluster: Stage, example: Example):
    assert await broken_declarations(cluster, [example]) == []


@pytest.mark.asyncio(loop_scope="session")
async def test_all_examples_together_become_what_they_declare_and_stay_so(cluster: Stage):
    assert await broken_declarations(cluster, _EXAMPLES) == []
