"""What a search found, promised in a ledger."""

from core.ledger import Ledger, Placement
from core.model import Pod, PodUid
from core.placing.decide import Found, Shape


def reserve(ledger: Ledger, name: str, shape: Shape, found: Found, asked_by: Pod | None = None) -> PodUid:
    """Promise what was *found* for *shape* to a pod called *name*, which is as *asked_by* if that is given; its uid."""
    uid = PodUid(name)
    ledger.reserve(
        Placement(
            pod=uid,
            pod_key=f"d/{name}",
            node=found.node,
            dialect=shape.dialect,
            assignment=found.placed.assignment,
            amounts=shape.taken,
            uses=shape.asked.use,
            asked_by=asked_by,
        )
    )
    return uid
