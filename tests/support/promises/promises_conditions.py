"""Promises of the match conditions of webhooks: which reviews they keep away, and what is no condition."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from tests.support.promises.promises import Json, Rows, World, pod, promise
from tests.support.promises.promises_hook import POLICY, Respond, add, answer_of, registered, serving

_SELECTED: Final = "promise/conditions"
_CONDITIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "none": (),
    "true": ("true",),
    "false": ("false",),
    "true-false": ("true", "false"),
    "error": ("object.spec.nodeName == 'n1'",),
    "error-false": ("object.spec.nodeName == 'n1'", "false"),
    "error-true": ("object.spec.nodeName == 'n1'", "true"),
    "two-errors": ("object.spec.nodeName == 'n1'", "1 / 0 == 1"),
    "error-behind-or": ("object.spec.nodeName == 'n1' || true",),
    "optional": ("object.spec.?nodeName.orValue('') == ''",),
    "optional-key": ("object.metadata.?annotations[?'a/b'].hasValue()",),
    "optionals-differ": ("object.metadata.?annotations != object.metadata.?labels",),
    "has": ("has(object.metadata.labels) && !has(object.metadata.annotations)",),
    "macros": ("object.spec.containers.map(c, c.name).exists(n, n.startsWith('c'))",),
    "user": ("request.userInfo.username == 'admin' && 'system:masters' in request.userInfo.groups",),
    "request": (
        "request.operation == 'CREATE' && request.kind.kind == 'Pod' && request.resource.resource == 'pods'",
        "request.dryRun && request.name == 'p'",
    ),
    "request-namespace": ("request.namespace == object.metadata.namespace",),
    "no-subresource": ("has(request.subResource)",),
    "no-old-object": ("oldObject == null",),
    "old-object-of-none": ("oldObject.metadata.name == 'p'",),
    "no-number": ("object.metadata.name == 1",),
}


def _conditions(expressions: tuple[str, ...]) -> list[Json]:
    return [{"name": f"c{i}", "expression": expression} for i, expression in enumerate(expressions)]


@promise
async def conditions_that_are_not_met_keep_a_review_away(world: World) -> Rows:
    rows: Rows = []
    async with serving(world, {"any": answer_of}) as hook:
        entries = [
            hook.entry(
                f"{policy.lower()}.{name}",
                "any",
                world,
                failurePolicy=policy,
                objectSelector={"matchLabels": {_SELECTED: name, POLICY: policy}},
                matchConditions=_conditions(expressions),
            )
            for name, expressions in _CONDITIONS.items()
            for policy in ("Fail", "Ignore")
        ]
        for kind in ("mutating", "validating"):
            async with registered(world, hook, entries, kind):
                for name in _CONDITIONS:
                    for policy in ("Fail", "Ignore"):
                        body = pod("p", labels={_SELECTED: name, POLICY: policy})
                        answer = await world.rest.post(f"{world.pods}?dryRun=All", body)
                        reason = answer.body.get("reason", "")
                        rows.append([kind, name, policy, answer.status, reason, len(hook.reviews)])
                        hook.reviews.clear()
    return rows


@promise
async def conditions_compare_the_object_with_what_it_was(world: World) -> Rows:
    rows: Rows = []
    operations = ["CREATE", "UPDATE", "DELETE"]
    pods = [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods", "pods/*"], "operations": operations}]
    by_act = {
        "annotated": "object.metadata.?annotations != oldObject.metadata.?annotations",
        "new": "oldObject == null",
        "gone": "object == null",
        "bound": "request.?subResource.orValue('') == 'binding' && object.target.name == 'n1'",
    }
    async with serving(world, dict.fromkeys(by_act, answer_of)) as hook:
        entries = [
            hook.entry(act, act, world, rules=pods, failurePolicy="Ignore", matchConditions=_conditions((expression,)))
            for act, expression in by_act.items()
        ]
        async with registered(world, hook, entries, "validating"):
            path = f"{world.pods}/p"
            steps: Mapping[str, Callable[[], Awaitable[object]]] = {
                "create": lambda: world.pod("p"),
                "label": lambda: world.rest.patch(path, {"metadata": {"labels": {"a": "b"}}}),
                "annotate": lambda: world.rest.patch(path, {"metadata": {"annotations": {"a": "b"}}}),
                "status": lambda: world.rest.patch(f"{path}/status", {"metadata": {"annotations": {"a": None}}}),
                "bind": lambda: world.bind("p"),
                "delete": lambda: world.rest.delete(path, {"gracePeriodSeconds": 0}),
            }
            for step, act in steps.items():
                await act()
                # A real server may ask more than once about one deletion.
                rows.append([step, sorted({name for name, _, _ in hook.reviews})])
                hook.reviews.clear()
    return rows


@promise
async def conditions_are_judged_after_the_webhooks_before(world: World) -> Rows:
    acts: Mapping[str, Respond] = {
        "first": lambda review: answer_of(review, patch=[add("/metadata/labels/first", "x")]),
        "second": lambda review: answer_of(review, patch=[add("/metadata/labels/second", "x")]),
        "third": answer_of,
        "fourth": answer_of,
    }
    conditions = {
        "first": "!('second' in object.metadata.labels)",
        "second": "'first' in object.metadata.labels",
        "third": "'second' in object.metadata.labels",
        "fourth": "!('second' in object.metadata.labels)",
    }
    async with serving(world, acts) as hook:
        entries = [
            hook.entry(act, act, world, reinvocationPolicy="IfNeeded", matchConditions=_conditions((conditions[act],)))
            for act in acts
        ]
        async with registered(world, hook, entries):
            await world.pod("p", labels={"x": "y"})
        return [[act for act, _, _ in hook.reviews], hook.reviews[-1][1]["object"]["metadata"]["labels"]]


@promise
async def conditions_are_judged_before_a_webhook_that_is_away(world: World) -> Rows:
    rows: Rows = []
    async with serving(world, {"any": answer_of}) as hook:
        away = {"url": "https://127.0.0.1:1/any", "caBundle": hook.entry("", "", world)["clientConfig"]["caBundle"]}
        kept = hook.entry(
            "kept", "any", world, clientConfig=away, matchConditions=_conditions(("'a' in object.metadata.labels",))
        )
        async with registered(world, hook, [kept]):
            for labels in ({"a": "b"}, {"b": "a"}):
                answer = await world.rest.post(f"{world.pods}?dryRun=All", pod("p", labels=labels))
                rows.append([sorted(labels), answer.status, answer.body.get("reason")])
    return rows
