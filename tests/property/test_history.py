"""The record of pods' events equals a scan of all that ever happened, and stays within its bounds."""

import gc
import tracemalloc
from collections.abc import Sequence
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from core.history.pods import EVENTS_MAX, TEXT_MAX, Life, PodEvent, PodRecord, What
from core.model import PodUid


class Happened(NamedTuple):
    uid: str
    what: What
    code: str
    text: str


happened = st.builds(
    Happened,
    st.sampled_from([f"u{at}" for at in range(6)]),
    st.sampled_from(What),
    st.sampled_from(["", *(f"CS5{at:02}" for at in range(12))]),
    st.text(max_size=8),
)


def name_of(uid: str) -> str:
    """Some pods have the name of one that was there before."""
    return f"ns/{int(uid[1:]) % 4}"


def fed(all_of: Sequence[Happened], **bounds: int) -> PodRecord:
    record = PodRecord(**bounds)
    for at, one in enumerate(all_of):
        record.note(PodUid(one.uid), name_of(one.uid), PodEvent(one.what, at, at, 1, at, one.code, one.text))
        assert len(record) <= bounds.get("pods_max", 100)
        assert record.size_bytes <= bounds.get("bytes_max", 1 << 40)
    return record


def scanned(all_of: Sequence[Happened], uid: str, pods_max: int) -> Life | None:
    """What is remembered of a pod, by a scan of everything: only what happened since it was forgotten last."""
    mine = [at for at, one in enumerate(all_of) if one.uid == uid]
    begin = 0
    for before, after in zip(mine, [*mine[1:], len(all_of)], strict=True):
        if len({one.uid for one in all_of[before + 1 : after]} - {uid}) >= pods_max:
            begin = after
    mine = [at for at in mine if at >= begin]
    found: list[PodEvent] = []
    for at in mine:  # a kind of event that was left out as the oldest begins anew, too
        one = all_of[at]
        same = [event for event in found if (event.what, event.code) == (one.what, one.code)]
        first, times = (same[0].first_s, same[0].times + 1) if same else (at, 1)
        found = [event for event in found if event not in same]
        found.append(PodEvent(one.what, first, at, times, at, one.code, one.text))
        if len(found) > EVENTS_MAX:
            found.remove(next(event for place, event in enumerate(found) if place or event.what is not What.ASKED))
    return Life(PodUid(uid), name_of(uid), tuple(found)) if mine else None


@given(st.lists(happened, max_size=120), st.integers(1, 7))
def test_the_record_is_what_a_scan_of_all_events_finds(all_of, pods_max):
    record = fed(all_of, pods_max=pods_max)
    found = [life for uid in {one.uid for one in all_of} if (life := scanned(all_of, uid, pods_max)) is not None]
    for name in {name_of(one.uid) for one in all_of}:
        lives = [life for life in found if life.pod == name]
        assert record.named(name) == sorted(lives, key=lambda life: life.events[-1].last_s)
    newest = [life.events[-1].last_s for life in record.newest()]
    assert newest == sorted(newest, reverse=True)
    assert len(newest) == len(found)


def test_of_a_pod_that_is_made_again_and_again_the_last_ones_are_told():
    record = PodRecord(pods_max=150)
    for at in range(1000):
        record.note(PodUid(f"u{at}"), "ns/p", PodEvent(What.ASKED, at, at))
    assert [life.uid for life in record.named("ns/p")] == [f"u{at}" for at in range(900, 1000)]


@given(st.lists(happened, max_size=80), st.integers(1000, 8000))
def test_bytes_are_bounded_and_the_pods_that_changed_last_stay(all_of, bytes_max):
    record, whole = fed(all_of, bytes_max=bytes_max), fed(all_of)
    kept = [life.uid for life in record.newest()]
    assert kept == [life.uid for life in whole.newest()][: len(kept)]


@given(st.lists(happened, max_size=80))
def test_what_an_earlier_leader_remembered_is_remembered_as_it_was(all_of):
    record, again = fed(all_of), PodRecord()
    again.restore(reversed(list(record.newest())))
    assert list(again.newest()) == list(record.newest())
    assert again.size_bytes == record.size_bytes


def test_what_an_earlier_leader_remembered_is_older_than_what_this_one_has_seen_already():
    """It is stored last, so of a full record not the newest pods are left out."""
    record = PodRecord()
    for name, at in (("b", 20), ("c", 30)):
        record.note(PodUid(name), f"ns/{name}", PodEvent(What.ASKED, at, at))
    record.restore(
        Life(PodUid(name), f"ns/{name}", (PodEvent(What.ASKED, at, at),)) for name, at in (("x", 1), ("y", 2))
    )
    assert [life.uid for life in record.newest()] == ["c", "b", "y", "x"]


def test_what_the_record_takes_is_no_more_than_it_says():
    """Long texts and short ones, ASCII or not: measured, not computed."""
    words = ("", "n" * 40, "x" * (TEXT_MAX + 100), "卡" * 300)
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        record = PodRecord(bytes_max=4 * 2**20)
        for at in range(4000):
            uid = PodUid("".join([f"{at:08x}", "-0000-0000-0000-000000000000"]))
            for number, what in enumerate(What):
                text = "".join([words[(at + number) % 4], str(at)])
                record.note(uid, f"namespace/pod-{at}", PodEvent(what, at + 1_700_000_000, at, 1, at + 10**6, "", text))
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(record) < 4000
    assert after - before <= record.size_bytes <= 4 * 2**20
    assert after - before >= record.size_bytes // 4
