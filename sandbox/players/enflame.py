"""Plays Enflame's device plugin of one node for instances of slices of its cards (DRS).

It finds its pod by the size of the request, and creates the instance on the card that the pod names, whichever
container asks (hami-vendors 3.8).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from sandbox.client import ApiCalls, pod_path
from sandbox.nodes.plugin_port import AllocateError, ContainerEnv
from sandbox.players import objects
from sandbox.players.objects import annotations_of, limits_of
from sandbox.players.player import CardPlayer, CardSetup, Faults, PluginOptions

Json = Mapping[str, Any]

RESOURCE: Final = "enflame.com/drs-gcu"
REGISTER: Final = "enflame.com/gcu-drs-capacity"
# The minor number of the card, and the instance on it.
SEEN: Final = "ENFLAME_VISIBLE_DEVICES"
INSTANCE: Final = "TOPS_VISIBLE_DEVICES"
_TIME: Final = "enflame.com/gcu-assigned-time"
_SERVED: Final = "enflame.com/gcu-assigned"
MINOR: Final = "enflame.com/gcu-assigned-minor"
_INDEX: Final = "enflame.com/gcu-assigned-index"
_CONTAINERS: Final = "assigned-containers"
SLICES: Final = 6
PROFILES: Final = {"1g.6gb": "0", "2g.12gb": "1", "3g.24gb": "2", "6g.48gb": "3"}


class EnflamePlugin(CardPlayer[CardSetup]):
    """The plugin of one node."""

    def __init__(self, node_name: str, setup: CardSetup, faults: Faults, api: ApiCalls) -> None:
        super().__init__(node_name, setup, faults, api)
        self._made = 0

    @classmethod
    def read(cls, given: PluginOptions, node_name: str) -> CardSetup:
        """Read the keys of `PluginOptions.cards`."""
        return CardSetup(cards=given.cards(node_name, "GCU"))

    @property
    def resources(self) -> tuple[str, ...]:
        """The plugin's only device list in kubelet."""
        return (RESOURCE,)

    async def start(self) -> None:
        """Write the register and the node's resources; an unhealthy card has no slices, and is left out."""
        devices = [
            {"index": str(at), "minor": str(at), "capacity": SLICES}
            for at, card in enumerate(self._setup.cards)
            if card.healthy
        ]
        total, healthy = SLICES * len(self._setup.cards), SLICES * len(devices)
        await objects.advertise(self._api, self._node_name, {RESOURCE: total}, {RESOURCE: healthy})
        text = json.dumps({"devices": devices, "profiles": PROFILES}, separators=(",", ":"))
        await self.note({REGISTER: text})

    async def serve(self, resource: str, count: int) -> ContainerEnv:
        """Serve the oldest pending pod with a container of *count* slices that has no instance yet."""
        del resource
        pods = await self.pods_here()
        self.faults.fail_if_asked()
        waiting = [one for one in pods if one.get("status", {}).get("phase") == "Pending" and _time(one)]
        for pod in sorted(waiting, key=_time):
            told = json.loads(annotations_of(pod).get(_CONTAINERS, "{}"))
            name = next((name for name, asked in _asked(pod) if asked == count and not _is_done(told.get(name))), None)
            if name is None:
                continue
            notes = annotations_of(pod)
            self._made += 1
            told[name] = {**told.get(name, {}), "allocated": True, "instanceID": str(self._made)}
            patch = {_CONTAINERS: json.dumps(told, separators=(",", ":"))}
            if all(_is_done(told.get(other)) for other, _ in _asked(pod)):
                patch[_SERVED] = "true"
            await objects.annotate(self._api, pod_path(pod), patch)
            self.meant_for = pod["metadata"].get("uid", "")
            return {SEEN: notes.get(MINOR, ""), INSTANCE: f"DRS-{notes.get(_INDEX, '')}-{self._made}"}
        raise AllocateError(f"no pod with {count} slices waits on node {self._node_name}")


def _time(pod: Json) -> int:
    text = annotations_of(pod).get(_TIME, "")
    return int(text) if text.isdigit() else 0


def _asked(pod: Json) -> list[tuple[str, int]]:
    """Return the containers that ask for slices, and for how many."""
    limits = [(one["name"], limits_of(one).get(RESOURCE)) for one in pod["spec"]["containers"]]
    return [(name, int(text)) for name, text in limits if text]


def _is_done(told: Json | None) -> bool:
    return told is not None and told.get("allocated") is True
