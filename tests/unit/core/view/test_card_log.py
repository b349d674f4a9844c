"""What a card was while somebody watched: only what was seen, and only what a reader may see."""

from dataclasses import replace

from core.view.card_log import CardLog
from core.view.cards import Card, Node, Share

CARD = Card(id="c", protocol="vgpu", used=0, total=4, unit="MiB")
HELD = replace(CARD, used=3, held_by=(Share(pod="mine/a", share="1 MiB"), Share(pod="theirs/b", share="2 MiB")))
ILL = replace(HELD, healthy=False, note="it is in use through resource claim theirs/b")


def node(*cards: Card, name: str = "n") -> Node:
    return Node(name=name, ready=True, schedulable=True, taints=(), cards=cards, totals=(), warnings=())


def seen(log: CardLog, card: Card, namespace: str = "", name: str = "n") -> list[tuple[str, Card | None]]:
    return [(one.at[11:19], one.card) for one in log.of(name, card, namespace).changes]


def test_a_card_that_did_not_change_is_as_it_was_since_the_watch_began():
    log = CardLog(60)
    log.note(90, node(CARD), node(CARD))
    assert seen(log, CARD) == [("00:01:00", CARD)]


def test_each_change_has_its_time_and_what_was_before_is_known_since_the_watch_began():
    log = CardLog(0)
    log.note(1, node(CARD), node(HELD))
    log.note(2, node(HELD), node(ILL))
    log.note(3, node(ILL), None)
    assert seen(log, ILL) == [("00:00:00", CARD), ("00:00:01", HELD), ("00:00:02", ILL), ("00:00:03", None)]


def test_a_card_that_is_new_was_nothing_before():
    log = CardLog(0)
    log.note(5, None, node(CARD))
    assert seen(log, CARD) == [("00:00:05", CARD)]


def test_a_reader_of_one_namespace_sees_no_name_of_another():
    log = CardLog(0)
    log.note(1, node(CARD), node(HELD))
    log.note(2, node(HELD), node(ILL))
    changes = [one for _, one in seen(log, ILL, "mine") if one is not None]
    assert [(one.used, [share.pod for share in one.held_by], one.others) for one in changes] == [
        (0, [], 0),
        (3, ["mine/a"], 1),
        (3, ["mine/a"], 1),
    ]
    assert "theirs" not in str(changes)


def test_so_many_changes_are_kept_of_one_card_and_of_all_and_no_more_is_claimed():
    log = CardLog(0, changes_max=2, total_max=3)
    log.note(1, node(CARD), node(HELD))
    log.note(2, node(HELD), node(CARD))
    assert seen(log, CARD) == [("00:00:01", HELD), ("00:00:02", CARD)]
    log.note(3, node(CARD, name="m"), node(HELD, name="m"))
    assert seen(log, HELD, name="m") == [("00:00:00", CARD), ("00:00:03", HELD)]
    # What was known of the first card is dropped: it has been as it is since its last change.
    assert seen(log, CARD) == [("00:00:02", CARD)]
