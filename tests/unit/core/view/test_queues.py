"""What queues hold is what the controller counts, and who waits is in `waiting`."""

from random import Random

import pytest

from cli.waiting import queues_table
from controller.grouping.budgets import Budgets, spender_of
from controller.grouping.groups import Groups
from core.catalog import standard_catalog
from core.constraints.quota import taken
from core.groups import GroupSpec, QueueSpec
from core.ledger import Ledger
from core.model import MEMBER_OF, GroupKey, GroupKind, Pod, group_of
from core.placing.queues import QueueTree
from core.settings import GroupSettings, Settings, Tables
from core.view.queues import QueueAmount, Queues, held_by_queue, queues_of
from core.view.waiting import Lines, waiting
from tests.support.worlds.world import MEMORY, NUMBER, node, pod

MEMBER = {MEMBER_OF: "g"}


def key(name: str) -> GroupKey:
    return GroupKey(GroupKind.VOLCANO, "default", name)


def on_a_node(name: str, card: int, **annotations: str) -> Pod:
    written = {"volcano.sh/vgpu-ids-new": f"n-{card},NVIDIA,1000,0:"}
    return pod(name, node_name="n", annotations={**written, **annotations})


def ledger_of(*pods: Pod) -> Ledger:
    ledger = Ledger(standard_catalog(), Tables(), Settings())
    ledger.set_node(node("n", cards=20))
    for one in pods:
        ledger.count(one)
    return ledger


def shown(specs: list[QueueSpec], bound: list[Pod], waits: list[Pod], lines: Lines) -> Queues:
    found = waiting(waits, lines, is_ours=lambda one: True)
    return queues_of(specs, ledger_of(*bound), bound, lines=lines, waiting=found)


def test_a_queue_says_what_it_holds_its_limits_and_who_waits():
    spec = QueueSpec(name="q", capability={NUMBER: 4, "cpu": 2500}, guarantee={NUMBER: 1}, deserved={NUMBER: 2})
    lines = Lines(groups={key("g"): GroupSpec(key=key("g"), queue="q")})
    bound = [on_a_node("a", 0, **MEMBER), on_a_node("b", 1)]
    waits = [pod("w", annotations=MEMBER), pod("v", annotations=MEMBER, priority=1)]
    found = shown([spec, QueueSpec(name="default")], bound, waits, lines)
    default, queue = found.queues
    assert queue.amounts == (
        QueueAmount(resource="cpu", holds=0, guarantee=None, deserved=None, capability=2500),
        QueueAmount(resource=MEMORY, holds=1000, guarantee=None, deserved=None, capability=None),
        QueueAmount(resource=NUMBER, holds=1, guarantee=1, deserved=2, capability=4),
    )
    assert (queue.waiting, queue.next, queue.reasons) == (2, "default/v", {"": 2})
    assert (default.waiting, default.next) == (0, None)
    assert [one.holds for one in default.amounts] == [1000, 1]
    lines_of_text = queues_table(found).splitlines()
    assert lines_of_text[3].split() == ["q", "-", "2", "default/v", "cpu", "0", "-", "-", "2500m"]
    assert lines_of_text[5].split() == [NUMBER, "1", "1", "2", "4"]


def test_what_may_not_be_read_is_unknown():
    lines = Lines(unread={GroupKind.VOLCANO}, is_complete=False)
    queue = QueueSpec(name="q", capability={NUMBER: 4})
    (found,) = (whole := shown([queue], [on_a_node("a", 0, **MEMBER)], [pod("w", annotations=MEMBER)], lines)).queues
    assert ([one.holds for one in found.amounts], found.waiting, found.next) == ([None], None, None)
    assert queues_table(whole).splitlines()[1].split() == [
        "q", "-", "unknown", "-", NUMBER, "unknown", "-", "-", "4",
    ]  # fmt: skip
    (found,) = shown([queue], [], [], lines).queues
    assert found.waiting == 0


def test_without_queues_that_is_said():
    assert queues_table(Queues(queues=())).startswith("there are no queues")


@pytest.mark.parametrize("seed", range(20))
def test_queues_hold_what_the_controller_counts(seed: int):
    chance = Random(seed)
    above = {"a": ("", "root"), "b": ("", "a"), "c": ("a", "b", "gone"), "default": ("", "c")}
    specs = [QueueSpec(name=name, parent=chance.choice(parents)) for name, parents in above.items()]
    named = [GroupSpec(key=key(f"g{at}"), queue=chance.choice(("a", "b", "c", "gone", ""))) for at in range(4)]
    pods = [on_a_node(f"p{at}", at, **chance.choice(({}, {MEMBER_OF: f"g{chance.randint(0, 5)}"}))) for at in range(12)]
    ledger = ledger_of(*pods)
    groups = Groups(lambda _: None, lambda _: None, GroupSettings())
    groups.queues_replaced(specs, served=True)
    for spec in named:
        groups.changed(spec)
    books = Budgets(groups, ledger)
    for one in pods:
        holding = ledger.holding(one.uid)
        assert holding is not None
        amounts = (
            taken(ledger, one, holding.dialect, holding.assignment)
            if group_of(one) is not None
            else {**dict(holding.amounts), **ledger.metered(holding.dialect, holding.assignment)}
        )
        books.note(one.uid, spender_of(one), amounts)
    found = held_by_queue(QueueTree(specs), ledger, pods, Lines(groups={spec.key: spec for spec in named}))
    for queue in specs:
        assert {one: amount for one, amount in found.get(queue.name, {}).items() if amount} == {
            one: amount for one, amount in books.held(queue.name).items() if amount
        }
