"""What is in force of texts as they come, and what of them is refused."""

from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from core.catalog import standard_catalog
from core.configuration import SCHEDULER_MAP, Source, Text, decode, hami_map
from core.dialects.hami_vendors.table import VendorNames
from core.dialects.vgpu.table import VgpuTable
from core.errors import ConfigError
from core.settings import Policy, Settings
from runtime.configuration import ActiveConfiguration
from runtime.files import Files

SPREAD = "tiers: [{plugins: [{name: deviceshare, arguments: {deviceshare.SchedulePolicy: spread}}]}]\n"
NVIDIA = "nvidia: {gpuMemoryFactor: 10}\n"
DEVICE_MAP = "kube-system/volcano-vgpu-device-config"
OWN_MAP = "cardshare-system/cardshare-settings"


def scheduler(content, name=SCHEDULER_MAP):
    return decode(Text(source=Source.SCHEDULER_MAP, config_map=name, content=content), standard_catalog())


def devices(content, name=DEVICE_MAP):
    return decode(Text(source=Source.DEVICE_MAP, config_map=name, content=content), standard_catalog())


class World:
    """Files and what is in force of them."""

    def __init__(self, folder):
        self.folder, self.told = folder, []
        for name in ("edited", "kept"):
            (folder / name).mkdir()
        self.files = Files(settings=folder / "edited", last_good=folder / "kept")

    def edit(self, content, key="cardshare.yaml"):
        (self.folder / "edited" / key).write_text(content)

    def keep(self, content, key="cardshare.yaml"):
        (self.folder / "kept" / key).write_text(content)

    def start(self):
        found = ActiveConfiguration(self.files, standard_catalog())
        found.tell_refusals(lambda name, why: self.told.append((name, why)))
        return found

    def start_again(self, active):
        """A start with what *active* saves, before ConfigMaps are read."""
        for source, content in active.good.items():
            self.keep(content, source)
        return self.start()

    def look(self, active):
        return [active.take(active.decode(text)) for text in self.files.read()]


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def test_a_file_is_our_own_settings(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("policy: spread\n")
    (found,) = Files(settings=file).read()
    assert (found.source, found.path, found.content) == (Source.OWN, str(file), "policy: spread\n")


def test_a_directory_is_a_mounted_config_map_and_may_lack_any_key(world):
    world.files = Files(settings=world.folder / "edited", devices=world.folder / "edited")
    assert [found.content for found in world.files.read()] == ["", "", ""]
    for key in ("cardshare.yaml", "volcano-scheduler.conf", "device-config.yaml"):
        world.edit(f"# {key}", key)
    assert [found.content for found in world.files.read()] == [
        "# cardshare.yaml",
        "# volcano-scheduler.conf",
        "# device-config.yaml",
    ]


def test_every_file_that_cannot_be_read_is_named_at_a_start(tmp_path):
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    absent, long = tmp_path / "absent", tmp_path / ("a" * 300)
    for settings, devices, expected in (
        (tmp_path / "binary", absent, ["binary: it is not UTF-8 text", "absent: there is no such file"]),
        (long, long, [f"{long.name}: it cannot be read: File name too long"] * 2),
    ):
        with pytest.raises(ConfigError) as caught:
            ActiveConfiguration(Files(settings=settings, devices=devices, last_good=long), standard_catalog())
        assert list(caught.value.problems) == [f"{tmp_path}/{one}" for one in expected]


def test_a_file_that_is_too_long_is_refused_and_not_read_on(world):
    world.edit("#" * (2**20 + 1))
    with pytest.raises(ConfigError, match="it is longer than 1048576 bytes"):
        world.start()


def test_the_problems_of_all_files_are_told_at_once(world):
    world.edit("policy: sideways\nunheard: of\n")
    world.edit("tiers: 5\n", "volcano-scheduler.conf")
    with pytest.raises(ConfigError) as caught, capture_logs() as logs:
        world.start()
    assert len(caught.value.problems) == 3
    assert not logs, "nothing was in force before that could stay so"


def test_a_directory_without_our_settings_is_told(world):
    with capture_logs() as logs:
        world.start()
    assert [one["event"] for one in logs] == ["no cardshare.yaml there; its defaults are in force"]


def test_a_bad_edit_leaves_the_last_good_one_in_force_and_is_told_once(world):
    world.edit("policy: spread\n")
    active = world.start()
    version = active.version
    world.edit("polizy: binpack\n")
    with capture_logs() as logs:
        assert world.look(active) == world.look(active) == [False, False]
    assert [one["event"] for one in logs] == ["configuration refused; the last good one stays in force"]
    assert (active.settings.policy, active.version) == (Policy.SPREAD, version)
    ((name, why),) = world.told
    assert (name, "polizy" in why) == (OWN_MAP, True)
    world.edit("policy: binpack\n")
    assert any(world.look(active))
    assert (active.refused, active.settings.policy) == ({}, Policy.BINPACK)


def test_a_text_that_is_refused_holds_up_no_other(world):
    active = world.start()
    assert active.take(devices(NVIDIA))
    world.edit("polizy: binpack\n")
    world.look(active)
    assert active.take(scheduler(SPREAD))
    assert (active.settings.policy, active.tables.of(VgpuTable).named.mib_per_unit) == (Policy.SPREAD, 10)
    assert [*active.refused] == [OWN_MAP]
    assert not active.take(devices("nvidia: {gpuMemoryFactor: -1}\n"))
    assert active.tables.of(VgpuTable).named.mib_per_unit == 10
    assert [*active.refused] == [OWN_MAP, DEVICE_MAP]
    assert active.take(devices(""))
    assert (active.tables.of(VgpuTable).named.mib_per_unit, [*active.refused]) == (1, [OWN_MAP])


def test_both_files_of_one_config_map_are_one_refusal(world):
    active = world.start()
    world.edit("policy: sideways\n")
    world.edit("tiers: 5\n", "volcano-scheduler.conf")
    world.look(active)
    (why,) = active.refused.values()
    assert ("sideways" in why, "tiers" in why) == (True, True)


def test_files_that_could_not_be_read_for_a_while_are_in_force_again_unchanged(world):
    world.edit("policy: spread\n")
    active = world.start()
    (world.folder / "edited" / "cardshare.yaml").write_bytes(b"\xff")
    world.look(active)
    assert active.refused
    world.edit("policy: spread\n")
    assert world.look(active) == [False, False]
    assert (active.refused, active.settings.policy) == ({}, Policy.SPREAD)


def test_the_refusal_of_a_config_map_that_is_no_longer_named_is_over(world):
    active = world.start()
    active.take(devices("nvidia: 7\n"))
    assert [*active.refused] == [DEVICE_MAP]
    active.take(devices("", "kube-system/other"))
    assert active.refused == {}


def test_what_has_no_effect_is_named_once_and_changes_nothing_else(world):
    active = world.start()
    active.take(devices(NVIDIA))
    version = active.version
    with capture_logs() as logs:
        assert not active.take(devices("nvidia: {gpuMemoryFactor: 10, gpuMemoryFacto: 1}\n"))
        assert not active.take(devices("nvidia: {gpuMemoryFactor: 10, gpuMemoryFacto: 2}\n"))
    assert [one["event"] for one in logs] == ["configuration has no effect"]
    assert (active.version, len(active.notes)) == (version, 1)


def test_a_start_with_settings_that_are_refused_runs_on_those_that_were_kept_and_says_so(world):
    world.edit("polizy: binpack\n")
    world.keep("policy: spread\n")
    with capture_logs() as logs:
        active = world.start()
    (line,) = [one for one in logs if one["log_level"] == "error"]
    assert (line["event"].startswith("SETTINGS REFUSED"), "polizy" in line["reason"]) == (True, True)
    assert (active.settings.policy, active.from_before, [*active.refused]) == (Policy.SPREAD, True, [OWN_MAP])
    # It is kept on, for the start after this one.
    assert active.good[Source.OWN] == "policy: spread\n"
    # What else is followed does not pass for the operator's correction.
    active.take(scheduler(""))
    assert world.look(active) == [False, False]
    assert (active.from_before, bool(active.refused)) == (True, True)
    world.edit("policy: binpack\n")
    assert any(world.look(active))
    assert (active.settings.policy, active.from_before, active.refused) == (Policy.BINPACK, False, {})


def test_a_config_map_that_is_refused_from_the_start_is_what_it_was_before_too(world):
    world.keep(NVIDIA, "device-config.yaml")
    active = world.start()
    assert active.tables.of(VgpuTable).named.mib_per_unit == 1
    assert active.take(devices("nvidia: 7\n"))
    assert (active.tables.of(VgpuTable).named.mib_per_unit, active.from_before, [*active.refused]) == (
        10,
        True,
        [DEVICE_MAP],
    )
    # Once it said something good, that is what stays.
    active.take(devices(""))
    assert not active.take(devices("nvidia: 7\n"))
    assert (active.tables.of(VgpuTable).named.mib_per_unit, active.from_before) == (1, False)


@pytest.mark.parametrize("kept", ["polizy: spread\n", None], ids=["bad", "none"])
def test_a_start_without_any_good_settings_ends_with_every_problem(world, kept):
    world.edit("policy: 7\n")
    if kept is not None:
        world.keep(kept)
    with pytest.raises(ConfigError, match="policy"):
        world.start()


def test_good_texts_are_what_is_kept(world):
    world.edit("policy: binpack\n")
    active = world.start()
    active.take(scheduler(SPREAD))
    world.edit("policy: [\n")
    world.look(active)
    active.take(scheduler("tiers: 7"))
    assert active.good == {Source.OWN: "policy: binpack\n", Source.SCHEDULER_FILE: "", Source.SCHEDULER_MAP: SPREAD}


def test_the_flag_for_hamis_config_map_wins_over_the_settings_now_and_later(world):
    world.edit("hami_config_namespace: edited\nhami_config_name: edited\n")
    active = ActiveConfiguration(world.files, standard_catalog(), hami_config="gpu-stack/shares-scheduler-device")
    assert hami_map(active.settings) == "gpu-stack/shares-scheduler-device"
    world.edit("hami_config_namespace: again\npolicy: spread\n")
    world.look(active)
    assert hami_map(active.settings) == "gpu-stack/shares-scheduler-device"


def hami(content):
    where = hami_map(Settings())
    return decode(Text(source=Source.CHIPS_MAP, config_map=where, content=content), standard_catalog())


def vendors(active):
    return {one.dialect: one.cards for one in active.tables.sections if isinstance(one, VendorNames)}


BROKEN = "amd: {resourceCountName: cpu}\nhygon: {resourceCountName: a/n}\n"
KEPT = "; until then the section that was read before stays in force for amd"


@pytest.mark.parametrize(
    ("content", "note"),
    [
        pytest.param(BROKEN, "amd.resourceCountName: found 'cpu'; write a resource", id="wrong"),
        pytest.param(
            "amd: {resourceCountName: a/n}\nhygon: {resourceCountName: a/n}\n",
            "amd: found 'a/n'; write another name, because pods request cards of hygon by this one",
            id="another's name",
        ),
    ],
)
def test_a_wrong_section_of_a_vendor_leaves_the_one_before_in_force(world, content, note):
    active, good = world.start(), "amd: {resourceCountName: a/amd}\nhygon: {resourceCountName: a/n}\n"
    active.take(hami(good))
    assert not active.take(hami(content))
    assert vendors(active) == {"amd": "a/amd", "hygon": "a/n"}
    (told,) = [one for one in active.notes if note in one]
    assert told.endswith(KEPT)
    assert active.refused == {}
    # It stays while other parts change, until the section is right or gone.
    assert active.take(hami("amd: {resourceCountName: cpu}\nbiren: {}\n"))
    assert vendors(active) == {"amd": "a/amd", "biren": ""}
    active.take(hami("biren: {}\n"))
    assert vendors(active) == {"biren": ""}
    active.take(hami(BROKEN))
    assert vendors(active) == {"hygon": "a/n"}
    again = world.start_again(active)
    again.take(hami(BROKEN))
    assert vendors(again) == {"hygon": "a/n"}


def test_a_good_edit_beside_a_wrong_section_of_a_vendor_is_saved_for_a_start(world):
    active = world.start()
    active.take(hami("amd: {resourceCountName: a/amd}\nhygon: {resourceCountName: a/old}\n"))
    edited = "amd: {resourceCountName: cpu}\nhygon: {resourceCountName: a/new}\nnvidia: {resourceCountName: a/gpu}\n"
    assert active.take(hami(edited))
    once = world.start_again(active)
    # At the start, someone has just broken the whole text.
    once.take(hami("amd: ["))
    assert (vendors(once), once.from_before) == ({"amd": "a/amd", "hygon": "a/new"}, True)
    assert once.current == active.current
    # The next start reads the text as it was edited, and saves nothing older for those after it.
    twice = world.start_again(once)
    twice.take(hami("amd: {resourceCountName: cpu}\nhygon: {resourceCountName: cpu}\n"))
    assert vendors(twice) == {"amd": "a/amd", "hygon": "a/new"}
    thrice = world.start_again(twice)
    thrice.take(hami(edited))
    assert vendors(thrice) == {"amd": "a/amd", "hygon": "a/new"}


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{", "version: 1\n", '{"version": 2, "sections": {}}', '{"version": 1, "sections": {"amd": 7}}',
     '{"version": 1, "sections": {"amd": "{resourceCountName: cpu}", "gone": "{}"}}',
     '{"version": 1, "sections": {"amd": "{"}}'],
)  # fmt: skip
def test_unusable_saved_sections_are_none(world, content):
    world.keep(content, Source.SECTIONS)
    world.keep(BROKEN, Source.CHIPS_MAP)
    active = world.start()
    active.take(hami(BROKEN))
    assert vendors(active) == {"hygon": "a/n"}


def test_a_saved_section_that_cannot_be_read_again_leaves_the_others(world):
    active = world.start()
    # A number that is longer in decimal than any that is read.
    for name in ("a/amd", "cpu"):
        active.take(hami(f"amd: {{resourceCountName: {name}}}\nhygon: {{odd: 0x{'f' * 62}}}\n"))
    again = world.start_again(active)
    again.take(hami("amd: {resourceCountName: cpu}\n"))
    assert vendors(again) == {"amd": "a/amd"}


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("hygon: {resourceCountName: a/n}\namd: {resourceCountName: a/n}\n", id="the other is as before"),
        pytest.param("hygon: {resourceCountName: cpu}\namd: {resourceCountName: a/n}\n", id="the other is wrong"),
    ],
)
def test_a_new_section_does_not_take_the_name_of_one_that_is_in_force(world, content):
    active, good = world.start(), "hygon: {resourceCountName: a/n}\n"
    active.take(hami(good))
    before = active.tables.sections
    active.take(hami(content))
    # Pods for the usual resource of the other wait, because its section was to name their cards.
    assert (active.tables.sections, active.tables.lost) == (before, {"amd"})
    assert vendors(active) == {"hygon": "a/n"}
    assert [one for one in active.notes if "because pods request cards of hygon" in one and "ignored for amd" in one]
    # Saved is what makes the same of the text at the next start.
    again = world.start_again(active)
    again.take(hami(content))
    assert vendors(again) == {"hygon": "a/n"}


def test_a_wrong_section_of_a_vendor_is_what_was_saved_at_a_start(world):
    world.keep("amd: {resourceCountName: a/amd}\nbiren: {}\n", Source.CHIPS_MAP)
    active = world.start()
    active.take(devices(""))
    active.take(hami(BROKEN))
    assert vendors(active) == {"amd": "a/amd", "hygon": "a/n"}


def test_a_wrong_section_of_a_vendor_in_a_file_is_not_replaced_by_that_of_a_config_map(world):
    active = world.start()
    active.take(hami("amd: {resourceCountName: a/map}\n"))
    file = Text(source=Source.DEVICE_FILE, path="/d", content="amd: {resourceCountName: a/file}\n")
    active.take(decode(file, standard_catalog()))
    assert vendors(active) == {"amd": "a/file"}
    assert not active.take(decode(replace(file, content="amd: {resourceCountName: cpu}\n"), standard_catalog()))
    assert vendors(active) == {"amd": "a/file"}
