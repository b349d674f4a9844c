"""Debug containers and resizing of pods with cards."""

import json

import pytest

from core.admission.mutate import mutate, validate
from core.admission.rulebook import rulebook
from core.catalog import standard_catalog
from core.settings import AdmissionSettings, Settings, Tables
from core.wire.reviews import decode_review

CARDS = {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "3000"}


def pod(limits=None, debug=(), **meta):
    limits = CARDS if limits is None else limits
    container = {"name": "main", "resources": {"limits": dict(limits), "requests": dict(limits)}}
    return {
        "metadata": {"name": "p", "namespace": "n", **meta},
        "spec": {"containers": [container], "ephemeralContainers": list(debug)},
    }


def ask(sub_resource, new, old, **admission):
    book = rulebook(Settings(admission=AdmissionSettings(**admission)), Tables(), standard_catalog())
    request = {
        "uid": "r",
        "kind": {"version": "v1", "kind": "Pod"},
        "subResource": sub_resource,
        "operation": "UPDATE",
        "namespace": "n",
        "userInfo": {"username": "dana"},
        "object": new,
        "oldObject": old,
    }
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    review = decode_review(json.dumps(body).encode())
    assert mutate(review, book)[1] == b""
    return validate(review, book)


PLAIN = {"name": "debug", "image": "busybox"}
PRIVILEGED = {**PLAIN, "securityContext": {"privileged": True}}
EVADING = {**PLAIN, "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}


@pytest.mark.parametrize(
    ("container", "code"),
    [(PRIVILEGED, "CS303"), (EVADING, "CS304")],
)
def test_a_debug_container_that_would_see_every_card_is_denied(container, code):
    assert ask("ephemeralcontainers", pod(debug=[container]), pod()).codes == (code,)


def test_other_debug_containers_are_added():
    assert ask("ephemeralcontainers", pod(debug=[PLAIN]), pod()).allowed
    assert ask("ephemeralcontainers", pod(debug=[PRIVILEGED]), pod(), allow_privileged=True).allowed
    assert ask("ephemeralcontainers", pod(debug=[EVADING]), pod(), allow_limit_overrides=True).allowed


def test_what_is_there_already_is_not_judged_again():
    old = pod(debug=[PRIVILEGED])
    assert ask("ephemeralcontainers", pod(debug=[PRIVILEGED, {**PLAIN, "name": "second"}]), old).allowed


def test_pods_without_cards_are_debugged_freely():
    assert ask("ephemeralcontainers", pod({"cpu": "1"}, debug=[PRIVILEGED]), pod({"cpu": "1"})).allowed


def test_a_pod_that_is_being_deleted_has_its_cards_still():
    dying = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    old = pod(**dying)
    assert ask("ephemeralcontainers", pod(debug=[PRIVILEGED], **dying), old).codes == ("CS303",)
    assert ask("ephemeralcontainers", pod(debug=[PLAIN], **dying), old).allowed
    more = {**CARDS, "volcano.sh/vgpu-memory": "9000"}
    assert ask("resize", pod(more, **dying), old).codes == ("CS306",)


def test_cpu_and_memory_are_resized_and_cards_are_not():
    assert ask("resize", pod({**CARDS, "cpu": "2"}), pod({**CARDS, "cpu": "1"})).allowed
    verdict = ask("resize", pod({**CARDS, "volcano.sh/vgpu-memory": "9000"}), pod())
    assert verdict.codes == ("CS306",)
    assert "found '9000'; leave it at 3000" in verdict.message
    assert ask("resize", pod({"cpu": "1"}), pod()).codes == ("CS306",)


def test_the_same_amount_in_other_words_is_no_new_size():
    assert ask("resize", pod({**CARDS, "volcano.sh/vgpu-memory": "3k"}), pod()).allowed
