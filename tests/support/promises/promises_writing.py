"""Promises of create, replace and patch: conflicts, kinds of patches, defaults, validation."""

import asyncio
import json
from typing import Any

from tests.support.promises.promises import Json, Rows, World, pod, promise, refused_fields, said
from tests.support.servers.rest import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, eventually

# facts 2.3: what is written, and what is then there, differ only sometimes.


@promise
async def of_patches_of_one_version_one_is_written(world: World) -> Rows:
    version = (await world.pod("p"))["metadata"]["resourceVersion"]
    bodies = [{"metadata": {"resourceVersion": version, "labels": {"n": str(i)}}} for i in range(5)]
    answers = await asyncio.gather(*(world.rest.patch(f"{world.pods}/p", body) for body in bodies))
    lost = next(answer for answer in answers if answer.status != 200)
    return [sorted(answer.status for answer in answers), said(lost)]


@promise
async def a_replacement_of_an_old_version_is_a_conflict(world: World) -> Rows:
    rows: Rows = []
    made = await world.pod("p")
    await world.rest.patch(f"{world.pods}/p", {"metadata": {"labels": {"a": "b"}}})
    rows.append(["old version", *said(await world.rest.put(f"{world.pods}/p", made))])
    del made["metadata"]["resourceVersion"]
    rows.append(["no version", *said(await world.rest.put(f"{world.pods}/p", made))])
    rows.append(["other name", *said(await world.rest.put(f"{world.pods}/q", made))])
    made["metadata"]["uid"] = "00000000-0000-0000-0000-000000000000"
    rows.append(["other uid", *said(await world.rest.put(f"{world.pods}/p", made))])
    patch = {"metadata": {"uid": "00000000-0000-0000-0000-000000000000", "labels": {"x": "y"}}}
    rows.append(["other uid, patched", (await world.rest.patch(f"{world.pods}/p", patch)).status])
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{world.namespace}/leases"
    held = await world.rest.made(lease, {"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}})
    held["spec"]["holderIdentity"] = "b"
    rows.append(["lease", (await world.rest.put(f"{lease}/l", held)).status])
    rows.append(["lease again", *said(await world.rest.put(f"{lease}/l", held))])
    return rows


@promise
async def each_kind_of_patch_has_its_way(world: World) -> Rows:
    rows: Rows = []
    await world.pod("p", annotations={"a": "1", "b": "2"}, labels={"x": "y"})
    path = f"{world.pods}/p"

    async def patched(title: str, body: object, kind: str) -> None:
        answer = await world.rest.patch(path, body, kind)
        found = answer.body if answer.status < 400 else {}
        images = [container["image"] for container in found.get("spec", {}).get("containers", ())]
        outcome = [found["metadata"].get("annotations"), images] if found else [answer.body.get("reason")]
        rows.append([title, answer.status, *outcome])

    await patched("merge", {"metadata": {"annotations": {"a": None, "c": "3"}}}, MERGE_PATCH)
    await patched("strategic", {"spec": {"containers": [{"name": "c", "image": "example.test/a"}]}}, STRATEGIC_PATCH)
    await patched("merge of a list", {"spec": {"containers": [{"name": "c", "image": "x"}]}}, MERGE_PATCH)
    await patched("json add", [{"op": "add", "path": "/metadata/annotations/d", "value": "4"}], JSON_PATCH)
    await patched("json remove", [{"op": "remove", "path": "/metadata/annotations/d"}], JSON_PATCH)
    await patched("json remove again", [{"op": "remove", "path": "/metadata/annotations/d"}], JSON_PATCH)
    await patched("json test", [{"op": "test", "path": "/metadata/name", "value": "q"}], JSON_PATCH)
    await patched("json good test", [{"op": "test", "path": "/metadata/name", "value": "p"}], JSON_PATCH)
    await patched("json that is none", {"op": "test"}, JSON_PATCH)
    await patched("other type", {"metadata": {}}, "application/json")
    await patched("drop a map", {"metadata": {"annotations": None}}, MERGE_PATCH)
    await patched("empty", {}, MERGE_PATCH)
    await patched("strategic by key", {"spec": {"containers": [{"name": "d", "image": "x"}]}}, STRATEGIC_PATCH)
    before = (await world.rest.get(path)).body["metadata"]["resourceVersion"]
    after = (await world.rest.patch(path, {"metadata": {"labels": {"x": "y"}}})).body["metadata"]["resourceVersion"]
    rows.append(["a patch that changes nothing makes no version", before == after])
    return rows


@promise
async def conditions_are_merged_by_their_type(world: World) -> Rows:
    rows: Rows = []
    await world.pod("p")
    path = f"{world.pods}/p/status"
    for kind, condition in (
        (STRATEGIC_PATCH, {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "m"}),
        (STRATEGIC_PATCH, {"type": "Ready", "status": "False"}),
        (STRATEGIC_PATCH, {"type": "PodScheduled", "status": "True"}),
        (MERGE_PATCH, {"type": "Other", "status": "True"}),
    ):
        answer = await world.rest.patch(path, {"status": {"conditions": [condition]}}, kind)
        rows.append([answer.status, sorted_conditions(answer.body)])
    return rows


def sorted_conditions(found: Json) -> list[Json]:
    conditions = found.get("status", {}).get("conditions", [])
    return sorted(conditions, key=lambda condition: str(condition["type"]))


@promise
async def status_and_the_rest_are_written_apart(world: World) -> Rows:
    rows: Rows = []
    await world.pod("p")
    both = {
        "status": {"phase": "Running", "message": "m"},
        "spec": {"activeDeadlineSeconds": 5},
        "metadata": {"labels": {"l": "1"}, "annotations": {"a": "1"}},
    }
    for path in ("", "/status"):
        answer = await world.rest.patch(f"{world.pods}/p{path}", both)
        found = answer.body
        deadline = found["spec"].get("activeDeadlineSeconds")
        rows.append([path, answer.status, found["status"]["phase"], found["status"].get("message"), deadline])
        rows.append([found["metadata"].get("labels"), found["metadata"].get("annotations")])
        await world.rest.patch(f"{world.pods}/p", {"metadata": {"labels": None, "annotations": None}})
    return rows


@promise
async def a_new_pod_is_completed(world: World) -> Rows:
    spec = {
        "containers": [
            {
                "name": "c",
                "image": "example.test/none",
                "ports": [{"containerPort": 80}],
                "resources": {"limits": {"example.com/x": "1", "cpu": "1"}, "requests": {"memory": "1Gi"}},
            }
        ],
        "initContainers": [{"name": "i", "image": "example.test/none:1.2"}],
        "volumes": [{"name": "e", "emptyDir": {}}, {"name": "s", "secret": {"secretName": "s"}}],
    }
    made = await world.rest.made(world.pods, pod("p", spec))
    metadata = sorted(key for key in made["metadata"] if key != "managedFields")
    # A real server's own tests run without the admission plugin that fills in the account.
    spec_shown = {key: value for key, value in made["spec"].items() if not key.startswith("serviceAccount")}
    return [spec_shown, made["status"], metadata, made["apiVersion"], made["kind"]]


@promise
async def a_priority_comes_from_its_class(world: World) -> Rows:
    rows: Rows = []
    for name in ("system-cluster-critical", "no-such-class"):
        answer = await world.rest.post(f"{world.pods}?dryRun=All", pod("p", {"priorityClassName": name}))
        found = answer.body.get("spec") or {}
        rows.append([name, *said(answer), found.get("priority"), found.get("preemptionPolicy")])
    return rows


@promise
async def resources_are_judged(world: World) -> Rows:
    rows: Rows = []
    cases: dict[str, Json] = {
        "a request alone": {"requests": {"example.com/x": "1"}},
        "less than the limit": {"requests": {"example.com/x": "1"}, "limits": {"example.com/x": "2"}},
        "the same in other words": {"requests": {"example.com/x": "1000"}, "limits": {"example.com/x": "1k"}},
        "memory over its limit": {"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}},
        "a name without domain": {"limits": {"gpus": "1"}},
        "a name with a space": {"limits": {"a/b c": "1"}},
        "a share": {"limits": {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "3000"}},
        "of another type": {"limits": {"example.com/x": 2}},
        "a flag": {"limits": {"example.com/x": True}},
    }
    for title, resources in cases.items():
        body = pod("p", {"containers": [{"name": "c", "image": "i", "resources": resources}]})
        rows.append([title, *refused_fields(await world.rest.post(f"{world.pods}?dryRun=All", body))])
    return rows


@promise
async def names_and_keys_are_judged(world: World) -> Rows:
    rows: Rows = []
    await world.pod("p")
    rows.append(["again", *said(await world.rest.post(world.pods, pod("p")))])
    elsewhere = pod("p", namespace="default")
    rows.append(["of another namespace", *said(await world.rest.post(world.pods, elsewhere))])
    nowhere = "/api/v1/namespaces/no-such-namespace/pods"
    rows.append(["no such namespace", *said(await world.rest.post(nowhere, pod("p")))])
    for title, metadata in {
        "capital letters": {"name": "P"},
        "no name": {"name": None},
        "too long": {"name": "x" * 254},
        "annotation key": {"name": "q", "annotations": {"bad key!": "x"}},
        "annotation value": {"name": "q", "annotations": {"a": 1}},
        "annotation null": {"name": "q", "annotations": {"a": None}},
        "label key": {"name": "q", "labels": {"a/b/c": "x"}},
        "label value": {"name": "q", "labels": {"a": "not a label!"}},
    }.items():
        body = pod("q", None)
        body["metadata"] = metadata
        answer = await world.rest.post(f"{world.pods}?dryRun=All", body)
        rows.append([title, *refused_fields(answer)])
    body = pod("", None)
    body["metadata"] = {"generateName": "job-"}
    name = (await world.rest.made(world.pods, body))["metadata"]["name"]
    rows.append(["generated", name[:4], len(name)])
    return rows


@promise
async def annotations_and_objects_have_a_largest_size(world: World) -> Rows:
    rows: Rows = []
    for size in (262_144, 262_145):
        body = pod("p", annotations={"a": "x" * (size - 1)})
        rows.append([size, *refused_fields(await world.rest.post(f"{world.pods}?dryRun=All", body))])
    for size in (1_400_000, 2_000_000, 3_200_000):
        container = {"name": "c", "image": "i", "args": ["y" * size]}
        answer = await world.rest.post(world.pods, pod(f"p{size}", {"containers": [container]}))
        rows.append(["pod", size, answer.status, answer.body.get("reason"), "etcdserver" in answer.message])
    for size in (1_048_576, 1_048_577):
        body = {"metadata": {"name": "m"}, "data": {"x": "y" * (size - 1)}}
        answer = await world.rest.post(f"{world.core}/configmaps?dryRun=All", body)
        rows.append(["configmap", size, answer.status, answer.body.get("reason")])
    return rows


@promise
async def fields_that_are_unknown_are_dropped_told_or_refused(world: World) -> Rows:
    rows: Rows = []
    body = pod("p", {"noSuchField": 1})
    for mode in ("", "&fieldValidation=Ignore", "&fieldValidation=Warn", "&fieldValidation=Strict"):
        answer = await world.rest.post(f"{world.pods}?dryRun=All{mode}", body)
        found = answer.body.get("spec") or {}
        rows.append([mode, *said(answer), "noSuchField" in found])
    rows.append(["no JSON", (await world.rest.call("POST", world.pods, "{")).status])
    rows.append(["a list", (await world.rest.call("POST", world.pods, "[]")).status])
    rows.append(["a wrong type", (await world.rest.post(world.pods, {"metadata": {"name": "p"}, "spec": 5})).status])
    rows.append(["no containers", *refused_fields(await world.rest.post(world.pods, {"metadata": {"name": "p"}}))])
    other = {**pod("p"), "kind": "Node"}
    rows.append(["another kind", *said(await world.rest.post(world.pods, other))[:2]])
    return rows


@promise
async def of_a_pods_spec_little_can_change(world: World) -> Rows:
    rows: Rows = []
    toleration = {"key": "k", "operator": "Exists", "effect": "NoSchedule"}
    await world.pod("p", {"tolerations": [toleration]})
    changes: dict[str, Any] = {
        "image": {"containers": [{"name": "c", "image": "example.test/other"}]},
        "resources": {"containers": [{"name": "c", "resources": {"limits": {"example.com/x": "1"}}}]},
        "scheduler": {"schedulerName": "other"},
        "node selector": {"nodeSelector": {"a": "b"}},
        "deadline": {"activeDeadlineSeconds": 9},
        "gates": {"schedulingGates": [{"name": "example.test/gate"}]},
        "more tolerations": {"tolerations": [toleration, {"key": "l", "operator": "Exists"}]},
        "priority": {"priority": 5},
        "the same scheduler": {"schedulerName": "default-scheduler"},
    }
    for title, spec in changes.items():
        answer = await world.rest.patch(f"{world.pods}/p", {"spec": spec}, STRATEGIC_PATCH)
        rows.append([title, answer.status, answer.body.get("reason")])
    return rows


@promise
async def a_write_for_show_changes_nothing(world: World) -> Rows:
    rows: Rows = []
    made = await world.rest.post(f"{world.pods}?dryRun=All", pod("p"))
    rows.append(
        ["created", made.status, bool(made.body["metadata"].get("uid")), "resourceVersion" in made.body["metadata"]]
    )
    rows.append(["listed", len((await world.rest.get(world.pods)).body["items"])])
    await world.pod("p")
    labels = {"metadata": {"labels": {"a": "b"}}}
    changed = await world.rest.patch(f"{world.pods}/p?dryRun=All", labels)
    rows.append(["patched", changed.status, changed.body["metadata"].get("labels")])
    rows.append(["deleted", (await world.rest.delete(f"{world.pods}/p?dryRun=All")).status])
    after = (await world.rest.get(f"{world.pods}/p")).body["metadata"]
    rows.append(["as it was", "labels" not in after, "deletionTimestamp" not in after])
    rows.append(["a wrong word", *said(await world.rest.post(f"{world.pods}?dryRun=Some", pod("q")))[:2]])
    return rows


@promise
async def odd_texts_are_stored_as_measured(world: World) -> Rows:
    rows: Rows = []
    for title, text in {
        "NUL": r"a\u0000b",
        "a pair of surrogates": r"\ud83d\ude00",
        "not escaped": "ä€",
        "a slash": r"a\/b",
        "lines": r"a\nb\tc",
        "empty": "",
    }.items():
        body = json.dumps(pod("p", annotations={"a": "TEXT"})).replace("TEXT", text)
        answer = await world.rest.call("POST", f"{world.pods}?dryRun=All", body)
        rows.append([title, answer.status, (answer.body.get("metadata") or {}).get("annotations")])
    body = json.dumps(pod("p", annotations={"a": "first"})).replace('"a": "first"', '"a": "first", "a": "last"')
    answer = await world.rest.call("POST", f"{world.pods}?dryRun=All", body)
    rows.append(["twice", answer.status, answer.body["metadata"]["annotations"]])
    return rows


@promise
async def tokens_and_rights_are_reviewed(world: World) -> Rows:
    rows: Rows = []
    await world.rest.made(f"{world.core}/serviceaccounts", {"metadata": {"name": "robot"}})
    asked = {"spec": {"audiences": ["cardshare"], "expirationSeconds": 600}}
    answer = await world.rest.post(f"{world.core}/serviceaccounts/robot/token", asked)
    token = answer.body["status"]["token"]
    rows.append([answer.status, answer.body["spec"]["audiences"], answer.body["spec"]["expirationSeconds"]])
    short = {"spec": {"expirationSeconds": 60}}
    rows.append(
        ["too short", *refused_fields(await world.rest.post(f"{world.core}/serviceaccounts/robot/token", short))]
    )
    for audiences in (["cardshare"], ["cardshare", "other"], ["other"]):
        review = {"spec": {"token": token, "audiences": audiences}}
        found = (await world.rest.post("/apis/authentication.k8s.io/v1/tokenreviews", review)).body["status"]
        groups = (found.get("user") or {}).get("groups")
        name = (found.get("user") or {}).get("username")
        rows.append([audiences, found.get("authenticated"), found.get("audiences"), name, groups])
    nonsense = {"spec": {"token": "nonsense"}}
    answer = await world.rest.post("/apis/authentication.k8s.io/v1/tokenreviews", nonsense)
    rows.append(["nonsense", answer.status, answer.body["status"].get("authenticated")])
    for user, groups in (("admin", ["system:masters"]), ("nobody", [])):
        attributes = {"verb": "get", "resource": "pods", "namespace": world.namespace}
        review = {"spec": {"user": user, "groups": groups, "resourceAttributes": attributes}}
        answer = await world.rest.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        rows.append([user, answer.status, answer.body["status"]["allowed"]])
    return rows


@promise
async def custom_resources_live_like_others(world: World) -> Rows:
    rows: Rows = []
    group = f"{world.namespace}.example.test"
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": free, "status": free}}
    version = {"name": "v1beta1", "served": True, "storage": True, "subresources": {"status": {}}}
    definition = {
        "metadata": {"name": f"podgroups.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": "PodGroup", "listKind": "PodGroupList", "plural": "podgroups", "singular": "podgroup"},
            "versions": [{**version, "schema": {"openAPIV3Schema": schema}}],
        },
    }
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    path = f"/apis/{group}/v1beta1/namespaces/{world.namespace}/podgroups"
    rows.append(["before", (await world.rest.get(path)).status])
    await world.rest.made(definitions, definition)
    try:
        await eventually(lambda: world.rest.get(path), lambda answer: answer.status == 200)
        body = {
            "apiVersion": f"{group}/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": "g"},
            "spec": {"minMember": 2},
            "status": {"phase": "Running"},
        }
        made = await world.rest.made(path, body)
        rows.append(["made", made.get("status"), made["spec"], made["metadata"]["generation"]])
        answer = await world.rest.patch(f"{path}/g", {"spec": {"minMember": 3}, "status": {"phase": "Running"}})
        rows.append(["patched", answer.status, answer.body.get("status"), answer.body["metadata"]["generation"]])
        answer = await world.rest.patch(f"{path}/g/status", {"spec": {"minMember": 9}, "status": {"phase": "Inqueue"}})
        found = answer.body
        rows.append(["status", answer.status, found["status"], found["spec"], found["metadata"]["generation"]])
        strategic = await world.rest.patch(f"{path}/g", {"spec": {}}, STRATEGIC_PATCH)
        rows.append(["strategic", strategic.status, strategic.body.get("reason")])
        listed = (await world.rest.get(path)).body
        rows.append(["list", listed["kind"], [("kind" in one, one["metadata"]["name"]) for one in listed["items"]]])
        rows.append(["selected", (await world.rest.get(f"{path}?fieldSelector=metadata.name%3Dg")).status])
        deleted = await world.rest.delete(f"{path}/g")
        rows.append(["deleted", deleted.status, deleted.body["kind"], (await world.rest.get(f"{path}/g")).status])
    finally:
        await world.rest.delete(f"{definitions}/podgroups.{group}")
    return rows
