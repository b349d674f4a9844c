"""Cards that HAMi's plugin cuts into MIG instances, whose profiles change, and nodes that change their mode.

Source: hami 1.9, 2.1, 4.5 and 4.7.
"""

from typing import Any, Final

from tests.support.twin.api import Json
from tests.support.twin.clock import CLOCK
from tests.support.twin.judge import HAMI_MODE, Use, asks
from tests.support.twin.machines import SLOTS, Kind, Machine, Profile, shares_of
from tests.support.twin.sides import Side

# By model: what a card has, how many instances at most, and their profiles.
_MODELS: Final[dict[str, tuple[int, int, tuple[Profile, ...]]]] = {
    "NVIDIA A30": (
        24576,
        4,
        (
            Profile("1g.6gb", 5952, 25, 1, (0, 1, 2, 3)),
            Profile("2g.12gb", 12032, 50, 2, (0, 2)),
            Profile("4g.24gb", 24192, 100, 4, (0,)),
        ),
    ),
    "NVIDIA A100-SXM4-40GB": (
        40960,
        7,
        (
            Profile("1g.5gb", 4864, 15, 1, (0, 1, 2, 3, 4, 5, 6)),
            Profile("2g.10gb", 9856, 29, 2, (0, 2, 4)),
            Profile("3g.20gb", 19968, 43, 4, (0, 4)),
            Profile("7g.40gb", 40192, 100, 8, (0,)),
        ),
    ),
}
_ASKED: Final = (3000, 4864, 5900, 9000, 9856, 12000, 15000, 19968, 24000, 40000)
_MOST_MIB: Final = 100_000
_ANY: Final = Use(*[10**9] * 4)


class Instances(Side):
    """Nodes of HAMi's plugin in mode MIG."""

    is_second = False

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        if not any(one.kind is Kind.HAMI for one in world.machines.values()):
            world.add_node("nh", Kind.HAMI, {"GPU-h-0": 0, "GPU-h-1": 0})
        # (until, node, profiles) that were in force until then.
        self._before: list[tuple[float, str, tuple[Profile, ...]]] = []
        self._found = [one for one in world.machines.values() if one.kind is Kind.HAMI]
        for machine in self._found[:1] + [one for one in self._found[1:] if self._draw.random() < 0.5]:
            self._cut(machine)

    def _cut(self, machine: Machine) -> None:
        machine.model = self._draw.choice(sorted(_MODELS))
        mib, slots, profiles = _MODELS[machine.model]
        self._set(machine, profiles)
        machine.reregister(dict.fromkeys(machine.cards, mib), machine.ill.keys(), slots=slots)

    # ------------------------------------------------------------------ users

    def dress(self, pod: Json) -> None:
        """Let a pod of HAMi's cards ask for what instances have, and perhaps for a mode."""
        draw = self._draw
        first, *others = pod["spec"]["containers"]
        limits = first["resources"]["limits"]
        if Kind.HAMI.resource not in limits or int(limits["nvidia.com/gpumem"]) > _MOST_MIB:
            return  # it is not to fit anywhere
        if draw.random() < 0.7:
            memory = {"nvidia.com/gpumem": str(draw.choice(_ASKED))}
            resources = {key: {**found, **memory} for key, found in first["resources"].items()}
            pod["spec"] = {**pod["spec"], "containers": [{**first, "resources": resources}, *others]}
        if draw.random() < 0.5:
            mode = draw.choice(("mig", "mig", "hami-core"))
            pod["metadata"]["annotations"] = {**pod["metadata"]["annotations"], HAMI_MODE: mode}

    def act(self) -> None:
        """The plugin restarts, a card fails, a driver has other memory for its profiles, or the mode changes."""
        draw = self._draw
        machine = draw.choice(self._found)
        dice = draw.random()
        if dice < 0.15:
            machine.stop_plugin(draw.choice((0.2, 3.0)))
        elif dice < 0.35:
            machine.reregister(machine.cards, set(machine.ill) ^ {draw.choice(sorted(machine.cards))})
        elif dice < 0.4 and machine.profiles:
            more = draw.choice((-64, 64, 128))
            self._set(machine, tuple(one._replace(mib=one.mib + more) for one in machine.profiles))
            machine.reregister(machine.cards, machine.ill.keys())
        elif dice >= 0.97:
            self._change_mode(machine)

    def _set(self, machine: Machine, profiles: tuple[Profile, ...]) -> None:
        self._before.append((CLOCK.now_s, machine.name, machine.profiles))
        machine.profiles = profiles

    def _change_mode(self, machine: Machine) -> None:
        """The node is configured for the other mode, and its plugin is restarted; pods that are there stay."""
        self._world.counts["instances: changes of mode"] += 1
        if machine.profiles:
            self._set(machine, ())
            machine.reregister(machine.cards, machine.ill.keys(), slots=SLOTS)
        else:
            self._cut(machine)
        # Whatever they hold is none of what the cards have now.
        machine.excused = dict.fromkeys(machine.cards, _ANY)

    # ------------------------------------------------------------------ what must be

    def placed(self, key: str, pod: Json, machine: Machine) -> None:
        """Judge a pod on cards that were in mode MIG for long: its instances are large enough, and all are known."""
        lately = [machine.profiles]
        lately += [
            was for until_s, name, was in self._before if name == machine.name and until_s > CLOCK.now_s - CLOCK.late_s
        ]
        if not all(lately):
            return
        self._world.counts["instances: placed"] += 1
        mine = shares_of(pod, machine.kind.assigned)
        wanted = [share.mib for count, share in filter(None, asks(pod, machine.kind)) for _ in range(count)]
        if len(mine) != len(wanted) or not any(
            all(_mib(profiles, share.place) >= least for share, least in zip(mine, wanted, strict=True))
            for profiles in lately
        ):
            self._world.find("oversold", f"{key} asked {wanted} on {machine.name}, and has {mine}")
        cards = {share.card for share in mine}
        for name, other in self.pods_on(machine.name):
            for share in shares_of(other, machine.kind.assigned) if name != key else ():
                if share.card in cards and not share.place:
                    self._world.find("oversold", f"{key} is on {share.card}, of which {name} has a part without place")


def _mib(profiles: tuple[Profile, ...], place: str) -> int:
    """What an instance has; 0 if there is none at this place."""
    start, _, size = place.partition("+")
    return max((one.mib for one in profiles if size == str(one.size) and int(start) in one.starts), default=0)
