"""What the policy `pack` has learnt: its tables as metrics, and the answer of /v1/packing."""

from typing import Any, Final

from controller.metrics import Metrics
from core.placing.learning import Learning
from core.placing.pack import STEPS

# Where the metric reads a table: a quarter of a card free, a half, three quarters, all of it.
_TOLD_PCT: Final = (25, 50, 75, 100)


def show(metrics: Metrics, learning: Learning) -> None:
    """Let the metrics say what the tables in force say."""
    metrics.packing_pods.set(learning.made_of)
    metrics.packing_loss.clear()
    for one in learning.known:
        for free_pct in _TOLD_PCT:
            metrics.packing_loss.labels(one.dialect, one.card, free_pct).set(one.table.loss[free_pct] / STEPS)


def answer(learning: Learning) -> dict[str, Any]:
    """The tables in full.

    loss: hundredths of a card that are expected never to be sold, by how many are free of it, 0 to 100. per_step: what
    of each resource of a node goes with a hundredth. scarce: 0 to 1, how surely such a resource runs out first.
    """
    return {
        "pods": learning.made_of,
        "requests": len(learning.mix.requests),
        "cards": [
            {
                "dialect": one.dialect,
                "card": one.card,
                "cards": one.cards,
                "loss": [round(loss, 3) for loss in one.table.loss],
                "per_step": dict(one.table.per_step),
                "scarce": one.table.scarce,
            }
            for one in learning.known
        ],
    }
