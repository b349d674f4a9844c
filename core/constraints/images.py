"""Which nodes have which container images, and the resulting preference among equally good nodes.

A node is scored as by kube-scheduler's plugin ImageLocality: by the sizes of the pod's images that it has, each
weighted by the fraction of nodes that have it. Scores only order nodes that are otherwise equal. So they are kept as
levels, which change rarely. For images that no pod has requested, only the nodes that have them are kept.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from core.constraints.constraint import ChangeLog, add
from core.model import Image, NodeName, Pod

# Bytes: an image below the first counts nothing, and above the second (per container) nothing more. Source: Kubernetes,
# pkg/scheduler/framework/plugins/imagelocality.
_LEAST: Final = 23 * 2**20
_MOST: Final = 1000 * 2**20
_FULL: Final = 100
# Limits of cached image sets and of the nodes in all of them, at about 100 bytes for each node: 30 MB.
_LIKINGS_MAX: Final = 1024
_STANDING_MAX: Final = 300_000
# The number of changed nodes that are logged individually.
_LOG_MAX: Final = 1 << 12


class WantedImages(NamedTuple):
    """The images that a pod needs, one for each container and image volume, and its number of containers."""

    names: tuple[str, ...]
    containers: int


class _Holders:
    """The nodes that have one image, and the sizes in bytes that they report, with the number of nodes for each."""

    __slots__ = ("nodes", "sizes")

    def __init__(self) -> None:
        self.nodes: Final[set[NodeName]] = set()
        self.sizes: Final[dict[int, int]] = {}


class Liking:
    """The preference of nodes for a set of images: a level for each node with some of them, 0 for all others.

    Attributes:
        names: the images, each once.
        dirty: nodes on which one of them was added or removed.
        log: nodes whose level may have changed.
        matters: whether there are nodes of different levels.
        top: the highest level of a node.
    """

    __slots__ = (
        "_counts",
        "_held",
        "_levels",
        "_total",
        "dirty",
        "log",
        "matters",
        "names",
        "top",
        "wanted",
    )

    def __init__(self, wanted: WantedImages) -> None:
        self.wanted: Final = wanted
        self.names: Final = tuple(dict.fromkeys(wanted.names))
        self.dirty: dict[NodeName, None] = {}
        self.matters = False
        self.top = 0
        # By node, its images as a bit set; the number of nodes with the same set; the level of each set.
        self._held: Final[dict[NodeName, int]] = {}
        self._counts: Final[dict[int, int]] = {}
        self._levels: dict[int, int] = {}
        self._total = 0
        self.log: Final = ChangeLog(_LOG_MAX)

    def level(self, name: NodeName) -> int:
        """Return the level of node *name*; only the order of levels has a meaning."""
        return self._levels.get(self._held.get(name, 0), 0)

    def nodes(self) -> Iterator[NodeName]:
        """Return the nodes above level 0."""
        return (name for name, held in self._held.items() if self._levels[held])

    @property
    def standing(self) -> int:
        """The number of nodes in it."""
        return len(self._held)

    def refresh(self, holders: dict[str, _Holders], total: int) -> None:
        """Apply changes: which nodes have the images, out of *total* nodes."""
        if not self.dirty and self._total == total:
            return
        dirty, self.dirty, self._total = self.dirty, {}, total
        for name in dirty:
            self._take(name, holders)
        levels = self._ranked(holders)
        if levels == self._levels:
            self.log.extend(dirty)
        else:
            self._levels = levels
            self.log.forget()
        without = total > len(self._held)
        there = {level for held, level in levels.items() if held or without}
        self.matters, self.top = len(there) > 1, max(there, default=0)

    def _take(self, name: NodeName, holders: dict[str, _Holders]) -> None:
        held = 0
        for at, image in enumerate(self.names):
            one = holders.get(image)
            if one is not None and name in one.nodes:
                held |= 1 << at
        before = self._held.pop(name, 0)
        if before:
            add(self._counts, before, -1)
        if held:
            self._held[name] = held
            add(self._counts, held, 1)

    def _ranked(self, holders: dict[str, _Holders]) -> dict[int, int]:
        """Return the level of each set of images: the number of lower scores."""
        points = {image: self._points(holders.get(image)) for image in self.names}
        scores = {held: self._score(held, points) for held in (0, *self._counts)}
        order = {score: level for level, score in enumerate(sorted(set(scores.values())))}
        return {held: order[score] for held, score in scores.items()}

    def _points(self, found: _Holders | None) -> int:
        """Return the value of one image on a node: its size, weighted by the fraction of nodes that have it."""
        if found is None:
            return 0
        spread = len(found.nodes) / self._total
        return int(max(found.sizes) * spread)

    def _score(self, held: int, points: dict[str, int]) -> int:
        there = {image for at, image in enumerate(self.names) if held >> at & 1}
        summed = sum([points[image] for image in self.wanted.names if image in there])
        most = _MOST * max(self.wanted.containers, 1)
        return _FULL * (min(max(summed, _LEAST), most) - _LEAST) // (most - _LEAST)


class Images:
    """The images of all nodes, by name.

    Attributes:
        holders: the nodes that have each image.
    """

    def __init__(self, *, standing_max: int = _STANDING_MAX) -> None:
        """Begin without nodes; *standing_max*: limit of the nodes in all cached preferences."""
        self._standing_max: Final = standing_max
        self._of_node: Final[dict[NodeName, tuple[Image, ...]]] = {}
        self.holders: Final[dict[str, _Holders]] = {}
        self._likings: Final[dict[WantedImages, Liking]] = {}
        self._asked: Final[dict[str, dict[Liking, None]]] = {}

    def set_node(self, name: NodeName, images: tuple[Image, ...]) -> None:
        """Record that node *name* was added or has other images."""
        before = self._of_node.get(name, ())
        self._of_node[name] = images
        if before != images:
            self._replace(name, _sizes(before), _sizes(images))

    def remove_node(self, name: NodeName) -> None:
        """Record that a node was removed."""
        self._replace(name, _sizes(self._of_node.pop(name, ())), {})

    def liking(self, pod: Pod) -> Liking | None:
        """Return the preference for the images of *pod*; None if they do not distinguish nodes."""
        wanted = WantedImages(pod.images, len(pod.containers) + len(pod.init_containers))
        liking = self._likings.pop(wanted, None) or self._new(wanted)
        self._likings[wanted] = liking
        liking.refresh(self.holders, len(self._of_node))
        return liking if liking.matters else None

    def _new(self, wanted: WantedImages) -> Liking:
        liking = Liking(wanted)
        for image in liking.names:
            self._asked.setdefault(image, {})[liking] = None
            if image in self.holders:
                liking.dirty.update(dict.fromkeys(self.holders[image].nodes))
        standing = len(liking.dirty) + sum([one.standing for one in self._likings.values()])
        while self._likings and (standing > self._standing_max or len(self._likings) >= _LIKINGS_MAX):
            oldest = self._likings.pop(next(iter(self._likings)))
            standing -= oldest.standing
            for image in oldest.names:
                del self._asked[image][oldest]
                if not self._asked[image]:
                    del self._asked[image]
        return liking

    def _replace(self, name: NodeName, before: dict[str, int], after: dict[str, int]) -> None:
        for image, size in before.items():
            if after.get(image) != size:
                self._changed(image, name, size, -1)
        for image, size in after.items():
            if before.get(image) != size:
                self._changed(image, name, size, 1)

    def _changed(self, image: str, name: NodeName, size: int, by: int) -> None:
        """Record that *image* of *size* bytes was added to or removed from *name*."""
        found = self.holders.get(image) or self.holders.setdefault(image, _Holders())
        add(found.sizes, size, by)
        if by > 0:
            found.nodes.add(name)
        else:
            found.nodes.discard(name)
        if not found.nodes:
            del self.holders[image]
        for liking in self._asked.get(image, ()):
            liking.dirty[name] = None


def _sizes(images: Iterable[Image]) -> dict[str, int]:
    """Return the images of a node by each of their names; for a repeated name the first."""
    found: dict[str, int] = {}
    for image in images:
        for name in image.names:
            found.setdefault(name, image.size_bytes)
    return found
