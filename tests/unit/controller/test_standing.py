"""What is in force of files and ConfigMaps, and what of them is refused."""

import pytest
from structlog.testing import capture_logs

from controller.config import parse, read_texts
from controller.deeds import Announce
from controller.standing import Standing
from core.errors import ConfigError
from core.settings import SHIPPED_CHIPS, DialectName, Policy, Settings
from core.wire.config_maps import ConfigMap

SPREAD = (
    "tiers:\n- plugins:\n  - name: deviceshare\n    arguments:\n      deviceshare.VGPUEnable: 'True'\n"
    "      deviceshare.SchedulePolicy: spread\n      deviceshare.Magic: 1\n"
)
NVIDIA = (
    "nvidia:\n  resourceCountName: volcano.sh/vgpu-number\n  resourceMemoryName: volcano.sh/vgpu-memory\n"
    "  resourceCoreName: volcano.sh/vgpu-cores\n  gpuMemoryFactor: 10\n"
)
CHIP = (
    "chipName: 310P3, commonWord: Ascend310P, resourceName: huawei.com/Ascend310P,"
    " resourceMemoryName: huawei.com/Ascend310P-memory, memoryAllocatable: 21527, memoryCapacity: 24576, aiCore: 8,"
    " aiCPU: 7, templates: [{name: vir01, memory: 3072, aiCore: 1, aiCPU: 1}]"
)
WRAPPED = f"vnpus:\n  hamiVnpuCore: false\n  configs:\n  - {{{CHIP}}}\n"
LISTED = f"vnpus:\n- {{{CHIP}}}\n"


def found(key: str, text: str) -> ConfigMap:
    return ConfigMap(namespace="n", name="m", texts={key: text})


def devices(text: str) -> ConfigMap:
    return found("device-config.yaml", text)


@pytest.fixture
def told():
    return []


@pytest.fixture
def standing(told):
    return Standing(parse([], {}), told.append)


def test_a_conf_in_the_cluster_is_taken_where_no_file_has_one(standing):
    assert standing.take_scheduler(found("volcano-scheduler.conf", SPREAD))
    assert standing.settings.policy is Policy.SPREAD
    assert standing.settings.dialects == {DialectName.VGPU, DialectName.WHOLE_GPU}
    assert standing.take_scheduler(None)
    assert standing.settings.policy == Settings().policy


def test_a_file_wins_over_the_cluster(tmp_path, told):
    (tmp_path / "volcano-scheduler.conf").write_text(SPREAD)
    standing = Standing(parse(["--settings", str(tmp_path)], {}), told.append)
    assert not standing.take_scheduler(found("volcano-scheduler.conf", SPREAD.replace("spread", "binpack")))
    assert standing.settings.policy is Policy.SPREAD


@pytest.mark.parametrize("bad", ["tiers: 7", "tiers: [", SPREAD.replace("spread", "sprawl")])
def test_a_bad_edit_leaves_the_last_good_one_in_force_and_is_told_once(standing, told, bad):
    standing.take_scheduler(found("volcano-scheduler.conf", SPREAD))
    version = standing.version
    assert not standing.take_scheduler(found("volcano-scheduler.conf", bad))
    assert not standing.take_scheduler(found("volcano-scheduler.conf", bad))
    assert (standing.settings.policy, standing.version) == (Policy.SPREAD, version)
    (event,) = told
    assert isinstance(event, Announce)
    assert (event.about.kind, event.about.namespace, event.about.name, event.reason) == (
        "ConfigMap",
        "volcano-system",
        "volcano-scheduler-configmap",
        "ConfigurationRefused",
    )
    assert "the last good configuration stays in force" in event.message
    assert not standing.take_scheduler(found("volcano-scheduler.conf", SPREAD))
    assert standing.refused == {}


def test_a_bad_file_leaves_the_last_good_one_in_force(tmp_path, told):
    file = tmp_path / "cardshare.yaml"
    file.write_text("policy: spread\n")
    config = parse(["--settings", str(file)], {})
    standing = Standing(config, told.append)
    file.write_text("polizy: binpack\n")
    assert not standing.take_files(read_texts(config))
    assert standing.settings.policy is Policy.SPREAD
    assert "polizy" in told[0].message
    file.write_text("policy: binpack\n")
    assert standing.take_files(read_texts(config))
    assert standing.refused == {}


def test_what_has_no_effect_is_named_once(standing):
    with capture_logs() as logs:
        standing.take_scheduler(found("volcano-scheduler.conf", SPREAD))
        standing.take_scheduler(found("volcano-scheduler.conf", SPREAD + "metrics: {}\n"))
    noted = [log["note"] for log in logs if log["event"] == "configuration has no effect"]
    assert len(noted) == len(set(noted)) == len(standing.conf.notes)
    assert any("deviceshare.Magic" in note for note in noted)


def test_device_configuration_that_is_bad_leaves_the_last_good_one_in_force(standing, told):
    assert standing.take_devices(devices(NVIDIA))
    assert not standing.take_devices(devices("nvidia:\n  gpuMemoryFactor: -1\n"))
    assert standing.tables.vgpu.memory_factor == 10
    assert told[0].about.name == "volcano-vgpu-device-config"
    assert standing.take_devices(None)
    assert standing.tables.vgpu.memory_factor == 1


@pytest.mark.parametrize("text", [NVIDIA + WRAPPED, WRAPPED + NVIDIA, NVIDIA + LISTED, LISTED + NVIDIA])
def test_both_sections_in_one_text_are_read_in_either_order_and_shape(standing, text):
    standing.take_devices(devices(text))
    assert standing.tables.vgpu.memory_factor == 10
    assert [chip.chip_name for chip in standing.tables.ascend.chips] == ["310P3"]


@pytest.mark.parametrize("first", ["devices", "chips"])
def test_both_config_maps_are_read_in_either_order(standing, first):
    takes = [
        lambda: standing.take_devices(devices(NVIDIA)),
        lambda: standing.take_chips(devices(WRAPPED + NVIDIA.replace("10", "3"))),
    ]
    for take in takes if first == "devices" else reversed(takes):
        take()
    assert standing.tables.vgpu.memory_factor == 10
    assert [chip.chip_name for chip in standing.tables.ascend.chips] == ["310P3"]


def test_a_merged_chips_map_alone_serves_both_but_not_with_hamis_own_names(standing):
    standing.take_chips(devices(WRAPPED + NVIDIA))
    assert standing.tables.vgpu.memory_factor == 10
    standing.take_chips(devices(WRAPPED + NVIDIA.replace("volcano.sh/vgpu-number", "nvidia.com/gpu")))
    assert standing.tables.vgpu.memory_factor == 1


def test_without_any_device_configuration_the_shipped_chips_count(standing):
    assert standing.tables.ascend.chips == SHIPPED_CHIPS


# The verdict, which is the condition of the controller's pod


def test_what_is_all_in_force_is_accepted(standing):
    assert (standing.verdict.accepted, standing.verdict.reason) == (True, "Accepted")


def test_notes_of_every_text_stand_in_the_verdict_with_their_place(standing):
    standing.take_scheduler(found("volcano-scheduler.conf", SPREAD))
    standing.take_devices(devices(NVIDIA + "  gpuMemoryFacto: 1\n"))
    standing.take_chips(devices(WRAPPED.replace("hamiVnpuCore", "hamiVnpu")))
    verdict = standing.verdict
    assert (verdict.accepted, verdict.reason) == (True, "AcceptedWithNotes")
    for note in (
        "volcano-scheduler.conf: plugin deviceshare: deviceshare.Magic: unknown, has no effect",
        "kube-system/volcano-vgpu-device-config: nvidia.gpuMemoryFacto: unknown",
        "kube-system/hami-scheduler-device: vnpus.hamiVnpu: unknown",
    ):
        assert note in verdict.message


def test_a_note_changes_nothing_else(standing):
    assert standing.take_devices(devices(NVIDIA))
    version = standing.version
    assert not standing.take_devices(devices(NVIDIA + "  gpuMemoryFacto: 1\n"))
    assert standing.version == version
    assert len(standing.notes) == 1


def test_a_section_that_another_text_stands_in_for_is_not_noted(standing):
    standing.take_chips(devices(WRAPPED + NVIDIA.replace("volcano.sh/vgpu-number", "nvidia.com/gpu") + "  odd: 1\n"))
    assert standing.notes == ()
    standing.take_chips(devices(WRAPPED + NVIDIA + "  odd: 1\n"))
    assert len(standing.notes) == 1
    standing.take_devices(devices(NVIDIA))
    assert standing.notes == ()


def test_a_refusal_names_every_problem_of_every_text_until_each_is_mended(standing):
    standing.take_scheduler(found("volcano-scheduler.conf", SPREAD.replace("spread", "sprawl") + "tires: 1\n"))
    standing.take_devices(devices("nvidia:\n  gpuMemoryFactor: -1\n  resourceCountName: 5\n"))
    verdict = standing.verdict
    assert (verdict.accepted, verdict.reason) == (False, "Refused")
    for text in (
        "volcano-system/volcano-scheduler-configmap: ",
        "'sprawl'",
        "kube-system/volcano-vgpu-device-config: nvidia.resourceCountName",
        "nvidia.gpuMemoryFactor: found '-1'",
        "the last good configuration stays in force",
    ):
        assert text in verdict.message
    standing.take_devices(None)
    assert not standing.verdict.accepted
    standing.take_scheduler(None)
    assert standing.verdict.reason == "Accepted"


def test_a_problem_is_told_of_the_text_that_has_it_whichever_was_edited_last(tmp_path, told):
    file = tmp_path / "cardshare.yaml"
    file.write_text("policy: spread\n")
    config = parse(["--settings", str(file)], {})
    standing = Standing(config, told.append)
    file.write_text("polizy: binpack\n")
    standing.take_files(read_texts(config))
    assert not standing.take_scheduler(found("volcano-scheduler.conf", SPREAD))
    assert [*standing.refused] == ["cardshare-system/cardshare-settings"]
    assert len(told) == 1


def test_files_that_could_not_be_read_for_a_while_are_in_force_again_unchanged(tmp_path, told):
    file = tmp_path / "cardshare.yaml"
    file.write_text("policy: spread\n")
    config = parse(["--settings", str(file)], {})
    standing = Standing(config, told.append)
    standing.refuse_files(ConfigError(["it cannot be read"]))
    assert not standing.verdict.accepted
    assert not standing.take_files(read_texts(config))
    assert standing.verdict.accepted
    assert standing.settings.policy is Policy.SPREAD


def test_the_refusal_of_a_config_map_that_is_no_longer_named_is_over(standing):
    standing.take_devices(devices("nvidia: 7\n"))
    assert not standing.verdict.accepted
    elsewhere = SPREAD.replace("Magic: 1", "KnownGeometriesCMName: other")
    standing.take_scheduler(found("volcano-scheduler.conf", elsewhere))
    standing.take_devices(None)
    assert standing.verdict.accepted


def kept_beside(tmp_path, text):
    """(the settings' file, flags that name it and what was kept, in which *text* stands)."""
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "cardshare.yaml").write_text(text)
    file = tmp_path / "cardshare.yaml"
    return file, parse(["--settings", str(file), "--last-good", str(kept)], {})


def test_a_start_with_settings_that_are_refused_runs_on_those_that_were_kept_and_says_so(tmp_path, told):
    file, config = kept_beside(tmp_path, "policy: spread\n")
    file.write_text("polizy: binpack\n")
    with capture_logs() as logs:
        standing = Standing(config, told.append)
    assert (standing.settings.policy, standing.from_before, standing.good) == (Policy.SPREAD, True, None)
    (line,) = [one for one in logs if one["log_level"] == "error"]
    assert line["event"].startswith("SETTINGS REFUSED")
    assert "polizy" in line["reason"]
    assert not standing.verdict.accepted
    assert "from before this process began" in standing.verdict.message
    assert [one.reason for one in standing.announcements()] == ["ConfigurationRefused"]
    # What else is followed does not pass for the operator's correction.
    standing.take_scheduler(None)
    assert (standing.from_before, standing.verdict.accepted) == (True, False)
    assert not standing.take_files(read_texts(config))
    assert (standing.settings.policy, standing.from_before) == (Policy.SPREAD, True)
    file.write_text("policy: binpack\n")
    assert standing.take_files(read_texts(config))
    assert (standing.settings.policy, standing.from_before, standing.refused) == (Policy.BINPACK, False, {})
    assert standing.good == read_texts(config)


@pytest.mark.parametrize("kept", ["polizy: spread\n", None], ids=["bad", "none"])
def test_a_start_without_any_good_settings_ends_with_every_problem(tmp_path, told, kept):
    file, config = kept_beside(tmp_path, kept or "")
    if kept is None:
        (tmp_path / "kept" / "cardshare.yaml").unlink()
    file.write_text("policy: 7\n")
    with pytest.raises(ConfigError, match="policy"):
        Standing(config, told.append)


def test_good_settings_are_what_is_kept(tmp_path, told):
    file, config = kept_beside(tmp_path, "policy: spread\n")
    file.write_text("policy: binpack\n")
    standing = Standing(config, told.append)
    assert (standing.settings.policy, standing.from_before) == (Policy.BINPACK, False)
    assert standing.good is not None
    assert standing.good.own == "policy: binpack\n"
    file.write_text("policy: [\n")
    standing.take_files(read_texts(config))
    assert standing.good.own == "policy: binpack\n"
