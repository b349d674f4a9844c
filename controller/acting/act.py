"""Performs the scheduler's actions as concurrent calls; each outcome returns to the scheduler.

The error of a write determines the outcome (kube.errors): refused is certainly not written, unknown is perhaps written.
"""

import asyncio
import re
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, assert_never
from weakref import WeakValueDictionary

import structlog

from controller.acting.evicting import Evicting
from controller.actions import (
    Action,
    Announce,
    Bind,
    Clear,
    Fence,
    GiveVolume,
    Inbox,
    Lock,
    Preempt,
    ReadOwner,
    ReadPod,
    SelectNode,
    Touch,
    Unnominate,
    about_pod,
)
from controller.deciding.scheduler import Scheduler
from controller.metrics import Metrics
from controller.reporting.events import Recorder
from core import names
from core.errors import InvalidRequestError, escaped
from core.model import NodeName, Pod
from core.port.handoff import LockStep, LockWait
from core.units import time_text
from core.waiting import Cause, Wait
from core.wire.nodes import decode_node
from core.wire.pods import decode_pod
from core.wire.policies import decode_min_member
from kube.calls import MERGE_PATCH, STRATEGIC_PATCH, Calls, claim_path, owner_path, pod_path, volume_path
from kube.errors import (
    ApiConflictError,
    ApiError,
    ApiForbiddenError,
    ApiNotFoundError,
    ApiRefusedError,
    ApiThrottledError,
    ApiUnknownError,
    ApiUnreachableError,
    ApiWebhookError,
)

_log = structlog.get_logger()

# Limit of concurrent reads and clean-ups: they are rare, and must not use up the connections of Bindings.
_OTHERS_AT_ONCE: Final = 8
# The same of evictions and nominations, which must not hold up reads.
_EVICTIONS_AT_ONCE: Final = 16
_READ_AGAIN_S: Final = 1.0
_READ_AGAIN_MAX_S: Final = 15.0
_LOCK_TRIES: Final = 8
_FORBIDDEN_REST_S: Final = 10.0
# If Bindings of other pods succeeded within this time, a missing right or webhook affects only one namespace.
_OTHERS_BOUND_S: Final = 60.0
_UNREACHABLE_REST_S: Final = 1.0
# A waiting pod is tried again sooner (`Pending.rest_s`). Without a failure for this long, no pod waits for a Binding.
_FAILING_S: Final = 90.0
# A DNS subdomain, the form of object names.
_NAME: Final = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?", re.ASCII)


class Actor:
    """Performs actions as tasks of the given group."""

    def __init__(
        self,
        calls: Calls,
        scheduler: Scheduler,
        inbox: Inbox,
        recorder: Recorder,
        metrics: Metrics,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._calls = calls
        self._scheduler = scheduler
        self._inbox = inbox
        self._recorder = recorder
        self._metrics = metrics
        self._clock = clock
        self._wall = wall
        # Why Bindings fail, and when one last did.
        self._trouble, self._failed_s = "", float("-inf")
        self._bound_s = float("-inf")
        self._owner_unread = False  # whether that is logged
        self._others = asyncio.Semaphore(_OTHERS_AT_ONCE)
        self._binding: set[asyncio.Task[None]] = set()
        self._evicting: Final = Evicting(
            calls,
            scheduler.preempting,
            inbox,
            recorder,
            metrics,
            at_once=asyncio.Semaphore(_EVICTIONS_AT_ONCE),
        )
        self._turns: WeakValueDictionary[NodeName, asyncio.Lock] = WeakValueDictionary()

    @property
    def state(self) -> str:
        """Why Bindings fail, for readiness, or ""."""
        return self._trouble if self._clock() < self._failed_s + _FAILING_S else ""

    def perform(self, action: Action, tasks: asyncio.TaskGroup) -> None:
        """Start *action*; its outcome goes to the scheduler's inbox."""
        match action:
            case Bind():
                task = tasks.create_task(self._bind(action), name=f"bind {action.pod.key}")
                self._binding.add(task)
                task.add_done_callback(self._binding.discard)
            case Lock():
                task = tasks.create_task(self._lock(action), name=f"lock {action.node}")
                if action.pod is not None:
                    self._binding.add(task)
                    task.add_done_callback(self._binding.discard)
            case ReadPod():
                tasks.create_task(self._read_pod(action), name=f"read {action.pod.key}")
            case ReadOwner():
                tasks.create_task(self._read_owner(action), name=f"read {action.owner}")
            case Fence():
                tasks.create_task(self._fence(action), name=f"fence {action.pod.key}")
            case Touch():
                tasks.create_task(self._move(action), name=f"move {action.pod.key}")
            case Clear():
                tasks.create_task(self._clear(action), name=f"clear {action.pod.key}")
            case Preempt():
                tasks.create_task(self._evicting.preempt(action), name=f"preempt for {action.nomination}")
            case Unnominate():
                tasks.create_task(self._evicting.unnominate(action), name=f"nominate {action.pod.key} no more")
            case SelectNode() | GiveVolume():
                tasks.create_task(self._prepare_volume(action), name=f"bind claim {action.claim.key}")
            case Announce():
                self._recorder.note(action)
            case _:
                assert_never(action)

    async def drain(self) -> None:
        """Wait until no Binding is in flight; each ends by its own deadline."""
        while self._binding:
            await asyncio.wait(self._binding)

    # ------------------------------------------------------------------ Bindings

    async def _bind(self, action: Bind) -> None:
        pod = action.pod
        started_s = self._clock()
        try:
            await self._calls.bind(
                pod.namespace,
                pod.name,
                uid=pod.uid,
                resource_version=action.version,
                node=action.node,
                annotations=action.annotations,
                labels=action.labels,
            )
        except ApiError as e:
            self._not_bound(action, e)
            return
        self._metrics.bind_s.observe(self._clock() - started_s)
        self._metrics.binds.labels("bound").inc()
        self._trouble = ""
        self._bound_s = self._clock()
        self._inbox.put(partial(self._scheduler.outcomes.bound, pod.uid, action.attempt))
        message = f"Successfully assigned {pod.key} to {action.where}"
        self._recorder.note(Announce(about=about_pod(pod), reason="Scheduled", message=message, warning=False))

    def _not_bound(self, action: Bind, error: ApiError) -> None:
        outcome = _outcome(error)
        self._metrics.binds.labels(outcome).inc()
        refused = partial(self._scheduler.outcomes.refused, action.pod.uid, action.attempt)
        match error:
            case ApiThrottledError():
                self._inbox.put(partial(refused, rest_s=error.retry_after_s or 1.0))
            case ApiForbiddenError():
                _log.warning("binding forbidden", pod=action.pod.key, node=action.node, error=error.message)
                if error.is_missing_right and self._is_of_all():
                    self._say(f"forbidden: create pods/binding: {error.message}")
                text = f"the API server forbids binding this pod to {action.node}: {error.message}"
                wait = Wait(Cause.BINDING_REFUSED, text)
                self._inbox.put(partial(refused, rest_s=_FORBIDDEN_REST_S, wait=wait))
            case ApiUnreachableError():
                self._say(f"unreachable: create pods/binding: {error.message}")
                self._inbox.put(partial(refused, rest_s=_UNREACHABLE_REST_S))
            case ApiNotFoundError() | ApiConflictError():
                _log.info("binding refused", pod=action.pod.key, node=action.node, error=error.message)
                self._inbox.put(partial(self._scheduler.outcomes.contradicted, action.pod.uid, action.attempt))
            case ApiRefusedError():
                _log.warning("binding refused", pod=action.pod.key, node=action.node, error=error.message)
                text = f"the API server refuses to bind this pod to {action.node}: {error.message}"
                # A webhook comes back, and nothing tells of it.
                is_passing = isinstance(error, ApiWebhookError)
                if is_passing and self._is_of_all():
                    self._say(f"refused: create pods/binding: {error.message}")
                rest_s = _FORBIDDEN_REST_S if is_passing else self._scheduler.cluster.settings.refused_retry_s
                self._inbox.put(partial(refused, rest_s=rest_s, wait=Wait(Cause.BINDING_REFUSED, text)))
            case _:
                _log.warning("binding unknown", pod=action.pod.key, node=action.node, error=str(error))
                self._inbox.put(partial(self._scheduler.outcomes.lost, action.pod.uid, action.attempt, _shown(error)))

    def _is_of_all(self) -> bool:
        """Return whether a failed Binding means that no pod is bound, not only this one."""
        return self._clock() >= self._bound_s + _OTHERS_BOUND_S

    def _say(self, state: str) -> None:
        if state != self.state:
            _log.warning("bindings fail", reason=state)
        self._trouble, self._failed_s = state, self._clock()

    # ------------------------------------------------------------------ locks of nodes

    async def _lock(self, action: Lock) -> None:
        """Bring the lock of a node to the scheduler's desired state, by compare-and-swap."""
        # One at a time for each node, so that each write is settled before the next.
        turn = self._turns.setdefault(action.node, asyncio.Lock())
        async with turn:
            await self._bring_lock(action)

    async def _bring_lock(self, action: Lock) -> None:
        problem, rest_s = "its node's lock changes all the time", _UNREACHABLE_REST_S
        for _ in range(_LOCK_TRIES):
            try:
                await self._look_at_lock(action)
            except ApiConflictError:
                continue
            except (ApiNotFoundError, ApiForbiddenError, ApiThrottledError) as e:
                problem, rest_s = str(e), getattr(e, "retry_after_s", None) or _FORBIDDEN_REST_S
                break
            except (ApiError, InvalidRequestError) as e:
                problem = str(e)
                await asyncio.sleep(_READ_AGAIN_S)
            else:
                return
        self._metrics.api_errors.labels("lock node").inc()
        _log.warning("a node's lock cannot be written", node=action.node, error=problem)
        self._inbox.put(partial(self._scheduler.locks.not_locked, action, problem, rest_s))

    async def _look_at_lock(self, action: Lock) -> None:
        """Read the lock, ask the scheduler, and write if necessary."""
        locks = self._scheduler.locks
        node = decode_node(await self._calls.get_node(action.node))
        named = await self._named(action, locks.owner_of(action, node))
        step = await self._ask(partial(locks.step, action, node, named))
        if isinstance(step, LockWait):
            rest_s = step.until_s - time.time() if step.until_s else _UNREACHABLE_REST_S
            self._inbox.put(partial(locks.not_locked, action, step.reason, rest_s))
            return
        if step is not None:
            await self._write_lock(action, step, node.resource_version)
        self._inbox.put(partial(locks.locked, action))

    async def _write_lock(self, action: Lock, step: LockStep, version: str) -> None:
        locks = self._scheduler.locks
        try:
            await self._calls.patch_node_annotations(action.node, {step.key: step.value}, resource_version=version)
        except ApiRefusedError:
            self._inbox.put(partial(locks.refused, action))
            raise
        except ApiError:
            self._inbox.put(partial(locks.lost, action))
            raise
        self._inbox.put(partial(locks.written, action, step))

    async def _named(self, action: Lock, key: str) -> Pod | None:
        """Return the pod *key* (namespace/name) that a lock names; None if it names none or the pod is gone."""
        namespace, _, name = key.partition("/")
        if not (_NAME.fullmatch(namespace) and _NAME.fullmatch(name)):
            return None
        if action.pod is not None and key == action.pod.key:
            return None
        try:
            return decode_pod(await self._calls.get_pod(namespace, name))
        except ApiNotFoundError:
            return None

    async def _ask(self, question: Callable[[], LockStep | LockWait | None]) -> LockStep | LockWait | None:
        """Return the scheduler's answer to *question*, given in its turn."""
        answer: asyncio.Future[LockStep | LockWait | None] = asyncio.get_running_loop().create_future()
        self._inbox.put(lambda: answer.set_result(question()))
        return await answer

    # ------------------------------------------------------------------ volumes

    async def _prepare_volume(self, action: SelectNode | GiveVolume) -> None:
        """Write what binds a claim. The mirror shows the result; a failed write is reported."""
        try:
            async with self._others:
                await self._calls.patch(*_volume_write(action))
        except ApiError as e:
            self._metrics.api_errors.labels("bind claim").inc()
            _log.warning("a volume claim cannot be written", claim=action.claim.key, pod=action.pod.key, error=str(e))
            problem = "it changed meanwhile" if isinstance(e, ApiConflictError) else str(e)
            self._inbox.put(partial(self._scheduler.prebind.failed, action, problem))

    # ------------------------------------------------------------------ other calls

    async def _read_pod(self, action: ReadPod) -> None:
        """Read until the API server answers, because a reservation waits for it."""
        pod = action.pod
        delay_s, again_s = action.delay_s, _READ_AGAIN_S
        while True:
            await asyncio.sleep(delay_s)
            try:
                async with self._others:
                    text = await self._calls.get_pod(pod.namespace, pod.name)
                found = decode_pod(text)
            except ApiNotFoundError:
                found = None
            except (ApiError, InvalidRequestError) as e:
                self._metrics.api_errors.labels("read pod").inc()
                _log.warning("pod cannot be read", pod=pod.key, error=str(e))
                delay_s, again_s = again_s, min(2.0 * again_s, _READ_AGAIN_MAX_S)
                continue
            self._inbox.put(partial(self._scheduler.pod_read, pod.uid, action.attempt, found))
            return

    async def _read_owner(self, action: ReadOwner) -> None:
        """Read once; the scheduler repeats the request if needed. An unreadable object defines no group."""
        kind, _, name = action.owner.partition("/")
        try:
            async with self._others:
                members = decode_min_member(await self._calls.get_raw(owner_path(action.namespace, kind, name)))
        except (ApiNotFoundError, ApiForbiddenError, InvalidRequestError) as e:
            if not isinstance(e, ApiNotFoundError):
                self._metrics.api_errors.labels("read owner").inc()
            if not isinstance(e, ApiNotFoundError) and not self._owner_unread:
                self._owner_unread = True
                _log.warning(
                    "an owner of pods cannot be read; they are placed without their group if none is named in time",
                    namespace=action.namespace,
                    owner=action.owner,
                    error=str(e),
                    remedy="give the controller the rights of deploy/overlays/volcano-name/rights.yaml",
                )
            members = 0
        except ApiError as e:
            self._metrics.api_errors.labels("read owner").inc()
            _log.warning("owner cannot be read", namespace=action.namespace, owner=action.owner, error=str(e))
            return
        answered = self._scheduler.pending.owners.answered
        self._inbox.put(partial(answered, action.namespace, action.owner, members))

    async def _fence(self, action: Fence) -> None:
        """Change the version of a pod by writing its condition, which also informs the user."""
        pod = action.pod
        try:
            async with self._others:
                found = decode_pod(await self._moved(action))
        except (ApiError, InvalidRequestError) as e:
            self._metrics.api_errors.labels("write condition").inc()
            if not isinstance(e, ApiConflictError | ApiNotFoundError):
                _log.warning(
                    "a pod's condition cannot be written, so its cards stay reserved", pod=pod.key, error=str(e)
                )
            self._inbox.put(partial(self._scheduler.outcomes.not_fenced, pod.uid, action.attempt))
            return
        self._inbox.put(partial(self._scheduler.fenced, pod.uid, action.attempt, found))
        message = escaped(action.wait.message)
        self._recorder.note(Announce(about=about_pod(pod), reason="FailedScheduling", message=message))

    async def _move(self, action: Touch) -> None:
        """Change the version of a waiting pod."""
        pod = action.pod
        try:
            found = decode_pod(await self._moved(action))
        except (ApiError, InvalidRequestError) as e:
            is_passing = isinstance(e, ApiConflictError | ApiNotFoundError)
            if not is_passing:
                self._metrics.api_errors.labels("write condition").inc()
                _log.warning("a pod's condition cannot be written, so no pod is placed yet", pod=pod.key, error=str(e))
            self._inbox.put(partial(self._scheduler.not_moved, pod.uid, "" if is_passing else str(e)))
            return
        self._inbox.put(partial(self._scheduler.moved, pod.uid, action.version, found))

    async def _moved(self, action: Fence | Touch) -> bytes:
        """Return the pod after a write of its condition, or if that fails, of an annotation; both change it.

        Both name its version, so that at most one is written. A webhook may hold up only the first.
        """
        path, now_s = pod_path(action.pod.namespace, action.pod.name), self._wall()
        try:
            return await self._calls.patch(f"{path}/status", _probed(action, now_s), content_type=STRATEGIC_PATCH)
        except ApiError as e:
            if not (_is_refused(e) or isinstance(e, ApiUnknownError)):
                raise
        metadata = {
            "uid": action.pod.uid,
            "resourceVersion": action.version,
            "annotations": {names.MOVED: f"{now_s:.3f}"},
        }
        return await self._calls.patch(path, {"metadata": metadata}, content_type=MERGE_PATCH)

    async def _clear(self, action: Clear) -> None:
        """Clear until it succeeds; before that, the next pod could be given the cards that are named there."""
        pod, again_s = action.pod, _READ_AGAIN_S
        while True:
            try:
                async with self._others:
                    await self._calls.patch_pod_annotations(
                        pod.namespace, pod.name, action.annotations, uid=pod.uid, resource_version=action.version
                    )
            except ApiError as e:
                if action.version and isinstance(e, ApiConflictError):
                    # It has changed; the mirror's next event shows what must be cleared now.
                    self._inbox.put(partial(self._scheduler.cleared, pod.uid, done=False))
                    return
                # A deleted pod needs no clearing; the mirror reports it. If another pod has its name, the API server
                # answers 409, or 422 because the uid cannot change; any other 409 asks for another try.
                if not isinstance(e, ApiNotFoundError):
                    self._metrics.api_errors.labels("clear annotations").inc()
                    _log.warning("an unused assignment cannot be cleared", pod=pod.key, error=str(e))
                    await asyncio.sleep(again_s)
                    again_s = min(2.0 * again_s, _READ_AGAIN_MAX_S)
                    if self._scheduler.knows(pod.uid):
                        continue
            _log.info("an unused assignment was cleared", pod=pod.key)
            self._inbox.put(partial(self._scheduler.cleared, pod.uid, done=True))
            return


def _volume_write(action: SelectNode | GiveVolume) -> tuple[str, dict[str, Any]]:
    """Return the path and the merge patch, which requires the observed version."""
    namespace, _, name = action.claim.key.partition("/")
    if isinstance(action, SelectNode):
        meta = {"resourceVersion": action.claim.version, "uid": action.claim.uid}
        return claim_path(namespace, name), {
            "metadata": {**meta, "annotations": {names.SELECTED_NODE: action.node or None}}
        }
    told = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": namespace, "name": name}
    return volume_path(action.volume.name), {
        "metadata": {
            "resourceVersion": action.volume.version,
            "annotations": {names.BOUND_BY_CONTROLLER: "yes"},
        },
        "spec": {"claimRef": {**told, "uid": action.claim.uid}},
    }


def _is_refused(error: Exception) -> bool:
    """Return whether the server refuses what was asked, and may do so again if it is asked again of the same pod."""
    passing = ApiConflictError | ApiNotFoundError | ApiThrottledError | ApiUnreachableError
    return isinstance(error, ApiRefusedError) and not isinstance(error, passing)


def _probed(action: Fence | Touch, now_s: float) -> dict[str, Any]:
    """Return a condition that differs from every earlier one: the given one, or the present one with a new time."""
    wait = action.wait
    first = action.first if isinstance(action, Fence) else wait is not None
    now = time_text(now_s)
    condition = {"type": "PodScheduled", "lastProbeTime": now}
    if wait is not None:
        condition |= {"status": "False", "reason": wait.cause.reason, "message": escaped(wait.message)}
    if first:
        condition["lastTransitionTime"] = now
    return {
        "metadata": {"uid": action.pod.uid, "resourceVersion": action.version},
        "status": {"conditions": [condition]},
    }


def _shown(error: ApiError) -> str:
    """Return the failure of a Binding, for the user."""
    return f"{error.status} {error.message}" if error.status else error.message


def _outcome(error: ApiError) -> str:
    match error:
        case ApiThrottledError():
            return "throttled"
        case ApiForbiddenError():
            return "forbidden"
        case ApiUnreachableError():
            return "unreachable"
        case ApiConflictError() | ApiNotFoundError():
            return "conflict"
        case ApiRefusedError():
            return "refused"
        case _:
            return "unknown"
