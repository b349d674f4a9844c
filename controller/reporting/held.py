"""Reports what force-deleted pods still hold; no object of the API server shows this."""

from typing import Any

from controller.deciding.scheduler import Scheduler


def held(scheduler: Scheduler, now_s: float) -> dict[str, Any]:
    """Return the answer of ``GET /v1/held``; *now_s*: monotonic.

    held: for each such pod its namespace/name, node, whether the node is ready, left_s (seconds; they restart while the
    node is not ready), and cards: protocol, card, share in words, amount in the card's unit, cores_pct.
    """
    ledger = scheduler.cluster.ledger
    found = []
    for one in scheduler.vanished.held(now_s):
        holding, state = ledger.holding(one.uid), ledger.states.get(one.node)
        if holding is None or state is None:
            continue
        cards = [
            {
                "protocol": name,
                "card": share.whole,
                "share": share.text,
                "amount": share.amount,
                "cores_pct": share.cores_pct,
            }
            for name, assignment, _ in holding.parts
            if assignment is not None
            for share in ledger.catalog.dialects[name].describe(assignment, state.offers.get(name, ()))
        ]
        ready = state.facts.ready
        found.append(
            {"pod": one.pod, "node": one.node, "node_ready": ready, "left_s": round(one.left_s, 1), "cards": cards}
        )
    return {"held": found}
