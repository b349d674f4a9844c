"""Writes down what happens to pods, for people who ask later; no decision reads it."""

from collections.abc import Callable, Iterable
from typing import Final

from controller.actions import Target
from core.errors import InvalidRequestError
from core.history.pods import Life, PodEvent, PodRecord, What
from core.ledger import Ledger
from core.model import Container, Pod, PodUid
from core.units import parse_amount


class Recording:
    """The record of pods' events, while this process leads: what a standby sees, its leader writes down.

    Attributes:
        pods: the record.
        is_on: whether anything is written down.
    """

    def __init__(self, ledger: Ledger, wall: Callable[[], float]) -> None:
        """Begin with nothing; *wall*: Unix seconds."""
        self.pods: Final = PodRecord()
        self.is_on = False
        self._ledger: Final = ledger
        self._wall: Final = wall

    def begin(self, lives: Iterable[Life] = ()) -> None:
        """Write down what happens from now on; *lives*: what the leader before remembered, oldest first."""
        self.pods.restore(lives)
        self.is_on = True

    def note(self, pod: Pod, what: What, text: str = "", code: str = "") -> None:
        """Something happened to a pod of ours."""
        if not self.is_on:
            return
        key = pod.key
        if pod.uid not in self.pods:
            now_s = int(self._wall())
            asked_s = min(pod.created_s, now_s) or now_s
            asked = PodEvent(What.ASKED, asked_s, asked_s, text=self._asked(pod))
            self.pods.note(pod.uid, key, asked)
        self.pods.note(pod.uid, key, self._event(what, text, code))

    def known(self, uid: PodUid, what: What, text: str = "") -> None:
        """Something happened to a pod, which is of no interest if nothing was written down of it."""
        key = self.pods.pod(uid) if self.is_on else None
        if key is not None:
            self.pods.note(uid, key, self._event(what, text))

    def evicted(self, victim: Target) -> None:
        """A pod was asked to leave for another."""
        if self.is_on:
            event = self._event(What.EVICTED, "its cards are needed for a pod that comes first")
            self.pods.note(victim.uid, victim.key, event)

    def ended(self, pod: Pod) -> None:
        """A pod holds nothing any more."""
        if self.pods.what(pod.uid) is not What.ENDED:
            said = ": ".join(filter(None, (pod.phase, pod.status_reason, pod.status_message)))
            self.known(pod.uid, What.ENDED, said)

    def served(self, uid: PodUid) -> None:
        """The device plugin has answered for a pod."""
        self.known(uid, What.SERVED)

    def gone(self, uid: PodUid) -> None:
        """A pod's object does not exist any more."""
        self.known(uid, What.GONE)

    def _event(self, what: What, text: str, code: str = "") -> PodEvent:
        now_s = int(self._wall())
        return PodEvent(what, now_s, now_s, 1, self._ledger.cursor, code, text)

    def _asked(self, pod: Pod) -> str:
        """Return what the containers of *pod* ask of cards."""
        return " + ".join(filter(None, map(self._wanted, (*pod.containers, *pod.init_containers))))

    def _wanted(self, container: Container) -> str:
        of_cards = self._ledger.resources
        return ", ".join(
            f"{name}: {_whole(text)}" for name, text in sorted(container.limits.items()) if name in of_cards
        )


def _whole(text: str) -> str:
    """Return a quantity without its suffix, as whole numbers are usually written: 12000 for 12k."""
    try:
        return str(parse_amount(text, ""))
    except InvalidRequestError:
        return text
