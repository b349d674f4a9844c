"""Create, update, delete: the lifecycle of every object, between a request and the store.

It knows nothing of HTTP. `operations` has the operations on pods (binding, eviction, grace).
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

import msgspec

from sandbox.api import fields
from sandbox.api.admission import Admission, Write
from sandbox.api.defaults import admit_pod, complete, complete_conditions, fresh, qos_class, tolerate_lost_nodes
from sandbox.api.errors import StatusError, already_exists, conflict, invalid, not_found
from sandbox.api.requests import SYSTEM_FIELDS, Target, drop_unwritable, metadata_of, of_kind, through_subresource
from sandbox.api.resources import Catalogue, ResourceType
from sandbox.api.selectors import Selection
from sandbox.api.store import Store, Stored, shown, to_stored
from sandbox.api.users import User
from sandbox.api.validation import check_create, check_update, other_uid

Json = dict[str, Any]

# etcd's limit on one request, which is hardly larger than the object.
_MAX_STORED_BYTES: Final = 1_572_864
_RETRIES: Final = 5
_SUFFIX: Final = "bcdfghjklmnpqrstvwxz2456789"
_WITHOUT_GENERATION: Final = frozenset({"nodes", "namespaces", "services", "leases.coordination.k8s.io"})
_CRD: Final = "customresourcedefinitions.apiextensions.k8s.io"
_LOST_RACE: Final = "the object has been modified; please apply your changes to the latest version and try again"


@dataclass(slots=True, kw_only=True)
class WriteCall:
    """The context of a write; *warnings* collects warnings for the answer.

    *field_validation* is Strict, Warn or Ignore; empty means Warn. *options* are those that webhooks see.
    """

    user: User
    dry_run: bool = False
    field_validation: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOptions:
    """How to delete; *grace_s* None = the object's own."""

    grace_s: int | None = None
    uid: str = ""
    resource_version: str = ""
    orphan: bool = False


Transform = Callable[[Json], Json]


class Registry:
    """Writes objects by the API server's rules."""

    def __init__(self, store: Store, catalogue: Catalogue, admission: Admission, clock: Callable[[], datetime]) -> None:
        self.store = store
        self.catalogue = catalogue
        self.admission = admission
        self._clock = clock

    def now(self) -> str:
        """Return the current time in the format of objects."""
        return self._clock().strftime("%Y-%m-%dT%H:%M:%SZ")

    def after(self, seconds: int) -> str:
        """Return a future time in the format of objects."""
        then = datetime.fromtimestamp(self._clock().timestamp() + seconds, tz=self._clock().tzinfo)
        return then.strftime("%Y-%m-%dT%H:%M:%SZ")

    def fetch(self, target: Target) -> Stored:
        """Return the object that *target* names.

        Raises:
            StatusError: 404.
        """
        stored = self.store.get(target.kind.resource, target.namespace, target.name)
        if stored is None:
            raise not_found(target.kind.resource, target.name)
        return stored

    async def create(self, target: Target, body: Json, call: WriteCall) -> Json:
        """Create an object from *body*, which then belongs to the registry."""
        kind = target.kind
        obj = to_stored(kind, _known(kind, of_kind(kind, body), call))
        metadata = metadata_of(obj, target)
        if kind.namespaced:
            self._check_namespace(kind, target.namespace)
        drop_unwritable(kind, obj)
        complete(kind, obj)
        self._admit_new(kind, obj)
        write = write_of("CREATE", replace(target, name=metadata.get("name", "")), call, obj)
        obj = await self.admission.mutate(write, call.warnings) or obj
        metadata = obj["metadata"]
        self._begin(kind, obj)
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = metadata["generateName"] + "".join(secrets.choice(_SUFFIX) for _ in range(5))
        check_create(kind, obj)
        await self.admission.validate(replace(write, obj=obj), call.warnings)
        if self.store.get(kind.resource, target.namespace, metadata["name"]) is not None:
            raise already_exists(kind.resource, metadata["name"])
        if not call.dry_run:
            _check_size(obj)
            obj = self.commit(kind, obj)
        return shown(kind, obj)

    async def update(self, target: Target, transform: Transform, call: WriteCall, *, replaces: bool = False) -> Json:
        """Replace an object by the result of *transform* on a copy of it.

        After a concurrent write, it is repeated with the newer object, unless the result names the version that it was
        made from.
        """
        if replaces:
            metadata_of(transform({}), target)
        for _ in range(_RETRIES):
            stored = self.fetch(target)
            proposed = transform(fresh(shown(target.kind, stored.obj)))
            proposed = _known(target.kind, proposed, call)
            obj = self._prepare(target, proposed, stored, replaces=replaces)
            if not target.subresource or target.kind.resource == "nodes":
                complete(target.kind, obj)
            if target.kind.resource == "pods" and not target.subresource and isinstance(obj.get("spec"), dict):
                tolerate_lost_nodes(obj["spec"])
            write = write_of("UPDATE", target, call, obj, shown(target.kind, stored.obj))
            admitted = await self.admission.mutate(write, call.warnings)
            if admitted is not None and admitted is not obj:
                obj = self._prepare(target, admitted, stored)
            check_update(target.kind, obj, stored.obj)
            await self.admission.validate(replace(write, obj=obj), call.warnings)
            if call.dry_run:
                return shown(target.kind, obj)
            if self.store.get(target.kind.resource, target.namespace, target.name) is stored:
                return self._settle(target, obj, stored)
            # There was a write while the webhooks were called.
        raise conflict(target.kind.resource, target.name, _LOST_RACE)

    async def delete(self, target: Target, options: DeleteOptions, call: WriteCall) -> tuple[Json, bool]:
        """Delete an object, or mark it until its finalizers are gone; return its state and whether it is gone."""
        stored = self.fetch(target)
        check_preconditions(target, stored.obj, options)
        # Webhooks see the grace period that the pod's deletion will have.
        grace = {"gracePeriodSeconds": _grace_s(stored.obj, options)} if target.kind.resource == "pods" else {}
        # For webhooks, an eviction is also the deletion of a pod.
        deleted = write_of("DELETE", replace(target, subresource=""), call, None, shown(target.kind, stored.obj))
        write = replace(deleted, options={**call.options, **grace})
        await self.admission.mutate(write, call.warnings)
        await self.admission.validate(write, call.warnings)
        stored = self.fetch(target)
        check_preconditions(target, stored.obj, options)
        if call.dry_run:
            return shown(target.kind, stored.obj), True
        return self._delete_now(target, stored, options)

    def _delete_now(self, target: Target, stored: Stored, options: DeleteOptions) -> tuple[Json, bool]:
        kind, metadata = target.kind, stored.obj["metadata"]
        grace_s = _grace_s(stored.obj, options) if kind.resource == "pods" else 0
        if kind.resource == "namespaces":
            marked = self._mark_deleted(kind, stored, 0, {"phase": "Terminating"})
            self._empty_namespace(target.name)
            return marked, self.store.get("namespaces", "", target.name) is None
        if grace_s > 0 or metadata.get("finalizers"):
            left_s = metadata.get("deletionGracePeriodSeconds")
            if left_s is not None and grace_s >= left_s:
                return shown(kind, stored.obj), False
            return self._mark_deleted(kind, stored, grace_s), False
        if kind.resource == "pods" and metadata.get("deletionGracePeriodSeconds") != 0:
            # The end of the grace period is reported before the deletion, even if it was zero: measured.
            self._mark_deleted(kind, stored, 0)
        return self._remove(kind, stored, orphan=options.orphan), True

    def _mark_deleted(
        self, kind: ResourceType, stored: Stored, grace_s: int, status: Mapping[str, Any] | None = None
    ) -> Json:
        marks: Json = {"deletionTimestamp": self.after(grace_s), "deletionGracePeriodSeconds": grace_s}
        if "generation" in stored.obj["metadata"]:
            marks["generation"] = stored.obj["metadata"]["generation"] + 1
        obj = {**stored.obj, "metadata": {**stored.obj["metadata"], **marks}}
        if status:
            obj["status"] = {**(obj.get("status") or {}), **status}
        return shown(kind, self.commit(kind, obj))

    def _remove(self, kind: ResourceType, stored: Stored, *, orphan: bool = False, final: Json | None = None) -> Json:
        metadata = stored.obj["metadata"]
        namespace = metadata.get("namespace", "")
        last = self.store.remove(kind.resource, namespace, metadata["name"], final)
        if kind.resource == _CRD:
            self._drop_custom(stored.obj)
        elif kind.resource not in ("events", "pods") and not orphan:
            self._delete_dependents(metadata["uid"])
        if namespace:
            self._finish_namespace(namespace)
        return shown(kind, last.obj)

    def _drop_custom(self, definition: Mapping[str, Any]) -> None:
        spec = definition["spec"]
        name = f"{spec['names']['plural']}.{spec['group']}"
        for stored in tuple(self.store.select(name)):
            self.store.remove(name, stored.obj["metadata"].get("namespace", ""), stored.obj["metadata"]["name"])
        self.catalogue.discard(definition)

    def _delete_dependents(self, owner_uid: str) -> None:
        """Do the garbage collector's background work; it needs a scan, but owners are rarely deleted."""
        for kind in self._stored_kinds():
            for stored in tuple(self.store.select(kind.resource)):
                owners = stored.obj["metadata"].get("ownerReferences") or ()
                if any(owner.get("uid") == owner_uid for owner in owners):
                    self._delete_now(self._target_of(kind, stored), stored, DeleteOptions())

    def _empty_namespace(self, namespace: str) -> None:
        for kind in self._stored_kinds():
            if kind.namespaced:
                for stored in tuple(self.store.select(kind.resource, Selection(namespace=namespace))):
                    self._delete_now(self._target_of(kind, stored), stored, DeleteOptions())
        self._finish_namespace(namespace)

    def _finish_namespace(self, namespace: str) -> None:
        stored = self.store.get("namespaces", "", namespace)
        if stored is None or not stored.obj["metadata"].get("deletionTimestamp"):
            return
        selection = Selection(namespace=namespace)
        kinds = [kind for kind in self._stored_kinds() if kind.namespaced]
        if not any(True for kind in kinds for _ in self.store.select(kind.resource, selection)):
            self.store.remove("namespaces", "", namespace)

    def _stored_kinds(self) -> tuple[ResourceType, ...]:
        by_resource = {kind.resource: kind for kind in self.catalogue if not kind.virtual}
        return tuple(by_resource.values())

    def _target_of(self, kind: ResourceType, stored: Stored) -> Target:
        metadata = stored.obj["metadata"]
        return Target(kind=kind, namespace=metadata.get("namespace", ""), name=metadata["name"])

    def _prepare(self, target: Target, proposed: Json, stored: Stored, *, replaces: bool = False) -> Json:
        """Return the writable part of *proposed* that replaces *stored*; *replaces* = it was sent as a whole."""
        kind, old = target.kind, stored.obj
        obj = to_stored(kind, of_kind(kind, proposed))
        metadata = metadata_of(obj, target)
        version = metadata.get("resourceVersion")
        if version and version != old["metadata"]["resourceVersion"]:
            raise conflict(kind.resource, target.name, _LOST_RACE)
        if metadata.get("uid") and metadata["uid"] != old["metadata"]["uid"]:
            if not replaces:
                why = f'metadata.uid: Invalid value: "{metadata["uid"]}": field is immutable'
                raise invalid(kind.kind, target.name, [why], kind.group)
            raise conflict(kind.resource, target.name, other_uid(kind, old["metadata"], metadata["uid"]))
        for name in SYSTEM_FIELDS:
            metadata.pop(name, None)
            if name in old["metadata"]:
                metadata[name] = old["metadata"][name]
        metadata["resourceVersion"] = old["metadata"]["resourceVersion"]
        metadata.pop("managedFields", None)
        obj = through_subresource(target, obj, old)
        complete_conditions(kind, obj)
        if obj.get("spec") != old.get("spec") and "generation" in metadata:
            metadata["generation"] += 1
        return obj

    def _settle(self, target: Target, obj: Json, stored: Stored) -> Json:
        metadata = obj["metadata"]
        waited_for = metadata.get("deletionTimestamp") and not metadata.get("finalizers")
        if waited_for and not metadata.get("deletionGracePeriodSeconds") and target.kind.resource != "namespaces":
            return self._remove(target.kind, stored, final=obj)
        _check_size(obj)
        return shown(target.kind, self.commit(target.kind, obj))

    def commit(self, kind: ResourceType, obj: Json) -> Json:
        """Store an object after admission; it then belongs to the store."""
        if kind.resource == _CRD:
            _establish(obj, self.now())
            self.catalogue.add(obj)
        return self.store.write(kind.resource, obj).obj

    def _check_namespace(self, kind: ResourceType, namespace: str) -> None:
        stored = self.store.get("namespaces", "", namespace)
        if stored is None:
            raise not_found("namespaces", namespace)
        if stored.obj["metadata"].get("deletionTimestamp"):
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise StatusError(403, "Forbidden", f"{kind.resource} is forbidden: {why}")

    def _admit_new(self, kind: ResourceType, obj: Json) -> None:
        """Apply the server's built-in admission plugins to a new object."""
        if kind.resource == "pods" and isinstance(obj.get("spec"), dict):
            admit_pod(obj)
            self._resolve_priority(obj)

    def _begin(self, kind: ResourceType, obj: Json) -> None:
        """Set the initial fields of an object, which mutating webhooks do not see yet: measured."""
        metadata = obj["metadata"]
        metadata |= {"uid": str(uuid.uuid4()), "creationTimestamp": self.now()}
        if "spec" in obj and kind.resource not in _WITHOUT_GENERATION:
            metadata["generation"] = 1
        if kind.resource == "pods" and isinstance(obj.get("spec"), dict):
            obj["status"] = {"phase": "Pending", "qosClass": qos_class(obj["spec"])}
            if obj["spec"].get("schedulingGates"):
                obj["status"]["conditions"] = [_gated(self.now())]

    def _resolve_priority(self, pod: Json) -> None:
        spec = pod["spec"]
        name = spec.get("priorityClassName")
        if not name:
            spec.setdefault("priority", 0)
            spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
            return
        system = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
        found = self.store.get("priorityclasses.scheduling.k8s.io", "", name)
        if found is None and name not in system:
            why = f"no PriorityClass with name {name} was found"
            raise StatusError(403, "Forbidden", f'pods "{pod["metadata"].get("name", "")}" is forbidden: {why}')
        spec["priority"] = system[name] if found is None else found.obj.get("value", 0)
        spec["preemptionPolicy"] = (found.obj if found else {}).get("preemptionPolicy", "PreemptLowerPriority")


def write_of(
    operation: str, target: Target, call: WriteCall, obj: Json | None, old: Mapping[str, Any] | None = None
) -> Write:
    return Write(
        operation=operation,
        kind=target.kind,
        namespace=target.namespace,
        name=target.name,
        subresource=target.subresource,
        user=call.user,
        obj=obj,
        old=old,
        dry_run=call.dry_run,
        options=call.options,
    )


def check_preconditions(target: Target, obj: Mapping[str, Any], options: DeleteOptions) -> None:
    """Refuse to delete another object than intended.

    Raises:
        StatusError: 409.
    """
    metadata = obj["metadata"]
    for word, wanted, found in (
        ("UID", options.uid, metadata["uid"]),
        ("ResourceVersion", options.resource_version, metadata["resourceVersion"]),
    ):
        if wanted and wanted != found:
            why = f"the {word} in the precondition ({wanted}) does not match the {word} in record ({found}). "
            why += f"The object might have been {'deleted and then recreated' if word == 'UID' else 'modified'}"
            raise conflict(target.kind.kind, target.name, why)


def _grace_s(pod: Mapping[str, Any], options: DeleteOptions) -> int:
    """Return the grace period of a pod: zero if it is on no node or has ended."""
    if not pod["spec"].get("nodeName") or pod["status"].get("phase") in ("Succeeded", "Failed"):
        return 0
    own = int(pod["spec"].get("terminationGracePeriodSeconds") or 0)
    asked = own if options.grace_s is None else options.grace_s
    left = pod["metadata"].get("deletionGracePeriodSeconds")
    return asked if left is None or options.grace_s is not None else min(asked, left)


def _known(kind: ResourceType, obj: Json, call: WriteCall) -> Json:
    checked, unknown = fields.check(kind, obj)
    fields.refuse_or_warn(kind, unknown, call.field_validation, call.warnings)
    return checked


def _gated(now: str) -> Json:
    return {
        "type": "PodScheduled",
        "status": "False",
        "lastProbeTime": None,
        "lastTransitionTime": now,
        "reason": "SchedulingGated",
        "message": "Scheduling is blocked due to non-empty scheduling gates",
    }


def _check_size(obj: Mapping[str, Any]) -> None:
    if len(msgspec.json.encode(obj)) > _MAX_STORED_BYTES:
        raise StatusError(500, "", "etcdserver: request is too large")


def _establish(definition: Json, now: str) -> None:
    """Set the status that the apiextensions controllers write, at once."""
    spec = definition["spec"]
    stored = [version["name"] for version in spec["versions"] if version.get("storage")]
    true = {"status": "True", "lastTransitionTime": now}
    definition["status"] = {
        "acceptedNames": spec["names"],
        "storedVersions": stored,
        "conditions": [
            {"type": "NamesAccepted", "reason": "NoConflicts", "message": "no conflicts found", **true},
            {"type": "Established", "reason": "InitialNamesAccepted", "message": "accepted", **true},
        ],
    }
