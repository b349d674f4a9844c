"""Settings of Volcano's plugin that are edited while pods run: the register follows when the plugin is restarted.

Source: nvidia 1.7, P7: `gpuMemoryFactor` is the unit of all memory, `deviceSplitCount` how many pods a card takes, and
`deviceMemoryScaling` has no effect.
"""

from typing import Any, Final

from tests.support.twin.api import Json
from tests.support.twin.clock import CLOCK
from tests.support.twin.machines import SLOTS, Kind, Machine
from tests.support.twin.sides import Side

_MAP: Final = "kube-system/volcano-vgpu-device-config"
_SOON: Final = (0.0, 3.0, 15.0)


class Units(Side):
    """The plugin's ConfigMap, and plugins that restart after an edit, or before it arrives."""

    is_second = False

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        if not any(one.kind is Kind.VGPU for one in world.machines.values()):
            world.add_node("nu", Kind.VGPU, {"GPU-u-0": 16000, "GPU-u-1": 16000})
        if "kube-system" not in self.objects("namespaces"):
            world.api.create("namespaces", {"metadata": {"name": "kube-system"}})
        self._factor, self._split, self._scaling = 1, SLOTS, 1.0
        # Until when a Binding may have been decided by another factor.
        self._doubted_until_s = 0.0
        self._publish()

    @property
    def _machines(self) -> list[Machine]:
        return [one for one in self._world.machines.values() if one.kind is Kind.VGPU and not one.is_cut]

    def _publish(self) -> None:
        lines = {
            "resourceCountName": "volcano.sh/vgpu-number",
            "deviceSplitCount": self._split,
            "deviceMemoryScaling": self._scaling,
            "gpuMemoryFactor": self._factor,
        }
        text = "nvidia:\n" + "".join(f"  {key}: {value}\n" for key, value in lines.items())
        self.configure(_MAP, text)

    # ------------------------------------------------------------------ operators

    def act(self) -> None:
        draw = self._draw
        if any(one.geometry for one in self._world.machines.values()):
            return  # another has this ConfigMap
        way = draw.choice(("factor", "factor", "split", "scaling"))
        self._world.counts[f"units: edits of the {way}"] += 1
        if way == "factor":
            self._factor = draw.choice((1, 2, 4))
            self._doubt()
        elif way == "split":
            self._split = draw.choice((2, 5, SLOTS))
        else:
            self._scaling = draw.choice((0.5, 1.0, 2.0))
        self._world.at(draw.choice(_SOON), self._publish)
        for machine in self._machines:
            self._world.at(draw.choice(_SOON), lambda machine=machine: self._restart(machine))

    def edit(self, factor: int) -> None:
        """Have so many MiB in a unit, in the ConfigMap and at once in all plugins."""
        self._factor = factor
        self._publish()
        for machine in self._machines:
            self._apply(machine)

    def _restart(self, machine: Machine) -> None:
        if not self.is_calm:
            self._doubt()
            machine.stop_plugin(0.5)
            self._apply(machine)

    def _apply(self, machine: Machine) -> None:
        if machine.factor != self._factor:
            machine.rescale(self._factor)
        if machine.slots != self._split:
            machine.reregister(machine.cards, machine.ill.keys(), slots=self._split)

    def _doubt(self) -> None:
        # The last plugin restarts, and the ConfigMap comes, within this.
        self._doubted_until_s = CLOCK.now_s + max(_SOON) + CLOCK.late_s

    def calm(self) -> None:
        super().calm()
        if any(one.geometry for one in self._world.machines.values()):
            return
        for machine in self._machines:
            self._apply(machine)
        # After others, who repair the configuration too.
        self._world.at(1.0, self._publish)
        for key, pod in list(self.objects("pods").items()):
            if any(pod["metadata"]["uid"] in one.doubtful for one in self._machines):
                self._world.delete(key)

    # ------------------------------------------------------------------ what must be

    def placed(self, key: str, pod: Json, machine: Machine) -> None:
        if CLOCK.now_s < self._doubted_until_s:
            machine.doubtful.add(pod["metadata"]["uid"])

    def shuns(self, machine: Machine) -> set[str]:
        """The cards of pods whose memory is in another unit: they are closed until those pods are gone."""
        pods = [pod for _, pod in self.pods_on(machine.name)]
        old = [pod for pod in pods if machine.units.get(pod["metadata"]["uid"], machine.factor) != machine.factor]
        return {share.card for pod in old for share in machine.shares(pod)}
