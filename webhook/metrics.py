"""The webhook's metrics, and their text for Prometheus.

Reviews are counted in plain integers, which become families only at a scrape. An increment costs a tenth of that of a
labelled counter of the client library. One event loop owns the counts.
"""

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

# From a tenth of the usual duration to the longest timeout of the API server.
_LATENCIES_S: Final = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.005, 0.025, 0.1, 1.0, 10.0)
_SIZES: Final = (128.0, 256.0, 512.0, 1024.0, 4096.0, 65536.0)


class Histogram:
    """Counts of observations by upper bound."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count *value*."""
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    def buckets(self) -> list[tuple[str, float]]:
        """Return (upper bound, cumulative count) pairs for the exposition."""
        found: list[tuple[str, float]] = []
        seen = 0
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self.counts, strict=True):
            seen += count
            found.append((bound, seen))
        return found


class Metrics(Collector):
    """All metrics of one process."""

    def __init__(self) -> None:
        self.reviews: Counter[tuple[str, str, str]] = Counter()
        self.codes: Counter[str] = Counter()
        self.failures = 0
        self.reload_failures: Counter[str] = Counter()
        self.reloads: Counter[str] = Counter()
        self.configuration_refused = 0
        self.settings_from_before = 0
        self.configuration_notes = 0
        self.inventory_known = 0
        self.seconds = Histogram(_LATENCIES_S)
        self.patch_bytes = Histogram(_SIZES)
        self.previews: Counter[str] = Counter()
        self.events: Counter[str] = Counter()
        self.certificate_expires_s = 0.0
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)

    def exposition(self) -> bytes:
        """Return the text for a scrape."""
        return generate_latest(self.registry)

    def collect(self) -> Iterator[Metric]:
        """Yield the families; the registry calls this."""
        yield _counter(
            "cardshare_webhook_reviews",
            "Reviews answered, by path, operation and verdict.",
            ("path", "operation", "verdict"),
            self.reviews.items(),
        )
        yield _counter(
            "cardshare_webhook_findings",
            "Findings of rules in reviews, by code; denied or warned.",
            ("code",),
            (((code,), count) for code, count in self.codes.items()),
        )
        yield _counter("cardshare_webhook_failures", "Reviews that failed because of a bug.", (), [((), self.failures)])
        yield _counter(
            "cardshare_webhook_reloads",
            "Changed files that were applied, by kind.",
            ("what",),
            (((what,), count) for what, count in self.reloads.items()),
        )
        yield _counter(
            "cardshare_webhook_reload_failures",
            "Changed files that were rejected; the last good ones stay in use.",
            ("what",),
            (((what,), count) for what, count in self.reload_failures.items()),
        )
        yield GaugeMetricFamily(
            "cardshare_webhook_configuration_refused",
            "1 while an edit of the configuration is rejected and the last good one is in force.",
            value=self.configuration_refused,
        )
        yield GaugeMetricFamily(
            "cardshare_webhook_settings_from_before",
            "1 while this process uses settings of an earlier one, because an edit of the configuration is rejected.",
            value=self.settings_from_before,
        )
        yield GaugeMetricFamily(
            "cardshare_webhook_configuration_notes",
            "Parts of the configuration in force that are unknown or have no effect here.",
            value=self.configuration_notes,
        )
        yield GaugeMetricFamily(
            "cardshare_webhook_inventory_known",
            "1 while the cards of the cluster are known, 0 while pods that never fit are not reported.",
            value=self.inventory_known,
        )
        yield _histogram("cardshare_webhook_review_seconds", "Time to judge one review.", self.seconds)
        yield _histogram("cardshare_webhook_patch_bytes", "Size of the patches answered.", self.patch_bytes)
        yield _counter(
            "cardshare_webhook_previews",
            "Dry runs with a preview, by outcome.",
            ("outcome",),
            (((outcome,), count) for outcome, count in self.previews.items()),
        )
        yield _counter(
            "cardshare_webhook_events",
            "Events on pods with a denied write of their assignment, by outcome.",
            ("outcome",),
            (((outcome,), count) for outcome, count in self.events.items()),
        )
        yield GaugeMetricFamily(
            "cardshare_webhook_certificate_days_left",
            "Days until the served certificate expires; below 0 nothing is served.",
            value=round((self.certificate_expires_s - time.time()) / 86_400, 6),
        )
        yield GaugeMetricFamily(
            "cardshare_webhook_certificate_expires_timestamp_seconds",
            "Expiry of the served certificate, in Unix seconds.",
            value=self.certificate_expires_s,
        )


def _counter(
    name: str, text: str, labels: tuple[str, ...], values: Iterable[tuple[tuple[str, ...], int]]
) -> CounterMetricFamily:
    family = CounterMetricFamily(name, text, labels=labels)
    for found, count in values:
        family.add_metric(found, count)
    return family


def _histogram(name: str, text: str, found: Histogram) -> HistogramMetricFamily:
    family = HistogramMetricFamily(name, text)
    family.add_metric((), buckets=found.buckets(), sum_value=found.total)
    return family
