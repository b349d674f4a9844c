"""As many pods as `fits` counts are placed, one after the other, and one more is not."""

from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from core.catalog import Asked
from core.ledger import Ledger
from core.model import Container, Pod, PodUid
from core.placing.decide import Shape, node_policy, scan, shape_of, try_decide
from core.port.cards import CardWish, Wording
from core.settings import Policy, Settings
from core.view.fits import Fit, Place, fits_pod, fits_wish
from tests.support.devices.selling import CATALOG, KINDS, TABLES, cluster, shares, wishing


def place_of(chance: Random) -> tuple[Place, list[Pod]]:
    """A cluster with pods on it, and pods that ask of its cards."""
    nodes, _, best = cluster(chance, (*KINDS, shares))
    ledger = Ledger(CATALOG, TABLES, Settings(policy=chance.choice((Policy.BINPACK, Policy.SPREAD, Policy.PACK))))
    for one in nodes:
        ledger.set_node(replace(one, allocatable={**one.allocatable, "pods": chance.choice(("3", "40"))}))
    asking = [wishing(chance, best)[0]._replace(uid=PodUid(f"w{at}"), name=f"w{at}") for at in range(6)] if best else []
    for holder in asking[1:]:
        shape = shape_of(holder, ledger)
        found = try_decide(ledger, node_policy(ledger.settings), holder, shape) if isinstance(shape, Shape) else None
        if found is not None:
            ledger.reserve(found)
    return Place(ledger, "default"), asking[:1]


def written(wording: Wording) -> Pod:
    limits = dict(wording.limits)
    return Pod(
        uid=PodUid("p"),
        namespace="default",
        name="p",
        scheduler_name="cardshare",
        annotations=wording.annotations,
        containers=(Container(name="c", limits=limits, requests=limits),),
    )


def is_taken(where: Place, pod: Pod) -> bool:
    shape = shape_of(pod, where.ledger)
    return isinstance(shape, Shape) and scan(where.ledger, node_policy(where.ledger.settings), shape) is not None


def check_count(where: Place, pod: Pod, found: Fit) -> None:
    ledger, policy = where.ledger.fork(), node_policy(where.ledger.settings)
    shape = shape_of(pod, ledger)
    assert sum(one.pods for one in found.types) == found.pods
    if not isinstance(shape, Shape):
        assert found.pods == 0
        return
    for at in range(found.pods):
        placement = try_decide(ledger, policy, pod._replace(uid=PodUid(f"p{at}")), shape)
        assert placement is not None, f"{at} of {found.pods}"
        ledger.reserve(placement)
    assert try_decide(ledger, policy, pod._replace(uid=PodUid("more")), shape) is None
    assert found.stops


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**40))
def test_a_manifests_pods_are_as_many_as_are_placed(seed: int):
    where, asked = place_of(Random(seed))
    for pod in asked:
        (found,) = fits_pod(where, pod).ways
        check_count(where, pod, found)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**40))
def test_pods_of_a_wish_are_as_many_as_are_placed_and_the_largest_is_the_largest(seed: int):
    chance = Random(seed)
    where, _ = place_of(chance)
    memory_mib = chance.choice((None, 500, 4000, 9000, 30_000))
    wish = CardWish(chance.choice((1, 1, 2, 4)), memory_mib, chance.choice((None, None, 30, 100)))
    worded = where.ledger.catalog.dialects.values()
    for found in fits_wish(where, wish).ways:
        pod = written(Wording(found.limits, found.annotations))
        check_count(where, pod, found)
        request = where.ledger.catalog.request_of(pod, TABLES, where.ledger.settings)
        assert not isinstance(request, Asked) or request.dialect == found.protocol

        def asking(wish: CardWish, found: Fit = found) -> bool:
            ways = [one for of in worded for one in of.worded(wish, TABLES) if one.limits.keys() == found.limits.keys()]
            return any(is_taken(where, written(one)) for one in ways)

        if (most := found.largest_memory_mib) is not None:
            assert not most or asking(wish._replace(memory_mib=most))
            assert not asking(wish._replace(memory_mib=most + 1))
        assert found.largest_cards is not None
        assert not found.largest_cards or asking(wish._replace(cards=found.largest_cards))
        assert not asking(wish._replace(cards=found.largest_cards + 1))
        assert (found.pods > 0) == (found.largest_cards >= wish.cards)
