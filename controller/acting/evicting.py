"""Evicts pods for others through evictions, which the API server checks against disruption budgets.

The evictions that may be refused are tried as a dry run first, because a gang is evicted as a whole, and so that a
refused preemption writes nothing: those of pods that a disruption budget covers, and of several pods one of each
namespace. Then the pods that get the capacity are nominated (`status.nominatedNodeName`), so that another controller
keeps it for them. The covered pods are evicted one at a time, because two may share a budget, and the others at once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeVar

import structlog

from controller.actions import Announce, Inbox, Preempt, Target, Unnominate, about_pod
from controller.deciding.preempt import Preempting
from controller.metrics import Metrics
from controller.reporting.events import Recorder
from core.model import NodeName
from kube.calls import Calls
from kube.errors import (
    ApiConflictError,
    ApiError,
    ApiForbiddenError,
    ApiNotFoundError,
    ApiRefusedError,
    ApiThrottledError,
    ApiUnknownError,
    ConflictKind,
)

_log: Final = structlog.get_logger()

_TRIES: Final = 3
_AGAIN_S: Final = 1.0
# The minimum time before a pod whose eviction an admission policy refused is chosen again, so that all other pods have
# their turn, one each second. Nothing shows when a policy changes.
POLICY_REST_S: Final = 600.0
# The statuses with which admission policies and webhooks refuse, and the API server for a pod with several budgets.
_FOR_LONG: Final = frozenset({400, 403, 422, 500})
# So many calls are in flight for one pod or group, if as many are free.
_AT_ONCE: Final = 8
# The maximum number of remembered namespaces where an eviction was refused.
_REFUSED_IN_MAX: Final = 256

_T = TypeVar("_T")


class _RefusedError(Exception):
    """A victim may not be evicted."""

    def __init__(self, victim: Target, error: ApiError) -> None:
        super().__init__(victim, error)
        self.victim = victim
        self.error = error


class _NotNeededError(Exception):
    """Nobody waits for the room any more."""


class Evicting:
    """Performs the actions of preemption."""

    def __init__(
        self,
        calls: Calls,
        preempting: Preempting,
        inbox: Inbox,
        recorder: Recorder,
        metrics: Metrics,
        *,
        at_once: asyncio.Semaphore,
    ) -> None:
        """Prepare; *at_once*: limits concurrent calls."""
        self._calls: Final = calls
        self._preempting: Final = preempting
        self._inbox: Final = inbox
        self._recorder: Final = recorder
        self._metrics: Final = metrics
        self._at_once: Final = at_once
        # Namespaces where an eviction was refused although no known budget covers the pod: by a policy, for instance.
        # Only the latest are kept: if one is forgotten, an eviction is refused there after other victims have left.
        self._refused_in: Final[dict[str, None]] = {}

    async def preempt(self, action: Preempt) -> None:
        """Evict all victims, or none if a dry run fails; from when nobody needs their room any more, no further one."""
        preempting = self._preempting
        guarded = [one for one in action.victims if one[0].uid in action.guarded]
        others = [one for one in action.victims if one[0].uid not in action.guarded]
        try:
            await _each(self._doubtful(action), partial(self._try, action), at_once=_AT_ONCE)
            if not preempting.needs(action):
                raise _NotNeededError
            await _each(action.nominated, self._nominate, at_once=_AT_ONCE)
            await _each(guarded, partial(self._send_away, action), at_once=1)
            await _each(others, partial(self._send_away, action), at_once=_AT_ONCE)
        except _NotNeededError:
            self._inbox.put(partial(preempting.unneeded, action))
        except _RefusedError as e:
            self._refused(action, e)
        except (ApiNotFoundError, ApiConflictError):
            self._inbox.put(partial(preempting.refused, action, None, 0.0))  # a nominated pod is gone
        except ApiError as e:
            self._metrics.api_errors.labels("write nomination").inc()
            _log.warning("a pod cannot be nominated", error=str(e))
            self._inbox.put(partial(preempting.refused, action, None, 0.0))
        else:
            self._inbox.put(partial(preempting.asked, action))

    def _doubtful(self, action: Preempt) -> list[tuple[Target, NodeName]]:
        """Return the victims to try: those that a budget covers, all of `_refused_in`, of several one per namespace."""
        first = {victim.namespace: victim.uid for victim, _ in reversed(action.victims)}
        doubtful = {*action.guarded, *(first.values() if len(action.victims) > 1 else ())}
        return [one for one in action.victims if one[0].uid in doubtful or one[0].namespace in self._refused_in]

    async def _try(self, action: Preempt, victim: tuple[Target, NodeName]) -> None:
        await self._evict(action, victim[0], dry_run=True)

    async def _send_away(self, action: Preempt, victim: tuple[Target, NodeName]) -> None:
        """Evict one of the victims, and tell of it."""
        target, node = victim
        await self._evict(action, target)
        self._metrics.evictions.labels("evicted").inc()
        self._inbox.put(partial(self._preempting.evicted, target))
        # The message gives only the uid; users with access to that pod can find it.
        message = f"Preempted by pod {action.nomination} on node {node}"
        self._recorder.note(Announce(about=about_pod(target), reason="Preempted", message=message, warning=False))

    def _refused(self, action: Preempt, refused: _RefusedError) -> None:
        victim, error = refused.victim, refused.error
        if error.status and victim.uid not in action.guarded:
            self._refused_in.pop(victim.namespace, None)
            self._refused_in[victim.namespace] = None
            if len(self._refused_in) > _REFUSED_IN_MAX:
                del self._refused_in[next(iter(self._refused_in))]
        by_budget = isinstance(error, ApiThrottledError) and error.is_of_budget
        self._metrics.evictions.labels("refused" if by_budget else "failed").inc()
        _log.warning("a pod is not evicted", pod=victim.key, error=str(error))
        trouble = ""
        rest_s = error.retry_after_s or 0.0
        if isinstance(error, ApiForbiddenError) and error.is_missing_right:
            trouble = f"no pod is evicted for others: {error}"
        elif isinstance(error, ApiRefusedError) and error.status in _FOR_LONG:
            rest_s = max(rest_s, POLICY_REST_S)
        self._inbox.put(
            partial(self._preempting.refused, action, victim.uid, rest_s, by_budget=by_budget, trouble=trouble)
        )

    async def _evict(self, action: Preempt, victim: Target, *, dry_run: bool = False) -> None:
        """Evict one pod; a pod that is gone, or another of its name, counts as evicted.

        Raises:
            _NotNeededError: nobody needs its room any more.
            _RefusedError: it may not be evicted, or the outcome is unknown.
        """
        for left in reversed(range(_TRIES)):
            try:
                async with self._at_once:
                    if not self._preempting.needs(action):
                        raise _NotNeededError
                    await self._calls.evict(victim.namespace, victim.name, uid=victim.uid, dry_run=dry_run)
            except ApiNotFoundError:
                return
            except (ApiConflictError, ApiUnknownError) as e:
                if isinstance(e, ApiConflictError) and e.kind is ConflictKind.OTHER_UID:
                    return
                # Other conflicts, such as with a disruption budget that is changing, are tried again.
                if not left:
                    raise _RefusedError(victim, e) from e
                await asyncio.sleep(_AGAIN_S)  # evicting a terminating pod again is harmless
            except ApiError as e:
                raise _RefusedError(victim, e) from e
            else:
                return

    async def unnominate(self, action: Unnominate) -> None:
        """Remove a pod's nomination; without a successful write, it ends by itself."""
        try:
            await self._nominate((action.pod, NodeName("")))
        except ApiNotFoundError:
            pass  # the mirror will report it
        except ApiError as e:
            self._metrics.api_errors.labels("write nomination").inc()
            _log.info("a pod stays nominated", pod=action.pod.key, error=str(e))

    async def _nominate(self, nominated: tuple[Target, NodeName]) -> None:
        """Nominate a node for a pod.

        Raises:
            ApiError: the pod is gone, or the write perhaps failed.
        """
        pod, node = nominated
        async with self._at_once:
            await self._calls.nominate(pod.namespace, pod.name, node, uid=pod.uid)


async def _each(ones: Sequence[_T], act: Callable[[_T], Awaitable[None]], *, at_once: int) -> None:
    """Act on each, *at_once* at a time; after an error begin no more, and raise it when those begun have ended."""
    left, errors = iter(ones), list[Exception]()

    async def work() -> None:
        for one in left:
            try:
                await act(one)
            except (ApiError, _RefusedError, _NotNeededError) as e:
                errors.append(e)
            if errors:
                return

    async with asyncio.TaskGroup() as tasks:
        for _ in range(min(at_once, len(ones))):
            tasks.create_task(work())
    if errors:
        raise errors[0]
