"""deploy/monitoring speaks only of metrics and labels that the processes show, and each alert has its runbook."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from prometheus_client import generate_latest

from controller.metrics import Metrics
from tests.support.servers import go_tools

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "deploy/monitoring"
DASHBOARD = json.loads((MONITORING / "dashboard.json").read_text(encoding="utf-8"))
GROUPS = yaml.safe_load((MONITORING / "alerts.yaml").read_text(encoding="utf-8"))["spec"]["groups"]
ALERTS = {rule["alert"]: rule for group in GROUPS for rule in group["rules"]}
CASES = yaml.safe_load((ROOT / "tests/data/alerts.yaml").read_text(encoding="utf-8"))
BASE = [
    one
    for path in (ROOT / "deploy/base").glob("*.yaml")
    for one in yaml.safe_load_all(path.read_text(encoding="utf-8"))
    if "metadata" in one
]
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
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    assert re.search(rf"^### {name}$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
    assert anchor == name.lower()
    labels = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
    assert labels <= set(re.findall(r"by \((\w+)\)", rule["expr"]))


def test_the_page_puts_an_address_before_every_runbook():
    page = (ROOT / "docs/operators/alerts.md").read_text(encoding="utf-8")
    (expression,) = re.findall(r"^sed '([^']+)' deploy/monitoring/alerts\.yaml", page, re.MULTILINE)
    rules = (ROOT / "deploy/monitoring/alerts.yaml").read_text(encoding="utf-8")
    sed = shutil.which("sed")
    assert sed is not None
    done = subprocess.run([sed, expression], input=rules, capture_output=True, text=True, check=True)
    (group,) = yaml.safe_load(done.stdout)["spec"]["groups"]
    base = "https://git.example.com/cardshare/blob/main/"
    told = {rule["alert"]: rule["annotations"]["runbook_url"] for rule in group["rules"]}
    assert told == {name: base + rule["annotations"]["runbook_url"] for name, rule in ALERTS.items()}


def test_every_runbook_is_of_an_alert():
    page = (ROOT / "docs/operators/alerts.md").read_text(encoding="utf-8")
    assert re.findall(r"^### (\w+)$", page, re.MULTILINE) == list(ALERTS)


def test_a_rate_that_an_alert_compares_with_zero_is_shown_from_the_start():
    compared = [
        one for rule in ALERTS.values() for one in re.findall(r"rate\((\w+\{[^}]*\})\[\w+\]\)\) == 0", rule["expr"])
    ]
    shown = generate_latest(Metrics().registry).decode()
    assert compared
    assert [one for one in compared if f"\n{one} 0.0\n" not in shown] == []


def test_legends_name_labels_that_their_expressions_keep():
    for panel in PANELS.values():
        for target in panel["targets"]:
            kept = {label for each in re.findall(r"by \(([^)]*)\)", target["expr"]) for label in each.split(", ")}
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= kept


def test_what_is_scraped_are_ports_of_the_pods_that_run():
    monitor = yaml.safe_load((MONITORING / "podmonitor.yaml").read_text(encoding="utf-8"))["spec"]
    (wanted,) = monitor["selector"]["matchExpressions"]
    assert set(wanted["values"]) == {"controller", "webhook", "certs-keeper"}
    for component in wanted["values"]:
        (deployment,) = [
            one for one in BASE if (one["kind"], one["metadata"]["name"]) == ("Deployment", f"cardshare-{component}")
        ]
        template = deployment["spec"]["template"]
        labels = template["metadata"]["labels"]
        assert labels["app.kubernetes.io/component"] == component
        assert labels.items() >= monitor["selector"]["matchLabels"].items()
        ports = {port["name"] for port in template["spec"]["containers"][0]["ports"]}
        assert {each["port"] for each in monitor["podMetricsEndpoints"]} <= ports


@pytest.fixture(scope="module")
def promtool(tmp_path_factory):
    """Runs promtool on files beside the rules, and answers what it said if it found fault with them."""
    program = go_tools.find(go_tools.PROMTOOL, os.environ)
    if program is None:
        pytest.skip(
            "promtool is not here; name one with CARDSHARE_PROMTOOL, or build it: tests.support.servers.go_tools"
        )
    folder = tmp_path_factory.mktemp("rules")
    (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": GROUPS}), encoding="utf-8")

    def run(*command, **files):
        for name, content in files.items():
            (folder / f"{name}.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
        ended = subprocess.run([program, *command], cwd=folder, capture_output=True, text=True, check=False)
        return "" if ended.returncode == 0 else ended.stdout + ended.stderr

    return run


def test_prometheus_itself_takes_the_rules(promtool):
    assert promtool("check", "rules", "rules.yaml") == ""


def looked_at(name, series, *told):
    """One of promtool's unit tests: *told* of alert *name*, and of no other, when it is looked at."""
    given = [{"series": one, "values": values} for one, values in series.items()]
    asked = [{"alertname": name, "eval_time": CASES[name]["at"], "exp_alerts": list(told)}]
    return {"interval": "1m", "input_series": given, "alert_rule_test": asked}


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_fires_for_what_it_says_and_for_nothing_less(promtool, name):
    case = CASES[name]
    annotations = {"summary": case["summary"], "runbook_url": ALERTS[name]["annotations"]["runbook_url"]}
    told = {"exp_labels": {**ALERTS[name]["labels"], **case.get("labels", {})}, "exp_annotations": annotations}
    tests = [looked_at(name, case["fires"], told), looked_at(name, case["silent"])]
    assert promtool("test", "rules", "tests.yaml", tests={"rule_files": ["rules.yaml"], "tests": tests}) == ""
    # Looked at before its time has passed, it is silent: else nothing here would tell how long it waits.
    if ALERTS[name]["for"] != "0m":
        early = {**looked_at(name, case["fires"]), "interval": "1m"}
        early["alert_rule_test"][0]["eval_time"] = "0m"
        assert promtool("test", "rules", "tests.yaml", tests={"rule_files": ["rules.yaml"], "tests": [early]}) == ""


def test_no_leader_is_told_where_no_controller_is_scraped_too(promtool):
    rule = ALERTS["CardshareNoLeader"]
    told = {"exp_labels": rule["labels"], "exp_annotations": rule["annotations"]}
    tests = [looked_at("CardshareNoLeader", {}, told)]
    assert promtool("test", "rules", "tests.yaml", tests={"rule_files": ["rules.yaml"], "tests": tests}) == ""
