import json
import re
import time
from pathlib import Path

import pytest
import yaml

from core.errors import ConfigError
from core.settings import DialectName, GroupSettings, NodeWeights, Policy, Settings
from core.tables import SHIPPED_CHIPS, ExclusiveRule
from core.wire import yaml_text
from core.wire.device_config import decode_device_config
from core.wire.volcano_parts import ACTIONS, PLUGINS
from tests.support.devices.texts import decode_own_settings, decode_scheduler_conf, decode_settings

DATA = Path(__file__).parents[3] / "data"


def conf(arguments, plugin="deviceshare"):
    lines = "".join(f"\n      {key}: {value}" for key, value in arguments.items())
    return f"tiers:\n- plugins:\n  - name: gang\n  - name: {plugin}\n    arguments:{lines or ' {}'}\n"


# device-config.yaml


def test_an_empty_text_has_the_defaults_of_both_sections():
    found = decode_device_config("")
    assert found.vgpu.number_resource == "volcano.sh/vgpu-number"
    assert found.vgpu.percentage_resource == "volcano.sh/vgpu-memory-percentage"
    assert found.ascend.chips == SHIPPED_CHIPS


def test_a_section_without_a_percentage_name_ignores_percentages():
    found = decode_device_config("nvidia:\n  resourceCountName: a.b/n\n  gpuMemoryFactor: 10\n").vgpu
    assert (found.number_resource, found.memory_resource) == ("a.b/n", "volcano.sh/vgpu-memory")
    assert (found.percentage_resource, found.memory_factor) == ("", 10)


def test_layouts_keep_their_order():
    found = decode_device_config(
        "nvidia:\n  knownMigGeometries:\n  - models: [A30, A31]\n    allowedGeometries:\n    - group: g1\n"
        "      geometries:\n      - {name: 2g, memory: 12, count: 2}\n      - {name: 1g, memory: 6, count: 1}\n"
    ).vgpu.geometries
    assert found[0].models == ("A30", "A31")
    assert [(p.name, p.memory_mib, p.count) for p in found[0].groups[0].profiles] == [("2g", 12, 2), ("1g", 6, 1)]


CHIP = (
    "{chipName: 310P3, commonWord: Ascend310P, resourceName: huawei.com/Ascend310P, "
    "resourceMemoryName: huawei.com/Ascend310P-memory, memoryAllocatable: 21527, memoryCapacity: 24576, aiCore: 8, "
    "aiCPU: 7, templates: [{name: vir02, memory: 6144, aiCore: 2, aiCPU: 2}, {name: vir01, memory: 3072, aiCore: 1}]}"
)


@pytest.mark.parametrize(
    ("text", "soft"),
    [(f"vnpus:\n- {CHIP}\n", False), (f"vnpus:\n  hamiVnpuCore: true\n  configs:\n  - {CHIP}\n", True)],
    ids=["list", "wrapper"],
)
def test_both_shapes_of_the_chips_are_read(text, soft):
    found = decode_device_config(text).ascend
    assert found.soft_by_default is soft
    assert found.chips[0].core_resource == "huawei.com/Ascend310P-core"
    assert [t.name for t in found.chips[0].templates] == ["vir01", "vir02"]


def test_a_chip_type_may_name_a_runtime_class():
    for more, found in (("", ""), (", runtimeClassName: ''", ""), (", runtimeClassName: ascend", "ascend")):
        (chip,) = decode_device_config(f"vnpus:\n- {CHIP[:-1]}{more}}}\n").ascend.chips
        assert chip.runtime_class == found


def test_every_problem_of_a_device_configuration_is_listed():
    with pytest.raises(ConfigError) as caught:
        decode_device_config(
            "nvidia:\n  gpuMemoryFactor: -1\n  knownMigGeometries:\n  - models: []\n    allowedGeometries:\n"
            "    - group: a-b\n      geometries: [{name: x, memory: much, count: 1}]\nvnpus: 5\n"
        )
    assert len(caught.value.problems) == 4
    assert caught.value.problems[0] == "nvidia.gpuMemoryFactor: found '-1'; write a whole number from 1 to 1048576"


def test_keys_that_nobody_reads_are_noted_with_the_one_that_was_probably_meant():
    found = decode_device_config(
        "nvidai: {}\nnvidia:\n  deviceSplitCount: 10\n  gpuMemoryFacto: 2\n  knownMigGeometries:\n"
        "  - models: [A30]\n    x: 1\n    allowedGeometries: [{group: g, geometries: [], y: 1}]\n"
        f"vnpus:\n- {CHIP[:-1]}, aiCPUs: 3}}\n"
    )
    assert found.notes == (
        "nvidai: unknown, has no effect; did you mean 'nvidia'?",
        "nvidia.gpuMemoryFacto: unknown, has no effect; did you mean 'gpuMemoryFactor'?",
        "nvidia.knownMigGeometries[0].x: unknown, has no effect",
        "nvidia.knownMigGeometries[0].allowedGeometries[0].y: unknown, has no effect",
        "vnpus[0].aiCPUs: unknown, has no effect; did you mean 'aiCPU'?",
    )
    assert found.vgpu.memory_factor == 1


@pytest.mark.parametrize("name", ["vgpu-device-config.yaml", "ascend-device-config.yaml"])
def test_what_device_plugins_ship_is_known_to_the_last_key(name):
    documents = [*yaml.safe_load_all((DATA / name).read_text(encoding="utf-8"))]
    (text,) = [text for one in documents for key, text in one["data"].items() if key == "device-config.yaml"]
    assert decode_device_config(text).notes == ()


# YAML of strangers


@pytest.mark.parametrize(
    "text",
    [
        "a: [",
        "- 1\n---\n- 2\n",
        "[" * 200_000,
        "a: &a [" + "*a" + "]",
        "? [1, 2]\n: 3\n",
        "!!python/object/apply:os.system [x]",
        "\x00",
        "a: " + "9" * 5_000,
        "a: 2026-99-99",
        "x" * (1024 * 1024 + 1),
        "{1: 2}",
        "text",
    ],
)
def test_what_is_no_configuration_is_one_clear_error(text):
    with pytest.raises(ConfigError):
        decode_device_config(text)


def test_aliases_do_not_explode():
    lines = ["a0: &a0 [1,1,1,1,1,1,1,1,1]"]
    lines += [f"a{i}: &a{i} [" + ",".join([f"*a{i - 1}"] * 9) + "]" for i in range(1, 12)]
    started = time.process_time()
    with pytest.raises(ConfigError, match="aliases"):
        decode_device_config("\n".join(lines))
    assert time.process_time() - started < 1


# cardshare.yaml


def test_settings_stand_over_their_base():
    found = decode_own_settings(
        "policy: spread\nschedule_weight: 3\ndialects: [vgpu, gpu_memory]\nturn_wait_max_s: 0.5\n"
        "metrics: {per_pod: true}\nadmission:\n  default_mode: {team-a: mig}\n  allow_privileged: true\n",
    ).over(Settings(bind_in_flight_max=9))
    assert (found.policy, found.schedule_weight, found.bind_in_flight_max) == (Policy.SPREAD, 3, 9)
    assert set(found.dialects or ()) == {DialectName("vgpu"), DialectName("gpu_memory")}
    assert (found.turn_wait_max_s, found.metrics_per_pod) == (0.5, True)
    assert found.admission.default_mode == {"team-a": "mig"}
    assert found.admission.allow_privileged
    assert found.admission.trusted_accounts == Settings().admission.trusted_accounts


def test_other_schedulers_are_named_each_with_its_account():
    assert Settings().admission.other_schedulers == {}
    found = decode_settings("admission: {other_schedulers: {volcano: 'system:serviceaccount:v:s'}}\n")
    assert found.admission.other_schedulers == {"volcano": "system:serviceaccount:v:s"}
    assert decode_own_settings("admission: {other_schedulers: {}}\n").over(found).admission.other_schedulers == {}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[volcano]", "admission.other_schedulers: found .*; write a mapping"),
        ("{a b: c}", "admission.other_schedulers: found 'a b'; write the name of a scheduler"),
        ("{volcano: ''}", "admission.other_schedulers.volcano: found ''; write a text"),
        ("{volcano: [a]}", "admission.other_schedulers.volcano: found .*; write a text"),
        ("{volcano: 'system:serviceaccount:v:*'}", "admission.other_schedulers.volcano: found .*; write one account"),
    ],
)
def test_another_scheduler_without_one_account_is_a_problem(text, problem):
    with pytest.raises(ConfigError, match=problem):
        decode_settings(f"admission: {{other_schedulers: {text}}}\n")


def test_no_settings_are_the_base():
    assert decode_settings("") == Settings()


def test_every_problem_of_the_settings_is_listed():
    with pytest.raises(ConfigError) as caught:
        decode_settings(
            "polcy: spread\npolicy: best\nschedule_weight: -1\nhandoff_timeout_s: soon\nscheduler_names: []\n"
            "admission: {trusted_accounts: ['*'], default_mode: {a: MIG}, extra: 1}\n"
        )
    text = "\n".join(caught.value.problems)
    assert len(caught.value.problems) == 8, text
    assert "polcy: there is no such setting; did you mean 'policy'? known are admission, " in text
    assert "admission.extra: there is no such setting; known are admit_on_failure, " in text
    assert "admission.default_mode.a: found 'MIG'; write one of 'hami-core', 'mig', 'mps'" in text


@pytest.mark.parametrize("found", ["x", "[]", "{a: b}", "''", ""])
def test_names_that_are_no_list_are_one_problem(found):
    with pytest.raises(ConfigError) as caught:
        decode_settings(f"scheduler_names: {found}\n")
    (problem,) = caught.value.problems
    assert "; write a list" in problem


@pytest.mark.parametrize("name", ["a b", "a,b", "-", "x\ny"])
def test_a_name_that_no_scheduler_can_have_is_a_problem(name):
    with pytest.raises(ConfigError, match=r"scheduler_names\[1\]: found .*; write the name of a scheduler"):
        decode_settings(f"scheduler_names: [cardshare, {json.dumps(name)}]\n")


def test_no_names_are_shown_as_they_stand():
    with pytest.raises(ConfigError, match=r"scheduler_names: found '\[\]'; write a list of at least one"):
        decode_settings("scheduler_names: []\n")


@pytest.mark.parametrize(
    ("text", "line", "key"),
    [
        ("scheduler_names: [a]\nscheduler_names: [b]\n", 2, "scheduler_names"),
        ("metrics:\n  per_pod: true\n  per_pod: false\n", 3, "per_pod"),
    ],
)
def test_a_key_that_stands_twice_is_refused(text, line, key):
    with pytest.raises(ConfigError, match=f"line {line}: key '{key}' stands there twice; remove one"):
        decode_settings(text)


def test_the_empty_policy_is_upstreams_word_alone():
    with pytest.raises(ConfigError, match="policy: found ''; write one of 'binpack', 'pack', 'spread', 'index'"):
        decode_settings("policy: ''\n")
    arguments = "{deviceshare.SchedulePolicy: ''}"
    text = f"tiers: [{{plugins: [{{name: deviceshare, arguments: {arguments}}}]}}]"
    assert decode_scheduler_conf(text).settings.policy is Policy.INDEX


def test_an_unknown_key_is_shown_without_its_control_characters_and_shortened():
    with pytest.raises(ConfigError) as caught:
        decode_settings(f'"a\\e[31m": 1\n{"b" * 500}: 2\n')
    first, second = caught.value.problems
    assert first.startswith("a\\x1b[31m: there is no such setting")
    assert second.startswith("b" * 64 + "…: ")


# volcano-scheduler.conf

UNMINDED = NodeWeights(node_affinity=0, pod_affinity=0, pod_topology_spread=0, taint_toleration=0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        'actions: "enqueue, allocate, backfill"\ntiers:\n- plugins:\n  - name: priority\n  - name: gang\n'
        "  - name: conformance\n- plugins:\n  - name: drf\n  - name: predicates\n  - name: proportion\n"
        "  - name: nodeorder\n  - name: binpack\n",
    ],
    ids=["none", "volcanos-default"],
)
def test_a_configuration_without_a_word_on_devices_counts_as_none(text):
    found = decode_scheduler_conf(text)
    said = GroupSettings(overcommit_pct=100) if text else GroupSettings()
    assert found.settings == Settings(groups=said)
    assert found.settings.dialects is None
    noted = [
        "action 'backfill'",
        *(f"plugin {name}" for name in ("priority", "drf", "proportion", "nodeorder", "binpack")),
    ]
    assert [note.partition(":")[0] for note in found.notes] == (noted if text else [])


def test_the_guides_configuration_switches_one_dialect_on():
    found = decode_scheduler_conf(conf({"deviceshare.VGPUEnable": "true", "deviceshare.SchedulePolicy": "spread"}))
    assert set(found.settings.dialects or ()) == {DialectName("vgpu"), DialectName("whole_gpu"), DialectName("hami")}
    assert (found.settings.policy, found.settings.schedule_weight) == (Policy.SPREAD, 1)


def test_a_configuration_without_a_policy_has_upstreams_order():
    assert decode_scheduler_conf(conf({"deviceshare.VGPUEnable": "true"})).settings.policy is Policy.INDEX


def test_the_older_switches_are_understood():
    found = decode_scheduler_conf(
        conf({"predicate.GPUSharingEnable": '"T"', "predicate.NodeLockEnable": "yes"}, "predicates")
    )
    assert set(found.settings.dialects or ()) == {
        DialectName("gpu_memory"),
        DialectName("whole_gpu"),
        DialectName("hami"),
    }
    assert found.settings.node_lock


@pytest.mark.parametrize("weight", ["10", '"10"'])
def test_a_weight_may_stand_in_quotes(weight):
    found = decode_scheduler_conf(conf({"deviceshare.ScheduleWeight": weight, "deviceshare.SchedulePolicy": "binpack"}))
    assert found.settings.schedule_weight == 10


def test_where_the_device_configuration_lives_is_read():
    found = decode_scheduler_conf(
        conf({"deviceshare.KnownGeometriesCMName": "c", "deviceshare.KnownGeometriesCMNamespace": "n"})
    )
    assert (found.settings.device_config_name, found.settings.device_config_namespace) == ("c", "n")


def test_exclusive_rules_are_read():
    found = decode_scheduler_conf(conf({"deviceshare.GPUExclusiveRules": "[{a: x, b: y}, {c: '1'}]"}))
    labels = (frozenset({("a", "x"), ("b", "y")}), frozenset({("c", "1")}))
    assert found.exclusive_rules == tuple(ExclusiveRule(labels=each) for each in labels)


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        (
            "{team: a, tier: 1}",
            "GPUExclusiveRules[1]: label 'tier': found '1'; write a text: labels have no other values",
        ),
        ("{team: a, new: true}", "GPUExclusiveRules[1]: label 'new': found 'True'; write a text"),
        ("{team: a, tier: }", "GPUExclusiveRules[1]: label 'tier': found ''; write a text"),
        ("{team: [a, b]}", "GPUExclusiveRules[1]: label 'team': found 'a list'; write a text"),
        ("{}", "GPUExclusiveRules[1]: found '{}'; write the labels of the pods"),
    ],
)
def test_a_rule_that_would_hold_for_more_pods_than_it_says_is_refused(rule, problem):
    with pytest.raises(ConfigError) as caught:
        decode_scheduler_conf(conf({"deviceshare.GPUExclusiveRules": f"[{{team: a}}, {rule}]"}))
    (told,) = caught.value.problems
    assert problem in told


def test_what_has_no_effect_is_said_once():
    found = decode_scheduler_conf(
        "tiers:\n- plugins:\n  - name: binpack\n    arguments: {binpack.wait: 5}\n  - name: mine\n  - name: mine\n"
        "  - name: deviceshare\n    arguments: {deviceshare.VGPUEnabled: true}\n  - name: tdm\nmore: 1\n"
    )
    assert found.notes == (
        "more: unknown, has no effect",
        "plugin binpack: partly honoured: it weighs nothing without arguments",
        "plugin binpack: binpack.wait: unknown, has no effect; did you mean 'binpack.weight'?",
        "plugin mine: unknown, has no effect",
        "plugin deviceshare: deviceshare.VGPUEnabled: unknown, has no effect; did you mean 'deviceshare.VGPUEnable'?",
        "plugin tdm: has no effect here",
        "plugin gang is left out: members are placed one by one, and `minMember` is not looked at",
        "plugin nodeorder is left out: what pods prefer of nodes and of other pods orders no nodes",
    )
    assert found.settings == Settings(groups=GroupSettings(gang=False, overcommit_pct=None), node_weights=UNMINDED)


def test_actions_and_weights_that_do_nothing_here_are_named():
    found = decode_scheduler_conf(
        'actions: "enqueue, allocate, preempt"\n'
        + conf({"leastrequested.weight": "1", "imagelocality.weight": "2"}, "nodeorder")
    )
    assert found.notes == (
        "action 'preempt': has no effect here: pods are evicted for others by the setting `preemption` alone",
    )


def test_weights_of_other_resources_are_read_and_turn_nothing_off():
    found = decode_scheduler_conf(
        'tiers:\n- plugins:\n  - name: gang\n  - name: binpack\n    arguments: {binpack.weight: "5", binpack.cpu: 2,\n'
        '      binpack.resources: "nvidia.com/gpu, x.y/z", binpack.resources.nvidia.com/gpu: "10"}\n'
        "  - name: nodeorder\n    arguments: {leastrequested.weight: 3, balancedresource.weight: 2}\n"
    )
    assert found.notes == ()
    assert found.settings.dialects == Settings().dialects
    assert found.settings.node_weights == NodeWeights(
        binpack=5,
        resources=(("cpu", 2), ("memory", 1), ("nvidia.com/gpu", 10), ("x.y/z", 1)),
        least_requested=3,
        balanced=2,
    )


def test_plugins_without_arguments_weigh_nothing_but_what_pods_prefer():
    found = decode_scheduler_conf("tiers:\n- plugins:\n  - name: binpack\n  - name: nodeorder\n")
    assert not found.settings.node_weights
    assert found.settings.node_weights == NodeWeights()


def test_weights_of_what_pods_prefer_are_read():
    given = {"nodeaffinity.weight": "5", "podaffinity.weight": 0, "podtopologyspread.weight": 7}
    found = decode_scheduler_conf(conf({key: str(value) for key, value in given.items()}, "nodeorder"))
    assert found.settings.node_weights == NodeWeights(node_affinity=5, pod_affinity=0, pod_topology_spread=7)


def test_where_nodeorder_is_left_out_what_pods_prefer_weighs_nothing():
    assert decode_scheduler_conf("tiers:\n- plugins:\n  - name: gang\n").settings.node_weights == UNMINDED


def test_parameters_of_mindcluster_are_compared_as_text():
    found = decode_scheduler_conf(
        'configurations:\n- name: init-params\n  arguments: {presetVirtualDevice: "true", grace-over-time: "9"}\n'
    )
    assert found.preset_virtual_device
    assert found.use_cluster_info_manager
    assert found.notes == ("configuration init-params: grace-over-time: has no effect here",)


def test_a_wrong_configuration_lists_every_problem():
    with pytest.raises(ConfigError) as caught:
        decode_scheduler_conf(
            conf(
                {
                    "deviceshare.VGPUEnable": "maybe",
                    "deviceshare.SchedulePolicy": "best",
                    "deviceshare.ScheduleWeight": "[1]",
                }
            )
        )
    assert len(caught.value.problems) == 3


def test_words_are_told_as_people_write_them():
    with pytest.raises(ConfigError) as refused:
        decode_settings("policy: bogus\n")
    assert "write one of 'binpack', 'pack', 'spread', 'index'" in str(refused.value)
    assert "Policy." not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("schedule_weight: 0x" + "f" * 63, "line 1: a number of 65 characters", id="hex"),
        pytest.param("schedule_weight: 0x" + "f" * 9000, "line 1: a number of 9002 characters", id="unwritable hex"),
        pytest.param("schedule_weight: 0b" + "1" * 9000, "line 1: a number of 9002 characters", id="binary"),
        pytest.param("schedule_weight: 0x" + "f" * 62, "found '452312848583266388373324160190187140051", id="written"),
        pytest.param('schedule_weight: "--5"', "found '--5'; write a whole number", id="two signs"),
        pytest.param('schedule_weight: "1_0"', "found '1_0'; write a whole number", id="underscore"),
        pytest.param("schedule_weight: !!set {? 0x1}", "found 'a list'; write a whole number", id="set"),
        pytest.param("node_lock: 0x" + "f" * 60, "write true or false", id="switch"),
    ],
)
def test_a_number_that_nobody_can_mean_is_told_like_any_other_mistake(text, problem):
    with pytest.raises(ConfigError, match=re.escape(problem)):
        decode_settings(text)


@pytest.mark.parametrize("decode", [decode_settings, decode_scheduler_conf, lambda text: yaml_text.load(text, "it")])
@pytest.mark.parametrize("value", ["!!bool x", "!!timestamp x", "2026-13-45", "!!int ''", "!!float ''", "!!int x"])
def test_a_value_that_is_not_what_it_says_is_told_with_its_line(decode, value):
    with pytest.raises(ConfigError, match=r"line 2: '.*' is no (bool|timestamp|int|float); correct it, or quote it"):
        decode(f"# of ours\nnode_lock: {value}\n")


def yards(call):
    """The least CPU time of three calls, in yards: the least of three readings of plain YAML, made in between."""
    plain = "".join(f"k{i}: 1\n" for i in range(10_000))
    found = []
    for _ in range(3):
        times = [time.thread_time()]
        for each in (call, lambda: yaml_text.load(plain, "")):
            each()
            times.append(time.thread_time())
        found.append((times[1] - times[0], times[2] - times[1]))
    taken, yard = (min(each) for each in zip(*found, strict=True))
    return taken / yard


def refused(decode, text):
    def call():
        with pytest.raises(ConfigError):
            decode(text)

    return call


@pytest.mark.parametrize(
    ("call", "most"),
    [
        pytest.param(refused(decode_settings, "schedule_weight: " + "1:" * 500_000 + "1"), 5, id="sexagesimal"),
        pytest.param(refused(decode_settings, "".join(f"k{i}: 1\n" for i in range(45_000))), 20, id="unknown keys"),
        pytest.param(refused(decode_device_config, "vnpus:\n" + "- {}\n" * 60_000), 20, id="problems"),
        pytest.param(
            lambda: decode_scheduler_conf(f"actions: '{','.join(f'a{i}' for i in range(60_000))}'"), 5, id="actions"
        ),
        pytest.param(
            lambda: decode_scheduler_conf("tiers:\n- plugins:\n" + "".join(f"  - name: p{i}\n" for i in range(27_000))),
            20,
            id="plugins",
        ),
    ],
)
def test_a_text_of_400_kb_costs_what_its_yaml_costs(call, most):
    assert yards(call) < most


def test_notes_and_problems_beyond_200_are_counted():
    found = decode_scheduler_conf(f"actions: '{','.join(f'a{i}' for i in range(1000))},a1,a2'")
    assert found.notes[:2] == ("action 'a0': has no effect here", "action 'a1': has no effect here")
    assert (len(found.notes), found.notes[-1]) == (201, "and 803 more")
    assert len(decode_scheduler_conf("actions: a,b,a,b,enqueue").notes) == 2
    with pytest.raises(ConfigError) as caught:
        decode_settings("".join(f"k{i}: 1\n" for i in range(1000)))
    assert (len(caught.value.problems), caught.value.problems[-1]) == (201, "and 800 more")


KINDS = """
node_kinds:
  a100-pool:
    labels: {pool: a100}
    annotations: {volcano.sh/node-vgpu-register: "GPU-0,10,81920,NVIDIA-A100,true,hami-core:"}
    capacity: {volcano.sh/vgpu-number: 10, volcano.sh/vgpu-memory: "80Ki", volcano.sh/vgpu-cores: 100}
"""


def test_kinds_of_nodes_are_read_as_nodes_are_written():
    (kind,) = decode_settings(KINDS).node_kinds
    assert (kind.name, kind.labels) == ("a100-pool", (("pool", "a100"),))
    assert kind.annotations[0][1].startswith("GPU-0,10,")
    assert dict(kind.capacity)["volcano.sh/vgpu-number"] == "10"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("node_kinds: [a]", "node_kinds: found 'a list'; write a mapping"),
        ("node_kinds: {a: {}}", "node_kinds.a.capacity: found ''; write what such a node has"),
        ("node_kinds: {a: {capacity: {x: ten}}}", "node_kinds.a.capacity.x: found 'ten'; write a whole number"),
        ("node_kinds: {a: {capacity: {x: true}}}", "node_kinds.a.capacity.x: found 'True'; write a text, in quotes"),
        (
            "node_kinds: {a: {capcity: {x: 1}}}",
            "node_kinds.a.capcity: there is no such setting; did you mean 'capacity'?",
        ),
        (
            f"node_kinds: {{{','.join(f'k{i}: {{}}' for i in range(65))}}}",
            "node_kinds: found '65 of them'; describe no more",
        ),
    ],
)
def test_a_kind_of_node_that_is_none_is_told(text, problem):
    with pytest.raises(ConfigError, match=re.escape(problem)):
        decode_settings(text)


# What of Volcano's scheduler is done here

PAGE = Path(__file__).parents[4] / "docs" / "volcano-scheduler-conf.md"


def groups_of(text):
    return decode_scheduler_conf(text).settings.groups


def test_leaving_out_enqueue_or_gang_means_what_it_means_in_volcano():
    weights = "{leastrequested.weight: 1}"
    plugins = f"tiers: [{{plugins: [{{name: gang}}, {{name: overcommit}}, {{name: nodeorder, arguments: {weights}}}]}}]"
    assert groups_of("") == groups_of(f"actions: 'enqueue, allocate'\n{plugins}") == GroupSettings()
    without = decode_scheduler_conf(f"actions: allocate\n{plugins}")
    assert without.settings.groups == GroupSettings(enqueue=False)
    assert without.notes == (f"action 'enqueue' is left out: {ACTIONS['enqueue'].without}",)
    assert not groups_of("tiers: [{plugins: [{name: priority}]}]").gang


@pytest.mark.parametrize(
    ("plugins", "pct"),
    [
        ("{name: overcommit}", 120),
        ("{name: overcommit, arguments: {overcommit-factor: 1.5}}", 150),
        ("{name: overcommit, arguments: {overcommit-factor: '2'}}", 200),
        ("{name: overcommit, arguments: {overcommit-factor: 0.5}}", 120),
        ("{name: overcommit, arguments: {overcommit-factor: [1]}}", 120),
        ("{name: overcommit, arguments: {overcommit-factor: .nan}}", 120),
        ("{name: proportion}", 100),
        ("{name: capacity}", 100),
        ("{name: gang}", None),
    ],
)
def test_how_much_of_the_cluster_groups_may_ask(plugins, pct):
    assert groups_of(f"tiers: [{{plugins: [{plugins}]}}]").overcommit_pct == pct


def test_the_page_has_the_row_of_every_action_and_plugin_and_no_other():
    told = re.findall(
        r"^\| (action|plugin) `([a-z]+)` \| ([^|]+) \| ([^|]+) \| ([^|]*) \|$", PAGE.read_text(), re.MULTILINE
    )
    known = [("action", name, part) for name, part in ACTIONS.items()]
    known += [("plugin", name, part) for name, part in PLUGINS.items()]
    assert told == [
        (kind, name, part.effect.value, part.here, part.without or "the same") for kind, name, part in known
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("tiers:\n- plugins:\n  ...\n", 3),
        ("actions: x\n...\ntiers: []\n", 2),
        ("nvidia:\n  knownMigGeometries:\n  - ...\n    models: [A]\n", 3),
        ("tiers:\n…\nx: 1\n", 2),
    ],
)
def test_dots_that_stand_for_what_was_left_out_are_told_as_that(text, line):
    for decode in (decode_scheduler_conf, decode_device_config, decode_settings):
        with pytest.raises(ConfigError) as caught:
            decode(text)
        (problem,) = caught.value.problems
        assert re.search(rf": line {line}: '.+' stands for lines that were left out; write them, or", problem)


def test_dots_that_end_a_document_or_are_a_text_are_as_yaml_has_them():
    assert decode_settings("policy: spread\n...\n").policy is Policy.SPREAD
    with pytest.raises(ConfigError, match=r"tiers: found '\.\.\.'; write a list"):
        decode_scheduler_conf("tiers: ...\n")
