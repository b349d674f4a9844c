"""The cluster in the twin of gangs as objects alone, and what these say of nodes, cards and members, by arithmetic."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from typing import Final

from core.groups import GroupSpec
from core.model import Node, Phase, Pod, PodUid
from tests.support.devices.gang_cards import CARD_MIB, Asked, Free, Offer, left, shares_of, times
from tests.support.worlds.world import MEMORY, World

# Of these the first alone has quotas, at times.
NAMESPACES: Final = ("team", "default")
APPS: Final = ("a", "b")
ZONES: Final = "ab"
RACKS: Final = ("", "1", "1", "2")


class GangState:
    """Nodes, pods, groups, and the scheduler that decides on them.

    Attributes:
        chance: what happens follows from it.
        nodes: by name, as the API server has them.
        offers: the cards of each node, also of those that are gone.
        asked: what each pod wants, by its name.
        specs: groups, by their names.
        unseen: groups that the scheduler has not been shown yet.
        broken: gangs from which something was taken, and queues that were made smaller, since they were last whole.
        counts: how often things happened.
        faults: what must not be.
        divides: groups may ask for domains and have subgroups.
        preempts: pods are evicted for pods before them.
        claimed: cards in use through resource claims, and nodes of which any card may be.
        claims_cards: resource claims come and go.
        reclaims: queues take back what they deserve.
        world: the scheduler, its clock and its pods; another one after a restart.
    """

    world: World

    def __init__(self, seed: object) -> None:
        """Begin with nothing."""
        self.chance: Final = random.Random(f"gangs/{seed}")
        self.nodes: Final[dict[str, Node]] = {}
        self.offers: Final[dict[str, Offer]] = {}
        self.asked: Final[dict[str, Asked]] = {}
        self.specs: Final[dict[str, GroupSpec]] = {}
        self.unseen: Final[set[str]] = set()
        self.broken: Final[set[str]] = set()
        self.claimed: Final[set[str]] = set()
        self.counts: Final = Counter[str]()
        self.faults: Final[list[str]] = []
        self.number = 0
        self.divides: Final = self.chance.random() < 0.5
        self.preempts: Final = self.chance.random() < 0.5
        self.reclaims: Final = self.chance.random() < 0.3
        self.claims_cards: Final = self.chance.random() < 0.4

    @property
    def evicts(self) -> bool:
        """Whether pods are evicted for others at all."""
        return self.preempts or self.reclaims

    def any_labels(self) -> dict[str, str]:
        """Where a node is: in a zone, and mostly in a rack."""
        return {"zone": self.chance.choice(ZONES), "rack": self.chance.choice(RACKS)}

    def next_version(self) -> str:
        """A resource version that is newer than all before."""
        self.number += 1
        return str(self.number)

    def breaks(self, name: str) -> None:
        """Something is taken from the group of pod *name*."""
        group = self.asked[name].group
        if group:
            self.broken.add(group)

    def node_of(self, one: Pod) -> str:
        """Where a pod is, or is promised to be."""
        if one.finished:
            return ""
        return one.node_name or str(self.world.ledger.node_of(one.uid) or "")

    def placed(self) -> dict[str, str]:
        """The node of each pod that has one."""
        return {one.name: where for one in self.world.pods.values() if (where := self.node_of(one))}

    def members(self, group: str) -> list[Pod]:
        """The pods of a group."""
        return [one for one in self.world.pods.values() if self.asked[one.name].group == group]

    def has(self, name: str, resource: str) -> int:
        """How much of a resource a node has in all."""
        if name not in self.nodes:
            return 0
        if resource == "cpu":
            return int(self.nodes[name].allocatable["cpu"]) * 1000
        return self.offers[name].cards * (CARD_MIB if resource == MEMORY else 1)

    def takes(self, name: str, asked: Asked) -> bool:
        """Whether a node takes new pods such as this."""
        one = self.nodes[name]
        is_open = one.ready and not one.unschedulable and not one.taints
        is_of_kind = not asked.cards or asked.kind is self.offers[name].kind
        return is_open and is_of_kind and asked.zone in ("", one.labels["zone"])

    def free(self, where: str, uids: Iterable[PodUid]) -> tuple[list[Free], int]:
        """What is free of cards and cpus of a node beside the pods *uids* on it."""
        pods = [self.world.pods[uid] for uid in uids]
        shares = [share for one in pods for share in shares_of(one.annotations)]
        used = sum(self.asked[one.name].cpu for one in pods)
        cards = left(where, self.offers[where], shares).items() if where not in self.claimed else ()
        usable = [free for card, free in cards if card not in self.claimed]
        return usable, self.has(where, "cpu") // 1000 - used

    def fits_without(self, where: str, asked: Asked, gone: Iterable[str]) -> bool:
        """Whether a pod fits on a node without *gone*; not if somebody else is promised a place there."""
        out = {f"uid-{name}" for name in gone}
        on = [one for one in self.world.pods.values() if self.node_of(one) == where]
        if any(not one.node_name for one in on):
            return False
        cards, cpu = self.free(where, {uid for one in on if (uid := one.uid) not in out})
        return times(cards, cpu, asked) > 0


def counts(one: Pod) -> bool:
    """Whether a pod that has or had a place is a member of its gang still."""
    return one.phase is Phase.SUCCEEDED or not (one.finished or one.deleting)
