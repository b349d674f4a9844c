"""docs/settings.md and the chart's schema name every setting that the configuration reads, and no other."""

import json
import re
from dataclasses import fields
from pathlib import Path

from core.settings import AdmissionSettings, Settings

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "docs" / "settings.md"
SCHEMA = ROOT / "deploy" / "chart" / "values.schema.json"
# The chart writes these, because its policies and rights repeat them: it has values of its own for them.
OF_OTHER_VALUES = {"scheduler_names", "hami_config_name", "hami_config_namespace", "admission.other_schedulers"}


def known():
    # switched_off says what switches dialects; node_weights and groups come from volcano-scheduler.conf alone.
    others = {"admission", "metrics_per_pod", "node_weights", "groups", "switched_off"}
    found = {field.name for field in fields(Settings)} - others
    return found | {"metrics.per_pod"} | {f"admission.{field.name}" for field in fields(AdmissionSettings)}


def test_the_table_has_a_row_for_every_setting_and_no_other():
    assert set(re.findall(r"^\| `([a-z_.]+)` \|", TABLE.read_text(encoding="utf-8"), re.MULTILINE)) == known()


def test_the_chart_takes_every_setting_that_it_does_not_write_itself_and_no_misspelt_one():
    def keys(of, place=""):
        assert of["additionalProperties"] is False
        for key, below in of["properties"].items():
            yield from {place + key} if below is True else keys(below, f"{place}{key}.")

    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    assert set(keys(schema["properties"]["settings"])) == known() - OF_OTHER_VALUES
