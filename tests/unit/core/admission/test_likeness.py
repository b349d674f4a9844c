"""What tells new pods apart for admission, and what does not."""

import msgspec
import pytest

from core.admission.likeness import likeness
from core.wire.pods import PodObject


def pod(*, amount="1", annotations=None, labels=None, env=("A",), **spec):
    container = {"name": "main", "resources": {"limits": {"x": amount}}, "env": [{"name": name} for name in env]}
    metadata = {"name": "p", "annotations": annotations, "labels": labels}
    return msgspec.convert({"metadata": metadata, "spec": {"containers": [container], **spec}}, PodObject)


def alike(one, other, user_name="somebody"):
    return likeness(one, "n", "somebody") == likeness(other, "n", user_name)


@pytest.mark.parametrize("amount", [1, 1.0, "2", 2**70])
def test_amounts_are_alike_only_as_they_are_written(amount):
    assert alike(pod(amount=amount), pod(amount=amount))
    assert not alike(pod(amount=amount), pod())


def test_one_and_one_point_nought_are_two_texts():
    assert not alike(pod(amount=1), pod(amount=1.0))


@pytest.mark.parametrize(
    "other",
    [
        {"annotations": {"k": "v"}},
        {"labels": {"k": "v"}},
        {"labels": {}},
        {"env": ("B",)},
        {"schedulerName": "cardshare"},
        {"nodeName": "node-1"},
        {"initContainers": []},
    ],
    ids=lambda other: next(iter(other)),
)
def test_what_a_rule_could_read_tells_pods_apart(other):
    assert not alike(pod(), pod(**other))


def test_what_numbers_the_pods_of_a_workload_does_not_tell_them_apart():
    one, other = ({"batch.kubernetes.io/job-completion-index": number, "app": "a"} for number in "12")
    assert alike(pod(labels=one, annotations=one), pod(labels=other, annotations=other))


def test_a_kubelets_pods_are_nobody_elses():
    assert not alike(pod(), pod(), user_name="system:node:a")
