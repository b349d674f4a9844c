"""`scripts/chaos`, small and short, so that it cannot rot."""

from tests.chaos.__main__ import table
from tests.chaos.plan import Kind, plan
from tests.chaos.run import Wanted, run
from tests.support.servers.replicas import QUICK

SHORT = Wanted(seconds=25.0, seed=4, nodes=10, pods_per_s=3.0, timing=QUICK)


async def test_after_some_faults_nothing_is_overcommitted_forgotten_or_lost(tmp_path):
    outcome = await run(SHORT, tmp_path)
    assert [one for one in outcome.invariants if one.broken] == []
    assert table(outcome).endswith("8 passed, 0 failed")
    assert outcome.faults.total() == len(list(plan(SHORT.seed, SHORT.seconds)))
    assert outcome.counts["pods placed"] > 20


def test_a_seed_draws_the_same_faults_again_and_ten_minutes_hold_every_kind_and_more_than_a_hundred():
    for seed in range(5):
        drawn = list(plan(seed, 600.0))
        assert drawn == list(plan(seed, 600.0))
        assert {one.kind for one in drawn} == set(Kind)
        assert len(drawn) >= 100
