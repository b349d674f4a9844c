"""Nobody sleeps who would fit: after all that happens, against a twin that judges every waiting pod on every node.

The twin knows nothing of happenings. It reads what each pod asks anew, and looks at all nodes.
"""

from math import inf
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.actions import Bind, Lock
from controller.deciding.lifecycle import Stage
from core.model import Container, NodeConstraints, NodeName, Phase, Taint, Toleration
from core.placing.decide import Shape, scan, shape_of
from core.placing.gang import Together
from tests.support.worlds.world import World, node, pod

CARDS_MIB = (1000, 4000)
RED = Taint(key="red", effect="NoSchedule")


class Twin:
    """A world in which things happen by chance, and what must be true of it after each."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        most = self.chance.choice((2, 64))
        self.world = World(node("n0", memory=1000), node("n1", memory=4000, cards=2), bind_in_flight_max=most)
        self.world.has_no_kind()
        self.count = 0
        self.flying: list[Bind] = []

    # ------------------------------------------------------------------ what happens

    def a_node_is_there(self) -> None:
        chance, self.count = self.chance, self.count + 1
        self.world.scheduler.nodes.changed(
            node(
                f"n{chance.randrange(4)}",
                cards=chance.choice((1, 2)),
                memory=chance.choice(CARDS_MIB),
                slots=chance.choice((1, 4)),
                version=f"v{self.count}",
                labels={"zone": chance.choice("ab")},
                taints=(RED,) if chance.random() < 0.3 else (),
                unschedulable=chance.random() < 0.2,
                ready=chance.random() < 0.9,
                **({"annotations": {}} if chance.random() < 0.1 else {}),
            )
        )

    def a_node_goes(self) -> None:
        self.world.scheduler.nodes.gone(NodeName(f"n{self.chance.randrange(4)}"))

    def a_pod_comes(self) -> None:
        chance, self.count = self.chance, self.count + 1
        zone = (("zone", chance.choice("ab")),) if chance.random() < 0.1 else ()
        red = (Toleration(key="red", operator="Exists"),) if chance.random() < 0.1 else ()
        made = pod(
            f"p{self.count}",
            memory=chance.choice((400, 1000, 1000, 4000)),
            number=chance.choice((1, 1, 1, 2)),
            priority=chance.choice((0, 0, 5)),
            constraints=NodeConstraints(selector=zone, tolerations=red),
        )
        if chance.random() < 0.1:
            limits = {**made.containers[0].limits, "cpu": chance.choice(("8", "40", "64"))}
            made = made._replace(containers=(Container(name="main", limits=limits, requests=limits),))
        self.world.adds(made)

    def somebody_elses_pod_is_bound(self) -> None:
        self.count += 1
        limits = {"cpu": self.chance.choice(("10", "40"))}
        made = pod(f"x{self.count}", limits=limits, scheduler_name="other", started=True, phase=Phase.RUNNING)
        self.world.shows(made, node_name=f"n{self.chance.randrange(4)}")

    def members_come(self) -> None:
        """Three that are placed together; those without cards wait for nothing but a Binding that is free."""
        self.count += 1
        group = {"scheduling.k8s.io/group-name": f"g{self.count}", "scheduling.volcano.sh/group-min-member": "3"}
        limits = self.chance.choice(({"cpu": "1"}, None))
        for at in range(3):
            self.world.adds(pod(f"m{self.count}-{at}", memory=400, limits=limits, annotations=group))

    def a_pod_changes(self) -> None:
        found = self._some()
        if found is None:
            return
        match self.chance.randrange(4):
            case 0:
                self.world.gone(found.name)
                self.flying = [bind for bind in self.flying if bind.pod.uid != found.uid]
            case 1 if found.node_name:
                self.world.shows(found, phase=Phase.SUCCEEDED)
            case 2 if found.node_name and not found.annotations:  # it is resized where it runs
                limits = {"cpu": self.chance.choice(("1", "20"))}
                self.world.shows(found, containers=(Container(name="main", limits=limits, requests=limits),))
            case _ if not found.node_name:
                accepted = self.chance.choice(("T4", "A100"))
                self.world.shows(found, annotations={"nvidia.com/use-gputype": accepted})

    def a_binding_is_answered(self) -> None:
        if not self.flying:
            return
        bind = self.flying.pop(self.chance.randrange(len(self.flying)))
        entry = self.world.scheduler.cluster.queue.get(bind.pod.uid)
        if entry is None or entry.attempt != bind.attempt or entry.stage is not Stage.BINDING:
            return
        if self.chance.random() < 0.1:
            self._vanishes(bind)
        elif self.chance.random() < 0.2:
            self.world.scheduler.outcomes.refused(bind.pod.uid, bind.attempt, rest_s=self.chance.choice((0.0, 1.0)))
        else:
            self.world.accepts(bind)
            self.world.serves(bind.pod.name)

    def _vanishes(self, bind: Bind) -> None:
        """A proxy loses the answer, a read finds the pod gone; the watch, which is behind, shows it once more."""
        shown = self.world.pods[bind.pod.uid]
        self.world.loses(bind)
        for read in [one for one in self.world.reads() if one.pod.uid == shown.uid]:
            self.world.scheduler.pod_read(read.pod.uid, read.attempt, None)
            self.world.pods.pop(shown.uid)
            if self.chance.random() < 0.5:
                self.world.shows(shown)

    def settings_change(self) -> None:
        self.world.configures(turn_wait_max_s=self.chance.choice((1.0, 5.0)))

    def a_pod_is_mistrusted(self) -> None:
        """What leaves the queue by a mistake of ours takes no wake with it."""
        found = self._some()
        ready = self.world.scheduler.cluster.queue.get(found.uid) if found is not None else None
        if ready is not None and ready.stage is Stage.READY:
            self.world.scheduler.outcomes.mistrust(ready)
            self.world.reads_back(self.world.pods[ready.pod.uid])

    def one_thing_is_decided(self) -> None:
        """The scheduler is interrupted after one step, so that more can happen between a wake and its decision."""
        self.world.now_s += 0.05
        self.world.scheduler.cycle.plan(self.world.now_s)
        self.flying += self.world.actions(Bind)

    def _some(self):
        woken = [entry.pod for entry in self.world.scheduler.cluster.queue if entry.woken is not None]
        pods = woken if woken and self.chance.random() < 0.7 else list(self.world.pods.values())
        return self.chance.choice(pods) if pods else None

    # ------------------------------------------------------------------ what is true

    def passes(self) -> None:
        """Until all that has happened has been heard of."""
        cluster = self.world.scheduler.cluster
        for _ in range(4):
            self.world.passes(0.3)
        self.flying += self.world.actions(Bind)
        while self._is_at_work():
            if not cluster.may_bind:
                self.a_binding_is_answered()
            self.world.passes(0.05)
            self.flying += self.world.actions(Bind)
        assert self.world.actions(Lock) == []

    def _is_at_work(self) -> bool:
        """Whether something is due, or asked, or may wait for a Binding that is free."""
        cluster, now_s = self.world.scheduler.cluster, self.world.now_s
        # Questions that took long, by this clock, are followed by a pause of some times that.
        is_asked = cluster.requeue.due_s(now_s) < inf
        return is_asked or not cluster.may_bind or self.world.scheduler.cycle.next_due_s() <= now_s + 0.05

    def nobody_sleeps_who_would_fit(self) -> None:
        cluster = self.world.scheduler.cluster
        for entry in self.world.scheduler.cluster.queue:
            if entry.stage is Stage.REFUSED and not isinstance(entry.parked, Together):
                shape = shape_of(entry.pod, self.world.ledger)
                assert isinstance(shape, Shape)
                found = scan(self.world.ledger, cluster.search.policy, shape)
                assert found is None, f"{entry.pod.name} sleeps, and {found} would take it"
            assert entry.woken is None or entry.stage is Stage.READY


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), length=st.integers(20, 80))
def test_nobody_sleeps_who_would_fit(seed, length):
    twin = Twin(seed)
    happenings = (
        *[twin.a_pod_comes] * 10,
        twin.members_come,
        *[twin.a_binding_is_answered] * 4,
        *[twin.a_pod_changes] * 4,
        *[twin.a_node_is_there] * 2,
        twin.a_node_goes,
        twin.somebody_elses_pod_is_bound,
        *[twin.one_thing_is_decided] * 8,
        twin.settings_change,
        twin.a_pod_is_mistrusted,
    )
    for _ in range(length):
        twin.chance.choice(happenings)()
        if twin.chance.random() < 0.3:  # the others happen at once
            twin.passes()
            twin.nobody_sleeps_who_would_fit()
