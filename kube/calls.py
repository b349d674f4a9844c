"""The named calls to the API server: what each sends, its precondition and deadline, and what it returns.

Calls return objects as the received bytes; callers that know the kind decode them. The envelopes of lists and the
versions of objects are read here, for objects of any kind. For every failure outside the process, a call raises
`kube.errors.ApiError` and nothing else; the subclass says whether something was written.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeAlias, TypedDict, TypeVar, Unpack
from urllib.parse import quote

import msgspec

from core.errors import InvalidRequestError
from kube.errors import ApiUnknownError, ApiUnreadableError, UndecodableError, printable
from kube.transport import Purpose, Response

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"

# Kinds with a pod template: their API and collection. Source: Kubernetes API reference, "Workload Resources".
OWNERS: Final[Mapping[str, tuple[str, str]]] = {
    "ReplicaSet": ("apps/v1", "replicasets"),
    "DaemonSet": ("apps/v1", "daemonsets"),
    "StatefulSet": ("apps/v1", "statefulsets"),
    "Job": ("batch/v1", "jobs"),
}

# The API server gives up after 5 s and answers within the next second, so a Binding is never in flight for longer.
# Leases and hand-overs rely on that.
BIND_SERVER_TIMEOUT: Final = "5s"
BIND_DEADLINE_S: Final = 6.0

_NO_LABELS: Final[Mapping[str, str]] = {}

Body: TypeAlias = bytes | Mapping[str, Any]
_T = TypeVar("_T")
_V = TypeVar("_V")


class Sending(TypedDict, total=False):
    """How a request is sent; see `kube.transport.Transport.request`."""

    params: Mapping[str, str] | None
    body: bytes | None
    content_type: str
    deadline_s: float | None
    purpose: Purpose
    wait_out_pause: bool
    permit: Callable[[], bool] | None


class Requester(Protocol):
    """Who sends requests to the API server: `kube.transport.Transport`, or one that answers in its place."""

    async def request(self, verb: str, path: str, **sending: Unpack[Sending]) -> Response:
        """See `kube.transport.Transport.request`."""
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
    """The owner of a token, as the API server sees it; *authenticated* is `False` for an unknown token.

    extra: what else an authorizer may judge by, such as the scopes to which a token is restricted.
    """

    authenticated: bool
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, Sequence[str]] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """A requested action: a verb on a resource, or on a non-resource path."""

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
    extra: dict[str, list[str]] | None = None


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
    """Calls over one transport; stateless."""

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
        labels: Mapping[str, str] = _NO_LABELS,
    ) -> None:
        """Bind a pod to *node* with *annotations* and *labels*, in one write that is valid only for this version of it.

        It never waits out a pause of the client, because the decision and its lease would then be old.

        Args:
            namespace: namespace of the pod.
            name: name of the pod.
            uid: uid of the pod, so that another pod of the same name is never bound.
            resource_version: the version that the decision used; "" disables this check.
            node: must exist, because the API server does not check it [facts 2.1].
            annotations: added to the pod's own; the API server checks neither keys nor sizes.
            labels: the same; API servers before Kubernetes 1.35 ignore them.

        Raises:
            ApiConflictError: the pod is bound, gated, being deleted, another, or changed: see its `kind`.
            ApiRefusedError: certainly not bound.
            ApiUnknownError: perhaps bound; keep the share and read the pod.
        """
        metadata: dict[str, Any] = {"name": name, "namespace": namespace, "uid": uid}
        if resource_version:
            metadata["resourceVersion"] = resource_version
        metadata["annotations"] = dict(annotations)
        if labels:
            metadata["labels"] = dict(labels)
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": metadata,
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        path = pod_path(namespace, name) + "/binding"
        answer = await self._requester.request(
            "POST",
            path,
            params={"timeout": BIND_SERVER_TIMEOUT},
            body=_encode(binding),
            deadline_s=BIND_DEADLINE_S,
            wait_out_pause=False,
        )
        answer.check_kind("POST", path)

    async def get_pod(self, namespace: str, name: str) -> bytes:
        """Return the pod as JSON, read from etcd and not from a cache."""
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
        """Set annotations of a pod; `None` removes one. Return the new resourceVersion.

        Args:
            namespace: namespace of the pod.
            name: name of the pod.
            annotations: the changes; other annotations stay.
            uid: expected uid, else 409; "" for any.
            resource_version: expected version, else 409; "" for any.
        """
        body = _annotation_patch(annotations, uid=uid, resource_version=resource_version)
        return await self._patch_for_version(pod_path(namespace, name), body, MERGE_PATCH)

    async def patch_pod_status(
        self, namespace: str, name: str, conditions: Sequence[Condition], *, uid: str = ""
    ) -> str:
        """Set conditions of a pod; each replaces the one of its type. Return the new resourceVersion.

        Args:
            namespace: namespace of the pod.
            name: name of the pod.
            conditions: the conditions to set; others stay.
            uid: expected uid, else 409; "" for any.
        """
        body: dict[str, Any] = {"status": {"conditions": [_condition(one) for one in conditions]}}
        if uid:
            body["metadata"] = {"uid": uid}
        return await self._patch_for_version(pod_path(namespace, name) + "/status", body, STRATEGIC_PATCH)

    async def nominate(self, namespace: str, name: str, node: str, *, uid: str) -> str:
        """Set a pod's nominated node, "" for none. Return the new resourceVersion.

        The API server answers 409 if the pod's uid is not *uid*.
        """
        body = {"metadata": {"uid": uid}, "status": {"nominatedNodeName": node or None}}
        return await self._patch_for_version(pod_path(namespace, name) + "/status", body, MERGE_PATCH)

    async def evict(self, namespace: str, name: str, *, uid: str, dry_run: bool = False) -> None:
        """Evict a pod.

        Args:
            namespace: namespace of the pod.
            name: name of the pod.
            uid: expected uid, else 409.
            dry_run: only check whether the eviction would be granted.

        Raises:
            ApiThrottledError: a disruption budget currently forbids it.
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
        """Return the node as JSON."""
        return await self.get_raw(node_path(name))

    async def patch_node_annotations(
        self, name: str, annotations: Mapping[str, str | None], *, resource_version: str
    ) -> str:
        """Set annotations of a node that is still at *resource_version* (otherwise 409); `None` removes one.

        Return the new resourceVersion. Heartbeats often change a node's version: on a conflict read, decide and try
        again.
        """
        body = _annotation_patch(annotations, uid="", resource_version=resource_version)
        return await self._patch_for_version(node_path(name), body, MERGE_PATCH)

    async def get_config_map(self, namespace: str, name: str) -> bytes:
        """Return the ConfigMap as JSON."""
        return await self.get_raw(f"{namespace_path(namespace)}/configmaps/{_quoted(name)}")

    # -- events -------------------------------------------------------------------------------------------------

    async def create_event(self, namespace: str, event: Body) -> str:
        """Create a core/v1 Event. Return its resourceVersion."""
        answer = await self.create(f"{namespace_path(namespace)}/events", event)
        return _version("POST", f"{namespace_path(namespace)}/events", answer)

    async def patch_event(self, namespace: str, name: str, changes: Body) -> str:
        """Merge *changes* (`count`, `lastTimestamp`, ...) into an Event; 404 if it has expired."""
        path = f"{namespace_path(namespace)}/events/{_quoted(name)}"
        return _version("PATCH", path, await self.patch(path, changes))

    # -- who may ------------------------------------------------------------------------------------------------

    async def token_review(self, token: str, *, audiences: Sequence[str] = ()) -> Identity:
        """Return the owner of *token*. With *audiences*, the token must be valid for one of them."""
        spec = {"token": token, "audiences": list(audiences)}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
        path = "/apis/authentication.k8s.io/v1/tokenreviews"
        status = _decoded(_token_review_decoder, "POST", path, await self.create(path, body)).status
        # A server that does not support audiences returns none and has not checked them.
        meant_for_us = not audiences or bool(set(audiences) & set(status.audiences or ()))
        return Identity(
            authenticated=bool(status.authenticated) and meant_for_us,
            username=status.user.username or "",
            uid=status.user.uid or "",
            groups=tuple(status.user.groups or ()),
            extra=status.user.extra or {},
            error=status.error or ("" if meant_for_us else "the token was made for another audience"),
        )

    async def subject_access_review(self, identity: Identity, access: Access) -> bool:
        """Return whether *identity* is authorized for *access*."""
        spec: dict[str, Any] = {
            "user": identity.username,
            "uid": identity.uid,
            "groups": list(identity.groups),
            "extra": identity.extra,
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
        """Return the object at *path*, which is already percent-encoded."""
        answer = await self._requester.request("GET", path, params=params, deadline_s=self._deadline_s)
        answer.check_kind("GET", path)
        return answer.body

    async def create(self, path: str, value: Body, *, dry_run: bool = False) -> bytes:
        """POST *value* to a collection. Return the stored object; 409 `AlreadyExists` if the name exists."""
        return await self._write("POST", path, value, JSON, params=_dry(dry_run))

    async def replace(self, path: str, value: Body, *, dry_run: bool = False) -> bytes:
        """Replace the object at *path* with *value* by PUT; a resourceVersion in *value* must match."""
        return await self._write("PUT", path, value, JSON, params=_dry(dry_run))

    async def patch(self, path: str, changes: Body, *, content_type: str = MERGE_PATCH, dry_run: bool = False) -> bytes:
        """Apply *changes* to the object at *path*. Return the stored object."""
        return await self._write("PATCH", path, changes, content_type, params=_dry(dry_run))

    async def apply(self, path: str, value: Body, *, manager: str) -> bytes:
        """Server-side apply *value* as *manager*; this creates a missing object. Return the stored object.

        Unlike a POST, this call is subject to the `resourceNames` of the right `create` when it creates an object.
        """
        return await self._write("PATCH", path, value, APPLY_PATCH, params={"fieldManager": manager})

    async def delete(self, path: str, *, uid: str = "", grace_s: int | None = None) -> bytes:
        """Delete the object at *path*: only with uid *uid* if given, and after *grace_s* seconds if given."""
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
        answer.check_kind(verb, path)
        return answer.body

    async def _patch_for_version(self, path: str, changes: Body, content_type: str) -> str:
        return _version("PATCH", path, await self.patch(path, changes, content_type=content_type))


def _dry(dry_run: bool) -> Mapping[str, str] | None:
    return {"dryRun": "All"} if dry_run else None


_token_review_decoder: Final = msgspec.json.Decoder(_TokenReview)
_access_review_decoder: Final = msgspec.json.Decoder(_AccessReview)


def namespace_path(namespace: str) -> str:
    """Return the path of the core/v1 objects of *namespace*."""
    return f"/api/v1/namespaces/{_quoted(namespace)}"


def pod_path(namespace: str, name: str) -> str:
    """Return the path of a pod."""
    return f"{namespace_path(namespace)}/pods/{_quoted(name)}"


def owner_path(namespace: str, kind: str, name: str) -> str:
    """Return the path of an owner of pods; *kind* is in OWNERS."""
    api, collection = OWNERS[kind]
    return f"/apis/{api}/namespaces/{_quoted(namespace)}/{collection}/{_quoted(name)}"


def claim_path(namespace: str, name: str) -> str:
    """Return the path of a PersistentVolumeClaim."""
    return f"{namespace_path(namespace)}/persistentvolumeclaims/{_quoted(name)}"


def volume_path(name: str) -> str:
    """Return the path of a PersistentVolume."""
    return f"/api/v1/persistentvolumes/{_quoted(name)}"


def node_path(name: str) -> str:
    """Return the path of a node."""
    return f"/api/v1/nodes/{_quoted(name)}"


def _quoted(name: str) -> str:
    if name in ("", ".", ".."):
        # In a path, such a name from a request would address another object or the whole collection.
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
        # Status 200 means that it was written; only a read shows in which version.
        raise ApiUnknownError(verb=verb, path=path, status=200, message=str(e)) from e


def _decoded(decoder: msgspec.json.Decoder[_T], verb: str, path: str, answer: bytes) -> _T:
    try:
        return decoder.decode(answer)
    except (ValueError, msgspec.MsgspecError) as e:
        text = f"the review's answer cannot be read: {e}"
        raise ApiUnreadableError(verb=verb, path=path, status=200, message=text) from e


# ---------------------------------------------------------------------- lists, and what all objects have


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPage(Generic[_T]):
    """One page of a list; *continue_token* is "" on the last page."""

    items: tuple[_T, ...]
    resource_version: str
    continue_token: str = ""


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_: str | None = msgspec.field(default="", name="continue")


class _List(msgspec.Struct, frozen=True):
    """Source: Kubernetes API reference, meta/v1 ListMeta. An empty list may be `null`."""

    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


class _Version(msgspec.Struct, frozen=True, rename="camel"):
    # Read of every event of every watch, in less than half the time of `ObjectMeta`.
    resource_version: str = ""


class _Head(msgspec.Struct, frozen=True):
    metadata: _Version = _Version()
    # Only in a Status:
    code: int | None = 0
    reason: str | None = ""
    message: str | None = ""


_list_decoder: Final = msgspec.json.Decoder(_List)
head_decoder: Final = msgspec.json.Decoder(_Head)
# No field that anybody reads is nested so deeply, and the decoder follows more.
_LEVELS_MAX: Final = 128
_TOKENS: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', re.DOTALL)
_PAIRS: Final = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<half>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)


def page_decoder(decode: Callable[[bytes], _T]) -> Callable[[bytes], ListPage[_T]]:
    """Return a decoder of lists whose objects *decode* reads; it raises only `UndecodableError`.

    Args:
        decode: converts one object's JSON to a value; may raise `ValueError` or msgspec's errors.
    """
    return partial(read_json, "a list", read=partial(_decode_page, decode=decode))


def read_version(text: bytes) -> str:
    """Return the `resourceVersion` of the object in *text*.

    Raises:
        UndecodableError: *text* is not an object.
    """
    return read_json("an object", text, lambda found: head_decoder.decode(found).metadata.resource_version)


def read_json(what: str, text: bytes, read: Callable[[bytes], _V]) -> _V:
    """Return what *read* makes of *text*, less parts that it cannot follow; *what*: for people.

    The API server stores objects that the decoder refuses, even where it skips them: nested more deeply than it
    follows, or with half of a surrogate pair, as the parameters of a ResourceClaim may be. Nobody here reads these
    parts, so they are replaced, and a list with such an object can be read as any other.

    Raises:
        UndecodableError: it raised `ValueError` or one of msgspec's errors.
    """
    try:
        return read(text)
    except (ValueError, msgspec.MsgspecError, RecursionError) as e:
        error: Exception = e
    plain = _PAIRS.sub(_whole, _shallow(text))
    if plain != text:
        try:
            return read(plain)
        except (ValueError, msgspec.MsgspecError, RecursionError) as e:
            error = e
    raise UndecodableError(f"{what} cannot be read: {printable(str(error), 256)}") from error


def _whole(escape: re.Match[bytes]) -> bytes:
    """Return an escape in a JSON text; half of a surrogate pair becomes U+FFFD, as Go reads it."""
    return b"\\ufffd" if escape["half"] else escape[0]


def _shallow(text: bytes) -> bytes:
    """Return JSON *text* with null in place of what is nested too deeply; *text* itself if nothing is."""
    kept: list[bytes] = []
    level = begin = 0
    for token in _TOKENS.finditer(text):
        first = text[token.start()]
        if first in b"[{":
            level += 1
            if level == _LEVELS_MAX:
                kept.append(text[begin : token.start()])
        elif first in b"]}":
            if level == _LEVELS_MAX:
                kept.append(b"null")
                begin = token.end()
            level -= 1
    return b"".join([*kept, text[begin:]]) if kept and level < _LEVELS_MAX else text


def _decode_page(text: bytes, decode: Callable[[bytes], _T]) -> ListPage[_T]:
    found = _list_decoder.decode(text)
    if not found.metadata.resource_version:
        # Every list has one. Taken for a list, a proxy's page would say that there are no objects.
        raise ValueError("it has no resourceVersion; look for a proxy in between")
    return ListPage(
        items=tuple([decode(bytes(raw)) for raw in found.items or ()]),
        resource_version=found.metadata.resource_version,
        continue_token=found.metadata.continue_ or "",
    )


def is_newer(version: str, than: str) -> bool:
    """Return whether *version* of an object is certainly later than *than*; False if that is unknown.

    Source: Kubernetes documentation, API concepts, resource versions: since 1.35 they are increasing decimal numbers
    that may be compared for order. Earlier API servers on etcd behave the same without the promise. A version that is
    not such a number has no order here, and callers must do without one.
    """
    if version == than or not (_is_number(version) and _is_number(than)):
        return False
    return (len(version), version) > (len(than), than)


def _is_number(version: str) -> bool:
    return version.isascii() and version.isdigit() and (version[0] != "0" or version == "0")
