"""Operations other than writes: binding, eviction, tokens of service accounts, and reviews of tokens and rights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from kube.calls import Access
from sandbox.api import fields
from sandbox.api.errors import StatusError, bad_request, invalid, not_found
from sandbox.api.registry import DeleteOptions, Registry, WriteCall, write_of
from sandbox.api.requests import Target
from sandbox.api.resources import ResourceType
from sandbox.api.selectors import Selection, label_matcher
from sandbox.api.store import Stored
from sandbox.api.users import API_AUDIENCE, AUTHENTICATED, Authorizer, Tokens, User, service_account
from sandbox.api.validation import check_bindable, check_binding

Json = dict[str, Any]

_LEAST_TOKEN_S: Final = 600

_SUCCESS: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
_PDB = "poddisruptionbudgets.policy"
# Disruption budgets count the evictions of pods in these phases.
_COUNTED: Final = frozenset({"Running", "Unknown"})
_SEVERAL: Final = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."


async def bind(registry: Registry, target: Target, binding: Json, call: WriteCall) -> Json:
    """Bind a pod: node, annotations, labels and condition in one atomic write.

    *target* is the pod's subresource, or the older ``bindings``, for which only the Binding names the pod.

    Raises:
        StatusError: denied, or as in `validation.check_binding` and `validation.check_bindable`.
    """
    kind = _kind(registry, "", "bindings")
    binding, _ = fields.check(kind, binding)
    metadata = {"namespace": target.namespace, **(binding.get("metadata") or {})}
    name = target.name or str(metadata.get("name") or "")
    binding = {**binding, "kind": "Binding", "apiVersion": "v1", "metadata": metadata}
    write = replace(write_of("CREATE", target, call, binding), name=name, subkind=kind)
    binding = await registry.admission.mutate(write, call.warnings) or binding
    node = check_binding(binding, name)
    await registry.admission.validate(replace(write, obj=binding), call.warnings)
    stored = registry.store.get("pods", target.namespace, name)
    check_bindable(None if stored is None else stored.obj, binding, name)
    if stored is not None and not call.dry_run:
        registry.commit(_kind(registry, "", "pods"), _bound(stored, binding, node, registry.now()))
    return _SUCCESS


def _bound(stored: Stored, binding: Mapping[str, Any], node: str, now: str) -> Json:
    pod, carried = stored.obj, binding.get("metadata") or {}
    metadata = {**pod["metadata"]}
    for name in ("annotations", "labels"):
        if carried.get(name):
            metadata[name] = {**(metadata.get(name) or {}), **carried[name]}
    others = [c for c in pod["status"].get("conditions") or () if c.get("type") != "PodScheduled"]
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
    return {
        **pod,
        "metadata": metadata,
        "spec": {**pod["spec"], "nodeName": node},
        "status": {**pod["status"], "conditions": [*others, scheduled]},
    }


async def evict(registry: Registry, target: Target, body: Mapping[str, Any], call: WriteCall) -> Json:
    """Delete a pod unless a disruption budget forbids it, or several budgets cover it.

    Source: pkg/registry/core/pod/storage/eviction.go.

    Raises:
        StatusError: 429, a budget allows no disruption now; 404.
    """
    pod = registry.fetch(target).obj
    status, labels = pod.get("status") or {}, pod["metadata"].get("labels") or {}
    budgets: list[Stored] = []
    if status.get("phase") in _COUNTED and not pod["metadata"].get("deletionTimestamp"):
        budgets = [
            stored
            for stored in registry.store.select(_PDB, Selection(namespace=target.namespace))
            if label_matcher(stored.obj.get("spec", {}).get("selector"))(labels)
        ]
    if len(budgets) > 1:
        # No error, but a Status, which is sent with 201.
        return StatusError(500, "", _SEVERAL).status()
    is_ready = any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions") or ())
    for stored in budgets:
        if is_ready or not _frees_unready(stored.obj):
            spent = _spent(stored, target.name, registry.now())
            if not call.dry_run:
                registry.commit(_kind(registry, "policy", "poddisruptionbudgets"), spent)
    await registry.delete(target, read_delete_options(body.get("deleteOptions") or {}, {}), call)
    return _SUCCESS


def _frees_unready(budget: Mapping[str, Any]) -> bool:
    """Return whether pods of *budget* that are not ready may be evicted uncounted."""
    status = budget.get("status") or {}
    desired, healthy = int(status.get("desiredHealthy", 0)), int(status.get("currentHealthy", 0))
    return 0 < desired <= healthy or bool(budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow")


def _spent(budget: Stored, pod: str, now: str) -> Json:
    """Return *budget* with one eviction less, that of *pod*.

    Raises:
        StatusError: 429, it allows none.
    """
    status = budget.obj.get("status") or {}
    allowed = status.get("disruptionsAllowed", 0)
    if allowed < 1:
        raise StatusError(
            429,
            "TooManyRequests",
            "Cannot evict pod as it would violate the pod's disruption budget.",
            {"Retry-After": "10"},
        )
    disrupted = {**(status.get("disruptedPods") or {}), pod: now}
    return {**budget.obj, "status": {**status, "disruptionsAllowed": allowed - 1, "disruptedPods": disrupted}}


def read_delete_options(body: Mapping[str, Any], query: Mapping[str, str]) -> DeleteOptions:
    """Read DeleteOptions from a body, or from the query for fields that the body lacks.

    Raises:
        StatusError: 400, the grace period is not a number of seconds.
    """
    preconditions = body.get("preconditions") or {}
    grace = body.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))
    policy = body.get("propagationPolicy") or query.get("propagationPolicy")
    try:
        grace_s = None if grace is None else max(int(grace), 0)
    except (TypeError, ValueError) as e:
        raise bad_request(f"gracePeriodSeconds: {grace!r} is no whole number of seconds") from e
    return DeleteOptions(
        grace_s=grace_s,
        uid=str(preconditions.get("uid") or ""),
        resource_version=str(preconditions.get("resourceVersion") or ""),
        orphan=policy == "Orphan" or body.get("orphanDependents") is True,
    )


def request_token(registry: Registry, tokens: Tokens, target: Target, body: Json) -> Json:
    """Answer a TokenRequest for a service account.

    Raises:
        StatusError: 404, or 422 for a lifetime that is too short.
    """
    account = registry.fetch(target).obj["metadata"]
    spec = body.get("spec") or {}
    lifetime_s = int(spec.get("expirationSeconds") or 3600)
    if lifetime_s < _LEAST_TOKEN_S:
        why = "spec.expirationSeconds: Invalid value: {}: may not specify a duration less than 10 minutes"
        raise invalid("TokenRequest", "", [why.format(lifetime_s)], "authentication.k8s.io")
    audiences = tuple(spec.get("audiences") or (API_AUDIENCE,))
    user = service_account(target.namespace, target.name, account["uid"])
    token = tokens.issue(user, audiences=audiences, lifetime_s=lifetime_s)
    return {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"name": target.name, "namespace": target.namespace},
        "spec": {"audiences": list(audiences), "expirationSeconds": lifetime_s, "boundObjectRef": None},
        "status": {"token": token, "expirationTimestamp": registry.after(lifetime_s)},
    }


def _kind(registry: Registry, group: str, plural: str) -> ResourceType:
    found = registry.catalogue.find(group, "v1", plural)
    if found is None:
        raise not_found(plural, "")
    return found


def answer(plural: str, body: Json, user: User, tokens: Tokens, authorizer: Authorizer) -> Json:
    """Return the review *body* with its status.

    Raises:
        StatusError: 400, the review has no question.
    """
    spec = body.get("spec") or {}
    match plural:
        case "tokenreviews":
            status = _token(spec, tokens)
        case "selfsubjectreviews":
            status = {"userInfo": user.info()}
        case "selfsubjectaccessreviews":
            status = _access(spec, user, authorizer)
        case _:
            groups = tuple(group for group in spec.get("groups") or () if group != AUTHENTICATED)
            status = _access(spec, User(name=str(spec.get("user") or ""), groups=groups), authorizer)
    return {**body, "metadata": body.get("metadata") or {}, "status": status}


def _token(spec: Mapping[str, Any], tokens: Tokens) -> Json:
    audiences = tuple(spec.get("audiences") or (API_AUDIENCE,))
    found = tokens.look_up(str(spec.get("token") or ""), audiences)
    if found is None:
        return {"user": {}, "error": "invalid bearer token"}
    matched = [audience for audience in audiences if audience in found.audiences]
    return {"authenticated": True, "user": found.user.info(), "audiences": matched}


def _access(spec: Mapping[str, Any], user: User, authorizer: Authorizer) -> Json:
    asked, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if asked:
        words = ("verb", "group", "resource", "subresource", "namespace", "name")
        action = Access(**{word: asked.get(word, "") for word in words})
    elif path:
        action = Access(verb=path.get("verb", ""), path=path.get("path", ""))
    else:
        raise bad_request("spec: exactly one of nonResourceAttributes or resourceAttributes must be specified")
    return {"allowed": authorizer.allows(user, action)}
