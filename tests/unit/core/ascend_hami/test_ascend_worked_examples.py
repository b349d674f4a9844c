"""The worked examples of the protocol reference for HAMi mode, as required (ascend 8.1)."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from core import hami_lock
from core.dialects.ascend_hami.cards import trim
from core.dialects.ascend_hami.table import SHIPPED_CHIPS, WHOLE_CHIP, AscendTable
from core.model import Container, Phase, Pod, PodUid
from core.port.handoff import LockQuestion, LockStep, LockWait, Progress
from core.settings import Policy
from core.sharing.request import Request
from tests.support.devices import ascend
from tests.support.devices.ascend import DIALECT, NODE_LOCK, TABLES
from tests.support.devices.texts import device_tables

DATA = Path(__file__).parents[3] / "data"
EXAMPLES = {one["id"]: one for one in yaml.safe_load_all((DATA / "ascend-examples.yaml").read_text())}
PLACED = [one for one in EXAMPLES.values() if one["mode"] == "hami" and "pods" in one]


def place_all(example: dict[str, Any], cards: Any) -> Any:
    """Place the pods of *example* in turn; the cards afterwards."""
    for one in example["pods"]:
        found = ascend.pod(example["cw"], *one["containers"], soft=one.get("soft", False))
        asked = DIALECT.request(found, TABLES)
        answer = DIALECT.place(cards, asked, Policy(example["policy"])) if isinstance(asked, Request) else None
        assert (answer is None) == ("fail" in one), one["name"]
        if answer is None:
            assert not isinstance(asked, Request) or DIALECT.shortfalls(cards, asked)
            continue
        written = ascend.notes(answer)
        assert written[f"hami.io/{example['cw']}-devices-allocated"] == one["alloc"]
        assert written[f"hami.io/{example['cw']}-devices-to-allocate"] == one["alloc"]
        assert written[f"huawei.com/{example['cw']}"] == one["rt"]
        cards = DIALECT.take(cards, answer.assignment)
    return cards


@pytest.mark.parametrize("example", PLACED, ids=lambda one: one["id"])
def test_the_pods_of_a_worked_example_are_placed_as_required(example):
    found = ascend.node(example["cw"], example["nodes"]["node-a"], soft=example.get("soft_node", False))
    holders = [
        ascend.holder(example["cw"], f"{uuid},{example['cw']},{memory},{cores}:;", name=uuid)
        for uuid, (slots, memory, cores) in example.get("usage_before", {}).items()
        if slots
    ]
    after = ascend.usage(place_all(example, ascend.cards_of(found, *holders)))
    assert after == example.get("usage_after", after)


def test_h01_the_binding_carries_eight_annotations_and_the_node_is_locked():
    example = EXAMPLES["H01"]
    cards = ascend.cards_of(ascend.node(example["cw"], example["node"]["uuids"]))
    found = ascend.pod(example["cw"], *example["pod"]["containers"], name=example["pod"]["name"])
    answer = ascend.placed(cards, found)
    assert answer is not None
    assert dict(ascend.notes(answer, example["now"])) == example["written_before_or_with_bind"]
    step = NODE_LOCK.lock(ascend.node(example["cw"]), LockQuestion([], example["now"], TABLES, found))
    assert step == LockStep(key="hami.io/mutex.lock", value=example["lock"]["hami.io/mutex.lock"])


@pytest.mark.parametrize("case", EXAMPLES["H04"]["cases"], ids=lambda case: str(case["m"]))
def test_h04_memory_is_trimmed_up_to_a_template(case):
    cut = trim(ascend.chip("Ascend310P"), case["m"])
    found = "invalid" if cut is None else [cut.charge, None if cut.name == WHOLE_CHIP else cut.name]
    assert found == case["result"]


def test_h09_devices_are_left_until_the_plugin_has_served_the_last_container():
    steps = EXAMPLES["H09"]["erase_sequence_required"]
    assert [hami_lock.devices_left(step) for step in steps] == [True, True, False]


@pytest.mark.parametrize("case", EXAMPLES["H11"]["cases"], ids=lambda case: json.dumps(case["limits"]))
def test_h11_malformed_requests_are_refused_with_a_reason(case):
    found = Pod(
        uid=PodUid("p"), namespace="default", name="p", containers=(Container(name="c", limits=case["limits"]),)
    )
    asked = DIALECT.request(found, TABLES)
    if case["required"] == "no NPU request":
        assert asked is None
    else:
        assert asked
        assert not isinstance(asked, Request)
        assert all(violation.remedy for violation in asked)


def test_h12_a_terminating_pod_still_holds_and_a_failed_one_does_not():
    example = EXAMPLES["H12"]
    found = ascend.node(example["cw"], example["nodes"]["node-a"])
    living = [
        ascend.holder(example["cw"], one["allocated"], name=one["name"], deleting=one["deleting"])
        for one in example["existing"]
        if not Pod(uid=PodUid(""), namespace="", name="", phase=Phase(one["phase"])).finished
    ]
    cards = ascend.cards_of(found, *living)
    assert ascend.usage(cards) == example["usage_required"]
    place_all(example, cards)


@pytest.mark.parametrize("policy", ["binpack", "spread"])
def test_h13_nodes_score_by_the_chip_that_is_chosen(policy):
    example = EXAMPLES["H13"]
    scores = {}
    for name, uuids in example["nodes"].items():
        holders = [
            ascend.holder(example["cw"], f"{uuid},{example['cw']},{example['usage_before'][uuid][1]},0:;", name=uuid)
            for uuid in uuids
            if uuid in example["usage_before"]
        ]
        cards = ascend.cards_of(ascend.node(example["cw"], uuids), *holders)
        answer = ascend.placed(cards, ascend.pod(example["cw"], *example["pod"]["containers"]), Policy(policy))
        assert answer is not None
        scores[name] = int(answer.score + 0.5) * example["weight"]
        if name == example["chosen"][policy][0]:
            assert ascend.text(answer, example["cw"]) == example["chosen"][policy][1]
    assert scores == example["scores"][policy]


def test_h14_the_second_pod_waits_for_the_lock_of_the_first():
    word, now = "Ascend310P", 1787303731
    first = ascend.pod(word, [1, 3072], name="p1", uid=PodUid("1"))
    second = ascend.pod(word, [1, 3072], name="p2", uid=PodUid("2"))
    found = ascend.node(word)
    answer = ascend.placed(ascend.cards_of(found), first)
    assert answer is not None
    locked = NODE_LOCK.lock(found, LockQuestion([first], now, TABLES, first))
    assert locked == LockStep(key="hami.io/mutex.lock", value="2026-08-21T09:15:31Z,default,p1")
    holds = ascend.node(word)
    holds = type(holds)(
        name=holds.name, annotations={**holds.annotations, locked.key: str(locked.value)}, allocatable=holds.allocatable
    )
    bound = Pod(uid=first.uid, namespace="default", name="p1", node_name="node-a", annotations=ascend.notes(answer))
    assert isinstance(NODE_LOCK.lock(holds, LockQuestion([bound], now, TABLES, second)), LockWait)
    served = {**bound.annotations, "hami.io/bind-phase": "success", f"hami.io/{word}-devices-to-allocate": ";;"}
    done = Pod(uid=first.uid, namespace="default", name="p1", node_name="node-a", annotations=served)
    seen = DIALECT.in_flight(done, TABLES)
    assert seen is not None
    assert seen.progress is Progress.DONE
    turn = NODE_LOCK.lock(found, LockQuestion([done], now + 1, TABLES, second))
    assert turn == LockStep(key="hami.io/mutex.lock", value="2026-08-21T09:15:32Z,default,p2")


def test_the_chips_that_are_known_without_a_configuration_are_those_that_the_plugin_ships():
    shipped = yaml.safe_load((DATA / "ascend-device-config.yaml").read_text())["data"]["device-config.yaml"]
    assert device_tables(shipped).of(AscendTable).chips == SHIPPED_CHIPS
    assert device_tables("").of(AscendTable).chips == SHIPPED_CHIPS
