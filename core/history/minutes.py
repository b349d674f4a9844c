"""What cards and queues were used for in each minute of the last day."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

MINUTES_MAX: Final = 24 * 60
KEYS_MAX: Final = 128
# Equal keys of different minutes are one object; of so many times as many, those of past days are dropped.
_KEYS_KNOWN: Final = 8
# In place of the queues, and then of the types, of which there are too many to tell apart.
OTHERS: Final = "*"


class Key(NamedTuple):
    """Whose figures these are.

    type: the cards' type, "" for waiting pods. queue: of the pods, "" for cards that no pod uses. dialect: "" for pods
    without cards, or of which it is not known what they ask.
    """

    dialect: str
    type: str
    queue: str


class Sums(NamedTuple):
    """One minute's figures: thousandths of card seconds, and the number of pods that wait at its end."""

    promised_ms: int = 0
    idle_ms: int = 0
    stranded_ms: int = 0
    waiting: int = 0

    def plus(self, other: "Sums") -> "Sums":
        """Return both together."""
        return Sums(
            self.promised_ms + other.promised_ms,
            self.idle_ms + other.idle_ms,
            self.stranded_ms + other.stranded_ms,
            self.waiting + other.waiting,
        )


class Minute(NamedTuple):
    """One whole minute; at: Unix minutes. A figure of a key that is not there is 0."""

    at: int
    sums: Mapping[Key, Sums]


class MinuteRecord:
    """The minutes of the last day that were observed as a whole; others are unknown."""

    def __init__(self, *, minutes_max: int = MINUTES_MAX, keys_max: int = KEYS_MAX) -> None:
        """Know nothing; *keys_max*: of more keys in one minute the smallest are added up."""
        self._minutes_max: Final = minutes_max
        self._keys_max: Final = keys_max
        self._minutes: Final[dict[int, Mapping[Key, Sums]]] = {}
        self._keys: dict[Key, Key] = {}

    def __len__(self) -> int:
        return len(self._minutes)

    def put(self, minute: Minute) -> None:
        """Add a minute; a known one is replaced, and those that are older than a day before the newest are dropped."""
        known = self._keys
        self._minutes[minute.at] = {
            known.setdefault(key, key): sums for key, sums in _fitted(minute.sums, self._keys_max).items()
        }
        if len(self._minutes) > self._minutes_max or len(known) > _KEYS_KNOWN * self._keys_max:
            self._drop()

    def _drop(self) -> None:
        oldest = max(self._minutes) - self._minutes_max
        for at in [at for at in self._minutes if at <= oldest]:
            del self._minutes[at]
        self._keys = {key: key for sums in self._minutes.values() for key in sums}

    def restore(self, minutes: Iterable[Minute]) -> None:
        """Add what an earlier leader observed; what is known already stays."""
        for minute in minutes:
            if minute.at not in self._minutes:
                self.put(minute)
        if self._minutes:
            self._drop()

    def newest(self) -> Iterator[Minute]:
        """Yield the known minutes, the last first."""
        return (Minute(at, self._minutes[at]) for at in sorted(self._minutes, reverse=True))


def _fitted(sums: Mapping[Key, Sums], keys_max: int) -> Mapping[Key, Sums]:
    """Return *sums* with at most *keys_max* keys: the smallest are added up, first without their queues."""
    if len(sums) <= keys_max:
        return {key: one for key, one in sums.items() if any(one)}
    found = dict(sums)
    for wider in (_any_queue, _any_type, _any_dialect):
        order = sorted(found, key=lambda key: (found[key], key), reverse=True)
        kept, rest = order[: keys_max // 2], order[keys_max // 2 :]
        several = {key: found[key] for key in kept}
        for key in rest:
            several[wider(key)] = several.get(wider(key), Sums()).plus(found[key])
        found = several
        if len(found) <= keys_max:
            break
    return found


def _any_queue(key: Key) -> Key:
    return key._replace(queue=OTHERS) if key.queue else key


def _any_type(key: Key) -> Key:
    return _any_queue(key)._replace(type=OTHERS) if key.type else _any_queue(key)


def _any_dialect(_: Key) -> Key:
    return Key(OTHERS, OTHERS, OTHERS)
