"""The cards of a played node, and the faults of its plugin."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sandbox.nodes.plugin_port import AllocateError


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


class Options:
    """Reads the options of one plugin from plain data; `end` reports unknown keys."""

    def __init__(self, kind: str, values: Mapping[str, Any]) -> None:
        self._kind = kind
        self._left = dict(values)

    def whole(self, key: str, default: int) -> int:
        """Read a whole number above zero."""
        value = self._left.pop(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise OptionsError(f"{self._kind}: {key}: found {value!r}; write a whole number above zero")
        return value

    def number(self, key: str, default: float) -> float:
        """Read a number, zero or above."""
        value = self._left.pop(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            raise OptionsError(f"{self._kind}: {key}: found {value!r}; write a number")
        return float(value)

    def word(self, key: str, default: str, allowed: tuple[str, ...] = ()) -> str:
        """Read a text, one of *allowed* if that is given."""
        value = self._left.pop(key, default)
        if not isinstance(value, str) or (allowed and value not in allowed):
            remedy = f"write one of {', '.join(allowed)}" if allowed else "write a text"
            raise OptionsError(f"{self._kind}: {key}: found {value!r}; {remedy}")
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
            raise OptionsError(f"{self._kind}: cards: write a list of entries with id, model, memory_mib and healthy")
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
            raise OptionsError(f"{self._kind}: unknown keys {', '.join(sorted(self._left))}")
