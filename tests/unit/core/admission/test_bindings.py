"""Bindings that say which cards their pods have."""

import json

import pytest

from core.admission.mutate import mutate, validate
from core.admission.rulebook import rulebook
from core.catalog import standard_catalog
from core.settings import AdmissionSettings, Settings, Tables
from core.wire.reviews import decode_review

IDS = "volcano.sh/vgpu-ids-new"
CONTROLLER = "system:serviceaccount:cardshare-system:cardshare-controller"
VOLCANO = "system:serviceaccount:volcano-system:volcano-scheduler"
HAMI = "system:serviceaccount:kube-system:hami-scheduler"
NAMED = AdmissionSettings(other_schedulers={"volcano": VOLCANO, "hami-scheduler": HAMI})
OURS_TOO = Settings(scheduler_names=("cardshare", "volcano"), admission=NAMED)


def ask(annotations, user="dana", settings=None, sub_resource="binding"):
    book = rulebook(settings or Settings(), Tables(), standard_catalog())
    request = {
        "uid": "r",
        "kind": {"version": "v1", "kind": "Binding"},
        "subResource": sub_resource,
        "operation": "CREATE",
        "namespace": "n",
        "name": "p",
        "userInfo": {"username": user},
        "object": {"metadata": {"name": "p", "annotations": annotations}, "target": {"kind": "Node", "name": "n1"}},
    }
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    review = decode_review(json.dumps(body).encode())
    assert mutate(review, book)[1] == b""
    return validate(review, book)


@pytest.mark.parametrize("sub_resource", ["binding", ""], ids=["the pod's", "the older way"])
def test_nobody_else_assigns_cards_by_a_binding(sub_resource):
    verdict = ask({IDS: "GPU-0,NVIDIA,1,1:", "volcano.sh/vgpu-node": "n1", "team": "a"}, sub_resource=sub_resource)
    assert verdict.codes == ("CS301",)
    remedy = "leave it out; only schedulers and device plugins write it"
    assert verdict.message == (
        f"CS301 annotation {IDS} of the Binding: found 'GPU-0,NVIDIA,1,1:'; {remedy}; "
        f"CS301 annotation volcano.sh/vgpu-node of the Binding: found 'n1'; {remedy}"
    )


@pytest.mark.parametrize(
    "key",
    ["cardshare.io/segment-queue", "hami.io/Ascend310P-devices-to-allocate", "huawei.com/Ascend310P", "predicate-time"],
)
def test_every_key_that_only_machines_write_is_protected(key):
    assert ask({key: "x"}).codes == ("CS301",)


@pytest.mark.parametrize("annotations", [None, {}, {"team": "a"}, {"volcano.sh/vgpu-mode": "mig"}])
def test_bindings_that_assign_nothing_are_anybodys(annotations):
    assert ask(annotations).allowed


@pytest.mark.parametrize("user", [CONTROLLER, VOLCANO, HAMI])
def test_schedulers_assign_by_their_bindings(user):
    assert ask({IDS: "GPU-0,NVIDIA,1,1:"}, user, Settings(admission=NAMED)).allowed


@pytest.mark.parametrize("user", [VOLCANO, HAMI])
def test_nobody_is_another_scheduler_whom_the_operator_did_not_name(user):
    assert ask({IDS: "GPU-0,NVIDIA,1,1:"}, user).codes == ("CS301",)


def test_whose_pods_are_ours_assigns_no_more():
    assert ask({IDS: "GPU-0,NVIDIA,1,1:"}, VOLCANO, OURS_TOO).codes == ("CS301",)
    assert ask({IDS: "GPU-0,NVIDIA,1,1:"}, HAMI, OURS_TOO).allowed
    assert ask({IDS: "GPU-0,NVIDIA,1,1:"}, CONTROLLER, OURS_TOO).allowed


def test_the_settings_say_who_is_trusted():
    settings = Settings(admission=AdmissionSettings(trusted_accounts=("binder-*",)))
    assert ask({IDS: "GPU-0,NVIDIA,1,1:"}, "binder-1", settings).allowed
    assert ask({IDS: "GPU-0,NVIDIA,1,1:"}, CONTROLLER, settings).codes == ("CS301",)
