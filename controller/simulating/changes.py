"""A change of the cluster, from manifests and flags, and how it is made in memory."""

import copy
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple

from controller.simulating.cluster import SimulatedCluster
from core import model, names
from core.admission.manifests import is_judged, pods_of, templates_of
from core.errors import ConfigError, InvalidRequestError, quoted
from core.groups import DEFAULT_QUEUE, TASK, GroupSpec
from core.model import MEMBER_OF, GroupKey, GroupKind, Node, NodeName, Pod, PodUid
from core.names import HOSTNAME_LABEL, LABEL, VGPU_REGISTER, is_object_name
from core.settings import DialectName, Policy
from core.view.cards import Card, cards_of
from core.wire.changes import NO_FILE, NODES_MAX, Change
from core.wire.groups import DECODERS, decode_queue
from core.wire.manifests import Manifest, Unreadable, read_manifests, review_of
from core.wire.nodes import decode_node
from core.wire.policies import ResourceQuota, decode_priority_class, decode_quota
from core.wire.reading import limits
from core.wire.templates import KINDS, decode_workload
from core.wire.vgpu_register import with_mode, with_slots

PODS_MAX: Final = 20_000
_UID: Final = "simulated"
_VOLCANO_JOB: Final = ("batch.volcano.sh", "Job")
_POD: Final = ("", "Pod")
_DAEMON_SET: Final = ("apps", "DaemonSet")
_REQUESTS: Final = "requests."
_LIMITS: Final = "limits."
_COUNT: Final = "count/pods"
_MIB: Final = 1 << 20
_CRITICAL: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_VGPU: Final = DialectName("vgpu")
_MODES: Final = ("hami-core", "mig", "mps")
_SHARES_MAX: Final = 1024
_OF_OBJECTS: Final = "lower-case letters, digits, '-' and '.', at most 253, such as 'train-1'"
_NAMES: Final[Sequence[tuple[str, Callable[[str], object], str]]] = (
    ("name", is_object_name, _OF_OBJECTS),
    ("generateName", lambda text: is_object_name(f"{text}x"), _OF_OBJECTS),
    ("namespace", LABEL.fullmatch, "lower-case letters, digits and '-', at most 63"),
)
POLICIES: Final = tuple(str(one) for one in (Policy.BINPACK, Policy.SPREAD, Policy.PACK))


class UnusableChangeError(Exception):
    """The change cannot be made; the text is one line with place, reason and remedy."""


class MadeChange(NamedTuple):
    """A change that was made. pods: those that it adds. refused: why the API server would refuse some, by uid."""

    pods: Sequence[Pod]
    refused: Mapping[PodUid, str]
    notes: Sequence[str]


def make(cluster: SimulatedCluster, change: Change) -> MadeChange:
    """Make *change* in *cluster*, without deciding anything.

    Raises:
        UnusableChangeError: it cannot be made; *cluster* may be changed in part.
    """
    maker = _Maker(cluster, change)
    objects = list(read_manifests(change.manifests))
    if change.file != NO_FILE and not objects:
        raise UnusableChangeError(f"{change.file}: found no object; write the pods, workloads or nodes to add")
    for one in objects:
        if isinstance(one, Unreadable):
            raise UnusableChangeError(f"{change.file}:{one.line}: {one.problem}")
        maker.add(one)
    maker.copy_nodes()
    for name, what in change.repartition:
        maker.repartition(name, what)
    for name in change.drain:
        cluster.drain(maker.existing("--drain", name))
    for name in change.remove:
        cluster.remove_node(maker.existing("--remove", name))
    refused = _refused(cluster, maker.pods, maker.notes)
    cluster.add_pods(pod for pod in maker.pods if pod.uid not in refused)
    return MadeChange(maker.pods, refused, maker.notes)


def _refused(cluster: SimulatedCluster, pods: Sequence[Pod], notes: list[str]) -> dict[PodUid, str]:
    """Return why the API server would refuse some new *pods*, by uid; *notes* gets what is not judged."""
    quotas = {
        namespace: NativeQuotas(
            cluster.scheduler.cluster.budgets.quotas.all_of(namespace),
            (pod for pod in cluster.pods.values() if pod.namespace == namespace and not pod.finished),
        )
        for namespace in sorted({pod.namespace for pod in pods})
    }
    for one in quotas.values():
        notes.extend(one.notes)
    refusals = ((pod.uid, quotas[pod.namespace].refusal(pod)) for pod in pods)
    return {uid: why for uid, why in refusals if why}


def policy_of(change: Change) -> Policy:
    """Return the policy of *change*.

    Raises:
        UnusableChangeError: there is no such policy.
    """
    if change.policy not in POLICIES:
        raise UnusableChangeError(f"--policy: found {quoted(change.policy)}; write one of {', '.join(POLICIES)}")
    return Policy(change.policy)


class _Maker:
    def __init__(self, cluster: SimulatedCluster, change: Change) -> None:
        self.pods: Final[list[Pod]] = []
        self.notes: Final[list[str]] = []
        self._cluster: Final = cluster
        self._change: Final = change
        self._book: Final = cluster.book
        self._names: Final = {(_POD, pod.namespace, pod.name) for pod in cluster.pods.values()}
        groups, quotas = cluster.scheduler.cluster.groups, cluster.scheduler.cluster.budgets.quotas
        self._kinds: Final[Mapping[tuple[str, str], Callable[[bytes], object]]] = {
            ("", "Node"): lambda text: cluster.set_node(decode_node(text)),
            ("", "ResourceQuota"): lambda text: quotas.changed(decode_quota(text)),
            ("scheduling.k8s.io", "PriorityClass"): lambda text: groups.classes.put(decode_priority_class(text)),
            ("scheduling.volcano.sh", "Queue"): lambda text: groups.queue_changed(decode_queue(text)),
            **{(str(kind), "PodGroup"): partial(self._add_group, kind) for kind in GroupKind},
        }

    def _add_group(self, kind: GroupKind, text: bytes) -> None:
        self._cluster.add_group(DECODERS[kind](text))

    # ------------------------------------------------------------------ manifests

    def add(self, manifest: Manifest) -> None:
        """Add the object in *manifest*.

        Raises:
            UnusableChangeError: it is unreadable, of an unknown kind, or admission would deny it.
        """
        where = f"{self._change.file}:{manifest.line}"
        try:
            self._add(where, manifest)
        except (InvalidRequestError, ConfigError) as e:
            raise UnusableChangeError(f"{where}: {e}") from e

    def _add(self, where: str, manifest: Manifest) -> None:
        api, name = str(manifest.value.get("apiVersion") or ""), str(manifest.value.get("kind") or "")
        kind = api.rpartition("/")[0], name
        metadata = manifest.value.get("metadata")
        if not isinstance(metadata, dict) or not (metadata.get("name") or metadata.get("generateName")):
            raise UnusableChangeError(f"{where}: write metadata.name")
        _check_names(where, {"namespace": self._change.namespace, **metadata})
        if kind == _DAEMON_SET:
            self.notes.append(f"{where}: DaemonSets are left out; write the pods that they create")
        elif is_judged(manifest):
            self._add_workload(where, kind, manifest)
        elif kind in self._kinds:
            value = {**manifest.value, "metadata": {"namespace": self._change.namespace, "uid": _UID, **metadata}}
            self._kinds[kind](_json(where, value))
        elif kind == _POD or kind in KINDS:
            raise UnusableChangeError(
                f"{where}: write spec, with the containers of the pods; found none in this {name}"
            )
        else:
            known = ", ".join(sorted({one for _, one in (*self._kinds, _POD, *KINDS - {_DAEMON_SET})}))
            raise UnusableChangeError(
                f"{where}: found kind {quoted(name)}; remove it, because only {known} are simulated"
            )

    def _add_workload(self, where: str, kind: tuple[str, str], manifest: Manifest) -> None:
        metadata = manifest.value["metadata"]
        namespace = str(metadata.get("namespace") or self._change.namespace)
        asked = Manifest(manifest.line, self._with_requests(manifest.value))
        templates = list(templates_of(asked))
        pods = list(pods_of(asked, self._book, namespace))
        counts = [1] if kind == _POD else [one.replicas for one in self._workload(asked, namespace).templates]
        if not len(templates) == len(pods) == len(counts):
            raise UnusableChangeError(f"{where}: write a template for each kind of pods, at most 64")
        name = self._named(where, kind, namespace, metadata)
        tasks = self._tasks(asked) if kind == _VOLCANO_JOB else [""] * len(pods)
        group = self._group(asked, namespace, name, tasks, counts) if kind == _VOLCANO_JOB else ""
        for template, pod, count, task in zip(templates, pods, counts, tasks, strict=True):
            if len(self.pods) + count > PODS_MAX:
                raise UnusableChangeError(f"{where}: write at most {PODS_MAX} pods")
            made = self._completed(where, template, pod, "" if kind == _POD else f"{kind[1]}/{name}")
            if group:
                made = made._replace(annotations={**made.annotations, MEMBER_OF: group, TASK: task})
            names = (
                [name] if kind == _POD else [f"{name}-{task}-{at}" if task else f"{name}-{at}" for at in range(count)]
            )
            self.pods.extend(
                made._replace(uid=PodUid(f"{_UID}/{'.'.join(kind)}/{namespace}/{one}"), namespace=namespace, name=one)
                for one in names
            )

    def _named(self, where: str, kind: tuple[str, str], namespace: str, metadata: Mapping[str, Any]) -> str:
        """Return the name of an object, which no other of its kind has."""
        name, at = str(metadata.get("name") or ""), 0
        if name and (kind, namespace, name) in self._names:
            found = quoted(f"{namespace}/{name}")
            raise UnusableChangeError(f"{where}: there is a {kind[1]} {found} already; give this one another name")
        while not name or (kind, namespace, name) in self._names:
            at += 1
            name = f"{metadata['generateName']}{at}"
        self._names.add((kind, namespace, name))
        return name

    @staticmethod
    def _workload(manifest: Manifest, namespace: str) -> Any:
        return decode_workload(review_of(manifest.value, namespace))

    @staticmethod
    def _tasks(manifest: Manifest) -> list[str]:
        return [str(one.get("name") or f"task{at}") for at, one in enumerate(manifest.value["spec"].get("tasks") or ())]

    def _group(self, manifest: Manifest, namespace: str, name: str, tasks: Sequence[str], counts: Sequence[int]) -> str:
        """Add the PodGroup that Volcano's controller creates for a Job; return its name."""
        found, spec = self._workload(manifest, namespace), manifest.value["spec"]
        least = [count if one.least is None else one.least for one, count in zip(found.templates, counts, strict=True)]
        group = f"{name}-{_UID}"
        self._cluster.add_group(
            GroupSpec(
                key=GroupKey(GroupKind.VOLCANO, namespace, group),
                uid=f"{_UID}/{namespace}/{name}",
                min_member=found.least or sum(least),
                min_task_member=dict(zip(tasks, least, strict=True)),
                queue=str(spec.get("queue") or DEFAULT_QUEUE),
                priority_class=str(spec.get("priorityClassName") or ""),
                created_s=self._cluster.now_s,
                owner=f"Job/{name}",
            )
        )
        return group

    def _completed(self, where: str, template: Mapping[str, Any], pod: Pod, owner: str) -> Pod:
        """Return *pod* as the API server stores it."""
        spec = template.get("spec")
        named = str(spec.get("priorityClassName") or "") if isinstance(spec, dict) else ""
        classes = self._cluster.scheduler.cluster.groups.classes
        default = min((one for one in classes.values() if one.is_default), key=lambda one: one.value, default=None)
        known = classes.get(named) if named else default
        priority = known.value if known is not None else _CRITICAL.get(named, pod.priority)
        if named and known is None and named not in _CRITICAL:
            raise UnusableChangeError(
                f"{where}: priorityClassName: found {quoted(named)}; write one that the cluster has"
            )
        preempts = pod.preempts and (known is None or known.preempts)
        return pod._replace(priority=priority, preempts=preempts, owner=owner, created_s=self._cluster.now_s)

    def _with_requests(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """Return a workload in which containers with cards have the requests of the change."""
        made = copy.deepcopy(dict(value))
        if self._change.requests:
            for container in _containers(made):
                if self._asks_cards(container):
                    _set_requests(container, self._change.requests)
        return made

    def _asks_cards(self, container: Mapping[str, Any]) -> bool:
        resources = container.get("resources")
        limits = resources.get("limits") if isinstance(resources, dict) else None
        return isinstance(limits, dict) and not self._book.resources.isdisjoint(limits)

    # ------------------------------------------------------------------ nodes

    def existing(self, flag: str, name: str) -> NodeName:
        """Return the name of a node.

        Raises:
            UnusableChangeError: there is no such node.
        """
        if self._cluster.node(NodeName(name)) is None:
            raise UnusableChangeError(f"{flag}: there is no node {quoted(name)}; kubectl get nodes lists them")
        return NodeName(name)

    def copy_nodes(self) -> None:
        """Add copies of a node, healthy and empty."""
        number, like = self._change.add_nodes, self._change.like
        if not 0 <= number <= NODES_MAX:
            raise UnusableChangeError(f"--add-nodes: found {number}; write a number from 0 to {NODES_MAX}")
        if not number:
            return
        node = self._cluster.node(self.existing("--like", like))
        if node is None:
            raise LookupError(like)
        at = 0
        for _ in range(number):
            at += 1
            while self._cluster.node(NodeName(f"{like}-new-{at}")) is not None:
                at += 1
            self._cluster.set_node(_copied(node, NodeName(f"{like}-new-{at}")))
            self._cluster.unlock(NodeName(f"{like}-new-{at}"))
            self._cluster.uncordon(NodeName(f"{like}-new-{at}"))

    def repartition(self, name: str, what: str) -> None:
        """Drain a node, give its cards a mode or a number of shares, and use it again.

        Raises:
            UnusableChangeError: this is not possible for its cards.
        """
        node = self._cluster.node(self.existing("--repartition", name))
        text = node.annotations.get(VGPU_REGISTER, "") if node is not None else ""
        if node is None or not text:
            raise UnusableChangeError(
                f"--repartition: node {quoted(name)} has no cards of Volcano's vGPU plugin; "
                "write the node as it would be into the file of -f"
            )
        is_open, were_usable = not node.unschedulable, {one.id for one in self._cards(node.name) if one.healthy}
        self._cluster.drain(node.name)
        drained = self._cluster.node(node.name) or node
        self._cluster.set_node(self._partitioned(drained, text, what))
        for card in self._cards(node.name):
            if card.id in were_usable and not card.healthy:
                raise UnusableChangeError(
                    f"--repartition: found {quoted(f'{name}={what}')}; card {card.id} could not be used: {card.note}"
                )
        if is_open:
            self._cluster.uncordon(node.name)

    def _cards(self, name: NodeName) -> Sequence[Card]:
        return cards_of(self._cluster.scheduler.cluster.ledger, (name,)).nodes[0].cards

    def _partitioned(self, node: Node, text: str, what: str) -> Node:
        if what in _MODES:
            return replace(node, annotations={**node.annotations, VGPU_REGISTER: with_mode(text, what)})
        if not (what.isascii() and what.isdigit() and 0 < int(what) <= _SHARES_MAX):
            raise UnusableChangeError(
                f"--repartition: found {quoted(what)}; write {', '.join(_MODES)} or a number of shares for each card "
                f"from 1 to {_SHARES_MAX}"
            )
        changed, shares = with_slots(text, int(what))
        ledger = self._cluster.scheduler.cluster.ledger
        amounts = dict.fromkeys({*ledger.catalog.names(_VGPU, ledger.tables).counts.values()}, str(shares))
        return replace(
            node,
            annotations={**node.annotations, VGPU_REGISTER: changed},
            capacity={**node.capacity, **amounts},
            allocatable={**node.allocatable, **amounts},
        )


def _copied(node: Node, name: NodeName) -> Node:
    return replace(
        node,
        name=name,
        uid=f"{_UID}/{name}",
        labels={**node.labels, HOSTNAME_LABEL: name},
        ready=True,
        deleting=False,
        joining=False,
        created_s=0,
    )


def _check_names(where: str, metadata: Mapping[str, Any]) -> None:
    """Check the names that the API server checks.

    Raises:
        UnusableChangeError: it would refuse one.
    """
    for field, is_good, remedy in _NAMES:
        found = metadata.get(field) or ""
        if not isinstance(found, str):
            raise UnusableChangeError(f"{where}: metadata.{field}: found {found}; write text, in quotes")
        if found and not is_good(found):
            raise UnusableChangeError(f"{where}: metadata.{field}: found {quoted(found)}; write {remedy}")


def _json(where: str, value: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(value, default=str).encode()
    except TypeError as e:
        raise UnusableChangeError(f"{where}: found a key that is not text; quote it") from e


def _containers(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the containers at any depth of *value*."""
    if isinstance(value, dict):
        for key, one in value.items():
            if key in ("containers", "initContainers") and isinstance(one, list):
                yield from (container for container in one if isinstance(container, dict))
            else:
                yield from _containers(one)
    elif isinstance(value, list):
        for one in value:
            yield from _containers(one)


def _set_requests(container: dict[str, Any], requests: Sequence[tuple[str, str]]) -> None:
    resources = container["resources"]
    for part in ("limits", "requests"):
        found = resources.get(part) or {}
        if not isinstance(found, dict):
            continue  # admission says what belongs there
        amounts = dict(found)
        for key, amount in requests:
            amounts.pop(key, None)
            if amount and part == "limits":
                amounts[key] = amount
        resources[part] = amounts


class NativeQuotas:
    """The quotas of one namespace, and what its pods use of them. Quotas with scopes are not judged.

    Which new pods the API server would refuse because of ResourceQuotas: of pods, and of what they request.

    Attributes:
        notes: limits that are not judged.
    """

    def __init__(self, quotas: Iterable[ResourceQuota], pods: Iterable[Pod]) -> None:
        """Begin with the *pods* of the namespace."""
        self.notes: Final[list[str]] = []
        self._limits: Final[list[tuple[str, str, str, int]]] = []
        self._used: Final[Counter[str]] = Counter()
        for quota in quotas:
            self._read(quota)
        for pod in pods if self._limits else ():
            self._used.update(_amounts(pod))

    def _read(self, quota: ResourceQuota) -> None:
        written = dict(quota.others)
        native = {key: _amount(key, one) for key, one in written.items() if _resource(key)}
        unjudged = [key for key in written if key.startswith(_LIMITS) or native.get(key, 0) is None]
        if quota.scoped:
            unjudged = [*written, *quota.hard]
        if unjudged:
            what = f"ResourceQuota {quota.namespace}/{quota.name} limits {', '.join(sorted(unjudged))}"
            self.notes.append(f"{what}, which is not simulated; the API server may refuse pods because of it")
        if quota.scoped:
            return
        # No API server counts other keys of extended resources.
        extended = {key: most for key, most in quota.hard.items() if key.startswith(_REQUESTS)}
        self._limits.extend(
            (quota.name, key, _resource(key), most) for key, most in {**native, **extended}.items() if most is not None
        )

    def refusal(self, pod: Pod) -> str:
        """Count new *pod*, and return "", or return why the API server refuses it."""
        amounts = _amounts(pod)
        for name, key, resource, most in self._limits:
            used, asked = self._used[resource], amounts.get(resource, 0)
            if asked and used + asked > most:
                left = f"{_shown(resource, max(most - used, 0))} of {_shown(resource, most)} {key}"
                return f"the API server would refuse it: ResourceQuota {name} has {left} left"
        self._used.update(amounts)
        return ""


def _amounts(pod: Pod) -> Mapping[str, int]:
    try:
        return dict(model.amounts_of(pod))
    except InvalidRequestError:
        return {names.PODS: 1}


def _amount(key: str, written: str) -> int | None:
    """Return the limit that is *written*; None if it is unreadable."""
    try:
        return limits({key: written}, "spec.hard")[key]
    except InvalidRequestError:
        return None


def _resource(key: str) -> str:
    """Return the resource that *key* limits the requests of; "" for other keys."""
    if key == _COUNT:
        return names.PODS
    resource = key.removeprefix(_REQUESTS)
    is_counted = resource in names.NATIVE_RESOURCES or resource.startswith("hugepages-")
    return resource if is_counted or "/" in resource else ""


def _shown(resource: str, amount: int) -> str:
    if resource == names.CPU:
        return f"{amount / 1000:g}"
    return f"{amount // _MIB}Mi" if resource == names.MEMORY else str(amount)
