"""Columns of what is free on nodes, masks of whom constraints admit, and marks of what others make of nodes."""

import numpy as np

from core.constraints.constraint import ChangeLog
from core.ledger import Ledger
from core.model import Node, NodeConstraints, NodeName
from core.placing.columns import NO_CARD, PLACE_BITS, Columns, Marks, Rows
from core.settings import Settings, Tables
from tests.support.devices.catalogs import catalog_of
from tests.support.devices.toy import Toy
from tests.support.judging.asking import asking


class Cut(Toy):
    """Cards of which more is told than their kind says, by their position."""

    def room(self, cards):
        found = super().room(cards)
        return found._replace(narrow=[(kind, at) for at, kind in enumerate(found.kinds)])


class World:
    """A ledger, rows of its nodes, and what is kept by row."""

    def __init__(self, toy, **cards_by_node):
        self.ledger = Ledger(catalog_of(toy), Tables(), Settings())
        for name, cards in cards_by_node.items():
            self.ledger.set_node(node(name, cards))
        self.rows, self.log = Rows(self.ledger.states), ChangeLog(1000)
        self.columns = self.columns_of(toy, lambda used_ppm: -used_ppm)
        self.columns.catch_up()

    def columns_of(self, toy, tie_ppm):
        return Columns(self.rows, self.log, self.ledger.states, toy.name, toy, tie_ppm=tie_ppm)

    def set(self, name, cards, **about):
        """Note that a node is another, or new."""
        self.ledger.set_node(node(name, cards, **about))
        if NodeName(name) not in self.rows.of:
            self.rows.add(NodeName(name))
        self.log.add(NodeName(name))

    def rooms(self, name):
        """(kind, free, spare) of a node's rooms, as the columns have them."""
        self.columns.catch_up()
        row, found = self.rows.of[NodeName(name)], self.columns
        cells, width = found.cells[row].tolist(), found.width
        kinds = [found.kind[row]] * width if found.kind_of_card is None else found.kind_of_card[row].tolist()
        some = zip(kinds, cells[:width], cells[width:], strict=True)
        return [(found.kinds[kind], free, spare) for kind, free, spare in some if free != NO_CARD]


def node(name, cards, **about):
    return Node(name=NodeName(name), annotations={"toy.example/cards": cards}, **about)


def test_a_row_has_the_rooms_of_its_node_and_its_idle_cards():
    world = World(Toy(), a="x:8,x:8", b="x:8")
    assert world.rooms("a") == [(("x", 8), 8, 100)] * 2
    assert world.rooms("b") == [(("x", 8), 8, 100)]
    assert [world.columns.idles[number] for number in world.columns.idle[:2]] == [2, 1]
    assert world.columns.kind_of_card is None
    assert not world.columns.mixed.any()


def test_a_node_with_rooms_of_several_kinds_is_mixed():
    world = World(Toy(), a="x:8,y:8,x:8", b="y:8")
    assert [kind for kind, _, _ in world.rooms("a")] == [("x", 8), ("y", 8), ("x", 8)]
    assert world.columns.mixed[:2].tolist() == [True, False]
    world.set("a", "x:8,x:8,x:8")
    assert [kind for kind, _, _ in world.rooms("a")] == [("x", 8)] * 3
    assert world.columns.mixed[:2].tolist() == [False, False]


def test_cards_of_one_kind_that_are_told_apart_more_narrowly_do_not_make_a_node_mixed():
    world = World(Cut(), a="x:8,x:8", b="x:8,y:6")
    assert [kind for kind, _, _ in world.rooms("a")] == [(("x", 8), 0), (("x", 8), 1)]
    assert [kind for kind, _, _ in world.rooms("b")] == [(("x", 8), 0), (("y", 6), 1)]
    assert world.columns.mixed[:2].tolist() == [False, True]


def test_a_node_that_goes_has_no_rooms_and_its_row_stays_its_own():
    world = World(Toy(), a="x:8", b="x:8")
    world.ledger.remove_node(NodeName("a"))
    world.log.add(NodeName("a"))
    assert world.rooms("a") == []
    assert world.columns.there(np.zeros(2, np.bool_)) == 1
    assert world.columns.there(np.array([False, True])) == 0
    world.set("a", "x:8,x:8")
    assert world.rooms("a") == [(("x", 8), 8, 100)] * 2
    assert world.rooms("b") == [(("x", 8), 8, 100)]


def test_a_node_with_fewer_rooms_than_before_keeps_none_of_them():
    world = World(Toy(), a="x:8,x:8,x:8")
    world.set("a", "x:8")
    assert world.rooms("a") == [(("x", 8), 8, 100)]


def test_columns_and_rows_grow_and_keep_what_they_have():
    world = World(Toy(), **{f"m{number}": "x:8" for number in range(4)})
    before = world.columns.size_bytes
    for number in range(100):
        world.set(f"n{number:03}", "x:8," * (number % 9) + "y:9")
    world.rows.settle()
    for number in range(100):
        kinds = [kind for kind, _, _ in world.rooms(f"n{number:03}")]
        assert kinds == [("x", 8)] * (number % 9) + [("y", 9)]
    assert [world.rooms(f"m{number}") for number in range(4)] == [[(("x", 8), 8, 100)]] * 4
    assert (len(world.columns.cells), world.columns.width) == (world.rows.capacity, 9)
    assert world.columns.size_bytes > before
    assert world.columns.mixed[:5].tolist() == [False] * 5
    assert world.columns.mixed[5]


def test_nodes_are_read_so_many_at_once_and_each_once():
    world = World(Toy(), **{f"n{number}": "x:8" for number in range(9)})
    other = world.columns_of(Toy(), abs)
    left = []
    while other.behind:
        other.catch_up(4)
        left.append(len(other.behind))
    assert left == [5, 1, 0]
    assert other.cells.tolist() == world.columns.cells.tolist()


def test_equal_scores_are_settled_by_the_tie_and_then_by_the_name():
    world = World(Toy(), b="x:8", a="x:8", c="x:8")
    world.ledger.set_node(node("c", "x:8"))
    seats = {name: int(world.columns.seats[world.rows.of[NodeName(name)]]) for name in "abc"}
    assert sorted(seats, key=lambda name: seats[name]) == ["a", "b", "c"]
    tied = world.columns_of(Toy(), lambda _: -7)
    tied.catch_up()
    for name in "abc":
        row = world.rows.of[NodeName(name)]
        assert tied.tie(row) == -7
        assert int(tied.seats[row]) - (-7 << PLACE_BITS) == world.rows.places[row]


def test_names_that_get_other_places_leave_ties_as_they_are():
    world = World(Toy(), a="x:8", z="x:8")
    columns = world.columns_of(Toy(), lambda _: -7)
    columns.catch_up()
    world.rows.add(NodeName("b"))
    assert world.rows.settle()
    columns.seat_anew()
    for name in "az":
        row = world.rows.of[NodeName(name)]
        assert int(columns.seats[row]) == (-7 << PLACE_BITS) + world.rows.places[row]


def test_a_mask_has_whom_the_constraints_refuse():
    world = World(Toy(), a="x:8", b="x:8")
    asked, states = asking(NodeConstraints(selector=(("zone", "z"),))), world.ledger.states

    def refuses(name):
        return name not in states or not world.ledger.constraints.admits(asked, states[name].facts)

    mask = Marks(world.rows, world.log, refuses, np.bool_)
    mask.catch_up()
    assert mask.said[:2].tolist() == [True, True]
    world.set("b", "x:8", labels={"zone": "z"})
    for number in range(30):
        world.set(f"n{number}", "x:8", labels={"zone": "z" if number % 2 else "y"})
    mask.catch_up()
    assert mask.said[: len(world.rows)].tolist() == [True, False, *[not number % 2 for number in range(30)]]
    world.ledger.remove_node(NodeName("b"))
    world.log.add(NodeName("b"))
    mask.catch_up()
    assert mask.said[1]


def test_marks_follow_what_is_said_as_far_as_the_log_tells():
    said: dict[str, int] = {"a": 3}
    asked: list[str] = []

    def say(name):
        asked.append(name)
        return said.get(name, 0)

    rows, log = Rows([NodeName("a"), NodeName("b")]), ChangeLog(4)
    marks = Marks(rows, log, say, np.int64)
    marks.catch_up()
    assert marks.said[:2].tolist() == [3, 0]
    asked.clear()
    said["b"] = 5
    log.add(NodeName("b"))
    log.add(NodeName("nobody's"))
    marks.catch_up()
    assert marks.said[:2].tolist() == [3, 5]
    assert asked == ["b"]
    said["a"] = 0
    for number in range(40):
        rows.add(NodeName(f"c{number}"))
    said["c7"] = 9
    log.forget()
    marks.catch_up()
    assert {name for name, row in rows.of.items() if marks.said[row]} == {"b", "c7"}


def test_blank_marks_ask_only_of_whom_the_log_tells_and_of_new_rows():
    asked: list[str] = []

    def say(name):
        asked.append(name)
        return name in ("b", "c")

    rows, log = Rows([NodeName("a"), NodeName("b")]), ChangeLog(4)
    log.extend([NodeName("b"), NodeName("c")])
    marks = Marks(rows, log, say, np.bool_, is_blank=True)
    marks.catch_up()
    assert (asked, marks.said[:2].tolist()) == (["b"], [False, True])
    rows.add(NodeName("c"))
    marks.catch_up()
    assert (asked, marks.said[:3].tolist()) == (["b", "c"], [False, True, True])
