"""Computes retry delays: exponential, with jitter and an upper bound."""

from collections.abc import Callable


class Backoff:
    """Delays of *first_s*, twice that, and so on up to *cap_s*, each reduced by up to a quarter.

    The reduction prevents many clients from retrying at the same time. Its limit of a quarter bounds the number of
    retries.
    """

    def __init__(self, *, first_s: float, cap_s: float, jitter: Callable[[], float]) -> None:
        self._first_s = first_s
        self._cap_s = cap_s
        self._jitter = jitter
        self.failures = 0

    def next_s(self) -> float:
        """Return the seconds to wait now; the next delay is longer."""
        # The exponent is bounded because 2.0**1100 overflows, and an outage may last for days.
        full_s = min(self._cap_s, self._first_s * 2.0 ** min(self.failures, 30))
        self.failures += 1
        return full_s * (1.0 - 0.25 * self._jitter())

    def reset(self) -> None:
        """Start again with the shortest delay."""
        self.failures = 0
