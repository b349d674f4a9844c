"""docs/operators/webhook.md and controller.md have every flag as the processes take it, and every metric and path."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from cli.web import run as web_options
from controller import __main__ as controller_main
from controller.config import Config
from controller.config import parse as parse_config
from controller.reporting.extender import PATH as FILTER
from controller.reporting.serve import (
    AUDIT,
    EXPLAIN,
    HELD,
    HISTORY,
    HISTORY_OF_PODS,
    PACKING,
    PREVIEW,
    SHADOW,
    SIMULATE,
)
from core.errors import ConfigError
from runtime.flags import declared
from tests.support.servers import realapi
from webhook import options as webhook_options
from webhook.metrics import Metrics

FOLDER = Path(__file__).parents[2] / "docs/operators"
WEBHOOK = (FOLDER / "webhook.md").read_text(encoding="utf-8")
WEB = (FOLDER / "web.md").read_text(encoding="utf-8")
CONTROLLER = (FOLDER / "controller.md").read_text(encoding="utf-8")


def rows(page: str) -> list[list[str]]:
    """The cells of every row that begins with a flag."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line[:5] == "| `--"]


def flags_in(cell: str) -> list[str]:
    return re.findall(r"`(--[a-z-]+)", cell)


def told(page: str) -> list[str]:
    return [flag for row in rows(page) for flag in flags_in(row[0])]


def defaults(page: str, column: int) -> Mapping[str, str]:
    return {flags_in(row[0])[0]: row[column].strip("`") for row in rows(page)}


@pytest.mark.parametrize(
    ("page", "options", "column"),
    [(WEBHOOK, webhook_options.Options, 1), (CONTROLLER, Config, 2), (WEB, web_options.Options, 2)],
    ids=["webhook", "controller", "web"],
)
def test_every_flag_is_told_once_with_its_default_and_no_other(page: str, options: type, column: int):
    defaults_told = {flag.name: flag.default for flag in declared(options).values()}
    assert sorted(told(page)) == sorted(defaults_told)
    if options is Config:
        defaults_told["--identity"] = "the host's name"
    assert {flag: text for flag, text in defaults(page, column).items() if text} == {
        flag: text for flag, text in defaults_told.items() if text
    }


def test_bad_flags_of_the_page_are_listed_at_once():
    with pytest.raises(ConfigError) as caught:
        web_options.parse(["--listen", "x", "--settings-map", "y", "--log-format", "z"], {"CARDSHARE_CERT_DIR": ""})
    assert [problem.partition(" ")[0] for problem in caught.value.problems] == [
        "--listen", "--cert-dir", "--settings-map", "--log-format",
    ]  # fmt: skip


@pytest.mark.parametrize("row", rows(CONTROLLER), ids=lambda row: flags_in(row[0])[0])
def test_a_variable_of_the_controller_stands_for_its_flag(row: list[str], tmp_path: Path):
    (flag,), (variable,) = flags_in(row[0]), re.findall(r"`(CARDSHARE_\w+)`", row[1])
    values = {"--listen": ":1", "--preview-listen": ":2", "--pod": "a/b", "--lease": "a/b"}
    values |= {
        "--keep-last-good": "a/b",
        "--keep-history": "a/b",
        "--hami-config": "a/b",
        "--shadow": "true",
        "--log-format": "logfmt",
    }
    values |= {"--kueue": "true", "--extender-listen": ":3"}
    values |= {"--lease-duration": "16", "--lease-renew-deadline": "9", "--lease-retry-period": "1"}
    value = values.get(flag, "something")
    beside = [] if flag == "--cert-dir" else ["--cert-dir", str(tmp_path)]
    beside += [] if flag == "--extender-client-ca" else ["--extender-client-ca", str(tmp_path)]
    by_flag = parse_config([flag, value, *beside], {})
    assert parse_config(beside, {variable: value}) == by_flag != parse_config(beside, {})


def test_every_path_of_the_controller_and_every_exit_code_is_told():
    paths = {"/healthz", "/readyz", "/metrics", PREVIEW, AUDIT, PACKING, HELD, SHADOW, HISTORY, FILTER, SIMULATE}
    paths |= {f"{path}/NAMESPACE/POD" for path in (EXPLAIN, HISTORY_OF_PODS)}
    assert set(re.findall(r"`(?:GET|POST) (/[^`]+)`", CONTROLLER)) == paths
    codes = {controller_main._OK, controller_main._BAD_CONFIGURATION, controller_main._WE_ARE_WRONG}
    # 1 is Python's own too, for what nothing caught.
    assert {int(code) for code in re.findall(r"^\| (\d) \|", CONTROLLER, re.MULTILINE)} == {
        *codes,
        controller_main._LEASE_LOST,
    }


def test_every_figure_of_the_webhook_is_told():
    figures = WEBHOOK.partition("\n**Figures**")[2].partition("\n## ")[0]
    names = [
        name
        for line in figures.splitlines()
        if line[:3] == "| `"
        for name in re.findall(r"`(\w+)`", line.split("|")[1])
    ]
    made = [f"{one.name}_total" if one.type == "counter" else one.name for one in Metrics().collect()]
    assert sorted(f"cardshare_webhook_{name}" for name in names) == sorted(made)


def test_the_files_by_which_an_api_server_proves_who_it_is_are_those_of_the_tests():
    admission, kubeconfig = [yaml.safe_load(block.partition("```")[0]) for block in WEBHOOK.split("```yaml\n")[1:]]
    assert admission == realapi.admission_configuration("/etc/kubernetes/webhooks.kubeconfig")
    assert kubeconfig == realapi.webhook_kubeconfig("...", "...")
