import asyncio

import pytest
from structlog.testing import capture_logs

from core.catalog import standard_catalog
from core.errors import ConfigError
from core.settings import Policy
from webhook.configuration import Texts, judge, lacks_settings, read
from webhook.metrics import Metrics
from webhook.options import parse
from webhook.standing import Standing


def test_a_file_is_our_own_settings(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("policy: spread\n")
    assert read(file, None) == Texts(settings="policy: spread\n")


def test_a_directory_is_a_mounted_config_map(tmp_path):
    (tmp_path / "cardshare.yaml").write_text("policy: spread\n")
    (tmp_path / "volcano-scheduler.conf").write_text("tiers: []\n")
    (tmp_path / "device-config.yaml").write_text("nvidia: {}\n")
    assert read(tmp_path, tmp_path) == Texts(
        settings="policy: spread\n", scheduler="tiers: []\n", devices="nvidia: {}\n"
    )


def test_a_mounted_config_map_may_lack_either_key(tmp_path):
    assert read(tmp_path, None) == Texts()


def test_problems_and_notes_name_the_path(tmp_path):
    for name, text in (("cardshare.yaml", "polcy: 1"), ("volcano-scheduler.conf", "actoins: x"), ("d.yaml", "x: [")):
        (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError) as caught:
        judge(read(tmp_path, tmp_path / "d.yaml"), standard_catalog(), 1)
    assert [one.partition(": ")[0] for one in caught.value.problems] == [
        str(tmp_path / "cardshare.yaml"),
        str(tmp_path / "d.yaml"),
    ]
    (tmp_path / "cardshare.yaml").unlink()
    (note,) = judge(read(tmp_path, None), standard_catalog(), 1).notes
    assert note.startswith(f"{tmp_path / 'volcano-scheduler.conf'}: actoins: unknown")


def test_a_directory_without_our_settings_is_told(tmp_path):
    assert lacks_settings(tmp_path)
    (tmp_path / "cardshare.yaml").touch()
    assert not lacks_settings(tmp_path)
    assert not lacks_settings(None)


def test_every_file_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError) as caught:
        read(tmp_path / "binary", tmp_path / "absent")
    assert len(caught.value.problems) == 2


def test_our_own_settings_win_over_the_schedulers():
    texts = Texts(
        settings="policy: spread\n",
        scheduler="tiers:\n- plugins:\n  - name: deviceshare\n    arguments: {deviceshare.VGPUEnable: true}\n",
        devices="nvidia:\n  resourceCountName: a.b/n\n",
    )
    book = judge(texts, standard_catalog(), 7).book
    assert (book.settings.policy, book.tables.version) == (Policy.SPREAD, 7)
    assert "a.b/n" in book.resources


def test_the_problems_of_all_texts_are_told_at_once():
    with pytest.raises(ConfigError) as caught:
        judge(Texts(settings="x: 1", scheduler="tiers: 5", devices="nvidia: 5"), standard_catalog(), 1)
    places = [problem.partition(":")[0] for problem in caught.value.problems]
    assert places == ["volcano-scheduler.conf", "cardshare.yaml", "device-config.yaml"]


@pytest.mark.parametrize(
    ("annotations", "problem"),
    [
        ("{}", "node_kinds.a: it has no cards; copy labels, annotations and capacity of a node that has"),
        ("{volcano.sh/node-vgpu-register: x}", "node_kinds.a: annotation volcano.sh/node-vgpu-register: found 'x'; "),
    ],
)
def test_a_kind_of_node_that_nobody_can_read_is_a_problem_of_the_settings(annotations, problem):
    have = "{volcano.sh/vgpu-number: 1, volcano.sh/vgpu-memory: 1, volcano.sh/vgpu-cores: 1}"
    text = f"node_kinds: {{a: {{annotations: {annotations}, capacity: {have}}}}}"
    with pytest.raises(ConfigError) as caught:
        judge(Texts(settings=text), standard_catalog(), 0)
    (told,) = caught.value.problems
    assert problem in told


def standing_of(tmp_path, *flags):
    options = parse(["--cert-dir", "c", "--settings", str(tmp_path / "edited"), *flags], {})
    metrics = Metrics()
    return Standing(options, standard_catalog(), metrics), metrics


def test_a_start_with_settings_that_are_refused_judges_by_those_that_were_kept_and_says_so(tmp_path):
    edited, kept = tmp_path / "edited", tmp_path / "kept"
    for folder, text in ((edited, "polizy: spread\n"), (kept, "scheduler_names: [night]\n")):
        folder.mkdir()
        (folder / "cardshare.yaml").write_text(text)
    with pytest.raises(ConfigError, match="polizy"):
        standing_of(tmp_path)
    with capture_logs() as logs:
        standing, metrics = standing_of(tmp_path, "--last-good", str(kept))
    (line,) = [one for one in logs if one["log_level"] == "error"]
    assert (line["event"].startswith("SETTINGS REFUSED"), "polizy" in line["error"]) == (True, True)
    assert (standing.book.settings.scheduler_names, metrics.configuration_refused) == (("night",), 1)
    assert not asyncio.run(standing.look())
    assert (standing.book.settings.scheduler_names, metrics.configuration_refused) == (("night",), 1)
    (edited / "cardshare.yaml").write_text("scheduler_names: [day]\n")
    assert asyncio.run(standing.look())
    assert (standing.book.settings.scheduler_names, metrics.configuration_refused) == (("day",), 0)


def test_what_was_kept_and_cannot_be_used_either_is_no_help(tmp_path):
    for folder in ("edited", "kept"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "cardshare.yaml").write_text("polizy: spread\n")
    with pytest.raises(ConfigError, match=r"edited/cardshare\.yaml"):
        standing_of(tmp_path, "--last-good", str(tmp_path / "kept"))
