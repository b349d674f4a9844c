"""The conformance runner: what passes, what fails, and how it says so."""

import json
from pathlib import Path

import pytest

from tests.conform import run as conform
from tests.conform.records import is_configurations, load

SAMPLE = Path(__file__).parents[2] / "data" / "vectors"
FAMILIES = sorted(path for path in SAMPLE.glob("*-*.json") if not is_configurations(path))


def altered(folder: Path, family: str, change) -> Path:
    """A copy of a sample's family with every record changed."""
    records = json.loads((SAMPLE / f"{family}.json").read_text())
    for record in records:
        change(record)
    path = folder / f"{family}.json"
    path.write_text(json.dumps(records))
    (folder / "configs.json").write_text((SAMPLE / "configs.json").read_text())
    return path


@pytest.mark.parametrize("path", FAMILIES, ids=lambda path: path.stem)
def test_the_sample_of_every_family_passes(path):
    (tally,) = conform.run(load(path)).values()
    assert tally.failures == []
    assert tally.unsupported == 0
    assert tally.passed == len(load(path))


def test_the_last_line_counts_and_the_status_is_zero(capsys):
    assert conform.main([str(SAMPLE), "--family", "gpushare-*"]) == 0
    lines = capsys.readouterr().out.splitlines()
    passed = sum(len(json.loads(path.read_text())) for path in SAMPLE.glob("gpushare-*.json"))
    assert lines[-1] == f"{passed} passed, 0 failed"
    assert lines[0].startswith("gpushare-index: ")


def _other_score(record):
    if "score" in record["output"]:
        record["output"]["score"] = 12345.0


def _refused(record):
    record["output"]["fits"] = False


def _other_entry(record):
    for key in record["output"].get("annotations", {}):
        record["output"]["annotations"][key] += "x"


@pytest.mark.parametrize("change", [_other_score, _refused, _other_entry])
def test_an_answer_unlike_upstreams_fails(tmp_path, capsys, change):
    path = altered(tmp_path, "vgpu-placement-hami-core", change)
    assert conform.main([str(path), "--json"]) == 1
    *failures, last = capsys.readouterr().out.splitlines()
    assert last.endswith(f" {len(failures)} failed")
    assert {json.loads(line)["family"] for line in failures} == {"vgpu-placement-hami-core"}


def test_a_family_goes_by_the_records_id_where_the_file_has_another_name(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text((SAMPLE / "vgpu-selectors.json").read_text())
    (tally,) = conform.run(load(path)).values()
    assert (tally.unsupported, tally.failures) == (0, [])


def test_what_is_not_spoken_yet_is_counted_as_neither(tmp_path, capsys):
    path = tmp_path / "future-protocol.json"
    path.write_text(json.dumps([{"id": "future-protocol-0001", "op": "place", "input": {}, "output": {}}]))
    assert conform.main([str(path)]) == 2
    assert capsys.readouterr().out.splitlines() == ["future-protocol: not supported: 1 records", "0 passed, 0 failed"]


def test_a_crash_is_a_failure_of_its_record_alone(tmp_path):
    path = tmp_path / "vgpu-pod-devices.json"
    records = json.loads((SAMPLE / "vgpu-pod-devices.json").read_text())
    path.write_text(json.dumps([{"id": "vgpu-pod-devices-x", "op": "pod-decode", "input": {}, "output": {}}, *records]))
    (tally,) = conform.run(load(path)).values()
    assert [one["id"] for one in tally.failures] == ["vgpu-pod-devices-x"]
    assert tally.passed == len(records)


def test_a_path_that_is_not_there_is_said_so(capsys):
    assert conform.main(["/nowhere/at/all"]) == 2
    assert "/nowhere/at/all" in capsys.readouterr().err


def test_nothing_judged_is_no_success(tmp_path, capsys):
    assert conform.main([str(tmp_path)]) == 2
    assert "nothing was judged" in capsys.readouterr().err
