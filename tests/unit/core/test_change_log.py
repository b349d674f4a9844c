"""The log of changes: what each reader is told, and when it is to read everything anew."""

from core.constraints.constraint import ChangeLog
from core.model import NodeName


def names(*numbers):
    return [NodeName(f"n{number}") for number in numbers]


def log_of(*numbers, most=8):
    log = ChangeLog(most)
    for name in names(*numbers):
        log.add(name)
    return log


def test_a_reader_is_told_what_changed_since_it_read_and_repeats_with_it():
    log = log_of(1, 2)
    seen = log.cursor
    assert log.since(seen) == []
    log.extend(names(3, 1, 3))
    assert log.since(seen) == names(3, 1, 3)
    assert log.since(0) == names(1, 2, 3, 1, 3)
    assert len(log) == 5


def test_the_older_half_is_forgotten_and_who_is_behind_it_reads_everything():
    log = log_of(*range(9))
    assert log.since(0) is None
    assert log.since(3) is None
    assert log.since(4) == names(4, 5, 6, 7, 8)
    assert (len(log), log.cursor) == (5, 9)


def test_more_at_once_than_is_remembered_leaves_the_last():
    log = log_of(0)
    log.extend(names(*range(1, 40)))
    assert log.cursor == 40
    assert len(log) == 4
    assert log.since(36) == names(36, 37, 38, 39)
    assert log.since(35) is None


def test_after_everything_may_have_changed_nobody_is_up_to_date():
    log = log_of(1, 2)
    seen = log.cursor
    log.forget()
    assert log.since(seen) is None
    assert log.since(log.cursor) == []
    log.add(NodeName("n3"))
    assert log.since(log.cursor - 1) == names(3)
    assert log.since(seen) is None


def test_who_never_read_reads_everything():
    assert log_of().since(-1) is None
