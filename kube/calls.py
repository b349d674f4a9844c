"""The calls we make, by name: what is sent, with which precondition and deadline, and what comes back.

Objects come back as the bytes they were; decoding them is for whoever knows their kind. Every call raises
`kube.errors.ApiError` and nothing else for what the world does; its subclass says whether something was written.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Protocol, TypeAlias, TypeVar
from urllib.parse import quote

import msgspec

from core.errors import InvalidRequestError
from kube.errors import ApiUnknownError, ApiUnreadableError, UndecodableError
from kube.exchange import Purpose, Response
from kube.objects import read_version

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"

# Kinds that make pods by a template: their API and collection. Source: Kubernetes API reference, "Workload Resources".
OWNERS: Final[Mapping[str, tuple[str, str]]] = {
    "ReplicaSet": ("apps/v1", "replicasets"),
    "DaemonSet": ("apps/v1", "daemonsets"),
    "StatefulSet": ("apps/v1", "statefulsets"),
    "Job": ("batch/v1", "jobs"),
}

# The API server gives up after the first and says so within the second: a Binding is never in flight for longer, which
# leases and hand-overs count on.
BIND_SERVER_TIMEOUT: Final = "5s"
BIND_DEADLINE_S: Final = 6.0

Body: TypeAlias = bytes | Mapping[str, Any]
_T = TypeVar("_T")


class Requester(Protocol):
    """What of `kube.transport.Transport` is needed here."""

    async def request(
        self,
        verb: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        deadline_s: float | None = None,
        purpose: Purpose = Purpose.CALLS,
        wait_out_pause: bool = True,
    ) -> Response:
        """See `Transport.request`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One condition of an object's status. *status* is True, False or Unknown."""

    type: str
    status: str
    reason: str
    message: str
    changed_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Whom a token belongs to, as the API server sees it; *authenticated* is `False` for a token it does not know."""

    authenticated: bool
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What somebody wants to do: a verb on a resource, or on a path outside the resources."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""


class _User(msgspec.Struct, frozen=True):
    username: str | None = ""
    uid: str | None = ""
    groups: list[str] | None = None


class _TokenStatus(msgspec.Struct, frozen=True):
    authenticated: bool | None = False
    user: _User = _User()
    audiences: list[str] | None = None
    error: str | None = ""


class _TokenReview(msgspec.Struct, frozen=True):
    """Source: Kubernetes API reference, authentication.k8s.io/v1 TokenReview."""

    status: _TokenStatus = _TokenStatus()


class _AccessStatus(msgspec.Struct, frozen=True):
    allowed: bool = False


class _AccessReview(msgspec.Struct, frozen=True):
    """Source: Kubernetes API reference, authorization.k8s.io/v1 SubjectAccessReview."""

    status: _AccessStatus = _AccessStatus()


class Calls:
    """Calls over one transport. Holds nothing of its own."""

    def __init__(self, requester: Requester, *, deadline_s: float = 10.0) -> None:
        self._requester = requester
        self._deadline_s = deadline_s

    # -- pods ---------------------------------------------------------------------------------------------------

    async def bind(
        self,
        namespace: str,
        name: str,
        *,
        uid: str,
        resource_version: str,
        node: str,
        annotations: Mapping[str, str],
    ) -> None:
        """Bind a pod to *node* and give it *annotations*, in one write that holds for this pod in this version only.

        Never waits out a pause of the whole client: by then the decision, and the lease it was taken under, are old.

        Args:
            namespace: the pod's.
            name: the pod's.
            uid: of the very pod decided on, not of a namesake.
            resource_version: the one decided from; "" gives up that guard.
            node: must exist; the API server does not check [facts 2.1].
            annotations: added to the pod's own; keys and sizes are not checked by the API server either.

        Raises:
            ApiConflictError: the pod is bound, gated, being deleted, another, or changed: see its `kind`.
            ApiRefusedError: certainly not bound.
            ApiUnknownError: perhaps bound; keep the share and read the pod.
        """
        metadata: dict[str, Any] = {"name": name, "namespace": namespace, "uid": uid}
        if resource_version:
            metadata["resourceVersion"] = resource_version
        metadata["annotations"] = dict(annotations)
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": metadata,
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await self._requester.request(
            "POST",
            pod_path(namespace, name) + "/binding",
            params={"timeout": BIND_SERVER_TIMEOUT},
            body=_encode(binding),
            deadline_s=BIND_DEADLINE_S,
            wait_out_pause=False,
        )

    async def get_pod(self, namespace: str, name: str) -> bytes:
        """The pod as JSON, read from etcd, not from a cache."""
        return await self.get_raw(pod_path(namespace, name))

    async def patch_pod_annotations(
        self,
        namespace: str,
        name: str,
        annotations: Mapping[str, str | None],
        *,
        uid: str = "",
        resource_version: str = "",
    ) -> str:
        """Set annotations of a pod; `None` removes one. Returns the new resourceVersion.

        Args:
            namespace: the pod's.
            name: the pod's.
            annotations: those to change; the others stay.
            uid: refuse (409) if the pod is another; "" for any.
            resource_version: refuse (409) if it changed since; "" for any.
        """
        body = _annotation_patch(annotations, uid=uid, resource_version=resource_version)
        return await self._patch_for_version(pod_path(namespace, name), body, MERGE_PATCH)

    async def patch_pod_status(
        self, namespace: str, name: str, conditions: Sequence[Condition], *, uid: str = ""
    ) -> str:
        """Set conditions of a pod, each replacing the one of its type. Returns the new resourceVersion.

        Args:
            namespace: the pod's.
            name: the pod's.
            conditions: those to set; the others stay.
            uid: refuse (409) if the pod is another; "" for any.
        """
        body: dict[str, Any] = {"status": {"conditions": [_condition(one) for one in conditions]}}
        if uid:
            body["metadata"] = {"uid": uid}
        return await self._patch_for_version(pod_path(namespace, name) + "/status", body, STRATEGIC_PATCH)

    async def nominate(self, namespace: str, name: str, node: str, *, uid: str) -> str:
        """Say of a pod on which node room is being made for it, "" for none. Returns the new resourceVersion.

        409 if the pod is another than *uid*.
        """
        body = {"metadata": {"uid": uid}, "status": {"nominatedNodeName": node or None}}
        return await self._patch_for_version(pod_path(namespace, name) + "/status", body, MERGE_PATCH)

    async def evict(self, namespace: str, name: str, *, uid: str, dry_run: bool = False) -> None:
        """Ask a pod to leave.

        Args:
            namespace: the pod's.
            name: the pod's.
            uid: refuse (409) if the pod is another.
            dry_run: only say whether that would be granted.

        Raises:
            ApiThrottledError: a disruption budget forbids it for now.
        """
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        await self.create(pod_path(namespace, name) + "/eviction", body, dry_run=dry_run)

    # -- nodes and configuration --------------------------------------------------------------------------------

    async def get_node(self, name: str) -> bytes:
        """The node as JSON."""
        return await self.get_raw(node_path(name))

    async def patch_node_annotations(
        self, name: str, annotations: Mapping[str, str | None], *, resource_version: str
    ) -> str:
        """Set annotations of a node if it is still in *resource_version* (409 otherwise); `None` removes one.

        Returns the new resourceVersion. Heartbeats change a node's version often: read, judge and try again.
        """
        body = _annotation_patch(annotations, uid="", resource_version=resource_version)
        return await self._patch_for_version(node_path(name), body, MERGE_PATCH)

    async def get_config_map(self, namespace: str, name: str) -> bytes:
        """The ConfigMap as JSON."""
        return await self.get_raw(f"{namespace_path(namespace)}/configmaps/{_quoted(name)}")

    # -- events -------------------------------------------------------------------------------------------------

    async def create_event(self, namespace: str, event: Body) -> str:
        """Write a core/v1 Event. Returns its resourceVersion."""
        answer = await self.create(f"{namespace_path(namespace)}/events", event)
        return _version("POST", f"{namespace_path(namespace)}/events", answer)

    async def patch_event(self, namespace: str, name: str, changes: Body) -> str:
        """Merge *changes* (`count`, `lastTimestamp`, ...) into an Event; 404 once it has aged out."""
        path = f"{namespace_path(namespace)}/events/{_quoted(name)}"
        return _version("PATCH", path, await self.patch(path, changes))

    # -- who may ------------------------------------------------------------------------------------------------

    async def token_review(self, token: str, *, audiences: Sequence[str] = ()) -> Identity:
        """Whom *token* belongs to. With *audiences*, it must have been made for one of them."""
        spec = {"token": token, "audiences": list(audiences)}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
        path = "/apis/authentication.k8s.io/v1/tokenreviews"
        status = _decoded(_token_review_decoder, "POST", path, await self.create(path, body)).status
        # A server that knows no audiences answers without any, and has not checked them.
        meant_for_us = not audiences or bool(set(audiences) & set(status.audiences or ()))
        return Identity(
            authenticated=bool(status.authenticated) and meant_for_us,
            username=status.user.username or "",
            uid=status.user.uid or "",
            groups=tuple(status.user.groups or ()),
            error=status.error or ("" if meant_for_us else "the token was made for another audience"),
        )

    async def subject_access_review(self, identity: Identity, access: Access) -> bool:
        """Whether *identity* may do what *access* says."""
        spec: dict[str, Any] = {
            "user": identity.username,
            "uid": identity.uid,
            "groups": list(identity.groups),
        }
        if access.path:
            spec["nonResourceAttributes"] = {"verb": access.verb, "path": access.path}
        else:
            spec["resourceAttributes"] = {
                "verb": access.verb,
                "group": access.group,
                "resource": access.resource,
                "subresource": access.subresource,
                "namespace": access.namespace,
                "name": access.name,
            }
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        answer = await self.create(path, body)
        return _decoded(_access_review_decoder, "POST", path, answer).status.allowed

    # -- any kind -----------------------------------------------------------------------------------------------

    async def get_raw(self, path: str, params: Mapping[str, str] | None = None) -> bytes:
        """Whatever is at *path*, percent-encoded already."""
        answer = await self._requester.request("GET", path, params=params, deadline_s=self._deadline_s)
        return answer.body

    async def create(self, path: str, value: Body, *, dry_run: bool = False) -> bytes:
        """POST *value* to a collection; the object as stored. 409 `AlreadyExists` if there is one of that name."""
        return await self._write("POST", path, value, JSON, params=_dry(dry_run))

    async def replace(self, path: str, value: Body, *, dry_run: bool = False) -> bytes:
        """PUT *value* in place of the object at *path*; with a resourceVersion in it, only of that version."""
        return await self._write("PUT", path, value, JSON, params=_dry(dry_run))

    async def patch(self, path: str, changes: Body, *, content_type: str = MERGE_PATCH, dry_run: bool = False) -> bytes:
        """Apply *changes* to the object at *path*; the object as stored."""
        return await self._write("PATCH", path, changes, content_type, params=_dry(dry_run))

    async def apply(self, path: str, value: Body, *, manager: str) -> bytes:
        """Server-side apply *value* as *manager*, creating the object if there is none; the object as stored.

        Unlike a POST, a creation by this call is held to the `resourceNames` of the right `create`.
        """
        return await self._write("PATCH", path, value, APPLY_PATCH, params={"fieldManager": manager})

    async def delete(self, path: str, *, uid: str = "", grace_s: int | None = None) -> bytes:
        """Delete the object at *path*: only the one with *uid* if given, after *grace_s* seconds if given."""
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        return await self._write("DELETE", path, options, JSON)

    async def _write(
        self, verb: str, path: str, value: Body, content_type: str, *, params: Mapping[str, str] | None = None
    ) -> bytes:
        answer = await self._requester.request(
            verb,
            path,
            params=params,
            body=_encode(value),
            content_type=content_type,
            deadline_s=self._deadline_s,
        )
        return answer.body

    async def _patch_for_version(self, path: str, changes: Body, content_type: str) -> str:
        return _version("PATCH", path, await self.patch(path, changes, content_type=content_type))


def _dry(dry_run: bool) -> Mapping[str, str] | None:
    return {"dryRun": "All"} if dry_run else None


_token_review_decoder: Final = msgspec.json.Decoder(_TokenReview)
_access_review_decoder: Final = msgspec.json.Decoder(_AccessReview)


def namespace_path(namespace: str) -> str:
    """Where the core/v1 objects of *namespace* are."""
    return f"/api/v1/namespaces/{_quoted(namespace)}"


def pod_path(namespace: str, name: str) -> str:
    """Where a pod is."""
    return f"{namespace_path(namespace)}/pods/{_quoted(name)}"


def owner_path(namespace: str, kind: str, name: str) -> str:
    """Where an owner of pods is, of one of the kinds in OWNERS."""
    api, collection = OWNERS[kind]
    return f"/apis/{api}/namespaces/{_quoted(namespace)}/{collection}/{_quoted(name)}"


def claim_path(namespace: str, name: str) -> str:
    """Where a PersistentVolumeClaim is."""
    return f"{namespace_path(namespace)}/persistentvolumeclaims/{_quoted(name)}"


def volume_path(name: str) -> str:
    """Where a PersistentVolume is."""
    return f"/api/v1/persistentvolumes/{_quoted(name)}"


def node_path(name: str) -> str:
    """Where a node is."""
    return f"/api/v1/nodes/{_quoted(name)}"


def _quoted(name: str) -> str:
    if name in ("", ".", ".."):
        # Out of somebody's request, such a name would reach another object, or all of them.
        raise InvalidRequestError("name", name, "write the name of one object")
    return quote(name, safe="")


def _encode(value: Body) -> bytes:
    return value if isinstance(value, bytes) else msgspec.json.encode(value)


def _annotation_patch(annotations: Mapping[str, str | None], *, uid: str, resource_version: str) -> dict[str, Any]:
    metadata: dict[str, Any] = {"annotations": dict(annotations)}
    if uid:
        metadata["uid"] = uid
    if resource_version:
        metadata["resourceVersion"] = resource_version
    return {"metadata": metadata}


def _condition(condition: Condition) -> dict[str, str]:
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "lastTransitionTime": condition.changed_at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def _version(verb: str, path: str, answer: bytes) -> str:
    try:
        return read_version(answer)
    except UndecodableError as e:
        # It said 200, so it was written; but as what, only a read can tell.
        raise ApiUnknownError(verb=verb, path=path, status=200, message=str(e)) from e


def _decoded(decoder: msgspec.json.Decoder[_T], verb: str, path: str, answer: bytes) -> _T:
    try:
        return decoder.decode(answer)
    except (ValueError, msgspec.MsgspecError) as e:
        text = f"the review's answer cannot be read: {e}"
        raise ApiUnreadableError(verb=verb, path=path, status=200, message=text) from e
