"""What all players of device plugins have in common: cards, faults to inject, and the calls of kubelet."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, Self, TypeVar

from sandbox.client import PODS, WORLD_FAILED, ApiCalls, node_path
from sandbox.nodes.plugin_port import AllocateError, ContainerEnv
from sandbox.players.objects import annotate


class OptionsError(ValueError):
    """The description of a played plugin is unusable; the text names the key and what to write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One physical card: *model* as in NVML, memory in MiB."""

    id: str
    model: str
    memory_mib: int
    healthy: bool = True


@dataclass(slots=True, kw_only=True)
class Faults:
    """The faults to inject; a test may change these at any time.

    fail_next: this many of the next calls fail after a pod was chosen, with nothing written (nvidia 5.2, P15).
    silent: calls are never answered. delay_s: delay of a call in seconds. blind_release: the holder of the lock is
    checked only at the first try to release it (hami 3.5; up to v2.9.0 of NVIDIA's plugin, v1.4.0 of Ascend's); robbed:
    number of locks of other pods that were released this way.
    """

    fail_next: int = 0
    silent: bool = False
    delay_s: float = 0.0
    blind_release: bool = False
    robbed: int = 0

    async def before_call(self) -> None:
        """Delay a call as configured."""
        while self.silent:  # noqa: ASYNC110 - the switch is a plain field that tests flip from anywhere
            await asyncio.sleep(0.05)
        if self.delay_s > 0:
            await asyncio.sleep(self.delay_s)

    def fail_if_asked(self) -> None:
        """Use up one failure.

        Raises:
            AllocateError: a failure was left.
        """
        if self.fail_next > 0:
            self.fail_next -= 1
            raise AllocateError("failed to resolve the devices of the request")


class PluginOptions:
    """Reads the options of one plugin from plain data; `end` reports unknown keys."""

    def __init__(self, kind: str, values: Mapping[str, Any]) -> None:
        self.kind = kind
        self._left = dict(values)

    def whole(self, key: str, default: int) -> int:
        """Read a whole number above zero."""
        value = self._left.pop(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise OptionsError(f"{self.kind}: {key}: found {value!r}; write a whole number above zero")
        return value

    def number(self, key: str, default: float) -> float:
        """Read a number, zero or above."""
        value = self._left.pop(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            raise OptionsError(f"{self.kind}: {key}: found {value!r}; write a number")
        return float(value)

    def word(self, key: str, default: str, allowed: tuple[str, ...] = ()) -> str:
        """Read a text, one of *allowed* if that is given."""
        value = self._left.pop(key, default)
        if not isinstance(value, str) or (allowed and value not in allowed):
            remedy = f"write one of {', '.join(allowed)}" if allowed else "write a text"
            raise OptionsError(f"{self.kind}: {key}: found {value!r}; {remedy}")
        return value

    def cards(self, node_name: str, kind: str = "GPU") -> tuple[Card, ...]:
        """Read the cards, called ``<kind>-<node>-<i>`` unless they are named.

        Either ``model``, ``memory_mib`` and ``count``, or a list ``cards`` with one such entry per card.
        """
        model = self.word("model", "Tesla T4")
        memory_mib = self.whole("memory_mib", 15360)
        count = self.whole("count", 1)
        entries = self._left.pop("cards", [{}] * count)
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise OptionsError(f"{self.kind}: cards: write a list of entries with id, model, memory_mib and healthy")
        return tuple(
            Card(
                id=str(entry.get("id", f"{kind}-{node_name}-{i}")),
                model=str(entry.get("model", model)),
                memory_mib=int(entry.get("memory_mib", memory_mib)),
                healthy=bool(entry.get("healthy", True)),
            )
            for i, entry in enumerate(entries)
        )

    def faults(self) -> Faults:
        """Read the initial faults: ``fail_next``, ``silent``, ``delay_s`` and ``blind_release``."""
        return Faults(
            fail_next=int(self._left.pop("fail_next", 0)),
            silent=bool(self._left.pop("silent", False)),
            delay_s=self.number("delay_s", 0.0),
            blind_release=bool(self._left.pop("blind_release", False)),
        )

    def end(self) -> None:
        """Report keys that were not read.

        Raises:
            OptionsError: a key is unknown.
        """
        if self._left:
            raise OptionsError(f"{self.kind}: unknown keys {', '.join(sorted(self._left))}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CardSetup:
    """A plugin's configuration: the cards of its node."""

    cards: tuple[Card, ...]


_SetupT = TypeVar("_SetupT")
_CardsT = TypeVar("_CardsT", bound=CardSetup)


class Player(ABC, Generic[_SetupT]):
    """The plugin of one node; it answers the calls of kubelet one at a time.

    Attributes:
        faults: the faults to inject.
        meant_for: the uid of the pod whose assignment the last answered call used.
    """

    def __init__(self, node_name: str, setup: _SetupT, faults: Faults, api: ApiCalls) -> None:
        self.faults = faults
        self.meant_for = ""
        self._node_name = node_name
        self._setup = setup
        self._api = api

    @classmethod
    def from_options(cls, kind: str, node_name: str, options: Mapping[str, Any], api: ApiCalls) -> Self:
        """Build the plugin *kind* from plain data: the keys of `read` and of `Faults`.

        Raises:
            OptionsError: a key or value is invalid.
        """
        given = PluginOptions(kind, options)
        setup, faults = cls.read(given, node_name), given.faults()
        given.end()
        return cls(node_name, setup, faults, api)

    @classmethod
    @abstractmethod
    def read(cls, given: PluginOptions, node_name: str) -> _SetupT:
        """Read the plugin's configuration.

        Raises:
            OptionsError: a value is invalid.
        """

    @property
    @abstractmethod
    def resources(self) -> tuple[str, ...]:
        """The plugin's device lists in kubelet."""

    @abstractmethod
    async def start(self) -> None:
        """Write what the plugin writes on its node."""

    async def pods_here(self) -> tuple[Mapping[str, Any], ...]:
        """Return the pods of the node, in the API server's order."""
        return await self._api.list(PODS, field_selector=f"spec.nodeName={self._node_name}")

    async def note(self, notes: Mapping[str, str | None]) -> None:
        """Annotate the node; None removes a key."""
        await annotate(self._api, node_path(self._node_name), notes)

    @abstractmethod
    async def serve(self, resource: str, count: int) -> ContainerEnv:
        """Do the work of `allocate`."""

    async def allocate(self, resource: str, count: int) -> ContainerEnv:
        """Serve *count* devices of *resource* to a container.

        Raises:
            AllocateError: the plugin refuses, or the API server is unavailable.
        """
        await self.faults.before_call()
        try:
            return await self.serve(resource, count)
        except WORLD_FAILED as e:
            raise AllocateError(f"failed to reach the API server: {e}") from e


class CardPlayer(Player[_CardsT]):
    """A player whose configuration lists cards."""

    async def set_healthy(self, card_id: str, healthy: bool) -> None:
        """Set whether a card is healthy, and report it."""
        cards = tuple(replace(card, healthy=healthy) if card.id == card_id else card for card in self._setup.cards)
        self._setup = replace(self._setup, cards=cards)
        await self.report()

    async def report(self) -> None:
        """Write what the plugin writes if a card changes."""
        await self.start()
