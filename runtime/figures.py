"""Metrics of every port for Prometheus, with the same families in every process."""

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from runtime.serving import HttpListener


class ServingFigures(Collector):
    """The metrics of some ports; a port that has not started has none."""

    def __init__(self, ports: Sequence[HttpListener]) -> None:
        self._ports = ports

    def collect(self) -> Iterator[Metric]:
        """Yield the families; the registry calls this."""
        yield self._gauge(
            "connections", "Open and arriving connections.", ((one, len(one.connections)) for one in self._ports)
        )
        yield self._gauge("in_flight", "Calls in progress.", ((one, one.busy) for one in self._ports))
        for name, text in (
            ("dropped_connections", "Connections closed for new ones, the longest idle first."),
            ("failed_handshakes", "Connections that ended before the handshake."),
        ):
            yield self._counter(name, text, ((one, getattr(one, name)) for one in self._ports))
        refused = CounterMetricFamily(
            "cardshare_serving_refused_calls", "Invalid calls, by HTTP status.", labels=("port", "status")
        )
        for one in self._ports:
            for status, count in sorted(one.refused.items()):
                refused.add_metric((one.name, str(status)), count)
        yield refused

    @staticmethod
    def _gauge(name: str, text: str, found: Iterable[tuple[HttpListener, int]]) -> Metric:
        family = GaugeMetricFamily(f"cardshare_serving_{name}", text, labels=("port",))
        for port, value in found:
            family.add_metric((port.name,), value)
        return family

    @staticmethod
    def _counter(name: str, text: str, found: Iterable[tuple[HttpListener, int]]) -> Metric:
        family = CounterMetricFamily(f"cardshare_serving_{name}", text, labels=("port",))
        for port, value in found:
            family.add_metric((port.name,), value)
        return family
