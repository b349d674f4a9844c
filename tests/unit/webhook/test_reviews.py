import json
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from core.admission.rulebook import rulebook
from core.catalog import Catalog, standard_catalog
from core.errors import InvalidRequestError
from core.inventory import Inventory
from core.settings import AdmissionSettings, NeverFits, Settings, Tables
from webhook.metrics import Metrics
from webhook.reviews import Path, Reviewer


class BrokenCatalog(Catalog):
    """A catalog that fails when it is asked."""

    def request_of(self, pod, tables, settings):
        raise RuntimeError("broken")


class CountingCatalog(Catalog):
    """A catalog that counts how often it is asked."""

    asked = 0

    def request_of(self, pod, tables, settings):
        CountingCatalog.asked += 1
        return super().request_of(pod, tables, settings)


def reviewer(settings=None):
    return Reviewer(rulebook(settings or Settings(), Tables(), standard_catalog()), Metrics())


def broken(**admission):
    book = rulebook(Settings(admission=AdmissionSettings(**admission)), Tables(), standard_catalog())
    return Reviewer(replace(book, catalog=BrokenCatalog(())), Metrics())


def body(limits=None, annotations=None):
    pod = {
        "metadata": {"name": "p", "annotations": annotations or {}},
        "spec": {"containers": [{"name": "m", "resources": {"limits": limits or {}}}]},
    }
    request = {"uid": "r1", "kind": {"version": "v1", "kind": "Pod"}, "operation": "CREATE", "object": pod}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return json.dumps(review).encode()


SHARE = {"volcano.sh/vgpu-number": "1"}
WRONG = body(SHARE, {"volcano.sh/vgpu-mode": "x"})


def ask(found, text, path=Path.MUTATE):
    return json.loads(found.answer(path, text))["response"]


def test_an_admitted_review_is_counted_and_not_logged():
    found = reviewer()
    with capture_logs() as logs:
        response = ask(found, body(SHARE))
    assert response["allowed"]
    assert response["patchType"] == "JSONPatch"
    assert logs == []
    assert found.metrics.reviews == {("/mutate", "CREATE", "patched"): 1}


def test_a_denied_review_is_counted_by_code_and_logged_without_values():
    found = reviewer()
    with capture_logs() as logs:
        response = ask(found, WRONG)
    assert (response["uid"], response["allowed"], response["status"]["code"]) == ("r1", False, 422)
    assert response["status"]["message"].startswith("CS104 annotation volcano.sh/vgpu-mode: found 'x'")
    assert found.metrics.codes == {"CS104": 1}
    assert [one["event"] for one in logs] == ["review denied"]


def test_the_final_state_is_judged_without_a_patch():
    found = reviewer()
    assert ask(found, body(SHARE), Path.VALIDATE) == {"uid": "r1", "allowed": True}
    assert not ask(found, WRONG, Path.VALIDATE)["allowed"]


def test_an_assignment_that_came_after_us_is_denied_in_the_final_state():
    forged = body({"cpu": "1"}, {"volcano.sh/vgpu-ids-new": "x"})
    assert ask(reviewer(), forged)["allowed"]
    response = ask(reviewer(), forged, Path.VALIDATE)
    assert not response["allowed"]
    assert response["status"]["message"].startswith("CS301 annotation volcano.sh/vgpu-ids-new: remove it")


def test_what_is_told_of_the_final_state_is_told_and_counted_once():
    found = reviewer()
    text = body({**SHARE, "volcano.sh/vgpu-memory": "3000", "volcano.sh/vgpu-memory-percentage": "50"})
    assert "warnings" not in ask(found, text)
    (warning,) = ask(found, text, Path.VALIDATE)["warnings"]
    assert warning.startswith("CS116 ")
    assert found.metrics.codes == {"CS116": 1}


def test_what_can_never_fit_is_denied_in_the_final_state_alone():
    found = reviewer(Settings(admission=AdmissionSettings(never_fits={"*": NeverFits.DENY})))
    found.know(Inventory().stock())
    assert ask(found, body(SHARE))["allowed"]
    response = ask(found, body(SHARE), Path.VALIDATE)
    assert response["status"]["message"].startswith(
        "CS405 cards: no node of this cluster offers volcano.sh/vgpu-number"
    )
    assert found.metrics.codes == {"CS405": 1}


def test_a_failure_of_ours_is_a_denial_with_its_uid():
    found = broken()
    with capture_logs() as logs:
        response = ask(found, body(SHARE))
    assert (response["uid"], response["allowed"], response["status"]["code"]) == ("r1", False, 500)
    assert found.metrics.failures == 1
    assert logs[0]["log_level"] == "error"


def test_a_failure_of_ours_lets_through_where_the_operator_wants_that():
    found = broken(admit_on_failure=True)
    with capture_logs():
        response = ask(found, body(SHARE))
    assert (response["uid"], response["allowed"]) == ("r1", True)
    assert "patch" not in response


def test_what_is_no_review_is_the_callers_error():
    with pytest.raises(InvalidRequestError):
        reviewer().answer(Path.MUTATE, b"{}")


def test_an_object_that_is_no_pod_is_denied_with_its_uid():
    found = reviewer()
    text = body().replace(b'"name": "p"', b'"name": 5')
    response = ask(found, text)
    assert (response["uid"], response["allowed"]) == ("r1", False)
    assert response["status"]["message"].startswith("CS100 AdmissionReview request.object.metadata.name")


@pytest.mark.parametrize(
    "made", [{}, {"generateName": "job-"}, {"ownerReferences": [{"kind": "Job", "name": "job"}]}], ids=str
)
def test_of_a_workload_two_pods_are_judged_and_the_next_are_answered_alike(made):
    book = replace(reviewer().book, catalog=CountingCatalog(standard_catalog().specs))
    found, CountingCatalog.asked = Reviewer(book, Metrics()), 0
    review = json.loads(body(SHARE))
    review["request"]["object"]["metadata"] |= made
    answers = {found.answer(Path.MUTATE, json.dumps(review).encode()) for _ in range(4)}
    assert (len(answers), CountingCatalog.asked) == (1, 2)
    review["request"]["object"]["metadata"] |= {"generateName": "other-"}
    assert found.answer(Path.MUTATE, json.dumps(review).encode()) in answers
    assert CountingCatalog.asked == 3


def test_what_is_remembered_is_forgotten_with_its_rulebook():
    found = reviewer()
    for _ in range(3):
        assert ask(found, body(SHARE))["allowed"]
    found.obey(rulebook(Settings(dialects=frozenset()), Tables(), standard_catalog()))
    assert not ask(found, body(SHARE))["allowed"]


def test_cards_that_were_read_by_another_configuration_are_not_known_any_more():
    found = reviewer()
    found.know(Inventory().stock())
    same = found.book
    found.obey(rulebook(same.settings, same.tables, standard_catalog()))
    assert (found.book.stock is None, found.metrics.inventory_known) == (False, 1)
    found.obey(rulebook(Settings(), Tables(), standard_catalog()))
    assert (found.book.stock, found.metrics.inventory_known) == (None, 0)
