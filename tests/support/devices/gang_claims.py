"""Resource claims in the twin of gangs: devices that are in use through them, and that no pod gets such a card."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Any, Final

from controller.actions import Bind
from core.wire.resource_claims import resource_claim_from_object, resource_slice_from_object
from tests.support.devices.gang_cards import shares_of
from tests.support.devices.gang_state import GangState

_DRIVER: Final = "gpu.nvidia.com"
# No slice names it: it may be any card of its node.
_UNKNOWN: Final = "gpu-unknown"


class Claims:
    """Claims of single cards, and of devices that may be any card of their node: `GangState.claimed`."""

    def __init__(self, state: GangState) -> None:
        """Begin without any."""
        self._state: Final = state

    def change(self) -> None:
        """A device is claimed, or given back."""
        state, chance = self._state, self._state.chance
        if state.claimed and chance.random() < 0.5:
            closed = chance.choice(sorted(state.claimed))
            state.world.scheduler.uses.claims.drop(self._claim(closed))
            state.claimed.discard(closed)
            return
        name = chance.choice(sorted(state.nodes))
        cards = state.offers[name].cards
        closed = f"{name}-{chance.randrange(cards)}" if cards and chance.random() < 0.8 else name
        state.claimed.add(closed)
        state.world.scheduler.uses.claims.put(self._claim(closed))

    def show(self, name: str) -> None:
        """Show the devices of a node."""
        devices = [
            {"name": f"{name}-{at}", "attributes": {"uuid": {"string": f"{name}-{at}"}}}
            for at in range(self._state.offers[name].cards)
        ]
        pool = {"name": name, "generation": 1}
        spec: dict[str, Any] = {"driver": _DRIVER, "nodeName": name, "pool": pool, "devices": devices}
        self._state.world.scheduler.uses.slices.put(
            resource_slice_from_object({"metadata": {"name": name}, "spec": spec})
        )

    def show_all(self) -> None:
        """Show all devices and claims to a scheduler that knows none."""
        for name in self._state.nodes:
            self.show(name)
        for closed in sorted(self._state.claimed):
            self._state.world.scheduler.uses.claims.put(self._claim(closed))

    def _claim(self, closed: str) -> Any:
        node, _, at = closed.partition("-")
        result = {"request": "r", "driver": _DRIVER, "pool": node, "device": closed if at else _UNKNOWN}
        return resource_claim_from_object(
            {
                "metadata": {"namespace": "team", "name": f"claim-{closed}"},
                "status": {"allocation": {"devices": {"results": [result]}}},
            }
        )

    # ------------------------------------------------------------------ what must hold

    def look_at_new(self, places: Mapping[str, str], new: Set[str], sent: Iterable[Bind]) -> None:
        """Check that pods *new* have no claimed cards; which card a pod has is known once its Binding is *sent*."""
        state = self._state
        for name in sorted(new):
            if state.asked[name].cards and places[name] in state.claimed:
                state.faults.append(f"{name} is placed on {places[name]}, of which any card may be claimed")
        for bind in sent:
            cards = {share.card for share in shares_of(bind.annotations)} & state.claimed
            state.counts["cards sent beside claims"] += bool(state.claimed)
            if bind.pod.name in new and cards:
                state.faults.append(f"{bind.pod.name} is placed on claimed {sorted(cards)}")
