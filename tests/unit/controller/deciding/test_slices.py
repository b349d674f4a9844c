"""What the scheduler does without a pause: no more for a large cluster than for a small one."""

import pytest

from core.model import Container
from tests.support.worlds.world import MEMORY, NUMBER, World, node, pod

JUDGED_AT_ONCE = 16


def box(name, number, mib):
    limits = {NUMBER: str(number), MEMORY: str(mib)}
    return Container(name=name, limits=limits, requests=limits)


@pytest.mark.parametrize("preference", [(), ("mig", "mps", "hami-core")], ids=["no preference", "modes preferred"])
def test_a_pod_like_none_before_is_judged_on_few_nodes_at_once(preference):
    world = World(*[node(f"n{at}", cards=8) for at in range(300)], mode_preference=preference)
    # Each container fits by itself, so that only judging a node shows that all of them do not.
    containers = (*(box(f"c{at}", 1, 6000) for at in range(6)), box("z", 8, 6000))
    world.adds(pod("p", limits={}, containers=containers))
    candidates = world.scheduler.cluster.search.candidates
    steps = []
    more = True
    while more:
        before = candidates.judged
        more = world.scheduler.cycle.plan(world.now_s)
        steps.append(candidates.judged - before)
    assert world.stage("p") == "refused"
    assert sum(steps) >= 300
    assert max(steps) <= JUDGED_AT_ONCE * (1 + len(preference))
