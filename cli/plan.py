"""``kubectl cards plan``: fetches who holds cards, which pods may move and what needs room, and formats the plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from cli.cluster import PODS, Holdings, Reads, answered, fetch_cluster_uid, fetch_holdings, list_objects
from cli.options import Plan as Options
from cli.options import PlanTarget
from cli.text import NONE, aligned
from cli.waiting import UNBOUND, fetch_lines
from core.claims import StorageKind
from core.errors import escaped
from core.groups import GroupSpec
from core.ledger import Ledger
from core.model import GroupKey, Pod, group_of
from core.moving.search import Limits
from core.moving.units import unit_of, unit_of_group
from core.moving.who import Rights
from core.placing.gang import Unit
from core.placing.queues import standing_of
from core.units import counted
from core.view.plan import Ground, Plan, plan_for_pods, plan_for_wish
from core.view.waiting import Lines
from core.waiting import Cause, Wait, cause_of, code_in
from core.wire.pods import decode_pod
from core.wire.policies import DisruptionBudget, decode_disruption_budget, decode_namespace
from kube.errors import ApiError, ApiNotFoundError
from kube.kinds import STORAGE

# Causes of a wait that no room removes.
_NOT_ROOM: Final = frozenset(
    {
        Cause.GROUP_NOT_FOUND,
        Cause.GROUP_NOT_SUPPORTED,
        Cause.WAITING_FOR_QUEUE,
        Cause.QUEUE_NOT_OPEN,
        Cause.WAITING_FOR_QUOTA,
    }
)
BUDGETS: Final = "/apis/policy/v1/poddisruptionbudgets"


class NothingToPlanError(Exception):
    """The pod or group cannot be planned for; the text is one line with the reason."""


class Read(NamedTuple):
    """The cluster as far as a plan needs it; unbound: pods on no node. unread: the notes on what could not be read."""

    holdings: Holdings
    unbound: Sequence[Pod]
    lines: Lines
    budgets: Sequence[DisruptionBudget]
    notes: tuple[str, ...]
    unread: tuple[str, ...] = ()

    @property
    def ledger(self) -> Ledger:
        """Who holds what."""
        return self.holdings.ledger

    def ground(self, *, priority: int, own: GroupKey | None, jobs: bool, limits: Limits | None = None) -> Ground:
        """Return what a plan is made from, for pods of *priority* and of group *own*."""
        rights = Rights(
            priority=priority,
            own=own,
            jobs=jobs,
            groups=self.lines.groups,
            classes=self.lines.classes,
            budgets=self.budgets,
            schedulers=self.ledger.settings.scheduler_names,
        )
        pods = self.holdings.pods
        newest_s = max((one.created_s for one in (*pods, *self.unbound)), default=0)
        return Ground(self.ledger, pods, rights, limits or Limits(), self.holdings.version, newest_s, self.notes)


async def read(reads: Reads, own_map: str) -> Read:
    """Read the cluster.

    Raises:
        ApiError: nodes or pods may not be listed, or the server does not answer.
    """
    # In this order, a pod that gets its node meanwhile is in both lists, and not in neither.
    waiting = await list_objects(reads, PODS, decode_pod, UNBOUND)
    holdings = await fetch_holdings(reads, own_map=own_map, prepare=read_storage)
    bound = {pod.uid for pod in holdings.pods}
    unbound = [pod for pod in waiting if pod.uid not in bound]
    notes = list(holdings.unread)
    lines = await fetch_lines(reads, unbound, "", notes, bound=holdings.pods)
    budgets: Sequence[DisruptionBudget] = ()
    try:
        budgets = await list_objects(reads, BUDGETS, decode_disruption_budget)
    except ApiError as e:
        notes.append(f"PodDisruptionBudgets are not read ({answered(e)}); the API server checks them at each eviction")
    strays = (note for note in holdings.notes if note not in holdings.unread)
    return Read(holdings, unbound, lines, budgets, (*notes, *strays), tuple(notes))


async def fetch_plan(reads: Reads, options: Options, namespace: str) -> Plan:
    """Return the plan; *namespace*: of pods and groups that name none.

    Raises:
        ApiError: nodes or pods may not be listed, or the server does not answer.
        NothingToPlanError: there is no such pod or group, or it cannot be judged.
    """
    found, asked, cluster = await read(reads, options.settings_map), options.asked, await fetch_cluster_uid(reads)
    limits = Limits(options.moves, options.per_namespace)
    if asked.wish is not None:
        ground = found.ground(priority=options.priority, own=None, jobs=options.jobs, limits=limits)
        plan = plan_for_wish(ground, _text(asked, options.pods), asked.wish, options.pods, asked.namespace or namespace)
        return replace(plan, cluster=cluster)
    asked = asked._replace(namespace=asked.namespace or namespace)
    unit, priority, own = wanted(found, asked)
    if why := hindrance(member.pod for member in unit.wanted()):
        raise NothingToPlanError(why)
    ground = found.ground(priority=priority, own=own, jobs=options.jobs, limits=limits)
    return replace(plan_for_pods(ground, _text(asked, 1), unit), namespace=asked.namespace, cluster=cluster)


def _text(asked: PlanTarget, pods: int) -> str:
    if asked.wish is None:
        return f"{asked.kind} {asked.namespace}/{asked.name}"
    return f"{pods} pods of {asked.text}" if pods > 1 else asked.text


def hindrance(pods: Iterable[Pod]) -> str:
    """Return why room alone does not let in one of *pods*, which wait; "" if nothing else is known to hinder them."""
    for pod in pods:
        if pod.gated:
            return f"moves do not help pod {pod.key}: it has scheduling gates"
        if cause_of(code_in(pod.scheduled_message)) in _NOT_ROOM:
            return f"moves do not help pod {pod.key}: {pod.scheduled_message}"
    return ""


def wanted(found: Read, asked: PlanTarget) -> tuple[Unit, int, GroupKey | None]:
    """Return the pod or the group that *asked* names as a unit, with its priority and its group.

    Raises:
        NothingToPlanError: there is none, or it cannot be judged.
    """
    where = f"{asked.namespace}/{asked.name}"
    everybody = (*found.unbound, *found.holdings.pods)
    if asked.kind == "pod":
        pod = next((one for one in everybody if one.key == where), None)
        if pod is None:
            raise NothingToPlanError(f"there is no pod {where}")
        if pod.node_name or pod.finished or pod.deleting:
            raise NothingToPlanError(f"pod {where} does not wait: it is on node {pod.node_name or 'none'}")
        key = group_of(pod)
        spec = found.lines.group(pod)
        if spec is not None and spec.is_gang and not _starts_alone(pod, spec, everybody, found.ledger):
            raise NothingToPlanError(f"pod {where} starts only with its group; write --for group {_key(key)}")
        if spec is not None:
            _without_topology(spec)
        unit = unit_of([pod], found.ledger)
        return _judged(unit, where), standing_of(pod, spec, found.lines.classes).priority, key
    spec = next(
        (one for key, one in found.lines.groups.items() if (key.namespace, key.name) == (asked.namespace, asked.name)),
        None,
    )
    if spec is None:
        raise NothingToPlanError(f"there is no PodGroup {where} with pods, or it may not be read")
    _without_topology(spec)
    members = [one for one in everybody if group_of(one) == spec.key]
    unit = unit_of_group(spec, members, found.ledger)
    priorities = [standing_of(one, spec, found.lines.classes).priority for one in members if not one.node_name]
    return _judged(unit, where), min(priorities, default=0), spec.key


def _without_topology(spec: GroupSpec) -> None:
    """Raise `NothingToPlanError` if the place of a member depends on where the others are."""
    if spec.network_topology or spec.topology_key or any(one.network_topology for one in spec.sub_groups):
        raise NothingToPlanError(f"PodGroup {_key(spec.key)} has a network topology, for which no moves are planned")


def _starts_alone(pod: Pod, spec: GroupSpec, pods: Iterable[Pod], ledger: Ledger) -> bool:
    """Return whether group *spec* has its minimum, and *pod* belongs to no subgroup that lacks its own."""
    unit = unit_of_group(spec, [one for one in pods if group_of(one) == spec.key], ledger)
    if isinstance(unit, Wait) or not unit.is_met:
        return False
    return not any(unit.tally().whole(one.parts)[1] for one in unit.members if one.pod.uid == pod.uid)


def _judged(unit: Unit | Wait, where: str) -> Unit:
    if isinstance(unit, Wait):
        raise NothingToPlanError(f"{where} cannot be judged: {unit.text}")
    return unit


def _key(key: GroupKey | None) -> str:
    return f"{key.namespace}/{key.name}" if key is not None else ""


_NAMESPACES: Final = "/api/v1/namespaces"


async def read_storage(reads: Reads, ledger: Ledger) -> tuple[str, ...]:
    """Read all storage and namespaces into *ledger*, which counts no pods yet; notes on what may not be listed.

    Raises:
        ApiError: the server does not answer.
    """
    volumes, refused = ledger.volumes, list[str]()
    storage = volumes.storage
    sets: Mapping[StorageKind, Callable[[Any], object]] = {
        StorageKind.CLAIMS: storage.set_claim,
        StorageKind.VOLUMES: storage.set_volume,
        StorageKind.CLASSES: storage.set_class,
        StorageKind.NODES: volumes.set_limits,
        StorageKind.DRIVERS: storage.set_driver,
        StorageKind.CAPACITIES: storage.set_capacity,
        StorageKind.ATTACHMENTS: volumes.set_attachment,
    }
    for kind, (path, decode) in STORAGE.items():
        try:
            for one in await list_objects(reads, path, decode):
                sets[kind](one)
        except ApiNotFoundError:
            pass  # a cluster that does not serve it has none
        except ApiError as e:
            answered(e)
            refused.append(str(kind))
            continue
        del storage.unread[kind]
    try:
        found = await list_objects(reads, _NAMESPACES, decode_namespace)
        ledger.topology.set_namespaces({one.name: one.labels for one in found})
    except ApiError as e:
        answered(e)
    return (f"you may not list {', '.join(refused)}; pods with volume claims are not judged",) if refused else ()


_HEADER = ("MOVE", "POD", "OWNER", "PRIORITY", "BUDGET", "FROM", "TO")


def summary(plan: Plan) -> Iterator[str]:
    """Yield what *plan* does in plain English, line by line."""
    yield f"for {plan.asked}: {plan.gain}"
    if plan.moves:
        namespaces = sorted({one.pod.partition("/")[0] for one in plan.moves})
        fewest = "no plan with fewer moves was possible" if plan.is_fewest else "fewer moves may be possible"
        yield f"pods are evicted in {', '.join(namespaces)}; their controllers replace them elsewhere; {fewest}"
    if plan.why:
        yield f"why it does not fit now: {plan.why}"
    for one in plan.staying if not plan.helps else ():
        yield f"{counted(one.pods, 'pods')} {'stays' if one.pods == 1 else 'stay'}: {one.reason}"
    for note in plan.notes:
        yield f"note: {note}"


def plan_table(plan: Plan) -> str:
    """Format one line per move after the summary."""
    rows = [
        (
            str(at),
            one.pod,
            one.owner,
            str(one.priority),
            one.budget or NONE,
            f"{one.from_node} {one.cards}".strip(),
            f"{one.to_node} {one.to_cards}".strip(),
        )
        for at, one in enumerate(plan.moves, start=1)
    ]
    lines = [escaped(line) for line in summary(plan)]
    lines += [escaped(f"place: {one.pod or 'a new pod'} on {one.node} {one.cards}".rstrip()) for one in plan.places]
    return "\n".join([*lines, *(aligned([_HEADER, *rows]) if rows else ())])


def plan_comments(plan: Plan) -> str:
    """Format the summary as comments at the beginning of a file."""
    lines = [escaped(line) for line in summary(plan)]
    if plan.moves:
        lines.append("Review the moves, then: kubectl cards apply FILE. Nothing is evicted before that.")
    return "\n".join(f"# {line}" for line in lines)
