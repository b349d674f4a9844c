"""``kubectl cards apply``: carries out a plan, one eviction at a time, and stops if the moves no longer help.

Nothing is kept but in the cluster: a pod of the plan that is gone was moved. So a plan that was interrupted goes on
when it is applied again.

The room that the moves make is kept by a taint on its nodes, which only the pods that are to get in tolerate. It is
removed when all is done, or when the plan stops. If the process is interrupted or killed it stays, so that replacements
that are still to come do not take that room; `--undo` removes it.

Between the last look at the cluster and an eviction nothing is waited for.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from cli.alone import NotAloneError, alone
from cli.cluster import NODES, Reads, fetch_cluster_uid, list_objects
from cli.options import Apply as Options
from cli.plan import Read, hindrance, read, summary
from core.errors import ConfigError, quoted
from core.model import NodeName, Pod, PodUid, Toleration, group_of
from core.moving.units import unit_of
from core.moving.who import MOVING
from core.placing.gang import Unit
from core.port.cards import Wording
from core.units import counted
from core.view.cards import VERSION
from core.view.plan import Plan, PlannedMove, nodes_with_room, still_helps, wished
from core.waiting import Wait
from core.wire import yaml_text
from core.wire.objects import ObjectMeta
from core.wire.pods import decode_pod
from kube.calls import Calls, namespace_path, node_path, pod_path
from kube.errors import (
    ApiConflictError,
    ApiError,
    ApiNotFoundError,
    ApiThrottledError,
    ApiUnknownError,
    ApiWebhookError,
)

_EFFECT: Final = "NoSchedule"
_TRIES: Final = 10
# A call that may be repeated is made so often.
_REPEATED: Final = 4
_POLL_S: Final = 1.0
_BUDGET_S: Final = 5.0
_CLOSED: Final = "nodes may stay closed to others; apply the plan again to go on, or open them with --undo"

_T = TypeVar("_T")


class UnusablePlanError(Exception):
    """The file is no plan; the text is one line with the reason."""


class StoppedError(Exception):
    """The plan was not carried out to its end; the text says why, in one line."""


class _Taint(msgspec.Struct, frozen=True):
    key: str = ""
    value: str | None = ""


class _NodeSpec(msgspec.Struct, frozen=True):
    taints: tuple[_Taint, ...] | None = ()


class _Node(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _NodeSpec = _NodeSpec()


def plan_in(text: str) -> Plan:
    """Return the plan in *text*, YAML or JSON.

    Raises:
        UnusablePlanError: it is none, or one of another version, or its moves do not belong together.
    """
    if not text.strip():
        raise UnusablePlanError("it is empty; kubectl cards plan writes a plan to standard output")
    try:
        plan = msgspec.convert(yaml_text.load(text, "file", strict=True), Plan)
    except (ConfigError, msgspec.ValidationError) as e:
        raise UnusablePlanError(f"it is no plan of kubectl cards plan: {' '.join(str(e).split())}") from e
    if plan.version != VERSION:
        raise UnusablePlanError(f"its version is {plan.version}, and this command reads version {VERSION}")
    if plan.moves and (wrong := _wrong(plan)):
        raise UnusablePlanError(f"{wrong}; do not edit a plan, make a new one")
    return plan


def _wrong(plan: Plan) -> str:
    """Return what no plan of ``plan`` contains, "" if there is nothing."""
    uids = [one.uid for one in plan.moves]
    pods = [*(one.pod for one in plan.moves), *(one.pod for one in plan.places if one.uid)]
    if len(set(uids)) < len(uids) or not all(uids):
        return "each move needs a uid of its own"
    if not plan.places or not all(one.node for one in plan.places):
        return "it lacks the nodes on which room is made"
    if len({bool(one.uid) for one in plan.places}) > 1:
        return "some of its places name a pod, and others do not"
    bad = next((pod for pod in pods if pod.count("/") != 1 or not all(pod.split("/"))), None)
    return "" if bad is None else f"found the pod {quoted(bad, 256)}, which is not NAMESPACE/NAME"


def id_of(plan: Plan) -> str:
    """Return a short name of *plan*, the same for the same moves and places."""
    text = json.dumps([plan.asked, [one.uid for one in plan.moves], [one.node for one in plan.places]])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


class _State(NamedTuple):
    """The cluster between two moves.

    left: moves whose pods are still there. leaving: pods that were evicted and are not gone. unit: pods that still wait
    for room. replacements: those that have no node. room: the nodes that take the unit without another move; None if it
    fits nowhere, or that is not known yet.
    """

    found: Read
    left: tuple[PlannedMove, ...]
    leaving: tuple[Pod, ...]
    unit: Unit
    replacements: tuple[Pod, ...]
    room: tuple[NodeName, ...] | None = None


async def carry_out(
    transport: Reads,
    plan: Plan,
    options: Options,
    *,
    say: Callable[[str], None],
    ask: Callable[[str], Awaitable[bool]],
    poll_s: float = _POLL_S,
) -> None:
    """Carry out what is left of *plan*.

    Args:
        transport: connection to the API server.
        plan: the plan.
        options: how.
        say: prints a line.
        ask: asks whether pods may be evicted.
        poll_s: how long to wait between two looks.

    Raises:
        ApiError: the API server does not answer or refuses.
        StoppedError: not all of the plan was carried out; the text says so if nodes may stay closed.
        UnusablePlanError: the plan is of another cluster.
    """
    await _check_cluster(transport, plan)
    one = _Applying(transport, plan, options, say, poll_s)
    if options.undo:
        if not await one.open_nodes():
            say("no node is closed by this plan")
    elif options.dry_run:
        await _carry_out(one, plan, options, say, ask)
    else:
        try:
            async with alone(transport, say) as is_alone:
                one.is_alone = is_alone
                await _carry_out(one, plan, options, say, ask)
        except NotAloneError as e:
            raise StoppedError(f"{e}; {_CLOSED}" if one.may_be_closed else str(e)) from e
        except asyncio.CancelledError:
            if one.may_be_closed:
                say(f"interrupted: {_CLOSED}")
            raise


async def _check_cluster(transport: Reads, plan: Plan) -> None:
    """Stop if *plan* was made for another cluster; one that names none may be of any.

    Raises:
        StoppedError: it is not known which cluster this is.
        UnusablePlanError: it was.
    """
    if not plan.cluster:
        return
    here = await fetch_cluster_uid(transport)
    if not here:
        raise StoppedError(
            "namespace kube-system cannot be listed, whose uid shows whether the plan is of this cluster"
        )
    if here != plan.cluster:
        raise UnusablePlanError("it was made for another cluster; choose that with --context, or make a new plan")


async def _carry_out(
    one: _Applying,
    plan: Plan,
    options: Options,
    say: Callable[[str], None],
    ask: Callable[[str], Awaitable[bool]],
) -> None:
    try:
        state = await one.look()
    except StoppedError:
        if not options.dry_run:
            await one.open_nodes()  # an earlier run may have been interrupted
        raise
    for line in summary(plan):
        say(line)
    if len(state.left) < len(plan.moves):
        say(f"{counted(len(plan.moves) - len(state.left), 'moves')} of {len(plan.moves)} done before")
    if state.room is not None and state.left:
        say(f"there is room already on {', '.join(state.room)}; no more pods have to move")
        state = state._replace(left=())
    if options.dry_run:
        await one.try_all(state)
        return
    if not state.unit.members:
        say("nothing is left to do: all pods that the plan is for are on nodes")
        await one.open_nodes()
        return
    if state.left and not options.yes and not await ask(f"Evict {counted(len(state.left), 'pods')}?"):
        closed = f"; {_CLOSED}" if one.may_be_closed else ""
        raise StoppedError(f"nothing was evicted; answer y, or give --yes{closed}")
    await one.make_room(state)
    await one.open_nodes()


class _Applying:
    """Carries out a plan.

    is_alone: returns whether nobody else can apply one now. may_be_closed: whether nodes may have its taint, also
    of an earlier run.
    """

    def __init__(
        self, transport: Reads, plan: Plan, options: Options, say: Callable[[str], None], poll_s: float
    ) -> None:
        self._transport: Final = transport
        self._calls: Final = Calls(transport)
        self.is_alone: Callable[[], bool] = lambda: True
        self.may_be_closed = False
        self._plan: Final = plan
        self._own_map: Final = options.settings_map
        self._timeout_s: Final = options.timeout_s
        self._say: Final = say
        self._poll_s: Final = poll_s
        self._id: Final = id_of(plan)
        self._targets: Final = tuple(dict.fromkeys(place.node for place in plan.places))
        self._toleration: Final = Toleration(key=MOVING, value=self._id, effect=_EFFECT)

    async def make_room(self, state: _State) -> None:
        """Do all that the plan says; if that fails, open the nodes.

        Raises:
            StoppedError: it failed.
        """
        try:
            await self.close_nodes(state)
            room = await self.move_all()
            await self.await_places(room)
        except asyncio.CancelledError:
            raise
        except BaseException as e:
            try:
                await self.open_nodes()
            except StoppedError as more:
                raise StoppedError(f"{e}; {more}") from e
            if isinstance(e, ApiError):
                raise StoppedError(str(e)) from e
            raise

    async def _repeated(self, call: Callable[[], Awaitable[_T]]) -> _T:
        """Return the answer of *call*, which is made again if the API server did not answer it."""
        for left in reversed(range(_REPEATED)):
            try:
                return await call()
            except ApiError as e:
                if not (left and e.retryable):
                    raise
                await asyncio.sleep(self._poll_s)
        raise AssertionError

    # ------------------------------------------------------------------ looking

    async def look(self) -> _State:
        """Read the cluster, and stop if what is left of the plan no longer helps.

        Raises:
            StoppedError: it does not.
        """
        plan, found = self._plan, await self._read()
        there = {pod.uid: pod for pod in found.holdings.pods if not (pod.finished or pod.deleting)}
        left = tuple(one for one in plan.moves if PodUid(one.uid) in there)
        planned = {PodUid(one.uid) for one in plan.moves}
        leaving = tuple(pod for pod in found.holdings.pods if pod.uid in planned and pod.deleting and not pod.finished)
        moved = {(one.pod.partition("/")[0], one.owner) for one in plan.moves if one not in left}
        ours = {place.uid for place in plan.places}
        waiting = tuple(
            pod
            for pod in found.unbound
            if (pod.namespace, pod.owner) in moved
            and pod.created_s > plan.newest_s
            and not (pod.uid in ours or pod.finished or pod.deleting)
        )
        self.may_be_closed = self.may_be_closed or any(self._is_closed(found, name) for name in self._targets)
        state = _State(found, left, leaving, self._unit(found), waiting)
        if state.unit.members and not (waiting or leaving):
            own = next((group_of(one.pod) for one in state.unit.members), None)
            ground = found.ground(priority=plan.priority, own=own, jobs=plan.jobs)
            absent = [name for name in self._targets if found.ledger.node(NodeName(name)) is None]
            if absent:
                raise StoppedError(f"node {absent[0]}, on which room is made, does not exist; make a new plan")
            if (room := nodes_with_room(ground, state.unit)) is not None:
                return state._replace(room=room)
            why = hindrance(member.pod for member in state.unit.wanted()) if left else ""
            if why:
                raise StoppedError(why)
            reach = still_helps(ground, plan, state.unit, [PodUid(one.uid) for one in left])
            if reach.why:
                raise StoppedError(f"{reach.why}; make a new plan")
        return state

    async def _read(self) -> Read:
        """Read the cluster as far as the plan has read it: a kind that is missing would look like room.

        Raises:
            StoppedError: something cannot be read that the plan was made from.
        """
        for left in reversed(range(_REPEATED)):
            found = await self._repeated(lambda: read(self._transport, self._own_map))
            missing = [note for note in found.unread if note not in self._plan.notes]
            if not missing:
                return found
            if left:
                await asyncio.sleep(self._poll_s)
        raise StoppedError(f"something that the plan was made from cannot be read now: {missing[0]}")

    def _unit(self, found: Read) -> Unit:
        """Return the pods of the plan that wait for room."""
        plan = self._plan
        if not any(place.uid for place in plan.places):
            wording = Wording(plan.limits, plan.annotations)
            unit = wished(found.ledger, wording, len(plan.places), plan.namespace, (self._toleration,))
        else:
            unbound = {pod.uid: pod for pod in found.unbound if not (pod.finished or pod.deleting)}
            known = unbound.keys() | {pod.uid for pod in found.holdings.pods}
            uids = [PodUid(place.uid) for place in plan.places]
            gone = [place.pod for place in plan.places if PodUid(place.uid) not in known]
            if gone:
                raise StoppedError(f"pod {gone[0]}, for which room is made, is gone; make a new plan")
            unit = unit_of([unbound[uid] for uid in uids if uid in unbound], found.ledger)
        if isinstance(unit, Wait):
            raise StoppedError(f"the pods of the plan cannot be judged: {unit.text}")
        return unit

    # ------------------------------------------------------------------ nodes

    async def close_nodes(self, state: _State) -> None:
        """Keep the nodes for the pods that are to get in."""
        taint = {"key": MOVING, "value": self._id, "effect": _EFFECT}
        tolerated = {"key": MOVING, "operator": "Equal", "value": self._id, "effect": _EFFECT}

        def tolerating(tolerations: list[Any]) -> list[Any] | None:
            return None if tolerated in tolerations else [*tolerations, tolerated]

        def closed(taints: list[Any]) -> list[Any] | None:
            known = [one for one in taints if one.get("key") == MOVING]
            if any(one.get("value") != self._id for one in known):
                raise StoppedError(f"another plan makes room on one of its nodes ({MOVING}={known[0].get('value')})")
            return None if known else [*taints, taint]

        if any(place.uid for place in self._plan.places):
            for pod in (member.pod for member in state.unit.members):
                await self._edit(pod_path(pod.namespace, pod.name), "tolerations", tolerating, uid=pod.uid)
        self.may_be_closed = True
        for name in self._targets:
            await self._edit(node_path(name), "taints", closed)

    async def open_nodes(self) -> list[str]:
        """Remove the taint of this plan from all nodes that have it; return their names.

        Raises:
            StoppedError: the API server does not let it.
        """
        opened: list[str] = []
        self.may_be_closed = True
        try:
            await self._open_nodes(opened)
            self.may_be_closed = False
        except ApiError as e:
            raise StoppedError(f"nodes stay closed to others: {e}; open them with --undo") from e
        finally:
            for name in opened:
                self._say(f"node {name} is open again")
        return opened

    async def _open_nodes(self, names: list[str]) -> None:
        """The same; *names* gets those that were opened, which are said when all of them are."""

        def opened(taints: list[Any]) -> list[Any] | None:
            left = [one for one in taints if (one.get("key"), one.get("value")) != (MOVING, self._id)]
            return left if len(left) < len(taints) else None

        decode = msgspec.json.Decoder(_Node).decode
        for node in await self._repeated(lambda: list_objects(self._transport, NODES, decode)):
            if any((one.key, one.value) == (MOVING, self._id) for one in node.spec.taints or ()):
                try:
                    await self._edit(node_path(node.metadata.name), "taints", opened)
                except ApiNotFoundError:
                    continue  # it was removed
                names.append(node.metadata.name)

    async def _edit(
        self, path: str, key: str, change: Callable[[list[Any]], list[Any] | None], *, uid: str = ""
    ) -> None:
        """Change the list *key* of the spec of an object, with *uid* if given; *change* returns None if it stays."""
        await self._repeated(lambda: self._edit_once(path, key, change, uid))

    async def _edit_once(self, path: str, key: str, change: Callable[[list[Any]], list[Any] | None], uid: str) -> None:
        for left in reversed(range(_TRIES)):
            found = json.loads(await self._calls.get_raw(path))
            if uid and found["metadata"].get("uid") != uid:
                raise StoppedError(f"another pod has the name of the one for which room is made ({path})")
            changed = change(found.get("spec", {}).get(key) or [])
            if changed is None:
                return
            version = {"resourceVersion": found["metadata"]["resourceVersion"]}
            try:
                await self._calls.patch(path, {"metadata": version, "spec": {key: changed}})
            except ApiConflictError:
                if not left:
                    raise
            else:
                return

    # ------------------------------------------------------------------ moving

    async def try_all(self, state: _State) -> None:
        """Ask the API server whether it would evict each pod that is left."""
        refused = 0
        for one in state.left:
            namespace, _, name = one.pod.partition("/")
            try:
                await self._calls.evict(namespace, name, uid=one.uid, dry_run=True)
            except ApiError as e:
                refused += 1
                self._say(f"pod {one.pod} would not be evicted: {e}")
            else:
                self._say(f"pod {one.pod} would be evicted from {one.from_node}")
        if refused:
            raise StoppedError(f"{counted(refused, 'evictions')} would be refused now")

    async def move_all(self) -> Sequence[NodeName]:
        """Evict pod after pod, each when the replacement of the one before has a node; return where there is room.

        Each try to evict follows a look at the cluster, because a budget may refuse for minutes.

        Raises:
            StoppedError: a pod is not evicted, or what is left of the plan does not help.
        """
        tried, until_s = "", 0.0
        while True:
            state = await self._settled()
            if not state.unit.members or not state.left or state.room is not None:
                return state.room or ()
            self._check_closed(state)
            if not self.is_alone():
                await asyncio.sleep(self._poll_s)  # until the loss is noticed, which ends this
                continue
            move = state.left[0]
            namespace = move.pod.partition("/")[0]
            before = {pod.uid for pod in state.found.holdings.pods if _is_of(pod, namespace, move.owner)}
            error = await self._evict(move)
            if error is None:
                self._say(f"evicted {move.pod} from {move.from_node}")
                await self._await_replacement(move, before)
                continue
            if tried != move.uid:
                tried, until_s = move.uid, time.monotonic() + self._timeout_s
                self._say(f"waiting until pod {move.pod} may be evicted: {error}")
            left_s = until_s - time.monotonic()
            if left_s < 0:
                raise StoppedError(f"pod {move.pod} is not evicted: {error}") from error
            await asyncio.sleep(max(self._poll_s, min(error.retry_after_s or _BUDGET_S, left_s)))

    def _check_closed(self, state: _State) -> None:
        """Stop if someone has opened a node on which room is made: another run of the plan that ended, or `--undo`."""
        for name in self._targets:
            if not self._is_closed(state.found, name):
                raise StoppedError(f"someone else has opened node {name}; run one apply of a plan at a time")

    def _is_closed(self, found: Read, name: str) -> bool:
        node = found.ledger.node(NodeName(name))
        return node is not None and any((one.key, one.value) == (MOVING, self._id) for one in node.taints)

    async def _settled(self) -> _State:
        """Wait until all replacements have nodes."""
        until_s = time.monotonic() + self._timeout_s
        while True:
            state = await self.look()
            if not (state.replacements or state.leaving):
                return state
            if time.monotonic() > until_s:
                if state.leaving:
                    raise StoppedError(f"pod {state.leaving[0].key} was evicted, and is not gone yet")
                pod = state.replacements[0]
                why = pod.scheduled_message or "it has no node yet"
                raise StoppedError(f"the replacement {pod.key} finds no place: {why}")
            await asyncio.sleep(self._poll_s)

    async def _evict(self, move: PlannedMove) -> ApiError | None:
        """Return why the pod was not evicted; None if it was, or is gone."""
        namespace, _, name = move.pod.partition("/")
        try:
            await self._calls.evict(namespace, name, uid=move.uid)
        except ApiThrottledError as e:
            return e
        except (ApiNotFoundError, ApiConflictError, ApiWebhookError, ApiUnknownError) as e:
            # Perhaps it was evicted, or it is gone and another has its name.
            is_there = any(pod.uid == move.uid and not pod.deleting for pod in await self._pods(namespace))
            return e if is_there else None
        return None

    async def _await_replacement(self, move: PlannedMove, before: set[PodUid]) -> None:
        namespace = move.pod.partition("/")[0]
        until_s = time.monotonic() + self._timeout_s
        while True:
            pods = await self._pods(namespace)
            is_gone = all(pod.uid != move.uid for pod in pods)
            new = [pod for pod in pods if pod.uid not in before and _is_of(pod, namespace, move.owner)]
            bound = next((pod for pod in new if pod.node_name), None)
            if is_gone and bound is not None:
                planned = "as planned" if bound.node_name == move.to_node else f"planned was {move.to_node}"
                self._say(f"its replacement {bound.key} is on {bound.node_name}, {planned}")
                return
            if time.monotonic() > until_s:
                why = f"pod {move.pod} is not gone yet"
                if is_gone:
                    why = new[0].scheduled_message or f"{new[0].key} has no node" if new else f"{move.owner} made none"
                raise StoppedError(f"pod {move.pod} is not replaced within {self._timeout_s} s: {why}")
            await asyncio.sleep(self._poll_s)

    async def await_places(self, room: Sequence[NodeName]) -> None:
        """Wait until the pods that are to get in are on nodes; room for pods that do not exist yet is there now."""
        if not any(place.uid for place in self._plan.places):
            self._say(f"done: there is room for {self._plan.asked} on {', '.join(room)}")
            return
        until_s = time.monotonic() + self._timeout_s
        while (state := await self.look()).unit.members:
            if time.monotonic() > until_s:
                pod = state.unit.members[0].pod
                raise StoppedError(f"there is room, and pod {pod.key} still waits: {pod.scheduled_message}")
            await asyncio.sleep(self._poll_s)
        self._say(f"done: placed {', '.join(place.pod for place in self._plan.places)}")

    async def _pods(self, namespace: str) -> Sequence[Pod]:
        path = f"{namespace_path(namespace)}/pods"
        return await self._repeated(lambda: list_objects(self._transport, path, decode_pod))


def _is_of(pod: Pod, namespace: str, owner: str) -> bool:
    return pod.namespace == namespace and pod.owner == owner
