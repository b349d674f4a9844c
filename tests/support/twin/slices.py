"""Cards that Volcano's plugin cuts into MIG slices, by layouts that change as pods come and go.

Source: nvidia 1.7, 2.5, 3.6 and 4.2.
"""

from typing import Any, Final

from tests.support.twin.api import Json, Target
from tests.support.twin.judge import MODE
from tests.support.twin.machines import Geometry, Kind, Machine
from tests.support.twin.sides import Side

_MAP: Final = "kube-system/volcano-vgpu-device-config"
# By model: what a card has, and its layouts, each with slices of so many MiB, so many of them.
_MODELS: Final[dict[str, tuple[int, Geometry]]] = {
    "NVIDIA A30": (24576, {"group1": [(6144, 4)], "group2": [(12288, 2)], "group3": [(24576, 1)]}),
    "NVIDIA A100-SXM4-40GB": (
        40960,
        {
            "group1": [(5120, 7)],
            "group2": [(10240, 3), (5120, 1)],
            "group3": [(20480, 2)],
            "group4": [(40960, 1)],
        },
    ),
}
_MOST_MIB: Final = 100_000
_ASKED: Final = (3000, 5000, 6144, 9000, 10240, 12000, 20000, 24000, 40000)


def _text() -> str:
    lines = ["nvidia:", "  resourceCountName: volcano.sh/vgpu-number", "  knownMigGeometries:"]
    for model, (_, geometry) in _MODELS.items():
        lines += [f"  - models: ['{model.removeprefix('NVIDIA ')}']", "    allowedGeometries:"]
        for group, profiles in geometry.items():
            lines += [f"    - group: {group}", "      geometries:"]
            for at, (mib, count) in enumerate(profiles):
                lines.append(f"      - {{name: {group}-{at}g, memory: {mib}, count: {count}}}")
    return "\n".join(lines) + "\n"


class Slices(Side):
    """Nodes in mode MIG, and the table of their layouts."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        if not any(one.kind is Kind.VGPU for one in world.machines.values()):
            world.add_node("nm", Kind.VGPU, {"GPU-m-0": 0, "GPU-m-1": 0})
        found = [one for one in world.machines.values() if one.kind is Kind.VGPU]
        for machine in found[:1] + [one for one in found[1:] if self._draw.random() < 0.5]:
            self._cut(machine)
        self._publish()

    def _cut(self, machine: Machine) -> None:
        machine.model = self._draw.choice(sorted(_MODELS))
        mib, machine.geometry = _MODELS[machine.model]
        machine.cards = dict.fromkeys(machine.cards, mib)
        notes, status = machine.registered()
        self._world.api.write("nodes", machine.name, {"metadata": {"annotations": notes}, "status": status})

    def _publish(self) -> None:
        api = self._world.api
        if "kube-system" not in self.objects("namespaces"):
            api.create("namespaces", {"metadata": {"name": "kube-system"}})
        data = {"data": {"device-config.yaml": _text()}}
        if _MAP in self.objects("configmaps"):
            api.write("configmaps", _MAP, data)
        else:
            name = _MAP.partition("/")[2]
            api.create("configmaps", {"kind": "ConfigMap", "metadata": {"name": name}, **data}, "kube-system")

    # ------------------------------------------------------------------ users

    def dress(self, pod: Json) -> None:
        """Let a pod of Volcano's cards ask for what slices have, and perhaps for a mode."""
        draw, first = self._draw, pod["spec"]["containers"][0]
        limits = first["resources"]["limits"]
        if Kind.VGPU.resource not in limits or int(limits["volcano.sh/vgpu-memory"]) > _MOST_MIB:
            return  # it is not to fit anywhere
        if draw.random() < 0.7 and not pod["metadata"]["annotations"]:
            memory = {"volcano.sh/vgpu-memory": str(draw.choice(_ASKED))}
            limits = {**limits, **memory}
            requests = {**first["resources"]["requests"], **memory}
            pod["spec"] = {
                **pod["spec"],
                "containers": [{**first, "resources": {"limits": limits, "requests": requests}}],
            }
        if draw.random() < 0.5:
            notes = {**pod["metadata"]["annotations"], MODE: draw.choice(("mig", "mig", "hami-core"))}
            pod["metadata"]["annotations"] = notes

    def act(self) -> None:
        """The plugin restarts, or a card fails for a while; or somebody deletes the table."""
        draw, world = self._draw, self._world
        machine = draw.choice([one for one in world.machines.values() if one.geometry])
        dice = draw.random()
        if dice < 0.4:
            machine.stop_plugin(draw.choice((0.2, 3.0)))
        elif dice < 0.8:
            card = draw.choice(sorted(machine.cards))
            machine.reregister(machine.cards, set(machine.ill) ^ {card})
        elif _MAP in self.objects("configmaps"):
            world.api.delete(Target("configmaps", "kube-system", _MAP.partition("/")[2], ""), {})
            world.at(draw.choice((0.0, 4.0, 20.0)), self._publish)

    def calm(self) -> None:
        super().calm()
        # After others, who repair the configuration too.
        self._world.at(1.0, self._publish)
