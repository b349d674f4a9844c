"""What all that decides works on: who holds what, who waits, what is in flight, and what is to be done outside."""

from collections import deque
from collections.abc import Callable
from typing import Final

from controller.actions import Action
from controller.deciding.fencing import Fencing
from controller.deciding.lifecycle import Entry, Lifecycle
from controller.deciding.lines import Lines
from controller.deciding.recording import Recording
from controller.deciding.settling import Attempts
from controller.deciding.wake import Wakes
from controller.grouping.books import Books
from controller.grouping.groups import Groups
from controller.handing_over.handoff import HandOff
from controller.handing_over.marks import NO_KEYS, Keys
from controller.metrics import Metrics
from core.catalog import Catalog
from core.ledger import Ledger
from core.model import PodUid
from core.placing.shape import Shape
from core.settings import Settings
from core.tables import Tables
from core.waiting import Wait


class State:
    """Shared by the parts of the planner, which are all the owner's alone to call.

    Attributes:
        ledger: who holds what; it knows the dialects, and the configuration in force.
        books: what pods hold of their queues and namespaces.
        lines: the order of queues.
        life: the pending pods.
        handoff: what is in flight, and who waits in which line.
        sent: the Bindings of which the outcome is not known.
        fencing: pods that an earlier leader may have bound; nobody gets room before they are moved.
        actions: what is to be done outside, oldest first; the reader takes them out.
        wakes: who waits for what.
        unreported: pods that wait for a reason of their own which the user may not know.
        recording: what happened to pods.
        metrics: where to count.
        clock: monotonic seconds.
        wall: Unix seconds.
    """

    def __init__(
        self,
        catalog: Catalog,
        tables: Tables,
        settings: Settings,
        groups: Groups,
        *,
        metrics: Metrics,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        """Begin with nothing; see the attributes."""
        self.ledger: Final = Ledger(catalog, tables, settings)
        self.books: Final = Books(groups, self.ledger)
        self.lines: Final = Lines(groups, self.books, self.ledger, clock)
        self.life: Final = Lifecycle(self.lines.of, self.lines.rank, groups.standing)
        self.lines.follow(self.life)
        self.handoff: Final = HandOff(catalog, tables, settings)
        self.recording: Final = Recording(self.ledger, wall)
        self.handoff.on_served = self.recording.served
        self.sent: Final[Attempts[PodUid]] = Attempts()
        self.actions: Final[deque[Action]] = deque()
        self.fencing: Final = Fencing(self.actions)
        self.wakes: Final = Wakes()
        self.unreported: Final[dict[PodUid, None]] = {}
        self.metrics: Final = metrics
        self.clock: Final = clock
        self.wall: Final = wall

    @property
    def settings(self) -> Settings:
        """The operator's, as they are in force."""
        return self.ledger.settings

    @property
    def has_room(self) -> bool:
        """Whether another Binding may be sent now."""
        return self.life.in_flight < self.settings.bind_in_flight_max and not self.fencing.is_under_way

    def keys(self, shape: Shape) -> Keys:
        """What a device plugin could mistake a pod of *shape* by."""
        if shape.dialect is None:
            return NO_KEYS
        return Keys(shape.dialect, self.ledger.catalog.dialects[shape.dialect].confusable(shape.request))

    def hold(self, entry: Entry, wait: Wait) -> None:
        """Let a pod wait for a reason of its own."""
        self.life.hold(entry)
        self.life.hold_up(entry, wait)
        self.unreported[entry.pod.uid] = None
