"""What all configurations have in common: YAML of strangers, and how what is wrong with it is told."""

import re
import time

import pytest

from core.errors import ConfigError
from core.settings import Policy
from core.wire import yaml_text
from tests.support.devices.texts import decode_device_config, decode_scheduler_conf, decode_settings


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


@pytest.mark.parametrize("decode", [decode_settings, decode_scheduler_conf, lambda text: yaml_text.load(text, "it")])
@pytest.mark.parametrize("value", ["!!bool x", "!!timestamp x", "2026-13-45", "!!int ''", "!!float ''", "!!int x"])
def test_a_value_that_is_not_what_it_says_is_told_with_its_line(decode, value):
    with pytest.raises(ConfigError, match=r"line 2: '.*' is no (bool|timestamp|int|float); correct it, or quote it"):
        decode(f"# of ours\nnode_lock: {value}\n")


@pytest.mark.parametrize("decode", [decode_settings, decode_scheduler_conf, decode_device_config])
@pytest.mark.parametrize("tag", ["map", "set"])
@pytest.mark.parametrize("value", ["[a]", "[[a, b]]", "[{a: b}]", "a", "ab", "''"])
def test_a_tag_of_a_mapping_on_what_is_none_is_no_configuration(decode, tag, value):
    with pytest.raises(ConfigError, match="expected a mapping node"):
        decode(f"!!{tag} {value}\n")
    with pytest.raises(ConfigError, match="expected a mapping node"):
        decode(f"tiers: !!{tag} {value}\n")


@pytest.mark.parametrize(
    "text",
    [
        "{a: " * 50 + "[" + ", ".join(["1"] * 2000) + "]" + "}" * 50,
        "a: &x [1, 'no', ~, 1e3, '1e3', 2001-12-14]\nb: *x\n'? c': {'d, e': \"f: \\0 é 😀\", 2001-12-14: [{}, []]}\n",
        "a: |\n  b\n\n   c\nd: ' e'\n" + "k" * 100 + ": 1\n",
    ],
    ids=["deep", "kinds of values", "lines"],
)
def test_dumped_values_are_read_the_same_and_take_little_more_room(text):
    value = yaml_text.load(text, "it")
    dumped = yaml_text.dump(value)
    assert yaml_text.load(dumped, "it") == value
    assert dumped.isascii()
    assert len(dumped) < 2 * len(text)


def yards(call):
    """The CPU time of a call, in yards: a reading of plain YAML, made just after it."""
    plain = "".join(f"k{i}: 1\n" for i in range(10_000))
    times = [time.thread_time()]
    for each in (call, lambda: yaml_text.load(plain, "")):
        each()
        times.append(time.thread_time())
    return (times[1] - times[0]) / (times[2] - times[1])


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
    # What else the machine does may make one call dearer, not three.
    assert any(yards(call) < most for _ in range(3))


def test_notes_and_problems_beyond_200_are_counted():
    found = decode_scheduler_conf(f"actions: '{','.join(f'a{i}' for i in range(1000))},a1,a2'")
    assert found.notes[:2] == ("action a0: unknown, has no effect", "action a1: unknown, has no effect")
    assert (len(found.notes), found.notes[-1]) == (201, "and 803 more")
    assert len(decode_scheduler_conf("actions: a,b,a,b,enqueue").notes) == 2
    with pytest.raises(ConfigError) as caught:
        decode_settings("".join(f"k{i}: 1\n" for i in range(1000)))
    assert (len(caught.value.problems), caught.value.problems[-1]) == (201, "and 800 more")


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
