"""docs/operators/metrics.md names every metric as the processes have it: type, labels, meaning."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from certs.keeper import CertificateFigures
from cli.web.reviewed import Reviewed
from cli.web.run import Connections, PageFigures
from controller.deciding.lifecycle import Stage
from controller.documents import places
from controller.metrics import Metrics as ControllerMetrics
from controller.metrics import card_series
from controller.reporting import share_seconds
from core.card_time import CardTimePart
from core.catalog import standard_catalog
from core.ledger import Ledger
from core.settings import Settings, Tables
from kube.configuration import KINDS
from kube.reviews import Reviews
from runtime.serving import ServingFigures
from tests.support.worlds.world import node
from webhook.metrics import Metrics as WebhookMetrics

PAGE = Path(__file__).parents[2] / "docs/operators/metrics.md"
Row = tuple[str, str, str, str]


def rows(heading: str) -> list[Row]:
    """The rows of the table under one heading."""
    text = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:3] == "| `"]
    return [(name, kind, labels, meaning) for name, kind, labels, meaning in cells]


def row(name: str, kind: str, labels: Iterator[str] | tuple[str, ...], meaning: str) -> Row:
    shown = f"{name}_total" if kind == "counter" else name
    return f"`{shown}`", kind, ", ".join(f"`{label}`" for label in labels), meaning


def of_controller() -> list[Row]:
    found = [one for one in vars(ControllerMetrics()).values() if hasattr(one, "_labelnames")]
    return [row(one._name, one._type, one._labelnames, one._documentation) for one in found]


def of_webhook() -> list[Row]:
    metrics = WebhookMetrics()
    return [row(one.name, one.type, getattr(one, "_labelnames", ()), one.documentation) for one in metrics.collect()]


def of_certificates() -> list[Row]:
    families = CertificateFigures(lambda: datetime.now(UTC)).collect()
    return [row(one.name, one.type, getattr(one, "_labelnames", ()), one.documentation) for one in families]


def of_serving() -> list[Row]:
    return [
        row(one.name, one.type, getattr(one, "_labelnames", ()), one.documentation)
        for one in ServingFigures(()).collect()
    ]


def of_cards() -> list[Row]:
    ledger = Ledger(standard_catalog(), Tables(), Settings())
    ledger.set_node(node("n1"))
    text = "".join(card_series(ledger, per_pod=True))
    helped = [line.removeprefix("# HELP ").split(" ", 1) for line in text.splitlines() if line.startswith("# HELP ")]
    exposing = [one.metrics for one in standard_catalog().specs]
    labels: dict[str, tuple[str, ...]] = {one.name: one.labels for metrics in exposing for one in metrics.of_cards}
    labels |= {one.name: (*one.labels, *one.pod_labels) for metrics in exposing for one in metrics.of_pods}
    return [row(name, "gauge", labels[name], meaning) for name, meaning in helped]


def test_every_metric_of_the_controller_is_told_as_it_is():
    assert rows("Controller") == of_controller()
    assert len(of_controller()) == len(list(ControllerMetrics().registry.collect()))


def test_every_metric_of_a_port_is_told_as_it_is():
    assert rows("Serving") == of_serving()


def test_every_value_of_waiting_for_is_told():
    told = PAGE.read_text().split("\nWhat `waiting_for` says")[1].split("\nWhat `outcome` says")[0]
    assert re.findall(r"^\| `(\w+)` \|", told, re.MULTILINE) == [stage.value for stage in Stage]


def test_every_value_of_kind_is_told_and_needs_no_quotes():
    told = PAGE.read_text().split("\n`kind` is what")[1].split("\n\n")[0]
    kinds = {*KINDS, "nodes", "pods", *(place.title for place in places(standard_catalog()))}
    assert set(re.findall(r"`([^`]+)`", told)) == kinds
    assert all(re.fullmatch("[a-z-]+", kind) for kind in kinds)


def test_every_series_of_cards_is_told_as_it_is():
    assert rows("Cards") == of_cards()


def test_the_series_of_card_time_is_told_as_it_is():
    assert rows("Time of cards") == [
        row(share_seconds.NAME.removesuffix("_total"), "counter", share_seconds.LABELS, share_seconds.TEXT)
    ]
    told = PAGE.read_text().split("\n## Time of cards\n")[1].split("\n## ")[0]
    assert all(f"`{part}`" in told for part in CardTimePart)


def test_every_metric_of_the_webhook_is_told_as_it_is():
    assert rows("Webhook") == of_webhook()


def test_every_metric_of_the_keeper_of_certificates_is_told_as_it_is():
    assert rows("Certificates") == of_certificates()


def test_every_metric_of_the_page_is_told_as_it_is():
    calls: Any = None
    families = PageFigures(Connections(), Reviewed(Reviews(calls))).collect()
    assert rows("Page") == [row(one.name, one.type, (), one.documentation) for one in families]


def test_series_of_pods_are_told_to_be_off_by_default():
    settings = Settings()
    cards = PAGE.read_text().split("\n## Cards\n")[1].split("\n| ")[0]
    assert "`metrics: {per_pod: true}`" in cards
    assert "off by default" in cards
    assert not settings.metrics_per_pod


def test_metrics_to_look_at_first_are_there():
    first = PAGE.read_text().split("\n## ")[0]
    named = [piece for piece in first.split("`") if piece.startswith("cardshare_")]
    assert named
    known = {name.strip("`") for name, *_ in (*of_controller(), *of_webhook(), *of_certificates(), *of_serving())}
    assert set(named) <= known
