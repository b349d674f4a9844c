import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import names
from core.placing.pack import (
    NOTHING_KNOWN,
    STEPS,
    CardsTaken,
    HoleValues,
    Mix,
    Request,
    Table,
    ground,
    losses,
    score,
    steps_free,
    taken,
)
from core.port.cards import Hole
from core.settings import DialectName, Policy
from tests.bench.packing import Cluster, Machine, Task

TOY = DialectName("toy")
NO_LOSS = (0.0,) * (STEPS + 1)


def asked(steps, cards=1, cpu=0, memory=0):
    """A pod that asks so much of each card, of each of so many; () without."""
    return (steps, cards), cpu, memory


def learnt(*pods, have=None, cards=1):
    mix = Mix()
    for (steps, many), cpu, memory in pods:
        request = (TOY, (steps, many)) if many else None
        mix.add(request, ((names.CPU, cpu), (names.MEMORY, memory)))
    takes: dict[Request, CardsTaken] = {
        (TOY, (steps, many)): CardsTaken(steps, steps * many) for (steps, many), _, _ in pods if many
    }
    return mix.table(takes, have or {}, cards)


def on(table, *steps):
    """A node with a card of which so many steps are free, for each."""
    return ground(HoleValues({(TOY, "card"): table}), TOY, [Hole("card", one, STEPS) for one in steps]).lost


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
    table = Table(NO_LOSS, ((names.CPU, 100.0),))
    assert on(table, 100, 100).stranded({names.CPU: 15_000}) == 50.0
    assert on(table, 100, 100).stranded({names.CPU: 20_000}) == 0.0
    assert on(table, 0, 0).stranded({names.CPU: 0}) == 0.0
    assert on(table, 0, 0).stranded({names.CPU: -1}) == 0.0, "more is used than there is, and no card is left"
    assert on(table, 100).stranded({names.CPU: -1}) == 100.0
    assert on(table, 100).stranded({}) == 0.0, "a resource that the node does not tell of does not run out"


def test_the_scarcest_resource_decides_what_is_stranded():
    table = Table(NO_LOSS, ((names.CPU, 100.0), (names.MEMORY, 10.0)))
    assert on(table, 100).stranded({names.CPU: 9_000, names.MEMORY: 300}) == 70.0


def test_a_share_goes_where_it_leaves_no_hole():
    table = learnt(*[asked(30), asked(70)] * 10)
    # Where 80 steps are free, 70 are waited for.
    assert score(on(table, 30), {}, on(table, 0), {}) == pytest.approx(0.0, abs=1e-6)
    assert score(on(table, 80), {}, on(table, 50), {}) == pytest.approx(-10.0, abs=1e-6)


@given(st.lists(st.integers(0, STEPS), min_size=1, max_size=8), st.data())
def test_a_node_of_which_one_card_changes_is_measured_as_if_anew(steps, data):
    table = learnt(*[asked(30, cpu=3000, memory=10), asked(70, cpu=100)] * 10, have={names.CPU: 100})
    at = data.draw(st.integers(0, len(steps) - 1))
    new = data.draw(st.integers(0, steps[at]))
    changed = on(table, *steps).with_hole(table, steps[at], new)
    anew = on(table, *(new if number == at else one for number, one in enumerate(steps)))
    left = {names.CPU: data.draw(st.integers(0, 100_000)), names.MEMORY: 1000}
    assert changed.holes == pytest.approx(anew.holes, abs=1e-9)
    assert changed.free == anew.free
    assert changed.kept == pytest.approx(anew.kept, abs=1e-9)
    assert changed.stranded(left) == pytest.approx(anew.stranded(left), abs=1e-6)


def test_tables_are_made_of_those_with_cards_and_cpu_counts_by_what_goes_with_a_step():
    table = learnt(asked(50, cpu=1000), asked(100, cards=2, cpu=4000), asked(0, cards=0, cpu=9000))
    assert dict(table.per_step) == {names.CPU: 5000 / 250}
    assert table.loss == losses({50: 0.5, 100: 0.5})


def test_who_cannot_have_cards_of_a_size_says_nothing_of_them():
    mix = Mix()
    mix.add((TOY, "one"), ((names.CPU, 10),))
    mix.add((TOY, "other"), ((names.CPU, 500),))
    table = mix.table({(TOY, "one"): CardsTaken(20, 20)}, {}, 1)
    assert table == Table(losses({20: 1.0}), ((names.CPU, 0.5),))


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
    mix = Mix()
    assert [at for at in range(1, 3001) if mix.add((TOY, 10), ())] == [50, 100, 200, 400, 800, 1000, 2000, 3000]


def test_pods_of_long_ago_count_less():
    mix = Mix()
    for _ in range(1000):
        mix.add((TOY, 60), ())
    for _ in range(40_000):
        mix.add((TOY, 30), ())
    found = mix.table({(TOY, 60): CardsTaken(60, 60), (TOY, 30): CardsTaken(30, 30)}, {}, 1)
    assert found.is_like(learnt(*[asked(30)] * 998, asked(60), asked(60)))


def test_of_very_many_different_requests_those_that_count_least_are_forgotten():
    mix = Mix()
    for number in range(20_000):
        mix.add((TOY, number), ())
        mix.add((TOY, "often"), ())
    assert len(mix.requests) <= 4096
    assert (TOY, "often") in mix.requests


def test_tables_that_hardly_moved_are_alike():
    some = learnt(*[asked(30), asked(70)] * 100)
    assert some.is_like(learnt(*[asked(30), asked(70)] * 100, asked(30)))
    assert not some.is_like(learnt(*[asked(30)] * 100, *[asked(60)] * 100))
    assert not some.is_like(learnt(*[asked(30, cpu=5), asked(70)] * 100))
    assert not HoleValues({(TOY, "a"): some}).is_like(HoleValues({}))


@pytest.mark.parametrize(
    ("hole", "steps"),
    [
        (Hole("", 163, 16_384), 0),
        (Hole("", 164, 16_384), 1),
        (Hole("", 16_383, 16_384), 99),
        (Hole("", 16_384, 16_384), 100),
        (Hole("", -5, 16_384), 0),
        (Hole("", 16_384, 16_384, spare_pct=30), 30),
        (Hole("", 16_384, 16_384, spare_pct=-10), 0),
        (Hole("", 0, 0), 0),
    ],
)
def test_of_a_card_only_whole_steps_are_free_of_whatever_is_scarcest(hole, steps):
    assert steps_free(hole) == steps


def test_a_share_takes_every_step_that_it_touches_of_cards_of_one_size():
    before = [Hole("a", 1000, 1000), Hole("a", 1000, 1000), Hole("b", 500, 500)]
    after = [Hole("a", 989, 1000), Hole("a", 700, 1000, spare_pct=60), Hole("b", 0, 500)]
    assert taken("a", before, after) == CardsTaken(40, 42)
    assert taken("a", before, before) is None
    assert taken("a", [Hole("a", 1, 1, cards=8)], [Hole("a", 1, 1, cards=6)]) == CardsTaken(100, 200)


def sold(policy, seed):
    """Milli that are sold at the end of a small cluster that is offered half as much again as it has."""
    chance = random.Random(seed)
    cluster = Cluster([Machine(f"n{at:02d}", 96_000, 700_000, 8, "A100") for at in range(12)], policy)
    for _ in range(400):
        cards, milli = chance.choice(((1, 300), (1, 400), (1, 500), (1, 700), (1, 1000), (4, 1000), (0, 0)))
        cpu = chance.choice((2000, 6000, 12_000)) * max(cards, 1)
        cluster.offer(Task(cpu, 1000, cards, milli, frozenset()))
    return cluster.sold


def test_more_is_sold_than_where_the_fullest_card_is_taken():
    packed, filled = (sum(sold(policy, seed) for seed in range(4)) for policy in (Policy.PACK, Policy.BINPACK))
    assert packed > 1.01 * filled
