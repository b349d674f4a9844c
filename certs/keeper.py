"""``python -m certs run``: checks Secrets and bundles every few seconds, repairs them, and reports their state.

A deleted Secret is restored with its former content, because webhooks still serve that pair and callers trust its
authority.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from certs.cluster import Done, HeldSecret, Kept, Remembered, SecretsPlace, keep
from certs.pair import end_of, signer_of
from certs.secrets import ClusterCalls
from kube.condition import Verdict
from kube.errors import ApiError, CredentialsError, UndecodableError
from runtime.serving import family

# Maximum interval between tries while the API server does not answer.
_MAX_PAUSE_S: Final = 30.0

SAYS: Final = {
    Done.MADE: "made a new one",
    Done.PUT_BACK: "put back what it had",
    Done.TAKEN_OVER: "took over the authority that lay beside a pair",
    Done.COMPLETED: "holds the pair and what it trusts now, and nothing else",
}
_DAY: Final = timedelta(days=1)
_NOT_YET: Final = "nothing was looked at yet"


class KeptReason(StrEnum):
    """The reason of the condition."""

    STARTING = "Starting"
    KEPT = "Kept"
    UNTRUSTED = "Untrusted"
    FAILING = "Failing"


class CertificateFigures(Collector):
    """All metrics of one process.

    Attributes:
        registry: contains them.
        trouble: the current problem in words; "" if there is none.
    """

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._ends: dict[str, datetime] = {}
        self._writes: Counter[tuple[str, str]] = Counter()
        self._repairs: Counter[str] = Counter()
        self._trusts: dict[str, bool] = {}
        self._failures = 0
        self._failing = False
        self._failed_s = 0.0
        self._looked_s = 0.0
        self.trouble = _NOT_YET
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)

    def looked(self, kept: Kept, now: datetime) -> None:
        """Record the result of a check."""
        signer = signer_of(kept.authority.stored, now)
        for name, pem in (
            (kept.authority.secret, signer.cert_pem if signer else b""),
            *((one.secret, one.stored.cert_pem) for one in kept.pairs),
        ):
            if (end := end_of(pem)) is not None:
                self._ends[name] = end
        for one in kept.secrets:
            if one.done is not Done.KEPT:
                self._writes[one.secret, one.done] += 1
        self._repairs.update(kept.patched)
        self._trusts = {name: name not in kept.problems for name in kept.webhooks}
        self._looked_s, self._failing = now.timestamp(), False
        self.trouble = "; ".join(kept.problems.values())

    def failed(self, why: str, now: datetime) -> None:
        """Record why a check failed."""
        self._failures += 1
        self._failed_s, self._failing = now.timestamp(), True
        self.trouble = why

    def verdict(self) -> Verdict:
        """Return the state for the pod's condition."""
        ends = "; ".join(f"{name} until {end:%Y-%m-%d}" for name, end in self._ends.items())
        if self._failing:
            reason = KeptReason.FAILING
        elif not self._looked_s:
            reason = KeptReason.STARTING
        else:
            reason = KeptReason.UNTRUSTED if self.trouble else KeptReason.KEPT
        return Verdict(accepted=reason is KeptReason.KEPT, reason=reason, message=self.trouble or ends)

    def collect(self) -> Iterator[Metric]:
        """Yield the families; the registry calls this."""
        now = self._clock()
        days = [((name,), round((end - now) / _DAY, 6)) for name, end in self._ends.items()]
        text = "Days until the certificate in a Secret expires: the authority's, or a serving one."
        yield family(GaugeMetricFamily, "cardshare_certs_days_left", text, ("secret",), days)
        text = "Writes of Secrets, by kind: made, put_back, taken_over or completed."
        yield family(CounterMetricFamily, "cardshare_certs_writes", text, ("secret", "what"), self._writes.items())
        repairs = [((name,), count) for name, count in self._repairs.items()]
        text = "Webhook configurations that were corrected to trust the authority."
        yield family(CounterMetricFamily, "cardshare_certs_bundle_writes", text, ("configuration",), repairs)
        trusts = [((name,), is_right) for name, is_right in self._trusts.items()]
        text = "1 if, at the last check, all entries of a webhook configuration that call the webhook trusted "
        text += "the authority."
        yield family(GaugeMetricFamily, "cardshare_certs_bundle_right", text, ("configuration",), trusts)
        yield GaugeMetricFamily(
            "cardshare_certs_failing",
            "1 while Secrets and bundles cannot be checked and corrected.",
            value=self._failing,
        )
        yield CounterMetricFamily("cardshare_certs_failures", "Failed checks.", value=self._failures)
        yield GaugeMetricFamily(
            "cardshare_certs_last_failure_timestamp_seconds",
            "Time of the last failed check, in Unix seconds; 0 for never.",
            value=self._failed_s,
        )
        yield GaugeMetricFamily(
            "cardshare_certs_last_look_timestamp_seconds",
            "Time of the last complete check, in Unix seconds; 0 for never.",
            value=self._looked_s,
        )


class Keeper:
    """Maintains the Secrets of one place and the bundles that trust them while it runs."""

    def __init__(
        self,
        calls: ClusterCalls,
        place: SecretsPlace,
        figures: CertificateFigures,
        *,
        every_s: float,
        clock: Callable[[], datetime],
        tell: Callable[[str], object],
    ) -> None:
        """Prepare; *tell* receives one line for each change and each problem."""
        self._calls: Final = calls
        self._place: Final = place
        self._figures: Final = figures
        self._every_s: Final = every_s
        self._clock: Final = clock
        self._tell: Final = tell
        self._remembered: Remembered = {}
        self._told = ""

    async def run(self) -> None:
        """Check, repair and pause until cancelled."""
        pause_s = self._every_s
        while True:
            pause_s = self._every_s if await self.look() else min(2 * pause_s, max(_MAX_PAUSE_S, self._every_s))
            await asyncio.sleep(pause_s)

    async def look(self) -> bool:
        """Repair what is wrong; return False if the API server prevents it."""
        now = self._clock()
        try:
            kept = await keep(self._calls, self._place, now, remembered=self._remembered)
        except (ApiError, CredentialsError, UndecodableError) as e:
            self._figures.failed(str(e), now)
            self._trouble(str(e))
            return False
        is_first, self._remembered = not self._remembered, {one.secret: one.stored for one in kept.secrets}
        self._figures.looked(kept, now)
        self._report(kept, is_first=is_first)
        self._trouble("; ".join(kept.problems.values()))
        return True

    def _report(self, kept: Kept, *, is_first: bool) -> None:
        for name in kept.patched:
            self._tell(f"{name}: trusts the authority again")
        for one in kept.secrets:
            if line := told_of(one, self._place.namespace):
                self._tell(line)
            elif is_first:
                self._tell(f"Secret {self._place.namespace}/{one.secret}: {one.found.text}")

    def _trouble(self, problem: str) -> None:
        if problem and problem != self._told:
            self._tell(problem)
        elif self._told and not problem:
            self._tell("all is healthy again")
        self._told = problem


def told_of(one: HeldSecret, namespace: str) -> str:
    """Return a line about the action on a Secret, or "" if there was none."""
    if one.done is Done.KEPT:
        return ""
    return f"Secret {namespace}/{one.secret}: was {one.found.text}; {SAYS[one.done]}"
