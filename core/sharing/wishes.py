"""The annotations by which a pod orders cards and nodes under HAMi's scheduler, whatever the vendor of the cards.

Source: protocol reference, hami 1.4, 4.4 and 6, with HN-12.
"""

from collections.abc import Mapping
from typing import Final

from core.errors import InvalidRequestError, quoted
from core.port.refusals import Violation
from core.sharing.order import CARD_WORDS, NODE_WORDS
from core.sharing.request import ANY_ORDER, EVEN, Order, Weights, check_words
from core.units import MAX_INT32, TRUE, parse_count

NUMA_BIND: Final = "nvidia.com/numa-bind"
NODE_POLICY: Final = "hami.io/node-scheduler-policy"
CARD_POLICY: Final = "hami.io/gpu-scheduler-policy"
WEIGHTS: Final = "hami.io/device-scoring-weights"
KEYS: Final[frozenset[str]] = frozenset({NUMA_BIND, NODE_POLICY, CARD_POLICY, WEIGHTS})
_WEIGHT_REMEDY: Final = "write 'slot=1,core=1,memory=1' with whole numbers, not all of them 0"


def order_of(annotations: Mapping[str, str], violations: list[Violation]) -> Order:
    """Return how a pod with *annotations* wants cards and nodes compared; adds CS104 and CS105 to *violations*."""
    if annotations.keys().isdisjoint(KEYS):
        return ANY_ORDER
    policies = words(annotations, CARD_POLICY)
    nodes = annotations.get(NODE_POLICY, "").strip()
    check_words(CARD_POLICY, policies, CARD_WORDS, violations)
    check_words(NODE_POLICY, (nodes,) if nodes else (), NODE_WORDS, violations)
    found = Order(policies, _weights(annotations, violations), annotations.get(NUMA_BIND, "") in TRUE, nodes)
    return ANY_ORDER if found == ANY_ORDER else found


def words(annotations: Mapping[str, str], key: str) -> tuple[str, ...]:
    """Return the items of the list of words in *key*."""
    return tuple([word for item in annotations.get(key, "").split(",") if (word := item.strip())])


def _weights(annotations: Mapping[str, str], violations: list[Violation]) -> Weights:
    text = annotations.get(WEIGHTS)
    if text is None:
        return EVEN
    pairs = [[part.strip() for part in item.split("=", 1)] for item in text[:256].split(",")]
    try:
        found = {name: parse_count(figure, "", MAX_INT32) for name, figure in pairs}
    except (InvalidRequestError, ValueError):
        found = {}
    if len(pairs) != len(found) or found.keys() != set(Weights._fields) or not any(found.values()):
        violations.append(
            Violation(code="CS105", field=f"annotation {WEIGHTS}", found=quoted(text), remedy=_WEIGHT_REMEDY)
        )
        return EVEN
    return Weights(**found)
