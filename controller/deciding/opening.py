"""What it costs to open an idle node or card for a pod, in seconds that the pod had better wait instead.

A policy that packs is asked for so that some nodes and cards stay wholly free. Device plugins serve pods one after the
other, so that for a moment every node in use is busy; who then takes the next idle one spreads. What a placement opens
and leaves unused is a part of its node, from 0 to 1; a pod waits for a node in use for that part of
`turn_wait_max_s` and no longer. A policy that does not pack opens nothing at any cost.
"""

from math import floor
from typing import Final

from core.ledger import Ledger, Placement
from core.settings import Settings

# Waits are compared in so many parts of the longest, so that what is known of crowded nodes serves many pods.
_PARTS: Final = 32
# Who joins a line leaves this part of its time for hand-offs that take longer than was expected.
_JOINED: Final = 0.9


def left_idle(ledger: Ledger, placement: Placement) -> float:
    """How much of its node *placement* takes out of idleness and does not use, 0 to 1; 0 where nothing idle is opened.

    Of an idle node all that the pod does not take, of idle cards on a node in use the rest of these cards.
    """
    if placement.dialect is None:
        return 0.0
    dialect = ledger.catalog.dialects[placement.dialect]
    cards = ledger.states[placement.node].cards(placement.dialect)
    before, after = dialect.room(cards), dialect.room(dialect.take(cards, placement.assignment))
    # Of an idle node some cards may be unhealthy.
    opened = (before.idle - after.idle) / len(cards) if before.used_ppm else 1.0
    return max(opened - (after.used_ppm - before.used_ppm) / 1_000_000, 0.0)


def worth_s(settings: Settings, part: float) -> float:
    """How long a pod may wait altogether rather than open so that *part* of a node is left idle."""
    return settings.turn_wait_max_s * floor(part * _PARTS) / _PARTS


def joined_s(settings: Settings, part: float, waited_s: float) -> float:
    """How long a line may be that a pod joins rather than open so, which has *waited_s* behind it."""
    left = worth_s(settings, part) * _JOINED - waited_s
    step_s = settings.turn_wait_max_s / _PARTS
    return floor(left / step_s) * step_s if left > 0 else 0.0
