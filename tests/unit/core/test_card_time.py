from core.card_time import CardTimePart, Payee, shares_of
from core.catalog import standard_catalog
from core.ledger import Ledger
from core.model import NodeName
from core.settings import DialectName, Settings
from tests.support.devices.cards import A100, TABLES, bound, record, vgpu_node
from tests.support.worlds.world import World, node, pod

MANY_CORES = {
    "volcano.sh/vgpu-number": "1",
    "volcano.sh/vgpu-memory": "1000",
    "volcano.sh/vgpu-cores": "30",
}
VGPU, N1 = DialectName("vgpu"), NodeName("n1")


def test_a_pod_is_charged_the_larger_of_memory_and_cores_and_the_rest_is_idle():
    world = World(node("n1", cards=1))  # of 10000 MiB
    world.adds(pod("a", memory=4000), pod("b", limits=MANY_CORES))
    world.placed()
    assert shares_of(world.ledger, N1, by_owner=False) == {
        Payee(VGPU, CardTimePart.HELD, "default", type="T4"): 700_000,
        Payee(VGPU, CardTimePart.IDLE, type="T4"): 300_000,
    }


def test_queues_are_told_apart():
    world = World(node("n1", cards=1))
    world.adds(pod("a", memory=4000), pod("b", memory=2000))
    world.placed()
    assert shares_of(world.ledger, N1, by_owner=False, queue_of=lambda one: f"queue-of-{one.name}") == {
        Payee(VGPU, CardTimePart.HELD, "default", type="T4", queue="queue-of-a"): 400_000,
        Payee(VGPU, CardTimePart.HELD, "default", type="T4", queue="queue-of-b"): 200_000,
        Payee(VGPU, CardTimePart.IDLE, type="T4"): 400_000,
    }


def test_what_is_left_where_nothing_can_come_is_stranded():
    world = World(node("n1", cards=2, unschedulable=True))
    assert shares_of(world.ledger, N1, by_owner=False) == {Payee(VGPU, CardTimePart.STRANDED, type="T4"): 2_000_000}


def test_a_slice_is_a_part_of_its_card():
    ledger = Ledger(standard_catalog(), TABLES, Settings())
    mig = vgpu_node(record("GPU-0", memory=40960, model=A100, mode="mig"))
    ledger.set_node(mig)
    ledger.count(bound("GPU-0[group2-0],NVIDIA,10240,0:"))
    (holding,) = ledger.holders(mig.name).values()
    (share,) = ledger.catalog.dialects[VGPU].describe(holding.assignment, ledger.states[mig.name].cards(VGPU))
    assert (share.card, share.whole, share.amount) == ("GPU-0[group2-0]", "GPU-0", 10240)
    model = A100.removeprefix("NVIDIA-")
    assert shares_of(ledger, mig.name, by_owner=False) == {
        Payee(VGPU, CardTimePart.HELD, "default", type=model): 250_000,
        Payee(VGPU, CardTimePart.IDLE, type=model): 750_000,
    }
