"""What was sent to the API server, until it is known what became of it: one machine for Bindings and locks of nodes.

A write that names a version of its object can be written only while the object is in that version. So nothing is judged
by the clock: an attempt without a certain answer is over once its object is seen in a later version, or gone; while
reads show the very version that it named, something is written that moves the version (a fence), and then it is over.
Until then all that it promised stays promised: `Attempts.check_settled` stands before every release.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Generic, TypeVar

from core.errors import InvariantError

_K = TypeVar("_K", bound=Hashable)


class State(StrEnum):
    """What is known of an attempt."""

    SENT = "sent"
    UNKNOWN = "unknown"
    FENCING = "fencing"
    DEAD = "dead"
    WRITTEN = "written"


class News(StrEnum):
    """What is heard of an attempt: answers of the API server, and what shows its object."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    LOST = "lost"
    READ_OPEN = "read open"
    PASSED = "passed"
    FOUND = "found"


# (state, news) -> state. READ_OPEN: a read showed the version that the attempt named; PASSED: a later one, or no such
# object any more; FOUND: what the attempt wanted, or what it cannot be written over.
TABLE: Final[Mapping[tuple[State, News], State]] = {
    (State.SENT, News.ACCEPTED): State.WRITTEN,
    (State.SENT, News.REFUSED): State.DEAD,
    (State.SENT, News.LOST): State.UNKNOWN,
    (State.UNKNOWN, News.READ_OPEN): State.FENCING,
    (State.UNKNOWN, News.PASSED): State.DEAD,
    (State.FENCING, News.LOST): State.UNKNOWN,
    (State.FENCING, News.PASSED): State.DEAD,
    (State.SENT, News.FOUND): State.WRITTEN,
    (State.UNKNOWN, News.FOUND): State.WRITTEN,
    (State.FENCING, News.FOUND): State.WRITTEN,
}


@dataclass(slots=True)
class _Attempt:
    version: str
    state: State = State.SENT


class Attempts(Generic[_K]):
    """The attempts of which the outcome is not known, one at a time for each object."""

    def __init__(self) -> None:
        self._open: Final[dict[_K, _Attempt]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def send(self, key: _K, version: str) -> None:
        """A write to *key* is sent that names *version* of it."""
        self.check_settled(key)
        self._open[key] = _Attempt(version)

    def state(self, key: _K) -> State | None:
        """What is known of the attempt on *key*; None if none is open."""
        attempt = self._open.get(key)
        return attempt.state if attempt is not None else None

    def version(self, key: _K) -> str:
        """The version that the attempt on *key* names, "" if none is open."""
        attempt = self._open.get(key)
        return attempt.version if attempt is not None else ""

    def hear(self, key: _K, news: News) -> State:
        """Take *news* of the open attempt on *key*; what is known of it then.

        Raises:
            InvariantError: none is open, or the news cannot be of it.
        """
        attempt = self._open.get(key)
        state = TABLE.get((attempt.state, news)) if attempt is not None else None
        if attempt is None or state is None:
            known = attempt.state if attempt is not None else "settled"
            raise InvariantError(f"an attempt on {key} is {known}, of which '{news}' cannot be heard")
        attempt.state = state
        if state in (State.DEAD, State.WRITTEN):
            del self._open[key]
        return state

    def close(self, key: _K) -> None:
        """What *key* names does not exist any more, or cannot be written over: nothing can become of an attempt."""
        self._open.pop(key, None)

    def check_settled(self, key: _K) -> None:
        """Make sure that nothing sent to *key* may still be written.

        Raises:
            InvariantError: it may.
        """
        attempt = self._open.get(key)
        if attempt is not None:
            raise InvariantError(f"what was sent to {key} is {attempt.state}, and must not be released")
