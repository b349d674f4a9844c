"""Evicts pods for others through evictions, which the API server checks against disruption budgets.

The pods that get the capacity are nominated first (`status.nominatedNodeName`), so that another controller keeps it for
them. If several pods must leave, all evictions are tried as a dry run first, because a gang is evicted as a whole.
"""

import asyncio
from functools import partial
from typing import Final

import structlog

from controller.actions import Announce, Preempt, Target, Unnominate, about_pod
from controller.deciding.preempt import Preempting
from controller.failpoints import Point, Reached
from controller.inbox import Inbox
from controller.metrics import Metrics
from controller.reporting.events import Recorder
from core.model import NodeName
from kube.calls import Calls
from kube.errors import (
    ApiConflictError,
    ApiError,
    ApiForbiddenError,
    ApiNotFoundError,
    ApiThrottledError,
    ApiUnknownError,
)

_log: Final = structlog.get_logger()

_TRIES: Final = 3
_AGAIN_S: Final = 1.0


class _RefusedError(Exception):
    """A victim may not be evicted."""

    def __init__(self, victim: Target, error: ApiError) -> None:
        super().__init__(victim, error)
        self.victim = victim
        self.error = error


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
        reached: Reached,
    ) -> None:
        """Prepare; *at_once*: limits concurrent calls; *reached*: called at every fail point."""
        self._calls: Final = calls
        self._preempting: Final = preempting
        self._inbox: Final = inbox
        self._recorder: Final = recorder
        self._metrics: Final = metrics
        self._at_once: Final = at_once
        self._reached: Final = reached

    async def preempt(self, action: Preempt) -> None:
        """Evict all victims, or none if a dry run fails."""
        preempting = self._preempting
        try:
            for pod, node in action.nominated:
                await self._nominate(pod, node)
            if len(action.victims) > 1:
                for victim, _ in action.victims:
                    await self._evict(victim, dry_run=True)
            for victim, node in action.victims:
                self._reached(Point.BEFORE_EVICT)
                await self._evict(victim)
                self._reached(Point.AFTER_EVICT)
                self._metrics.evictions.labels("evicted").inc()
                # The message gives only the uid; users with access to that pod can find it.
                message = f"Preempted by pod {action.nomination} on node {node}"
                self._inbox.put(partial(preempting.evicted, victim))
                self._recorder.note(
                    Announce(about=about_pod(victim), reason="Preempted", message=message, warning=False)
                )
        except _RefusedError as e:
            self._refused(action, e)
        except ApiError as e:
            self._metrics.api_errors.labels("write nomination").inc()
            _log.warning("a pod cannot be nominated", error=str(e))
            self._inbox.put(partial(preempting.refused, action.nomination, None, 0.0))
        else:
            self._inbox.put(partial(preempting.asked, action.nomination))

    def _refused(self, action: Preempt, refused: _RefusedError) -> None:
        victim, error = refused.victim, refused.error
        by_budget = isinstance(error, ApiThrottledError)
        self._metrics.evictions.labels("refused" if by_budget else "failed").inc()
        _log.warning("a pod is not evicted", pod=victim.key, error=str(error))
        trouble = ""
        if isinstance(error, ApiForbiddenError) and error.is_missing_right:
            trouble = f"no pod is evicted for others: {error}"
        answer = partial(
            self._preempting.refused, action.nomination, victim.uid, error.retry_after_s or 0.0, trouble=trouble
        )
        self._inbox.put(answer)

    async def _evict(self, victim: Target, *, dry_run: bool = False) -> None:
        """Evict one pod; a pod that is gone counts as evicted.

        Raises:
            _RefusedError: it may not be evicted, or the outcome is unknown.
        """
        for left in reversed(range(_TRIES)):
            try:
                async with self._at_once:
                    await self._calls.evict(victim.namespace, victim.name, uid=victim.uid, dry_run=dry_run)
            except (ApiNotFoundError, ApiConflictError):
                return
            except ApiUnknownError as e:
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
            await self._nominate(action.pod, NodeName(""))
        except ApiError as e:
            self._metrics.api_errors.labels("write nomination").inc()
            _log.info("a pod stays nominated", pod=action.pod.key, error=str(e))

    async def _nominate(self, pod: Target, node: NodeName) -> None:
        """Nominate a node for a pod.

        Raises:
            ApiError: the write perhaps failed.
        """
        try:
            async with self._at_once:
                await self._calls.nominate(pod.namespace, pod.name, node, uid=pod.uid)
        except ApiNotFoundError:
            pass  # the mirror will report it
