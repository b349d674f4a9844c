"""What gets past admission of pods that try to reach more than their share, as a judge sees it that knows no rule."""

import copy
import json

import jsonpatch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.admission.mutate import mutate, validate
from core.admission.rulebook import rulebook
from core.catalog import standard_catalog
from core.settings import Settings, Tables
from core.wire.reviews import decode_review
from tests.support.devices.hostile_pods import assignment_keys, harm, is_assignment, pods

BOOK = rulebook(Settings(), Tables(), standard_catalog())


def asked(found, old=None):
    request = {
        "uid": "r",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "operation": "CREATE" if old is None else "UPDATE",
        "namespace": "tenant",
        "userInfo": {"username": "dana"},
        "object": found,
        "oldObject": old,
    }
    return decode_review(
        json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()
    )


def stored(found, old=None):
    """*found* as the API server stores it, None if it is denied."""
    verdict, patch = mutate(asked(found, old), BOOK)
    if not verdict.allowed:
        return None
    made = jsonpatch.apply_patch(copy.deepcopy(found), json.loads(patch) if patch else [])
    return made if validate(asked(made, old), BOOK).allowed else None


@settings(max_examples=250)
@given(pods())
def test_nothing_that_is_admitted_reaches_more_than_its_share(found):
    made = stored(found)
    assert made is None or list(harm(made)) == []


def assignment(pod):
    return {key: value for key, value in pod["metadata"]["annotations"].items() if is_assignment(key)}


WRITTEN = st.dictionaries(assignment_keys(), st.sampled_from(["", "0", "1", "GPU-0,NVIDIA,1,1:"]), max_size=3)
LIVES = st.sampled_from([{}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}])


@settings(max_examples=250)
@given(pods(), WRITTEN, WRITTEN, st.booleans(), LIVES)
def test_no_change_of_a_pod_touches_its_assignment(found, before, after, bound, life):
    """Nor does it while the pod is being deleted: it holds its cards until it is gone."""
    old = copy.deepcopy(found)
    old["metadata"] |= {"annotations": before, **life}
    if bound:
        old["spec"]["nodeName"] = "a"
    new = copy.deepcopy(old)
    new["metadata"]["annotations"] = after
    made = stored(new, old)
    assert made is None or assignment(made) == before
