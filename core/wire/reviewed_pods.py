"""Pods under review: the fields for admission; `core.wire.pods` reads the fields for placing."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Final

import msgspec

from core.model import NO_REACH, Container, Reach, ReviewedPod
from core.watched import is_kept, is_watched, may_be_kept, may_be_watched
from core.wire import reading
from core.wire.objects import ObjectMeta, PartialObjectMetadata, Presence
from core.wire.patches import Path, Present
from core.wire.reading import Quantity

# The manifest of the last `kubectl apply`, which kubectl stores on the object.
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


class _Resources(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    limits: dict[str, Quantity] | None = None
    requests: dict[str, Quantity] | None = None


class _Env(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    name: str = ""
    value: str | None = ""
    value_from: Presence | None = None


class _Mount(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    mount_path: str = ""


class _Capabilities(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    add: tuple[str, ...] | None = None


class _Security(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    privileged: bool | None = None
    capabilities: _Capabilities | None = None


class _Container(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    name: str = ""
    resources: _Resources | None = None
    restart_policy: str | None = None
    security_context: _Security | None = None
    env: tuple[_Env, ...] | None = None
    env_from: tuple[Presence, ...] | None = None
    volume_mounts: tuple[_Mount, ...] | None = None


class _HostPath(msgspec.Struct, frozen=True, gc=False):
    path: str = ""


class _Volume(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    host_path: _HostPath | None = None


class _Spec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    containers: tuple[_Container, ...] | None = None
    init_containers: tuple[_Container, ...] | None = None
    ephemeral_containers: tuple[_Container, ...] | None = None
    node_name: str | None = ""
    host_pid: bool | None = msgspec.field(default=None, name="hostPID")
    scheduler_name: str | None = None
    runtime_class_name: str | None = None
    volumes: tuple[_Volume, ...] | None = None


class _OwnedMeta(msgspec.Struct, frozen=True, gc=False):
    annotations: dict[str, Presence] | None = msgspec.field(default=None, name="f:annotations")


class _Owned(msgspec.Struct, frozen=True, gc=False):
    metadata: _OwnedMeta | None = msgspec.field(default=None, name="f:metadata")


class _Manager(msgspec.Struct, frozen=True, gc=False):
    """The fields that one writer owns. Source: Kubernetes API reference, meta/v1 ManagedFieldsEntry."""

    operation: str | None = ""
    fields: _Owned | None = msgspec.field(default=None, name="fieldsV1")


class _PodMeta(ObjectMeta, frozen=True, gc=False, rename="camel"):
    # Few reviews need the owners, so only `server_side_applied` decodes them.
    managed_fields: msgspec.Raw = msgspec.Raw(b"null")


class PodObject(msgspec.Struct, frozen=True, gc=False):
    """The fields of a pod that are read. Source: Kubernetes API reference, core/v1 Pod (v1.36)."""

    metadata: _PodMeta = _PodMeta()
    spec: _Spec | None = None


_NO_SPEC: Final = _Spec()


def pod_of(found: PodObject, namespace: str = "") -> ReviewedPod:
    """Return a decoded pod for admission; a pod without a namespace is in *namespace*.

    It has neither placement nor status, and shares nothing, because it is short-lived.
    """
    meta, spec = found.metadata, found.spec or _NO_SPEC
    # Positional arguments take half the time of named ones.
    return ReviewedPod(
        meta.namespace or namespace,
        meta.labels or reading.EMPTY,
        meta.annotations or reading.EMPTY,
        spec.scheduler_name or "",
        spec.node_name or "",
        spec.runtime_class_name or "",
        meta.deletion_timestamp is not None,
        meta.finalizers or (),
        bool(spec.host_pid),
        _host_paths(spec.volumes) if spec.volumes else (),
        _containers(spec.containers),
        _containers(spec.init_containers),
    )


def is_made(found: PodObject) -> bool:
    """Return whether a controller created the pod, so that no one reads its warnings."""
    return any(one.controller for one in found.metadata.owner_references or ())


def maker_of(found: PodObject) -> Hashable:
    """Return what the pods of a workload share and workloads rarely do: their name prefix and owners."""
    return found.metadata.generate_name, found.metadata.owner_references


def ephemeral_containers_of(found: PodObject) -> tuple[Container, ...]:
    """Return the containers that `kubectl debug` added to a pod; they have no resources."""
    return _containers(found.spec.ephemeral_containers) if found.spec is not None else ()


def container_count(found: PodObject | None) -> int:
    """Return how many containers of all kinds a decoded pod has."""
    spec = found.spec if found is not None else None
    if spec is None:
        return 0
    return len(spec.containers or ()) + len(spec.init_containers or ()) + len(spec.ephemeral_containers or ())


def resources_in(found: PodObject) -> Iterator[Iterable[str]]:
    """Yield the resources that a decoded pod names, for each container, limits and requests separately."""
    spec = found.spec or _NO_SPEC
    for one in chain(spec.containers or (), spec.init_containers or ()):
        if one.resources is not None:
            yield one.resources.limits or ()
            yield one.resources.requests or ()


def _containers(found: tuple[_Container, ...] | None) -> tuple[Container, ...]:
    if not found:
        return ()
    is_plain = _are_plain(found)
    return tuple([_container(one, is_plain) for one in found])


def _are_plain(found: tuple[_Container, ...]) -> bool:
    """Return whether no rule reads any variable or mount of *found*.

    Nearly every container has some, but rarely these, so all are checked at once.
    """
    names = [variable.name for one in found for variable in one.env or ()]
    paths = [mount.mount_path for one in found for mount in one.volume_mounts or ()]
    return not (may_be_watched(names) or may_be_kept(paths))


def _container(found: _Container, is_plain: bool) -> Container:
    """Return *found* for admission; *is_plain*: no rule reads any of its variables and mounts."""
    limits = requests = reading.EMPTY
    if found.resources is not None:
        limits, requests = reading.texts(found.resources.limits), reading.texts(found.resources.requests)
    reach = NO_REACH
    if not is_plain or found.env_from or found.security_context is not None:
        reach = _reach(found)
    return Container(found.name, limits, requests, found.restart_policy == "Always", (), reach)


def _reach(found: _Container) -> Reach:
    """Return what rules read in addition to resources."""
    watched, kept, security = _watched(found.env or ()), _kept(found.volume_mounts or ()), found.security_context
    privileged = bool(security is not None and security.privileged)
    added = security.capabilities.add or () if security is not None and security.capabilities is not None else ()
    if not (watched or kept or privileged or added or found.env_from):
        return NO_REACH
    return Reach(privileged, added, watched, bool(found.env_from), kept)


def _watched(env: tuple[_Env, ...]) -> tuple[tuple[str, str | None], ...]:
    found = [one for one in env if is_watched(one.name)]
    return tuple([(one.name, (one.value or "") if one.value_from is None else None) for one in found])


def _kept(mounts: tuple[_Mount, ...]) -> tuple[str, ...]:
    return tuple([one.mount_path for one in mounts if is_kept(one.mount_path)])


def _host_paths(volumes: tuple[_Volume, ...]) -> tuple[str, ...]:
    """Return the node paths that *volumes* expose."""
    return tuple([one.host_path.path for one in volumes if one.host_path is not None])


def spec_of(found: PodObject) -> tuple[object, ...]:
    """Return what `pod_of` and `present_in` use of a decoded spec, without values of variables, for encoding."""
    spec = found.spec
    if spec is None:
        return ()
    return (
        spec.scheduler_name,
        spec.node_name,
        spec.runtime_class_name,
        spec.host_pid,
        spec.volumes and _host_paths(spec.volumes),
        spec.containers and [_without_values(one) for one in spec.containers],
        spec.init_containers and [_without_values(one) for one in spec.init_containers],
    )


def _without_values(one: _Container) -> tuple[object, ...]:
    env = one.env
    return (
        one.name,
        one.resources,
        one.restart_policy,
        one.security_context,
        env and [found.name for found in env],
        one.env_from,
        one.volume_mounts,
    )


def values_of(found: PodObject) -> tuple[object, ...]:
    """Return the values of variables that `pod_of` uses, for encoding; whether there are any depends only on names."""
    spec = found.spec or _NO_SPEC
    containers = (*(spec.containers or ()), *(spec.init_containers or ()))
    if not may_be_watched([one.name for container in containers for one in container.env or ()]):
        return ()
    return tuple([_watched(container.env or ()) for container in containers])


def present_in(found: PodObject) -> Callable[[Path], Present]:
    """Return a function for `encode_patch` with the state of a decoded pod at the paths that admission edits."""

    def present(path: Path) -> Present:
        if path[0] == "metadata":
            texts = found.metadata.annotations if path[1] == "annotations" else found.metadata.labels
            return Present(1, ()) if texts is None else Present(2, texts)
        spec = found.spec
        if spec is None:
            return Present(0, ())
        if len(path) == 1:
            written = (("schedulerName", spec.scheduler_name), ("runtimeClassName", spec.runtime_class_name))
            return Present(1, [name for name, value in written if value is not None])
        containers = spec.containers if path[1] == "containers" else spec.init_containers
        if containers is None:
            return Present(1, ())
        found_there = containers[int(path[2])]
        if path[3] == "env":
            return Present(3 if found_there.env is None else 4, ())
        return _present_in_container(found_there, path[4])

    return present


def _present_in_container(found: _Container, name: str) -> Present:
    """Return the state of ``resources`` of a container, whose path has four names, and of *name* in it."""
    resources = found.resources
    if resources is None:
        return Present(3, ())
    amounts = resources.limits if name == "limits" else resources.requests
    return Present(4, ()) if amounts is None else Present(5, amounts)


_applied_decoder: Final = msgspec.json.Decoder(PartialObjectMetadata)


_managers_decoder: Final = msgspec.json.Decoder(tuple[_Manager, ...] | None)


def server_side_applied(found: PodObject) -> frozenset[str]:
    """Return the annotations that some writer owns by a server-side apply; none if that is missing or unreadable."""
    try:
        managers = _managers_decoder.decode(found.metadata.managed_fields) or ()
    except reading.DECODE_ERRORS:
        return frozenset()
    owned = [one.fields.metadata for one in managers if one.operation == "Apply" and one.fields is not None]
    return frozenset([key.removeprefix("f:") for meta in owned if meta is not None for key in meta.annotations or ()])


def applied_annotations(annotations: Mapping[str, str]) -> Mapping[str, str]:
    """Return the annotations of the last applied manifest; {} if it is missing or unreadable."""
    try:
        return _applied_decoder.decode(annotations.get(LAST_APPLIED, "{}")).metadata.annotations or {}
    except reading.DECODE_ERRORS:
        return {}
