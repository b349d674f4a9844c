"""Where pods may be because of their volumes: what storage they need (`core.constraints.storage`), and its other users.

`needs` decides whether a pod's claims allow its placement, and on which nodes by their labels. `obstacles` judges, for
each node, what depends on the node's other pods (`VolumeUses`). A cluster whose pods have no claims has no extra cost.
Source: Kubernetes documentation, "Persistent Volumes", "Storage Classes", "Storage Capacity" and "Node-specific Volume
Limits"; kube-scheduler's plugins VolumeBinding, VolumeZone, VolumeRestrictions and NodeVolumeLimits.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from itertools import chain, islice, product
from operator import attrgetter
from typing import Final, NamedTuple

from core import names
from core.claims import Attachment, Claim, Driver, NodeDrivers, StorageClass, StorageKind, Volume
from core.constraints.constraint import Constraint, Obstacle, ReadScope, Seats, View, add
from core.constraints.storage import Storage
from core.errors import quoted
from core.model import NO_VOLUMES, Alternatives, Disk, NodeFacts, NodeName, Pod, Requirement, is_any, satisfies
from core.waiting import Cause, Wait

_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
_NAME: Final = "metadata.name"

# Limits of views, and of the refused nodes in all of them.
_VIEWS_MAX: Final = 4096
_STANDING_MAX: Final = 500_000
_NO_ZONE: Final = tuple([Requirement(key=key, operator="DoesNotExist") for key in names.ZONES])


class Attach(NamedTuple):
    """Volumes of one driver to attach for a pod: the number that no other pod uses, and claims that others use."""

    driver: str
    unused: int
    shared: tuple[str, ...] = ()


class VolumeUses(NamedTuple):
    """A pod's volumes that can conflict with other pods of a node; shared by pods with equal values."""

    disks: tuple[Disk, ...] = ()
    attach: tuple[Attach, ...] = ()


class ClaimVolumes(NamedTuple):
    """How an unbound claim can get its volume: *volumes* that could be its own, with where each is reached, best first.

    made: where its class creates one, one alternative of each; None: nowhere.
    """

    volumes: tuple[tuple[str, Alternatives | None], ...]
    made: tuple[Alternatives, ...] | None


class Needs(NamedTuple):
    """A pod's volume requirements on its node, one alternative of each; unbound: claims to bind after placement.

    shared: how these claims can get a volume each, smallest first, if several could get the same one.
    """

    nodes: tuple[Alternatives, ...] = ()
    unbound: tuple[str, ...] = ()
    shared: tuple[ClaimVolumes, ...] = ()


NO_NEEDS: Final = Needs()


class Binding(NamedTuple):
    """How a claim that waits for a node gets its volume there: *volume*, or if that is "", a new one."""

    claim: Claim
    volume: str = ""


class VolumeSeat(NamedTuple):
    """A pod's node, and its volumes that count there for other pods: claims as namespace/name, and disks."""

    node: NodeName
    claims: tuple[str, ...] = ()
    disks: tuple[Disk, ...] = ()


class _DiskUse:
    """How many pods of a node read a disk, and how many write it."""

    __slots__ = ("readers", "writers")

    def __init__(self) -> None:
        self.readers = 0
        self.writers = 0

    def copy(self) -> "_DiskUse":
        twin = _DiskUse()
        twin.readers, twin.writers = self.readers, self.writers
        return twin


class _UsesView(View):
    """The nodes that refuse pods with one `VolumeUses`."""

    __slots__ = ("refused", "uses")

    def __init__(self, uses: VolumeUses) -> None:
        super().__init__()
        self.uses: Final = uses
        self.refused: Final[set[NodeName]] = set()


class Volumes(Seats[VolumeSeat]):
    """The pods of one ledger by the volumes that they use; pods without volumes have no seats.

    Attributes:
        storage: the API server's state.
        unused: claims that no pod uses any more; the reader removes them.
    """

    def __init__(self, storage: Storage | None = None) -> None:
        """Begin without pods."""
        super().__init__()
        self.storage: Final = storage or Storage()
        self.unused: Final[dict[str, None]] = {}
        self._nodes: Final[dict[NodeName, None]] = {}
        self._views: Final[dict[VolumeUses, _UsesView]] = {}
        self._stale: Final[dict[_UsesView, None]] = {}
        self._moved: Final[dict[_UsesView, None]] = {}
        self._by_claim: Final[dict[str, dict[NodeName, int]]] = {}
        self._on_node: Final[dict[NodeName, dict[str, int]]] = {}
        self._disks: Final[dict[tuple[str, NodeName], _DiskUse]] = {}

    def fork(self) -> "Volumes":
        """Return the same pods and nodes, for trying."""
        twin = Volumes(self.storage)
        twin._nodes.update(self._nodes)
        twin.seats.update(self.seats)
        twin._by_claim.update({key: dict(nodes) for key, nodes in self._by_claim.items()})
        twin._on_node.update({node: dict(keys) for node, keys in self._on_node.items()})
        twin._disks.update({key: use.copy() for key, use in self._disks.items()})
        return twin

    # ------------------------------------------------------------------ what is there

    def set_node(self, facts: NodeFacts) -> None:
        """A node was added or changed."""
        if facts.name not in self._nodes:
            self._nodes[facts.name] = None
            self._touched(facts.name)

    def remove_node(self, name: NodeName) -> None:
        """A node was removed."""
        if name in self._nodes:
            del self._nodes[name]
            self._touched(name)

    def put(self, pod: Pod, node: NodeName) -> None:
        """*pod* is on *node*, whether or not that exists."""
        self.restore(pod.uid, VolumeSeat(node, claims_of(pod), pod.volumes.disks))

    def _move(self, seat: VolumeSeat, by: int) -> None:
        node = seat.node
        for key in seat.claims:
            add(self._by_claim.setdefault(key, {}), node, by)
            add(self._on_node.setdefault(node, {}), key, by)
            if not self._by_claim[key]:
                del self._by_claim[key]
                self.unused[key] = None
        if not self._on_node.get(node, True):
            del self._on_node[node]
        for disk in seat.disks:
            for name in disk.names:
                self._use(name, node, disk, by)
        self._touched(node)

    def _use(self, name: str, node: NodeName, disk: Disk, by: int) -> None:
        use = self._disks.setdefault((name, node), _DiskUse())
        if disk.read_only:
            use.readers += by
        else:
            use.writers += by
        if not (use.readers or use.writers):
            del self._disks[name, node]

    def _touched(self, node: NodeName) -> None:
        for view in self._views.values():
            view.dirty[node] = None
            self._stale[view] = None

    def touch_claim(self, key: str) -> None:
        """Handle a changed claim: its nodes may attach another volume."""
        for node in self._by_claim.get(key, ()):
            self._touched(node)

    def touch_volume(self, name: str) -> None:
        """Handle a changed volume: its claim's nodes and the nodes to which it is attached may change."""
        for node in self.storage.attached_to.get(name, ()):
            self._touched(node)
        volume = self.storage.volumes.get(name)
        if volume is not None:
            self.touch_claim(volume.claim)

    def set_limits(self, found: NodeDrivers) -> None:
        """Record the drivers of a node, and how many volumes it can attach."""
        if self.storage.set_limits(found):
            self._touched(found.node)

    def set_driver(self, driver: Driver) -> None:
        """Record an added or changed driver."""
        if self.storage.set_driver(driver):
            self._all_touched()

    def remove_driver(self, driver: Driver) -> None:
        """Record that a driver was removed."""
        if self.storage.remove_driver(driver.name):
            self._all_touched()

    def _all_touched(self) -> None:
        for node in self._nodes:
            self._touched(node)

    def set_attachment(self, found: Attachment) -> None:
        """Record that a volume is attached to a node."""
        for node in self.storage.set_attachment(found):
            self._touched(node)

    def remove_attachment(self, found: Attachment) -> None:
        """Record that a volume was detached from a node."""
        for node in self.storage.remove_attachment(found.name):
            self._touched(node)

    # ------------------------------------------------------------------ what a pod needs

    def needs(self, pod: Pod) -> Needs | Wait:
        """Return the requirements of *pod*'s claims on its node; or why no node takes it before one of them changes."""
        if pod.volumes is NO_VOLUMES or not (pod.volumes.claims or pod.volumes.ephemeral):
            return NO_NEEDS
        storage = self.storage
        if storage.unread:
            kinds = ", ".join(storage.unread)
            text = f"has volume claims, and cardshare could not list {kinds} yet: see its log, and its rights (`list`)"
            return Wait(Cause.NOT_JUDGED, text)
        nodes: list[Alternatives] = []
        unbound: list[str] = []
        for key in claims_of(pod):
            claim = storage.claims.get(key)
            if claim is None:
                return _missing(pod, key)
            wait = self._wait(pod, claim)
            if wait is not None:
                return wait
            if claim.bound:
                nodes += reach(storage.volumes[claim.volume])
            else:
                unbound.append(key)
                nodes += self._where(claim)
        return Needs(tuple(dict.fromkeys(nodes)), tuple(unbound), self._shared(pod) if len(unbound) > 1 else ())

    def _wait(self, pod: Pod, claim: Claim) -> Wait | None:
        """Return why no node takes a pod with this claim, whatever is free; None if one could."""
        told = f"volume claim {quoted(claim.key)}"
        if claim.key in _ephemeral(pod) and claim.pod_uid != pod.uid:
            text = f"{told} was not created for this pod's ephemeral volume of that name; delete the claim or the pod"
            return Wait(Cause.CLAIM_NOT_FOUND, text)
        if claim.deleting:
            return Wait(Cause.CLAIM_NOT_FOUND, f"{told} is being deleted; name another one")
        if claim.lost:
            return Wait(Cause.CLAIM_NOT_FOUND, f"{told} has lost its volume {quoted(claim.volume)}; restore it")
        if claim.once and self._in_use(claim.key, pod):
            text = f"{told} is ReadWriteOncePod, and another pod uses it; wait until that ends"
            return Wait(Cause.CLAIM_IN_USE, text)
        if claim.bound:
            if claim.volume in self.storage.volumes:
                return None
            text = f"{told} is bound to volume {quoted(claim.volume)}, which does not exist; restore it"
            return Wait(Cause.CLAIM_NOT_FOUND, text)
        return self._unbound(told, claim)

    def _unbound(self, told: str, claim: Claim) -> Wait | None:
        found = self.storage.classes.get(claim.storage_class)
        if claim.volume:
            return Wait(
                Cause.CLAIM_NOT_BOUND, f"{told} is not bound yet to volume {quoted(claim.volume)}, which it names"
            )
        if not claim.storage_class:
            return Wait(Cause.CLAIM_NOT_BOUND, f"{told} is not bound yet, and has no storage class")
        if found is None:
            return Wait(
                Cause.CLAIM_NOT_BOUND,
                f"{told} is not bound, and its storage class {quoted(claim.storage_class)} does not exist; create it",
            )
        if not found.waits:
            text = f"{told} is not bound yet; its storage class {quoted(found.name)} binds it at once: see its events"
            return Wait(Cause.CLAIM_NOT_BOUND, text)
        if not _makes(found) and claim.selected_node:
            text = (
                f"remove annotation {names.SELECTED_NODE} of {told}: its storage class {quoted(found.name)} "
                f"provisions no volume on node {quoted(claim.selected_node)}"
            )
            return Wait(Cause.CLAIM_NOT_BOUND, text)
        if not _makes(found) and not self._candidates(claim):
            text = f"no volume of storage class {quoted(found.name)} is free for {told}, and that class provisions none"
            return Wait(Cause.CLAIM_NOT_BOUND, text)
        return None

    # ------------------------------------------------------------------ claims that wait for a node

    def _where(self, claim: Claim) -> Iterator[Alternatives]:
        """Yield where a claim can be bound: on nodes that reach a suitable volume, or where its class creates one."""
        made = list(self._made(claim)) if _makes(self.storage.classes[claim.storage_class]) else None
        if claim.selected_node:
            yield ((Requirement(key=_NAME, operator="In", values=(claim.selected_node,), of_field=True),),)
            yield from made or ()
            return
        found = [volume.affinity for volume in self._candidates(claim)]
        if not found:
            yield from made or ()
            return
        if made == [] or any(one is None for one in found):
            return  # any node is suitable
        anywhere = dict.fromkeys(term for one in found for term in one or ())
        for both in product(*made) if made else ():
            anywhere[tuple(chain.from_iterable(both))] = None
        yield tuple(anywhere)

    def _made(self, claim: Claim) -> Iterator[Alternatives]:
        """Yield where the class of a claim creates volumes, one of each alternatives; nothing: on all nodes."""
        found = self.storage.classes[claim.storage_class]
        if found.topologies is not None:
            yield found.topologies
        driver = self.storage.drivers.get(found.provisioner)
        if driver is not None and driver.tells_capacity:
            there = tuple(self.storage.capacities.get(found.name, {}).values())
            enough = [one.nodes for one in there if one.nodes is not None and one.most_bytes >= claim.request_bytes]
            if () not in enough:
                yield _together(enough)

    def _candidates(self, claim: Claim) -> list[Volume]:
        """Return the volumes that *claim* could get on some node, smallest first; or those reserved for it alone."""
        volumes, promised = self.storage.volumes, self.storage.promised
        there = [volumes[name] for name in tuple(self.storage.by_class.get(claim.storage_class, ()))]
        found = [one for one in there if promised.get(one.name, claim.key) == claim.key and _could_hold(one, claim)]
        meant = [one for one in found if one.claim]
        return meant or sorted(found, key=lambda one: (one.capacity_bytes, one.name))

    def choose(self, pod: Pod, facts: NodeFacts) -> tuple[Binding, ...] | None:
        """Return how the unbound claims of *pod* get their volumes on this node; None: not all of them can."""
        claims = self._unbound_claims(pod)
        found = _one_each([self._wanted(one) for one in claims], facts)
        return tuple(map(Binding, claims, found)) if found is not None else None

    def _unbound_claims(self, pod: Pod) -> list[Claim]:
        """Return the unbound claims of *pod* in the order in which they get volumes: the smallest first."""
        claims = [self.storage.claims.get(key) for key in claims_of(pod)]
        unbound = [one for one in claims if one is not None and not one.bound]
        return sorted(unbound, key=lambda one: (one.request_bytes, one.key))

    def _wanted(self, claim: Claim) -> ClaimVolumes:
        found = self.storage.classes.get(claim.storage_class)
        volumes = () if claim.selected_node else self._candidates(claim)
        made = tuple(self._made(claim)) if found is not None and _makes(found) else None
        return ClaimVolumes(tuple([(one.name, one.affinity) for one in volumes]), made)

    def _shared(self, pod: Pod) -> tuple[ClaimVolumes, ...]:
        """Return how the unbound claims of *pod* can get a volume each; nothing if none could get that of another."""
        wanted = tuple(map(self._wanted, self._unbound_claims(pod)))
        names = [name for one in wanted for name, _ in one.volumes]
        return wanted if len(set(names)) < len(names) else ()

    def uses(self, pod: Pod) -> VolumeUses | None:
        """Return the volumes of *pod* that can conflict with others now; None if there are none."""
        unused: dict[str, int] = {}
        shared: dict[str, list[str]] = {}
        for key in claims_of(pod):
            driver, handle = self.storage.attached_by(key)
            if driver not in self.storage.limited and not self.storage.must_run(driver):
                continue
            unused.setdefault(driver, 0)
            if self._in_use(key, pod) or self.storage.is_shared(driver, handle):
                shared.setdefault(driver, []).append(key)
            else:
                unused[driver] += 1
        if not unused and not pod.volumes.disks:
            return None
        attach = [Attach(driver, count, tuple(sorted(shared.get(driver, ())))) for driver, count in unused.items()]
        return VolumeUses(pod.volumes.disks, tuple(sorted(attach)))

    def only_one_may_use(self, pods: Sequence[Pod]) -> Wait | None:
        """Return why *pods* cannot be placed together: two of them have a claim for one pod at a time."""
        seen: set[str] = set()
        for pod in pods:
            for key in claims_of(pod):
                claim = self.storage.claims.get(key)
                if claim is not None and claim.once and key in seen:
                    text = f"volume claim {quoted(key)} is ReadWriteOncePod, and pods that are placed together share it"
                    return Wait(Cause.CLAIM_IN_USE, f"{text}; give each a claim of its own")
                seen.add(key)
        return None

    def is_current(self, pod: Pod, uses: VolumeUses | None) -> bool:
        """Return whether *pod* still has these *uses*, and no other pod uses a claim that only one pod may use."""
        return self.uses(pod) == uses and not self._is_taken(pod)

    def _is_taken(self, pod: Pod) -> bool:
        claims = self.storage.claims
        return any(key in claims and claims[key].once and self._in_use(key, pod) for key in claims_of(pod))

    def _in_use(self, key: str, but_by: Pod) -> bool:
        """Return whether a pod besides *but_by* uses a claim."""
        return sum(self._by_claim.get(key, {}).values()) > (but_by.uid in self.seats)

    # ------------------------------------------------------------------ nodes

    def view(self, uses: VolumeUses) -> View:
        """Return the nodes that refuse pods with *uses* now; the same object as long as it is kept up."""
        view = self._views.pop(uses, None)
        if view is None:
            standing = sum([len(one.refused) for one in self._views.values()])
            while self._views and (len(self._views) >= _VIEWS_MAX or standing > _STANDING_MAX):
                oldest = self._views.pop(next(iter(self._views)))
                standing -= len(oldest.refused)
                self._stale.pop(oldest, None)
                self._moved.pop(oldest, None)
            view = _UsesView(uses)
            view.dirty = dict(self._nodes)
            self._refresh(view)
            view.forget_changes()
        # The last one is the most recently used.
        self._views[uses] = view
        if view.dirty:
            self._refresh(view)
        return view

    def _refresh(self, view: _UsesView) -> None:
        self._stale.pop(view, None)
        dirty, view.dirty = view.dirty, {}
        for name in dirty:
            refused = name in self._nodes and next(self.obstacles(view.uses, name), None) is not None
            if refused != (name in view.refused):
                view.flip(name, view.refused, refused=refused)
                self._moved[view] = None

    def freed(self) -> Set[VolumeUses]:
        """Return the uses for which a node has opened since the last call."""
        for view in list(self._stale):
            self._refresh(view)
        found = {view.uses for view in self._moved if view.opened}
        for view in self._moved:
            view.forget_changes()
        self._moved.clear()
        return found

    def refuses_new(self, uses: VolumeUses, labels: Mapping[str, str]) -> bool:
        """Return False: a new node has no pods, and nothing is attached to it."""
        return False

    def obstacles(self, uses: VolumeUses, node: NodeName) -> Iterator[Obstacle]:
        """Yield why *node* does not take a pod with *uses* now."""
        for disk in uses.disks:
            if self._is_held(disk, node):
                yield Obstacle(f"disk of volume {quoted(disk.volume)} in use", "has no pod that uses the same disk")
        limits, running = self.storage.limits.get(node), self.storage.running.get(node, ())
        for driver, unused, shared in uses.attach:
            if driver not in running and self.storage.must_run(driver):
                yield Obstacle(f"no CSI driver {driver}", f"has CSI driver {driver} installed")
            if limits is None or driver not in limits:
                continue
            used = self._attached(node, driver)
            more = unused + len({self.storage.attached_by(key)[1] for key in shared} - used)
            # As in kube-scheduler, a volume that is still attached but unused by pods counts separately.
            over = len(used | self.storage.handles_attached(node, driver)) + more - limits[driver]
            if more and over > 0:
                until = f"has {over} fewer volumes of {driver} attached (of {limits[driver]} that it can attach)"
                yield Obstacle(f"no capacity to attach volumes of {driver}", until)

    def _is_held(self, disk: Disk, node: NodeName) -> bool:
        found = (self._disks.get((name, node)) for name in disk.names)
        return any(use is not None and (use.writers or not disk.read_only) for use in found)

    def _attached(self, node: NodeName, driver: str) -> set[str]:
        pairs = map(self.storage.attached_by, self._on_node.get(node, ()))
        return {handle for by, handle in pairs if by == driver}


def claims_of(pod: Pod) -> tuple[str, ...]:
    """Return the claims of *pod* as namespace/name, including those of its ephemeral volumes."""
    volumes = pod.volumes
    if not (volumes.claims or volumes.ephemeral):
        return ()
    return (*(f"{pod.namespace}/{name}" for name in volumes.claims), *_ephemeral(pod))


def awaited(pod: Pod, storage: Storage) -> Iterator[tuple[StorageKind, str]]:
    """Yield the claims, volumes and classes whose change may affect the needs of *pod*."""
    if storage.unread and claims_of(pod):
        yield StorageKind.CLAIMS, ""
    for key in claims_of(pod):
        yield StorageKind.CLAIMS, key
        claim = storage.claims.get(key)
        if claim is not None and claim.volume:
            yield StorageKind.VOLUMES, claim.volume
        if claim is not None and not claim.bound:
            yield StorageKind.CLASSES, claim.storage_class


def _ephemeral(pod: Pod) -> tuple[str, ...]:
    return tuple([f"{pod.namespace}/{pod.name}-{volume}" for volume in pod.volumes.ephemeral])


def _makes(found: StorageClass) -> bool:
    """Return whether volumes of a class are created on demand."""
    return found.provisioner not in ("", _NO_PROVISIONER)


def _could_hold(volume: Volume, claim: Claim) -> bool:
    """Return whether *claim* could be bound to *volume*. Source: Kubernetes' volume controller, FindMatchingVolume."""
    if (
        volume.deleting
        or volume.block != claim.block
        or volume.capacity_bytes < claim.request_bytes
        or volume.attributes_class != claim.attributes_class
    ):
        return False
    if volume.claim:
        return volume.claim == claim.key and volume.claim_uid in ("", claim.uid)
    return (
        volume.available
        and claim.modes <= volume.modes
        and all(satisfies(volume.labels, one) for one in claim.selector or ())
    )


def _one_each(wanted: Iterable[ClaimVolumes], facts: NodeFacts) -> list[str] | None:
    """Return which volume of its own each claim gets on this node, "" for a new one; None: not all get one.

    Source: kube-scheduler's plugin VolumeBinding, which also gives each claim in turn the best that is left.
    """
    found: list[str] = []
    for one in wanted:
        near = (name for name, affinity in one.volumes if affinity is None or is_any(affinity, facts))
        name = next((name for name in near if name not in found), "")
        if not name and (one.made is None or not all(is_any(terms, facts) for terms in one.made)):
            return None
        found.append(name)
    return found


def _together(selectors: Sequence[tuple[Requirement, ...]]) -> Alternatives:
    """Return that one of *selectors* is met; those with one value of the same label are merged."""
    values: dict[str, dict[str, None]] = {}
    others: list[tuple[Requirement, ...]] = []
    for one in selectors:
        if len(one) == 1 and one[0].operator == "In":
            values.setdefault(one[0].key, {}).update(dict.fromkeys(one[0].values))
        else:
            others.append(one)
    same = [(Requirement(key=key, operator="In", values=tuple(found)),) for key, found in values.items()]
    return (*same, *others)


def _missing(pod: Pod, key: str) -> Wait:
    made = ", which its ephemeral volume will get" if key in _ephemeral(pod) else "; create it"
    return Wait(Cause.CLAIM_NOT_FOUND, f"volume claim {quoted(key)} does not exist{made}")


def reach(volume: Volume) -> Iterator[Alternatives]:
    """Yield which nodes reach *volume*, by their labels: one of each alternatives must be met."""
    if volume.affinity is not None:
        yield volume.affinity
    for key, values in volume.zones:
        within = (Requirement(key=key, operator="In", values=tuple(sorted(values))),)
        # A node without such a label counts as part of a cluster with a single zone.
        found = [_NO_ZONE, within]
        if key in names.OLD_ZONES:
            other = replace(within[0], key=names.OLD_ZONES[key])
            found.append((Requirement(key=key, operator="DoesNotExist"), other))
        yield tuple(found)


def reach_of_volumes(volumes: Volumes) -> Constraint:
    """Return the constraint that a node reaches the volumes of a pod, by its labels."""

    def signature(pod: Pod) -> Hashable | Wait | None:
        needs = volumes.needs(pod)
        if isinstance(needs, Wait):
            return needs
        return needs._replace(unbound=()) if needs.nodes or needs.shared else None

    return Constraint(
        name="volumes",
        reads=ReadScope.NODE,
        stated=attrgetter("volumes"),
        signature=signature,
        filter=_reaches,
        explain=_out_of_reach,
        woken_by=lambda pod: awaited(pod, volumes.storage),
    )


def uses_of_volumes(volumes: Volumes) -> Constraint:
    """Return the constraint that no other pod of a node uses a pod's disks, and that it can attach its volumes."""
    return Constraint(
        name="volumes in use",
        reads=ReadScope.PODS,
        stated=attrgetter("volumes"),
        signature=volumes.uses,
        filter=lambda uses, facts, held: facts.name not in volumes.view(uses).blocked,
        explain=lambda uses, facts, held: islice(volumes.obstacles(uses, facts.name), 1),
        tracker=volumes,
        together=volumes.only_one_may_use,
    )


def _reaches(needed: Needs, facts: NodeFacts, held: object) -> bool:
    return all(is_any(one, facts) for one in needed.nodes) and _one_each(needed.shared, facts) is not None


def _out_of_reach(needed: Needs, facts: NodeFacts, held: object) -> Iterator[Obstacle]:
    if not all(is_any(one, facts) for one in needed.nodes):
        instead = "use a volume that nodes with such cards can reach"
        yield Obstacle("node affinity of a volume of the pod", instead=instead)
    elif _one_each(needed.shared, facts) is None:
        yield Obstacle("too few volumes for the claims of the pod", "has a free volume for each claim of the pod")
