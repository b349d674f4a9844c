"""Users, and whatever befalls a cluster, at random; then calm, in which everybody must come to his right."""

from collections.abc import Callable
from typing import Final

from tests.support.twin.clock import CLOCK
from tests.support.twin.kueue import MANAGED, Kueue
from tests.support.twin.machines import ENDED, Kind, Machine, Steps
from tests.support.twin.network import Line
from tests.support.twin.world import Seat, World, spec_of

_PODS_MAX: Final = 30
_STORM_S: Final = 90.0
_LONG: Final = 0.3
SETTINGS: Final = "keep_free_for_s: 0\n"
_CLOSED: Final = ({"unschedulable": True}, {"taints": [{"key": "broken", "effect": "NoSchedule"}]})
_EDITS: Final = ("", "policy: spread\n", "policy: index\nturn_wait_max_s: 1\n", "bind_in_flight_max: 2\n")
# Used in some runs.
_PREEMPTION: Final = "preemption: true\npreemption_delay_s: 2\npreemption_wait_s: 30\n"
# How often it happens, and what.
Fault = tuple[int, Callable[[], None]]


class Storm:
    """One cluster's users and faults."""

    HAS_KUEUE = True

    def __init__(self, world: World, without: tuple[str, ...] = ()) -> None:
        """*without*: words of faults that do not happen."""
        self._world = world
        self._draw = world.draw
        self._blows = False
        self._backup = None
        self._without = without
        self._names: list[str] = []
        draw = self._draw
        self._settings = SETTINGS + draw.choice(("", _PREEMPTION))
        world.set_up(self._settings)
        for number in range(draw.randint(2, 4)):
            kind = draw.choice(tuple(Kind))
            mib = 21527 if kind is Kind.ASCEND else draw.choice((8000, 16000, 32000))
            cards = {f"{'A' if kind is Kind.ASCEND else 'GPU'}-{number}-{at}": mib for at in range(draw.randint(1, 3))}
            machine = world.add_node(f"n{number}", kind, cards, blind_release=draw.random() < 0.5)
            machine.slow_images_s = draw.choice((0.0, 0.0, 5.0))
        # What of Volcano's memory a namespace may hold, of all that there is.
        self._memory_mib = sum(
            mib for one in world.machines.values() if one.kind is Kind.VGPU for mib in one.cards.values()
        )
        self._is_limited = bool(self._memory_mib) and draw.random() < 0.4
        if draw.random() < 0.5 and self.HAS_KUEUE:
            # Promises are judged by the times that are written: half of these clusters have one clock.
            world.skews = draw.choice((world.skews, (0.0,)))
            many = sum(len(one.cards) for one in world.machines.values())
            world.kueue = Kueue(world, quota=draw.randint(many, 4 * many))
        self._limit()
        self._take_sides()
        for seat in world.seats:
            seat.start()

    def blow(self, operations: int) -> None:
        """Storms and calms, until *operations* were done, or something was found."""
        world = self._world
        world.run(40.0, lambda: world.leader is not None)
        while world.operations < operations and not world.finds:
            self._blows = True
            if world.kueue is not None:
                world.kueue.is_calm = False
            world.spawn(self._users())
            world.spawn(self._faults())
            world.run(_STORM_S, lambda: bool(world.finds))
            self._blows = False
            if not world.finds:
                self._calm()
                world.settle()

    def _take_sides(self) -> None:
        """Let the world have more than cards."""

    def _calm(self) -> None:
        """Prepare for calm."""

    def _more(self) -> list[Fault]:
        """Return more faults, with how often they happen."""
        return []

    # ------------------------------------------------------------------ users

    def _users(self) -> Steps:
        draw = self._draw
        while self._blows:
            yield draw.expovariate(2.0) if draw.random() < 0.9 else 10.0 * draw.random()
            if self._blows:
                self._act()

    def _limit(self) -> None:
        """An operator sets a quota, changes it, or takes it away."""
        if self._is_limited:
            share = self._draw.choice((0.1, 0.3, 0.6, 1.0, None))
            self._world.limit_memory(None if share is None else int(share * self._memory_mib))

    def _act(self) -> None:
        draw, world = self._draw, self._world
        pods = [key for key, pod in world.api.objects["pods"].items() if pod["status"].get("phase") not in ENDED]
        if draw.random() < 0.03:
            self._limit()
        if world.kueue is not None and len(pods) < _PODS_MAX and draw.random() < 0.3:
            spec = spec_of(*self._asked(), priority=draw.choice((0, 0, 0, 100)))
            world.kueue.submit(spec, draw.choice((1, 1, 2, 3)), is_job=draw.random() < 0.5)
            return
        dice = draw.random()
        if (dice < 0.55 and len(pods) < _PODS_MAX) or not pods:
            is_gated = draw.random() < 0.1
            if draw.random() < 0.2:
                wanted = draw.choice((2, 2, 3, 4))
                many = wanted + draw.choice((-1, 0, 0, 0, 1))
                self._create(world.add_group(wanted), many, is_gated=is_gated)
            else:
                for _ in range(draw.choice((1, 1, 1, 2, 6))):
                    self._create(is_gated=is_gated)
        elif dice < 0.70:
            world.delete(draw.choice(pods))
        elif dice < 0.85:
            self._force(draw.choice(pods))
        else:
            key = draw.choice(pods)
            world.api.write("pods", key, {"metadata": {"annotations": {"note": str(draw.random())}}})
        for key, pod in list(world.api.objects["pods"].items()):
            is_kueues = MANAGED in pod["metadata"].get("labels", {})
            if pod["spec"].get("schedulingGates") and not is_kueues and draw.random() < 0.2:
                world.ungate(key)
            if pod["status"].get("phase") in ENDED and draw.random() < 0.3:
                world.delete(key)

    def _asked(self) -> tuple[Kind, list[tuple[int, int, int]]]:
        """What a pod asks, of a kind that there is."""
        draw, world = self._draw, self._world
        machine = draw.choice(list(world.machines.values()))
        kind = machine.kind
        asks = []
        for _ in range(2 if kind is not Kind.VGPU and draw.random() < 0.2 else 1):
            count = 2 if draw.random() < 0.15 else 1
            if kind is Kind.ASCEND:
                asks.append((1, draw.choice((3072, 6144, 12288, 21527)), 0))
            else:
                mib = draw.choice((500, 2000, 4000, 7000, 12000, 16000, 30000))
                asks.append((count, mib, draw.choice((0, 0, 10, 30))))
        return kind, asks

    def _create(self, group: str = "", many: int = 1, *, is_gated: bool = False) -> None:
        """Create a pod, or so many equal members of a group."""
        draw, world = self._draw, self._world
        kind, asks = self._asked()
        name = draw.choice(self._names[-8:]) if self._names and draw.random() < 0.15 else ""
        if world.pod(f"default/{name}") is not None:
            name = ""  # a successor comes once its namesake is gone
        priority = draw.choice((0, 0, 0, 100))
        for _ in range(many):
            more = {"group": group, "is_gated": is_gated}
            key = world.add_pod(kind, asks, name="" if group else name, priority=priority, **more)
            self._names.append(key.partition("/")[2])

    def _force(self, key: str) -> None:
        """Nobody can tell that a kubelet does not hear of it before its node is told to be silent."""
        force = "force" not in self._without
        self._world.counts["fault: pods removed by force"] += force
        self._world.delete(key, force=force)

    # ------------------------------------------------------------------ faults

    def _faults(self) -> Steps:
        draw = self._draw
        faults = [
            one for one in self._fails() + self._more() if not any(word in one[1].__name__ for word in self._without)
        ]
        while self._blows:
            yield draw.expovariate(1 / 8.0)
            if self._blows:
                (fault,) = draw.choices([one for _, one in faults], [weight for weight, _ in faults])
                self._world.counts[f"fault: {fault.__name__.strip('_').replace('_', ' ')}"] += 1
                fault()
            if draw.random() < 0.1:
                self._backup = self._world.api.snapshot()

    def _fails(self) -> list[Fault]:
        return [
            (4, self._kill),
            (2, self._terminate),
            (3, self._pause),
            (3, self._cut),
            (3, self._bad_line),
            (3, self._hold_watches),
            (3, self._break_watches),
            (4, self._stick),
            (3, self._stick_and_end),
            (2, self._plugin),
            (2, self._kubelet),
            (2, self._silence),
            (2, self._close),
            (1, self._edit),
            (1, self._restore),
            (1, self._compact),
        ]

    def _seat(self) -> Seat:
        leader = self._world.leader
        if leader is not None and self._draw.random() < 0.7:
            return leader
        return self._draw.choice(self._world.seats)

    def _line(self, change: str, value: float, seconds: float) -> None:
        line = self._seat().line
        setattr(line, change, value)
        self._world.at(seconds, lambda: setattr(line, change, getattr(Line(), change)))

    def _machine(self) -> Machine:
        return self._draw.choice(list(self._world.machines.values()))

    def _kill(self) -> None:
        self._seat().kill_after = self._draw.randint(1, 400)

    def _terminate(self) -> None:
        self._seat().terminate()

    def _pause(self) -> None:
        self._seat().paused_until_s = CLOCK.now_s + self._draw.choice((0.5, 5.0, 12.0, 25.0, 40.0))

    def _cut(self) -> None:
        seconds = self._draw.choice((1.0, 6.0, 15.0, 40.0))
        self._seat().line.cut_until_s = CLOCK.now_s + seconds

    def _bad_line(self) -> None:
        change, value = self._draw.choice(
            (("loss", 0.1), ("loss", 0.5), ("slow_s", 3.0), ("slow_s", 9.0), ("trouble", 0.3))
        )
        self._line(change, value, self._draw.choice((5.0, 20.0)))

    def _hold_watches(self) -> None:
        self._seat().line.held_until_s = CLOCK.now_s + self._draw.choice((1.0, 5.0, 12.0, 20.0))

    def _break_watches(self) -> None:
        seat = self._seat()
        if seat.network is not None:
            seat.network.break_watches(self._draw.choice((0.3, 1.0)))

    def _stick(self, then: str = "") -> None:
        """A share of the writes of a while arrive much later than anybody waits for them."""
        draw, seat = self._draw, self._seat()
        share, most_s = draw.choice((0.1, 0.5, 1.0)), draw.choice((8.0, 30.0, 60.0))
        until_s = CLOCK.now_s + draw.choice((1.0, 5.0, 15.0))
        ends = [bool(then)]

        def stick(verb: str, path: str) -> float:
            if CLOCK.now_s > until_s or "/leases" in path or draw.random() >= share:
                return 0.0
            if ends[0] and "/binding" in path:
                ends[0] = False
                self._world.at(0.01 + draw.random(), getattr(seat, then))
            return 0.5 + most_s * draw.random()

        seat.line.stick = stick

    def _stick_and_end(self) -> None:
        self._stick(self._draw.choice(("kill", "terminate")))

    def _plugin(self) -> None:
        self._machine().stop_plugin(self._draw.choice((1.0, 8.0, 40.0)))

    def _kubelet(self) -> None:
        self._machine().restart_kubelet(self._draw.choice((1.0, 6.0)), self._draw.choice((0.5, 5.0, 30.0)))

    def _silence(self) -> None:
        self._machine().cut(self._draw.choice((5.0, 30.0, 80.0)))

    def _close(self) -> None:
        self._machine().close(self._draw.choice(_CLOSED), self._draw.choice((2.0, 10.0, 40.0)))

    def _edit(self) -> None:
        self._world.set_up(self._settings + self._draw.choice(_EDITS))

    def _compact(self) -> None:
        self._world.api.compact()

    def _restore(self) -> None:
        if self._backup is not None and self._draw.random() < _LONG:
            self._world.restore(self._backup, bump=self._draw.random() < 0.5)
