"""The PodGroups and pods that frameworks make, from their admission to their end, or to the reason why they wait."""

import pytest

from tests.support.worlds.frameworks import CARDS, Player, frameworks

FRAMEWORKS = tuple(frameworks())


@pytest.mark.timeout(300)
@pytest.mark.parametrize("framework", FRAMEWORKS, ids=[one.name for one in FRAMEWORKS])
async def test_what_a_framework_makes_becomes_what_its_page_says(staged, framework):
    async with staged(nodes=CARDS[framework.cards].nodes(), volcano=True) as stage:
        for case in framework.cases:
            player = Player(stage.admin, framework.cards)
            try:
                await player.play(case.steps)
            except AssertionError as e:
                pytest.fail(f"{case.name}: {e}", pytrace=False)
            await player.clear()
