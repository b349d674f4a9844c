"""Settings and device-config.yaml that somebody edits, also to what cannot be read; some day all is repaired."""

from typing import Any, Final

from tests.support.twin.api import Target
from tests.support.twin.sides import MAPS, Side

_KEY: Final = "device-config.yaml"
_VGPU: Final = "kube-system/volcano-vgpu-device-config"
_HAMI: Final = "kube-system/hami-scheduler-device"
_BAD_SETTINGS: Final = (
    "policy: nonsense\n",
    "\tpolicy: {\n",
    "volume_wait_max_s: -1\n",
    "bind_in_flight_max: many\n",
    "no_such_key: 1\n",
    "- a\n- list\n",
    "preemption: 7\n",
    "keep_free_for_s: .nan\n",
)
_GOOD_MAPS: Final = (
    "nvidia:\n  resourceCountName: volcano.sh/vgpu-number\n",
    "nvidia:\n  deviceMemoryScaling: 1\n",
    "",
)
_BAD_MAPS: Final = (
    "nvidia: 3\n",
    "nvidia:\n  deviceMemoryScaling: none\n",
    "\t{",
    "vnpus:\n- chipName: 310P3\n",
    "nvidia:\n  migGeometries: 5\n",
)


class Texts(Side):
    """The configuration, as people edit it."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self._is_bad = False
        world.api.create("namespaces", {"metadata": {"name": "kube-system"}})

    def act(self) -> None:
        draw = self._draw
        if draw.random() < 0.5:
            if not self._is_bad:
                self._spoil()
            return
        self._write(draw.choice((_VGPU, _HAMI)), draw.choice((*_GOOD_MAPS, *_BAD_MAPS, None)))

    def _spoil(self) -> None:
        """Somebody makes a mistake in the settings, and notices it after a while."""
        draw, bad = self._draw, self._draw.choice(_BAD_SETTINGS)
        self._world.counts["settings: that cannot be read"] += 1
        good = self._world.settings.read_text(encoding="utf-8")
        self._is_bad = True
        self._world.set_up(bad if draw.random() < 0.5 else good + bad)

        def repair() -> None:
            self._is_bad = False
            self._world.set_up(good)

        self._world.at(draw.choice((1.0, 8.0, 20.0)), repair)

    def _write(self, key: str, text: str | None) -> None:
        namespace, _, name = key.partition("/")
        there = key in self.objects(MAPS)
        if text is None:
            if there:
                self._world.api.delete(Target(MAPS, namespace, name, ""), {})
        elif there:
            self._world.api.write(MAPS, key, {"data": {_KEY: text}})
        else:
            body = {"kind": "ConfigMap", "metadata": {"name": name}, "data": {_KEY: text}}
            self._world.api.create(MAPS, body, namespace)

    def calm(self) -> None:
        super().calm()
        self._write(_VGPU, None)
        self._write(_HAMI, None)
