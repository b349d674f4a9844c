"""Every manifest of the user guides that lie beside the checkout is an example, or listed as none with the reason."""

import re
import textwrap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sandbox.demo import jobs
from sandbox.demo.examples import Example, find
from tests.support.devices.texts import ALL_DIALECTS, decode_scheduler_conf

ROOT = Path(__file__).parents[2]
GUIDES = ROOT.parent / "shared" / "guides"
EXAMPLES = ROOT / "docs" / "examples"
LISTED = (EXAMPLES / "README.md").read_text(encoding="utf-8").partition("## Manifests of Volcano's user guides")[2]

FENCED = re.compile(r"^(?P<indent> *)```(?P<language>[^\n]*)\n(?P<text>.*?)^ *```$", re.MULTILINE | re.DOTALL)
MARKED_UP = re.compile(r"<pre><code[^>]*>(.*?)</code></pre>", re.DOTALL)
HEREDOC = re.compile(r"<<EOF[^\n]*\n(.*?)^EOF$", re.MULTILINE | re.DOTALL)
# One guide has lost its line breaks; names are what is left of its manifests.
ONE_LINE = re.compile(r"metadata: name: (\S+)")
RESOURCE = re.compile(r"huawei\.com/Ascend[A-Za-z0-9-]+")
# AI cores, vnpu-dvpp, vnpu-level, downgraded, template: a row of the table of MindCluster's slices.
ROW = re.compile(r"\| \*\*(\d)\*\* *\| `(\w+)` *\| ([^|]+?) *\| ([^|]+?) *\| `(\w+)` *\|")
# What scheduler, device plugin and kubelet write, and how a device plugin is started: nothing that is applied.
WRITTEN = ("annotations", "env", "args", "volcano.sh/vgpu-memory")

pytestmark = pytest.mark.skipif(not GUIDES.is_dir(), reason="the user guides do not lie beside this checkout")


def texts() -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(GUIDES.glob("*.txt"))}


def blocks(text: str) -> Iterator[str]:
    """The YAML in one guide."""
    for match in FENCED.finditer(text):
        if match["language"] == "yaml":
            yield match["text"]
    yield from MARKED_UP.findall(text)
    yield from HEREDOC.findall(text)


def documents() -> Iterator[tuple[str, Any]]:
    """(guide, document) of every YAML in the guides; a line of dots says that something is left out."""
    for name, text in texts().items():
        for block in blocks(text):
            shown = "\n".join(line for line in textwrap.dedent(block).splitlines() if line.strip() != "...")
            for document in yaml.safe_load_all(shown):
                yield name, document


def asked(pod: dict[str, Any]) -> tuple[Any, ...]:
    """All of a pod that decides what it gets, but its scheduler."""
    metadata, spec = pod.get("metadata", {}), pod["spec"]
    amounts = [
        {kind: {key: str(value) for key, value in found.items()} for kind, found in one.get("resources", {}).items()}
        for one in spec["containers"]
    ]
    return metadata.get("annotations", {}), metadata.get("labels", {}), spec.get("nodeSelector", {}), amounts


def named(text: str) -> bool:
    return f"`{text}`" in LISTED


def shipped() -> dict[str, dict[str, Any]]:
    pods = [one for example in find([EXAMPLES]) for one in example.manifests if one["kind"] == "Pod"]
    return {one["metadata"]["name"]: one for one in pods}


def is_conf(document: Any) -> bool:
    if isinstance(document, list):
        return all("name" in one for one in document)
    return document.get("kind") == "ConfigMap" or "tiers" in document


def test_every_document_of_the_guides_is_of_a_known_kind():
    kinds: Counter[str] = Counter()
    for guide, document in documents():
        if is_conf(document):
            kinds["configuration"] += 1
        elif "spec" in document:
            kinds[document.get("kind", "Pod")] += 1
        elif document.keys() == {"metadata"} and document["metadata"].keys() == {"annotations"}:
            kinds["wish"] += 1
        else:
            assert next(iter(document)) in WRITTEN, (guide, document)
            kinds["written"] += 1
    assert set(kinds) == {"configuration", "Pod", "Job", "wish", "written"}, kinds


def test_every_pod_of_the_guides_is_an_example_of_its_own_name():
    examples, found = shipped(), 0
    for guide, document in documents():
        if is_conf(document) or "spec" not in document or document.get("kind") == "Job":
            continue
        example = examples.get(document["metadata"]["name"])
        assert example is not None, (guide, document["metadata"]["name"])
        assert asked(example) == asked(document), guide
        found += 1
    assert found >= 8


def test_every_job_of_the_guides_is_listed_and_its_pods_are_examples():
    examples, found = shipped(), 0
    for guide, job in ((g, d) for g, d in documents() if not isinstance(d, list) and d.get("kind") == "Job"):
        name = job["metadata"]["name"]
        assert named(name), f"{guide}: {name} is neither an example nor listed"
        for task in job["spec"]["tasks"]:
            for replica in range(task["replicas"]):
                made = examples.get(f"{name}-{task['name']}-{replica}")
                assert made is not None, (guide, name, task["name"], replica)
                assert asked(made) == asked(task["template"]), (guide, name)
        found += 1
    assert found >= 5


def test_every_job_of_the_guides_is_an_example_as_it_stands_there():
    manifests, declared = jobs.read()
    examples, found = {one["metadata"]["name"]: one for one in manifests if one["kind"] == "Job"}, 0
    for guide, job in ((g, d) for g, d in documents() if not isinstance(d, list) and d.get("kind") == "Job"):
        shown = examples[job["metadata"]["name"]]
        # All but the namespace: the examples are of one that every cluster has.
        assert shown["metadata"] == {key: value for key, value in job["metadata"].items() if key != "namespace"}, guide
        assert shown["spec"] == job["spec"], (guide, job["metadata"]["name"])
        found += 1
    assert found == 5
    assert examples.keys() == {one.job for one in declared}


def test_every_wish_that_the_guides_show_alone_is_made_by_an_example():
    wishes = {
        key
        for _, document in documents()
        if not is_conf(document) and document.keys() == {"metadata"}
        for key in document["metadata"]["annotations"]
    }
    made = {key for pod in shipped().values() for key in pod["metadata"].get("annotations", {})}
    assert wishes <= made
    assert len(wishes) >= 3


def test_names_in_a_guide_without_line_breaks_are_known_too():
    names = {name for text in texts().values() for name in ONE_LINE.findall(text)}
    assert names
    assert {name for name in names if name not in shipped() and not named(name)} == set()


def test_every_configuration_of_the_guides_is_read_and_switches_something_on():
    found = 0
    for guide, document in documents():
        if not is_conf(document):
            continue
        if isinstance(document, list):
            text = yaml.safe_dump({"tiers": [{"plugins": document}]})
        elif "data" in document:
            assert named(document["metadata"]["name"]), guide
            text = document["data"]["volcano-scheduler.conf"]
        else:
            text = yaml.safe_dump(document)
        assert (decode_scheduler_conf(text).settings.dialects or ALL_DIALECTS) < ALL_DIALECTS, (guide, text)
        found += 1
    assert found >= 8


def test_every_ascend_resource_of_the_guides_is_asked_for_by_an_example():
    known = {name for text in texts().values() for name in RESOURCE.findall(text)}
    assert len(known) >= 10
    used = {name for pod in shipped().values() for one in asked(pod)[3] for name in one.get("limits", {})}
    assert known <= used, known - used


def slices(example: Example) -> Iterator[tuple[str, str, str, str]]:
    """(AI cores, vnpu-dvpp, vnpu-level, template) of every slice of MindCluster's that *example* declares placed."""
    pods = {one["metadata"]["name"]: one for one in example.manifests}
    for expected in (*example.expectations, *(one for step in example.steps for one in step.expectations)):
        amounts = asked(pods[expected.pod])[3][0].get("limits", {})
        if "huawei.com/npu-core" in amounts and isinstance(expected.cards, tuple):
            labels = pods[expected.pod]["metadata"]["labels"]
            template = expected.cards[0].partition("-")[2]
            yield amounts["huawei.com/npu-core"], labels["vnpu-dvpp"], labels["vnpu-level"], template


def test_every_row_of_the_guides_table_of_slices_is_shown_by_an_example():
    rows = [row for text in texts().values() for row in ROW.findall(text)]
    assert len(rows) == 11
    declared = {found for example in find([EXAMPLES]) for found in slices(example)}
    for cores, dvpp, level, _, template in rows:
        levels = {one for one in ("low", "high") if one in level or level == "Any value"}
        assert [one for one in levels if (cores, dvpp, one, template) in declared], (cores, dvpp, level, template)
