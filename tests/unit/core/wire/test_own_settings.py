"""Settings of cardshare.yaml."""

import json
import re

import pytest

from core.errors import ConfigError
from core.settings import DialectName, Policy, Settings
from tests.support.devices.texts import decode_own_settings, decode_scheduler_conf, decode_settings


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


@pytest.mark.parametrize(
    ("account", "instead"),
    [
        ("biren-gpu/device-plugin-sa", "biren-gpu:device-plugin-sa"),
        ("biren-gpu:device-plugin-sa", "biren-gpu:device-plugin-sa"),
        ("device-plugin-sa", "NAMESPACE:NAME"),
        ("system:serviceaccount:biren-gpu", "NAMESPACE:NAME"),
        ("system:serviceaccount:biren-gpu/device-plugin-sa", "NAMESPACE:NAME"),
        ("system:serviceaccount:a:b*c", "NAMESPACE:NAME"),
        ("*", "NAMESPACE:NAME"),
        ("system:serviceaccount:*", "NAMESPACE:NAME"),
    ],
)
def test_a_device_plugin_without_a_service_account_is_a_problem(account, instead):
    with pytest.raises(ConfigError) as caught:
        decode_settings(f"admission: {{plugin_accounts: ['{account}']}}\n")
    remedy = f"write a service account as 'system:serviceaccount:{instead}'"
    assert caught.value.problems == (f"admission.plugin_accounts[0]: found '{account}'; {remedy}",)


def test_service_accounts_and_prefixes_of_them_are_device_plugins():
    names = ["system:serviceaccount:kube-system:a.b-1", "system:serviceaccount:mine:plugin-*"]
    assert decode_settings(f"admission: {{plugin_accounts: {names}}}\n").admission.plugin_accounts == tuple(names)


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


@pytest.mark.parametrize("of", ["device_config", "hami_config"])
@pytest.mark.parametrize(
    ("key", "name", "remedy"),
    [
        # The flag --hami-config has both in one.
        ("name", "kube-system/device-config", "write the ConfigMap's name without its namespace"),
        ("name", "Device_Config", "write the ConfigMap's name without its namespace"),
        ("name", "a..b", "write the ConfigMap's name without its namespace"),
        ("namespace", "..", "write a namespace's name"),
        ("namespace", "kube.system", "write a namespace's name"),
        ("namespace", "", "write a namespace's name"),
    ],
)
def test_a_name_that_no_config_map_can_have_is_a_problem(of, key, name, remedy):
    with pytest.raises(ConfigError) as caught:
        decode_settings(f"{of}_{key}: '{name}'\n")
    (problem,) = caught.value.problems
    assert problem.startswith(f"{of}_{key}: found '{name}'; {remedy}: ")


def test_a_config_map_may_have_dots_in_its_name():
    found = decode_settings("hami_config_name: ' my.device-config '\nhami_config_namespace: n-1\n")
    assert (found.hami_config_name, found.hami_config_namespace) == ("my.device-config", "n-1")


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
        pytest.param(
            'handoff_timeout_s: "300"',
            "found '300'; write seconds from 1 to 86400, without quotes or unit",
            id="quotes",
        ),
        pytest.param(
            "handoff_timeout_s: 5m", "found '5m'; write seconds from 1 to 86400, without quotes or unit", id="unit"
        ),
    ],
)
def test_a_number_that_nobody_can_mean_is_told_like_any_other_mistake(text, problem):
    with pytest.raises(ConfigError, match=re.escape(problem)):
        decode_settings(text)


KINDS = """
node_kinds:
  a100-pool:
    labels: {pool: a100}
    annotations: {volcano.sh/node-vgpu-register: "GPU-0,10,81920,NVIDIA-A100,true,hami-core:"}
    capacity: {volcano.sh/vgpu-number: 10, volcano.sh/vgpu-memory: "80Ki", volcano.sh/vgpu-cores: 100}
"""


def test_pods_of_the_default_scheduler_are_never_placed():
    with pytest.raises(ConfigError, match=r"scheduler_names\[1\]: .*; kube-scheduler places pods of default-scheduler"):
        decode_settings("scheduler_names: [cardshare, default-scheduler]\n")
    assert decode_settings("admission: {other_schedulers: {default-scheduler: 'system:kube-scheduler'}}\n")


def test_every_label_that_a_node_can_have_is_read():
    tiers = ["example.com/Rack_1", "a", "x" * 63]
    assert decode_settings(f"network_tiers: {tiers}").network_tiers == tuple(tiers)
    labels = {"example.com/a.b": "", "pool": "A_1.x-y"}
    notes = {"Example.com/a": "b c", "X": ""}
    kinds = {"a": {"labels": labels, "annotations": notes, "capacity": {"x": 1}}}
    (kind,) = decode_settings(json.dumps({"node_kinds": kinds})).node_kinds
    assert (dict(kind.labels), dict(kind.annotations)) == (labels, notes)


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
        ("network_tiers: rack", "network_tiers: found 'rack'; write a list"),
        ("network_tiers: [example.com/rack, 'my rack']", "network_tiers[1]: found 'my rack'; write a label's key"),
        ("network_tiers: [a/b/c]", "network_tiers[0]: found 'a/b/c'; write a label's key"),
        ("network_tiers: [rack=1]", "network_tiers[0]: found 'rack=1'; write a label's key"),
        (f"network_tiers: [{'x' * 64}]", "; write a label's key"),
        (
            "node_kinds: {a: {capacity: {x: 1}, labels: {pool/: b}}}",
            "node_kinds.a.labels: found 'pool/'; write a label's key",
        ),
        (
            "node_kinds: {a: {capacity: {x: 1}, annotations: {'volcano.sh/node vgpu-register': b}}}",
            "node_kinds.a.annotations: found 'volcano.sh/node vgpu-register'; write an annotation's key",
        ),
        (
            "node_kinds: {a: {capacity: {x: 1}, labels: {pool: 'NVIDIA A100'}}}",
            "node_kinds.a.labels.pool: found 'NVIDIA A100'; write a label's value",
        ),
        ("network_tiers: [a, b, a]", "network_tiers[2]: found 'a'; name each node label once"),
        (f"network_tiers: {[f'l{i}' for i in range(17)]}", "network_tiers: found '17 of them'; name no more than 16"),
    ],
)
def test_a_kind_of_node_or_a_tier_that_is_none_is_told(text, problem):
    with pytest.raises(ConfigError, match=re.escape(problem)):
        decode_settings(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("default_mode: {'*': mig}", "admission.default_mode: found '*'"),
        ("default_mode: {Team_A: mig}", "admission.default_mode: found 'Team_A'"),
        ("never_fits: {Team_A: deny}", "admission.never_fits: found 'Team_A'"),
        ("allow: {team a: [CS303]}", "admission.allow: found 'team a'"),
        ("memory_required: [team-a, team.b]", "admission.memory_required[1]: found 'team.b'"),
    ],
)
def test_what_no_namespace_can_be_named_is_told_instead_of_having_no_effect(text, said):
    with pytest.raises(ConfigError) as told:
        decode_settings(f"admission: {{{text}}}")
    assert str(told.value) == f"{said}; write a namespace's name: lower-case letters, digits and '-'"


@pytest.mark.parametrize("text", ["never_fits: {'*': deny}", "allow: {'*': [CS303]}", "memory_required: ['*']"])
def test_a_star_stands_for_every_namespace(text):
    decode_settings(f"admission: {{{text}}}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("metrics.per_pod: true", "metrics.per_pod: there is no such setting; write per_pod under metrics; known are"),
        ("admission.hide_devices: true", "admission.hide_devices: there is no such setting; write hide_devices under"),
    ],
)
def test_a_setting_that_is_written_with_a_dot_as_on_the_page_is_told_where_it_belongs(text, said):
    with pytest.raises(ConfigError) as told:
        decode_settings(text)
    assert str(told.value).startswith(said)
