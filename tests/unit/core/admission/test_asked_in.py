"""The pods of manifests are those that the API server would store, and a scheduler see."""

import pytest

from core.admission.manifests import pods_of
from core.admission.rulebook import rulebook
from core.catalog import standard_catalog
from core.errors import ConfigError
from core.settings import Settings, Tables
from core.wire.manifests import Manifest

BOOK = rulebook(Settings(), Tables(), standard_catalog())
NUMBER, MEMORY = "volcano.sh/vgpu-number", "volcano.sh/vgpu-memory"


def template(**limits):
    container = {"name": "c", "image": "i", "resources": {"limits": limits}}
    return {"metadata": {"labels": {"app": "x"}}, "spec": {"nodeSelector": {"zone": "a"}, "containers": [container]}}


ONE = template(**{MEMORY: "1000"})


def workload(api, kind, spec):
    return Manifest(1, {"apiVersion": api, "kind": kind, "metadata": {"name": "w", "namespace": "other"}, "spec": spec})


def pods(manifest):
    return list(pods_of(manifest, BOOK, "team"))


@pytest.mark.parametrize(
    "manifest",
    [
        Manifest(1, {"apiVersion": "v1", "kind": "Pod", **ONE}),
        workload("apps/v1", "Deployment", {"template": ONE}),
        workload("batch/v1", "CronJob", {"jobTemplate": {"spec": {"template": ONE}}}),
        workload("batch.volcano.sh/v1alpha1", "Job", {"tasks": [{"name": "t", "template": ONE}]}),
    ],
    ids=["pod", "deployment", "cron-job", "volcano-job"],
)
def test_a_template_is_a_pod_that_is_completed_and_keeps_what_it_says(manifest):
    (found,) = pods(manifest)
    assert dict(found.containers[0].limits) == {MEMORY: "1000", NUMBER: "1"}
    assert (found.namespace, found.labels["app"], found.constraints.selector) == ("team", "x", (("zone", "a"),))


def test_each_task_is_a_pod():
    tasks = [{"name": name, "template": template(**{NUMBER: number})} for name, number in (("a", "1"), ("b", "2"))]
    found = pods(workload("batch.volcano.sh/v1alpha1", "Job", {"tasks": tasks}))
    assert [one.containers[0].limits[NUMBER] for one in found] == ["1", "2"]


def test_what_admission_denies_is_told_in_its_words():
    with pytest.raises(ConfigError, match="admission denies it: "):
        pods(Manifest(1, {"apiVersion": "v1", "kind": "Pod", **template(**{NUMBER: "x"})}))


@pytest.mark.parametrize("spec", [{}, {"template": 3}, {"template": {"spec": []}}])
def test_other_kinds_and_templates_that_are_none_have_no_pod_with_containers(spec):
    assert pods(Manifest(1, {"apiVersion": "v1", "kind": "ConfigMap", "spec": spec})) == []
    assert all(not one.containers for one in pods(workload("apps/v1", "Deployment", spec)))
