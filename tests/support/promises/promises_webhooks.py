"""Promises of admission webhooks: what they see, and what becomes of their answers."""

import asyncio
import base64
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from aiohttp import web

from certs.authority import new_authority
from tests.support.promises.promises import Json, Rows, World, pod, promise, said
from tests.support.promises.promises_hook import (
    ACT,
    POLICY,
    Respond,
    add,
    answer_of,
    registered,
    serving,
)
from tests.support.servers.rest import eventually


def _changed(**changes: Any) -> Respond:
    def respond(review: Json) -> Json:
        found = answer_of(review, patch=[add("/metadata/labels/patched", "yes")])
        found["response"] |= changes
        return found

    return respond


def _without_uid(review: Json) -> Json:
    found = answer_of(review)
    del found["response"]["uid"]
    return found


_ACTS: Final[Mapping[str, Respond]] = {
    "good": _changed(),
    "slow": answer_of,
    "other-uid": _changed(uid="another"),
    "no-uid": _without_uid,
    "no-patch-type": _changed(patchType=None),
    "bad-base64": _changed(patch="*"),
    "status-500": lambda review: web.Response(status=500),
    "html": lambda review: web.Response(text="<html>", content_type="text/html"),
    "other-version": lambda review: {**answer_of(review), "apiVersion": "admission.k8s.io/v1beta1"},
    "no-response": lambda review: {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"},
    "patch-applies-not": lambda review: answer_of(
        review, patch=[{"op": "remove", "path": "/metadata/annotations/none"}]
    ),
    "patch-replaces-nothing": lambda review: answer_of(
        review, patch=[{"op": "replace", "path": "/spec/x", "value": 1}]
    ),
    "patch-is-no-list": lambda review: answer_of(review, patch={"op": "add"}),  # type: ignore[arg-type]  # the point
    "invalid-pod": lambda review: answer_of(review, patch=[add("/metadata/labels/a", "not a label!")]),
    "unknown-field": lambda review: answer_of(review, patch=[add("/spec/noSuchField", 1)]),
    "deny-422": lambda review: answer_of(
        review, allowed=False, status={"code": 422, "message": "write whole MiB", "reason": "Invalid"}
    ),
    "deny-nothing": lambda review: answer_of(review, allowed=False),
    "deny-message": lambda review: answer_of(review, allowed=False, status={"message": "because"}),
    "deny-200": lambda review: answer_of(review, allowed=False, status={"code": 200, "message": "odd"}),
    "no-kind": lambda review: {"response": {"uid": review["request"]["uid"], "allowed": True}},
}


@promise
async def answers_of_webhooks_are_taken_as_measured(world: World) -> Rows:
    rows: Rows = []
    async with serving(world, _ACTS) as hook:
        entries = [
            hook.entry(
                f"{policy.lower()}.{act}",
                act,
                world,
                failurePolicy=policy,
                objectSelector={"matchLabels": {ACT: act, POLICY: policy}},
            )
            for act in _ACTS
            for policy in ("Fail", "Ignore")
        ]
        async with registered(world, hook, entries):
            for act in _ACTS:
                for policy in ("Fail", "Ignore"):
                    body = pod("p", labels={ACT: act, POLICY: policy})
                    answer = await world.rest.post(f"{world.pods}?dryRun=All", body)
                    failed = f'failed calling webhook "{policy.lower()}.{act}.example.test"' in answer.message
                    denied = answer.message if "denied the request" in answer.message else ""
                    patched = answer.status < 400 and "patched" in answer.body["metadata"]["labels"]
                    rows.append([act, policy, answer.status, answer.body.get("reason"), failed, denied, patched])
    return rows


def _refused_first(times: int, status: int, **headers: str) -> Respond:
    """Answers *times* with *status* and *headers*, then as it should."""
    left = [times]

    def respond(review: Json) -> Json | web.Response:
        left[0] -= 1
        return web.Response(status=status, headers=headers) if left[0] >= 0 else answer_of(review)

    return respond


@promise
async def a_call_that_is_answered_with_a_time_to_wait_is_sent_again(world: World) -> Rows:
    rows: Rows = []
    again = {"Retry-After": "0"}
    acts: Mapping[str, Respond] = {
        "429": _refused_first(1, 429, **again),
        "503": _refused_first(1, 503, **again),
        "408": _refused_first(1, 408, **again),
        "no-time": _refused_first(1, 429),
        "a-date": _refused_first(1, 429, **{"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}),
        "10-times": _refused_first(10, 429, **again),
        "11-times": _refused_first(11, 429, **again),
        "in-time": _refused_first(1, 429, **{"Retry-After": "1"}),
        "too-late": _refused_first(1, 429, **{"Retry-After": "9"}),
    }
    async with serving(world, acts) as hook:
        entries = [
            hook.entry(act, act, world, objectSelector={"matchLabels": {ACT: act}}, timeoutSeconds=5) for act in acts
        ]
        async with registered(world, hook, entries):
            for act in acts:
                began_s = asyncio.get_running_loop().time()
                answer = await world.rest.post(f"{world.pods}?dryRun=All", pod("p", labels={ACT: act}))
                took_s = asyncio.get_running_loop().time() - began_s
                asked = sum(seen == act for seen, _, _ in hook.reviews)
                has_waited = act == "in-time" and took_s > 0.9
                rows.append([act, answer.status, answer.body.get("reason"), asked, has_waited])
    return rows


@promise
async def a_webhook_sees_the_object_complete_but_unjudged(world: World) -> Rows:
    rows: Rows = []
    mend = [add("/spec/containers/0/resources", {"limits": {"example.com/x": "1k"}})]
    acts: Mapping[str, Respond] = {
        "mutate": lambda review: answer_of(
            review, patch=mend if review["request"]["object"]["metadata"].get("labels", {}).get("mend") else None
        )
    }
    async with serving(world, acts) as hook, registered(world, hook, [hook.entry("h", "mutate", world)]):
        body = pod("", None)
        body["metadata"] = {"generateName": "job-"}
        body["spec"]["containers"][0]["resources"] = {"limits": {"example.com/x": "1000k", "memory": "1024.000Mi"}}
        made = await world.rest.made(world.pods, body)
        body["metadata"] = {"name": "mended", "labels": {"mend": "1"}, "annotations": {"null": None}}
        body["spec"]["containers"][0]["resources"] = {"limits": {"example.com/x": "-1"}}
        mended = await world.rest.made(world.pods, body)
        rows.append(["mended", mended["spec"]["containers"][0]["resources"]])
        body["metadata"] = {"name": "bad"}
        rows.append(["unmended", (await world.rest.post(world.pods, body)).status])
        await world.rest.patch(f"{world.pods}/mended", {"metadata": {"annotations": {"a": "b"}}})
        rows.append(["made", made["metadata"]["name"][:4]])
        for _, request, http in hook.reviews:
            found = request["object"]
            head = [request["operation"], request.get("name"), found["metadata"].get("name"), request["namespace"]]
            rows.append([*head, request["kind"], request["resource"], request["dryRun"], request["userInfo"]])
            about = [found["metadata"].get("annotations"), found["spec"]["containers"][0]["resources"]]
            old = request.get("oldObject")
            rows.append([*about, old and old["metadata"].get("annotations"), sorted(request.get("options") or {})])
            rows.append([http.query_string, http.headers["User-Agent"], http.headers["Content-Type"], http.method])
            metadata = sorted(key for key in found["metadata"] if key != "managedFields")
            spec = sorted(key for key in found["spec"] if not key.startswith("serviceAccount"))
            rows.append([found["kind"], found["apiVersion"], metadata, spec])
            rows.append(["status" in found, (found.get("status") or {}).get("phase")])
    return rows


@promise
async def a_webhook_is_asked_again_after_another_changed_the_object(world: World) -> Rows:
    acts: Mapping[str, Respond] = {
        "first": answer_of,
        "never": answer_of,
        "second": lambda review: answer_of(review, patch=[add("/metadata/labels/second", "x")]),
    }
    async with serving(world, acts) as hook:
        entries = [
            hook.entry("a", "first", world, reinvocationPolicy="IfNeeded"),
            hook.entry("b", "never", world),
            hook.entry("c", "second", world, reinvocationPolicy="IfNeeded"),
        ]
        async with registered(world, hook, entries):
            await world.pod("p", labels={"x": "y"})
        return [[act for act, _, _ in hook.reviews], hook.reviews[-1][1]["object"]["metadata"]["labels"]]


@promise
async def a_validating_webhook_sees_the_final_object(world: World) -> Rows:
    acts: Mapping[str, Respond] = {
        "validate": lambda review: answer_of(
            review, allowed="bad" not in review["request"]["object"]["metadata"].get("labels", {})
        )
    }
    rows: Rows = []
    async with serving(world, acts) as hook:
        async with registered(world, hook, [hook.entry("h", "validate", world)], "validating"):
            rows.append(said(await world.rest.post(world.pods, pod("p"))))
            rows.append(said(await world.rest.post(world.pods, pod("q", labels={"bad": "1"}))))
            rows.append(said(await world.rest.patch(f"{world.pods}/p", {"metadata": {"labels": {"bad": "1"}}})))
            invalid = pod("r", labels={"bad": "not a label!"})
            rows.append((await world.rest.post(world.pods, invalid)).status)
        rows.append([request["operation"] for _, request, _ in hook.reviews])
    return rows


@promise
async def subresources_are_sent_to_those_who_ask_for_them(world: World) -> Rows:
    rows: Rows = []
    acts: Mapping[str, Respond] = {"pods": answer_of, "parts": answer_of}
    async with serving(world, acts) as hook:
        parts = hook.entry("parts", "parts", world)
        parts["rules"] = [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "resources": ["pods/status", "pods/binding"],
                "operations": ["*"],
            }
        ]
        async with registered(world, hook, [hook.entry("pods", "pods", world), parts]):
            await world.pod("p")
            await world.rest.patch(f"{world.pods}/p/status", {"status": {"message": "m"}})
            await world.bind("p")
            await world.rest.delete(f"{world.pods}/p")
        for act, request, _ in hook.reviews:
            rows.append([act, request["operation"], request["kind"]["kind"], request.get("subResource")])
    return rows


@promise
async def a_dry_run_needs_webhooks_without_side_effects(world: World) -> Rows:
    rows: Rows = []
    acts: Mapping[str, Respond] = {"none": answer_of, "some": answer_of}
    async with serving(world, acts) as hook:
        some = hook.entry("some", "some", world, sideEffects="NoneOnDryRun", objectSelector={"matchLabels": {"s": "1"}})
        async with registered(world, hook, [hook.entry("none", "none", world), some]):
            rows.append((await world.rest.post(f"{world.pods}?dryRun=All", pod("p", labels={"s": "1"}))).status)
            rows.append([[act, request["dryRun"]] for act, request, _ in hook.reviews])
    return rows


@promise
async def a_certificate_of_another_authority_is_refused(world: World) -> Rows:
    async with serving(world, {"any": answer_of}) as hook:
        entry = hook.entry("h", "any", world, objectSelector={"matchLabels": {"other": "1"}})
        bundle = new_authority("other", 2, datetime.now(UTC)).cert_pem
        entry["clientConfig"]["caBundle"] = base64.b64encode(bundle).decode()
        async with registered(world, hook, [entry]):
            answer = await world.rest.post(world.pods, pod("p", labels={"other": "1"}))
            return [[answer.status, answer.body["reason"], "certificate" in answer.message, len(hook.reviews)]]


@promise
async def a_service_is_called_by_its_name_in_the_cluster(world: World) -> Rows:
    rows: Rows = []
    async with serving(world, {"any": answer_of}, f"hook.{world.namespace}.svc") as hook:
        entry = hook.entry("h", "any", world, objectSelector={"matchLabels": {"service": "1"}})
        entry["clientConfig"] = {
            "service": {"namespace": world.namespace, "name": "hook", "path": "/any", "port": hook.port},
            "caBundle": entry["clientConfig"]["caBundle"],
        }
        path, body = f"{world.pods}?dryRun=All", pod("p", labels={"service": "1"})
        async with registered(world, hook, [entry]):
            answer = await world.rest.post(path, body)
            rows.append([answer.status, answer.body["reason"], "not found" in answer.message])
            spec = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": hook.port}]}
            await world.rest.made(f"{world.core}/services", {"metadata": {"name": "hook"}, "spec": spec})
            good = await eventually(lambda: world.rest.post(path, body), lambda found: found.status == 201)
            rows.append([good.status, [act for act, _, _ in hook.reviews][-1:]])
    return rows


@promise
async def warnings_reach_the_user_and_long_ones_are_cut(world: World) -> Rows:
    acts: Mapping[str, Respond] = {
        "warn": lambda review: answer_of(review, warnings=['say "a"', "two\nlines", "ä", "x" * 5000])
    }
    async with serving(world, acts) as hook, registered(world, hook, [hook.entry("h", "warn", world)]):
        answer = await world.rest.post(f"{world.pods}?dryRun=All", pod("p"))
        return [answer.status, *answer.warnings]


@promise
async def large_pods_reach_the_webhook_before_they_are_refused(world: World) -> Rows:
    rows: Rows = []
    large = [add("/metadata/annotations", {"a": "x" * 250_000})]
    acts: Mapping[str, Respond] = {"any": answer_of, "large": lambda review: answer_of(review, patch=large)}
    async with serving(world, acts) as hook:
        entries = [
            hook.entry("any", "any", world, timeoutSeconds=5, objectSelector={"matchLabels": {"size": "1"}}),
            hook.entry("large", "large", world, timeoutSeconds=5, objectSelector={"matchLabels": {"large": "1"}}),
        ]
        async with registered(world, hook, entries):
            for size in (1_400_000, 2_000_000, 2_900_000, 3_200_000):
                body = pod(f"p{size}", labels={"size": "1"})
                body["spec"]["containers"][0]["args"] = ["y" * size]
                answer = await world.rest.post(world.pods, body)
                rows.append([size, answer.status, answer.body.get("reason"), len(hook.reviews)])
            answer = await world.rest.post(world.pods, pod("large", labels={"large": "1"}))
            rows.append(["large patch", answer.status, len(answer.body["metadata"]["annotations"]["a"])])
    return rows


@promise
async def namespaces_are_selected_by_their_labels(world: World) -> Rows:
    rows: Rows = []
    names = {"NotIn": ["no-such-namespace"], "In": [world.namespace], "Exists": None, "DoesNotExist": None}
    key = "kubernetes.io/metadata.name"
    async with serving(world, dict.fromkeys(("notin", "in", "exists", "doesnotexist"), answer_of)) as hook:
        entries = []
        for operator, values in names.items():
            ours = {"key": key, "operator": operator, **({"values": values} if values else {})}
            # Others write to a real server at the same time.
            selector = {"matchExpressions": [ours], "matchLabels": {key: world.namespace}}
            entries.append(hook.entry(operator.lower(), operator.lower(), world, namespaceSelector=selector))
        without = {"matchExpressions": [{"key": key, "operator": "NotIn", "values": [world.namespace, "kube-system"]}]}
        entries.append(hook.entry("without", "without", world, namespaceSelector=without, failurePolicy="Ignore"))
        async with registered(world, hook, entries):
            answer = await world.rest.post(f"{world.pods}?dryRun=All", pod("p"))
            rows.append([answer.status, [act for act, _, _ in hook.reviews]])
    return rows


@promise
async def a_webhook_is_told_how_to_delete_and_with_which_options_to_write(world: World) -> Rows:
    rows: Rows = []
    async with serving(world, {"any": answer_of}) as hook:
        entry = hook.entry("h", "any", world)
        entry["rules"][0]["operations"] = ["*"]
        async with registered(world, hook, [entry]):
            await world.rest.made(f"{world.pods}?fieldManager=me", pod("made"))
            _, request, _ = hook.reviews[0]
            options = {name: value for name, value in request["options"].items() if name != "fieldValidation"}
            rows.append(["made", options, request["oldObject"]])
            for name in ("pending", "bound"):
                for body in (None, {"gracePeriodSeconds": 5}, {"propagationPolicy": "Background"}):
                    await world.pod(name)
                    if name == "bound":
                        await world.bind(name)
                    await world.rest.delete(f"{world.pods}/{name}", body)
                    request = next(one for _, one, _ in hook.reviews if one["operation"] == "DELETE")
                    rows.append([name, body, request["options"], request["object"], request["oldObject"] is None])
                    await world.rest.delete(f"{world.pods}/{name}", {"gracePeriodSeconds": 0})
                    hook.reviews.clear()
    return rows


@promise
async def an_empty_map_reaches_no_webhook(world: World) -> Rows:
    async with serving(world, {"any": answer_of}) as hook, registered(world, hook, [hook.entry("h", "any", world)]):
        await world.pod("p", labels={}, annotations={})
        metadata = hook.reviews[0][1]["object"]["metadata"]
        return [sorted(key for key in metadata if key != "managedFields")]
