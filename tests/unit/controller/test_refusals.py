"""When refused shapes are asked about."""

from controller.refusals import Refusals
from core.model import NodeConstraints
from core.shape import Shape

SHAPE = Shape(dialect=None, request=(), amounts=(), constraints=NodeConstraints())


def test_a_shape_that_is_asked_long_after_all_others_keeps_nobody_waiting():
    """A pod of it was placed, so that the next may fit: how long nothing was asked before says nothing."""
    refusals = Refusals()
    refusals.note_free()
    refusals.begin([SHAPE], 10.0)
    assert refusals.next(10.01) is SHAPE
    refusals.ask(SHAPE)
    assert refusals.next(1000.0) is SHAPE
    refusals.note_free()
    assert refusals.is_due(1001.0)


def test_asking_takes_no_more_than_a_fifth_of_the_time():
    refusals = Refusals()
    refusals.note_free()
    refusals.begin([SHAPE], 10.0)
    assert refusals.next(11.0) is SHAPE
    refusals.note_free()
    assert not refusals.is_due(14.9)
    assert refusals.is_due(15.1)
