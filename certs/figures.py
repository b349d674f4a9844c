"""Reports the state of ``python -m certs run``: metrics for Prometheus, and a condition in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from certs.cluster import Done, Kept
from certs.pair import end_of, signer_of
from runtime.calls import Call, Plain, Reply

_DAY: Final = timedelta(days=1)
_NOT_YET: Final = "nothing was looked at yet"


class Reason(StrEnum):
    """The reason of the condition."""

    STARTING = "Starting"
    KEPT = "Kept"
    UNTRUSTED = "Untrusted"
    FAILING = "Failing"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptVerdict:
    """Whether certificates are valid and trusted; the message gives their expiry or the problem."""

    reason: Reason
    message: str

    @property
    def accepted(self) -> bool:
        """Whether all is well."""
        return self.reason is Reason.KEPT


class Figures(Collector):
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
        self._plain = Plain(lambda: [self.trouble] if self.trouble else [], lambda: generate_latest(self.registry))

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

    def verdict(self) -> KeptVerdict:
        """Return the state for the pod's condition."""
        ends = "; ".join(f"{name} until {end:%Y-%m-%d}" for name, end in self._ends.items())
        if self._failing:
            reason = Reason.FAILING
        elif not self._looked_s:
            reason = Reason.STARTING
        else:
            reason = Reason.UNTRUSTED if self.trouble else Reason.KEPT
        return KeptVerdict(reason=reason, message=self.trouble or ends)

    def answer(self, call: Call) -> Reply:
        """Answer a call on the plain port: see `runtime.calls.Plain`."""
        return self._plain.answer(call)

    def collect(self) -> Iterator[Metric]:
        """Yield the families; the registry calls this."""
        now = self._clock()
        days = GaugeMetricFamily(
            "cardshare_certs_days_left",
            "Days until the certificate in a Secret expires: the authority's, or a serving one.",
            labels=("secret",),
        )
        for name, end in self._ends.items():
            days.add_metric((name,), round((end - now) / _DAY, 6))
        yield days
        writes = CounterMetricFamily(
            "cardshare_certs_writes",
            "Writes of Secrets, by kind: made, put_back, taken_over or completed.",
            labels=("secret", "what"),
        )
        for found, count in self._writes.items():
            writes.add_metric(found, count)
        yield writes
        repairs = CounterMetricFamily(
            "cardshare_certs_bundle_writes",
            "Webhook configurations that were corrected to trust the authority.",
            labels=("configuration",),
        )
        for name, count in self._repairs.items():
            repairs.add_metric((name,), count)
        yield repairs
        trusts = GaugeMetricFamily(
            "cardshare_certs_bundle_right",
            "1 if, at the last check, all entries of a webhook configuration that call the webhook trusted the "
            "authority.",
            labels=("configuration",),
        )
        for name, is_right in self._trusts.items():
            trusts.add_metric((name,), is_right)
        yield trusts
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
