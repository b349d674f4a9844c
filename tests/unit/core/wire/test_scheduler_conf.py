"""What is read of volcano-scheduler.conf."""

import re
from pathlib import Path

import pytest

from core.dialects.mindcluster.table import MindClusterTable
from core.dialects.vgpu.table import ExclusiveRules
from core.errors import ConfigError
from core.settings import DialectName, GroupSettings, NodeWeights, Policy, Settings
from core.wire.volcano_parts import ACTIONS, PLUGINS
from tests.support.devices.texts import decode_scheduler_conf
from tests.support.devices.vendors import PORTS

VENDORS = {port.name for port in PORTS}


def conf(arguments, plugin="deviceshare"):
    lines = "".join(f"\n      {key}: {value}" for key, value in arguments.items())
    return f"tiers:\n- plugins:\n  - name: gang\n  - name: {plugin}\n    arguments:{lines or ' {}'}\n"


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
    assert set(found.settings.dialects or ()) == {"vgpu", "whole_gpu", "hami"} | VENDORS
    assert (found.settings.policy, found.settings.schedule_weight) == (Policy.SPREAD, 1)


def test_a_configuration_without_a_policy_has_upstreams_order():
    assert decode_scheduler_conf(conf({"deviceshare.VGPUEnable": "true"})).settings.policy is Policy.INDEX


def test_the_older_switches_are_understood():
    found = decode_scheduler_conf(
        conf({"predicate.GPUSharingEnable": '"T"', "predicate.NodeLockEnable": "yes"}, "predicates")
    )
    assert set(found.settings.dialects or ()) == {"gpu_memory", "whole_gpu", "hami"} | VENDORS
    assert found.settings.node_lock


@pytest.mark.parametrize(
    ("arguments", "plugin", "off", "policy"),
    [
        # Ascend/mind-cluster, build/volcano-v1.9.0.yaml: its own plugin is what enables MindCluster's slices.
        (
            {"predicate.GPUSharingEnable": "false", "predicate.GPUNumberEnable": "false"},
            "predicates",
            {"gpu_memory", "gpu_number"},
            Policy.BINPACK,
        ),
        ({"deviceshare.SchedulePolicy": "spread"}, "deviceshare", set(), Policy.SPREAD),
        ({"deviceshare.VGPUEnable": "false"}, "deviceshare", {"vgpu"}, Policy.INDEX),
    ],
    ids=["mindclusters", "a-policy-alone", "one-is-false"],
)
def test_a_configuration_that_enables_nothing_disables_only_what_it_names(arguments, plugin, off, policy):
    found = decode_scheduler_conf(conf(arguments, plugin)).settings
    switched = ("vgpu", "gpu_memory", "gpu_number", "ascend_hami", "mindcluster", "whole_gpu")
    assert {name for name in switched if not found.has_on(DialectName(name))} == off
    assert found.policy is policy


@pytest.mark.parametrize("weight", ["10", '"10"'])
def test_a_weight_may_stand_in_quotes(weight):
    found = decode_scheduler_conf(conf({"deviceshare.ScheduleWeight": weight, "deviceshare.SchedulePolicy": "binpack"}))
    assert found.settings.schedule_weight == 10


def test_where_the_device_configuration_lives_is_read():
    found = decode_scheduler_conf(
        conf({"deviceshare.KnownGeometriesCMName": "c", "deviceshare.KnownGeometriesCMNamespace": "n"})
    )
    assert (found.settings.device_config_name, found.settings.device_config_namespace) == ("c", "n")


@pytest.mark.parametrize(
    ("key", "name", "remedy"),
    [
        ("CMName", "kube-system/c", "write the ConfigMap's name without its namespace"),
        ("CMNamespace", "..", "write a namespace's name"),
    ],
)
def test_a_place_of_the_device_configuration_that_cannot_be_is_a_problem(key, name, remedy):
    with pytest.raises(ConfigError) as caught:
        decode_scheduler_conf(conf({f"deviceshare.KnownGeometries{key}": name}))
    (problem,) = caught.value.problems
    assert f"deviceshare.KnownGeometries{key}: found '{name}'; {remedy}: " in problem


def test_exclusive_rules_are_read():
    found = decode_scheduler_conf(conf({"deviceshare.GPUExclusiveRules": "[{a: x, b: y}, {c: '1'}]"}))
    labels = (frozenset({("a", "x"), ("b", "y")}), frozenset({("c", "1")}))
    assert found.sections[0] == ExclusiveRules(rules=tuple(labels))


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
        "plugin gang is left out: members are placed one at a time, and `minMember` has no effect",
        "plugin nodeorder is left out: what pods prefer of nodes and of other pods orders no nodes",
    )
    assert found.settings == Settings(groups=GroupSettings(gang=False, overcommit_pct=None), node_weights=UNMINDED)


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("tiers: [{plugins: [{name: gang, argument: {}}]}]", "tiers[0].plugins[0].argument: did you mean 'arguments'?"),
        ("tiers: [{plugins: [], arguments: {}}]", "tiers[0].arguments: write 'arguments' in an item of plugins"),
        (
            "tiers: [{plugins: [{name: deviceshare, deviceshare.VGPUEnable: true}]}]",
            "tiers[0].plugins[0].deviceshare.VGPUEnable: "
            "write 'deviceshare.VGPUEnable' in the arguments of plugin deviceshare",
        ),
        (conf({"VGPUEnable": "true"}), "plugin deviceshare: VGPUEnable: did you mean 'deviceshare.VGPUEnable'?"),
        (
            conf({"deviceshare.VGPUEnable": "true"}, "predicates"),
            "plugin predicates: deviceshare.VGPUEnable: "
            "write 'deviceshare.VGPUEnable' in the arguments of plugin deviceshare",
        ),
        ("plugins: []", "plugins: write 'plugins' in an item of tiers"),
        ("tiers: [{plugins: [{nmae: gang}]}]", "tiers[0].plugins[0].nmae: did you mean 'name'?"),
        ("actions: 'enqueue, alocate'", "action alocate: did you mean 'allocate'?"),
        ("configurations: [{name: init-param}]", "configuration init-param: did you mean 'init-params'?"),
    ],
)
def test_a_key_that_nobody_reads_is_noted_with_what_was_meant(text, note):
    place, _, hint = note.rpartition(": ")
    assert f"{place}: unknown, has no effect; {hint}" in decode_scheduler_conf(text).notes


def test_what_is_known_to_volcano_alone_has_no_effect_and_refuses_nothing():
    found = decode_scheduler_conf(
        "actions: [enqueue]\nmetrics: 3\ntiers:\n- plugins:\n  - name: gang\n    enablePreemptable: false\n"
        "    enableJobOrder: false\n  - name: nodeorder\n    arguments: {leastrequested.weight: 1}\n"
        "  - name: extender\n    arguments: [1]\n"
    )
    assert found.notes == (
        "actions: has no effect: write them as one text, such as 'enqueue, allocate'",
        "metrics: has no effect here",
        "plugin gang: enableJobOrder: has no effect here",
        "plugin extender: has no effect here",
    )


@pytest.mark.parametrize(
    "text",
    [
        "tiers: [{plugins: [{name: tdm, arguments: {1: 2, null: 3}}]}]",
        "configurations: [{name: [a]}, {name: {b: 1}}, {name: 3}]",
        "tiers: [{plugins: [{name: usage, arguments: {2024-01-01: 2}, enableJobOrder: {}}]}]",
    ],
)
def test_odd_values_where_nothing_is_read_refuse_nothing(text):
    assert decode_scheduler_conf(text).settings.dialects is None


def test_actions_and_weights_that_do_nothing_here_are_named():
    found = decode_scheduler_conf(
        'actions: "enqueue, allocate, preempt"\n'
        + conf({"leastrequested.weight": "1", "imagelocality.weight": "2"}, "nodeorder")
    )
    assert found.notes == (
        "action 'preempt': has no effect here: only the setting `preemption` enables evictions for other pods",
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
    (table,) = [one for one in found.sections if isinstance(one, MindClusterTable)]
    assert table.preset_virtual_device
    assert table.use_cluster_info_manager
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


@pytest.mark.parametrize("value", ["[]", "{}", "[binpack]", "{binpack: 1}"])
def test_a_policy_that_is_no_word_is_told(value):
    with pytest.raises(ConfigError, match=r"deviceshare.SchedulePolicy: found .*; write one of 'binpack'"):
        decode_scheduler_conf(conf({"deviceshare.SchedulePolicy": value}))


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
