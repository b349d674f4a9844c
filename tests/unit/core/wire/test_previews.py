import json

import pytest

from core.wire.previews import preview_sentence, previewed_pod, with_warning
from core.wire.reviews import admit, deny, encode_answer

POD = {"group": "", "version": "v1", "kind": "Pod"}


def review(**changes):
    request = {"uid": "u", "kind": POD, "operation": "CREATE", "dryRun": True, "object": {"a": 1}} | changes
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


ADMITTED = encode_answer("u", admit(warnings=["CS104 told"]))


def test_the_pod_of_an_admitted_dry_run_is_taken_as_it_is():
    assert json.loads(previewed_pod(review(), ADMITTED) or b"") == {"a": 1}


@pytest.mark.parametrize(
    "changes", [{"dryRun": False}, {"operation": "UPDATE"}, {"subResource": "status"}, {"kind": {"kind": "Node"}}]
)
def test_of_every_other_review_nothing_is_asked(changes):
    assert previewed_pod(review(**changes), ADMITTED) is None


def test_of_a_denied_pod_nothing_is_asked():
    assert previewed_pod(review(), encode_answer("u", deny("no"))) is None


def test_the_preview_is_the_first_warning_and_short_enough_to_be_shown():
    response = json.loads(with_warning(ADMITTED, "x\n" * 400))["response"]
    assert (response["uid"], response["allowed"]) == ("u", True)
    assert [len(one) for one in response["warnings"]] == [256, 10]
    assert response["warnings"][0].isprintable()


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b'{"state":"fits","text":"n: c"}', "would be placed now on n: c"),
        (b'{"state":"refused","text":"0/1"}', "would wait now: 0/1"),
        (b'{"state":"waits","text":"waits for G"}', "would wait: it waits for G"),
        (b'{"state":"not ours","text":"x"}', ""),
        (b"<html>", ""),
        (b"[]", ""),
    ],
)
def test_an_answer_of_the_controller_becomes_a_sentence(answer, text):
    assert preview_sentence(answer) == text
