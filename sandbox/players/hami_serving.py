"""What HAMi's device plugins have in common: they register cards, and find their pod by the lock, or by a guess.

Every step follows the real plugins (hami 3.3, 3.4; ascend 2.2), over the API server, and so do the failures.
`ascend_hami_protocol` reads the annotations; each plugin decides what a pod gets.
"""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, NamedTuple, TypeVar

import aiohttp

from sandbox.client import ApiStatusError, PatchKind
from sandbox.nodes.plugin_port import AllocateError, ContainerEnv
from sandbox.players import ascend_hami_protocol as protocol
from sandbox.players import calls
from sandbox.players.calls import Api
from sandbox.players.hardware import Card, Faults

Json = Mapping[str, Any]
_CONFLICT: Final = 409
# The number of tries to release a lock, and the pause after the first try, which doubles (hami 3.4, 3.5).
_TRIES: Final = 5
_FIRST_PAUSE_S: Final = 0.1
_WORLD_FAILED: Final = (ApiStatusError, aiohttp.ClientError, TimeoutError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup(ABC):
    """A plugin's configuration: the cards of its node."""

    cards: tuple[Card, ...]

    @property
    @abstractmethod
    def resource(self) -> str:
        """The plugin's only device list in kubelet."""

    @property
    @abstractmethod
    def shares(self) -> int:
        """The number of kubelet devices for one card."""

    @property
    @abstractmethod
    def to_allocate(self) -> str:
        """The annotation of a pod from which the plugin removes devices."""

    @property
    def read(self) -> tuple[str, ...]:
        """The annotations that a pod must have."""
        return (self.to_allocate,)

    @abstractmethod
    def device(self, at: int, card: Card) -> Json:
        """Return *card*, the one at position *at*, as it is registered; zero and false fields are omitted."""

    @abstractmethod
    def notes(self) -> Mapping[str, str]:
        """Return what the plugin writes on its node."""

    def register(self) -> str:
        """Return the node's register (hami 2.1, ascend 1.4)."""
        devices = [self.device(at, card) for at, card in enumerate(self.cards)]
        return json.dumps(
            [{key: value for key, value in device.items() if value or isinstance(value, dict)} for device in devices],
            separators=(",", ":"),
        )


_SetupT = TypeVar("_SetupT", bound=Setup)


class Turn(NamedTuple):
    """The container that is served next: its position among all, its devices, and what is left for others, as text."""

    position: int
    devices: protocol.Segment
    left: str


class HamiLikePlugin(ABC, Generic[_SetupT]):
    """A plugin of one node; it answers the calls of kubelet one at a time.

    Attributes:
        faults: the faults to inject.
        meant_for: the uid of the pod whose assignment the last answered call used.
    """

    # The plugin's messages: it finds no pod to guess, an annotation is missing, and kubelet asks for another number.
    nobody = "no pending pod found on node"
    missing = "annotation {key} not found"
    mismatch = "device number not matched: asked {asked}, assigned {assigned}"

    def __init__(self, node_name: str, setup: _SetupT, faults: Faults, api: Api) -> None:
        self.faults = faults
        self.meant_for = ""
        self._node_name = node_name
        self._setup = setup
        self._api = api

    @property
    def resources(self) -> tuple[str, ...]:
        """The plugin's only device list in kubelet."""
        return (self._setup.resource,)

    async def start(self) -> None:
        """Write the register and the node's resources."""
        setup = self._setup
        total = len(setup.cards) * setup.shares
        healthy = sum(card.healthy for card in setup.cards) * setup.shares
        await calls.advertise(self._api, self._node_name, {setup.resource: total}, {setup.resource: healthy})
        await calls.annotate(self._api, calls.node_path(self._node_name), setup.notes())

    async def set_healthy(self, card_id: str, healthy: bool) -> None:
        """Set whether a card is healthy and register again."""
        cards = tuple(replace(card, healthy=healthy) if card.id == card_id else card for card in self._setup.cards)
        self._setup = replace(self._setup, cards=cards)
        await self.start()

    async def allocate(self, resource: str, count: int) -> ContainerEnv:
        """Serve the next container of the pod in the lock, or of the guessed pod.

        Raises:
            AllocateError: the plugin's own refusal, which it marks on the pod, or the API server is unavailable.
        """
        del resource
        await self.faults.before_call()
        try:
            return await self._serve(count)
        except _WORLD_FAILED as e:
            raise AllocateError(f"failed to reach the API server: {e}") from e

    @abstractmethod
    async def give(self, pod: Json, turn: Turn) -> ContainerEnv:
        """Return what the container of *turn* gets."""

    def ends(self, turn: Turn) -> bool:
        """Return whether the pod is marked as served after *turn*: after the first one, whatever is left (D-1)."""
        del turn
        return True

    async def _serve(self, asked: int) -> ContainerEnv:
        pod = await self._find()
        try:
            turn = self._turn(pod, asked)
            self.faults.fail_if_asked()
            env = await self.give(pod, turn)
            await calls.annotate(self._api, calls.pod_path(pod), {self._setup.to_allocate: turn.left})
        except (protocol.RequestError, AllocateError) as e:
            await self._end(pod, "failed")
            raise AllocateError(str(e)) from e
        if self.ends(turn):
            await self._end(pod, "success")
        self.meant_for = pod["metadata"].get("uid", "")
        return env

    def _turn(self, pod: Json, asked: int) -> Turn:
        notes = protocol.annotations_of(pod)
        for key in self._setup.read:
            if key not in notes:
                raise protocol.RequestError(self.missing.format(key=key))
        segments = protocol.decode(notes[self._setup.to_allocate])
        position, _, devices = protocol.next_request(segments, protocol.container_names(pod))
        if len(devices) != asked:
            raise protocol.RequestError(self.mismatch.format(asked=asked, assigned=len(devices)))
        return Turn(position, devices, protocol.erase(segments, position))

    async def _find(self) -> Json:
        node = await self._api.get(calls.node_path(self._node_name))
        lock = protocol.annotations_of(node).get(protocol.LOCK)
        try:
            named = protocol.locked_pod(lock) if lock is not None else None
        except protocol.RequestError as e:
            raise AllocateError(str(e)) from e
        if named is not None:
            # Phase, node and cards are ignored; for a pod that is gone, every call fails and the lock stays (HN-18,
            # D-3).
            return await self._api.get(calls.pod_path({"metadata": {"namespace": named[0], "name": named[1]}}))
        pods = await self._api.list(calls.PODS, field_selector=f"spec.nodeName={self._node_name}")
        found = protocol.guess(pods, self._node_name)
        if found is None:
            raise AllocateError(f"{self.nobody} {self._node_name}")
        return found

    async def _end(self, pod: Json, phase: str) -> None:
        await calls.annotate(self._api, calls.pod_path(pod), {protocol.BIND_PHASE: phase})
        for at in range(_TRIES):
            if await self._release(pod, asks=at == 0 or not self.faults.blind_release):
                return
            await asyncio.sleep(_FIRST_PAUSE_S * 2**at)

    async def _release(self, pod: Json, *, asks: bool) -> bool:
        """Release the lock, only of *pod* if the plugin *asks* for its holder; return False if the node has changed."""
        path = calls.node_path(self._node_name)
        node = await self._api.get(path)
        lock = protocol.annotations_of(node).get(protocol.LOCK)
        if lock is None or (asks and not protocol.releases(lock, pod)):
            return True
        meta = {"resourceVersion": node["metadata"]["resourceVersion"], "annotations": {protocol.LOCK: None}}
        try:
            await self._api.patch(path, {"metadata": meta}, PatchKind.STRATEGIC)
        except ApiStatusError as e:
            if e.status != _CONFLICT:
                raise
            return False
        self.faults.robbed += not protocol.releases(lock, pod)
        return True
