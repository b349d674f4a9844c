"""Plays the device plugins of HAMi's other vendors, each by its declaration.

They find their pod as HAMi's own plugins do, unless the declaration says otherwise (hami-vendors 3). Those of
`UNLOCKED` know of no lock and register nothing: their cards are in the capacity of the node.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from sandbox.client import ApiCalls, pod_path
from sandbox.nodes.plugin_port import AllocateError, ContainerEnv
from sandbox.players import ascend_hami_protocol as protocol
from sandbox.players import objects
from sandbox.players.hami_serving import HamiLikePlugin, Json, Setup, Turn
from sandbox.players.nvidia import NvidiaPlugin, NvidiaSetup
from sandbox.players.objects import annotations_of, limits_of, whole
from sandbox.players.player import Card, CardPlayer, CardSetup, Faults, PluginOptions

# What containers of all these vendors see here; real plugins mount device files.
SEEN: Final = "PLAYED_VISIBLE_DEVICES"
_NUMBER: Final = re.compile(r"[0-9]{1,9}", re.ASCII)


class Declared(NamedTuple):
    """One vendor's plugin.

    register: the annotation of the node, in JSON or in text. to_allocate: the annotation from which served devices are
    erased. type: of its cards in the register. shares: of each card. names: of the fields of the register, by HAMi's,
    where they are others; it has no more then. reads_lock: otherwise it takes the first pod that
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
    names: Mapping[str, str] = MappingProxyType({})


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
    "kunlun-xpu": Declared(
        "kunlunxin.com/vxpu",
        "hami.io/node-register-xpu",
        "hami.io/xpu-devices-to-allocate",
        "XPU-P800",
        has_json=True,
        shares=4,
    ),
    "metax-sgpu": Declared(
        "metax-tech.com/sgpu",
        "metax-tech.com/node-gpu-devices",
        "hami.io/metax-sgpu-devices-to-allocate",
        "Metax-SGPU",
        has_json=True,
        shares=16,
        names={
            "id": "uuid",
            "count": "totalDevCount",
            "devmem": "totalVRam",
            "devcore": "totalCompute",
            "numa": "numa",
            "health": "healthy",
        },
    ),
    "vastai": Declared(
        "vastaitech.com/va",
        "hami.io/node-va-register",
        "hami.io/Vastai-devices-to-allocate",
        "Vastai",
        has_json=True,
    ),
}

# The resources of cards that kubelet chooses, and the words of their assignments: only their number is promised.
WHOLE: Final[Mapping[str, str]] = {"metax-gpu": "metax-tech.com/gpu", "enflame-gcu": "enflame.com/gcu"}


@dataclass(frozen=True, slots=True, kw_only=True)
class VendorSetup(Setup):
    """The plugin's configuration: its vendor, and the cards of its node."""

    declared: Declared

    def notes(self) -> Mapping[str, str]:
        if self.declared.has_json:
            return {self.declared.register: self.register()}
        lines = [",".join(map(str, self.device(at, card).values())) for at, card in enumerate(self.cards)]
        return {self.declared.register: "".join(f"{line},hami:" for line in lines)}

    def device(self, at: int, card: Card) -> Json:
        """See `Setup`; in the order of a register in text."""
        of = self.declared
        found: dict[str, Any] = {
            "id": card.id,
            "count": of.shares,
            "devmem": card.memory_mib,
            "devcore": of.cores,
            "type": of.type,
        }
        health = card.healthy if of.has_json else str(card.healthy).lower()
        found |= {"numa": 0, "health": health, "index": at}
        return {of.names[key]: value for key, value in found.items() if key in of.names} if of.names else found


class VendorPlugin(HamiLikePlugin[VendorSetup]):
    """The plugin of one node."""

    mismatch = "device number not matched"

    @classmethod
    def read(cls, given: PluginOptions, node_name: str) -> VendorSetup:
        """Read the keys of `PluginOptions.cards`."""
        of = VENDORS[given.kind]
        cards = given.cards(node_name, given.kind.upper())
        return VendorSetup(declared=of, cards=cards, resource=of.resource, to_allocate=of.to_allocate, shares=of.shares)

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
        found = next((pod for pod in await self.pods_here() if protocol.is_allocating(pod, self._node_name)), None)
        if found is None:
            raise AllocateError(f"{self.nobody} {self._node_name}")
        return found


class WholePlugin(NvidiaPlugin):
    """The plugin of one node whose cards kubelet chooses."""

    @classmethod
    def read(cls, given: PluginOptions, node_name: str) -> NvidiaSetup:
        """Read the keys of `PluginOptions.cards`."""
        cards = given.cards(node_name, given.kind.upper())
        return NvidiaSetup(cards=cards, resource=WHOLE[given.kind], seen=SEEN)


class DeclaredUnlocked(NamedTuple):
    """The plugin of a vendor that knows of no lock: it takes the pod that waits on its node, and fails if several do.

    That is so for Cambricon (hami-vendors 3.1, VN-2); what others do is not known. sold: the resources, each with its
    amount of a card, or with the MiB of a unit if negative. assigned: the annotation with the cards of a pod. mark: one
    that is false until the pod is served, and true then; without it the plugin does not see the pod. profile: one that
    alone says on which card the plugin makes the share, as ``<index>_<cores>_<units of memory>``.
    """

    sold: Mapping[str, int]
    assigned: str
    mark: str = ""
    profile: str = ""


UNLOCKED: Final[Mapping[str, DeclaredUnlocked]] = {
    "cambricon": DeclaredUnlocked(
        {"cambricon.com/mlu.smlu.vcore": 100, "cambricon.com/mlu.smlu.vmemory": -256},
        "hami.io/cambricon-mlu-devices-allocated",
        "CAMBRICON_DSMLU_ASSIGHED",
        "CAMBRICON_DSMLU_PROFILE",
    ),
    "kunlun": DeclaredUnlocked({"kunlunxin.com/xpu": 1}, "hami.io/kunlun-allocated"),
    "mthreads": DeclaredUnlocked(
        {"mthreads.com/sgpu-core": 16, "mthreads.com/sgpu-memory": -512}, "hami.io/mthreads-vgpu-devices-allocated"
    ),
    "neuron": DeclaredUnlocked(
        {"aws.amazon.com/neuron": 1, "aws.amazon.com/neuroncore": 2},
        "hami.io/aws-neuron-devices-allocated",
        "NEURON_ALLOCATED",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class UnlockedSetup(CardSetup):
    """The plugin's configuration: its vendor, and the cards of its node."""

    declared: DeclaredUnlocked


class UnlockedPlugin(CardPlayer[UnlockedSetup]):
    """The plugin of one node."""

    def __init__(self, node_name: str, setup: UnlockedSetup, faults: Faults, api: ApiCalls) -> None:
        super().__init__(node_name, setup, faults, api)
        self._declared = setup.declared
        # By uid of a pod, the calls that were answered.
        self._answered: Counter[str] = Counter()

    @classmethod
    def read(cls, given: PluginOptions, node_name: str) -> UnlockedSetup:
        """Read the keys of `PluginOptions.cards`."""
        return UnlockedSetup(declared=UNLOCKED[given.kind], cards=given.cards(node_name, given.kind.upper()))

    @property
    def resources(self) -> tuple[str, ...]:
        """The plugin's device lists in kubelet."""
        return tuple(self._declared.sold)

    async def start(self) -> None:
        """Write the node's resources."""
        sold = {
            key: sum(each if each > 0 else card.memory_mib // -each for card in self._setup.cards)
            for key, each in self._declared.sold.items()
        }
        await objects.advertise(self._api, self._node_name, sold, sold)

    async def serve(self, resource: str, count: int) -> ContainerEnv:
        """Serve a container of the pod that waits; kubelet calls once for each of its resources."""
        waiting = [pod for pod in await self.pods_here() if self._waits(pod)]
        if len(waiting) != 1:
            raise AllocateError(f"{len(waiting)} pods wait for cards on node {self._node_name}, not one")
        (pod,) = waiting
        wanted, uid = self._calls_of(pod), pod["metadata"].get("uid", "")
        position, asked, amount = wanted[self._answered[uid]]
        if (asked, amount) != (resource, count):
            raise AllocateError(f"asked for {count} {resource}, but the pod that waits wants {amount} {asked}")
        self.faults.fail_if_asked()
        notes = annotations_of(pod)
        try:
            segments = protocol.decode(notes[self._declared.assigned])
        except protocol.HamiRequestError as e:
            raise AllocateError(str(e)) from e
        devices = segments[position] if position < len(segments) else ()
        ids = [one.id for one in devices]
        if self._declared.profile:
            ids = self._made(notes.get(self._declared.profile, ""), ids)
        self._answered[uid] += 1
        if self._answered[uid] == len(wanted) and self._declared.mark:
            await objects.annotate(self._api, pod_path(pod), {self._declared.mark: "true"})
        self.meant_for = uid
        return {SEEN: ",".join(ids)}

    def _made(self, profile: str, assigned: Sequence[str]) -> list[str]:
        """Return the card on which *profile* makes a share, named like those that are *assigned*."""
        fields = profile.split("_")
        if len(fields) != 3 or not all(_NUMBER.fullmatch(one) for one in fields):
            raise AllocateError(f"profile {profile!r} of the pod that waits cannot be read")
        if int(fields[0]) >= len(self._setup.cards):
            raise AllocateError(f"profile {profile!r} of the pod that waits is of no card")
        return [f"{one.rpartition('-')[0]}-{fields[0]}" for one in assigned]

    def _waits(self, pod: Json) -> bool:
        notes, uid = annotations_of(pod), pod["metadata"].get("uid", "")
        if pod.get("status", {}).get("phase", "Pending") != "Pending" or self._declared.assigned not in notes:
            return False
        mark = self._declared.mark
        return self._answered[uid] < len(self._calls_of(pod)) and (not mark or notes.get(mark) == "false")

    def _calls_of(self, pod: Json) -> list[tuple[int, str, int]]:
        """What kubelet asks for: (position of the container, resource, amount), in the order of its calls."""
        spec = pod["spec"]
        return [
            (at, key, whole(limits_of(one)[key]))
            for at, one in enumerate([*spec.get("initContainers", ()), *spec["containers"]])
            for key in sorted(limits_of(one))
            if key in self._declared.sold
        ]
