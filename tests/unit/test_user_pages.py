"""What docs/users shows is admitted and is what an example declares, and every word that is read is told."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from core.admission.mutate import judge_new
from core.admission.rulebook import rulebook
from core.admission.verdict import Judged
from core.catalog import standard_catalog
from core.model import Pod, amounts_of, parted
from core.names import GPU_INDEX, GPU_UNHEALTHY, PLACE_WISHES
from core.selection import decode_types, type_words
from core.settings import Settings, Tables
from core.waiting import Cause
from core.wire.patches import Appended
from core.wire.pods import decode_pod
from sandbox.demo.examples import find
from tests.support.devices.reviewed import reviewed

ROOT = Path(__file__).parents[2]
SHARING, CHOOSING, MIGRATING, WAITS, HAMI = (
    (ROOT / "docs/users" / f"{name}.md").read_text(encoding="utf-8")
    for name in ("sharing", "choosing-cards", "migrating", "why-pods-wait", "hami")
)
CATALOG = standard_catalog()
TABLES = Tables()
BOOK = rulebook(Settings(), TABLES, CATALOG)
EXAMPLES = {example.name: example for example in find([ROOT / "docs/examples"])}
YAML = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"^# docs/examples/([\w-]+)\.yaml$", re.MULTILINE)
# Each model of an Ascend chip has words of its own; the pages have those of this one.
CHIP = "Ascend310P"
LABELS = frozenset({"vnpu-level", "vnpu-dvpp", "ring-controller.atlas"})


def pod_of(metadata: dict[str, dict[str, Any]], limits: dict[str, Any], **container: Any) -> Pod:
    """A pod with one container."""
    amounts = {key: str(value) for key, value in limits.items()}
    main = {"name": "main", "resources": {"limits": amounts, "requests": amounts}, **container}
    manifest = {
        "metadata": {"name": "p", "namespace": "default", **metadata},
        "spec": {"schedulerName": "cardshare", "containers": [main]},
    }
    return decode_pod(json.dumps(manifest).encode())


def judged(metadata: dict[str, dict[str, Any]], limits: dict[str, Any], **container: Any) -> Judged:
    """What admission makes of `pod_of` the same."""
    return judge_new(reviewed(pod_of(metadata, limits, **container)), "dana", BOOK)


def limits_of(manifest: dict[str, Any]) -> dict[str, str]:
    """What the first container asks for."""
    return {key: str(value) for key, value in manifest["spec"]["containers"][0]["resources"]["limits"].items()}


def rows(text: str) -> Iterator[list[str]]:
    """The cells of the tables in *text*, row by row, less their heads."""
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        for line in table.splitlines()[2:]:
            yield [cell.strip() for cell in line.strip("|").split(" | ")]


def words(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


BLOCKS = [block for page in (SHARING, CHOOSING) for block in YAML.findall(page)]


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_is_admitted_and_is_part_of_the_example_that_it_names(block: str):
    shown = yaml.safe_load(block)
    metadata, limits = shown.get("metadata", {}), limits_of(shown)
    found = judged(metadata, limits)
    assert found.verdict.allowed
    assert found.asked is not None
    assert not {"CS115", "CS116"} & set(found.verdict.codes)
    named = NAMED.match(block)
    if named:
        alike = [one for one in EXAMPLES[named[1]].manifests if limits_of(one).items() >= limits.items()]
        assert metadata in [
            {key: one["metadata"][key] for key in ("annotations", "labels") if key in one["metadata"]} for one in alike
        ]


def test_what_is_shown_for_hamis_plugin_asks_for_it():
    shown = yaml.safe_load(YAML.findall(HAMI)[0])
    found = judged({}, shown["resources"]["limits"])
    assert found.asked is not None
    assert found.asked.dialect == "hami"


def test_variables_are_declared_of_an_example_of_their_section():
    told = 0
    for section in SHARING.split("\n## "):
        declared = {
            pair for name in NAMED.findall(section) for one in EXAMPLES[name].expectations for pair in one.env.items()
        }
        for pair in re.findall(r"`([A-Z][A-Z0-9_]+): (\S+)`", section):
            assert pair in declared
            told += 1
    assert told >= 6


def test_templates_are_those_that_the_example_declares():
    example = EXAMPLES["mindcluster-templates"]
    pods = {one["metadata"]["name"]: one for one in example.manifests}
    declared: set[tuple[str, ...]] = set()
    for one in example.expectations:
        labels, (cores,) = pods[one.pod]["metadata"]["labels"], limits_of(pods[one.pod]).values()
        assert isinstance(one.cards, tuple)
        declared.add((cores, labels["vnpu-level"], labels["vnpu-dvpp"], one.cards[0].partition("-")[2]))
    section = SHARING.partition("\n## AI cores")[2]
    assert {tuple(cell.strip("`") for cell in row) for row in rows(section)} == declared


def test_types_match_as_is_told():
    card = type_words("NVIDIA A100-SXM4-40GB")
    matching = {item for item in ("A10", "A10*", "a100") for one in decode_types(item, "") if one.matches(card)}
    assert matching == {"A10*", "a100"}


def read_annotations() -> set[tuple[str, str]]:
    """(annotation, dialect) of all that is read."""
    return {
        (key, name)
        for name in CATALOG.dialects
        for key in CATALOG.names(name, TABLES).preferences
        if "-Ascend" not in key or f"-{CHIP}-" in key
    }


def test_each_annotation_is_told_with_the_pods_of_which_it_is_read():
    # nvidia.com/gpu stands for NVIDIA's own plugin there.
    gpu = frozenset({"nvidia.com/gpu"})
    sold = {
        name: gpu if name == "whole_gpu" else dialect.names(TABLES).resources - gpu
        for name, dialect in CATALOG.dialects.items()
    }
    told = {
        (key, name)
        for row in rows(CHOOSING)
        for key in words(row[0])
        for resource in words(row[2])
        for name in sold
        if resource in sold[name]
    }
    assert told == read_annotations()


def word_by_word() -> list[tuple[str, list[str], str, str]]:
    """(heading, words, one with a value, what is said of them) of each row of the tables."""
    sections = [one for one in MIGRATING.split("\n## ") if one.startswith("From ")]
    return [(one.partition("\n")[0], words(row[0]), words(row[1])[0], row[2]) for one in sections for row in rows(one)]


def least(heading: str, word: str) -> dict[str, str]:
    """What a pod needs so that *word* means something."""
    match heading:
        case "From HAMi: NVIDIA cards":
            memory = {"nvidia.com/gpumem": "1000"} if word != "nvidia.com/gpumem-percentage" else {}
            return {"nvidia.com/gpu": "1", **memory}
        case "From Volcano: shares of cards":
            return {"volcano.sh/vgpu-number": "1", "scheduling.k8s.io/group-name": "train"}
        case "From Volcano: Ascend" if word in LABELS:
            return {"huawei.com/npu-core": "2", "ring-controller.atlas": "ascend-310P"}
        case "From Volcano: Ascend" if word == "huawei.com/npu-core":
            return {"ring-controller.atlas": "ascend-310P"}
        case "From Volcano: Ascend" if word != f"huawei.com/{CHIP}":
            soft = {"huawei.com/vnpu-mode": "hami-core"} if word.endswith("-core") else {}
            return {f"huawei.com/{CHIP}": "1", f"huawei.com/{CHIP}-memory": "3000", **soft}
        case _:
            return {}


def judged_by_words(pairs: dict[str, str]) -> Judged:
    """What admission makes of a pod that says *pairs*, each where it belongs."""
    limits = {key: value for key, value in pairs.items() if key in BOOK.resources}
    labels = {key: value for key, value in pairs.items() if key in LABELS}
    others = {key: value for key, value in pairs.items() if key not in limits and key not in labels}
    return judged({"labels": labels, "annotations": others}, limits)


@pytest.mark.parametrize(("heading", "named", "shown", "said"), word_by_word())
def test_a_word_of_a_manifest_from_elsewhere_is_read(heading: str, named: list[str], shown: str, said: str):
    ((key, value),) = yaml.safe_load(shown).items()
    assert key in named
    pairs = least(heading, key)
    without = judged_by_words({word: text for word, text in pairs.items() if word != key})
    found = judged_by_words({**pairs, key: str(value)})
    assert found.verdict.allowed, found.verdict.message
    assert not {"CS115", "CS116"} & set(found.verdict.codes)
    assert found.asked is not None
    assert found.asked != without.asked, "the word changes nothing"
    assert ("CS311" in found.verdict.codes) == any(f"`{one}`" in said for one in PLACE_WISHES)


def test_every_word_that_is_read_is_in_these_tables():
    told = {word for _, named, _, _ in word_by_word() for word in named}
    resources = {one for one in BOOK.resources if "Ascend" not in one or CHIP in one}
    annotations = {key for key, _ in read_annotations()} - PLACE_WISHES
    assert told == resources | annotations | LABELS | {GPU_INDEX, GPU_UNHEALTHY}


def test_of_hamis_priority_the_variable_is_made_and_no_node_has_to_offer_it():
    (priority, variable) = re.findall(r"^`(\S+)` sets the variable `(\S+)`", MIGRATING, re.MULTILINE)[0]
    shares = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 1000}
    counted, _ = parted(amounts_of(pod_of({}, {**shares, priority: 1})), CATALOG.words(TABLES).uncounted)
    assert {name for name, _ in counted} == {"nvidia.com/gpu", "pods"}
    for value in ("0", "1"):
        assert f"`{value}`" in MIGRATING
        answer = judged({}, {**shares, priority: value})
        assert Appended(("spec", "containers", "0", "env"), {variable: value}) in answer.verdict.edits
    assert [one.code for one in judged({}, {**shares, priority: "2"}).verdict.violations] == ["CS304"]


def test_parts_of_the_answer_are_in_the_answer_and_codes_are_those_of_causes():
    answer = WAITS.partition("```\n$ kubectl")[2].partition("```")[0]
    reading, _, doing = WAITS.partition("\n## How to read it\n")[2].partition("\n## What to do\n")
    assert all(words(row[0])[0] in answer for row in rows(reading))
    told = {code for row in rows(doing.partition("\n## ")[0]) for code in words(row[0])}
    assert told <= {cause.code for cause in Cause}
