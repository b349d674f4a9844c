"""Many pods at once on nodes whose device plugins serve one after the other, in a world without an outside."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush

from core.model import Node, NodeName, Pod
from tests.support.worlds.world import World


@dataclass(slots=True, kw_only=True)
class Burst:
    """What became of a burst: pod -> node, and pod -> seconds until its Binding was sent."""

    nodes: dict[str, NodeName] = field(default_factory=dict)
    waited_s: dict[str, float] = field(default_factory=dict)

    @property
    def used(self) -> int:
        """How many nodes are in use."""
        return len(set(self.nodes.values()))


def play(nodes: list[Node], pods: list[Pod], serves_s: Mapping[NodeName, float], **settings) -> Burst:
    """Show all *pods* at once; the plugin of each node serves what is bound there one by one, each in its seconds."""
    world = World(*nodes, **settings)
    world.has_no_kind()
    start_s, found = world.now_s, Burst()
    free_s: dict[NodeName, float] = defaultdict(lambda: start_s)
    ends: list[tuple[float, str]] = []
    world.adds(*pods)
    while len(found.nodes) < len(pods) or ends:
        for bind in world.binds():
            found.nodes[bind.pod.name] = bind.node
            found.waited_s[bind.pod.name] = world.now_s - start_s
            world.accepts(bind)
            free_s[bind.node] = max(free_s[bind.node], world.now_s) + serves_s[bind.node]
            heappush(ends, (free_s[bind.node], bind.pod.name))
        assert world.now_s < start_s + 3600.0, "pods wait that are never bound"
        world.now_s = min(ends[0][0] if ends else world.now_s + 0.25, world.now_s + 0.25)
        while ends and ends[0][0] <= world.now_s:
            world.serves(heappop(ends)[1])
    return found


def one_at_a_time(nodes: list[Node], pods: list[Pod], **settings) -> int:
    """How many nodes the same pods use if each is served before the next comes."""
    world = World(*nodes, **settings)
    for pod in pods:
        world.adds(pod)
        world.placed()
    return len({one.node_name for one in world.pods.values() if one.node_name})
