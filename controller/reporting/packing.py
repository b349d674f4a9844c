"""The learned tables of policy `pack`, as metrics and as the answer of /v1/packing."""

from typing import Any, Final

from controller.metrics import Metrics
from core.placing.learning import Learning
from core.placing.pack import STEPS

# The metric samples a table at these free fractions of a card.
_TOLD_PCT: Final = (25, 50, 75, 100)


def show(metrics: Metrics, learning: Learning) -> None:
    """Set the metrics to the tables in force."""
    metrics.packing_pods.set(learning.made_of)
    metrics.packing_loss.clear()
    for one in learning.known:
        for free_pct in _TOLD_PCT:
            metrics.packing_loss.labels(one.dialect, one.card, free_pct).set(one.table.loss[free_pct] / STEPS)


def answer(learning: Learning) -> dict[str, Any]:
    """Return the complete tables.

    loss: hundredths of a card that will probably never be sold, by the number of free hundredths, 0 to 100. per_step:
    amount of each node resource that is used with one hundredth. scarce: 0 to 1, how likely such a resource runs out
    first.
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
