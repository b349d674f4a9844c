"""Where a pod may be, by nodes, other pods and volumes, and its preferences.

From its spec's JSON to `NodeConstraints`, `PeerTerms`, `PodVolumes` and `Wishes`.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain
from typing import Final

import msgspec

from core.model import (
    NO_PEERS,
    NO_VOLUMES,
    NO_WISHES,
    Disk,
    NodeConstraints,
    PeerTerm,
    PeerTerms,
    PodVolumes,
    Spread,
    Toleration,
    Wishes,
)
from core.wire import reading
from core.wire.objects import Presence, Selector, Term, Terms, alternatives, requirements, selector_of

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_ANYWAY: Final = "ScheduleAnyway"


class _PreferredNode(msgspec.Struct, frozen=True, gc=False):
    weight: int = 0
    preference: Term = Term()


class _NodeAffinity(msgspec.Struct, frozen=True, gc=False):
    required: Terms | None = msgspec.field(default=None, name=_REQUIRED)
    preferred: tuple[_PreferredNode, ...] | None = msgspec.field(default=None, name=_PREFERRED)


class _PodTerm(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    topology_key: str = ""
    label_selector: Selector | None = None
    namespaces: tuple[str, ...] | None = None
    namespace_selector: Selector | None = None
    match_label_keys: tuple[str, ...] | None = None
    mismatch_label_keys: tuple[str, ...] | None = None


class _PreferredPods(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    weight: int = 0
    pod_affinity_term: _PodTerm = _PodTerm()


class _PodAffinity(msgspec.Struct, frozen=True, gc=False):
    required: tuple[_PodTerm, ...] | None = msgspec.field(default=None, name=_REQUIRED)
    preferred: tuple[_PreferredPods, ...] | None = msgspec.field(default=None, name=_PREFERRED)


class Affinity(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A pod's affinity to nodes and to other pods."""

    node_affinity: _NodeAffinity | None = None
    pod_affinity: _PodAffinity | None = None
    pod_anti_affinity: _PodAffinity | None = None


class TolerationObject(msgspec.Struct, frozen=True, gc=False):
    """One toleration."""

    key: str | None = ""
    operator: str | None = ""
    value: str | None = ""
    effect: str | None = ""


class SpreadObject(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One topology spread constraint."""

    when_unsatisfiable: str = ""
    topology_key: str = ""
    max_skew: int | None = 1
    label_selector: Selector | None = None
    min_domains: int | None = 1
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] | None = None


_ANYWHERE: Final = NodeConstraints()


def constraints_of(
    node_selector: dict[str, str] | None, affinity: Affinity | None, tolerated: tuple[TolerationObject, ...] | None
) -> NodeConstraints:
    """Return a pod's required constraints on its node."""
    near = affinity.node_affinity if affinity else None
    required = near.required if near else None
    if not node_selector and required is None and not tolerated:
        return _ANYWHERE
    selector = tuple(sorted(node_selector.items())) if node_selector else ()
    tolerations = tolerated or ()
    if reading.is_short(_written(selector, required, tolerations)):
        return _shared_constraints(selector, required, tolerations)
    return _new_constraints(selector, required, tolerations)


def _written(
    selector: tuple[tuple[str, str], ...], required: Terms | None, tolerations: tuple[TolerationObject, ...]
) -> Iterator[str]:
    """Yield all text in the constraints."""
    yield from chain.from_iterable(selector)
    for one in tolerations:
        yield from (one.key or "", one.operator or "", one.value or "", one.effect or "")
    for term in (required.node_selector_terms or ()) if required else ():
        for expression in (*(term.match_expressions or ()), *(term.match_fields or ())):
            yield from (expression.key, expression.operator, *(expression.values or ()))


def _new_constraints(
    selector: tuple[tuple[str, str], ...], required: Terms | None, tolerations: tuple[TolerationObject, ...]
) -> NodeConstraints:
    return NodeConstraints(
        selector=selector,
        affinity=None if required is None else alternatives(required),
        tolerations=tuple(
            Toleration(key=t.key or "", operator=t.operator or "Equal", value=t.value or "", effect=t.effect or "")
            for t in tolerations
        ),
    )


# One value for all pods with equal constraints, so that comparisons are mostly by identity.
_shared_constraints: Final = lru_cache(maxsize=1 << 13)(_new_constraints)


def peers_of(affinity: Affinity | None, spread: tuple[SpreadObject, ...] | None) -> PeerTerms:
    """Return a pod's requirements on other pods."""
    near = affinity.pod_affinity.required if affinity and affinity.pod_affinity else None
    apart = affinity.pod_anti_affinity.required if affinity and affinity.pod_anti_affinity else None
    hard = [one for one in spread or () if one.when_unsatisfiable != _ANYWAY]
    if not near and not apart and not hard:
        return NO_PEERS
    found = PeerTerms(
        affinity=tuple([_peer_term(one) for one in near or ()]),
        anti_affinity=tuple([_peer_term(one) for one in apart or ()]),
        spread=tuple([_spread(one) for one in hard]),
    )
    return _shared_peers(found) if reading.is_short(_texts(found)) else found


def wishes_of(affinity: Affinity | None, spread: tuple[SpreadObject, ...] | None) -> Wishes:
    """Return a pod's preferences about its node."""
    nodes = affinity.node_affinity.preferred if affinity and affinity.node_affinity else None
    near = affinity.pod_affinity.preferred if affinity and affinity.pod_affinity else None
    apart = affinity.pod_anti_affinity.preferred if affinity and affinity.pod_anti_affinity else None
    soft = [one for one in spread or () if one.when_unsatisfiable == _ANYWAY]
    if not (nodes or near or apart or soft):
        return NO_WISHES
    terms = ((one.weight, requirements(one.preference)) for one in nodes or ())
    found = Wishes(
        # A term without expressions and fields has no effect.
        nodes=tuple([(weight, term) for weight, term in terms if term]),
        near=(
            *[(one.weight, _peer_term(one.pod_affinity_term)) for one in near or ()],
            *[(-one.weight, _peer_term(one.pod_affinity_term)) for one in apart or ()],
        ),
        spread=tuple([_spread(one) for one in soft]),
    )
    return _shared_wishes(found) if reading.is_short(_texts_of_wishes(found)) else found


def _peer_term(found: _PodTerm) -> PeerTerm:
    return PeerTerm(
        topology_key=found.topology_key,
        selector=selector_of(found.label_selector),
        namespaces=found.namespaces or (),
        namespace_selector=selector_of(found.namespace_selector),
        label_keys=found.match_label_keys or (),
        other_label_keys=found.mismatch_label_keys or (),
    )


def _spread(found: SpreadObject) -> Spread:
    return Spread(
        topology_key=found.topology_key,
        max_skew=1 if found.max_skew is None else found.max_skew,
        selector=selector_of(found.label_selector),
        min_domains=1 if found.min_domains is None else found.min_domains,
        by_affinity=found.node_affinity_policy != "Ignore",
        by_taints=found.node_taints_policy == "Honor",
        label_keys=found.match_label_keys or (),
    )


def _texts(found: PeerTerms) -> Iterator[str]:
    """Yield all text in the terms."""
    return _texts_of((*found.affinity, *found.anti_affinity), found.spread)


def _texts_of_wishes(found: Wishes) -> Iterator[str]:
    for _, wish in found.nodes:
        for requirement in wish:
            yield from (requirement.key, *requirement.values)
    yield from _texts_of([term for _, term in found.near], found.spread)


def _texts_of(terms: Iterable[PeerTerm], spread: Iterable[Spread]) -> Iterator[str]:
    for term in terms:
        yield from (term.topology_key, *term.namespaces, *term.label_keys, *term.other_label_keys)
        for requirement in (*(term.selector or ()), *(term.namespace_selector or ())):
            yield from (requirement.key, *requirement.values)
    for one in spread:
        yield from (one.topology_key, *one.label_keys)
        for requirement in one.selector or ():
            yield from (requirement.key, *requirement.values)


def _same(found: PeerTerms) -> PeerTerms:
    return found


# One value for all pods with equal requirements.
_shared_peers: Final = lru_cache(maxsize=1 << 12)(_same)


def _same_wishes(found: Wishes) -> Wishes:
    return found


_shared_wishes: Final = lru_cache(maxsize=1 << 12)(_same_wishes)


class _ClaimSource(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    claim_name: str = ""


class _GceDisk(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    pd_name: str = ""
    read_only: bool | None = False


class _AwsDisk(msgspec.Struct, frozen=True, gc=False):
    volume_id: str = msgspec.field(default="", name="volumeID")


class _Rbd(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    monitors: tuple[str, ...] | None = None
    pool: str | None = "rbd"
    image: str = ""
    read_only: bool | None = False


class _Iscsi(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    iqn: str = ""
    read_only: bool | None = False


class _ImageSource(msgspec.Struct, frozen=True, gc=False):
    reference: str | None = ""


class _Certificate(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    key_type: str | None = ""


class _Projection(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    pod_certificate: _Certificate | None = None


class _Projected(msgspec.Struct, frozen=True, gc=False):
    sources: tuple[_Projection, ...] | None = None


class VolumeObject(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One volume of a pod, with the fields that affect its node."""

    name: str = ""
    persistent_volume_claim: _ClaimSource | None = None
    # A generic ephemeral volume is a claim that is created for the pod and bound like any other.
    ephemeral: Presence | None = None
    # Disks that only one pod of a node may write, and that most clouds attach to one node at a time.
    gce_persistent_disk: _GceDisk | None = None
    aws_elastic_block_store: _AwsDisk | None = msgspec.field(default=None, name="awsElasticBlockStore")
    rbd: _Rbd | None = None
    iscsi: _Iscsi | None = None
    image: _ImageSource | None = None
    projected: _Projected | None = None

    @property
    def key_types(self) -> frozenset[str | None]:
        """The types of the keys for which it has certificates of the pod."""
        sources = (self.projected.sources if self.projected is not None else None) or ()
        return frozenset([one.pod_certificate.key_type for one in sources if one.pod_certificate is not None])


def volumes_of(found: tuple[VolumeObject, ...] | None) -> PodVolumes:
    """Return the volumes of a pod that conflict with other pods or bind it to nodes."""
    claims: list[str] = []
    ephemeral: list[str] = []
    disks: list[Disk] = []
    for one in found or ():
        if one.persistent_volume_claim is not None:
            claims.append(one.persistent_volume_claim.claim_name)
        elif one.ephemeral is not None:
            ephemeral.append(one.name)
        elif (disk := _disk(one)) is not None:
            disks.append(disk)
    if not (claims or ephemeral or disks):
        return NO_VOLUMES
    return PodVolumes(tuple(dict.fromkeys(claims)), tuple(ephemeral), tuple(disks))


def _disk(volume: VolumeObject) -> Disk | None:
    """Return the disk of *volume*. Source: kube-scheduler's plugin VolumeRestrictions, isVolumeConflict."""
    name = volume.name
    if (gce := volume.gce_persistent_disk) is not None:
        return Disk(name, (f"gcePersistentDisk {gce.pd_name}",), bool(gce.read_only))
    if (aws := volume.aws_elastic_block_store) is not None:
        return Disk(name, (f"awsElasticBlockStore {aws.volume_id}",))
    if (rbd := volume.rbd) is not None:
        image = f"{rbd.pool or 'rbd'}/{rbd.image}"
        return Disk(name, tuple([f"rbd {one} {image}" for one in rbd.monitors or ()]), bool(rbd.read_only))
    if (iscsi := volume.iscsi) is not None:
        return Disk(name, (f"iscsi {iscsi.iqn}",), bool(iscsi.read_only))
    return None
