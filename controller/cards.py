"""The series of cards that Volcano's scheduler has under the same names (nvidia 1.11), written when they are asked for.

A large cluster has 100,000 of them: they are written as text in slices, not kept as objects.
"""

from collections.abc import Iterator
from typing import Final

from core.dialects.vgpu.cards import Card
from core.dialects.vgpu.usage import Assignment
from core.errors import escaped
from core.ledger import Ledger, NodeState
from core.model import NodeName
from core.settings import DialectName

_PREFIX: Final = "volcano_vgpu_device_"
_SERIES: Final = (
    ("shared_number", "The number of vgpu tasks sharing this card."),
    ("allocated_memory", "The number of vgpu memory allocated in this card."),
    ("allocated_cores", "The percentage of gpu compute cores allocated in this card."),
    ("memory_limit", "The number of total device memory in this card."),
)
_POD_SERIES: Final = (
    ("memory_allocation_for_a_certain_pod", "The vgpu device memory allocated for a certain pod."),
    ("core_allocation_for_a_certain_pod", "The vgpu device core allocated for a certain pod."),
)
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\""})
# Ids are what device plugins write, and a register has room for one of a megabyte; those in the field have 40.
_LABEL_MAX: Final = 128


def card_series(ledger: Ledger, *, per_pod: bool) -> Iterator[str]:
    """The series in Prometheus' text format, in pieces of one node and one name."""
    states = tuple(ledger.states.values())
    for at, (name, text) in enumerate(_SERIES):
        yield f"# HELP {_PREFIX}{name} {text}\n# TYPE {_PREFIX}{name} gauge\n"
        for state in states:
            yield _of_cards(f"{_PREFIX}{name}", at, state)
    if per_pod:
        for at, (name, text) in enumerate(_POD_SERIES):
            yield f"# HELP {_PREFIX}{name} {text}\n# TYPE {_PREFIX}{name} gauge\n"
            for state in states:
                yield _of_pods(f"{_PREFIX}{name}", at, state.facts.name, ledger)


def _of_cards(name: str, at: int, state: NodeState) -> str:
    node = _escaped(state.facts.name)
    cards: tuple[Card, ...] = state.offers.get(DialectName("vgpu"), ())
    # A card that is named twice has one series, as every set of labels has.
    figures = {_escaped(card.fixed.uuid): _figures(card)[at] for card in reversed(cards)}
    return "".join(
        f'{name}{{devID="{card}",NodeName="{node}"}} {figure}\n' for card, figure in reversed(figures.items())
    )


def _figures(card: Card) -> tuple[int, int, int, int]:
    return card.used_slots, card.used_memory, card.used_cores, card.fixed.memory


def _of_pods(name: str, at: int, on: NodeName, ledger: Ledger) -> str:
    node = _escaped(on)
    lines = []
    for holding in ledger.holders(on).values():
        if not isinstance(holding.assignment, Assignment):
            continue
        sums: dict[str, tuple[int, int]] = {}
        for entry in holding.assignment.entries:
            card = _escaped(entry.uuid)
            memory, cores = sums.get(card, (0, 0))
            sums[card] = memory + entry.charge, cores + entry.cores
        lines += [
            f'{name}{{devID="{card}",NodeName="{node}",podName="{_escaped(holding.key)}"}} {figures[at]}\n'
            for card, figures in sums.items()
        ]
    return "".join(lines)


def _escaped(text: str) -> str:
    """*text* as the value of a label: whatever it is, one line of printable characters."""
    return escaped(text if len(text) <= _LABEL_MAX else f"{text[:_LABEL_MAX]}…").translate(_ESCAPES)
