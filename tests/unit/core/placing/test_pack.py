import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import names
from core.placing.pack import NOTHING_KNOWN, STEPS, Asked, Mix, Tables, losses, steps_asked, steps_free
from tests.bench.packing import Cluster, Machine, Task


def asked(steps, cards=1, cpu=0, memory=0):
    return Asked(steps, cards, ((names.CPU, cpu), (names.MEMORY, memory)))


def learnt(*pods, have=None, cards=1):
    mix = Mix((names.CPU, names.MEMORY))
    for one in pods:
        mix.add(one)
    return mix.tables(have or {}, cards)


@pytest.mark.parametrize(
    ("parts", "free", "lost"),
    [
        ({50: 1.0}, 100, 0.0),
        ({50: 1.0}, 99, 49.0),
        ({50: 1.0}, 49, 49.0),
        ({100: 1.0}, 99, 99.0),
        ({30: 0.5, 70: 0.5}, 100, 0.0),
        ({30: 0.5, 70: 0.5}, 60, 0.0),
        ({30: 0.5, 70: 0.5}, 50, 20.0),
        ({30: 0.5, 70: 0.5}, 80, 10.0),
    ],
)
def test_of_a_hole_what_no_pod_asks_is_lost(parts, free, lost):
    assert losses(parts)[free] == pytest.approx(lost, abs=1e-6)


def test_a_rare_size_is_not_counted_on():
    # One pod in a thousand asks 70: of the 60 that are looked ahead none may.
    assert losses({30: 0.999, 70: 0.001})[80] == pytest.approx(20.0, abs=0.6)


@given(st.dictionaries(st.integers(1, STEPS), st.integers(1, 50), min_size=1, max_size=6))
def test_nothing_is_lost_beyond_what_is_free_and_nothing_below_0(counts):
    total = sum(counts.values())
    found = losses({steps: count / total for steps, count in counts.items()})
    assert found[0] == 0.0
    assert all(-1e-9 <= lost <= free + 1e-9 for free, lost in enumerate(found))
    assert all(found[free] == pytest.approx(free) for free in range(min(counts)))


def test_cards_that_the_nodes_cpu_cannot_carry_are_lost():
    tables = Tables((0.0,) * (STEPS + 1), ((names.CPU, 100.0),))
    assert tables.lost([100, 100], {names.CPU: 15_000}) == 50.0
    assert tables.lost([100, 100], {names.CPU: 20_000}) == 0.0
    assert tables.lost([0, 0], {names.CPU: 0}) == 0.0


def test_the_scarcest_resource_decides_what_is_stranded():
    tables = Tables((0.0,) * (STEPS + 1), ((names.CPU, 100.0), (names.MEMORY, 10.0)))
    assert tables.lost([100], {names.CPU: 9_000, names.MEMORY: 300}) == 70.0


def test_a_share_goes_where_it_leaves_no_hole():
    tables = learnt(*[asked(30), asked(70)] * 10)
    # Where 80 steps are free, 70 are waited for.
    assert tables.score([30], {}, [0], {}) == pytest.approx(0.0, abs=1e-6)
    assert tables.score([80], {}, [50], {}) == pytest.approx(-10.0, abs=1e-6)


def test_tables_are_made_of_those_with_cards_and_cpu_counts_by_what_goes_with_a_step():
    tables = learnt(asked(50, cpu=1000), asked(100, cards=2, cpu=4000), asked(0, cards=0, cpu=9000))
    assert dict(tables.per_step) == {names.CPU: 5000 / 250}
    assert tables.loss == losses({50: 0.5, 100: 0.5})


def test_more_is_kept_beside_a_card_where_all_pods_together_ask_for_more_than_there_is():
    pods = asked(100, cpu=1000), asked(0, cards=0, cpu=1000)
    plenty = learnt(*pods, have={names.CPU: 8000}, cards=1)
    scarce = learnt(*pods, have={names.CPU: 1000}, cards=1)
    assert (plenty.scarce, scarce.scarce) == (0.0, 1.0)
    assert dict(scarce.per_step)[names.CPU] == pytest.approx(1.1 * dict(plenty.per_step)[names.CPU])


def test_nothing_is_known_before_a_pod_with_cards_was_seen():
    assert learnt(asked(0, cards=0, cpu=100)) == NOTHING_KNOWN


@given(st.permutations([asked(30, cpu=333), asked(30, cpu=100), asked(70, cpu=7), asked(100, cards=8, cpu=96_000)]))
def test_tables_do_not_depend_on_the_order_of_pods(pods):
    assert learnt(*pods) == learnt(*sorted(pods))


def test_tables_are_made_anew_often_at_first_and_then_after_every_thousandth_pod():
    mix = Mix((names.CPU,))
    assert [at for at in range(1, 3001) if mix.add(asked(10))] == [50, 100, 200, 400, 800, 1000, 2000, 3000]


def test_pods_of_long_ago_count_less():
    mix = Mix(())
    for _ in range(1000):
        mix.add(asked(60))
    for _ in range(40_000):
        mix.add(asked(30))
    assert mix.tables({}, 1).is_like(learnt(*[asked(30)] * 998, asked(60), asked(60)))


def test_tables_that_hardly_moved_are_alike():
    some = learnt(*[asked(30), asked(70)] * 100)
    assert some.is_like(learnt(*[asked(30), asked(70)] * 100, asked(30)))
    assert not some.is_like(learnt(*[asked(30)] * 100, *[asked(60)] * 100))
    assert not some.is_like(learnt(*[asked(30, cpu=5), asked(70)] * 100))


@pytest.mark.parametrize(
    ("amount", "total", "steps"), [(0, 10, 0), (1, 1000, 1), (10, 1000, 1), (11, 1000, 2), (2000, 1000, 100)]
)
def test_a_share_takes_every_step_that_it_touches(amount, total, steps):
    assert steps_asked(amount, total) == steps


def test_of_a_card_only_whole_steps_are_free():
    assert [steps_free(free, 16_384) for free in (0, 163, 164, 16_383, 16_384, -5)] == [0, 0, 1, 99, 100, 0]


def sold(policy, seed):
    """Milli that are sold at the end of a small cluster that is offered half as much again as it has."""
    chance = random.Random(seed)
    machines = [Machine(f"n{at:02d}", 96_000, 700_000, 8, "A100") for at in range(12)]
    cluster = Cluster(machines, policy)
    for _ in range(400):
        cards, milli = chance.choice(((1, 300), (1, 400), (1, 500), (1, 700), (1, 1000), (4, 1000), (0, 0)))
        cpu = chance.choice((2000, 6000, 12_000)) * max(cards, 1)
        cluster.offer(Task(cpu, 1000, cards, milli, frozenset()))
    return sum(sum(1000 - free for free in one.free) for one in machines)


def test_more_is_sold_than_where_the_fullest_card_is_taken():
    packed, filled = (sum(sold(policy, seed) for seed in range(4)) for policy in ("pack", "binpack"))
    assert packed > 1.01 * filled
