"""Calls the registered admission webhooks for a write: selects them, orders them, and applies their answers."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from kube.calls import Access
from sandbox.api import fields
from sandbox.api.defaults import complete, fresh
from sandbox.api.errors import StatusError, bad_request, forbidden, internal
from sandbox.api.patching import json_patch
from sandbox.api.resources import ResourceType
from sandbox.api.selectors import label_matcher
from sandbox.api.store import Store
from sandbox.api.users import Authorizer, User, service_account
from sandbox.api.webhooks import Allows, Caller, CallError, ConditionError, WebhookAnswer, met

Json = dict[str, Any]

MUTATING: Final = "mutatingwebhookconfigurations.admissionregistration.k8s.io"
VALIDATING: Final = "validatingwebhookconfigurations.admissionregistration.k8s.io"
# Configurations of webhooks are never sent to webhooks, because one could lock all users out.
_NEVER_SENT: Final = frozenset({MUTATING, VALIDATING})
_OPTIONS: Final = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions", "DELETE": "DeleteOptions"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """A write under admission. *subkind* is set if the body has another kind, such as a Binding."""

    operation: str
    kind: ResourceType
    namespace: str
    name: str
    user: User
    obj: Json | None
    old: Mapping[str, Any] | None = None
    subresource: str = ""
    subkind: ResourceType | None = None
    dry_run: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hook:
    name: str
    config: Mapping[str, Any]
    selects_namespace: Callable[[Mapping[str, str]], bool]
    selects_object: Callable[[Mapping[str, str]], bool]

    def ruled(self, write: Write) -> bool:
        return any(_rule_matches(rule, write) for rule in self.config.get("rules") or ())

    @property
    def ignores_failure(self) -> bool:
        return self.config.get("failurePolicy") == "Ignore"


class Admission:
    """The webhooks of a store."""

    def __init__(self, store: Store, caller: Caller, authorizer: Authorizer) -> None:
        self._store = store
        self._authorizer = authorizer
        self._caller = caller
        self._hooks: dict[str, tuple[int, tuple[_Hook, ...]]] = {}

    async def mutate(self, write: Write, warnings: list[str]) -> Json | None:
        """Return the object after all mutating webhooks, with defaults set again after each patch.

        Raises:
            StatusError: denied, or a webhook or its conditions failed under failurePolicy Fail.
        """
        hooks = self._matching(MUTATING, write)
        changed_after: dict[str, bool] = {}
        for hook in hooks:
            if not self._selected(hook, write):
                continue
            changed = await self._mutate_once(hook, write, warnings)
            if changed is not None:
                write = changed
                changed_after = dict.fromkeys(changed_after, True)
            changed_after[hook.name] = False
        for hook in hooks:
            again = hook.config.get("reinvocationPolicy") == "IfNeeded" and changed_after.get(hook.name, False)
            if again and self._selected(hook, write):
                write = await self._mutate_once(hook, write, warnings) or write
        return write.obj

    async def validate(self, write: Write, warnings: list[str]) -> None:
        """Call all validating webhooks at once; the first denial in order is reported.

        Raises:
            StatusError: denied, or a webhook or its conditions failed under failurePolicy Fail.
        """
        hooks = [hook for hook in self._matching(VALIDATING, write) if self._selected(hook, write)]
        if not hooks:
            return
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._verdict(hook, write, warnings), name=hook.name) for hook in hooks]
        for task in tasks:
            if (refusal := task.result()) is not None:
                raise refusal

    async def _verdict(self, hook: _Hook, write: Write, warnings: list[str]) -> StatusError | None:
        try:
            await self._ask(hook, write, warnings)
        except StatusError as e:
            return e
        return None

    async def _mutate_once(self, hook: _Hook, write: Write, warnings: list[str]) -> Write | None:
        answer = await self._ask(hook, write, warnings)
        if answer is None or not answer.patch or write.obj is None:
            return None
        try:
            patched = json_patch(fresh(write.obj), msgspec.json.decode(answer.patch))
        except (StatusError, msgspec.DecodeError) as e:
            # Measured: a patch that does not apply fails the request under either failurePolicy.
            raise internal(f'failed to apply the patch of webhook "{hook.name}": {e}') from e
        patched.setdefault("metadata", {})
        # Unknown fields are dropped silently: measured.
        patched, _ = fields.check(write.kind if write.subkind is None else write.subkind, patched)
        complete(write.kind if write.subkind is None else write.subkind, patched)
        return None if patched == write.obj else replace(write, obj=patched)

    async def _ask(self, hook: _Hook, write: Write, warnings: list[str]) -> WebhookAnswer | None:
        """Make one call; return None if it failed and the failure is ignored."""
        if write.dry_run and hook.config.get("sideEffects") not in ("None", "NoneOnDryRun"):
            raise bad_request(f'admission webhook "{hook.name}" does not support dry run')
        try:
            answer = await self._caller.call(hook.config, _review(write))
        except CallError as e:
            if hook.ignores_failure:
                return None
            raise internal(f'failed calling webhook "{hook.name}": failed to call webhook: {e}') from e
        warnings.extend(answer.warnings)
        if not answer.allowed:
            raise _denial(hook.name, answer.status or {})
        return answer

    def _matching(self, resource: str, write: Write) -> list[_Hook]:
        if write.kind.resource in _NEVER_SENT:
            return []
        changed, hooks = self._hooks.get(resource, (-1, ()))
        if changed != self._store.changed(resource):
            hooks = tuple(
                _hook(config) for stored in self._store.select(resource) for config in stored.obj.get("webhooks") or ()
            )
            self._hooks[resource] = (self._store.changed(resource), hooks)
        return [hook for hook in hooks if hook.ruled(write)]

    def _selected(self, hook: _Hook, write: Write) -> bool:
        return self._labels_selected(hook, write) and _conditions_met(hook, write, self._account_may)

    def _account_may(self, asked: Mapping[str, str]) -> bool:
        namespace, verb = asked["namespace"], asked["check"]
        what = {key: asked.get(key, "") for key in ("group", "resource", "subresource")}
        return self._authorizer.allows(service_account(namespace, asked["name"]), Access(verb=verb, **what))

    def _labels_selected(self, hook: _Hook, write: Write) -> bool:
        objects = [obj for obj in (write.obj, write.old) if obj is not None]
        if not any(hook.selects_object(obj["metadata"].get("labels") or {}) for obj in objects):
            return False
        if write.kind.resource == "namespaces":
            return any(hook.selects_namespace(obj["metadata"].get("labels") or {}) for obj in objects)
        if not write.namespace:
            return True
        namespace = self._store.get("namespaces", "", write.namespace)
        return hook.selects_namespace({} if namespace is None else namespace.obj["metadata"].get("labels") or {})


def _hook(config: Mapping[str, Any]) -> _Hook:
    return _Hook(
        name=config["name"],
        config=config,
        selects_namespace=label_matcher(config.get("namespaceSelector")),
        selects_object=label_matcher(config.get("objectSelector")),
    )


def _rule_matches(rule: Mapping[str, Any], write: Write) -> bool:
    kind = write.kind
    if not {"*", write.operation} & set(rule.get("operations") or ()):
        return False
    if not {"*", kind.group} & set(rule.get("apiGroups") or ()):
        return False
    if not {"*", kind.version} & set(rule.get("apiVersions") or ()):
        return False
    scope = rule.get("scope") or "*"
    if scope != "*" and (scope == "Namespaced") is not kind.namespaced:
        return False
    if write.subresource:
        names = {"*/*", f"{kind.plural}/*", f"*/{write.subresource}", f"{kind.plural}/{write.subresource}"}
    else:
        names = {"*", "*/*", kind.plural}
    return bool(names & set(rule.get("resources") or ()))


def _conditions_met(hook: _Hook, write: Write, allows: Allows) -> bool:
    variables = {"object": write.obj, "oldObject": write.old, "request": _request(write)}
    try:
        return met(hook.config.get("matchConditions") or (), variables, allows)
    except ConditionError as e:
        if hook.ignores_failure:
            return False
        raise forbidden(write.kind.plural, write.name, str(e)) from e


def _review(write: Write) -> Json:
    request = {"uid": str(uuid.uuid4()), **_request(write), "object": write.obj, "oldObject": write.old}
    return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}


def _request(write: Write) -> Json:
    """Return the attributes of a write without the objects, as conditions see them."""
    body_kind = write.subkind or write.kind
    kind = {"group": body_kind.group, "version": body_kind.version, "kind": body_kind.kind}
    resource = {"group": write.kind.group, "version": write.kind.version, "resource": write.kind.plural}
    request: Json = {
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
        "operation": write.operation,
        "userInfo": write.user.info(),
        "dryRun": write.dry_run,
        "options": {"kind": _OPTIONS[write.operation], "apiVersion": "meta.k8s.io/v1", **write.options},
    }
    optional = {
        "name": write.name,
        "namespace": write.namespace,
        "subResource": write.subresource,
        "requestSubResource": write.subresource,
    }
    return request | {key: value for key, value in optional.items() if value}


def _denial(name: str, status: Mapping[str, Any]) -> StatusError:
    denied = f'admission webhook "{name}" denied the request'
    said = status.get("message") or status.get("reason")
    message = f"{denied}: {said}" if said else f"{denied} without explanation"
    return StatusError(max(int(status.get("code") or 0), 400), str(status.get("reason") or ""), message)
