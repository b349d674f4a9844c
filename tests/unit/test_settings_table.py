"""docs/settings.md names every setting that the configuration reads, and no other."""

import re
from dataclasses import fields
from pathlib import Path

from core.settings import AdmissionSettings, Settings

TABLE = Path(__file__).parents[2] / "docs" / "settings.md"


def test_the_table_has_a_row_for_every_setting_and_no_other():
    # switched_off says what switches dialects; node_weights and groups come from volcano-scheduler.conf alone.
    told = set(re.findall(r"^\| `([a-z_.]+)` \|", TABLE.read_text(encoding="utf-8"), re.MULTILINE))
    others = {"admission", "metrics_per_pod", "node_weights", "groups", "switched_off"}
    known = {field.name for field in fields(Settings)} - others
    known |= {"metrics.per_pod"} | {f"admission.{field.name}" for field in fields(AdmissionSettings)}
    assert told == known
