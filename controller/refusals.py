"""Which refused shapes are to be asked about, and when: after something freed, together, and not all the time."""

from typing import Final

from core.model import NodeName
from core.shape import Shape

# A burst of releases is one question.
_PAUSE_S: Final = 0.02
# Asking takes no more than a fifth of the time, however many shapes are refused.
_PAUSE_PER_WORK: Final = 4.0
_NEVER: Final = float("inf")


class Refusals:
    """What is known of refused shapes.

    Attributes:
        untold: shapes of which the users may not know why.
        silent: per shape, the nodes that would fit were their device plugins not silent.
    """

    def __init__(self) -> None:
        self.untold: Final[dict[Shape, None]] = {}
        self.silent: Final[dict[Shape, tuple[NodeName, ...]]] = {}
        self._to_ask: dict[Shape, None] = {}
        self._freed = False
        # Shapes that were refused since anything freed, and how often anything did.
        self._standing: set[Shape] = set()
        self._frees = 0
        # Since when shapes are asked about, without a pause; None until the first of them is named.
        self._begun_s: float | None = None
        self._next_s = 0.0

    @property
    def frees(self) -> int:
        """How often anything changed that could let a refused pod in."""
        return self._frees

    def note_free(self) -> None:
        """Something changed that could let a refused pod in."""
        self._freed = True
        self._frees += 1
        self._standing.clear()

    def note(self, shape: Shape, silent: tuple[NodeName, ...]) -> None:
        """*shape* is refused."""
        self.untold[shape] = None
        self._standing.add(shape)
        if silent:
            self.silent[shape] = silent
        else:
            self.silent.pop(shape, None)

    def still_stands(self, shape: Shape) -> bool:
        """Whether *shape* was refused and nothing has freed since: less room cannot take what more could not."""
        return shape in self._standing

    def forget(self, shape: Shape) -> None:
        """No pod is refused for *shape* any more."""
        self.silent.pop(shape, None)
        self._standing.discard(shape)

    def ask(self, shape: Shape) -> None:
        """Name *shape* in `next` soon."""
        if not self._to_ask:
            self._begun_s = None
        self._to_ask[shape] = None

    def is_due(self, now_s: float) -> bool:
        """Whether all that is refused is to be asked about now."""
        return self._freed and now_s >= self._next_s

    def begin(self, shapes: list[Shape], now_s: float) -> None:
        """Begin to ask about all *shapes*."""
        self._freed = False
        self._begun_s, self._next_s = now_s, now_s + _PAUSE_S
        refused = dict.fromkeys(shapes)
        self._to_ask.update(refused)
        # Of the others, nobody waits any more.
        for shape in [shape for shape in self.silent if shape not in refused]:
            self.forget(shape)

    def next(self, now_s: float) -> Shape | None:
        """A shape to ask about, or None."""
        if not self._to_ask:
            return None
        if self._begun_s is None:
            self._begun_s = now_s
        shape = next(iter(self._to_ask))
        del self._to_ask[shape]
        if not self._to_ask:
            self._next_s = max(self._next_s, now_s + _PAUSE_PER_WORK * (now_s - self._begun_s))
        return shape

    def due_s(self, now_s: float) -> float:
        """When there is something to ask, monotonic."""
        if self._to_ask:
            return now_s
        return self._next_s if self._freed else _NEVER
