"""When pods, shapes, owners and nodes come and go, all that is kept of them goes too."""

import argparse
from collections import Counter
from functools import reduce
from operator import and_, or_

import pytest

from core.claims import Claim, StorageKind
from core.groups import GroupPhase, GroupSpec, GroupStatus, QueueSpec
from core.model import GroupKey, GroupKind, NodeName, Phase
from core.wire.policies import ResourceQuota
from tests.bench.soak import Soak
from tests.support.devices.sizes import sizes
from tests.support.worlds.world import World, node, pod

LIVES = 900
# What grows on purpose, and up to which bound.
BOUNDED = {
    "cluster.recording": "the last events of pods, of 100,000 of them within 128 MiB (tests/property/test_history.py)",
    "ledger._log": "changes of nodes, 131,072 of them, for whoever reads them late",
    "candidates._memories": "shapes, 4,096 of them within a budget of bytes",
    "candidates._marks": "what other pods and images make of nodes, 256 sets of them",
    "candidates._rows": "rows of nodes, of those that are gone as many as there are, and 256",
    "long_lines.by_key[][].log": "nodes with a long line now or no more, 1,024 of them for each set",
    "pending.owners": "owners of pods that may be given a group, 1,024 of them",
    ".log._names": "nodes that other pods or images made another thing of, 16,384 of them",
}

HAMI = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1000"}
# On a pod that HAMi's device plugin serves; once it has, it may still be removing the lock of the node.
CARD = "n0-0,NVIDIA,1000,0:;"
ASSIGNED = {
    "hami.io/vgpu-node": "n0",
    "hami.io/vgpu-devices-allocated": CARD,
    "hami.io/vgpu-devices-to-allocate": CARD,
    "hami.io/bind-phase": "allocating",
}
SERVED = ASSIGNED | {"hami.io/vgpu-devices-to-allocate": "", "hami.io/bind-phase": "success"}


def grown(before, after):
    """What holds more than before, beyond what comes and goes with chance."""
    kept = {path: size for path, size in after.items() if not any(bound in path for bound in BOUNDED)}
    return {path: (before.get(path, 0), size) for path, size in kept.items() if size > before.get(path, 0) * 1.3 + 24}


@pytest.mark.may_block(reason="nothing runs in a loop")
def test_three_times_as_many_lives_leave_no_more_behind():
    soak = Soak(argparse.Namespace(seed=1, nodes=40))
    seen = []
    for number in range(1, 3 * LIVES + 1):
        soak.live(number)
        if number % 100 == 0:
            seen.append(Counter(sizes(soak.world.scheduler)))
    # Of most containers a few items are counted, which differ much; what stays is there each time.
    most_before, least_after = reduce(or_, seen[LIVES // 100 - 3 : LIVES // 100]), reduce(and_, seen[-3:])
    assert grown(most_before, least_after) == {}


class Standby:
    """A process that follows a cluster for long, and never leads."""

    def __init__(self):
        self.world = World(node("n0"), preemption=True, scheduler_names=("cardshare", "volcano"))
        self.world.groups_are(queues=[QueueSpec(name="default")])

    def live(self, number):
        """A namespace with all that it may have comes and goes, and a node is exchanged for another."""
        world, cluster, where = self.world, self.world.scheduler.cluster, f"ns-{number}"
        claims = self.world.scheduler.claims.stores[StorageKind.CLAIMS]
        quota = ResourceQuota(namespace=where, name="q", hard={"limits.volcano.sh/vgpu-memory": 1000}, used={})
        queue, key = QueueSpec(name=f"q-{number}", capability={"cpu": 1000}), GroupKey(GroupKind.VOLCANO, where, "g")
        begun = GroupStatus(phase=GroupPhase.INQUEUE, written=True)
        claim = Claim(key=f"{where}/c", uid=f"c-{number}", version="1")
        cluster.budgets.quotas.changed(quota)
        cluster.groups.queue_changed(queue)
        cluster.groups.changed(GroupSpec(key=key, uid=f"g-{number}", queue=queue.name, status=begun))
        claims.put(claim)
        owner = f"ReplicaSet/r-{number}"
        names = [f"{kind}-{number}" for kind in ("member", "loose", "rejected", "removed", "served")]
        member, *others = (
            pod(name, namespace=where, owner=owner, limits=limits, scheduler_name="volcano", created_s=1)
            for name, limits in zip(names, (None, None, None, None, HAMI), strict=True)
        )
        world.adds(member._replace(annotations={"scheduling.k8s.io/group-name": "g"}), *others)
        world.shows(world.seen(names[0]), nominated_node=f"n{number}")
        for name in (names[0], *names[2:]):
            world.shows(world.seen(name), node_name=f"n{number}")
        world.shows(world.seen(names[0]), phase=Phase.RUNNING, started=True)
        world.shows(world.seen(names[2]), phase=Phase.FAILED, status_reason="UnexpectedAdmissionError")
        world.shows(world.seen(names[4]), annotations=ASSIGNED)
        world.shows(world.seen(names[4]), annotations=SERVED)
        for name in names:
            world.gone(name)
        claims.drop(claim)
        cluster.groups.gone(key)
        cluster.groups.queue_gone(queue.name)
        cluster.budgets.quotas.gone(quota)
        world.scheduler.nodes.gone(NodeName(f"n{number}"))
        world.scheduler.nodes.changed(node(f"n{number + 1}"))
        cluster.actions.clear()
        world.now_s += 100.0
        world.scheduler.stand_by()


@pytest.mark.may_block(reason="nothing runs in a loop")
def test_a_standby_keeps_nothing_of_what_is_gone():
    standby = Standby()
    for number in range(200):
        standby.live(number)
    before = sizes(standby.world.scheduler)
    for number in range(200, 600):
        standby.live(number)
    assert grown(before, sizes(standby.world.scheduler)) == {}


def test_what_is_kept_for_ever_is_seen():
    assert grown({"Scheduler.a": 40}, {"Scheduler.a": 40, "Scheduler.b": 100}) == {"Scheduler.b": (0, 100)}
