"""Finds problems and risks of a cluster, one finding with a code for each; pure.

docs/operators/doctor.md lists the codes. A code never changes its meaning. `cli.doctor` fetches `Facts`.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from core import model
from core.admission.advice import meant_resource
from core.catalog import Catalog
from core.device_lists import DEVICES_MAX, amount_or_zero, device_count, listed_on
from core.inventory import Inventory, at_its_best
from core.ledger import Ledger
from core.model import Node, NodeName, Phase, Pod, Requirement
from core.port.refusals import Violation
from core.port.spec import MIG_MANAGER
from core.settings import DialectName, Settings, Tables, is_named, plugin_remedy
from core.units import counted
from core.view.cards import switched_off

VERSION: Final = 1
_DAY_S: Final = 86_400
# Renewal starts earlier: a third of the shortest lifetime that `certs` gives a pair in the manifests is longer. A
# shorter remainder means that the renewal failed.
_SOON_S: Final = 14 * _DAY_S
# Less is the delay of answers, and what clocks differ usually.
_SKEW_S: Final = 60
# A pod without any sign of a scheduler after this time has no scheduler.
_UNSEEN_S: Final = 60
# Suffix of the entries of HAMi's webhook, which names HAMi's scheduler on pods that request GPUs.
_HAMI: Final = ".hami.io"
# The policies that are shipped with a binding that denies, and what follows if they do not.
_UNCHECKED: Final = "assignments are not checked while the webhook is down"
_DENYING: Final = {
    "pods.cardshare.io": _UNCHECKED,
    "bindings.cardshare.io": _UNCHECKED,
    "locks.nodes.cardshare.io": "the controller's account may change more of a Node than locks",
}
# Not deploy/base: an overlay or the chart may name other accounts, and the base would deny theirs.
_APPLY: Final = "apply your overlay again, or run helm upgrade with the values of the installation"
# The entry for new pods.
_CREATED: Final = "create.pods.cardshare.io"
_FEWER_DEVICES: Final = (
    "set gpuMemoryFactor in the device plugin's configuration, or switch the kubelet's gates ResourceHealthStatus and "
    "ResourceHealthStatusMessage off"
)
_AS_MUCH: Final = (
    "restart the device plugin there; if it advertises as little then, give it the gpuMemoryFactor of the others, "
    "upgrade it, or see its log for a failed card"
)
_ONE_PLUGIN: Final = (
    "check again after a minute; then start HAMi's plugin there, or leave the node to NVIDIA's: "
    "kubectl label node {0} gpu- && kubectl annotate node {0} hami.io/node-nvidia-register-"
)
# It waits 5 minutes for each program, and keeps the label if one goes on. It tries again only when its own pod starts.
# Source: NVIDIA/mig-parted v0.15.0, cmd/nvidia-mig-manager/main.go (`start`).
_RECUT: Final = (
    "wait some minutes; if the label stays, delete the pod there whose end the MIG manager's log awaits, and have it "
    "try again: kubectl delete pod -A -l app=nvidia-mig-manager --field-selector spec.nodeName={0}"
)
_HAMI_DIALECT: Final = DialectName("hami")
_MAY_BIND: Final = (
    "let it create pods/binding in all namespaces; or name HAMi's ConfigMap by the chart's value hamiConfig; or delete "
    "that ConfigMap if HAMi is gone"
)
_MAY_EVICT: Final = "grant it ClusterRole cardshare-preemption of deploy/preemption.yaml, or switch both off"
_CORRECT: Final = "correct the pod and create it again"
_VOLCANO_LEASE: Final = "volcano-system/volcano"
VOLCANO: Final = "volcano"
_KUBE_SYSTEM: Final = "kube-system"
_METADATA_NAME: Final = "kubernetes.io/metadata.name"
# Suffix of the account of HAMi's device plugin, and the version in its image tag.
HAMI_PLUGIN: Final = ":hami-device-plugin"
_VERSION: Final = re.compile(r":v?(\d{1,4})\.(\d{1,4})[^/]*$", re.ASCII)


class Level(StrEnum):
    """Severity: broken; works until something else happens; information; unknown."""

    PROBLEM = "problem"
    RISK = "risk"
    NOTE = "note"
    UNKNOWN = "unknown"


_CODES: Final[Mapping[Level, str]] = {
    Level.UNKNOWN: "CS601",
    Level.PROBLEM: "CS602 CS611 CS612 CS613 CS619 CS621 CS622 CS624 CS625 CS631 CS632 CS643",
    Level.NOTE: "CS603 CS604 CS635",
    Level.RISK: "CS614 CS615 CS616 CS617 CS618 CS620 CS623 CS626 CS627 CS628 CS629 CS633 CS634 CS636 CS637 CS638 "
    "CS641 CS642",
}
CODES: Final = dict(sorted((code, level) for level, codes in _CODES.items() for code in codes.split()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding. subject: the affected object; text: the problem; remedy: the action to take."""

    code: str
    level: Level
    subject: str
    text: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """Pods of a device plugin: their account, the image with its version, and their nodes."""

    account: str
    image: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The answer of ``doctor``: findings in the order of their codes, and the device plugins."""

    version: int = VERSION
    findings: tuple[Finding, ...]
    plugins: tuple[Plugin, ...]

    @property
    def worst(self) -> Level | None:
        """The worst level of all findings; None if no finding needs attention."""
        order = (Level.PROBLEM, Level.RISK, Level.UNKNOWN)
        return next((level for level in order if any(one.level is level for one in self.findings)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """One entry of a webhook configuration.

    conditions: all its CEL expressions. ends_s: when its trusted authorities expire, Unix seconds; empty without any.
    pods_created: whether it is called for new pods. namespaces: its namespaceSelector.
    by_url: whether it is called at a URL and not through a Service.
    """

    name: str
    fails_closed: bool = True
    conditions: str = ""
    ends_s: tuple[float, ...] = ()
    pods_created: bool = False
    by_url: bool = False
    namespaces: tuple[Requirement, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseHeld:
    """The holder of a Lease, "" for none; renewed_s in Unix seconds, valid for duration_s."""

    holder: str
    renewed_s: float
    duration_s: float

    def is_held(self, now_s: float) -> bool:
        """Return whether it has a holder and has not expired."""
        return bool(self.holder) and now_s < self.renewed_s + self.duration_s


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningPod:
    """A pod of a device plugin or of cardshare.

    component: cardshare's component, "" for others. refused: why its configuration is not in force, or "".
    waits: why kubelet has not started one of its containers, or "". lists_devices: whether its status lists devices.
    is_plugin: whether it mounts the folder of kubelet in which device plugins register.
    """

    key: str
    account: str
    node: str
    image: str
    ready: bool
    component: str = ""
    refused: str = ""
    waits: str = ""
    lists_devices: bool = False
    is_plugin: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts about the cluster; a field is None if it could not be read, and *unread* gives the reason.

    name: prefix of the names of cardshare's objects in *namespace*. refused: unusable texts of the configuration.
    mutating, validating: by the configuration's name. policies: those that exist, and whether a binding of each denies.
    plugins: pods of known device plugins; others: of other device plugins.
    accounts: user names that may write assignments. leases: by NAMESPACE/NAME. namespaces: with their labels.
    classes: DeviceClasses by the resource that each claims.
    swapping: nodes on which HAMi's plugin lets kubelet choose cards, with the ConfigMap that sets this.
    unlisting: nodes whose kubelets list no devices in the status of pods. now_s: Unix seconds, by the API server.
    ahead_s: by how much the clock here is ahead of that.
    unbinding: HAMi's scheduler account if it may not bind pods although HAMi's ConfigMap exists, or "".
    unevicting: accounts of controllers that may not evict pods although they should, with what they may not.
    unasked: why one of these is unknown, or "".
    """

    name: str
    namespace: str
    now_s: float
    catalog: Catalog
    settings: Settings
    tables: Tables
    ledger: Ledger
    pods: tuple[Pod, ...] = ()
    plugins: tuple[RunningPod, ...] = ()
    others: tuple[RunningPod, ...] = ()
    own: tuple[RunningPod, ...] = ()
    notes: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    mutating: Mapping[str, tuple[Webhook, ...]] | None = None
    validating: Mapping[str, tuple[Webhook, ...]] | None = None
    policies: Mapping[str, bool] | None = None
    leases: Mapping[str, LeaseHeld] | None = None
    namespaces: Mapping[str, Mapping[str, str]] | None = None
    classes: Mapping[str, str] = field(default_factory=dict)
    swapping: Mapping[str, str] = field(default_factory=dict)
    unlisting: frozenset[str] = frozenset()
    unbinding: str = ""
    unevicting: Mapping[str, str] = field(default_factory=dict)
    unasked: str = ""
    unread: tuple[tuple[str, str], ...] = ()
    ahead_s: float = 0.0


def examine(facts: Facts) -> Report:
    """Apply every check to *facts*."""
    found = _found(facts, _CHECKS)
    nodes: dict[tuple[str, str], list[str]] = {}
    for pod in facts.plugins:
        nodes.setdefault((pod.account, pod.image), []).append(pod.node)
    return Report(
        findings=found,
        plugins=tuple(
            Plugin(account=account, image=image, nodes=tuple(sorted(on)))
            for (account, image), on in sorted(nodes.items())
        ),
    )


def examine_nodes_and_pods(facts: Facts) -> tuple[Finding, ...]:
    """Apply the checks that need only the nodes, the pods of device plugins, and the pods that are on no node."""
    return _found(facts, _OF_NODES_AND_PODS)


def _found(facts: Facts, checks: Iterable[Callable[[Facts], Iterator[Finding]]]) -> tuple[Finding, ...]:
    found = [one for check in checks for one in check(facts)]
    return tuple(sorted(found, key=lambda one: (one.code, one.subject, one.text)))


def account_of(namespace: str, service_account: str) -> str:
    """Return the user name of a pod's account."""
    return f"system:serviceaccount:{namespace}:{service_account or 'default'}"


def is_plugin(account: str, catalog: Catalog) -> bool:
    """Return whether *account* is that of a device plugin."""
    return is_named(account, catalog.plugin_accounts)


def _finding(code: str, subject: str, text: str, remedy: str) -> Finding:
    return Finding(code=code, level=CODES[code], subject=subject, text=text, remedy=remedy)


def _reading(facts: Facts) -> Iterator[Finding]:
    for what, why in facts.unread:
        yield _finding("CS601", what, f"not judged: {why}", f"bind your account to the ClusterRole {facts.name}-viewer")
    if abs(facts.ahead_s) > _SKEW_S:
        text = (
            f"{abs(facts.ahead_s):.0f} s {'ahead of' if facts.ahead_s > 0 else 'behind'} the API server's, which counts"
        )
        yield _finding("CS604", "clock of this machine", text, "set it, or that of the API server's machine")


def _configuration(facts: Facts) -> Iterator[Finding]:
    for problem in facts.refused:
        yield _finding("CS602", "configuration", problem, "correct it; until then, the previous one stays in force")
    for pod in facts.own:
        if pod.refused:
            remedy = "correct the ConfigMap that is named; until then, the previous one stays in force"
            yield _finding("CS602", f"pod {pod.key}", pod.refused, remedy)
    for note in (*facts.notes, *switched_off(facts.ledger)):
        yield _finding("CS603", "configuration", note, "see docs/volcano-scheduler-conf.md and docs/settings.md")


def _cards(facts: Facts) -> Iterator[Finding]:
    states = facts.ledger.states
    if not any(cards for state in states.values() for cards in state.offers.values()):
        remedy = "install a device plugin, or see the logs of those that run"
        if off := switched_off(facts.ledger):
            # The page shows no CS603.
            remedy = "; ".join(("enable a way of sharing", *off))
        yield _finding("CS611", "nodes", f"none of {len(states)} offers cards", remedy)
    for name, state in states.items():
        node = f"node {name}"
        for complaint in state.complaints:
            remedy = complaint.remedy or "see the device plugin's log on that node, and restart it"
            yield _finding("CS612", node, f"{complaint.field}: {complaint.problem}", remedy)
        for over in facts.ledger.overcommitted(name):
            remedy = "delete pods that kubectl cards get shows on it, until it holds no more than it has"
            yield _finding("CS613", node, f"card {over} holds more than it has", remedy)
        remedy = f"delete what kubectl cards get {name} names, or wait until that ends"
        recut = MIG_MANAGER.why(state.facts.labels)
        for dialect, why in state.closed.items():
            what = f"takes no new pods of {dialect}: {why}"
            yield _finding("CS614", node, what, _RECUT.format(name) if why == recut else remedy)
        for holding in facts.ledger.holders(name).values():
            if holding.unclear:
                yield _finding("CS614", node, f"takes no new pods on some cards: {holding.unclear}", remedy)
    for pod in facts.plugins:
        if not pod.ready:
            text = f"the device plugin {pod.key} of {pod.account} is not ready"
            yield _finding("CS615", f"node {pod.node}", text, f"see kubectl describe pod {pod.key}")


def _accounts_of_kubelet(facts: Facts) -> Iterator[Finding]:
    """CS620: a device plugin advertises less of a resource than its registered cards have."""
    for name, state in facts.ledger.states.items():
        for which, cards in state.offers.items():
            dialect = facts.catalog.dialects[which]
            sold = dialect.sold(cards, facts.tables)
            for resource, amount in sorted(sold.items()):
                there = state.facts.allocatable.get(resource, 0)
                # Each card may have a remainder of less than one unit.
                if 0 < there < amount - len(cards):
                    text = (
                        f"its device plugin advertises {there} {resource}, but its registered cards have "
                        f"{amount}: kubelet rejects pods that fit the cards"
                    )
                    yield _finding("CS620", f"node {name}", text, _AS_MUCH)


def _hami_alone(facts: Facts) -> Iterator[Finding]:
    """CS634, CS635, CS636: whether HAMi handles pods with GPUs, and serves the nodes that it has registered."""
    if facts.unbinding:
        text = (
            "it may not bind pods, but HAMi's ConfigMap exists: pods that request only nvidia.com/gpu are not reviewed"
        )
        yield _finding("CS634", facts.unbinding, text, _MAY_BIND)
    if facts.unasked:
        remedy = "ask with an account that may create subjectaccessreviews"
        yield _finding("CS635", "subjectaccessreviews", facts.unasked, remedy)
    serving = {pod.node for pod in facts.plugins if pod.account.endswith(HAMI_PLUGIN)}
    for name, state in facts.ledger.states.items() if serving else ():
        if state.offers.get(_HAMI_DIALECT) and name not in serving:
            text = (
                f"it has HAMi's register and no pod of HAMi's plugin, which runs on {counted(len(serving), 'nodes')}: "
                "NVIDIA's plugin may answer there, and assign whole cards without limits"
            )
            yield _finding("CS636", f"node {name}", text, _ONE_PLUGIN.format(name))


def _hami(facts: Facts) -> Iterator[Finding]:
    """CS616, CS617: actions of HAMi's plugin on cards that are visible only to the plugin (hami HN-10, HN-27)."""
    for node, where in facts.swapping.items():
        if node in facts.ledger.states:
            text = (
                f"{where} sets enablegetpreferredallocation for it: HAMi's plugin assigns the cards that kubelet "
                "chose, with the memory limits of others"
            )
            yield _finding("CS616", f"node {node}", text, "set it to false, and restart the plugin's pod there")
    old = {pod.node: pod.image for pod in facts.plugins if pod.account.endswith(HAMI_PLUGIN) and _is_old(pod.image)}
    counts = {*facts.catalog.names(_HAMI_DIALECT, facts.tables).counts.values()}
    for one in facts.pods:
        if one.node_name not in old or one.finished:
            continue
        sharing = [
            each.name
            for each in (*one.init_containers, *one.containers)
            if any((each.amount(count) or "0") != "0" for count in counts)
        ]
        if len(sharing) > 1:
            text = (
                f"containers {', '.join(sharing)} have cards, and {old[one.node_name]} on {one.node_name} treats "
                "each as the first container: they share its files, which it rewrites for each"
            )
            yield _finding("CS617", f"pod {one.key}", text, "upgrade HAMi's device plugin to v2.9 or later")


def _device_lists(facts: Facts) -> Iterator[Finding]:
    """CS618, CS619: nodes and pods with more devices than kubelet can list in a pod's status."""
    resources = facts.catalog.words(facts.tables).resources
    for node in facts.ledger.nodes():
        listed = listed_on(node, resources) if node.name not in facts.unlisting else frozenset[str]()
        for resource, units in _units_of_a_card(facts, node, listed):
            text = (
                f"kubelet {node.kubelet_version} lists each device in the status of its pod, and a card has {units} of "
                f"{resource}: a pod with more than {DEVICES_MAX} stays Pending, and a restart of kubelet takes minutes"
            )
            yield _finding("CS618", f"node {node.name}", text, _FEWER_DEVICES)
        for pod in facts.pods if listed else ():
            count = device_count(pod, listed) if pod.node_name == node.name else 0
            if count > DEVICES_MAX and pod.phase is Phase.PENDING:
                text = (
                    f"it stays Pending on {node.name}: its status lists {count} devices, and etcd accepts {DEVICES_MAX}"
                )
                yield _finding("CS619", f"pod {pod.key}", text, f"delete it by force, then {_FEWER_DEVICES}")


def _units_of_a_card(facts: Facts, node: Node, listed: frozenset[str]) -> Iterator[tuple[str, int]]:
    """Yield the resources in *listed* for which one card of *node* has more devices than a pod can list."""
    for name, cards in facts.ledger.states[node.name].offers.items() if listed else ():
        for resource in sorted(listed & facts.catalog.names(name, facts.tables).resources):
            units = amount_or_zero(node.allocatable[resource]) // max(len(cards), 1)
            if units > DEVICES_MAX:
                yield resource, units


def _is_old(image: str) -> bool:
    """Return whether *image* has a version tag of HAMi before v2.9."""
    found = _VERSION.search(image)
    return found is not None and tuple(map(int, found.groups())) < (2, 9)


def _registrations(facts: Facts) -> Iterator[Finding]:
    for kind, found in (("mutating", facts.mutating), ("validating", facts.validating)):
        if found is None:
            continue
        subject = f"{kind}webhookconfiguration {facts.name}"
        entries = found.get(facts.name)
        if entries is None:
            text = "it does not exist: nothing completes, checks or protects pods"
            remedy = "install cardshare again; if its objects have another prefix, give it with --name"
            yield _finding("CS621", subject, text, remedy)
            continue
        yield from _trust(subject, entries, facts)
        for entry in entries:
            if entry.name == _CREATED and not entry.fails_closed:
                text = f"{entry.name}: pods pass without review while the webhook is down"
                yield _finding("CS626", subject, text, "set its failurePolicy to Fail")
    yield from _renamed(facts)
    for name, entries in (facts.mutating or {}).items():
        for entry in entries:
            if name != facts.name and entry.name.endswith(_HAMI) and entry.pods_created and _meets_ours(entry, facts):
                text = (
                    f"{entry.name} names HAMi's scheduler on pods that ask for GPUs: up to HAMi v2.6 on all, later on "
                    "those that name none yet"
                )
                remedy = "remove it, or narrow its namespaceSelector to namespaces whose pods cardshare does not place"
                yield _finding("CS628", f"mutatingwebhookconfiguration {name}", text, remedy)


def _meets_ours(entry: Webhook, facts: Facts) -> bool:
    """Return whether *entry* is called in a namespace with cardshare's pods, or if there are none, in every one."""
    known = facts.namespaces or {}
    ours = {pod.namespace for pod in facts.pods if pod.scheduler_name in facts.settings.scheduler_names}
    called = [
        all(model.satisfies({_METADATA_NAME: name, **known.get(name, {})}, one) for one in entry.namespaces)
        for name in sorted(ours or known.keys() - {facts.namespace, _KUBE_SYSTEM})
    ]
    return any(called) if ours else all(called)


def _trust(subject: str, entries: tuple[Webhook, ...], facts: Facts) -> Iterator[Finding]:
    """Check the certificates that entries trust; one finding for all of them."""
    now_s = facts.now_s
    # An entry with a URL and no caBundle trusts the authorities of the API server's system.
    empty = [entry.name for entry in entries if not entry.ends_s and not entry.by_url]
    ends_s = {entry.name: max(entry.ends_s) for entry in entries if entry.ends_s}
    expired = [name for name, end_s in ends_s.items() if end_s <= now_s]
    last = min(ends_s.values(), default=now_s + _SOON_S)
    remedy = f"see the log of the Deployment {facts.name}-certs-keeper, or your certificate manager's"
    if empty:
        text = f"the caBundle of {', '.join(empty)} has no certificate: every call of it fails"
        yield _finding("CS622", subject, text, remedy)
    elif expired:
        text = f"the certificate in the caBundle of {', '.join(expired)} has expired: every call of it fails"
        yield _finding("CS622", subject, text, remedy)
    elif last < now_s + _SOON_S:
        days = int((last - now_s) // _DAY_S)
        yield _finding(
            "CS623", subject, f"the certificate in its caBundle expires in {days} days and was not renewed", remedy
        )


def _renamed(facts: Facts) -> Iterator[Finding]:
    """Find resources that device-config.yaml renames and the conditions do not match."""
    if facts.mutating is None or facts.validating is None:
        return
    usual = facts.catalog.words(Tables()).resources
    for kind, found in (("mutating", facts.mutating), ("validating", facts.validating)):
        entries = [one for one in found.get(facts.name, ()) if one.name == _CREATED]
        for resource in sorted(facts.catalog.words(facts.tables).resources - usual) if entries else ():
            if not any(f"'{resource}'" in entry.conditions for entry in entries):
                text = f"pods that ask for {resource} (from device-config.yaml) are not reviewed"
                remedy = "add the resource to the conditions of its entries, beside volcano.sh/vgpu-number"
                yield _finding("CS625", f"{kind}webhookconfiguration {facts.name}", text, remedy)


def _policies(facts: Facts) -> Iterator[Finding]:
    """CS627: without a policy and a binding of it that denies, the API server itself forbids nothing."""
    found = facts.policies
    if found is None:
        return
    for name, so in _DENYING.items():
        if name not in found:
            yield _finding("CS627", f"validatingadmissionpolicy {name}", f"it does not exist: {so}", _APPLY)
        elif not found[name]:
            yield _finding("CS627", f"validatingadmissionpolicybinding {name}", f"it does not deny: {so}", _APPLY)


def _processes(facts: Facts) -> Iterator[Finding]:
    yield from _webhook_pods(facts)
    if facts.leases is None:
        return
    lease = f"{facts.namespace}/{facts.name}-controller"
    held = facts.leases.get(lease)
    if held is None or not held.is_held(facts.now_s):
        text = "no controller holds it: pods are not placed"
        remedy = f"see kubectl -n {facts.namespace} logs -l {_CONTROLLERS}"
        if not facts.own:
            remedy += f"; if there are no such pods, {_NAMESPACE}"
        yield _finding("CS632", f"lease {lease}", text, remedy)
    yield from _two_schedulers(facts, held)


def _preemption(facts: Facts) -> Iterator[Finding]:
    for account, missing in facts.unevicting.items():
        text = f"preemption or reclaim is on, but it may not {missing}: no pod is evicted for others"
        yield _finding("CS638", account, text, _MAY_EVICT)


def _webhook_pods(facts: Facts) -> Iterator[Finding]:
    """CS624, CS629: too few ready pods of the webhook, unless it is called at a URL and runs elsewhere."""
    entries = (facts.mutating or {}).get(facts.name, ())
    if entries and all(one.by_url for one in entries):
        return
    ready = [pod for pod in facts.own if pod.component == "webhook" and pod.ready]
    where = f"deployment {facts.namespace}/{facts.name}-webhook"
    known = [one for found in (facts.mutating, facts.validating) for one in (found or {}).get(facts.name, ())]
    is_unread = facts.mutating is None or facts.validating is None
    rejects = is_unread or any(one.name == _CREATED and one.fails_closed for one in known)
    if not ready:
        pods = (pod for pod in facts.own if pod.component == "webhook")
        why = next((f" ({pod.image}: {pod.waits})" for pod in pods if pod.waits), "")
        text = f"no pod of it is ready{why}{': pods that request cards are rejected' if rejects else ''}"
        remedy = f"see kubectl -n {facts.namespace} describe pods"
        if not facts.own:
            remedy = f"see kubectl -n {facts.namespace} get deployments; if there is none, {_NAMESPACE}"
        yield _finding("CS624", where, text, remedy)
    elif len(ready) == 1:
        text = f"only one pod of it is ready{': if it ends, pods that request cards are rejected' if rejects else ''}"
        yield _finding("CS629", where, text, "run two")


_NAMESPACE: Final = "give the namespace with -n"
_CONTROLLERS: Final = "app.kubernetes.io/component=controller"


def _two_schedulers(facts: Facts, ours: LeaseHeld | None) -> Iterator[Finding]:
    """CS631: Volcano's scheduler runs although cardshare has its scheduler name."""
    if VOLCANO not in facts.settings.scheduler_names:
        return
    remedy = "kubectl -n volcano-system scale deployment volcano-scheduler --replicas=0"
    theirs = (facts.leases or {}).get(_VOLCANO_LEASE)
    leader = ours.holder if ours is not None else ""
    if theirs is not None and theirs.is_held(facts.now_s) and theirs.holder != leader:
        text = f"{theirs.holder} renews it, and scheduler_names gives pods with schedulerName volcano to cardshare"
        yield _finding("CS631", f"lease {_VOLCANO_LEASE}", text, remedy)
    for pod in facts.pods:
        if pod.namespace == "volcano-system" and pod.labels.get("app") == "volcano-scheduler" and not pod.finished:
            text = "it runs, and scheduler_names gives pods with schedulerName volcano to cardshare"
            yield _finding("CS631", f"pod {pod.key}", text, remedy)


def _accounts(facts: Facts) -> Iterator[Finding]:
    """CS633: a missing namespace whose future creator would control all its accounts."""
    for account in facts.accounts:
        kind, _, rest = account.partition(":serviceaccount:")
        namespace = rest.partition(":")[0]
        if kind == "system" and namespace and facts.namespaces is not None and namespace not in facts.namespaces:
            text = f"{account} may write assignments, and anyone who can create namespace {namespace} can be it"
            yield _finding("CS633", "validatingadmissionpolicy pods.cardshare.io", text, "take it out")


def _unknown_plugins(facts: Facts) -> Iterator[Finding]:
    """CS637: the plugin of a node's cards must mark the pods that it serves, and its account is not known."""
    admission = facts.settings.admission
    added = (*(admission.trusted_accounts or ()), *admission.plugin_accounts)
    known, others = defaultdict[str, list[str]](list), defaultdict[str, list[RunningPod]](list)
    for pod in facts.plugins:
        known[pod.node].append(pod.account)
    for pod in facts.others:
        if not (is_named(pod.account, added) and is_named(pod.account, facts.accounts or added)):
            others[pod.node].append(pod)
    for name, state in facts.ledger.states.items():
        for spec in facts.catalog.specs if name in others else ():
            needs = spec.node_lock is not None or spec.plugin_accounts
            has_known = any(is_named(one, spec.plugin_accounts) for one in known[name])
            if not (needs and state.offers.get(spec.name)) or has_known:
                continue
            for pod in others[name]:
                text = (
                    f"it has cards of {spec.name} and no pod of a known plugin for them; {pod.key}, which runs as "
                    f"{pod.account}, may be that plugin, and may not mark the pods that it serves"
                )
                yield _finding("CS637", f"node {name}", text, plugin_remedy(pod.account))


def _waiting(facts: Facts) -> Iterator[Finding]:
    inventory = Inventory()
    for node in facts.ledger.nodes():
        offers, complaints = facts.catalog.offers(at_its_best(node), facts.tables, facts.settings)
        inventory.put(NodeName(node.name), offers, complaints, facts.catalog.dialects)
    stock = inventory.stock()
    offered = frozenset[str]().union(*(state.facts.allocatable for state in facts.ledger.states.values()))
    for pod in facts.pods:
        if pod.node_name or pod.finished or pod.gated or pod.deleting:
            continue
        yield from _misspelt(pod, facts, offered)
        asked = facts.catalog.request_of(pod, facts.tables, facts.settings)
        if asked is None or isinstance(asked, tuple):
            yield from _wrong(pod, asked)
            continue
        if pod.scheduler_name not in facts.settings.scheduler_names:
            yield from _unseen(pod, facts)
            continue
        dialect = facts.catalog.dialects[asked.dialect]
        resource = min(_resources(pod) & facts.catalog.words(facts.tables).resources, default="")
        never = stock.never_fits(dialect, asked.request, pod, facts.tables, resource)
        if never is not None:
            why = str(never) if never.found else never.remedy
            yield _finding("CS641", f"pod {pod.key}", f"no node could ever take it: {why}", _CORRECT)


def _misspelt(pod: Pod, facts: Facts, offered: Set[str]) -> Iterator[Finding]:
    """CS641: no node offers a resource named almost like one of cards; the webhook reviews no pod with that alone."""
    known = facts.catalog.words(facts.tables).resources
    for key in sorted(_resources(pod) - known - offered - facts.classes.keys()):
        if meant := meant_resource(key, known):
            yield _finding("CS641", f"pod {pod.key}", f"no node offers {key}; did you mean {meant}?", _CORRECT)


def _wrong(pod: Pod, asked: tuple[Violation, ...] | None) -> Iterator[Finding]:
    for violation in asked or ():
        yield _finding("CS641", f"pod {pod.key}", str(violation), _CORRECT)


def _unseen(pod: Pod, facts: Facts) -> Iterator[Finding]:
    """CS642: a pod that requests cards has another scheduler, which has not reported anything about it."""
    if not pod.scheduled_reason and facts.now_s - pod.created_s > _UNSEEN_S:
        names = ", ".join(facts.settings.scheduler_names)
        text = f"its scheduler '{pod.scheduler_name}' has not reacted to it; cardshare places pods with: {names}"
        yield _finding("CS642", f"pod {pod.key}", text, "correct its schedulerName, or leave it out")


def _resources(pod: Pod) -> frozenset[str]:
    return frozenset(key for one in (*pod.containers, *pod.init_containers) for key in (*one.limits, *one.requests))


def _classes(facts: Facts) -> Iterator[Finding]:
    for resource in sorted(facts.classes.keys() & facts.catalog.words(facts.tables).resources):
        text = f"it claims {resource}: pods that ask for it get devices by DRA too, which cardshare does not count"
        yield _finding("CS643", f"deviceclass {facts.classes[resource]}", text, "take its extendedResourceName out")


_CHECKS: Final[tuple[Callable[[Facts], Iterator[Finding]], ...]] = (
    _reading,
    _configuration,
    _cards,
    _accounts_of_kubelet,
    _hami,
    _hami_alone,
    _device_lists,
    _registrations,
    _policies,
    _processes,
    _accounts,
    _preemption,
    _unknown_plugins,
    _waiting,
    _classes,
)
_OF_NODES_AND_PODS: Final = (_cards, _accounts_of_kubelet, _hami_alone, _waiting)
