"""A fork of the ledger in which pods are placed, one after the other, as they would be without hand-off."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from controller.deciding.cluster import ClusterState
from controller.grouping.budgets import Spender
from core.constraints.quota import Account, Budget
from core.errors import NodeInvariantError
from core.ledger import Ledger
from core.model import NodeName
from core.placing.candidates import Candidates


class TrialCluster:
    """The fork, and what was spent in it; the cluster itself does not change.

    Attributes:
        ledger: the fork.
        candidates: the order of its nodes.
    """

    def __init__(self, cluster: ClusterState) -> None:
        """Begin with the cluster as it is."""
        self.ledger: Final[Ledger] = cluster.ledger.fork()
        self.candidates: Final = Candidates(self.ledger, cluster.search.policy)
        self._budgets: Final = cluster.budgets
        # What each had left when it was first asked for, and what was spent since. The cluster's own figures go on:
        # what is placed here may be bound meanwhile, and would be counted twice.
        self._left: Final[dict[Spender, Mapping[tuple[Account, str], tuple[int, int]]]] = {}
        self._at_first: Final[dict[tuple[Account, str], tuple[int, int]]] = {}
        self._spent: Final[Counter[tuple[Account, str]]] = Counter()

    def budget(self, spender: Spender) -> Budget | None:
        """Return what *spender* has left, None if nothing limits it."""
        found = self._left_at_first(spender)
        return Budget({at: (left - self._spent[at], limit) for at, (left, limit) in found.items()}) if found else None

    def spend(self, spender: Spender, amounts: Mapping[str, int]) -> None:
        """Count *amounts* against all accounts of *spender*, which others may share."""
        for account, resource in self._left_at_first(spender):
            self._spent[account, resource] += amounts.get(resource, 0)

    def _left_at_first(self, spender: Spender) -> Mapping[tuple[Account, str], tuple[int, int]]:
        if spender not in self._left:
            found = self._budgets.budget(spender)
            now = found.left if found is not None else {}
            self._left[spender] = {at: self._at_first.setdefault(at, amount) for at, amount in now.items()}
        return self._left[spender]

    def set_aside(self, error: NodeInvariantError) -> None:
        """Place nothing more on a node whose state is contradictory."""
        name = NodeName(error.node)
        if name in self.ledger.states and name not in self.ledger.aside:
            self.ledger.set_aside(name, error.problem)
