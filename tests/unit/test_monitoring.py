"""deploy/monitoring speaks only of metrics and labels that the processes show, and each alert has its runbook."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.support.servers import go_tools

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "deploy/monitoring"
DASHBOARD = json.loads((MONITORING / "dashboard.json").read_text(encoding="utf-8"))
GROUPS = yaml.safe_load((MONITORING / "alerts.yaml").read_text(encoding="utf-8"))["spec"]["groups"]
ALERTS = {rule["alert"]: rule for group in GROUPS for rule in group["rules"]}
PANELS = {panel["title"]: panel for panel in DASHBOARD["panels"] if panel["type"] != "row"}
EXPRESSIONS = {
    **{name: (rule["expr"],) for name, rule in ALERTS.items()},
    **{title: tuple(target["expr"] for target in panel["targets"]) for title, panel in PANELS.items()},
}
FUNCTIONS = {"absent", "count", "histogram_quantile", "increase", "max", "min", "rate", "sum", "vector"}
WORDS = {"by", "or", "and"}


def known():
    """The labels of every series, by its name: those of docs/operators/metrics.md, which is held to the processes."""
    text = (ROOT / "docs/operators/metrics.md").read_text(encoding="utf-8")
    found: dict[str, frozenset[str]] = {}
    for name, kind, labels in re.findall(r"^\| `(\w+)` \| (counter|gauge|histogram) \|([^|]*)\|", text, re.MULTILINE):
        has = frozenset(re.findall(r"`(\w+)`", labels))
        if kind == "histogram":
            found |= {f"{name}_bucket": has | {"le"}, f"{name}_sum": has, f"{name}_count": has}
        else:
            found[name] = has
    return found


KNOWN = known()


def test_there_are_metrics_alerts_and_panels():
    assert len(KNOWN) > 50
    assert len(ALERTS) > 10
    assert len(PANELS) > 15


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_an_expression_names_series_and_labels_that_there_are(name):
    for expression in EXPRESSIONS[name]:
        series = re.findall(r"\b((?:cardshare|volcano)_\w+)", expression)
        assert series, expression
        assert set(series) <= KNOWN.keys()
        labels = {
            label
            for group in re.findall(r"by \(([^)]*)\)", expression)
            for label in (each.strip() for each in group.split(","))
        } | set(re.findall(r"[{,]\s*(\w+)\s*(?:=~|!=|=)", expression))
        assert labels <= frozenset().union(*(KNOWN[one] for one in series)), expression


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_an_expression_is_balanced_and_of_functions_that_prometheus_has(name):
    for expression in EXPRESSIONS[name]:
        bare = re.sub(r'"[^"]*"', '""', expression)
        for opening, closing in ("()", "{}", "[]"):
            assert bare.count(opening) == bare.count(closing)
        assert set(re.findall(r"\b([a-z_]+)\(", bare)) <= FUNCTIONS
        words = set(re.findall(r"\b[a-z_]+\b", re.sub(r"by \([^)]*\)|\{[^}]*\}|\[[^\]]*\]", "", bare)))
        assert words <= FUNCTIONS | WORDS | KNOWN.keys()
        # What is a counter only grows: as it is, it says nothing.
        for counter in re.findall(r"\b(cardshare_\w+(?:_total|_bucket))", bare):
            assert re.search(rf"(?:rate|increase)\({counter}", bare)


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_says_how_bad_it_is_and_leads_to_its_runbook(name):
    rule = ALERTS[name]
    assert rule["labels"]["severity"] in {"critical", "warning"}
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    assert re.search(rf"^### {name}$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
    assert anchor == name.lower()
    labels = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
    assert labels <= set(re.findall(r"by \((\w+)\)", rule["expr"]))


def test_every_runbook_is_of_an_alert():
    page = (ROOT / "docs/operators/alerts.md").read_text(encoding="utf-8")
    assert re.findall(r"^### (\w+)$", page, re.MULTILINE) == list(ALERTS)


def test_legends_name_labels_that_their_expressions_keep():
    for panel in PANELS.values():
        for target in panel["targets"]:
            kept = {label for each in re.findall(r"by \(([^)]*)\)", target["expr"]) for label in each.split(", ")}
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= kept


def test_what_is_scraped_are_ports_of_the_pods_that_run():
    monitor = yaml.safe_load((MONITORING / "podmonitor.yaml").read_text(encoding="utf-8"))["spec"]
    (wanted,) = monitor["selector"]["matchExpressions"]
    for component in wanted["values"]:
        deployment = next(yaml.safe_load_all((ROOT / f"deploy/base/{component}.yaml").read_text(encoding="utf-8")))
        template = deployment["spec"]["template"]
        labels = template["metadata"]["labels"]
        assert labels["app.kubernetes.io/component"] == component
        assert labels.items() >= monitor["selector"]["matchLabels"].items()
        ports = {port["name"] for port in template["spec"]["containers"][0]["ports"]}
        assert {each["port"] for each in monitor["podMetricsEndpoints"]} <= ports


def test_prometheus_itself_takes_the_rules(tmp_path):
    promtool = go_tools.find(go_tools.PROMTOOL, os.environ)
    if promtool is None:
        pytest.skip(
            "promtool is not here; name one with CARDSHARE_PROMTOOL, or build it: tests.support.servers.go_tools"
        )
    rules = tmp_path / "rules.yaml"
    rules.write_text(yaml.safe_dump({"groups": GROUPS}), encoding="utf-8")
    ended = subprocess.run([promtool, "check", "rules", str(rules)], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
