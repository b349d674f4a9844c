"""When pods, shapes, owners and nodes come and go, all that is kept of them goes too."""

import argparse

import pytest

from tests.bench.soak import Soak
from tests.support.devices.sizes import sizes

LIVES = 900
# What grows on purpose, and up to which bound.
BOUNDED = {
    "cluster.recording": "the last events of pods, of 100,000 of them within 128 MiB (tests/property/test_history.py)",
    "ledger._log": "changes of nodes, 131,072 of them, for whoever reads them late",
    "candidates._memories": "shapes, 4,096 of them within a budget of bytes",
    "candidates._marks": "what other pods and images make of nodes, 256 sets of them",
    "candidates._rows": "rows of nodes, of those that are gone as many as there are, and 256",
    "crowds.by_key[][].log": "nodes that are crowded now or are no more, 1,024 of them for each set",
    ".log._names": "nodes that other pods or images made another thing of, 16,384 of them",
}


def grown(before, after):
    """What holds more than before, beyond what comes and goes with chance."""
    kept = {path: size for path, size in after.items() if not any(bound in path for bound in BOUNDED)}
    return {path: (before.get(path, 0), size) for path, size in kept.items() if size > before.get(path, 0) * 1.3 + 24}


@pytest.mark.may_block(reason="nothing runs in a loop")
def test_three_times_as_many_lives_leave_no_more_behind():
    soak = Soak(argparse.Namespace(seed=1, nodes=40))
    for number in range(LIVES):
        soak.live(number)
    before = sizes(soak.world.scheduler)
    for number in range(LIVES, 3 * LIVES):
        soak.live(number)
    assert grown(before, sizes(soak.world.scheduler)) == {}


def test_what_is_kept_for_ever_is_seen():
    assert grown({"Scheduler.a": 40}, {"Scheduler.a": 40, "Scheduler.b": 100}) == {"Scheduler.b": (0, 100)}
