"""Cards that pods use through ResourceClaims, which another scheduler allocates; a DRA driver publishes the cards."""

from typing import Any, Final

from tests.support.twin.api import Event, Json, Target
from tests.support.twin.clock import CLOCK
from tests.support.twin.machines import Kind, Machine, Steps, shares_of
from tests.support.twin.sides import Side

_DRIVER: Final = "gpu.nvidia.com"


class Drivers(Side):
    """ResourceSlices and ResourceClaims of NVIDIA's driver."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self._names = 0
        # By node, the devices that its slice has: names to cards; a name is never given again.
        self._devices: dict[str, dict[str, str]] = {}
        self._generation = 0
        # (node, card): since when a claim has it.
        self._since: dict[tuple[str, str], float] = {}
        for machine in self._machines():
            self._publish(machine)
        world.spawn(self._run())

    def _machines(self) -> list[Machine]:
        return [one for _, one in sorted(self._world.machines.items()) if one.kind is not Kind.ASCEND]

    def _publish(self, machine: Machine) -> None:
        """The driver names the cards that it finds."""
        before = self._devices.get(machine.name, {})
        known = {card: name for name, card in before.items()}
        found: dict[str, str] = {}
        for card in machine.cards:
            if card not in known:
                self._names += 1
            found[known.get(card, f"gpu-{self._names}")] = card
        self._devices[machine.name] = found
        self._generation += 1
        devices = [{"name": name, "attributes": {"uuid": {"string": card}}} for name, card in found.items()]
        pool = {"name": machine.name, "generation": self._generation, "resourceSliceCount": 1}
        spec = {"driver": _DRIVER, "nodeName": machine.name, "pool": pool, "devices": devices}
        if machine.name in self.objects("resourceslices"):
            self._world.api.write("resourceslices", machine.name, {"spec": spec})
        else:
            self._world.api.create("resourceslices", {"metadata": {"name": machine.name}, "spec": spec})

    def _run(self) -> Steps:
        while True:
            yield 0.5 + self._draw.expovariate(0.5)
            for machine in self._machines():
                there = machine.name in self.objects("resourceslices")
                if not there or set(self._devices[machine.name].values()) != set(machine.cards):
                    self._publish(machine)
            for key, claim in list(self.objects("resourceclaims").items()):
                (result,) = claim["status"]["allocation"]["devices"]["results"]
                if result["device"] not in self._devices[result["pool"]]:
                    self._delete(key)

    def act(self) -> None:
        draw, claims = self._draw, sorted(self.objects("resourceclaims"))
        if claims and (draw.random() < 0.5 or len(claims) > 3):
            self._delete(draw.choice(claims))
            return
        machines = self._machines()
        if not machines or draw.random() < 0.1:
            if machines and (name := draw.choice(machines).name) in self.objects("resourceslices"):
                self._world.api.delete(Target("resourceslices", "", name, ""), {})
            return
        machine = draw.choice(machines)
        self._names += 1
        result = {
            "driver": _DRIVER,
            "pool": machine.name,
            "device": draw.choice(sorted(self._devices[machine.name])),
            "request": "r",
        }
        status = {"allocation": {"devices": {"results": [result]}}}
        name = f"r{self._names}"
        self._world.api.create("resourceclaims", {"metadata": {"name": name}, "spec": {}, "status": status}, "default")

    def _delete(self, key: str) -> None:
        self._world.api.delete(Target("resourceclaims", "default", key.partition("/")[2], ""), {})

    def calm(self) -> None:
        super().calm()
        for key in list(self.objects("resourceclaims")):
            if self._draw.random() < 0.5:
                self._delete(key)

    # ------------------------------------------------------------------ what must be

    def changed(self, resource: str, event: Event, obj: Json) -> None:
        if resource in ("resourceclaims", "resourceslices"):
            now = {(name, card) for name, one in self._world.machines.items() for card in self.shuns(one)}
            self._since = {one: self._since.get(one, CLOCK.now_s) for one in now}

    def shuns(self, machine: Machine) -> set[str]:
        """The cards of a node that claims have; all, if it is unknown which."""
        found: set[str] = set()
        there = machine.name in self.objects("resourceslices")
        for claim in self.objects("resourceclaims").values():
            (result,) = claim["status"]["allocation"]["devices"]["results"]
            if result["pool"] == machine.name:
                card = self._devices[machine.name].get(result["device"]) if there else None
                found |= {card} if card is not None else set(machine.cards)
        return found

    def placed(self, key: str, pod: Json, machine: Machine) -> None:
        for share in shares_of(pod, machine.kind.assigned):
            if self._since.get((machine.name, share.card), CLOCK.now_s) < CLOCK.now_s - CLOCK.late_s:
                self._world.find("claimed", f"{key} was placed on {share.card} of {machine.name}, which a claim has")
