"""What a search found, promised in a ledger."""

from core.ledger import Ledger, Placement
from core.model import PodUid
from core.placing.shape import Found, Shape


def reserve(ledger: Ledger, name: str, shape: Shape, found: Found) -> PodUid:
    """Promise what was *found* for *shape* to a pod called *name*; its uid."""
    uid = PodUid(name)
    ledger.reserve(
        Placement(
            pod=uid,
            pod_key=f"d/{name}",
            node=found.node,
            dialect=shape.dialect,
            assignment=found.placed.assignment,
            amounts=shape.amounts,
        )
    )
    return uid
