"""Plays the device plugins of HAMi's other vendors that register their cards, each by its declaration.

They find their pod as HAMi's own plugins do, unless the declaration says otherwise (hami-vendors 3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sandbox.nodes.plugin_port import AllocateError, ContainerEnv
from sandbox.players import ascend_hami_protocol as protocol
from sandbox.players import calls
from sandbox.players.calls import Api
from sandbox.players.hami_serving import HamiLikePlugin, Json, Setup, Turn
from sandbox.players.hardware import Card, Options

# What containers of all these vendors see here; real plugins mount device files.
SEEN: Final = "PLAYED_VISIBLE_DEVICES"


class Declared(NamedTuple):
    """One vendor's plugin.

    register: the annotation of the node, in JSON or in text. to_allocate: the annotation from which served devices are
    erased. type: of its cards in the register. shares: of each card. reads_lock: otherwise it takes the first pod that
    is allocating, also one that has ended (hami-vendors 3.2).
    """

    resource: str
    register: str
    to_allocate: str
    type: str
    has_json: bool = False
    shares: int = 1
    cores: int = 100
    reads_lock: bool = True


VENDORS: Final[Mapping[str, Declared]] = {
    "amd": Declared(
        "amd.com/gpu",
        "hami.io/node-amd-register",
        "hami.io/amd-devices-to-allocate",
        "AMD Instinct MI210",
        has_json=True,
        shares=10,
        cores=104,
    ),
    "biren": Declared(
        "birentech.com/gpu",
        "hami.io/node-biren-register",
        "hami.io/Biren-devices-allocated",
        "Biren166M",
        has_json=True,
    ),
    "hygon": Declared(
        "hygon.com/dcunum",
        "hami.io/node-dcu-register",
        "hami.io/dcu-devices-to-allocate",
        "DCU-K100_AI",
        shares=4,
        reads_lock=False,
    ),
    "iluvatar": Declared(
        "iluvatar.ai/MR-V100-vgpu",
        "hami.io/node-MR-V100-register",
        "hami.io/MR-V100-devices-to-allocate",
        "MR-V100",
        shares=100,
    ),
    "vastai": Declared(
        "vastaitech.com/va",
        "hami.io/node-va-register",
        "hami.io/Vastai-devices-to-allocate",
        "Vastai",
        has_json=True,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class VendorSetup(Setup):
    """The plugin's configuration: its vendor, and the cards of its node."""

    declared: Declared

    @property
    def resource(self) -> str:
        """See `Setup`."""
        return self.declared.resource

    @property
    def shares(self) -> int:
        """See `Setup`."""
        return self.declared.shares

    @property
    def to_allocate(self) -> str:
        """See `Setup`."""
        return self.declared.to_allocate

    def notes(self) -> Mapping[str, str]:
        """See `Setup`."""
        if self.declared.has_json:
            return {self.declared.register: self.register()}
        lines = [",".join(map(str, self.device(at, card).values())) for at, card in enumerate(self.cards)]
        return {self.declared.register: "".join(f"{line},hami:" for line in lines)}

    def device(self, at: int, card: Card) -> Json:
        """See `Setup`; in the order of a register in text."""
        of = self.declared
        found = {"id": card.id, "count": of.shares, "devmem": card.memory_mib, "devcore": of.cores, "type": of.type}
        health = card.healthy if of.has_json else str(card.healthy).lower()
        return {**found, "numa": 0, "health": health, "index": at}


class VendorPlugin(HamiLikePlugin[VendorSetup]):
    """The plugin of one node."""

    mismatch = "device number not matched"

    async def give(self, pod: Json, turn: Turn) -> ContainerEnv:
        """Return the ids of the cards."""
        del pod
        return {SEEN: ",".join(one.id for one in turn.devices)}

    def ends(self, turn: Turn) -> bool:
        """Return whether no device is left."""
        return "," not in turn.left

    async def _find(self) -> Json:
        if self._setup.declared.reads_lock:
            return await super()._find()
        pods = await self._api.list(calls.PODS, field_selector=f"spec.nodeName={self._node_name}")
        found = next((pod for pod in pods if protocol.is_allocating(pod, self._node_name)), None)
        if found is None:
            raise AllocateError(f"{self.nobody} {self._node_name}")
        return found


def maker(kind: str) -> Callable[[str, Mapping[str, Any], Api], VendorPlugin]:
    """Return what builds the plugin *kind* from its node, its options as plain data, and an API client."""

    def from_options(node_name: str, options: Mapping[str, Any], api: Api) -> VendorPlugin:
        given = Options(kind, options)
        setup = VendorSetup(declared=VENDORS[kind], cards=given.cards(node_name, kind.upper()))
        faults = given.faults()
        given.end()
        return VendorPlugin(node_name, setup, faults, api)

    return from_options
