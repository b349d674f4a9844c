"""What the record of history costs: for a placed pod, in memory when it is full, and to store and read it.

In one process, without a server. The events of a placed pod are those that the controller notes: asked, reserved, sent,
bound, served.

  us_per_pod      CPU of noting them, the least of several rounds
  pods            in a record that is full: with --pods pods, or with as many as its bytes allow
  rss_mib         what a full record, and a day of minutes with as many keys as are told apart, add to the process
  store_ms        CPU of making what is stored, in slices between which other tasks run
  stored_kib      its size
  read_ms         CPU of reading it
"""

import argparse
import gc
import os
import time
from collections.abc import Iterator
from pathlib import Path

from controller.reporting.history import MINUTES_CHARACTERS, PODS_CHARACTERS
from core.history.minutes import KEYS_MAX, MINUTES_MAX, Key, Minute, MinuteRecord, Sums
from core.history.pods import PodEvent, PodRecord, What
from core.model import PodUid
from core.wire.history import life_line, minute_line, pack, read_lives, read_minutes
from tests.bench.results import Result
from tests.support.worlds.world import World, finished, node, pod

_PLACED: int = 2000
_ROUNDS: int = 7


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--pods", type=int, default=100_000, help="pods that are placed and remembered (default 100000)"
    )


def run(args: argparse.Namespace) -> Iterator[Result]:
    """Measure and yield the figures."""
    params = {"pods": args.pods}
    for metric, value, unit in _figures(args.pods):
        yield Result(metric=metric, value=round(value, 1), unit=unit, params=params)


def _figures(pods: int) -> Iterator[tuple[str, float, str]]:
    yield "us_per_pod", min(_noting_us() for _ in range(_ROUNDS)), "us"
    before_mib = _rss_mib()
    record, minutes = _filled(pods), _day()
    gc.collect()
    yield "pods", len(record), "pods"
    yield "rss_mib", _rss_mib() - before_mib, "MiB"
    started_s = time.process_time()
    texts = (
        finished(pack(map(life_line, record.newest()), PODS_CHARACTERS, 1)),
        finished(pack(map(minute_line, minutes.newest()), MINUTES_CHARACTERS, 1)),
    )
    yield "store_ms", 1000 * (time.process_time() - started_s), "ms"
    yield "stored_kib", sum(map(len, texts)) / 1024, "KiB"
    started_s = time.process_time()
    read_lives(texts[0])
    read_minutes(texts[1])
    yield "read_ms", 1000 * (time.process_time() - started_s), "ms"


def _noting_us() -> float:
    recording = World(node("n1")).scheduler.cluster.recording
    recording.begin()
    placed = [pod(f"p{at}", memory=1000) for at in range(_PLACED)]
    started_s = time.process_time()
    for one in placed:
        recording.note(one, What.RESERVED, "n1")
        recording.note(one, What.SENT, "n1: GPU-0 (1000 MiB)")
        recording.note(one, What.BOUND, "n1")
        recording.served(one.uid)
    return (time.process_time() - started_s) / _PLACED * 1e6


def _filled(pods: int) -> PodRecord:
    record = PodRecord()
    kinds = (What.ASKED, What.WAITS, What.RESERVED, What.SENT, What.BOUND, What.SERVED)
    for at in range(pods):
        uid = PodUid(f"{at:08x}-0000-4000-8000-{at * 7919:012x}")
        for what in kinds:
            text = f"n{at % 5000}: GPU-{at:08x} (1000 MiB)" if what is What.SENT else f"{what} {at % 5000}"
            if what is What.WAITS:
                text = f"CS501 0/5000 nodes are available. Nearest: n{at} GPU-{at}: 5360 of 8000 MiB free. " * 3
            record.note(
                uid, f"team-{at % 50}/job-{at}", PodEvent(what, at + 10**9, at + 10**9, 1, at + 10**6, "", text)
            )
    return record


def _day() -> MinuteRecord:
    record = MinuteRecord()
    for at in range(MINUTES_MAX):
        keys = (Key("vgpu", f"type-{one % 8}", f"queue-{one}") for one in range(KEYS_MAX))
        sums = {key: Sums(at * 31 + place, at + 10**6, place + 10**6, at) for place, key in enumerate(keys)}
        record.put(Minute(at, sums))
    return record


def _rss_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
