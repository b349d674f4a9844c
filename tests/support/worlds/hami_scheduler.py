"""HAMi's scheduler as far as others see it: its own pod, its accounts, and what it writes (hami 3.2, 5.1, 5.2)."""

import json
import time
from datetime import UTC, datetime
from typing import NamedTuple

from tests.support.worlds.controller_rig import PODS, Rig

NAME = "hami-scheduler"
_SYSTEM = "/api/v1/namespaces/kube-system/pods"
_ALLOCATED = "hami.io/vgpu-devices-allocated"


class Room(NamedTuple):
    """A card, and the memory that by its accounts is left there."""

    free_mib: int
    node: str
    card: str


class HamiScheduler:
    """It keeps nothing but what stands in nodes and pods, as the real one."""

    def __init__(self, world: Rig) -> None:
        self._world = world

    async def start(self):
        """Let its pod be there, as HAMi's chart labels it."""
        labels = {"app.kubernetes.io/component": NAME, "app.kubernetes.io/name": "hami"}
        spec = {"containers": [{"name": "vgpu-scheduler-extender", "image": "i"}]}
        await self._world.client.create(_SYSTEM, {"metadata": {"name": NAME, "labels": labels}, "spec": spec})

    async def stop(self):
        """Take its pod away."""
        await self._world.client.delete(f"{_SYSTEM}/{NAME}", grace_s=0)

    async def rooms(self):
        """Every card, the one with most memory left first."""
        used: dict[str, int] = {}
        for pod in await self._world.client.list(PODS):
            over = pod["status"].get("phase") in ("Succeeded", "Failed")
            if not over and pod["spec"].get("nodeName"):
                for entry in pod["metadata"].get("annotations", {}).get(_ALLOCATED, "").replace(";", "").split(":"):
                    if entry:
                        card, _, memory, _ = entry.split(",")
                        used[card] = used.get(card, 0) + int(memory)
        found = []
        for node in await self._world.client.list("/api/v1/nodes"):
            register = node["metadata"].get("annotations", {}).get("hami.io/node-nvidia-register", "[]")
            for card in json.loads(register):
                free = card["devmem"] - used.get(card["id"], 0)
                found.append(Room(free, node["metadata"]["name"], card["id"]))
        return sorted(found, reverse=True)

    async def place(self, name, memory_mib):
        """Give the one container of pod *name* a share of the card with most room, and bind it."""
        room = (await self.rooms())[0]
        assert room.free_mib >= memory_mib, (name, room)
        share = f"{room.card},NVIDIA,{memory_mib},0:;"
        devices = {"hami.io/vgpu-devices-to-allocate": share, _ALLOCATED: share}
        now = str(int(time.time()))
        await self._annotate(f"{PODS}/{name}", {"hami.io/vgpu-node": room.node, "hami.io/vgpu-time": now, **devices})
        lock = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ},default,{name}"
        await self._annotate(f"/api/v1/nodes/{room.node}", {"hami.io/mutex.lock": lock})
        await self._annotate(f"{PODS}/{name}", {"hami.io/bind-phase": "allocating", "hami.io/bind-time": now})
        target = {"kind": "Node", "name": room.node}
        await self._world.client.create(f"{PODS}/{name}/binding", {"metadata": {"name": name}, "target": target})

    async def _annotate(self, path, notes):
        await self._world.client.patch(path, {"metadata": {"annotations": notes}})
