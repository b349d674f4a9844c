"""Minutes add up to what was observed, within bounds; what is stored is read back, and nothing else is."""

import base64
import contextlib
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import InvalidRequestError
from core.history.minutes import OTHERS, Key, Minute, MinuteRecord, Sums
from core.history.pods import EVENTS_MAX, Life, PodEvent, What
from core.model import PodUid
from core.view.history import day
from core.wire.history import life_line, minute_line, pack, read_lives, read_minutes
from tests.support.worlds.world import finished

words = st.sampled_from(["", "a", "b", "c", "卡\n"])
keys = st.builds(Key, st.sampled_from(["vgpu", "hami"]), words, words)
sums = st.builds(Sums, *[st.integers(0, 10**6)] * 4)
minutes = st.builds(Minute, st.integers(0, 40), st.dictionaries(keys, sums, max_size=12))
texts = st.text(max_size=40)
times = st.integers(0, 2**37)  # the year 6325
events = st.builds(PodEvent, st.sampled_from(What), times, times, times, times, texts, texts)
lives = st.builds(
    Life, st.uuids().map(lambda uid: PodUid(str(uid))), texts, st.lists(events, min_size=1, max_size=4).map(tuple)
)


def total(found):
    whole = Sums()
    for one in found:
        whole = whole.plus(one)
    return whole


@given(st.lists(minutes, max_size=30), st.integers(1, 8), st.integers(2, 20))
def test_a_day_of_minutes_is_kept_and_each_adds_up(all_of, keys_max, minutes_max):
    record, wanted = MinuteRecord(minutes_max=minutes_max, keys_max=keys_max), {}
    for minute in all_of:
        record.put(minute)
        wanted[minute.at] = total(minute.sums.values())
        assert len(record) <= minutes_max
    found = list(record.newest())
    for at, of_minute in found:
        assert len(of_minute) <= keys_max + 1
        assert total(of_minute.values()) == wanted[at]
    ats = [at for at, _ in found]
    assert ats == sorted(set(ats), reverse=True)
    if minutes_max > 40:
        assert set(ats) == set(wanted)


def test_of_many_queues_the_largest_are_told_apart():
    record = MinuteRecord(keys_max=4)
    record.put(Minute(1, {Key("vgpu", "T4", f"q{at}"): Sums(promised_ms=at) for at in range(10)}))
    ((_, found),) = record.newest()
    assert found == {
        Key("vgpu", "T4", "q9"): Sums(9),
        Key("vgpu", "T4", "q8"): Sums(8),
        Key("vgpu", "T4", OTHERS): Sums(28),
    }


@given(st.dictionaries(st.integers(0, 60), st.dictionaries(keys, sums, max_size=4), max_size=20))
def test_the_view_has_every_figure_and_no_other(observed):
    shown = day([Minute(at, of_minute) for at, of_minute in observed.items()])
    assert shown.minutes == (max(observed) - min(observed) + 1 if observed else 0)
    for one in shown.series:
        key = Key(one.dialect, one.type, one.queue)
        rows = [observed.get(at) for at in range(min(observed), max(observed) + 1)]
        for place, column in enumerate((one.promised_ms, one.idle_ms, one.stranded_ms, one.waiting)):
            figures = tuple(None if row is None else row.get(key, Sums())[place] for row in rows)
            assert column == (figures if any(figures) else None)


@given(st.lists(lives, max_size=20), st.lists(minutes, max_size=20))
def test_what_is_stored_is_read_back(some_lives, some_minutes):
    assert read_lives(finished(pack(map(life_line, some_lives), 1 << 20, 7))) == (7, some_lives)
    assert read_minutes(finished(pack(map(minute_line, some_minutes), 1 << 20, 8))) == (8, some_minutes)


def test_what_does_not_fit_is_left_out_from_the_end():
    uids = [f"{zlib.crc32(bytes([at % 256, at // 256])):08x}-{at}" for at in range(20_000)]
    some = [Life(PodUid(uid), f"ns/{uid}", (PodEvent(What.ASKED, 1, 1, text=uid * 3),)) for uid in uids]
    text = finished(pack(map(life_line, some), 64 * 1024, 1))
    assert 40 * 1024 < len(text) <= 64 * 1024
    _, found = read_lives(text)
    assert 1000 < len(found) < 20_000
    assert found == some[: len(found)]


def test_what_compresses_well_is_cut_before_it_is_too_long_to_read():
    long = Life(
        PodUid("u"),
        "ns/p",
        tuple(PodEvent(What.WAITS, 1, 1, code=f"{at}", text="x" * 1000) for at in range(EVENTS_MAX)),
    )
    _, found = read_lives(finished(pack(map(life_line, [long] * 5000), 1 << 20, 1)))
    assert found == [long] * len(found)
    assert 0 < len(found) < 5000


def packed(text: bytes) -> str:
    return base64.b64encode(zlib.compress(text)).decode()


HEAD = b'{"format":"cardshare-history","version":1,"at_s":1}\n'


@pytest.mark.parametrize(
    "text",
    [
        "not base64!",
        base64.b64encode(b"not compressed").decode(),
        base64.b64encode(zlib.compress(HEAD * 100)[:-9]).decode(),
        packed(b""),
        packed(b"[]"),
        packed(b'{"format":"cardshare-history","version":2,"at_s":1}\n'),
        packed(b'{"format":"another","version":1,"at_s":1}\n'),
        packed(HEAD + b'["u","ns/p",[]]\n'),
        packed(HEAD + b'["u","ns/p",[["asked",1,1,-1,0,"",""]]]\n'),
        packed(HEAD + b'["u","ns/p",[["slept",1,1,1,0,"",""]]]\n'),
        packed(HEAD + b"[1,2\n"),
        packed(b'{"format":"cardshare-history","version":1,"at_s":253402300800}\n'),
        packed(HEAD + b'["u","ns/p",[["asked",1,253402300800,1,0,"",""]]]\n'),
        packed(HEAD + b"[4223371680,[]]\n"),
        packed(HEAD + b" " * (17 * 2**20)),
    ],
)
def test_what_somebody_else_wrote_is_refused(text):
    for read in (read_lives, read_minutes):
        with pytest.raises(InvalidRequestError, match=r"its (pods|minutes)"):
            read(text)


@given(st.binary(max_size=60))
def test_any_text_is_read_or_refused(junk):
    for text in (junk.decode("latin-1"), base64.b64encode(junk).decode(), packed(junk), packed(HEAD + junk)):
        for read in (read_lives, read_minutes):
            with contextlib.suppress(InvalidRequestError):
                read(text)
