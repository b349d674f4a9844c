"""Templates of Ascend chips that are edited while pods run; what a running pod has is what its template was.

Source: ascend 1.1, 1.8, 3.2, 4.3 and 6.3: the driver cuts a chip by the name of a template, and the ConfigMap says
which there are; a chip takes as many pods as the smallest goes into it, once the plugin is restarted.
"""

from typing import Any, Final

from tests.support.twin.judge import CUTS
from tests.support.twin.machines import ASCEND, ASCEND_MIB, TEMPLATES, Kind, Machine
from tests.support.twin.sides import Side

_MAP: Final = "kube-system/hami-scheduler-device"
# With these a chip takes as many pods as ever.
_TABLES: Final = (
    TEMPLATES,
    ("vir01", "vir04"),
    ("vir01", "vir02"),
    ("vir01",),
    ("vir01", "vir02_1c", "vir04"),
    ("vir01", "vir02", "vir04_3c"),
    ("vir01", "vir02_1c", "vir04_3c"),
)
_OTHERS: Final = (*_TABLES, ("vir02", "vir04"), ("vir04",), ())


class Templates(Side):
    """Nodes of HAMi's plugin for Ascend, and the ConfigMap with their templates."""

    is_second = False

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        if not any(one.kind is Kind.ASCEND for one in world.machines.values()):
            world.add_node("na", Kind.ASCEND, dict.fromkeys(("A-a-0", "A-a-1"), ASCEND_MIB))
        if "kube-system" not in self.objects("namespaces"):
            world.api.create("namespaces", {"metadata": {"name": "kube-system"}})
        self._tables = self._draw.choice((_TABLES, _OTHERS))
        self._now: tuple[str, ...] = TEMPLATES
        self._publish()

    @property
    def _machines(self) -> list[Machine]:
        return [one for one in self._world.machines.values() if one.kind is Kind.ASCEND]

    def _publish(self) -> None:
        for machine in self._machines:
            machine.templates = self._now
        cuts = (
            f"{{name: {name}, memory: {CUTS[name][0]}, aiCore: {CUTS[name][1]}, aiCPU: {CUTS[name][2]}}}"
            for name in self._now
        )
        text = (
            "vnpus:\n  hamiVnpuCore: false\n  configs:\n"
            f"  - chipName: 310P3\n    commonWord: {ASCEND}\n    resourceName: huawei.com/{ASCEND}\n"
            f"    resourceMemoryName: huawei.com/{ASCEND}-memory\n    memoryAllocatable: {ASCEND_MIB}\n"
            f"    memoryCapacity: 24576\n    aiCore: 8\n    aiCPU: 7\n    templates: [{', '.join(cuts)}]\n"
        )
        self.configure(_MAP, text)

    def act(self) -> None:
        """Somebody edits the table; the plugins are restarted some time."""
        if self.is_calm:
            return
        draw = self._draw
        self._world.counts["templates: edits"] += 1
        self.edit(draw.choice(self._tables))
        for machine in self._machines:
            self._world.at(draw.choice((0.0, 3.0, 15.0)), lambda machine=machine: self._restart(machine))

    def edit(self, table: tuple[str, ...]) -> None:
        """Have these templates in the ConfigMap."""
        self._now = table
        self._publish()

    def _restart(self, machine: Machine) -> None:
        least = min((CUTS[name][0] for name in self._now), default=ASCEND_MIB)
        if machine.slots != ASCEND_MIB // least:
            machine.stop_plugin(0.5)
            machine.reregister(machine.cards, machine.ill.keys(), slots=ASCEND_MIB // least)

    def calm(self) -> None:
        super().calm()
        for machine in self._machines:
            self._restart(machine)
        # After others, who repair the configuration too.
        self._world.at(1.0, self._publish)
