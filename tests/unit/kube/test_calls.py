import json
from datetime import UTC, datetime, timedelta, timezone

import pytest

from core.errors import InvalidRequestError
from kube.calls import Access, Calls, Condition, Identity, pod_path
from kube.errors import ApiRefusedError, ApiUnknownError, ApiUnreadableError
from kube.transport import Response

STORED = b'{"kind":"Pod","metadata":{"name":"a","resourceVersion":"8"}}'


class Recorder:
    """Takes every request down and gives the same answer to all."""

    def __init__(self, answer=STORED):
        self.answer = answer
        self.asked = []

    async def request(self, verb, path, *, body=None, **more):
        self.asked.append((verb, path, json.loads(body) if body else None, more))
        return Response(status=200, headers={}, body=self.answer)

    @property
    def only(self):
        (one,) = self.asked
        return one


async def test_a_binding_carries_node_annotations_uid_and_version_in_one_write():
    server = Recorder()
    await Calls(server).bind("ns", "a", uid="u", resource_version="7", node="n1", annotations={"k": "v"})
    verb, path, body, more = server.only
    assert (verb, path) == ("POST", "/api/v1/namespaces/ns/pods/a/binding")
    assert body == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {
            "name": "a",
            "namespace": "ns",
            "uid": "u",
            "resourceVersion": "7",
            "annotations": {"k": "v"},
        },
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
    }
    assert more == {"params": {"timeout": "5s"}, "deadline_s": 6.0, "wait_out_pause": False}


async def test_a_binding_carries_labels_where_there_are_some():
    server = Recorder()
    labels = {"hami.io/vgpu-node": "n1"}
    await Calls(server).bind("ns", "a", uid="u", resource_version="", node="n1", annotations={}, labels=labels)
    assert server.only[2]["metadata"]["labels"] == labels


@pytest.mark.parametrize("body", [b"<html>log in</html>", b"", b"[]", b'"ok"', b'{"status":"ok"}'])
@pytest.mark.parametrize("verb", ["bind", "evict", "create", "replace", "delete", "apply"])
async def test_a_write_that_a_proxy_answers_with_its_own_page_is_unknown(verb, body):
    calls = Calls(Recorder(body))
    writes = {
        "bind": lambda: calls.bind("ns", "a", uid="u", resource_version="7", node="n1", annotations={}),
        "evict": lambda: calls.evict("ns", "a", uid="u"),
        "create": lambda: calls.create("/api/v1/namespaces", {}),
        "replace": lambda: calls.replace("/api/v1/namespaces/a", {}),
        "delete": lambda: calls.delete("/api/v1/namespaces/a"),
        "apply": lambda: calls.apply("/api/v1/namespaces/a", {}, manager="m"),
    }
    with pytest.raises(ApiUnknownError, match="look for a proxy" if body else "without a body") as found:
        await writes[verb]()
    assert found.value.status == 200


async def test_an_eviction_is_refused_although_the_answer_is_201_if_its_status_says_so():
    # What the API server answers for a pod that two disruption budgets cover.
    several = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    told = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": several, "code": 500}
    for dry_run in (True, False):
        with pytest.raises(ApiRefusedError, match="more than one PodDisruptionBudget") as found:
            await Calls(Recorder(json.dumps(told).encode())).evict("ns", "a", uid="u", dry_run=dry_run)
        assert found.value.status == 500
    granted = {**told, "status": "Success", "message": "", "code": 201}
    await Calls(Recorder(json.dumps(granted).encode())).evict("ns", "a", uid="u")


@pytest.mark.parametrize("body", [b"<html>log in</html>", b"", b"{}", b'{"error":"log in"}'])
async def test_a_proxys_page_in_place_of_a_pod_or_node_is_no_pod_and_no_node(body):
    calls = Calls(Recorder(body))
    for read in (calls.get_pod("ns", "a"), calls.get_node("a"), calls.get_config_map("ns", "a")):
        with pytest.raises(ApiUnknownError, match="look for a proxy" if body else "without a body"):
            await read


async def test_annotations_are_merged_and_none_removes_one():
    server = Recorder()
    version = await Calls(server).patch_pod_annotations(
        "ns", "a", {"k": "v", "gone": None}, uid="u", resource_version="7"
    )
    verb, path, body, more = server.only
    assert version == "8"
    assert (verb, path) == ("PATCH", "/api/v1/namespaces/ns/pods/a")
    assert body == {"metadata": {"annotations": {"k": "v", "gone": None}, "uid": "u", "resourceVersion": "7"}}
    assert more["content_type"] == "application/merge-patch+json"


async def test_without_guards_none_are_sent():
    server = Recorder()
    await Calls(server).patch_pod_annotations("ns", "a", {"k": "v"})
    assert server.only[2] == {"metadata": {"annotations": {"k": "v"}}}


async def test_a_condition_is_patched_strategically_with_utc_time():
    server = Recorder()
    changed = datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    condition = Condition(type="PodScheduled", status="False", reason="Unschedulable", message="m", changed_at=changed)
    version = await Calls(server).patch_pod_status("ns", "a", [condition], uid="u")
    _, path, body, more = server.only
    assert version == "8"
    assert path == "/api/v1/namespaces/ns/pods/a/status"
    assert body == {
        "metadata": {"uid": "u"},
        "status": {
            "conditions": [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "Unschedulable",
                    "message": "m",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }
            ]
        },
    }
    assert more["content_type"] == "application/strategic-merge-patch+json"
    assert changed.astimezone(UTC).hour == 0


async def test_a_node_is_patched_only_in_the_version_that_was_read():
    server = Recorder()
    assert await Calls(server).patch_node_annotations("n1", {"lock": None}, resource_version="7") == "8"
    assert server.only[:3] == (
        "PATCH",
        "/api/v1/nodes/n1",
        {"metadata": {"annotations": {"lock": None}, "resourceVersion": "7"}},
    )


async def test_events_are_created_and_merged():
    server = Recorder()
    calls = Calls(server)
    assert await calls.create_event("ns", {"kind": "Event"}) == "8"
    assert await calls.patch_event("ns", "a.1", {"count": 2}) == "8"
    assert [asked[:3] for asked in server.asked] == [
        ("POST", "/api/v1/namespaces/ns/events", {"kind": "Event"}),
        ("PATCH", "/api/v1/namespaces/ns/events/a.1", {"count": 2}),
    ]


async def test_reads_give_the_bytes_of_the_object():
    server = Recorder()
    calls = Calls(server)
    assert await calls.get_pod("ns", "a") == STORED
    assert await calls.get_node("n1") == STORED
    assert await calls.get_config_map("ns", "c") == STORED
    assert [asked[1] for asked in server.asked] == [
        "/api/v1/namespaces/ns/pods/a",
        "/api/v1/nodes/n1",
        "/api/v1/namespaces/ns/configmaps/c",
    ]


async def test_a_dry_run_says_so_and_a_delete_names_its_uid():
    server = Recorder()
    calls = Calls(server)
    await calls.create("/p", b"{}", dry_run=True)
    await calls.replace("/p/a", b"{}")
    await calls.delete("/p/a", uid="u", grace_s=0)
    assert [asked[0] for asked in server.asked] == ["POST", "PUT", "DELETE"]
    assert server.asked[0][3]["params"] == {"dryRun": "All"}
    assert server.asked[1][3]["params"] is None
    assert server.asked[2][2]["preconditions"] == {"uid": "u"}
    assert server.asked[2][2]["gracePeriodSeconds"] == 0


async def test_a_write_whose_answer_cannot_be_read_is_of_unknown_outcome():
    with pytest.raises(ApiUnknownError):
        await Calls(Recorder(b"<html>")).patch_node_annotations("n", {}, resource_version="7")


@pytest.mark.parametrize(
    ("status", "audiences", "identity"),
    [
        (
            {"authenticated": True, "user": {"username": "u", "uid": "1", "groups": ["g"], "extra": {"scopes": ["s"]}}},
            (),
            Identity(authenticated=True, username="u", uid="1", groups=("g",), extra={"scopes": ["s"]}),
        ),
        (
            {"authenticated": True, "user": {"username": "u"}, "audiences": ["cards"]},
            ("cards",),
            Identity(authenticated=True, username="u"),
        ),
        (
            {"authenticated": True, "user": {"username": "u"}},
            ("cards",),
            Identity(authenticated=False, username="u", error="the token was made for another audience"),
        ),
        ({"error": "expired"}, (), Identity(authenticated=False, error="expired")),
        ({}, (), Identity(authenticated=False)),
    ],
    ids=["known", "for us", "audience ignored", "expired", "unknown"],
)
async def test_a_token_is_whom_the_server_says_and_only_if_made_for_us(status, audiences, identity):
    server = Recorder(json.dumps({"kind": "TokenReview", "status": status}).encode())
    assert await Calls(server).token_review("t", audiences=audiences) == identity


@pytest.mark.parametrize("allowed", [True, False])
async def test_an_access_is_what_the_server_allows(allowed):
    server = Recorder(json.dumps({"kind": "SubjectAccessReview", "status": {"allowed": allowed}}).encode())
    who = Identity(authenticated=True, username="u", groups=("g",), extra={"scopes": ["s"]})
    access = Access(verb="get", resource="pods", namespace="ns", name="a")
    assert await Calls(server).subject_access_review(who, access) is allowed
    spec = server.only[2]["spec"]
    assert (spec["user"], spec["groups"], spec["extra"]) == ("u", ["g"], {"scopes": ["s"]})
    assert spec["resourceAttributes"]["resource"] == "pods"


async def test_a_path_outside_the_resources_can_be_asked_for():
    server = Recorder(b'{"kind":"SubjectAccessReview"}')
    who = Identity(authenticated=True, username="u")
    assert not await Calls(server).subject_access_review(who, Access(verb="get", path="/metrics"))
    assert server.only[2]["spec"]["nonResourceAttributes"] == {"verb": "get", "path": "/metrics"}


async def test_a_review_that_cannot_be_read_allows_nothing():
    with pytest.raises(ApiUnreadableError):
        await Calls(Recorder(b'{"kind":"TokenReview","status":3}')).token_review("t")


def test_a_name_cannot_reach_another_object():
    assert pod_path("ns", "a/../b?x#y") == "/api/v1/namespaces/ns/pods/a%2F..%2Fb%3Fx%23y"
    for odd in ("", ".", ".."):
        with pytest.raises(InvalidRequestError):
            pod_path("ns", odd)
