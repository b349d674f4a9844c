"""Whether this process places pods that name another scheduler: only while no one else places them.

Two schedulers for one name would assign cards twice. So the leader holds Volcano's own Lease if it exists. It gives a
name up while another process renews the lease, while a pod of that scheduler runs, or when someone else binds such
pods. The absence of these signs proves nothing: the operator assigns the name to cardshare, and this module can only
revoke it.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

import structlog

from controller.actions import Announce, Subject
from core.configuration import OWN_MAP
from core.model import Pod, PodUid
from kube.lease import Lease, LeaseLostError, quoted_identity
from runtime.flags import ObjectName

_log: Final = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """Another scheduler for cards.

    name: the schedulerName of its pods. label, namespace: the label of its own pods in its manifests and charts, and
    their namespace. lease: the lease of its replicas; None if there is none that cardshare could hold.
    """

    name: str
    label: tuple[str, str]
    namespace: str
    lease: ObjectName | None = None


VOLCANO: Final = Rival(
    name="volcano",
    label=("app", "volcano-scheduler"),
    namespace="volcano-system",
    lease=ObjectName("volcano-system", "volcano"),
)
HAMI: Final = Rival(
    name="hami-scheduler",
    label=("app.kubernetes.io/component", "hami-scheduler"),
    namespace="kube-system",
)
RIVALS: Final = (VOLCANO, HAMI)
# How long a name is given up after someone else bound such a pod.
_FOREIGN_S: Final = 300.0
_LOOK_S: Final = 0.5
_UNKNOWN: Final = "it is not known yet whether another scheduler places its pods"


class SchedulerName:
    """Evidence that others place pods of one name.

    Attributes:
        rival: the other scheduler.
        given_up: why its pods are left alone, or "".
    """

    def __init__(
        self,
        rival: Rival,
        *,
        is_wanted: Callable[[], bool],
        is_sent: Callable[[PodUid], bool],
        changed: Callable[[], None],
        tell: Callable[[Announce], None],
        trusted: Collection[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin without the name.

        Args:
            rival: the other scheduler.
            is_wanted: whether the operator assigns the name to cardshare.
            is_sent: whether this process has sent a Binding of a pod.
            changed: called when the name is given up or taken.
            tell: writes an event.
            trusted: namespaces, besides the rival's, where a pod may be its scheduler; users can label pods elsewhere.
            clock: monotonic seconds.
        """
        self.rival: Final = rival
        self.given_up = _UNKNOWN
        self._is_wanted: Final = is_wanted
        self._is_sent: Final = is_sent
        self._changed: Final = changed
        self._tell: Final = tell
        self._clock: Final = clock
        self._namespaces: Final = frozenset((*trusted, rival.namespace))
        self._schedulers: Final[dict[PodUid, str]] = {}
        self._waiting: Final[set[PodUid]] = set()
        self._foreign: tuple[str, float] | None = None
        self._leads = False

    # ------------------------------------------------------------------ what the mirror shows

    def replaced(self, pods: Sequence[Pod]) -> None:
        """Replace all known pods."""
        there = {pod.uid for pod in pods}
        for uid in [uid for uid in self._schedulers if uid not in there]:
            del self._schedulers[uid]
        self._waiting.intersection_update(there)
        for pod in pods:
            self.seen(pod)

    def seen(self, pod: Pod) -> None:
        """Record that a pod was added or changed."""
        label, value = self.rival.label
        if pod.labels.get(label) == value and pod.namespace in self._namespaces:
            if pod.finished:
                self._schedulers.pop(pod.uid, None)
            else:
                self._schedulers[pod.uid] = pod.key
        if pod.scheduler_name != self.rival.name:
            return
        if not pod.node_name:
            self._waiting.add(pod.uid)
        elif pod.uid in self._waiting:
            self._waiting.discard(pod.uid)
            if self._leads and not self._is_sent(pod.uid):
                self._foreign = (pod.key, self._clock())

    def gone(self, uid: PodUid) -> None:
        """Record that a pod was deleted."""
        self._schedulers.pop(uid, None)
        self._waiting.discard(uid)

    # ------------------------------------------------------------------ judging

    async def run(self, lease: Lease | None, enough_s: float) -> NoReturn:
        """Hold *lease* and judge while this process leads; give the name up when *enough_s* of the lease is left.

        While the name is not configured, the lease is not renewed, so that it passes on. Pods must have been listed
        before.
        """
        self._leads = True
        while True:
            while not self._is_wanted():  # noqa: ASYNC110 (there is no event for a change of the settings)
                await asyncio.sleep(_LOOK_S)
            async with asyncio.TaskGroup() as tasks:
                holding = tasks.create_task(_hold(lease), name=f"hold the lease of {self.rival.name}")
                while self._is_wanted():
                    self.judge(lease, enough_s)
                    await asyncio.sleep(_LOOK_S)
                holding.cancel()
            self.given_up = _UNKNOWN

    def judge(self, lease: Lease | None, enough_s: float) -> None:
        """Give the name up or take it, by the current evidence."""
        why = self._why_not(lease, enough_s)
        if why == self.given_up:
            return
        before, self.given_up = self.given_up, why
        if why:
            _log.warning("scheduler name given up", name=self.rival.name, reason=why)
            namespace, _, name = OWN_MAP.partition("/")
            about = Subject(kind="ConfigMap", namespace=namespace, name=name, uid="")
            message = (
                f"pods with schedulerName {self.rival.name} are ignored here: {why}; stop one of the two schedulers"
            )
            self._tell(Announce(about=about, reason="SchedulerNameGivenUp", message=message))
        else:
            _log.info("scheduler name taken", name=self.rival.name)
        if bool(before) != bool(why):
            self._changed()

    def _why_not(self, lease: Lease | None, enough_s: float) -> str:
        if self._schedulers:
            return f"pod {min(self._schedulers.values())} (label {'='.join(self.rival.label)}) is there"
        if self._foreign is not None:
            key, at_s = self._foreign
            if self._clock() - at_s < _FOREIGN_S:
                return f"another client bound pod {key}"
            self._foreign = None
        if lease is None:
            return ""
        if not lease.is_known:
            # Without the right to read the lease, there is nothing to hold: see the overlay volcano-name.
            return "" if lease.is_forbidden else self.given_up or "its lease cannot be read"
        if lease.is_there and lease.left_s() < enough_s:
            return f"lease {lease.name} is held by {quoted_identity(lease.holder)}"
        return ""


class SchedulerNames:
    """All shared scheduler names.

    Attributes:
        shared: the names.
        labels: the labels of the other schedulers' own pods.
    """

    def __init__(self, names: Iterable[SchedulerName]) -> None:
        """Combine *names*."""
        self.names: Final = tuple(names)
        self.shared: Final = frozenset([one.rival.name for one in self.names])
        self.labels: Final = frozenset([one.rival.label for one in self.names])

    def replaced(self, pods: Sequence[Pod]) -> None:
        """Replace all known pods."""
        for one in self.names:
            one.replaced(pods)

    def seen(self, pod: Pod) -> None:
        """Record that a pod was added or changed."""
        for one in self.names:
            one.seen(pod)

    def gone(self, uid: PodUid) -> None:
        """Record that a pod was deleted."""
        for one in self.names:
            one.gone(uid)

    @property
    def given_up(self) -> dict[str, str]:
        """The reasons by name, for names whose pods are left alone."""
        return {one.rival.name: one.given_up for one in self.names if one.given_up}


async def _hold(lease: Lease | None) -> None:
    """Hold *lease*, if there is one, until cancelled; then it passes on when it expires."""
    while lease is not None:
        try:
            await lease.acquire()
            await lease.keep()
        except LeaseLostError as e:
            _log.warning("another scheduler's lease is lost", lease=lease.name, reason=str(e))
        except asyncio.CancelledError:
            lease.forget()
            raise
