"""Fetches the facts for `kubectl cards doctor`, only by get and list, and records what may not be read."""

import asyncio
import re
import ssl
from base64 import b64decode
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Final, TypeVar
from urllib.parse import quote

import msgspec

from cli.cluster import NODES, PODS, fetch_parts, list_objects, server_time_s
from cli.doctor_checks import (
    HAMI_PLUGIN,
    VOLCANO,
    Facts,
    LeaseHeld,
    Report,
    RunningPod,
    Webhook,
    account_of,
    examine,
    is_plugin,
)
from cli.options import Doctor
from core.catalog import standard_catalog
from core.configuration import Decoded, Source
from core.device_lists import device_count
from core.ledger import Ledger
from core.model import Phase, Pod, Requirement
from core.names import CONFIGURATION_ACCEPTED
from core.settings import Settings
from core.wire.config_maps import decode_config_map
from core.wire.nodes import decode_node
from core.wire.objects import ObjectMeta
from core.wire.pods import decode_pod
from kube.calls import Access, Calls, Identity
from kube.errors import ApiForbiddenError, ApiNotFoundError
from kube.transport import Transport

_T = TypeVar("_T")
_REGISTRATIONS: Final = "/apis/admissionregistration.k8s.io/v1"
_BINDS: Final = Access(verb="create", resource="pods", subresource="binding")
# What deploy/preemption.yaml grants.
_EVICTS: Final = {
    "evict pods": Access(verb="create", resource="pods", subresource="eviction"),
    "list disruption budgets": Access(verb="list", group="policy", resource="poddisruptionbudgets"),
    "watch disruption budgets": Access(verb="watch", group="policy", resource="poddisruptionbudgets"),
}
_CLASSES: Final = "/apis/resource.k8s.io/v1/deviceclasses"
_LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/{}/leases/{}"
# Source: Kubernetes documentation, "Device Plugins".
_PLUGINS: Final = "/var/lib/kubelet/device-plugins"
_HAMI_MAP: Final = "hami-device-plugin"
_HAMI_KEY: Final = "config.json"
_VOLCANO_LEASE: Final = "volcano-system/volcano"
# A holder renews its Lease every 2 s, Volcano's every 5 s at most.
_WATCHED_S: Final = 6
# The policy that defines who assigns cards, and its lists of accounts; the last list has entries SCHEDULER=ACCOUNT.
_POLICY: Final = "pods.cardshare.io"
_ACCOUNTS: Final = ("trustedAccounts", "pluginAccounts", "schedulerAccounts")
_QUOTED: Final = re.compile(r"'([^']*)'")


class _Item(msgspec.Struct, frozen=True, rename="camel"):
    """An element of a list: a container, condition, resource, variable, or requirement of labels."""

    name: str = ""
    image: str | None = ""
    type: str = ""
    status: str = ""
    reason: str | None = ""
    message: str | None = ""
    expression: str = ""
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class _ContainerState(msgspec.Struct, frozen=True):
    waiting: _Item | None = None


class _ContainerStatus(msgspec.Struct, frozen=True, rename="camel"):
    state: _ContainerState | None = None
    allocated_resources_status: tuple[_Item, ...] | None = None


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    conditions: tuple[_Item, ...] | None = None
    container_statuses: tuple[_ContainerStatus, ...] | None = None


class _HostPath(msgspec.Struct, frozen=True):
    path: str = ""


class _Volume(msgspec.Struct, frozen=True, rename="camel"):
    host_path: _HostPath | None = None


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    volumes: tuple[_Volume, ...] | None = None
    service_account_name: str | None = ""
    node_name: str | None = ""
    containers: tuple[_Item, ...] = ()
    variables: tuple[_Item, ...] | None = None
    policy_name: str = ""
    validation_actions: tuple[str, ...] = ()
    holder_identity: str | None = ""
    lease_duration_seconds: int | None = 0
    renew_time: str | None = ""
    extended_resource_name: str | None = ""


class _Object(msgspec.Struct, frozen=True):
    """What doctor reads of objects of several kinds.

    Source: Kubernetes API reference, core/v1 Pod and Namespace, admissionregistration.k8s.io/v1
    ValidatingAdmissionPolicy and ValidatingAdmissionPolicyBinding, coordination.k8s.io/v1 Lease, resource.k8s.io/v1
    DeviceClass (v1.34).
    """

    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()
    status: _Status = _Status()


class _Client(msgspec.Struct, frozen=True, rename="camel"):
    ca_bundle: str | None = ""
    url: str | None = ""


class _Rule(msgspec.Struct, frozen=True):
    operations: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()


class _Selector(msgspec.Struct, frozen=True, rename="camel"):
    match_labels: dict[str, str] | None = None
    match_expressions: tuple[_Item, ...] | None = None


class _Entry(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    failure_policy: str | None = "Fail"
    client_config: _Client = _Client()
    match_conditions: tuple[_Item, ...] | None = None
    namespace_selector: _Selector | None = None
    rules: tuple[_Rule, ...] | None = None


class _Registration(msgspec.Struct, frozen=True):
    """Source: Kubernetes API reference, admissionregistration.k8s.io/v1 MutatingWebhookConfiguration."""

    metadata: ObjectMeta = ObjectMeta()
    webhooks: tuple[_Entry, ...] | None = None


class _HamiNode(msgspec.Struct, frozen=True):
    name: str = ""
    enablegetpreferredallocation: bool | None = None


class _HamiNodes(msgspec.Struct, frozen=True):
    """The nodes' configuration of HAMi's device plugin. Source: protocol reference, hami 1.7."""

    nodeconfig: tuple[_HamiNode, ...] = ()


_hami_decoder: Final = msgspec.json.Decoder(_HamiNodes)
_decoder: Final = msgspec.json.Decoder(_Object)


async def diagnose(transport: Transport, options: Doctor, now_s: float) -> Report:
    """Read the cluster and judge it.

    Args:
        transport: connection to the API server.
        options: where cardshare is installed.
        now_s: Unix seconds by the clock here; if the API server tells the time, that one counts.

    Raises:
        ApiError: the server does not answer, or nodes or pods may not be listed, so nothing can be judged.
        UndecodableError: a list cannot be read.
    """
    served_s = await server_time_s(transport)
    facts = await _Reader(transport, options, now_s if served_s is None else served_s).facts()
    return examine(facts if served_s is None else replace(facts, ahead_s=now_s - served_s))


class _Reader:
    """Reads one cluster once; unread: what may not be read, and why."""

    def __init__(self, transport: Transport, options: Doctor, now_s: float) -> None:
        self._transport: Final = transport
        self._calls: Final = Calls(transport)
        self._options: Final = options
        self._now_s: Final = now_s
        self._catalog: Final = standard_catalog()
        self._unread: Final[list[tuple[str, str]]] = []

    async def facts(self) -> Facts:
        """Read everything that the checks need."""
        name, namespace = self._options.name, self._options.namespace
        nodes = await list_objects(self._transport, NODES, decode_node)
        pods = await list_objects(self._transport, PODS, _pod_twice)
        own_map = f"{namespace}/{name}-settings"
        found = await fetch_parts(self._texts, self._catalog, own_map)
        parts, merged = found.parts, found.merged(self._catalog)
        ledger = Ledger(self._catalog, merged.tables, merged.settings)
        for node in nodes:
            ledger.set_node(node)
        for pod, _ in pods:
            if pod.node_name:
                ledger.count(pod)
        running = tuple(one for _, one in pods)
        own = tuple(one for one in running if one.component and one.key.startswith(f"{namespace}/"))
        unbinding, unasked = await self._unbinding(parts, merged.settings)
        unevicting, not_asked = await self._unevicting(own, merged.settings)
        policies = await self._list(
            "validatingadmissionpolicies", f"{_REGISTRATIONS}/validatingadmissionpolicies", _Object
        )
        return Facts(
            name=name,
            namespace=namespace,
            now_s=self._now_s,
            catalog=self._catalog,
            settings=merged.settings,
            tables=merged.tables,
            ledger=ledger,
            pods=tuple(pod for pod, _ in pods),
            plugins=tuple(pod for pod in running if is_plugin(pod.account, self._catalog)),
            others=tuple(pod for pod in running if pod.is_plugin and not is_plugin(pod.account, self._catalog)),
            own=own,
            notes=(*merged.notes, *found.unused),
            refused=tuple(f"{one.text.subject}: {problem}" for one in parts.values() for problem in one.problems),
            accounts=_accounts(policies or ()),
            mutating=await self._registrations("mutating"),
            validating=await self._registrations("validating"),
            policies=await self._denying(policies),
            leases=await self._leases(merged.settings.scheduler_names),
            namespaces=await self._namespaces(),
            classes=await self._classes(),
            swapping=await self._swapping(running),
            unlisting=_unlisting(pods, self._catalog.words(merged.tables).resources),
            unbinding=unbinding,
            unevicting=unevicting,
            unasked=unasked or not_asked,
            unread=tuple(self._unread),
        )

    async def _unbinding(self, parts: Mapping[Source, Decoded], settings: Settings) -> tuple[str, str]:
        """Return HAMi's scheduler account if it may not bind although HAMi's ConfigMap exists; and why that is unknown.

        The conditions of the webhook check the right to bind, under the name that HAMi's chart gives to both.
        """
        found = parts.get(Source.CHIPS_MAP)
        if found is None or not found.text.content:
            return "", ""
        namespace, name = settings.hami_config_namespace, settings.hami_config_name.removesuffix("-device")
        account = account_of(namespace, name)
        try:
            return ("" if await self._may(account, _BINDS) else account), ""
        except ApiForbiddenError as e:
            return "", f"whether {account} may bind pods is not known: {e.message}"

    async def _unevicting(self, own: Iterable[RunningPod], settings: Settings) -> tuple[Mapping[str, str], str]:
        """Return what controllers may not do to evict pods, by account, if that is on; and why that is unknown."""
        found: dict[str, str] = {}
        accounts = {one.account for one in own if one.component == "controller"}
        for account in sorted(accounts) if settings.preemption or settings.reclaim else ():
            try:
                missing = [what for what, access in _EVICTS.items() if not await self._may(account, access)]
            except ApiForbiddenError as e:
                return {}, f"whether {account} may evict pods is not known: {e.message}"
            if missing:
                found[account] = " or ".join(missing)
        return found, ""

    async def _may(self, account: str, access: Access) -> bool:
        """Return whether a service account is authorized for *access*."""
        namespace = account.split(":")[2]
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
        identity = Identity(authenticated=True, username=account, groups=groups)
        return await self._calls.subject_access_review(identity, access)

    async def _texts(self, config_map: str) -> Mapping[str, str]:
        namespace, _, name = config_map.partition("/")
        found = await self._read(f"configmap {config_map}", self._calls.get_config_map(namespace, name))
        return decode_config_map(found).texts if found is not None else {}

    async def _registrations(self, kind: str) -> Mapping[str, tuple[Webhook, ...]] | None:
        path = f"{_REGISTRATIONS}/{kind}webhookconfigurations"
        found = await self._list(f"{kind}webhookconfigurations", path, _Registration)
        return None if found is None else {one.metadata.name: tuple(map(_webhook, one.webhooks or ())) for one in found}

    async def _denying(self, policies: Sequence[_Object] | None) -> Mapping[str, bool] | None:
        """Return for each of *policies* whether a binding of it denies; None if that could not be read."""
        path = f"{_REGISTRATIONS}/validatingadmissionpolicybindings"
        bindings = await self._list("validatingadmissionpolicybindings", path, _Object)
        if policies is None or bindings is None:
            return None
        denying = {one.spec.policy_name for one in bindings if "Deny" in one.spec.validation_actions}
        return {one.metadata.name: one.metadata.name in denying for one in policies}

    async def _leases(self, names: Iterable[str]) -> Mapping[str, LeaseHeld] | None:
        ours, before = f"{self._options.namespace}/{self._options.name}-controller", len(self._unread)
        leases: dict[str, LeaseHeld] = {}
        # Whether Volcano's scheduler runs matters only if both have one name. Its Lease stays when it is gone.
        for key in (ours, _VOLCANO_LEASE) if VOLCANO in names else (ours,):
            found = await watched(partial(self._lease, key), self._now_s)
            if found is not None:
                leases[key] = found
        return None if len(self._unread) > before else leases

    async def _lease(self, key: str) -> LeaseHeld | None:
        path = _LEASES.format(*(quote(part, safe="") for part in key.split("/")))
        text = await self._read(f"lease {key}", self._calls.get_raw(path))
        if text is None:
            return None
        spec = _decoder.decode(text).spec
        return LeaseHeld(
            holder=spec.holder_identity or "",
            renewed_s=_seconds(spec.renew_time or ""),
            duration_s=spec.lease_duration_seconds or 0,
        )

    async def _namespaces(self) -> Mapping[str, Mapping[str, str]] | None:
        found = await self._list("namespaces", "/api/v1/namespaces", _Object)
        return None if found is None else {one.metadata.name: one.metadata.labels or {} for one in found}

    async def _classes(self) -> Mapping[str, str]:
        found = await self._list("deviceclasses", _CLASSES, _Object) or ()
        return {one.spec.extended_resource_name: one.metadata.name for one in found if one.spec.extended_resource_name}

    async def _swapping(self, running: Iterable[RunningPod]) -> Mapping[str, str]:
        """Return the nodes on which HAMi's plugin allocates kubelet's choice of cards, and the ConfigMap for it."""
        found: dict[str, str] = {}
        for account in sorted({one.account for one in running if one.account.endswith(HAMI_PLUGIN)}):
            name = f"{account.split(':')[2]}/{_HAMI_MAP}"
            text = (await self._texts(name)).get(_HAMI_KEY, "")
            try:
                nodes = _hami_decoder.decode(text).nodeconfig if text else ()
            except msgspec.MsgspecError as e:
                self._unread.append((f"configmap {name}", f"{_HAMI_KEY}: {e}"))
                continue
            found |= {one.name: f"configmap {name}" for one in nodes if one.enablegetpreferredallocation}
        return found

    async def _list(self, what: str, path: str, kind: type[_T]) -> Sequence[_T] | None:
        """Return every object of a kind; empty if the kind is not served, None if it may not be listed."""
        decoder = msgspec.json.Decoder(kind)
        before = len(self._unread)
        found = await self._read(what, list_objects(self._transport, path, decoder.decode))
        return found if found is not None or len(self._unread) > before else ()

    async def _read(self, what: str, call: Awaitable[_T]) -> _T | None:
        """Return the result of *call*; None if the object does not exist or may not be read; the latter is recorded."""
        try:
            return await call
        except ApiNotFoundError:
            return None
        except ApiForbiddenError as e:
            self._unread.append((what, e.message))
            return None


async def watched(read: Callable[[], Awaitable[LeaseHeld | None]], now_s: float) -> LeaseHeld | None:
    """Return the Lease that *read* returns; one that seems to have expired is read again for 6 s.

    The clock here may differ from its holder's, so a Lease that changes meanwhile counts as renewed at *now_s*.
    """
    found = await read()
    if found is None or not found.holder or found.is_held(now_s):
        return found
    for _ in range(_WATCHED_S):
        await asyncio.sleep(1.0)
        again = await read()
        if again != found:
            return replace(again, renewed_s=now_s) if again is not None else None
    return found


def _accounts(policies: Iterable[_Object]) -> tuple[str, ...]:
    variables = (one for policy in policies if policy.metadata.name == _POLICY for one in policy.spec.variables or ())
    named = (entry for one in variables if one.name in _ACCOUNTS for entry in _QUOTED.findall(one.expression))
    return tuple(entry.partition("=")[2] or entry for entry in named)


def _unlisting(pods: Iterable[tuple[Pod, RunningPod]], resources: frozenset[str]) -> frozenset[str]:
    """Return nodes with a running pod whose status lists none of its devices: kubelet's feature gate is off."""
    return frozenset(
        pod.node_name
        for pod, told in pods
        if pod.phase is Phase.RUNNING and not told.lists_devices and device_count(pod, resources)
    )


def _pod_twice(text: bytes) -> tuple[Pod, RunningPod]:
    """Return a pod as the allocation core reads it, and as the checks of running components read it."""
    found = _decoder.decode(text)
    meta, spec, status = found.metadata, found.spec, found.status
    conditions = {one.type: one for one in status.conditions or ()}
    labels = meta.labels or {}
    ready, accepted = conditions.get("Ready"), conditions.get(CONFIGURATION_ACCEPTED)
    return decode_pod(text), RunningPod(
        key=meta.key,
        account=account_of(meta.namespace or "", spec.service_account_name or ""),
        node=spec.node_name or "",
        image=next((one.image or "" for one in spec.containers), ""),
        ready=ready is not None and ready.status == "True",
        component=labels.get("app.kubernetes.io/component", "")
        if labels.get("app.kubernetes.io/name") == "cardshare"
        else "",
        waits=next(filter(None, map(_why_waiting, status.container_statuses or ())), ""),
        is_plugin=any(one.host_path and one.host_path.path.rstrip("/") == _PLUGINS for one in spec.volumes or ()),
        lists_devices=any(one.allocated_resources_status for one in status.container_statuses or ()),
        refused=(accepted.message or "refused") if accepted is not None and accepted.status == "False" else "",
    )


def _why_waiting(status: _ContainerStatus) -> str:
    """Return why kubelet has not started a container, "" if it has."""
    waiting = status.state.waiting if status.state is not None else None
    return ": ".join(filter(None, (waiting.reason, waiting.message))) if waiting is not None else ""


def _webhook(entry: _Entry) -> Webhook:
    return Webhook(
        name=entry.name,
        fails_closed=entry.failure_policy != "Ignore",
        conditions="\n".join(one.expression for one in entry.match_conditions or ()),
        by_url=bool(entry.client_config.url),
        namespaces=tuple(_requirements(entry.namespace_selector or _Selector())),
        ends_s=tuple(_ends(entry.client_config.ca_bundle or "")),
        pods_created=any(
            not {"CREATE", "*"}.isdisjoint(rule.operations) and not {"pods", "*"}.isdisjoint(rule.resources)
            for rule in entry.rules or ()
        ),
    )


def _requirements(selector: _Selector) -> Iterator[Requirement]:
    for key, value in (selector.match_labels or {}).items():
        yield Requirement(key=key, operator="In", values=(value,))
    for one in selector.match_expressions or ():
        yield Requirement(key=one.key, operator=one.operator, values=one.values or ())


def _ends(bundle: str) -> Iterator[float]:
    """Yield when the certificates of a caBundle expire, in Unix seconds; nothing for an invalid bundle."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=b64decode(bundle).decode("ascii"))
    except (ssl.SSLError, ValueError):
        return
    for found in context.get_ca_certs():
        yield ssl.cert_time_to_seconds(str(found["notAfter"]))


def _seconds(time: str) -> float:
    try:
        return datetime.fromisoformat(time).timestamp()
    except ValueError:
        return 0.0
