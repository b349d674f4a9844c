"""What is told of a namespace's ResourceQuotas: what is asked, in whose count, and what is left."""

import json

import pytest

from core.admission.budgets import Made, left, made_by
from core.admission.rulebook import rulebook
from core.catalog import standard_catalog
from core.errors import InvalidRequestError
from core.model import Container, ReviewedPod
from core.settings import Settings, Tables
from core.wire.policies import ResourceQuota, decode_quota
from core.wire.templates import decode_workload
from tests.support.devices import vendors

BOOK = rulebook(Settings(), Tables(), standard_catalog())
NUMBER, MEMORY = "volcano.sh/vgpu-number", "volcano.sh/vgpu-memory"


def pod(limits, *, init=None):
    init_containers = (Container("init", init, init),) if init else ()
    return ReviewedPod("team", containers=(Container("main", limits),), init_containers=init_containers)


def quota(hard, used=None, *, name="team-quota", scoped=False):
    return ResourceQuota("team", name, hard, used or {}, scoped)


def told(made, *quotas):
    return [str(one) for one in left(made, quotas, BOOK)]


def test_what_is_left_is_told_with_and_without_the_pod():
    found = told([Made(pod({NUMBER: "2"}))], quota({f"requests.{NUMBER}": 4}, {f"requests.{NUMBER}": 1}))
    assert found == [
        "CS317 requests.volcano.sh/vgpu-number: 2 requested, 3 of 4 left in ResourceQuota team-quota, 1 with this pod"
    ]


def test_what_is_beyond_it_is_the_api_servers_to_refuse():
    found = told([Made(pod({NUMBER: "1"}), 6)], quota({f"requests.{NUMBER}": 4}, {f"requests.{NUMBER}": 1}))
    assert found == [
        "CS317 requests.volcano.sh/vgpu-number: 6 requested, 3 of 4 left in ResourceQuota team-quota; "
        "the API server rejects pods beyond it"
    ]


def test_the_api_server_counts_what_is_written_and_hami_what_every_card_gives():
    made = [Made(pod({NUMBER: "2", MEMORY: "8000"}), 3)]
    counted = told(made, quota({f"requests.{MEMORY}": 100_000}))
    assert counted == [
        "CS317 requests.volcano.sh/vgpu-memory: 24000 requested, 100000 of 100000 left in ResourceQuota team-quota, "
        "76000 with these 3 pods"
    ]
    for key, why in (
        (f"limits.{MEMORY}", "; pods of the namespace beyond it wait"),
        (MEMORY, "; the API server does not enforce this key; write requests.volcano.sh/vgpu-memory there"),
    ):
        assert told(made, quota({key: 40_000})) == [
            f"CS317 {key}: 48000 requested of the 40000 of ResourceQuota team-quota{why}"
        ]


def test_of_hamis_own_limits_the_smallest_is_told_in_cards_times_what_is_wanted_of_each():
    made = [Made(pod({"nvidia.com/gpu": "2", "nvidia.com/gpumem": "3000", "nvidia.com/gpucores": "30"}))]
    quotas = [
        quota({"limits.nvidia.com/gpumem": 10_000, "limits.nvidia.com/gpucores": 100, "limits.nvidia.com/gpu": 4}),
        quota({"limits.nvidia.com/gpumem": 5_000}, name="small"),
    ]
    wait = "; pods of the namespace beyond it wait"
    assert told(made, *quotas) == [
        "CS317 limits.nvidia.com/gpu: 2 requested of the 4 of ResourceQuota team-quota; the API server does not "
        "enforce this key; write requests.nvidia.com/gpu there",
        f"CS317 limits.nvidia.com/gpucores: 60 requested of the 100 of ResourceQuota team-quota{wait}",
        f"CS317 limits.nvidia.com/gpumem: 6000 requested of the 5000 of ResourceQuota small{wait}",
    ]


@pytest.mark.parametrize(("written", "gib"), [("4", 8), ("4Gi", 8), ("1536Mi", 4)])
def test_memory_with_a_suffix_is_told_in_the_units_of_the_quota(written, gib):
    book = rulebook(Settings(), vendors.TABLES, standard_catalog())
    made = Made(pod({"metax-tech.com/sgpu": "2", "metax-tech.com/vmemory": written}))
    for limit in (64, 64 << 30):
        (found,) = left([made], [quota({"limits.metax-tech.com/vmemory": limit})], book)
        assert found.text.startswith(f"limits.metax-tech.com/vmemory: {gib} requested of the 64 ")


@pytest.mark.parametrize(
    ("prefix", "words"), [("limits.", "1000 requested of the 2048 of"), ("requests.", "write 2048 in")]
)
def test_a_quota_in_bytes_is_told_in_the_units_of_containers(prefix, words):
    text = {"metadata": {"name": "q", "namespace": "team"}, "spec": {"hard": {f"{prefix}{MEMORY}": "2Gi"}}}
    (found,) = left([Made(pod({NUMBER: "1", MEMORY: "1000"}))], [decode_quota(json.dumps(text).encode())], BOOK)
    assert words in found.text


def test_what_a_container_writes_for_all_its_cards_is_not_multiplied():
    book = rulebook(Settings(), vendors.TABLES, standard_catalog())
    limits = {"mthreads.com/vgpu": "2", "mthreads.com/sgpu-memory": "192", "mthreads.com/sgpu-core": "32"}
    hard = {f"limits.{key}": 1000 for key in limits}
    assert [one.text.partition(" requested")[0] for one in left([Made(pod(limits))], [quota(hard)], book)] == [
        "limits.mthreads.com/sgpu-core: 32",
        "limits.mthreads.com/sgpu-memory: 192",
        "limits.mthreads.com/vgpu: 2",
    ]


def test_a_card_that_is_not_counted_is_one():
    found = told([Made(pod({MEMORY: "8000"}))], quota({f"limits.{MEMORY}": 9000, f"requests.{NUMBER}": 5}))
    assert [one.partition(" requested")[0] for one in found] == [
        "CS317 limits.volcano.sh/vgpu-memory: 8000",
        "CS317 requests.volcano.sh/vgpu-number: 1",
    ]


def test_an_init_container_counts_if_it_asks_for_more():
    made = [Made(pod({NUMBER: "1", MEMORY: "100"}, init={NUMBER: "3", MEMORY: "100"}))]
    found = told(made, quota({f"limits.{MEMORY}": 9000, f"requests.{NUMBER}": 5}))
    assert [one.partition(" requested")[0] for one in found] == [
        "CS317 limits.volcano.sh/vgpu-memory: 300",
        "CS317 requests.volcano.sh/vgpu-number: 3",
    ]


def test_of_several_quotas_the_one_that_leaves_least_is_told():
    quotas = (quota({f"requests.{NUMBER}": 9}), quota({f"requests.{NUMBER}": 2}, name="small"))
    (found,) = told([Made(pod({NUMBER: "1"}))], *quotas)
    assert "2 of 2 left in ResourceQuota small" in found


@pytest.mark.parametrize(
    "one",
    [
        quota({"requests.cpu": 1, "requests.nvidia.com/other": 1}),
        quota({f"requests.{NUMBER}": 1}, scoped=True),
        quota({"requests.volcano.sh/gpu-number": 1}),
    ],
    ids=["no cards", "scopes", "other cards"],
)
def test_quotas_that_say_nothing_of_the_cards_that_are_asked_are_passed_over(one):
    assert told([Made(pod({NUMBER: "1"}))], one) == []


def test_what_cannot_be_read_is_not_told_here():
    assert told([Made(pod({NUMBER: "x"}))], quota({f"requests.{NUMBER}": 1})) == []


def workload(kind, new, old=None, **metadata):
    found = {"object": {"metadata": metadata, "spec": new}} | ({"oldObject": {"spec": old}} if old else {})
    return made_by(decode_workload(json.dumps({"request": {"kind": kind, **found}}).encode()), "team")


TEMPLATE = {"spec": {"containers": [{"name": "main", "resources": {"limits": {NUMBER: "1"}}}]}}
OTHER = {"spec": {"containers": [{"name": "main", "resources": {"limits": {NUMBER: "2"}}}]}}


@pytest.mark.parametrize(
    ("spec", "replicas"),
    [
        ({"replicas": 3, "template": TEMPLATE}, [3]),
        ({"template": TEMPLATE}, [1]),
        ({"parallelism": 4, "template": TEMPLATE}, [4]),
        ({"parallelism": 4, "completions": 2, "template": TEMPLATE}, [2]),
        ({"jobTemplate": {"spec": {"parallelism": 2, "template": TEMPLATE}}}, [2]),
        ({"tasks": [{"replicas": 2, "template": TEMPLATE}, {"template": TEMPLATE}]}, [2, 1]),
        ({"replicas": 0, "template": TEMPLATE}, []),
    ],
    ids=["Deployment", "DaemonSet", "Job", "short Job", "CronJob", "Volcano Job", "none"],
)
def test_the_pods_of_a_workload_are_those_that_are_there_at_a_time(spec, replicas):
    assert [one.replicas for one in workload("any", spec)] == replicas


@pytest.mark.parametrize(
    ("before", "more"),
    [
        ({"replicas": 2, "template": TEMPLATE}, [3]),
        ({"replicas": 5, "template": TEMPLATE}, []),
        ({"replicas": 2, "template": OTHER}, [5]),
    ],
    ids=["scaled up", "unchanged", "edited"],
)
def test_of_a_workload_that_is_there_the_new_pods_are_told(before, more):
    found = workload("Deployment", {"replicas": 5, "template": TEMPLATE}, before)
    assert [one.replicas for one in found] == more


def test_what_a_controller_made_was_told_before():
    owner = {"kind": "Deployment", "name": "d", "controller": True}
    assert workload("ReplicaSet", {"replicas": 1, "template": TEMPLATE}, ownerReferences=[owner]) == ()


def test_a_quota_is_read_as_far_as_it_may_be_about_cards():
    hard = {"requests.cpu": "4", f"requests.{NUMBER}": "4", f"limits.{MEMORY}": "10k", "count/jobs.batch": "3"}
    spec = {"hard": hard, "scopes": ["NotTerminating"]}
    used = {"status": {"used": {f"requests.{NUMBER}": "1", "requests.cpu": "1"}}}
    found = decode_quota(json.dumps({"metadata": {"name": "q", "namespace": "team"}, "spec": spec} | used).encode())
    assert found == ResourceQuota(
        "team",
        "q",
        {f"requests.{NUMBER}": 4, f"limits.{MEMORY}": 10_000},
        {f"requests.{NUMBER}": 1},
        scoped=True,
        others=(("requests.cpu", "4"), ("count/jobs.batch", "3")),
    )
    with pytest.raises(InvalidRequestError, match=r"spec.hard.requests.volcano.sh/vgpu-number"):
        decode_quota(json.dumps({"spec": {"hard": {f"requests.{NUMBER}": "many"}}}).encode())
