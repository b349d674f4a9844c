"""The PodGroups and pods that frameworks make, from their admission to their end, or to the reason why they wait."""

import pytest

from tests.support.worlds.frameworks import CARDS, frameworks, play

FRAMEWORKS = tuple(one for one in frameworks() if not one.native)


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=[one.name for one in FRAMEWORKS])
async def test_what_a_framework_makes_becomes_what_its_page_says(staged, framework):
    async with staged(nodes=CARDS[framework.cards].nodes(), volcano=True) as stage:
        await play(stage.admin, framework)
