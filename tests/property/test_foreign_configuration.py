"""Maps and configurations as HAMi, its Ascend plugin and Volcano ship them are read, whatever else stands in them.

Facts of HAMi's chart v2.4.1 to v2.10, of its Ascend plugin v1.2 to v1.4, and of Volcano v1.5 to v1.15: the keys, where
they stand, and the shapes of their values. None of their texts is here.
"""

from copy import deepcopy
from typing import Any

import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from core.catalog import standard_catalog
from core.configuration import Configuration, Source, Text, decode, merge
from core.dialects.ascend_hami.table import AscendTable
from core.dialects.hami.table import HamiTable
from core.dialects.vgpu.table import VgpuTable
from core.wire.volcano_parts import FLAGS
from tests.support.devices.vendors import PORTS

CATALOG = standard_catalog()
KEYS = {one.key for one in CATALOG.vocabulary.sections}
# Sections of HAMi for one vendor each, and two that are not known.
VENDORS = ("another", "iluvatar", *dict.fromkeys(port.vendor.section.key for port in PORTS))
Json = dict[str, Any]


def merged(**texts: Json) -> Configuration:
    found = {
        Source[name]: decode(Text(source=Source[name], path="t", content=yaml.safe_dump(one, sort_keys=False)), CATALOG)
        for name, one in texts.items()
    }
    assert [problem for one in found.values() for problem in one.problems] == []
    return merge(found, CATALOG)


# ---------------------------------------------------------------------- misspelt and misplaced keys


@st.composite
def misspelt(draw: st.DrawFn, key: str) -> str:
    """*key* with one slip."""
    at = draw(st.integers(1, len(key) - 1))
    slips = {
        "left out": key[:at] + key[at + 1 :],
        "twice": key[:at] + key[at] + key[at:],
        "swapped": key[: at - 1] + key[at] + key[at - 1] + key[at + 1 :],
        "case": key.swapcase(),
        "plural": key.removesuffix("s") if key.endswith("s") else f"{key}s",
    }
    # Two equal letters that are swapped are no slip.
    return draw(st.sampled_from(sorted(set(slips.values()) - {key})))


def note_of(found: Configuration, place: str, key: str) -> str:
    """The one note on *key*, which stands at *place*."""
    (note,) = [note for note in found.notes if f"{place}{key}: unknown, has no effect" in note]
    return note


# ---------------------------------------------------------------------- HAMi's maps

ODD: st.SearchStrategy[Any] = st.sampled_from([None, "", 0, "10", -1, 1.5, True, [], [[]], {}, {"a": [1]}, "text"])
LISTED = st.lists(
    st.fixed_dictionaries({"name": st.just("1g.5gb"), "memory": st.just(5120), "count": st.integers(1, 7)}), max_size=2
)
# What HAMi's plugin alone reads: by version, and as people write it.
PLUGINS_OWN = {
    "deviceSplitCount": ODD,
    "deviceMemoryScaling": ODD,
    "deviceCoreScaling": ODD,
    "preConfiguredDeviceMemory": ODD,
    "libCudaLogLevel": ODD,
    "enableNumaTopology": ODD,
    "disableCoreLimit": ODD,
    "knownMigGeometries": ODD
    | st.lists(
        st.fixed_dictionaries({"models": st.just(["A30"]), "allowedGeometries": st.lists(LISTED, min_size=1)}),
        max_size=2,
    ),
    "migProfileAllowlist": ODD | st.just([{"models": ["A30"], "profiles": ["1g.6gb"]}]),
}
USED = {
    "defaultMemory": st.integers(0, 4000),
    "defaultCores": st.integers(0, 100),
    "memoryFactor": st.integers(0, 1024),
    "defaultGPUNum": st.integers(0, 3),
    "overwriteEnv": st.sampled_from([False, True, "false", "true"]),
    "gpuCorePolicy": st.sampled_from(["", "default", "force", "disable", "fast"]),
    "runtimeClassName": st.sampled_from(["", "nvidia"]),
    "resourcePriorityName": st.just("nvidia.com/priority"),
}
# Sections of vendors that are served, with keys that only their plugins read; of others, whatever they hold.
SERVED = st.dictionaries(
    st.sampled_from([key for key in VENDORS if key in KEYS]),
    st.none() | st.dictionaries(st.sampled_from(["deviceSplitCount", "another"]), ODD),
)
OTHERS = st.builds(
    lambda served, others: {**served, **others},
    SERVED,
    st.dictionaries(st.sampled_from([key for key in VENDORS if key not in KEYS]), ODD),
)
NAMES = st.fixed_dictionaries(
    {
        "resourceCountName": st.sampled_from(["nvidia.com/gpu", "nvidia.com/vgpu"]),
        "resourceMemoryName": st.sampled_from(["nvidia.com/gpumem", "nvidia.com/vram"]),
        "resourceMemoryPercentageName": st.just("nvidia.com/gpumem-percentage"),
        "resourceCoreName": st.just("nvidia.com/gpucores"),
    }
)
CHIPS = st.lists(
    st.fixed_dictionaries(
        {
            "chipName": st.sampled_from(["310P3", "910B3"]),
            "commonWord": st.just("Ascend910B3"),
            "resourceName": st.just("huawei.com/Ascend910B3"),
            "resourceMemoryName": st.just("huawei.com/Ascend910B3-memory"),
            "memoryAllocatable": st.integers(1, 65536),
            "memoryCapacity": st.just(65536),
            "aiCore": st.just(20),
            "templates": st.just([{"name": "vir05_1c_16g", "memory": 16384, "aiCore": 5}]),
        },
        optional={"aiCPU": st.just(7), "runtimeClassName": st.sampled_from(["", "ascend"])},
    ),
    min_size=1,
    max_size=2,
)
PLACES = st.sampled_from(["CHIPS_MAP", "DEVICE_MAP", "DEVICE_FILE"])


@st.composite
def hami_maps(draw: st.DrawFn, *, always_chips: bool = False) -> Json:
    section = draw(NAMES) | draw(st.fixed_dictionaries({}, optional={**PLUGINS_OWN, **USED}))
    found: Json = {"nvidia": section, **draw(OTHERS)}
    if always_chips or draw(st.booleans()):
        chips = draw(CHIPS)
        found["vnpus"] = chips if draw(st.booleans()) else {"hamiVnpuCore": draw(st.booleans()), "configs": chips}
    return dict(draw(st.permutations(sorted(found.items()))))


@given(hami_maps(), PLACES)
def test_a_map_of_hamis_is_read_wherever_it_stands(found: Json, place: str):
    section, vnpus = found["nvidia"], found.get("vnpus")
    tables = merged(**{place: found}).tables
    assert tables.of(VgpuTable) == VgpuTable()
    assert tables.of(HamiTable) == HamiTable(
        named=HamiTable().named._replace(
            cards=section["resourceCountName"],
            memory=section["resourceMemoryName"],
            mib_per_unit=max(section.get("memoryFactor", 1), 1),
        ),
        default_memory=section.get("defaultMemory", 0),
        default_cores=section.get("defaultCores", 0),
        default_count=section.get("defaultGPUNum", 1),
        core_policy="force" if section.get("gpuCorePolicy") == "force" else "",
        hides_devices=section.get("overwriteEnv") in (True, "true"),
        runtime_class=section.get("runtimeClassName", ""),
        installed=True,
    )
    if vnpus is not None:
        chips = vnpus if isinstance(vnpus, list) else vnpus["configs"]
        assert [one.allocatable_mib for one in tables.of(AscendTable).chips] == [
            one["memoryAllocatable"] for one in chips
        ]


@given(hami_maps())
def test_volcano_told_to_read_hamis_map_takes_its_chips_alone(found: Json):
    arguments = {"deviceshare.VGPUEnable": True, "deviceshare.KnownGeometriesCMName": "hami-scheduler-device"}
    conf = {"tiers": [{"plugins": [{"name": "deviceshare", "arguments": arguments}]}]}
    tables = merged(SCHEDULER_MAP=conf, DEVICE_MAP=found, CHIPS_MAP=found).tables
    assert tables.of(VgpuTable) == VgpuTable()
    assert tables == merged(CHIPS_MAP=found).tables


@given(hami_maps(), st.data())
def test_a_misspelt_key_of_hamis_section_is_noted_with_the_one_that_was_meant(found: Json, data: st.DataObject):
    key = data.draw(st.sampled_from(sorted(found["nvidia"])))
    slip = data.draw(misspelt(key))
    assume(slip not in {*PLUGINS_OWN, *USED, *found["nvidia"], "gpuMemoryFactor"})
    section = {slip if name == key else name: value for name, value in found["nvidia"].items()}
    note = note_of(merged(CHIPS_MAP={**found, "nvidia": section}), "nvidia.", slip)
    assert f"'{key}'" in note


@given(hami_maps(always_chips=True), st.data())
def test_a_misspelt_key_of_a_chip_or_template_is_noted_with_the_one_that_was_meant(found: Json, data: st.DataObject):
    found = deepcopy(found)
    vnpus = found["vnpus"]
    chips = vnpus if isinstance(vnpus, list) else vnpus["configs"]
    place = "vnpus[0]." if isinstance(vnpus, list) else "vnpus.configs[0]."
    in_template = data.draw(st.booleans())
    level = chips[0]["templates"][0] if in_template else chips[0]
    # What a chip cannot do without is a problem, not a note.
    key = data.draw(st.sampled_from(sorted(level.keys() & {"aiCore", "aiCPU", "runtimeClassName"})))
    slip = data.draw(misspelt(key))
    assume(slip not in {"aiCore", "aiCPU"})
    value = level.pop(key)
    level[slip] = value
    note = note_of(merged(CHIPS_MAP=found), f"{place}templates[0]." if in_template else place, slip)
    assert f"'{key}'" in note


# ---------------------------------------------------------------------- maps of Volcano's vGPU plugin

GROUPS = st.lists(
    st.fixed_dictionaries({"group": st.sampled_from(["group1", "group2"]), "geometries": LISTED}),
    min_size=1,
    max_size=2,
)
VOLCANOS = st.fixed_dictionaries(
    {"resourceCountName": st.sampled_from(["volcano.sh/vgpu-number", "volcano.sh/gpus"])},
    optional={
        **{key: one for key, one in PLUGINS_OWN.items() if key.startswith(("device", "disable", "preConfigured"))},
        **dict.fromkeys(("overwriteEnv", "defaultMemory", "defaultCores", "defaultGPUNum"), ODD),
        "resourceMemoryPercentageName": st.just("volcano.sh/vgpu-memory-percentage"),
        "gpuMemoryFactor": st.integers(0, 1024),
        "knownMigGeometries": st.lists(
            st.fixed_dictionaries({"models": st.just(["A30"]), "allowedGeometries": GROUPS}), max_size=2
        ),
    },
)


@given(VOLCANOS, PLACES)
def test_a_map_of_volcanos_plugin_is_read_wherever_it_stands(section: Json, place: str):
    found = merged(**{place: {"nvidia": section}})
    assert found.tables.of(HamiTable) == HamiTable()
    assert found.notes == ()
    vgpu = found.tables.of(VgpuTable)
    assert vgpu.named.cards == section["resourceCountName"]
    assert vgpu.named.percentage == section.get("resourceMemoryPercentageName", "")
    assert vgpu.named.mib_per_unit == (section.get("gpuMemoryFactor") or 1)
    layouts = [[one["group"] for one in each["allowedGeometries"]] for each in section.get("knownMigGeometries", ())]
    assert [[group.name for group in one.layout] for one in vgpu.geometries] == layouts


# ---------------------------------------------------------------------- volcano-scheduler.conf

SWITCHES = ("VGPUEnable", "GPUSharingEnable", "GPUNumberEnable", "AscendHAMiVNPUEnable", "AscendMindClusterVNPUEnable")
ARGUMENTS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "deviceshare": {
        **{f"deviceshare.{name}": st.sampled_from([True, "true", "1"]) for name in SWITCHES},
        "deviceshare.SchedulePolicy": st.sampled_from(["binpack", "spread"]),
        "deviceshare.ScheduleWeight": st.sampled_from([10, "10"]),
        "deviceshare.KnownGeometriesCMName": st.just("volcano-vgpu-device-config"),
        "deviceshare.KnownGeometriesCMNamespace": st.just("kube-system"),
    },
    "predicates": {
        "predicate.GPUSharingEnable": st.booleans(),
        "predicate.GPUNumberEnable": st.booleans(),
        "predicate.CacheEnable": st.booleans(),
    },
    "binpack": {"binpack.weight": st.just(5), "binpack.cpu": st.just("2"), "binpack.memory": st.just(1)},
    "nodeorder": {"leastrequested.weight": st.just(1), "nodeaffinity.weight": st.just("2")},
    "overcommit": {"overcommit-factor": st.just(1.2)},
    "usage": {"usage.weight": ODD, "thresholds": ODD},
    "tdm": {"tdm.evict.period": ODD, "tdm.revocable-zone.rz1": ODD},
    "extender": {"extender.urlPrefix": ODD, "extender.httpTimeout": ODD},
    "gang": {},
    "drf": {},
}


@st.composite
def entries(draw: st.DrawFn) -> Json:
    name = draw(st.sampled_from(sorted(ARGUMENTS)))
    found = {"name": name, **draw(st.dictionaries(st.sampled_from(FLAGS), st.booleans(), max_size=2))}
    if draw(st.booleans()):
        found["arguments"] = draw(st.fixed_dictionaries({}, optional=ARGUMENTS[name]))
    return found


@st.composite
def confs(draw: st.DrawFn) -> Json:
    tiers = [{"plugins": one} for one in draw(st.lists(st.lists(entries(), min_size=1, max_size=3), min_size=1))]
    init = {"name": "init-params", "arguments": {"grace-over-time": "900", "presetVirtualDevice": "true"}}
    return {"actions": "enqueue, allocate, backfill", "tiers": tiers, "configurations": [init], "metrics": draw(ODD)}


# The mappings of a configuration: where their keys stand, as notes say it.
def levels(conf: Json) -> list[tuple[str, Json]]:
    found = [("", conf), ("configurations[0].", conf["configurations"][0])]
    found.append(("configuration init-params: ", conf["configurations"][0]["arguments"]))
    for i, tier in enumerate(conf["tiers"]):
        found.append((f"tiers[{i}].", tier))
        for j, entry in enumerate(tier["plugins"]):
            found.append((f"tiers[{i}].plugins[{j}].", entry))
            found.append((f"plugin {entry['name']}: ", entry.get("arguments", {})))
    return found


def known_in(place: str) -> set[str]:
    return {key for one in ARGUMENTS.values() for key in one} | {*FLAGS, "name", "arguments", "actions", "tiers"}


@given(confs())
def test_a_conf_as_volcano_takes_it_has_no_unknown_key(conf: Json):
    assert [note for note in merged(SCHEDULER_MAP=conf).notes if "unknown" in note] == []


@given(confs(), st.data())
def test_a_misspelt_key_of_a_conf_is_noted_with_the_one_that_was_meant(conf: Json, data: st.DataObject):
    place, level = data.draw(st.sampled_from([one for one in levels(conf) if one[1]]))
    key = data.draw(st.sampled_from(sorted(level)))
    # What begins others is a name of the user's from there on.
    assume(not key.startswith(("tdm.revocable", "extender.")))
    slip = data.draw(misspelt(key))
    assume(slip not in level and slip not in known_in(place))
    level[slip] = level.pop(key)
    assert f"'{key}'" in note_of(merged(SCHEDULER_MAP=conf), place, slip)


@given(confs(), st.data())
def test_a_misplaced_key_of_a_conf_is_noted_with_its_place(conf: Json, data: st.DataObject):
    wheres = {
        "deviceshare.VGPUEnable": "in the arguments of plugin deviceshare",
        "arguments": "in an item of plugins",
        "enableJobOrder": "in an item of plugins",
        "plugins": "in an item of tiers",
        "tiers": "at the top",
        "presetVirtualDevice": "in the arguments of configuration init-params",
    }
    key = data.draw(st.sampled_from(sorted(wheres)))
    place, level = data.draw(st.sampled_from([one for one in levels(conf) if key not in one[1]]))
    home = {
        "deviceshare.VGPUEnable": place == "plugin deviceshare: ",
        "arguments": ".plugins[" in place or place.startswith("configurations"),
        "enableJobOrder": ".plugins[" in place,
        "plugins": place.startswith("tiers") and ".plugins[" not in place,
        "tiers": place == "",
        "presetVirtualDevice": place == "configuration init-params: ",
    }
    assume(not home[key])
    level[key] = True
    if ": " in place and place.startswith("plugin ") and not level.keys() - {key}:
        # An entry without arguments has none to put it in.
        return
    assert note_of(merged(SCHEDULER_MAP=conf), place, key).endswith(f"write '{key}' {wheres[key]}")
