"""Reading examples, and the examples that are shipped."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from sandbox.demo.examples import ClusterChanges, ExampleError, Outcome, find, read
from sandbox.demo.stage import NODES

_SHIPPED = Path(__file__).parents[4] / "docs" / "examples"
_POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: []}\n"


def example(folder: Path, outcome: str, manifest: str = _POD) -> Path:
    path = folder / "x.yaml"
    path.write_text(manifest)
    (folder / "x.outcome.yaml").write_text(outcome)
    return path


def test_every_shipped_pod_has_a_declaration_and_a_name_of_its_own():
    examples = find([_SHIPPED])
    for found in examples:
        pods = {one["metadata"]["name"] for one in found.manifests if one["kind"] == "Pod"}
        at_once = {expected.pod for expected in found.expectations}
        later = {step.apply for step in found.steps if step.apply}
        assert at_once | later == pods, found.name
        assert all(step.apply in {e.pod for e in step.expectations} for step in found.steps if step.apply), found.name
    names = Counter(manifest["metadata"]["name"] for found in examples for manifest in found.manifests)
    assert max(names.values()) == 1
    rounds = [found.expectations for found in examples] + [s.expectations for found in examples for s in found.steps]
    assert {expected.outcome for declared in rounds for expected in declared} == set(Outcome)


def test_the_page_lists_the_nodes_of_the_demo():
    page = (_SHIPPED / "README.md").read_text(encoding="utf-8")
    table = re.search(r"^\| node \| cards \|\n(?:\|.*\n)+", page, re.MULTILINE)
    assert table is not None
    listed = [name for row in table[0].splitlines() for name in re.findall(r"`([^`]+)`", row.split("|")[1])]
    missing = {node["name"] for node in NODES} - set(listed)
    assert not missing, f"add {sorted(missing)} to the table of nodes in docs/examples/README.md"
    assert sorted(listed) == sorted(node["name"] for node in NODES)


def test_every_declaration_belongs_to_a_manifest():
    for declared in _SHIPPED.glob("*.outcome.yaml"):
        assert declared.with_name(declared.name.replace(".outcome.yaml", ".yaml")).is_file()


def test_a_declaration_is_read_with_its_steps(tmp_path):
    found = read(
        example(
            tmp_path,
            "pods: {a: {outcome: placed, node: 'n-*', cards: [x, y], env: {K: 1}, reason: r}}\n"
            "after: [{annotate: a, with: {k: v, gone: null}, denied: [one, two], pods: {a: {outcome: waiting}}}]\n",
        )
    )
    (expected,), (step,) = found.expectations, found.steps
    assert (expected.node, expected.cards) == (("n-*",), ("x", "y"))
    assert (expected.env, expected.reason) == ({"K": "1"}, ("r",))
    assert (step.annotate, step.changes, step.denied) == ("a", {"k": "v", "gone": None}, ("one", "two"))
    assert step.expectations[0].outcome is Outcome.WAITING


def test_a_declaration_says_what_its_cluster_must_have(tmp_path):
    found = read(
        example(
            tmp_path,
            "cluster: {settings: {preemption: true}, deploy: [preemption.yaml]}\n"
            "pods: {a: {outcome: evicted, events: {Preempted: 'by *'}}}\n",
        )
    )
    assert (found.cluster.settings, found.cluster.deploy) == ({"preemption": True}, ("preemption.yaml",))
    assert found.expectations[0].events == {"Preempted": "by *"}
    assert read(example(tmp_path, "pods: {}")).cluster == ClusterChanges()


def test_manifests_of_deploy_that_a_shipped_example_wants_are_there():
    wanted = [name for found in find([_SHIPPED]) for name in found.cluster.deploy]
    assert wanted
    assert all((_SHIPPED.parents[1] / "deploy" / name).is_file() for name in wanted)


def test_a_manifest_without_a_declaration_declares_nothing(tmp_path):
    (tmp_path / "x.yaml").write_text(_POD)
    (found,) = find([tmp_path])
    assert (found.expectations, found.steps, len(found.manifests)) == ((), (), 1)


@pytest.mark.parametrize(
    ("outcome", "problem"),
    [
        pytest.param(
            "pods: {a: {outcome: runs}}", r"pods.a: Invalid enum value 'runs' - at `\$.outcome`; docs/", id="outcome"
        ),
        pytest.param("pods: {a: {outcome: placed, nodes: x}}", "pods.a: .* unknown field `nodes`", id="key"),
        pytest.param("pod: {}", "the file: .* unknown field `pod`", id="top"),
        pytest.param("cluster: {setting: {}}", "cluster: .* unknown field `setting`", id="cluster"),
        pytest.param("after: [{annotate: a, delete: a}]", r"after\[0\]: write one of apply", id="step"),
        pytest.param("after: {}", "the file: Expected `array`", id="steps"),
        pytest.param("pods: [", "no YAML", id="yaml"),
        pytest.param("pods: {b: {outcome: placed}}", "no manifest in x.yaml is named b", id="pod"),
        pytest.param("after: [{apply: b}]", "no manifest in x.yaml is named b", id="step-pod"),
    ],
)
def test_a_declaration_that_is_not_understood_is_an_error(tmp_path, outcome, problem):
    with pytest.raises(ExampleError, match=problem):
        read(example(tmp_path, outcome))


@pytest.mark.parametrize("manifest", ["kind: Pod\n", "[1]\n", "text\n"])
def test_a_document_that_is_no_object_is_an_error(tmp_path, manifest):
    with pytest.raises(ExampleError, match="every document needs"):
        read(example(tmp_path, "pods: {}", manifest))


def test_a_place_without_manifests_is_an_error(tmp_path):
    with pytest.raises(ExampleError, match="no manifests here"):
        find([tmp_path])
    with pytest.raises(ExampleError, match="No such file"):
        find([tmp_path / "nothing.yaml"])
