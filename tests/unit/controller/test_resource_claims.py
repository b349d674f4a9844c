"""Cards that pods use through resource claims: what takes nothing new meanwhile, who is told why, and what opens."""

import pytest

from controller.actions import Preempt
from core.audit import Fault, faults_on
from core.catalog import standard_catalog
from core.claims import Device, Pool, ResourceClaim, Use
from core.constraints.resource_claims import MAKERS, is_of_cards, maker_of
from core.errors import InvalidRequestError
from core.explaining import explain
from core.model import NodeName
from core.port.refusals import Reason
from core.settings import DialectName, Policy
from core.waiting import Cause
from core.wire.resource_claims import (
    decode_resource_claim,
    decode_resource_slice,
    resource_claim_from_object,
    resource_slice_from_object,
)
from tests.support.worlds.world import World, node, pod

NVIDIA = "gpu.nvidia.com"
VGPU = DialectName("vgpu")


def claim(name="train", *, device="gpu-0", driver=NVIDIA, pool="n1", **fields):
    """Claim team-a/NAME, for which a device is allocated."""
    result = {"request": "r", "driver": driver, "pool": pool, "device": device, **fields}
    return resource_claim_from_object(
        {
            "metadata": {"namespace": "team-a", "name": name},
            "status": {"allocation": {"devices": {"results": [result]}}},
        }
    )


def devices(*uuids, driver=NVIDIA, node="n1"):
    """A slice with devices gpu-0, gpu-1 and so on, of these ids."""
    return resource_slice_from_object(
        {
            "metadata": {"name": f"{node}-{driver}"},
            "spec": {
                "driver": driver,
                "nodeName": node,
                "pool": {"name": node, "generation": 1},
                "devices": [
                    {"name": f"gpu-{at}", "attributes": {"uuid": {"string": uuid}}} for at, uuid in enumerate(uuids)
                ],
            },
        }
    )


def cards(world, name="n1"):
    return world.ledger.states[NodeName(name)].offers[VGPU]


def told(world, name, *, in_full=False):
    """Why a pod waits: with its cause, or in full."""
    refused = explain.refused(world.ledger, world.entry(name).shape, Policy.BINPACK)
    return explain.report(refused) if in_full else explain.wait(refused)


def test_a_card_that_is_claimed_takes_nothing_new_and_the_others_of_its_node_serve():
    world = World(node("n1", cards=2))
    world.scheduler.uses.slices.put(devices("n1-0", "n1-1"))
    world.scheduler.uses.claims.put(claim(device="gpu-1"))
    world.adds(pod("a"), pod("b"), pod("c", memory=9000))
    assert world.placed().keys() == {"a", "b"}
    assert {card.fixed.uuid: card.used_slots for card in cards(world)} == {"n1-0": 2, "n1-1": 0}
    assert told(world, "c").cause is Cause.UNSCHEDULABLE
    report = told(world, "c", in_full=True)
    assert "n1-1: it is in use through resource claim team-a/train" in report
    # Once the claim is given back, who waits gets the card.
    world.scheduler.uses.claims.drop(claim(device="gpu-1"))
    world.passes(1.0)
    assert world.placed().keys() == {"a", "b", "c"}


def test_a_pod_that_only_claimed_cards_could_take_is_told_whose_they_are():
    world = World(node("n1"))
    world.scheduler.uses.slices.put(devices("n1-0"))
    world.scheduler.uses.claims.put(claim())
    world.adds(pod("p"))
    assert world.placed() == {}
    text = told(world, "p").text
    assert "every card that fits is in use through a resource claim" in text
    assert "team-a/train" in text
    assert "a resource claim frees a card of n1 back" in text


def test_a_device_that_is_no_known_card_closes_all_of_its_maker_on_its_node_and_no_others():
    world = World(node("n1"), node("n2"))
    world.scheduler.uses.claims.put(claim(device="gpu-7"))
    assert "team-a/train" in world.ledger.states[NodeName("n1")].closed[VGPU]
    assert not world.ledger.states[NodeName("n2")].closed
    world.adds(pod("a", memory=10_000), pod("b", memory=10_000))
    assert set(world.placed().values()) == {"n2"}
    (waiting,) = {"a", "b"} - world.placed().keys()
    assert "closed to new shares" in told(world, waiting).text
    report = told(world, waiting, in_full=True)
    assert "n1: closed to new shares (resource claim team-a/train has device 'gpu-7' of 'gpu.nvidia.com'" in report
    world.scheduler.uses.claims.drop(claim())
    world.passes(1.0)
    assert world.placed().keys() == {"a", "b"}


def test_a_card_that_the_device_plugin_does_not_have_is_none_of_its_cards():
    world = World(node("n1"))
    world.scheduler.uses.claims.put(claim(device="gpu-1"))
    assert world.ledger.states[NodeName("n1")].closed
    # Its slice comes, and says which card it is.
    world.scheduler.uses.slices.put(devices("n1-0", "GPU-1"))
    assert not world.ledger.states[NodeName("n1")].closed
    # A part of a card may be of any.
    world.scheduler.uses.slices.put(devices("n1-0", "MIG-1"))
    assert world.ledger.states[NodeName("n1")].closed


def test_pods_that_are_on_a_claimed_card_stay_and_the_audit_names_both():
    world = World(node("n1"))
    world.scheduler.uses.slices.put(devices("n1-0"))
    world.adds(pod("a"))
    assert world.placed().keys() == {"a"}
    assert not list(faults_on(world.ledger, NodeName("n1")))
    world.scheduler.uses.claims.put(claim())
    assert cards(world)[0].used_slots == 1
    (finding,) = faults_on(world.ledger, NodeName("n1"))
    assert finding.fault is Fault.SOLD_TWICE
    assert "card n1-0" in finding.text
    assert "resource claim team-a/train" in finding.text
    assert "default/a" in finding.text
    assert "default/a" not in finding.event
    world.gone("a")
    assert not list(faults_on(world.ledger, NodeName("n1")))


@pytest.mark.parametrize(
    "other",
    [
        claim(adminAccess=True),
        claim(driver="net.example.com"),
        claim(driver="compute-domain.nvidia.com", device="channel-0"),
        claim(driver="npu.huawei.com"),
        claim(pool="n2"),
        ResourceClaim("team-a/train"),
    ],
    ids=["admin", "network", "channel", "other maker", "other node", "not allocated"],
)
def test_what_is_no_use_of_a_card_closes_nothing(other):
    world = World(node("n1"))
    cursor = world.ledger.cursor
    world.scheduler.uses.claims.put(other)
    state = world.ledger.states[NodeName("n1")]
    assert not state.closed
    assert cards(world)[0].fixed.fault is None
    if other.devices and other.devices[0][0].driver != "npu.huawei.com":
        assert world.ledger.cursor == cursor


def test_a_claim_without_news_changes_no_node():
    world = World(node("n1"))
    world.scheduler.uses.slices.put(devices("n1-0"))
    world.scheduler.uses.claims.put(claim())
    cursor = world.ledger.cursor
    world.scheduler.uses.claims.put(claim())
    world.scheduler.uses.slices.put(devices("n1-0"))
    for steps in (
        world.scheduler.uses.claims.replaced([claim()]),
        world.scheduler.uses.slices.replaced([devices("n1-0")]),
    ):
        for _ in steps:
            pass
    assert world.ledger.cursor == cursor


def test_a_card_that_is_claimed_stays_so_while_its_node_is_read_anew_or_away():
    world = World(node("n1", cards=2))
    world.scheduler.uses.slices.put(devices("n1-0", "n1-1"))
    world.scheduler.uses.claims.put(claim())

    def faults():
        return [card.fixed.fault for card in cards(world)]

    assert faults() == [Reason.CLAIMED, None]
    world.configures()
    assert faults() == [Reason.CLAIMED, None]
    world.ledger.keep_out(NodeName("n1"), {VGPU: frozenset({"n1-1"})})
    assert faults() == [Reason.CLAIMED, Reason.UNSTEADY]
    world.scheduler.nodes.gone(NodeName("n1"))
    world.scheduler.nodes.changed(node("n1", cards=2, version="9"))
    assert faults() == [Reason.CLAIMED, None]
    fork = world.ledger.fork()
    fork.set_uses(NodeName("n1"), ())
    assert faults() == [Reason.CLAIMED, None]


@pytest.mark.parametrize(
    ("of_claims", "number", "victims"),
    [("a card", 1, ["low"]), ("a card", 2, []), ("any card", 1, []), ("none", 2, ["low"])],
)
def test_nobody_is_evicted_for_who_would_not_fit_beside_what_claims_hold(of_claims, number, victims):
    world = World(node("n1", cards=2), preemption=True, preemption_delay_s=0.0, preemption_wait_s=100.0)
    world.has_no_kind()
    world.scheduler.cluster.occupants.budgets_replaced(())
    world.adds(pod("low", memory=10_000))
    assert world.placed() == {"low": "n1"}
    world.scheduler.uses.slices.put(devices("n1-0", "n1-1"))
    if of_claims != "none":
        (free,) = [card.fixed.uuid for card in cards(world) if not card.used_slots]
        device = f"gpu-{free[-1]}" if of_claims == "a card" else "unknown"
        world.scheduler.uses.claims.put(claim(device=device))
    world.adds(pod("high", memory=10_000, number=number, priority=10))
    for _ in range(5):
        world.passes(1.0)
    asked = [target.name for one in world.actions(Preempt) for target, _ in one.victims]
    assert asked == victims


def test_cards_that_claims_close_are_counted():
    world = World(node("n1", cards=2), node("n2", cards=2))

    def counted():
        return {name: count for name, count in world.ledger.claimed_cards().items() if count}

    world.scheduler.uses.slices.put(devices("n1-0", "n1-1"))
    assert counted() == {}
    world.scheduler.uses.claims.put(claim())
    assert counted() == {VGPU: 1}
    # No slice tells which cards these are: it may be any.
    world.scheduler.uses.slices.drop(devices("n1-0", "n1-1"))
    assert counted() == {VGPU: 2}
    world.scheduler.nodes.gone(NodeName("n1"))
    assert counted() == {}
    world.scheduler.nodes.changed(node("n1", cards=2, version="9"))
    assert counted() == {VGPU: 2}
    world.scheduler.uses.claims.drop(claim())
    assert counted() == {}


def test_a_part_of_a_card_is_its_parents():
    found = resource_slice_from_object(
        {
            "metadata": {"name": "s"},
            "spec": {
                "driver": NVIDIA,
                "pool": {"name": "n1", "generation": 3},
                "devices": [
                    {
                        "name": "gpu-0-mig-1g5gb-19-0",
                        "nodeName": "n1",
                        "attributes": {
                            "uuid": {"string": "MIG-1"},
                            f"{NVIDIA}/parentUUID": {"string": "n1-0"},
                            "other.example.com/uuid": {"string": "n1-1"},
                            "cudaComputeCapability": {"version": "8.0.0"},
                        },
                    }
                ],
            },
        }
    )
    assert found.devices == {"gpu-0-mig-1g5gb-19-0": Device(NodeName("n1"), frozenset({"MIG-1", "n1-0"}))}
    assert (found.pool, found.generation) == (Pool(NVIDIA, "n1"), 3)
    world = World(node("n1", cards=2))
    world.scheduler.uses.slices.put(found)
    world.scheduler.uses.claims.put(claim(device="gpu-0-mig-1g5gb-19-0"))
    assert [card.fixed.fault for card in cards(world)] == [Reason.CLAIMED, None]


@pytest.mark.parametrize("decode", [decode_resource_claim, decode_resource_slice])
@pytest.mark.parametrize("text", [b"", b"[]", b'{"metadata":{}}', b'{"metadata":{"name":"a"},"spec":3,"status":[]}'])
def test_what_cannot_be_read_is_refused_and_nothing_else(decode, text):
    with pytest.raises(InvalidRequestError):
        decode(text)


def test_drivers_are_known_of_makers_whose_cards_are_served():
    assert set(MAKERS.values()) == {"nvidia", "ascend", "amd"} < {one.cards for one in standard_catalog().specs}
    assert maker_of("gpu.amd.com") == "amd"
    assert maker_of("gpu.nvidia.com") == "nvidia"
    assert maker_of("hami-core-gpu.project-hami.io") == "nvidia"
    assert maker_of("gpu.nvidia.com.example.com") is None
    assert is_of_cards(Use("a/b", "shares.example.com", "d", frozenset({"GPU-1"})))


def test_two_claims_of_one_card_close_it_until_both_are_given_back():
    world = World(node("n1"))
    world.scheduler.uses.slices.put(devices("n1-0"))
    one, other = claim("one"), claim("one")._replace(key="team-b/other")
    for some in (one, other):
        world.scheduler.uses.claims.put(some)
    world.scheduler.uses.claims.drop(one)
    card = cards(world)[0].fixed
    assert card.problem == "it is in use through resource claim team-b/other"
    world.scheduler.uses.claims.drop(other)
    assert cards(world)[0].fixed.fault is None
