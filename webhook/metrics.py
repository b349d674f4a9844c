"""What the webhook counts, and its text for Prometheus.

Reviews are counted in plain integers and only put into families when somebody scrapes: an increment costs a
tenth of what a labelled counter of the client library does. One loop owns the counts.
"""

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
# From a tenth of the usual time to the API server's longest patience.
_LATENCIES_S: Final = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.005, 0.025, 0.1, 1.0, 10.0)
_SIZES: Final = (128.0, 256.0, 512.0, 1024.0, 4096.0, 65536.0)


class Histogram:
    """Observations by upper bound."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count *value*."""
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    def add(self, counts: list[int], total: float) -> None:
        """Add the observations of another one with the same bounds."""
        self.counts = [one + other for one, other in zip(self.counts, counts, strict=True)]
        self.total += total

    def buckets(self) -> list[tuple[str, float]]:
        """(upper bound, observations up to it), as the exposition wants it."""
        found: list[tuple[str, float]] = []
        seen = 0
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self.counts, strict=True):
            seen += count
            found.append((bound, seen))
        return found


_SUMS: Final = ("failures", "dropped_connections", "failed_handshakes")
_LEVELS: Final = ("in_flight", "connections")
# What is so of all processes if it is so of one.
_HIGHEST: Final = ("configuration_refused", "configuration_notes", "inventory_known")


class Metrics(Collector):
    """All figures of one process."""

    def __init__(self) -> None:
        self.reviews: Counter[tuple[str, str, str]] = Counter()
        self.codes: Counter[str] = Counter()
        self.refused_calls: Counter[int] = Counter()
        self.failures = 0
        self.reload_failures: Counter[str] = Counter()
        self.reloads: Counter[str] = Counter()
        self.configuration_refused = 0
        self.configuration_notes = 0
        self.inventory_known = 0
        self.seconds = Histogram(_LATENCIES_S)
        self.patch_bytes = Histogram(_SIZES)
        self.in_flight = 0
        self.connections = 0
        self.dropped_connections = 0
        self.failed_handshakes = 0
        self.previews: Counter[str] = Counter()
        self.events: Counter[str] = Counter()
        self.certificate_expires_s = 0.0
        self.workers = 1
        self.worker_restarts = 0
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def exposition(self) -> bytes:
        """The text that a scrape gets."""
        return generate_latest(self._registry)

    def figures(self) -> dict[str, Any]:
        """All of it as plain values, for another process to `add`."""
        return {
            "reviews": [[*key, count] for key, count in self.reviews.items()],
            "codes": dict(self.codes),
            "refused_calls": [[status, count] for status, count in self.refused_calls.items()],
            "reload_failures": dict(self.reload_failures),
            "reloads": dict(self.reloads),
            "previews": dict(self.previews),
            "events": dict(self.events),
            "seconds": [self.seconds.counts, self.seconds.total],
            "patch_bytes": [self.patch_bytes.counts, self.patch_bytes.total],
            "certificate_expires_s": self.certificate_expires_s,
            **{name: getattr(self, name) for name in (*_SUMS, *_LEVELS, *_HIGHEST)},
        }

    def add(self, found: dict[str, Any], *, gone: bool = False) -> None:
        """Add the `figures` of another process; of one that is *gone* only what was counted, not what it held."""
        for path, operation, verdict, count in found["reviews"]:
            self.reviews[path, operation, verdict] += count
        for status, count in found["refused_calls"]:
            self.refused_calls[status] += count
        for name in ("codes", "reload_failures", "reloads", "previews", "events"):
            getattr(self, name).update(found[name])
        self.seconds.add(*found["seconds"])
        self.patch_bytes.add(*found["patch_bytes"])
        for name in _SUMS if gone else (*_SUMS, *_LEVELS):
            setattr(self, name, getattr(self, name) + found[name])
        if not gone:
            for name in _HIGHEST:
                setattr(self, name, max(getattr(self, name), found[name]))
            # The soonest is the one to act on.
            ends = [one for one in (self.certificate_expires_s, found["certificate_expires_s"]) if one]
            self.certificate_expires_s = min(ends, default=0.0)

    def collect(self) -> Iterator[Metric]:
        """The families; called by the registry."""
        yield _counter(
            "cardshare_webhook_reviews",
            "Reviews answered, by path, operation and verdict.",
            ("path", "operation", "verdict"),
            self.reviews.items(),
        )
        yield _counter(
            "cardshare_webhook_findings",
            "What rules found in reviews, by code; denied or only told.",
            ("code",),
            (((code,), count) for code, count in self.codes.items()),
        )
        yield _counter(
            "cardshare_webhook_refused_calls",
            "Calls that were no review, by HTTP status.",
            ("status",),
            (((str(status),), count) for status, count in self.refused_calls.items()),
        )
        yield _counter("cardshare_webhook_failures", "Reviews that we failed to judge.", (), [((), self.failures)])
        yield _counter(
            "cardshare_webhook_reloads",
            "Changed files taken into use, by what they are.",
            ("what",),
            (((what,), count) for what, count in self.reloads.items()),
        )
        yield _counter(
            "cardshare_webhook_reload_failures",
            "Changed files that were refused, the last good ones staying in use.",
            ("what",),
            (((what,), count) for what, count in self.reload_failures.items()),
        )
        yield GaugeMetricFamily(
            "cardshare_webhook_configuration_refused",
            "1 while an edit of the configuration is refused and the last good one in force.",
            value=self.configuration_refused,
        )
        yield GaugeMetricFamily(
            "cardshare_webhook_configuration_notes",
            "Parts of the configuration in force that are unknown or have no effect here.",
            value=self.configuration_notes,
        )
        yield GaugeMetricFamily(
            "cardshare_webhook_inventory_known",
            "1 while it is known which cards the cluster has, 0 while nothing is said about what can never fit.",
            value=self.inventory_known,
        )
        yield _histogram("cardshare_webhook_review_seconds", "Time to judge one review.", self.seconds)
        yield _histogram("cardshare_webhook_patch_bytes", "Size of the patches answered.", self.patch_bytes)
        yield GaugeMetricFamily("cardshare_webhook_in_flight", "Calls being answered.", value=self.in_flight)
        yield GaugeMetricFamily("cardshare_webhook_connections", "Connections that stand.", value=self.connections)
        for name, text in (
            ("dropped_connections", "Idle connections that were closed because there were too many."),
            ("failed_handshakes", "Connections that ended before a TLS session stood."),
            ("worker_restarts", "Workers that ended by themselves and were started again."),
        ):
            yield _counter(f"cardshare_webhook_{name}", text, (), [((), getattr(self, name))])
        yield _counter(
            "cardshare_webhook_previews",
            "Dry runs that wanted a preview, by outcome.",
            ("outcome",),
            (((outcome,), count) for outcome, count in self.previews.items()),
        )
        yield _counter(
            "cardshare_webhook_events",
            "Events on pods whose assignment a service account tried to write, by what became of them.",
            ("outcome",),
            (((outcome,), count) for outcome, count in self.events.items()),
        )
        yield GaugeMetricFamily("cardshare_webhook_workers", "Processes that answer reviews.", value=self.workers)
        yield GaugeMetricFamily(
            "cardshare_webhook_certificate_days_left",
            "Days until the served certificate ends; below 0 nothing is served.",
            value=round((self.certificate_expires_s - time.time()) / 86_400, 6),
        )
        yield GaugeMetricFamily(
            "cardshare_webhook_certificate_expires_timestamp_seconds",
            "When the served certificate ends, in Unix seconds.",
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
