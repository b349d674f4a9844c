"""How long to wait before the next try: doubled each time, a little random, bounded."""

from collections.abc import Callable


class Backoff:
    """Waits of *first_s*, twice that, and so on up to *cap_s*, each shortened by up to a quarter.

    The quarter keeps many clients from coming back in step; it is no more, so that the number of tries has a bound.
    """

    def __init__(self, *, first_s: float, cap_s: float, jitter: Callable[[], float]) -> None:
        self._first_s = first_s
        self._cap_s = cap_s
        self._jitter = jitter
        self.failures = 0

    def next_s(self) -> float:
        """The seconds to wait now; the next answer is longer."""
        # The exponent is bounded because 2.0**1100 overflows, and a server may be away for days.
        full_s = min(self._cap_s, self._first_s * 2.0 ** min(self.failures, 30))
        self.failures += 1
        return full_s * (1.0 - 0.25 * self._jitter())

    def reset(self) -> None:
        """Begin again with the shortest wait."""
        self.failures = 0
