"""Reviews of the configuration's ConfigMaps: answered by their uid, beside everything else, and counted."""

import asyncio
import json
import threading

import pytest
from structlog.testing import capture_logs

from core.catalog import Catalog, standard_catalog
from core.errors import InvalidRequestError
from runtime.configuration import ActiveConfiguration
from runtime.files import Files
from webhook.calls import Edits
from webhook.metrics import Metrics

WRONG = "polizy: spread\n"


def made():
    catalog = standard_catalog()
    return Edits(ActiveConfiguration(Files(), catalog), catalog, frozenset({"kube-system"}), Metrics())


def body(text, *, operation="UPDATE", name="cardshare-settings", kind="ConfigMap"):
    found = {"metadata": {"name": name}, "data": {"cardshare.yaml": text}}
    request = {
        "uid": "r1",
        "kind": {"version": "v1", "kind": kind},
        "operation": operation,
        "namespace": "cardshare-system",
        "name": name,
        "userInfo": {"username": "dana"},
        "object": found if operation != "DELETE" else None,
        "oldObject": {"metadata": {"name": name}} if operation != "CREATE" else None,
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return json.dumps(review).encode()


async def ask(found, text, deadline_s=10.0):
    return json.loads(await found.answer(text, deadline_s))["response"]


async def test_a_refusal_names_what_is_wrong_and_is_counted_and_logged():
    found = made()
    with capture_logs() as logs:
        response = await ask(found, body(WRONG))
    assert (response["uid"], response["allowed"], response["status"]["code"]) == ("r1", False, 422)
    assert "polizy: there is no such setting; did you mean 'policy'?" in response["status"]["message"]
    assert found._metrics.reviews == {("/configuration", "UPDATE", "denied"): 1}
    assert found._metrics.codes == {"CS602": 1}
    (line,) = logs
    assert (line["event"], line["config_map"], line["user"]) == (
        "review denied",
        "cardshare-system/cardshare-settings",
        "dana",
    )


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
async def test_good_settings_are_taken(operation):
    assert await ask(made(), body("policy: spread\n", operation=operation)) == {"uid": "r1", "allowed": True}


@pytest.mark.parametrize("operation", ["DELETE", "CONNECT"])
async def test_a_deletion_is_never_refused(operation):
    assert (await ask(made(), body(WRONG, operation=operation)))["allowed"]


async def test_what_is_no_config_map_is_left_to_the_api_server():
    assert (await ask(made(), body(3)))["allowed"]


async def test_reviews_of_anything_else_are_answered_and_nothing_is_said_of_them():
    assert await ask(made(), body(WRONG, kind="Secret")) == {"uid": "r1", "allowed": True}
    assert await ask(made(), body(WRONG, kind="Pod", operation="CREATE")) == {"uid": "r1", "allowed": True}
    assert await ask(made(), body(WRONG, kind="Pod", operation="DELETE")) == {"uid": "r1", "allowed": True}


async def test_what_is_no_review_has_no_uid_to_answer_to():
    with pytest.raises(InvalidRequestError):
        await made().answer(b"{}", 1.0)


def faulty(does):
    """Edits that do something else when they are asked for the words of settings."""

    class Faulty(Catalog):
        @property
        def vocabulary(self):
            does()
            return super().vocabulary

    return Edits(ActiveConfiguration(Files(), standard_catalog()), Faulty(()), frozenset(), Metrics())


async def test_a_fault_of_ours_is_in_nobodys_way():
    def fail():
        raise RuntimeError("broken")

    found = faulty(fail)
    with capture_logs() as logs:
        response = await ask(found, body("policy: spread\n"))
    assert (response["allowed"], len(response["warnings"])) == (True, 1)
    assert (logs[0]["log_level"], found._metrics.failures) == ("error", 1)


async def test_what_takes_too_long_is_let_through_and_said():
    may_end = threading.Event()
    try:
        response = await ask(faulty(lambda: may_end.wait(20.0)), body("policy: spread\n"), 0.01)
    finally:
        may_end.set()
    assert response["allowed"]
    assert "did not check this in time" in response["warnings"][0]


async def test_few_large_edits_wait_for_the_one_that_is_judged_and_all_others():
    may_end = threading.Event()
    found, large = faulty(lambda: may_end.wait(20.0)), body("policy: spread\n" + "#" * 70_000)
    asked = [asyncio.create_task(ask(found, large, 20.0)) for _ in range(5)]
    asked += [asyncio.create_task(ask(found, body("policy: spread\n"), 20.0)) for _ in range(20)]
    try:
        await asyncio.sleep(0)
        async with asyncio.timeout(15.0):
            assert "did not check this in time" in (await ask(found, large, 20.0))["warnings"][0]
    finally:
        may_end.set()
    assert all("warnings" not in one for one in await asyncio.gather(*asked))


async def test_a_late_edit_is_not_kept():
    may_end, judged = threading.Event(), []

    def judge():
        judged.append(1)
        may_end.wait(20.0)

    found, good = faulty(judge), body("policy: spread\n")
    try:
        late = await asyncio.gather(*(ask(found, good, 0.01) for _ in range(4)))
        assert all("did not check this in time" in one["warnings"][0] for one in late)
    finally:
        may_end.set()
    assert "warnings" not in await ask(found, good)
    before = len(judged)
    await ask(found, good)
    assert before == 2 * (len(judged) - before), "only the first and this one were judged"
