"""All constraints of a ledger."""

from core.constraints.constraint import Constraint
from core.constraints.features import FEATURES
from core.constraints.node_affinity import NODE_AFFINITY
from core.constraints.ports import PORTS
from core.constraints.taints import TAINTS
from core.constraints.topology.counting import Topology, peers_constraint
from core.constraints.volumes import Volumes, reach_of_volumes, uses_of_volumes


def every(topology: Topology, volumes: Volumes) -> tuple[Constraint, ...]:
    """Return all constraints of a ledger, in the order in which obstacles are reported.

    topology, volumes: the pods of that ledger by their places, and by the volumes that they use.
    """
    return (
        TAINTS,
        NODE_AFFINITY,
        reach_of_volumes(volumes),
        FEATURES,
        PORTS,
        peers_constraint(topology),
        uses_of_volumes(volumes),
    )
