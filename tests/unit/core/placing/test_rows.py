"""Rows of nodes: places in the order of names, rows that stay, and the log of those that changed."""

from random import Random

import numpy as np
import pytest

from core.model import NodeName
from core.placing.columns import RowLog, Rows, grown


def by_place(rows):
    return sorted(rows.names, key=lambda name: rows.places[rows.of[name]])


@pytest.mark.parametrize("order", ["as they come", "sorted", "reversed"])
@pytest.mark.parametrize("there", [0, 1, 30])
@pytest.mark.parametrize("at_once", [1, 7, 400])
def test_places_keep_the_order_of_names_however_they_are_added(order, there, at_once):
    chance = Random(7)
    names = [NodeName(f"n{number:05}") for number in chance.sample(range(100_000), 330)]
    rows = Rows(names[:there])
    added = names[there:]
    if order != "as they come":
        added.sort(reverse=order == "reversed")
    for at, name in enumerate(added, start=there):
        assert (rows.add(name), len(rows)) == (at, at + 1)
        assert rows.capacity >= len(rows)
        if len(rows) % at_once == 0:
            assert rows.settle()
            assert by_place(rows) == sorted(rows.names)
    rows.settle()
    assert by_place(rows) == sorted(names)
    assert {name: rows.of[name] for name in names} == {name: row for row, name in enumerate(rows.names)}
    assert sorted(rows.places.tolist()) == list(range(len(names)))


def test_where_no_name_was_added_all_keep_their_places():
    rows = Rows([NodeName("a"), NodeName("c")])
    assert not rows.settle()
    rows.add(NodeName("b"))
    assert rows.settle()
    assert not rows.settle()
    assert rows.places.tolist() == [0, 2, 1]


def test_rows_are_crowded_when_most_are_of_nodes_that_are_gone():
    rows = Rows([NodeName(f"n{number}") for number in range(400)])
    assert [rows.is_crowded(nodes) for nodes in (400, 72, 71, 0)] == [False, False, True, True]
    # A few are no reason to begin anew.
    assert not Rows([NodeName(f"n{number}") for number in range(256)]).is_crowded(0)


def test_the_log_tells_what_changed_since_and_forgets_the_oldest():
    log = RowLog(most=4)
    for row in range(8):
        log.add(row)
    assert log.cursor == 8
    assert told(log, 0) == [0, 1, 2, 3, 4, 5, 6, 7]
    log.add(8)
    assert log.since(3) is None
    assert told(log, 4) == [4, 5, 6, 7, 8]
    assert told(log, log.cursor) == []
    assert log.since(-1) is None


def test_the_log_remembers_as_many_changes_as_it_is_to():
    log, most = RowLog(most=16), 16
    for number in range(200):
        log.add(number)
        assert told(log, max(log.cursor - most, 0)) == list(range(max(number + 1 - most, 0), number + 1))


def test_an_array_grows_and_keeps_what_it_had():
    array = np.array([[1, 2], [3, 4]])
    assert grown(array, 2, -1) is array
    assert grown(array, 3, -1).tolist() == [[1, 2], [3, 4], [-1, -1]]
    assert grown(np.array([True]), 2, fill=False).tolist() == [True, False]


def told(log, cursor):
    rows = log.since(cursor)
    assert rows is not None
    return rows.tolist()
