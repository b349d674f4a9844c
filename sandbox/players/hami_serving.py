"""What HAMi's device plugins have in common: they register cards, and find their pod by the lock, or by a guess.

Every step follows the real plugins (hami 3.3, 3.4; ascend 2.2), over the API server, and so do the failures.
`ascend_hami_protocol` reads the annotations; each plugin decides what a pod gets.
"""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from sandbox.client import ApiStatusError, PatchKind, node_path, pod_path
from sandbox.nodes.plugin_port import AllocateError, ContainerEnv
from sandbox.players import ascend_hami_protocol as protocol
from sandbox.players import objects
from sandbox.players.objects import annotations_of
from sandbox.players.player import Card, CardPlayer, CardSetup

Json = Mapping[str, Any]
_CONFLICT: Final = 409
# The number of tries to release a lock, and the pause after the first try, which doubles (hami 3.4, 3.5).
_TRIES: Final = 5
_FIRST_PAUSE_S: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup(CardSetup, ABC):
    """A plugin's configuration: the cards of its node.

    resource: the only device list in kubelet. to_allocate: the annotation of a pod from which the plugin removes
    devices. also: another annotation that a pod must have, "" if none. shares: kubelet devices for one card.
    """

    resource: str
    to_allocate: str
    also: str = ""
    shares: int = 1

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


class HamiLikePlugin(CardPlayer[_SetupT]):
    """A plugin of one node."""

    # The plugin's messages: it finds no pod to guess, an annotation is missing, and kubelet asks for another number.
    nobody = "no pending pod found on node"
    missing = "annotation {key} not found"
    mismatch = "device number not matched: asked {asked}, assigned {assigned}"

    @property
    def resources(self) -> tuple[str, ...]:
        """The plugin's only device list in kubelet."""
        return (self._setup.resource,)

    async def start(self) -> None:
        """Write the register and the node's resources."""
        setup = self._setup
        total = len(setup.cards) * setup.shares
        healthy = sum(card.healthy for card in setup.cards) * setup.shares
        await objects.advertise(self._api, self._node_name, {setup.resource: total}, {setup.resource: healthy})
        await self.note(setup.notes())

    @abstractmethod
    async def give(self, pod: Json, turn: Turn) -> ContainerEnv:
        """Return what the container of *turn* gets."""

    def decoded(self, value: str) -> tuple[protocol.Segment, ...]:
        """Return the segments of *value*; a plugin that checks more of it does so here."""
        return protocol.decode(value)

    def ends(self, turn: Turn) -> bool:
        """Return whether the pod is marked as served after *turn*: after the first one, whatever is left (D-1)."""
        del turn
        return True

    async def serve(self, resource: str, count: int) -> ContainerEnv:
        """Serve the next container of the pod in the lock, or of the guessed pod; mark refusals on the pod."""
        del resource
        pod = await self._find()
        try:
            turn = self._turn(pod, count)
            self.faults.fail_if_asked()
            env = await self.give(pod, turn)
            await objects.annotate(self._api, pod_path(pod), {self._setup.to_allocate: turn.left})
        except (protocol.HamiRequestError, AllocateError) as e:
            await self._end(pod, "failed")
            raise AllocateError(str(e)) from e
        if self.ends(turn):
            await self._end(pod, "success")
        self.meant_for = pod["metadata"].get("uid", "")
        return env

    def _turn(self, pod: Json, asked: int) -> Turn:
        notes = annotations_of(pod)
        for key in (self._setup.also, self._setup.to_allocate):
            if key and key not in notes:
                raise protocol.HamiRequestError(self.missing.format(key=key))
        segments = self.decoded(notes[self._setup.to_allocate])
        position, _, devices = protocol.next_request(segments, protocol.container_names(pod))
        if len(devices) != asked:
            raise protocol.HamiRequestError(self.mismatch.format(asked=asked, assigned=len(devices)))
        return Turn(position, devices, protocol.erase(segments, position))

    async def _find(self) -> Json:
        node = await self._api.get(node_path(self._node_name))
        lock = annotations_of(node).get(protocol.LOCK)
        try:
            named = protocol.locked_pod(lock) if lock is not None else None
        except protocol.HamiRequestError as e:
            raise AllocateError(str(e)) from e
        if named is not None:
            # Phase, node and cards are ignored; for a pod that is gone, every call fails and the lock stays (HN-18,
            # D-3).
            return await self._api.get(pod_path({"metadata": {"namespace": named[0], "name": named[1]}}))
        found = protocol.guess(await self.pods_here(), self._node_name)
        if found is None:
            raise AllocateError(f"{self.nobody} {self._node_name}")
        return found

    async def _end(self, pod: Json, phase: str) -> None:
        await objects.annotate(self._api, pod_path(pod), {protocol.BIND_PHASE: phase})
        for at in range(_TRIES):
            if await self._release(pod, asks=at == 0 or not self.faults.blind_release):
                return
            await asyncio.sleep(_FIRST_PAUSE_S * 2**at)

    async def _release(self, pod: Json, *, asks: bool) -> bool:
        """Release the lock, only of *pod* if the plugin *asks* for its holder; return False if the node has changed."""
        path = node_path(self._node_name)
        node = await self._api.get(path)
        lock = annotations_of(node).get(protocol.LOCK)
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
