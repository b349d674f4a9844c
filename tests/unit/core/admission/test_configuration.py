"""What is said of edits of the ConfigMaps that are read as configuration."""

import json

import pytest

from core.admission.configuration import InForce, judge_edit
from core.catalog import standard_catalog
from core.configuration import OWN_MAP, SCHEDULER_MAP, Source, Text, decode, device_map, hami_map
from core.errors import ConfigError, InvalidRequestError
from core.names import VERSION
from core.settings import Settings
from core.wire.config_maps import ReviewedConfigMap, decode_config_map_edit
from tests.support.devices.texts import decode_own_settings

DEVICE_MAP = device_map(Settings())
CHIPS_MAP = hami_map(Settings())
TRUSTED = frozenset({"kube-system", "volcano-system"})
OWN = "cardshare.yaml"
CONF = "volcano-scheduler.conf"
DEVICES = "device-config.yaml"
ELSEWHERE = "elsewhere/shares-settings"


def edit(texts, *, version="", binary=None):
    return ReviewedConfigMap("", version, texts, binary or {})


def judged(new, old=None, place=OWN_MAP, *, trusted=TRUSTED, parts=None):
    namespace, _, name = place.partition("/")
    found = InForce(parts=parts or {}, sections={}, settings=Settings(), trusted=trusted)
    before = None if old is None else old._replace(name=name)
    return judge_edit(namespace, new._replace(name=name), before, found, standard_catalog())


def told(verdict):
    return [str(one) for one in verdict.warnings]


@pytest.mark.parametrize("place", [OWN_MAP, ELSEWHERE])
def test_settings_that_can_be_read_are_taken_without_a_word(place):
    verdict = judged(edit({OWN: "policy: spread\n", CONF: "tiers: []\n"}), place=place)
    assert (verdict.allowed, told(verdict)) == (True, [])


REFUSED = {
    "an unknown key": (
        {OWN: "polizy: spread\n"},
        ["cardshare.yaml: polizy: there is no such setting; did you mean 'policy'?"],
    ),
    "a wrong value": (
        {OWN: "bind_in_flight_max: 0\n"},
        ["cardshare.yaml: bind_in_flight_max: found '0'; write a whole number"],
    ),
    "no YAML": ({OWN: "policy: [\n"}, ["cardshare.yaml: this is not YAML", "line 2"]),
    "a key twice": (
        {OWN: "policy: pack\npolicy: pack\n"},
        ["cardshare.yaml: line 2: key 'policy' stands there twice; remove one"],
    ),
    "all of them": ({OWN: "polizy: x\nschedule_weight: -1\n"}, ["polizy", "schedule_weight: found '-1'"]),
    "the text beside it": ({CONF: "tiers: 3\n"}, ["volcano-scheduler.conf: tiers: found '3'; write a list"]),
}


@pytest.mark.parametrize(("texts", "words"), REFUSED.values(), ids=REFUSED)
def test_settings_of_ours_that_are_wrong_are_refused_with_all_that_is_wrong_and_where(texts, words):
    verdict = judged(edit(texts))
    assert verdict.message.startswith(f"CS602 ConfigMap {OWN_MAP}: ")
    assert [word for word in words if word not in verdict.message] == []


def test_of_very_many_problems_the_first_are_told_and_how_many_more_there_are():
    message = judged(edit({OWN: "".join(f"key{i}: 1\n" for i in range(100))})).message
    assert message.count("there is no such setting") == 16
    assert message.endswith("; and 84 more")


def test_what_is_refused_is_what_the_reader_of_a_start_refuses_and_nothing_else():
    for text in (
        "",
        "# nothing\n",
        "null",
        "[]",
        "policy: pack",
        "policy: PACK",
        "a: 1",
        "- a",
        "metrics: {per_pod: 1}",
    ):
        problems: tuple[str, ...] = ()
        try:
            decode_own_settings(text)
        except ConfigError as e:
            problems = e.problems
        verdict = judged(edit({OWN: text}))
        assert (verdict.allowed, [one for one in problems if one not in verdict.message]) == (not problems, [])


def test_a_text_that_stays_as_it_is_holds_up_no_edit_beside_it():
    wrong = "polizy: spread\n"
    assert judged(edit({OWN: wrong, CONF: "tiers: []\n"}), edit({OWN: wrong})).allowed
    assert not judged(edit({OWN: wrong, CONF: ""}), edit({OWN: "policy: spread\n"})).allowed


def test_settings_for_another_release_are_told_of_and_not_refused():
    wrong = {OWN: "a_setting_of_later: 1\n"}
    assert not judged(edit(wrong, version=VERSION)).allowed
    verdict = judged(edit(wrong, version="99.0.0"))
    assert verdict.allowed
    first, second = told(verdict)
    assert "app.kubernetes.io/version: found '99.0.0'; this webhook has version" in first
    assert second.startswith("CS602 cardshare.yaml: a_setting_of_later: there is no such setting")


BINARY = {
    "text": (b"policy: spread\n", True),
    "wrong text": (b"polizy: spread\n", False),
    "no text": (b"\xff\xfe", False),
}


@pytest.mark.parametrize(("content", "allowed"), BINARY.values(), ids=BINARY)
def test_what_is_given_as_binary_is_mounted_and_read_all_the_same(content, allowed):
    assert judged(edit({}, binary={OWN: content})).allowed is allowed


def test_a_key_that_nobody_reads_is_told():
    (warning,) = told(judged(edit({OWN: "policy: spread\n", "cardshare.yml": "policy: pack\n"})))
    assert warning == "CS603 key 'cardshare.yml': it is ignored; known keys are cardshare.yaml, volcano-scheduler.conf"


@pytest.mark.parametrize("new", [{}, {OWN: ""}, {OWN: "\n"}], ids=["gone", "empty", "blank"])
def test_that_nothing_is_left_of_the_settings_is_told(new):
    (warning,) = told(judged(edit(new), edit({OWN: "policy: spread\n"})))
    assert warning == "CS603 cardshare.yaml: the text was removed; all its settings have their defaults"
    assert told(judged(edit(new))) == []


def test_what_of_our_settings_no_protocol_reads_is_told():
    kinds = "node_kinds:\n  pool:\n    capacity: {cpu: 4}\n"
    (warning,) = told(judged(edit({OWN: kinds})))
    assert warning.startswith("CS603 cardshare.yaml: node_kinds.pool")


OTHERS = [(SCHEDULER_MAP, CONF, "tiers: 3\n"), (DEVICE_MAP, DEVICES, "nvidia: [\n"), (CHIPS_MAP, DEVICES, "vnpus: 3\n")]


@pytest.mark.parametrize(("place", "key", "text"), OTHERS, ids=[place for place, _, _ in OTHERS])
def test_what_belongs_to_others_is_told_of_and_never_refused(place, key, text):
    verdict = judged(edit({key: text}), place=place)
    assert verdict.allowed
    first, second = told(verdict)
    assert first == "CS602 cardshare cannot read this text and keeps using the previous one"
    assert second.startswith(f"CS602 {key}: ")


@pytest.mark.parametrize(("place", "key", "text"), OTHERS, ids=[place for place, _, _ in OTHERS])
def test_nothing_is_said_of_namespaces_that_are_not_believed(place, key, text):
    assert told(judged(edit({key: text}), place=place, trusted=frozenset())) == []


@pytest.mark.parametrize("place", [SCHEDULER_MAP, DEVICE_MAP, CHIPS_MAP])
def test_keys_of_others_that_are_not_read_are_nobodys_business(place):
    assert told(judged(edit({OWN: "polizy: x\n", "readme": "x"}), place=place)) == []


def test_parts_of_volcanos_text_without_effect_are_told_where_it_counts():
    text = "tiers:\n- plugins:\n  - name: cdp\n  - name: nodeorder\n  - name: gang\n"
    warnings = told(judged(edit({CONF: text}), place=SCHEDULER_MAP))
    assert [one for one in warnings if one.startswith("CS603 volcano-scheduler.conf: plugin cdp: ")] != []
    beside = decode(Text(source=Source.SCHEDULER_FILE, config_map=OWN_MAP, content="tiers: []\n"), standard_catalog())
    assert told(judged(edit({CONF: text}), place=SCHEDULER_MAP, parts={Source.SCHEDULER_FILE: beside})) == []


def test_no_more_is_told_than_the_api_server_shows():
    warnings = told(judged(edit({DEVICES: "".join(f"a{i}: 1\n" for i in range(60))}), place=DEVICE_MAP))
    assert (len(warnings), warnings[-1]) == (12, "CS603 and 49 more")


def test_an_edit_is_read_of_the_review_whatever_else_is_there():
    config_map = {
        "metadata": {"name": "n", "labels": {"app.kubernetes.io/version": "3"}, "managedFields": []},
        "data": {"a": "b"},
        "binaryData": {"c": "/w=="},
        "immutable": True,
    }
    review = {"request": {"object": config_map, "oldObject": {"metadata": {"name": "n"}}}}
    new, old = decode_config_map_edit(json.dumps(review).encode())
    assert new == ReviewedConfigMap("n", "3", {"a": "b"}, {"c": b"\xff"})
    assert old == ReviewedConfigMap("n", "", {}, {})
    with pytest.raises(InvalidRequestError):
        decode_config_map_edit(b'{"request":{"object":{"data":3}}}')


def test_a_section_of_a_vendor_that_is_ignored_is_told_at_the_edit_with_what_it_clashes_with():
    there = decode(Text(source=Source.DEVICE_MAP, content="vastai: {resourceCountName: a.b/c}"), standard_catalog())
    new = edit({DEVICES: "hygon: {resourceCountName: a.b/c}\namd: {resourceCountName: cpu}\nbiren: {}\n"})
    assert told(judged(new, place=CHIPS_MAP, parts={Source.DEVICE_MAP: there})) == [
        "CS603 device-config.yaml: amd.resourceCountName: found 'cpu'; write a resource of the device plugin, with its "
        "domain; until then this section is ignored for amd",
        "CS603 device-config.yaml: hygon: found 'a.b/c'; write another name, because pods request cards of vastai by "
        "this one; until then this section is ignored for hygon",
    ]
