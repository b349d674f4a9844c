"""What is tried in a fork: what it spends there is spent once, whatever the cluster does meanwhile."""

from controller.grouping.budgets import spender_of
from controller.reporting.trial import TrialCluster
from core.wire.policies import ResourceQuota
from tests.support.worlds.world import MEMORY, World, node, pod


def test_what_is_bound_while_a_round_goes_on_is_not_counted_beside_what_the_round_placed():
    found = World(node("n1"))
    found.scheduler.cluster.budgets.quotas.changed(ResourceQuota("mine", "q", {f"limits.{MEMORY}": 3000}, {}))
    asking = pod("a", memory=1000, namespace="mine")
    trial, spender = TrialCluster(found.scheduler.cluster), spender_of(asking)
    trial.spend(spender, {MEMORY: 1000})
    found.adds(asking)
    assert found.placed()
    budget = trial.budget(spender)
    assert budget is not None
    assert budget.lacks({MEMORY: 2000}) == ()
    assert budget.lacks({MEMORY: 2001})
