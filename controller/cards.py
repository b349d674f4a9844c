"""The card metrics of dialects (`core.port.spec.Metrics`), generated at each scrape.

A large cluster has 100,000 of them, so they are written as text in slices and not kept as objects.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from core.errors import escaped
from core.holding import Holding
from core.ledger import Ledger
from core.model import NodeName
from core.node_state import NodeState
from core.port.cards import Series
from core.port.spec import AnySpec

_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\""})
# Device plugins write the ids; real ones have 40 characters, but a register could hold one of a megabyte.
_LABEL_MAX: Final = 128


def card_series(ledger: Ledger, *, per_pod: bool) -> Iterator[str]:
    """Yield the series in Prometheus' text format, each piece for one node and one metric name."""
    states = tuple(ledger.states.values())
    for spec in ledger.catalog.specs:
        for at, one in enumerate(spec.metrics.of_cards):
            yield _head(one)
            for state in states:
                yield _of_cards(one, at, state, spec)
        for at, one in enumerate(spec.metrics.of_pods if per_pod else ()):
            yield _head(one)
            for state in states:
                held = [of for of in ledger.holders(state.facts.name).values() if of.dialect == spec.name]
                yield _of_pods(one, at, state.facts.name, held, spec)


def _head(one: Series) -> str:
    return f"# HELP {one.name} {one.text}\n# TYPE {one.name} gauge\n"


def _of_cards(one: Series, at: int, state: NodeState, spec: AnySpec) -> str:
    label, where = one.labels
    node = _escaped(state.facts.name)
    cards = [spec.metrics.card(card) for card in reversed(state.offers.get(spec.name, ()))]
    # Prometheus allows one series per set of labels, so a card that is listed twice has one.
    told = {_escaped(card): figures[at] for card, figures in cards}
    return "".join(
        f'{one.name}{{{label}="{card}",{where}="{node}"}} {figure}\n' for card, figure in reversed(told.items())
    )


def _of_pods(one: Series, at: int, on: NodeName, held: Iterable[Holding], spec: AnySpec) -> str:
    label, where = one.labels
    node = _escaped(on)
    lines = []
    for holding in held:
        if holding.assignment is None:
            continue
        sums: dict[str, int] = {}
        for card, figures in spec.metrics.pod(holding.assignment):
            told = _escaped(card)
            sums[told] = sums.get(told, 0) + figures[at]
        pod = _pod_labels(one, holding.key)
        lines += [f'{one.name}{{{label}="{card}",{where}="{node}",{pod}}} {figure}\n' for card, figure in sums.items()]
    return "".join(lines)


def _pod_labels(one: Series, key: str) -> str:
    """Return the labels for the pod *key*, namespace/name."""
    values = (key,) if len(one.pod_labels) == 1 else key.split("/", 1)
    return ",".join(f'{label}="{_escaped(value)}"' for label, value in zip(one.pod_labels, values, strict=True))


def _escaped(text: str) -> str:
    """Return *text* as a label value: one line of printable characters, with limited length."""
    return escaped(text if len(text) <= _LABEL_MAX else f"{text[:_LABEL_MAX]}…").translate(_ESCAPES)
