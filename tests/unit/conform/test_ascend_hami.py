"""The checks of Ascend records fail where the core would answer unlike upstream."""

import json
from pathlib import Path

import pytest

from tests.conform import run as conform

SAMPLE = Path(__file__).parents[2] / "data" / "vectors"


def other_devices(record):
    for key, value in record["output"].get("annotations", {}).items():
        record["output"]["annotations"][key] = value.replace(",0:", ",1:")


def refused(record):
    if "fits" in record["output"]:
        record["output"]["fits"] = not record["output"]["fits"]


def other_score(record):
    if "score" in record["output"]:
        record["output"]["score"] += 1


def other_usage(record):
    for one in record["output"].get("usage_before", ()):
        one["mem"] += 1


def other_request(record):
    for one in record["output"].get("requests", ()):
        one["mem"] += 1


def other_template(record):
    if "template" in record["output"]:
        record["output"]["template"] += "x"


def other_device(record):
    for one in record["output"].get("devices") or ():
        one["devmem"] = 7


def other_segment(record):
    for segment in record["output"].get("nonempty_segments", ()):
        segment.reverse()
        segment.append(segment[0])


def other_steps(record):
    for step in record["output"]["steps"]:
        if "fits" in step:
            step["fits"] = False


@pytest.mark.parametrize(
    ("family", "change"),
    [
        ("ascend-hami-placement", other_devices),
        ("ascend-hami-placement", refused),
        ("ascend-hami-placement", other_score),
        ("ascend-hami-placement", other_usage),
        ("ascend-hami-requests", other_request),
        ("ascend-hami-requests", other_template),
        ("ascend-hami-register", other_device),
        ("ascend-hami-pod-devices", other_segment),
        ("ascend-hami-sequences", other_steps),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_an_answer_unlike_upstreams_fails(tmp_path, capsys, family, change):
    records = json.loads((SAMPLE / f"{family}.json").read_text())
    for record in records:
        change(record)
    (tmp_path / f"{family}.json").write_text(json.dumps(records))
    (tmp_path / "configs.json").write_text((SAMPLE / "configs.json").read_text())
    assert conform.main([str(tmp_path)]) == 1
    assert not capsys.readouterr().out.splitlines()[-1].endswith(" 0 failed")
