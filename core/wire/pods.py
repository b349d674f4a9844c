"""Pods: from the API server's JSON to `Pod`.

Only fields for placing and admission are read. `Pod.unjudged` names requests that no rule supports yet, so that the pod
waits with that reason and is never placed wrongly.
"""

import sys
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from itertools import chain
from typing import Final, NamedTuple

import msgspec

from core import names
from core.errors import InvalidRequestError, quoted
from core.model import (
    Container,
    NodeConstraints,
    PeerTerms,
    Phase,
    Pod,
    PodUid,
    PodVolumes,
    Wishes,
)
from core.wire import reading
from core.wire.objects import ObjectMeta, Owner, Presence, Time
from core.wire.pod_places import (
    Affinity,
    SpreadObject,
    TolerationObject,
    VolumeObject,
    constraints_of,
    peers_of,
    volumes_of,
    wishes_of,
)
from core.wire.reading import Quantity


class _Resources(msgspec.Struct, frozen=True, gc=False):
    limits: dict[str, Quantity] | None = None
    requests: dict[str, Quantity] | None = None


class _Port(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    host_port: int | None = 0
    protocol: str | None = "TCP"
    host_ip: str | None = msgspec.field(default="", name="hostIP")


class _RestartRule(msgspec.Struct, frozen=True, gc=False):
    action: str = ""


class _Mount(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    bind_mount_options: tuple[str, ...] | None = None


class _Profile(msgspec.Struct, frozen=True, gc=False):
    type: str | None = ""


class _Security(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    seccomp_profile: _Profile | None = None


class _Container(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    name: str = ""
    image: str | None = ""
    resources: _Resources | None = None
    restart_policy: str | None = None
    restart_policy_rules: tuple[_RestartRule, ...] | None = None
    volume_mounts: tuple[_Mount, ...] | None = None
    ports: tuple[_Port, ...] | None = None
    security_context: _Security | None = None


class _ResourceClaim(msgspec.Struct, frozen=True, gc=False):
    name: str = ""


class _SchedulingGroup(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    pod_group_name: str | None = ""


class _Spec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    containers: tuple[_Container, ...] | None = None
    init_containers: tuple[_Container, ...] | None = None
    node_name: str | None = ""
    host_network: bool | None = False
    host_users: bool | None = True
    scheduler_name: str | None = None
    service_account_name: str | None = None
    priority: int | None = 0
    preemption_policy: str | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: tuple[TolerationObject, ...] | None = None
    overhead: dict[str, Quantity] | None = None
    scheduling_gates: tuple[Presence, ...] | None = None
    scheduling_group: _SchedulingGroup | None = None
    workload_ref: Presence | None = None
    topology_spread_constraints: tuple[SpreadObject, ...] | None = None
    volumes: tuple[VolumeObject, ...] | None = None
    resource_claims: tuple[_ResourceClaim, ...] | None = None
    resources: _Resources | None = None
    security_context: _Security | None = None


class _Terminated(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    exit_code: int = 0


class _State(msgspec.Struct, frozen=True, gc=False):
    running: Presence | None = None
    terminated: _Terminated | None = None


class _ContainerStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    name: str = ""
    allocated_resources: dict[str, Quantity] | None = None
    resources: _Resources | None = None
    started: bool | None = None
    state: _State | None = None
    last_state: _State | None = None


class _Condition(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    status: str | None = ""
    reason: str | None = ""
    message: str | None = ""


class _Status(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    phase: str | None = ""
    reason: str | None = ""
    message: str | None = ""
    conditions: tuple[_Condition, ...] | None = None
    nominated_node_name: str | None = ""
    start_time: Time | None = None
    container_statuses: tuple[_ContainerStatus, ...] | None = None
    init_container_statuses: tuple[_ContainerStatus, ...] | None = None
    allocated_resources: dict[str, Quantity] | None = None
    resources: _Resources | None = None


class _PodObject(msgspec.Struct, frozen=True, gc=False):
    """The fields of a pod that are read. Source: Kubernetes API reference, core/v1 Pod (v1.36)."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec | None = None
    status: _Status | None = None


class _PodSeen(msgspec.Struct, frozen=True, gc=False):
    """The same for a pod from the API server, with its spec as text."""

    metadata: ObjectMeta = ObjectMeta()
    spec: msgspec.Raw = msgspec.Raw(b"null")
    status: _Status | None = None


_NO_SPEC: Final = _Spec()
_NO_STATUS: Final = _Status()
PHASES: Final = {phase.value: phase for phase in Phase}
_MAX_SHARED_PORTS: Final = 32
# A longer spec is decoded each time, so that the cache does not grow beyond some MiB.
_MAX_KNOWN_BYTES: Final = 4096
_SCHEDULED: Final = "PodScheduled"
_READY: Final = "Ready"
_TRUE: Final = "True"
_RESIZE_PENDING: Final = "PodResizePending"
_INFEASIBLE: Final = "Infeasible"
_NEVER: Final = "Never"
_RESTART_ALL: Final = "RestartAllContainers"
_RESTARTS_WHOLE: Final = "RestartAllContainersOnContainerExits"
_ML_DSA: Final = frozenset({"MLDSA44", "MLDSA65", "MLDSA87"})
_NO_CONTAINER: Final = _ContainerStatus()


class _Asked(NamedTuple):
    """The retained parts of a pod's spec."""

    scheduler_name: str
    node_name: str
    service_account: str
    gated: bool
    group: str
    priority: int
    preempts: bool
    containers: tuple[Container, ...]
    init_containers: tuple[Container, ...]
    overhead: Mapping[str, str]
    resources: Mapping[str, str]
    constraints: NodeConstraints
    peers: PeerTerms
    wishes: Wishes
    volumes: PodVolumes
    images: tuple[str, ...]
    features: tuple[str, ...]
    unjudged: tuple[str, ...]


def _asked(spec: _Spec) -> _Asked:
    return _Asked(
        scheduler_name=sys.intern(spec.scheduler_name or ""),
        node_name=sys.intern(spec.node_name or ""),
        service_account=sys.intern(spec.service_account_name or ""),
        gated=bool(spec.scheduling_gates),
        group=(spec.scheduling_group.pod_group_name or "") if spec.scheduling_group is not None else "",
        priority=spec.priority or 0,
        preempts=spec.preemption_policy != _NEVER,
        containers=_containers(spec.containers),
        init_containers=_containers(spec.init_containers),
        overhead=reading.amounts(spec.overhead),
        resources=_of_whole_pod(spec.resources),
        constraints=constraints_of(spec.node_selector, spec.affinity, spec.tolerations),
        peers=peers_of(spec.affinity, spec.topology_spread_constraints),
        wishes=wishes_of(spec.affinity, spec.topology_spread_constraints),
        volumes=volumes_of(spec.volumes),
        images=_shared_images(_images(spec)),
        features=tuple(_features(spec)),
        unjudged=_unjudged(spec),
    )


def _asked_in(text: bytes) -> _Asked:
    return _asked(_decode_spec(text) or _NO_SPEC)


_decode_spec: Final = msgspec.json.Decoder(_Spec | None).decode
# Nearly all changes of a pod leave its spec unchanged.
_known_asked: Final = lru_cache(maxsize=1 << 12)(_asked_in)


def _whole_pod(found: _PodObject) -> Pod:
    """Return the value of a decoded pod, with common parts shared with other pods."""
    return _pod(found.metadata, _asked(found.spec or _NO_SPEC), found.status or _NO_STATUS)


def _seen_pod(found: _PodSeen) -> Pod:
    text = bytes(found.spec)
    asked = _known_asked(text) if len(text) <= _MAX_KNOWN_BYTES else _asked_in(text)
    return _pod(found.metadata, asked, found.status or _NO_STATUS)


def _pod(meta: ObjectMeta, asked: _Asked, status: _Status) -> Pod:
    scheduled = _scheduled(status.conditions)
    return Pod(
        uid=PodUid(meta.uid or ""),
        namespace=sys.intern(meta.namespace or ""),
        name=meta.name,
        resource_version=meta.resource_version or "",
        labels=reading.labels(meta.labels),
        annotations=reading.annotations(meta.annotations),
        scheduler_name=asked.scheduler_name,
        node_name=asked.node_name,
        phase=PHASES.get(status.phase or "", Phase.UNKNOWN) if status.phase else Phase.PENDING,
        deleting=meta.deletion_timestamp is not None,
        gated=asked.gated,
        started=_started(status),
        # A pod that may restart as a whole runs its init containers again, on the same cards.
        init_done=_RESTARTS_WHOLE not in asked.features
        and _init_done(status.init_container_statuses, asked.init_containers),
        priority=asked.priority,
        scheduling_group=asked.group,
        created_s=int(meta.creation_timestamp.timestamp()) if meta.creation_timestamp else 0,
        containers=_resized(asked.containers, status.container_statuses, status.conditions),
        init_containers=_resized(asked.init_containers, status.init_container_statuses, status.conditions),
        overhead=asked.overhead,
        resources=_resized_whole(asked, status),
        constraints=asked.constraints,
        peers=asked.peers,
        wishes=asked.wishes,
        volumes=asked.volumes,
        images=asked.images,
        features=asked.features,
        unjudged=asked.unjudged,
        status_reason=sys.intern(status.reason or ""),
        status_message=status.message or "",
        scheduled_reason=sys.intern(scheduled.reason or ""),
        scheduled_message=scheduled.message or "",
        owner=_owner(meta.owner_references),
        nominated_node=sys.intern(status.nominated_node_name or ""),
        preempts=asked.preempts,
        start_s=int(status.start_time.timestamp()) if status.start_time else 0,
        service_account=asked.service_account,
        ready=any(one.type == _READY and one.status == _TRUE for one in status.conditions or ()),
    )


_decode_seen: Final = reading.reader("pod", _PodSeen, _seen_pod)
_decode_whole: Final = reading.reader("pod", _PodObject, _whole_pod)
pod_from_object: Final = reading.converter("pod", _PodObject, _whole_pod)


def decode_pod(text: bytes) -> Pod:
    """Decode a pod from the API server.

    Raises:
        InvalidRequestError: it is unreadable; names the place.
    """
    try:
        return _decode_seen(text)
    except InvalidRequestError:
        return _decode_whole(text)  # this fails too, and can name a place within the spec


def _scheduled(conditions: tuple[_Condition, ...] | None) -> _Condition:
    for condition in conditions or ():
        if condition.type == _SCHEDULED:
            return condition
    return _NO_CONDITION


_NO_CONDITION: Final = _Condition()


def _started(status: _Status) -> bool:
    """Return whether any container has run: then the device plugin has been asked, whatever its annotations show."""
    for listed in (status.container_statuses, status.init_container_statuses):
        for one in listed or ():
            if one.started or _ran(one.state) or _ran(one.last_state):
                return True
    return False


def _init_done(found: tuple[_ContainerStatus, ...] | None, containers: tuple[Container, ...]) -> bool:
    """Return whether all init *containers* except sidecars have ended with exit code 0."""
    ending = {one.name for one in containers if not one.sidecar}
    if not ending:
        return False
    states = {one.name: one.state for one in found or ()}
    return all(
        (state := states.get(name)) is not None and state.terminated is not None and not state.terminated.exit_code
        for name in ending
    )


def _ran(state: _State | None) -> bool:
    return state is not None and (state.running is not None or state.terminated is not None)


def _of_whole_pod(found: _Resources | None) -> Mapping[str, str]:
    return reading.amounts({**(found.limits or {}), **(found.requests or {})}) if found else reading.EMPTY


def _resized(
    containers: tuple[Container, ...],
    statuses: tuple[_ContainerStatus, ...] | None,
    conditions: tuple[_Condition, ...] | None,
) -> tuple[Container, ...]:
    """Return *containers* with the amounts that kubelet counts during and after a resize.

    This is the maximum of requested, allocated and used, without a request that the node can never grant.
    Source: Kubernetes documentation, "Resize CPU and Memory Resources assigned to Containers".
    """
    if not statuses or not any(one.allocated_resources or one.resources for one in statuses):
        return containers
    found, is_infeasible = {one.name: one for one in statuses}, _is_infeasible(conditions)
    return tuple([_as_counted(one, found.get(one.name, _NO_CONTAINER), is_infeasible) for one in containers])


def _resized_whole(asked: _Asked, status: _Status) -> Mapping[str, str]:
    """Return the request for the pod as a whole, counted in the same way; kubelet reports it with the pod's overhead.

    Source: kubernetes, component-helpers/resource, PodRequests.
    """
    used = (status.resources.requests if status.resources else None) or {}
    allocated = status.allocated_resources or {}
    if not asked.resources or not (used or allocated):
        return asked.resources
    counted, is_infeasible = dict(asked.resources), _is_infeasible(status.conditions)
    overhead = reading.quantities(asked.overhead, "spec.overhead")
    for name in sorted(used.keys() | allocated.keys()):
        told = [
            reading.quantities({name: one[name]}, "status.resources")[name] for one in (used, allocated) if name in one
        ]
        amounts = [max(amount - overhead.get(name, 0), 0) for amount in told]
        if name in asked.resources and not is_infeasible:
            amounts.append(reading.quantities({name: asked.resources[name]}, "spec.resources")[name])
        counted[name] = f"{max(amounts)}m" if name == names.CPU else str(max(amounts))
    return reading.shared_mapping(tuple(counted.items()))


def _is_infeasible(conditions: tuple[_Condition, ...] | None) -> bool:
    """Return whether the pod requests a resize that its node can never grant."""
    return any(one.type == _RESIZE_PENDING and one.reason == _INFEASIBLE for one in conditions or ())


def _as_counted(container: Container, status: _ContainerStatus, is_infeasible: bool) -> Container:
    asked = container.requests
    used = (status.resources.requests if status.resources else None) or {}
    allocated = status.allocated_resources or {}
    counted = dict(asked)
    for name in (names.CPU, names.MEMORY):
        texts = [reading.as_written(one[name]) for one in (allocated, used) if name in one]
        if name in asked and not (texts and is_infeasible):
            texts.append(asked[name])
        if texts and any(text != asked.get(name) for text in texts):
            counted[name] = _most(name, texts)
    return (
        container._replace(requests=reading.shared_mapping(tuple(counted.items()))) if counted != asked else container
    )


def _most(name: str, texts: list[str]) -> str:
    return max(texts, key=lambda text: reading.quantities({name: text}, f"status.resources.{name}")[name])


def _owner(references: tuple[Owner, ...] | None) -> str:
    for owner in references or ():
        if owner.controller:
            return sys.intern(f"{owner.kind}/{owner.name}")
    return ""


def _containers(found: tuple[_Container, ...] | None) -> tuple[Container, ...]:
    return tuple([_container(one) for one in found]) if found else ()


def _container(found: _Container) -> Container:
    resources = found.resources
    written = (
        found.name,
        _items(resources.limits) if resources else (),
        _items(resources.requests) if resources else (),
        found.restart_policy == "Always",
        tuple([(p.protocol or "TCP", p.host_ip or "", p.host_port) for p in found.ports if p.host_port])
        if found.ports
        else (),
    )
    short = reading.is_short(chain((found.name,), *written[1], *written[2])) and len(written[4]) < _MAX_SHARED_PORTS
    return _shared_container(*written) if short else _new_container(*written)


def _items(found: dict[str, Quantity] | None) -> tuple[tuple[str, str], ...]:
    return tuple([(key, reading.as_written(value)) for key, value in found.items()]) if found else ()


def _new_container(
    name: str,
    limits: tuple[tuple[str, str], ...],
    requests: tuple[tuple[str, str], ...],
    sidecar: bool,
    host_ports: tuple[tuple[str, str, int], ...],
) -> Container:
    return Container(
        name=sys.intern(name),
        limits=reading.shared_mapping(limits),
        requests=reading.shared_mapping(requests),
        sidecar=sidecar,
        host_ports=host_ports,
    )


# One value for all equal containers, because the pods of a workload repeat them.
_shared_container: Final = lru_cache(maxsize=1 << 14)(_new_container)


def _images(spec: _Spec) -> tuple[str, ...]:
    """Return the images that a pod needs, one for each container and image volume."""
    written = [one.image for one in chain(spec.init_containers or (), spec.containers or ())]
    written += [one.image.reference for one in spec.volumes or () if one.image is not None]
    return tuple([_as_on_nodes(name) for name in written if name])


def _as_on_nodes(image: str) -> str:
    """Return *image* with its default tag if it has none. Source: Kubernetes documentation, "Images"."""
    return image if image.rfind(":") > image.rfind("/") else f"{image}:latest"


def _interned(images: tuple[str, ...]) -> tuple[str, ...]:
    return tuple([sys.intern(one) for one in images])


# The pods of a workload need the same images.
_shared_images: Final = lru_cache(maxsize=1 << 12)(_interned)


def _features(spec: _Spec) -> Iterator[str]:
    """Yield features that its node must declare. Source: Kubernetes, component-helpers/nodedeclaredfeatures (v1.38)."""
    containers = (*(spec.containers or ()), *(spec.init_containers or ()))
    if any(rule.action == _RESTART_ALL for one in containers for rule in one.restart_policy_rules or ()):
        yield _RESTARTS_WHOLE
    if spec.host_network and spec.host_users is False:
        yield "UserNamespacesHostNetworkSupport"
    if any(mount.bind_mount_options for one in containers for mount in one.volume_mounts or ()):
        yield "VolumeBindMountOptions"
    if any(not _ML_DSA.isdisjoint(volume.key_types) for volume in spec.volumes or ()):
        yield "PodCertificateMLDSA"
    contexts = (spec.security_context, *(one.security_context for one in containers))
    profiles = (one.seccomp_profile for one in contexts if one is not None)
    if any(one is not None and one.type == "OCI" for one in profiles):
        yield "SecurityProfileOCI"


# How a pod of Kubernetes 1.35 names its group, whose size is in a kind of object that is not read (groups 7).
_GROUP_OF_1_35: Final = "spec.workloadRef"


def _unjudged(spec: _Spec) -> tuple[str, ...]:
    """Return the names of requests that no rule supports."""
    found = [f"resource claim {quoted(one.name)}" for one in spec.resource_claims or ()]
    if spec.workload_ref is not None:
        found.append(_GROUP_OF_1_35)
    return tuple(found)


class _HeadMeta(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    # Unlike other objects, a pod is identified by its uid; without one it cannot be counted.
    name: str
    uid: str
    namespace: str = ""
    resource_version: str = ""


class _HeadSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    node_name: str | None = ""


class _HeadStatus(msgspec.Struct, frozen=True, gc=False):
    phase: str | None = ""


class _Head(msgspec.Struct, frozen=True, gc=False):
    """The readable part of a pod whose other fields are unreadable."""

    metadata: _HeadMeta
    spec: _HeadSpec | None = None
    status: _HeadStatus | None = None


_decode_head: Final = reading.reader("pod", _Head, lambda found: found)


def salvage_pod(text: bytes, resources: Collection[str]) -> Pod:
    """Return a pod that `decode_pod` cannot read: its identity, its node, and which of *resources* it mentions.

    It is never placed; on its node it counts as a pod with unknown cards.

    Raises:
        InvalidRequestError: even these are unreadable.
    """
    head = _decode_head(text)
    spec, status = head.spec or _HeadSpec(), head.status or _HeadStatus()
    named = {resource: "1" for resource in resources if resource.encode() in text}
    return Pod(
        uid=PodUid(head.metadata.uid),
        namespace=head.metadata.namespace,
        name=head.metadata.name,
        resource_version=head.metadata.resource_version,
        node_name=spec.node_name or "",
        phase=PHASES.get(status.phase or "", Phase.PENDING),
        containers=(Container(name="", limits=named),) if named else (),
    )
