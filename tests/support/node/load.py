"""Creates of pods with cards, one after another while something else happens, and what came of them."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.support.node.api import Api, RefusedError
from tests.support.node.waiting import wait
from tests.support.node.world import pod

_PER_S = 20.0


@dataclass(slots=True)
class Creates:
    """What became of them: how many were made, and what was said to those that were not.

    Attributes:
        slowest_s: how long the slowest took.
        last_lost_s: when the last of those that were not made was sent, monotonic.
    """

    made: int = 0
    lost: list[str] = field(default_factory=list)
    slowest_s: float = 0.0
    last_lost_s: float = 0.0

    def more(self, count: int) -> None:
        """Wait until *count* more are made."""
        wanted = self.made + count
        wait("creates", lambda: "" if self.made >= wanted else f"{wanted - self.made} missing, lost: {self.lost[-1:]}")


@contextmanager
def creates(api: Api, namespace: str) -> Iterator[Creates]:
    """Dry runs of pods in *namespace* until the block ends: they pass all of admission, and leave nothing."""
    found, ended = Creates(), threading.Event()
    path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"

    def go_on() -> None:
        number = 0
        while not ended.wait(1 / _PER_S):
            number += 1
            begun_s = time.monotonic()
            try:
                made = api.create(path, pod(f"load-{number}", {"volcano.sh/vgpu-memory": 100}))
                # Defaulted by the webhook: it was asked.
                assert "volcano.sh/vgpu-number" in made["spec"]["containers"][0]["resources"]["limits"]
                found.made += 1
            except (RefusedError, OSError, AssertionError) as e:
                found.lost.append(f"after {number}: {e}")
                found.last_lost_s = begun_s
            found.slowest_s = max(found.slowest_s, time.monotonic() - begun_s)

    thread = threading.Thread(target=go_on, name="creates")
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()
