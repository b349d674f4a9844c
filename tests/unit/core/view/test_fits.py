"""How many pods fit is what the placing core places, and one more is what it refuses."""

from typing import Any

import pytest

from core.catalog import standard_catalog
from core.ledger import Ledger
from core.model import Node, NodeName, PeerTerm, PeerTerms, Pod, PodUid, Requirement
from core.placing.decide import Shape, node_policy, shape_of, try_decide
from core.port.cards import CardWish
from core.settings import Settings, Tables
from core.view import fits
from core.view.fits import Fit, FitType, Place, fits_pod, fits_wish
from core.wire.policies import ResourceQuota
from tests.support.worlds.world import node, pod


def place(*nodes: Node, quotas: Any = (), pods: Any = (), **settings: Any) -> Place:
    ledger = Ledger(standard_catalog(), Tables(), Settings(**settings))
    for one in nodes:
        ledger.set_node(one)
    for one in pods:
        ledger.count(one)
    return Place(ledger, "default", quotas, pods)


def only(found: fits.Fits) -> Fit:
    (way,) = found.ways
    return way


def quota(**hard: int) -> ResourceQuota:
    names = {"memory": "limits.volcano.sh/vgpu-memory", "number": "requests.volcano.sh/vgpu-number"}
    return ResourceQuota("default", "q", {names[name]: most for name, most in hard.items()}, {names["number"]: 1})


def test_pods_are_counted_by_type_and_what_stops_the_next_is_said():
    where = place(node("a", cards=2, memory=10_000), node("b", memory=4_000))
    found = only(fits_wish(where, CardWish(1, 4_000)))
    assert (found.protocol, found.pods, found.is_all) == ("vgpu", 5, True)
    assert found.limits == {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "4000"}
    assert found.types == (FitType(type="T4", pods=5, nodes=2),)
    assert (found.largest_memory_mib, found.largest_cards) == (10_000, 2)
    assert found.code == "CS501"
    assert found.stops.startswith("0/2 nodes are available: 2 too little free memory on every card.")
    assert found.nearest == "a a-0: 2000 of 4000 MiB free"
    assert found.change == "Ask for at most 2000 MiB of memory, or wait until enough of a card is free"


def test_counting_changes_nothing():
    where = place(node("a"))
    assert fits_wish(where, CardWish(1, 1000)) == fits_wish(where, CardWish(1, 1000))
    assert where.ledger.states[NodeName("a")].used == {}


def test_where_no_pod_fits_the_largest_that_would_is_told():
    found = only(fits_wish(place(node("a", cards=3, memory=8_000)), CardWish(2, 9_000)))
    assert (found.pods, found.types) == (0, ())
    assert (found.largest_memory_mib, found.largest_cards) == (8_000, 0)
    assert found.code == "CS502"


def test_what_pods_hold_is_not_there():
    held = pod("held", node_name="a", annotations={"volcano.sh/vgpu-ids-new": "a-0,NVIDIA,7000,0:"})
    found = only(fits_wish(place(node("a"), pods=[held]), CardWish(1, 2_000)))
    assert (found.pods, found.largest_memory_mib) == (1, 3_000)


def test_a_type_that_is_not_there_is_told():
    found = only(fits_wish(place(node("a")), CardWish(1, 1000, types="H100")))
    assert found.annotations == {"nvidia.com/use-gputype": "H100"}
    assert (found.pods, found.largest_memory_mib, found.largest_cards) == (0, 0, 0)
    assert "no card of a type that the pod accepts" in found.stops


@pytest.mark.parametrize(
    ("hard", "pods", "code", "says"),
    [
        ({"memory": 2_500}, 2, "CS532", "1000 volcano.sh/vgpu-memory requested, 500 of 2500 left"),
        ({"number": 4}, 3, "", "ResourceQuota q of namespace default has 0 of 4 requests.volcano.sh/vgpu-number left"),
    ],
)
def test_a_quota_of_the_namespace_stops_the_next(hard: dict[str, int], pods: int, code: str, says: str):
    found = only(fits_wish(place(node("a"), quotas=[quota(**hard)]), CardWish(1, 1000)))
    assert (found.pods, found.code) == (pods, code)
    assert says in found.stops


def test_a_quota_counts_what_the_namespace_holds():
    held = pod("held", node_name="a", annotations={"volcano.sh/vgpu-ids-new": "a-0,NVIDIA,1000,0:"})
    found = only(fits_wish(place(node("a"), quotas=[quota(memory=2_500)], pods=[held]), CardWish(1, 1000)))
    assert (found.pods, found.largest_memory_mib) == (1, 1_500)


@pytest.mark.interpreted(reason="how many are counted at most is another number here")
def test_counting_stops_after_so_many_and_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fits, "COUNT_MAX", 3)
    found = only(fits_wish(place(node("a")), CardWish(1, 1000)))
    assert (found.pods, found.is_all, found.stops) == (3, False, "")
    assert only(fits_wish(place(node("a")), CardWish(1, 3000))).is_all


def test_without_cards_there_is_no_way():
    assert fits_wish(place(node("a", annotations={})), CardWish(1, 1000)).ways == ()


def test_a_pod_that_may_not_ask_so_is_told_why():
    found = only(fits_pod(place(node("a")), pod("p", limits={"volcano.sh/vgpu-number": "x"})))
    assert (found.pods, found.code) == (0, "CS540")


def test_pods_of_a_manifest_that_keep_apart_are_placed_one_after_the_other():
    same = (Requirement(key="app", operator="In", values=("x",)),)
    term = PeerTerm("kubernetes.io/hostname", same, ("default",))
    apart = pod("p", labels={"app": "x"}, peers=PeerTerms(anti_affinity=(term,)))
    nodes = [node(name, labels={"kubernetes.io/hostname": name}) for name in "abc"]
    assert only(fits_pod(place(*nodes), apart)).pods == 3


def placed_by_hand(where: Place, asked: Pod) -> int:
    """How many pods like *asked* the placing core places, looking at every node each time."""
    ledger = where.ledger.fork()
    shape = shape_of(asked, ledger)
    assert isinstance(shape, Shape)
    for count in range(1000):
        one = asked._replace(uid=PodUid(f"p{count}"))
        found = try_decide(ledger, node_policy(ledger.settings), one, shape)
        if found is None:
            return count
        ledger.reserve(found)
    raise AssertionError("it never ends")


def test_one_card_of_each_of_many_is_what_the_core_places():
    where = place(node("a", cards=3, memory=7_000), node("b", cards=2, memory=12_000, slots=2))
    asked = pod("p", memory=3_000, number=2)
    assert only(fits_pod(where, asked)).pods == placed_by_hand(where, asked)
