"""Groups with topologies and subgroups, pod by pod: each is in its domain, and nobody waits who fits."""

from dataclasses import replace
from random import Random

import pytest

from core.groups import GroupSpec, NetworkTopology, SubGroups
from core.model import GroupKey, GroupKind, Phase
from core.placing.domains import domains
from core.placing.gang import Refused, place
from tests.support.worlds.world import World, node, pod


class NearWorld:
    """A few racks in blocks, two groups, pods of them, and pods of no group or of another scheduler."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.nodes = [
            node(f"n{at}", cards=self.random.randrange(1, 4), labels=self.labels())
            for at in range(self.random.randrange(3, 8))
        ]
        self.world = World(*self.nodes, network_tiers=("rack", "block"), keep_free_for_s=0)
        self.specs = [self.spec(name) for name in "gh"]
        self.world.groups_are(*self.specs)
        self.made = 0

    def labels(self) -> dict[str, str]:
        """Of a node; some lack one."""
        kinds = (("rack", 3), ("block", 2))
        return {kind: f"{self.random.randrange(many)}" for kind, many in kinds if self.random.random() < 0.95}

    def topology(self) -> NetworkTopology | None:
        return self.random.choice([None, NetworkTopology(self.random.random() < 0.7, self.random.choice([1, 2]))])

    def spec(self, name: str) -> GroupSpec:
        size, least, near = self.random.randrange(1, 3), self.random.randrange(3), self.topology()
        subgroups = SubGroups(name="w", keys=("part",), size=size, least=least, network_topology=near)
        return GroupSpec(
            key=GroupKey(GroupKind.VOLCANO, "default", name),
            uid=f"uid-{name}",
            resource_version="1",
            min_member=self.random.randrange(4),
            network_topology=self.topology(),
            sub_groups=self.random.choice([(), (subgroups,)]),
        )

    def step(self) -> None:
        """Something happens, and a few seconds pass."""
        world, names = self.world, list(self.world.pods)
        what = self.random.random()
        if what < 0.5 or not names:
            self.add()
        elif what < 0.65:
            world.gone(world.pods[self.random.choice(names)].name)
        elif what < 0.8:
            found = world.pods[self.random.choice(names)]
            if found.scheduler_name == "other" and not found.node_name:
                world.shows(found, node_name=self.random.choice(self.nodes).name)
            elif found.started and not found.finished:
                world.shows(found, phase=self.random.choice([Phase.SUCCEEDED, Phase.FAILED]))
        elif what < 0.9:
            self.made += 1
            least = self.random.randrange(4)
            self.specs[0] = replace(self.specs[0], resource_version=str(self.made + 1), min_member=least)
            world.groups_are(*self.specs)
        for _ in range(3):
            world.passes(1.0)
            for bind in world.binds():
                world.accepts(bind)
                if self.random.random() < 0.3:
                    world.serves(bind.pod.name)

    def add(self) -> None:
        """A pod is created."""
        self.made += 1
        labels = {"part": str(self.random.randrange(2))} if self.random.random() < 0.9 else {}
        group = self.random.choice([{"scheduling.k8s.io/group-name": name} for name in "gh"] + [{}])
        name, memory = f"p{self.made}", self.random.choice([10_000, 10_000, 5_000])
        if group and self.random.random() < 0.15:
            limits = {"cpu": "1"}
            self.world.adds(pod(name, limits=limits, annotations=group, labels=labels, scheduler_name="other"))
        else:
            self.world.adds(pod(name, memory=memory, annotations=group, labels=labels))

    def waiting_though_they_fit(self) -> list[str]:
        """Pods that are refused or held and would be placed if they were tried."""
        scheduler, found = self.world.scheduler, []
        for entry in scheduler.cluster.queue:
            unit = scheduler.cluster.gangs.unit(entry)
            if entry.stage.value not in ("refused", "held") or not unit.members or not unit.is_complete:
                continue
            with self.world.ledger.trial():
                if not isinstance(place(self.world.ledger, scheduler.cluster.search.candidates, unit), Refused):
                    found.append(entry.pod.name)
        return found

    def outside(self) -> list[str]:
        """Groups and subgroups of which those placed here are in no one domain, though they must be."""
        groups, found = self.world.scheduler.cluster.groups, []
        for spec in self.specs:
            pods = [one for one in groups.members(spec.key).values() if one.scheduler_name != "other"]
            placed = [(one, at) for one in pods if (at := self.world.ledger.node_of(one.uid)) is not None]
            homes = {spec.key.name: (groups.near(spec), {at for _, at in placed})}
            for policy in spec.sub_groups:
                for part in "01":
                    home = {at for one, at in placed if one.labels.get("part") == part}
                    homes[f"{spec.key.name}/{part}"] = groups.near(policy), home
            for name, (near, home) in homes.items():
                if near is not None and near.hard and home and not any(domains(self.world.ledger, near, home)):
                    found.append(name)
        return found


@pytest.mark.parametrize("seed", range(60))
def test_each_is_in_its_domain_and_nobody_waits_who_fits(seed: int) -> None:
    near = NearWorld(seed)
    for _ in range(40):
        near.step()
        assert near.waiting_though_they_fit() == []
        assert near.outside() == []
