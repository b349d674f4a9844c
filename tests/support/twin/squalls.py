"""Gales in clusters with more than cards: volumes, and others' pods, labels and claims; see `sides`."""

from typing import Final

from tests.support.twin.clock import CLOCK
from tests.support.twin.disruptions import Disruptions
from tests.support.twin.drivers import Drivers
from tests.support.twin.gales import Gale
from tests.support.twin.groups import Groups
from tests.support.twin.instances import Instances
from tests.support.twin.labels import Labels
from tests.support.twin.neighbours import Neighbours
from tests.support.twin.queues import Queues
from tests.support.twin.refusals import Refusals
from tests.support.twin.registers import Registers
from tests.support.twin.settings import Texts
from tests.support.twin.sides import Side
from tests.support.twin.slices import Slices
from tests.support.twin.storms import SETTINGS, Fault
from tests.support.twin.templates import Templates
from tests.support.twin.units import Units
from tests.support.twin.volumes import Volumes
from tests.support.twin.world import World

SIDES: Final[dict[str, type[Side]]] = {
    "volumes": Volumes,
    "neighbours": Neighbours,
    "labels": Labels,
    "drivers": Drivers,
    "disruptions": Disruptions,
    "settings": Texts,
    "queues": Queues,
    "groups": Groups,
    "slices": Slices,
    "registers": Registers,
    "instances": Instances,
    "refusals": Refusals,
    "units": Units,
    "templates": Templates,
}
# Where nothing fails, what a Binding was decided by is not older.
_BREEZE_LATE_S: Final = 15.0
# In calm nothing is written again and again: so often at most in so many seconds.
_CALM_S: Final = 300.0
_WRITES_MAX: Final = 12


class Squall(Gale):
    """A gale in a cluster with the side *name*, and perhaps another one."""

    HAS_KUEUE = False

    def __init__(self, name: str, world: World, without: tuple[str, ...] = ()) -> None:
        self._name = name
        super().__init__(world, without)

    def _take_sides(self) -> None:
        draw, world = self._draw, self._world
        others = [name for name in SIDES if SIDES[name].is_second]
        names = dict.fromkeys((self._name, draw.choice((self._name, *others))))
        for name in sorted(names, key=lambda one: SIDES[one] is Queues):  # these also hear of what others judge
            world.sides.append(SIDES[name](world))
        self._settings = "".join(
            dict.fromkeys(
                f"{line}\n" for text in (SETTINGS, *(one.settings for one in world.sides)) for line in text.splitlines()
            )
        )
        world.set_up(self._settings)

    def _act(self) -> None:
        for side in self._world.sides:
            side.is_calm = False
        if self._draw.random() < 0.3:
            self._draw.choice(self._world.sides).act()
        else:
            super()._act()

    def blow(self, operations: int) -> None:
        """Look also for what is written for ever."""
        super().blow(operations)
        if self._world.finds:
            return
        queues = [side for side in self._world.sides if isinstance(side, Queues)]
        if queues:
            self._world.run(_CALM_S)
        since_s = CLOCK.now_s
        self._world.api.writes.clear()
        self._world.run(_CALM_S)
        for side in queues:
            side.endless(since_s)
        for what, count in self._world.api.writes.items():
            if count > _WRITES_MAX:
                self._world.find(
                    "restless", f"{what} was written {count} times in {_CALM_S:.0f} s in which all is calm"
                )

    def _calm(self) -> None:
        super()._calm()
        self._world.set_up(self._settings)
        for side in self._world.sides:
            side.calm()


class Breeze(Squall):
    """A squall in which nothing fails: users and operators change what they like, and all is judged more strictly."""

    def __init__(self, world: World, without: tuple[str, ...] = ()) -> None:
        names = [name for name in SIDES if SIDES[name].is_second or SIDES[name] is Queues]
        super().__init__(world.draw.choice(sorted(names)), world, without)
        CLOCK.late_s = _BREEZE_LATE_S
        world.skews = (0.0,)

    def _fails(self) -> list[Fault]:
        return []

    def _more(self) -> list[Fault]:
        return [
            (2, self._close),
            (2, self._edit),
            (2, self._change_cards),
            (2, self._fail_card),
            (1, self._renew_node),
            (1, self._pack),
        ]

    def _calm(self) -> None:
        super()._calm()
        self._world.run(_BREEZE_LATE_S)
        for side in self._world.sides:
            for text in side.halves() if isinstance(side, Groups) else ():
                self._world.find("lonely", text)
