"""The last day in points: the figures of the record, and nothing where nothing was observed."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from core.history.minutes import Key, Minute, Sums
from core.view.history import day
from core.view.trend import Trend, trend, trend_for

AT = 28_000_000  # Unix minutes
T4 = Key("vgpu", "T4", "team")
IDLE = Key("vgpu", "T4", "")
WAITS = Key("vgpu", "", "team")
OTHERS_WAIT = Key("vgpu", "", "other")


def shown(*minutes: Minute, now: int | None = None) -> Trend:
    until = now if now is not None else max(one.at for one in minutes) + 1
    return trend(minutes, until * 60.0)


def minute(at: int, promised: int = 0, waiting: int = 0) -> Minute:
    """A minute of two cards."""
    of_cards = {T4: Sums(promised_ms=promised * 60), IDLE: Sums(idle_ms=(2000 - promised) * 60)}
    return Minute(at, of_cards | ({WAITS: Sums(waiting=waiting)} if waiting else {}))


def test_each_minute_is_a_point_while_the_record_is_short():
    found = shown(minute(AT, 500), minute(AT + 1, 1500, waiting=3))
    assert (found.since, found.step_s, found.observed) == ("2023-03-28T10:40:00Z", 60, (1, 1))
    (cards,) = found.cards
    assert (cards.dialect, cards.type) == ("vgpu", "T4")
    assert (cards.promised, cards.idle, cards.stranded) == ((500, 1500), (1500, 500), (0, 0))
    assert [(one.queue, one.pods) for one in found.waiting] == [("team", (0, 3))]


def test_a_minute_that_was_not_observed_is_unknown_and_not_0():
    (cards,) = shown(minute(AT, 500), minute(AT + 2, 500)).cards
    assert cards.promised == (500, None, 500)
    assert cards.stranded == (0, None, 0)


def test_a_record_that_ended_long_ago_has_a_gap_until_now():
    found = shown(minute(AT, 500), now=AT + 10)
    (cards,) = found.cards
    assert found.observed == (1, *[0] * 9)
    assert cards.promised == (500, *[None] * 9)
    assert shown(minute(AT, 500), now=AT + 3).observed == (1,)


def test_a_day_is_shown_in_steps_of_five_minutes_by_the_mean_and_the_last():
    minutes = [minute(AT + at, 500 if at % 5 else 1000, waiting=at % 5 + 1) for at in range(24 * 60 + 100)]
    found = shown(*minutes)
    assert (found.step_s, len(found.observed)) == (300, 288)
    assert {*found.cards[0].promised} == {600}
    assert {*found.waiting[0].pods} == {5}


def test_there_is_nothing_to_show_without_a_record():
    found = trend((), 0.0, notes=["the ConfigMap does not exist"])
    assert (found.since, found.observed, found.cards, found.notes) == (None, (), (), ("the ConfigMap does not exist",))


def test_of_many_types_the_smallest_are_added_up():
    keys = [Key("vgpu", f"type-{at:02}", "") for at in range(30)]
    found = shown(Minute(AT, {key: Sums(idle_ms=60_000 * (at + 1)) for at, key in enumerate(keys)}))
    assert len(found.cards) == 24
    assert found.cards[-1].type == "*"
    assert sum(one.idle[0] or 0 for one in found.cards) == 1000 * sum(range(31))


def test_who_may_not_see_queues_sees_how_many_wait_in_all():
    whole = shown(Minute(AT, {WAITS: Sums(waiting=2), OTHERS_WAIT: Sums(waiting=3)}), Minute(AT + 2, {}))
    assert [one.queue for one in trend_for(whole, queues=True, notes=["n"]).waiting] == ["other", "team"]
    narrowed = trend_for(whole, queues=False, notes=["n"])
    assert [(one.queue, one.pods) for one in narrowed.waiting] == [(None, (5, None, 0))]
    assert narrowed.notes == ("n",)


keys = st.builds(Key, st.sampled_from(["vgpu", "hami"]), st.sampled_from(["", "T4", "A100"]), st.sampled_from("abc"))
of_cards = st.builds(Sums, *[st.integers(0, 10**6).map(lambda one: one * 60)] * 3, st.just(0))
waiting = st.builds(Sums, st.just(0), st.just(0), st.just(0), st.integers(0, 9))


@given(
    st.dictionaries(
        st.integers(AT, AT + 40),
        st.dictionaries(keys, st.tuples(of_cards, waiting), max_size=5).map(
            lambda found: {key: both[0] if key.type else both[1] for key, both in found.items()}
        ),
        min_size=1,
    )
)
def test_the_points_of_all_rows_are_the_sums_of_the_minutes_of_the_day(minutes):
    """``/v1/history`` and the page show one record."""
    record = [Minute(at, sums) for at, sums in minutes.items()]
    found, whole = shown(*record), day(record)
    assert (found.since, len(found.observed)) == (whole.since, whole.minutes)
    for column, scale in (("promised", 60), ("idle", 60), ("stranded", 60), ("waiting", 1)):
        rows = [one.pods for one in found.waiting] if scale == 1 else [getattr(one, column) for one in found.cards]
        series = [getattr(one, column if scale == 1 else f"{column}_ms") for one in whole.series]
        for at in range(len(found.observed)):
            points: list[Any] = [one[at] for one in rows]
            sums = [one[at] for one in series if one is not None]
            if min(minutes) + at in minutes:
                assert sum(points) * scale == sum(sums)
            else:
                assert {*points, *sums} <= {None}
