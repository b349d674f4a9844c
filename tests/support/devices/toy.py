"""A device protocol in one file: what docs/maintainers/adding-a-dialect.md walks through, and a probe of the port.

It stands as it is in a folder of core/dialects of a copy of the tree (tests/unit/test_toy_folder.py).

A toy node carries ``toy.example/cards: "type:total,type:total"``; a pod asks ``toy.example/memory: "7"`` on
``toy.example/cards`` different cards (default 1), with ``toy.example/cores`` percent on each; ``toy.example/type``
restricts the type. One card takes any number of shares.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from core.model import AnyPod, Node, Pod
from core.port.cards import Bound, CardShare, Held, NodeRoom, Offer, Placed, Series, Tally, Want
from core.port.dialect import Dialect, Names
from core.port.handoff import InFlight, Progress, Stamp
from core.port.refusals import Complaint, Reason, Shortfall, Violation
from core.port.spec import ConfigMapPlace, DialectSpec, Metrics, Modes, NodeDocuments
from core.settings import DialectName, Policy, Tables

MEMORY = "toy.example/memory"
HELD = "toy.example/held"
MODE = "toy.example/mode"


class ToyCard(NamedTuple):
    """One card: *memory* and *cores* are what is in use of *total* and of 100."""

    at: int
    kind: str
    total: int
    memory: int = 0
    cores: int = 0


class ToyRequest(NamedTuple):
    """So much *memory* and *cores* on each of *cards* different cards of *kind* ("" = any)."""

    memory: int
    cores: int = 0
    cards: int = 1
    kind: str = ""


class Toy(Dialect[ToyCard, ToyRequest, Any]):
    """The toy dialect."""

    name = DialectName("toy")

    preferences: frozenset[str] = frozenset()

    def names(self, tables: Tables) -> Names:
        memory = frozenset({MEMORY})
        return Names(
            resources=memory, uncounted=memory, assignment_keys=frozenset({HELD}), preferences=self.preferences
        )

    def offer(self, node: Node, tables: Tables) -> Offer[ToyCard] | Complaint | None:
        text = node.annotations.get("toy.example/cards")
        if text is None:
            return None
        cards = []
        for index, piece in enumerate(text.split(",")):
            kind, _, total = piece.partition(":")
            if not (total.isdecimal() and len(total) < 10):
                return Complaint(dialect=self.name, field="toy.example/cards", problem=f"card {index}: {piece!r}")
            cards.append(ToyCard(index, kind, int(total)))
        return Offer(cards=tuple(cards))

    def request(self, pod: AnyPod, tables: Tables) -> ToyRequest | tuple[Violation, ...] | None:
        limits = pod.containers[0].limits if pod.containers else {}
        figures = [limits.get(MEMORY), *(pod.annotations.get(f"toy.example/{key}", "") for key in ("cores", "cards"))]
        if MEMORY in {key for one in (*pod.init_containers, *pod.containers[1:]) for key in one.limits}:
            remedy = "ask in the first container alone; the plugin serves no other"
            return (Violation(code="CS204", field=MEMORY, found="", remedy=remedy),)
        if figures[0] is None:
            return None
        try:
            memory, cores, cards = (int(text or default) for text, default in zip(figures, "001", strict=True))
        except ValueError:
            return (Violation(code="CS101", field=MEMORY, found="", remedy="write whole numbers"),)
        return ToyRequest(memory, cores, cards, pod.annotations.get("toy.example/type", ""))

    def held(self, pod: Pod, cards: Sequence[ToyCard], tables: Tables) -> Held[Any] | None:
        text = pod.annotations.get(HELD)
        if text is None:
            return None
        try:
            entries = [entry.split("/") for entry in text.split(",")]
            return Held(assignment=tuple((int(at), int(memory), int(cores)) for at, memory, cores in entries))
        except ValueError:
            return Held(assignment=(), closes=f"pod {pod.key}: {text[:64]!r} may mean any card; delete the pod")

    def _order(self, cards: Sequence[ToyCard], policy: Policy) -> list[ToyCard]:
        if policy is Policy.BINPACK:
            return sorted(cards, key=lambda c: (-c.memory, c.at))
        if policy is Policy.SPREAD:
            return sorted(cards, key=lambda c: (c.memory > 0, c.at))
        return sorted(cards, key=lambda c: -c.at)

    def place(self, cards: Sequence[ToyCard], request: ToyRequest, policy: Policy) -> Placed[Any] | None:
        picked = [c for c in self._order(cards, policy) if self._lack(c, request) is None][: request.cards]
        if len(picked) < request.cards:
            return None
        if policy is Policy.BINPACK:
            by_total: dict[int, int] = {}
            for card in picked:
                by_total[card.total] = by_total.get(card.total, 0) + card.memory + request.memory
            score = sum(100.0 * used / total for total, used in by_total.items())
        else:
            score = 100.0 * sum(c.memory == 0 for c in picked) if policy is Policy.SPREAD else 0.0
        return Placed(tuple(sorted((c.at, request.memory, request.cores) for c in picked)), score)

    def _lack(self, card: ToyCard, request: ToyRequest) -> Shortfall | None:
        if request.kind and card.kind != request.kind:
            return Shortfall(str(card.at), Reason.TYPE)
        if card.total - card.memory < request.memory:
            return Shortfall(str(card.at), Reason.MEMORY, request.memory, card.total - card.memory, "MiB")
        if 100 - card.cores < request.cores:
            return Shortfall(str(card.at), Reason.CORES, request.cores, 100 - card.cores, "%")
        return None

    def shortfalls(self, cards: Sequence[ToyCard], request: ToyRequest) -> tuple[Shortfall, ...]:
        lacks = tuple(lack for c in cards if (lack := self._lack(c, request)) is not None)
        fitting = len(cards) - len(lacks)
        return (Shortfall("", Reason.CARD_COUNT, request.cards, fitting, "cards"), *lacks) if fitting else lacks

    def relaxed(self, cards: Sequence[ToyCard], request: ToyRequest, reason: Reason, amount: int) -> ToyRequest | None:
        if reason is Reason.TYPE:
            return request._replace(kind="")
        name = {Reason.MEMORY: "memory", Reason.CORES: "cores", Reason.CARD_COUNT: "cards"}[reason]
        return request._replace(**{name: min(getattr(request, name), amount)})

    def take(self, cards: tuple[ToyCard, ...], assignment: Any) -> tuple[ToyCard, ...]:
        return self._add(cards, assignment, 1)

    def give_back(self, cards: tuple[ToyCard, ...], assignment: Any) -> tuple[ToyCard, ...]:
        return self._add(cards, assignment, -1)

    def _add(self, cards: tuple[ToyCard, ...], assignment: Any, sign: int) -> tuple[ToyCard, ...]:
        after = list(cards)
        for index, memory, cores in assignment:
            if index >= len(after):
                continue
            card = after[index]
            after[index] = card._replace(memory=card.memory + sign * memory, cores=card.cores + sign * cores)
        return tuple(after)

    def room(self, cards: Sequence[ToyCard]) -> NodeRoom:
        total = sum(c.total for c in cards)
        some = [c for c in cards if c.memory < c.total]
        return NodeRoom(
            sum(c.memory == 0 for c in cards),
            sum(c.memory for c in cards) * 1_000_000 // total if total else 0,
            [(c.kind, c.total) for c in some],
            [c.total - c.memory for c in some],
            [100 - c.cores for c in some],
        )

    def want(self, request: ToyRequest, kind: Hashable, policy: Policy) -> Want | None:
        if not isinstance(kind, tuple):
            return None
        name, total = kind
        if request.kind and name != request.kind:
            return None
        return Want(request.memory, request.cores, request.cards * (total + request.memory), total)

    def bound(self, request: ToyRequest, policy: Policy) -> Bound:
        def idle_score(idle: int) -> float:
            return 100.0 * min(idle, request.cards) if policy is Policy.SPREAD else 0.0

        return Bound(request.cards, policy is Policy.BINPACK, idle_score)

    def stands(self, cards: Sequence[ToyCard], request: ToyRequest, assignment: Any) -> bool:
        held = [cards[index] for index, _, _ in assignment if index < len(cards)]
        idle = [one._replace(memory=0, cores=0) for one in held]
        fits = len(held) == len(assignment) and not any(self._lack(one, request) for one in idle)
        return fits and not self.overcommitted(held)

    def overcommitted(self, cards: Sequence[ToyCard]) -> tuple[str, ...]:
        return tuple(f"card {c.at}: {c.memory} of {c.total}" for c in cards if c.memory > c.total or c.cores > 100)

    def tally(self, cards: Sequence[ToyCard]) -> tuple[Tally, ...]:
        return tuple(Tally(str(c.at), "toy", c.memory, c.total, "MiB", c.cores) for c in cards)

    def annotations(self, assignment: Any, stamp: Stamp, tables: Tables) -> Mapping[str, str]:
        return {HELD: ",".join("/".join(map(str, entry)) for entry in assignment)}

    def confusable(self, request: ToyRequest) -> frozenset[Hashable]:
        return frozenset({request.cards})

    def in_flight(self, pod: Pod, tables: Tables) -> InFlight | None:
        text = pod.annotations.get(HELD)
        if text is None:
            return None
        progress = Progress.DONE if pod.started else Progress.WAITING
        return InFlight(pod=pod.uid, progress=progress, confusable=frozenset({text.count(",") + 1}))

    def describe(self, assignment: Any, cards: Sequence[ToyCard]) -> tuple[CardShare, ...]:
        return tuple(CardShare(str(index), f"{memory} MiB", memory, cores) for index, memory, cores in assignment)


class ToyWithMode(Toy):
    """The same, with annotations of users."""

    preferences = frozenset({MODE, "toy.example/type"})


def _documents(name: str, texts: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    if name.startswith("toy-"):
        yield name.removeprefix("toy-"), "toy", texts.get("state", "")


DIALECT: Final = DialectSpec(
    port=ToyWithMode(),
    cards="toy",
    switch="ToyEnable",
    plugin_accounts=("system:serviceaccount:kube-system:toy-plugin",),
    time_lock="toy",
    modes=Modes(MODE, ("gentle", "rough")),
    machine_keys=frozenset({"toy.example/state"}),
    key_prefixes=("toy.example/",),
    metrics=Metrics(
        of_cards=(Series("toy_memory_used", "The memory in use on this card."),),
        card=lambda card: (str(card.at), (card.memory,)),
    ),
    documents=NodeDocuments((ConfigMapPlace("toy-states", "toy-system", "toy=true"),), _documents),
)
