"""The webhook's metrics, and their text for Prometheus.

Reviews are counted in plain integers, which become families only at a scrape. An increment costs a tenth of that of a
labelled counter of the client library. One event loop owns the counts.
"""

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from runtime.serving import family

# From a tenth of the usual duration to the longest timeout of the API server.
_LATENCIES_S: Final = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.005, 0.025, 0.1, 1.0, 10.0)
_SIZES: Final = (128.0, 256.0, 512.0, 1024.0, 4096.0, 65536.0)
# Attribute, name, text and labels.
_COUNTERS: Final = (
    ("reviews", "reviews", "Reviews answered, by path, operation and verdict.", "path", "operation", "verdict"),
    ("codes", "findings", "Findings of rules in reviews, by code; denied or warned.", "code"),
    ("failures", "failures", "Reviews that failed because of a bug."),
    ("reloads", "reloads", "Changed files that were applied, by kind.", "what"),
    (
        "reload_failures",
        "reload_failures",
        "Changed files that were rejected; the last good ones stay in use.",
        "what",
    ),
    ("previews", "previews", "Dry runs with a preview, by outcome.", "outcome"),
    ("events", "events", "Events on pods with a denied write of their assignment, by outcome.", "outcome"),
)
# Name, also of the attribute, and text.
_GAUGES: Final = (
    (
        "configuration_refused",
        "1 while an edit of the configuration is rejected and the last good one is in force.",
    ),
    (
        "settings_from_before",
        "1 while this process uses settings of an earlier one, because an edit of the configuration is rejected.",
    ),
    ("configuration_notes", "Parts of the configuration in force that are unknown or have no effect here."),
    (
        "inventory_known",
        "1 while the cards of the cluster are known, 0 while pods that never fit are not reported.",
    ),
)


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
        for attribute, name, text, *labels in _COUNTERS:
            values = getattr(self, attribute)
            counted = values.items() if labels else [((), values)]
            keyed = [(key if isinstance(key, tuple) else (key,), count) for key, count in counted]
            yield family(CounterMetricFamily, f"cardshare_webhook_{name}", text, labels, keyed)
        for name, text in _GAUGES:
            yield GaugeMetricFamily(f"cardshare_webhook_{name}", text, value=getattr(self, name))
        yield _histogram("cardshare_webhook_review_seconds", "Time to judge one review.", self.seconds)
        yield _histogram("cardshare_webhook_patch_bytes", "Size of the patches answered.", self.patch_bytes)
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


def _histogram(name: str, text: str, found: Histogram) -> HistogramMetricFamily:
    family = HistogramMetricFamily(name, text)
    family.add_metric((), buckets=found.buckets(), sum_value=found.total)
    return family
