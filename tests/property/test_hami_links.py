"""Cards of HAMi that are chosen by their links, and what a pod can make that cost."""

import json
from itertools import combinations
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from core.dialects.hami.dialect import DIALECT
from core.model import Container, Node, NodeName, Pod, PodUid
from core.settings import Policy, Tables
from core.sharing.order import linked
from tests.property.test_hostile_cpu import MOST_S, cpu_s

PORT: Any = DIALECT.port
TABLES = Tables()
SLOTS = 16


def cards(count, scores):
    """*count* idle cards of 40 GiB; scores: of the link from one card to another, by their numbers."""
    register = [
        {"id": f"g{at}", "index": at, "count": 10, "devmem": 40960, "devcore": 100, "type": "NVIDIA A100"}
        for at in range(count)
    ]
    links = [
        {"uuid": f"g{one}", "score": {f"g{other}": score for (of, other), score in scores.items() if of == one}}
        for one in range(count)
    ]
    notes = {"hami.io/node-nvidia-register": json.dumps([{**one, "health": True} for one in register])}
    notes["hami.io/node-nvidia-score"] = json.dumps(links)
    node = Node(name=NodeName("n"), annotations=notes, allocatable={"nvidia.com/gpu": str(10 * count)})
    return PORT.offer(node, TABLES).cards


def first_best(scores, slots, number):
    """By looking at all: the first combination whose links come to most."""
    found = list(combinations(slots, number))
    sums = [sum(scores.get(pair, 0) for pair in combinations(one, 2)) for one in found]
    return list(found[sums.index(max(sums))]), max(sums)


@st.composite
def linked_cards(draw):
    count = draw(st.integers(2, 7))
    pairs = [(one, other) for one in range(count) for other in range(count) if one != other]
    scores = draw(st.dictionaries(st.sampled_from(pairs), st.integers(0, 4)))
    slots = draw(st.permutations(range(count)))
    return count, scores, slots, draw(st.integers(2, count))


@given(linked_cards())
def test_the_first_of_the_best_linked_cards_are_chosen(found):
    count, scores, slots, number = found
    assert tuple(linked(cards(count, scores), slots, number)) == first_best(scores, slots, number)


def test_a_pod_of_many_containers_that_asks_for_links_is_judged_within_5_ms():
    there = cards(SLOTS, {(a, b): (7 * a + 13 * b) % 100 for a in range(SLOTS) for b in range(SLOTS) if a != b})
    small = {"nvidia.com/gpu": "4", "nvidia.com/gpumem": "1"}
    # One that cannot be beside the others comes last, when all of them have been given their cards.
    large = {"nvidia.com/gpu": str(SLOTS), "nvidia.com/gpumem": "40960"}
    asked = [Container(f"c{at}", limits=small) for at in range(20)]
    pod = Pod(
        uid=PodUid("u"),
        namespace="d",
        name="p",
        containers=(*asked, Container("z", limits=large)),
        annotations={"hami.io/gpu-scheduler-policy": "topology-aware"},
    )
    request = PORT.request(pod, TABLES)
    assert PORT.place(there, request._replace(asks=request.asks[:1]), Policy.BINPACK) is not None
    assert PORT.place(there, request, Policy.BINPACK) is None
    assert cpu_s(lambda: PORT.place(there, request, Policy.BINPACK)) < MOST_S
