"""What pods ask by constraints, for shapes that tests make without a pod."""

from core.constraints.constraint import AskedConstraints, Constraints
from core.constraints.every import every
from core.constraints.topology.counting import Topology
from core.constraints.volumes import NO_NEEDS, Volumes
from core.model import Container, NodeConstraints, Pod, PodUid
from core.settings import NodeWeights

CONSTRAINTS = Constraints(every(Topology(), Volumes()))
_ANYWHERE = NodeConstraints()


def asking(constraints=_ANYWHERE, *, features=(), volumes=NO_NEEDS, ports=()) -> AskedConstraints:
    """What a pod asks that has *constraints*; volumes: what its volumes need of a node."""
    pod = Pod(
        uid=PodUid("p"),
        namespace="d",
        name="p",
        constraints=constraints,
        features=features,
        containers=(Container(name="c", host_ports=ports),),
    )
    found = CONSTRAINTS.asked_by(pod, NodeWeights())
    assert isinstance(found, AskedConstraints)
    return found._replace(node=(*found.node, *((("volumes", volumes),) if volumes != NO_NEEDS else ())))
