"""What tells new pods apart for admission, and what does not."""

import msgspec
import pytest

from core.admission.fingerprint import fingerprint, values_read
from core.wire.reviewed_pods import PodObject


def pod(*, amount="1", annotations=None, labels=None, env=("A",), **spec):
    container = {"name": "main", "resources": {"limits": {"x": amount}}, "env": [{"name": name} for name in env]}
    metadata = {"name": "p", "annotations": annotations, "labels": labels}
    return msgspec.convert({"metadata": metadata, "spec": {"containers": [container], **spec}}, PodObject)


def alike(one, other, user_name="somebody"):
    return key(one, "somebody") == key(other, user_name)


def key(found, user_name):
    """What verdicts are remembered by."""
    return fingerprint(found, "n", user_name), values_read(found)


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


@pytest.mark.parametrize("field", ["env", "envFrom", "volumeMounts", "resources"])
def test_a_container_with_nothing_in_a_field_is_not_one_without_it(field):
    def found(**fields):
        return msgspec.convert({"spec": {"containers": [{"name": "main", **fields}]}}, PodObject)

    empty: object = {} if field == "resources" else []
    assert alike(found(**{field: empty}), found(**{field: empty}))
    assert not alike(found(**{field: empty}), found())


def variables(*found):
    env = [{"name": name, "value": value} for name, value in found]
    return msgspec.convert({"spec": {"containers": [{"name": "main", "env": env}]}}, PodObject)


def test_of_variables_the_names_in_order_and_the_values_that_are_read_tell_pods_apart():
    read = "NVIDIA_VISIBLE_DEVICES"
    plain = variables(("RANK", "0"), (read, "void"), (read, "none"), ("A B", "x"))
    assert alike(plain, variables(("RANK", "1"), (read, "void"), (read, "none"), ("A B", "y")))
    for other in (
        variables(("RANK", "0"), (read, "none"), (read, "void"), ("A B", "x")),
        variables((read, "void"), ("RANK", "0"), (read, "none"), ("A B", "x")),
        variables(("RANK", "0"), (read, "void"), (read, "none"), ("A", "x"), ("B", "x")),
        variables(("RANK", "0"), (read, "void"), (read, ""), ("A B", "x")),
    ):
        assert not alike(plain, other)


def test_whether_values_are_read_is_told_by_names_alone():
    assert not values_read(variables(("RANK", "0"), ("CUDA_HOME", "/cuda")))
    for value in ("", "void"):
        assert values_read(variables(("RANK", "0"), ("NVIDIA_VISIBLE_DEVICES", value)))


def test_what_numbers_the_pods_of_a_workload_does_not_tell_them_apart():
    one, other = ({"batch.kubernetes.io/job-completion-index": number, "app": "a"} for number in "12")
    assert alike(pod(labels=one, annotations=one), pod(labels=other, annotations=other))


def test_a_pod_that_is_numbered_is_not_one_that_is_not():
    numbered = {"volcano.sh/task-index": "1"}
    assert not alike(pod(annotations=numbered), pod(annotations={}))
    assert not alike(pod(labels=numbered), pod(labels={}))


def test_pods_without_a_spec_are_told_apart_too():
    one, other = (msgspec.convert({"metadata": {"annotations": {"k": text}}}, PodObject) for text in "12")
    assert not alike(one, other)


def test_a_kubelets_pods_are_nobody_elses():
    assert not alike(pod(), pod(), user_name="system:node:a")
