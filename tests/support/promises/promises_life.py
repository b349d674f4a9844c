"""Promises of deleting, of events, nodes, namespaces and of rights."""

from tests.support.promises.promises import Rows, World, promise, said
from tests.support.servers.rest import APPLY_PATCH, connect, eventually


def _marks(found: dict[str, object]) -> list[object]:
    metadata = found.get("metadata") or {}
    assert isinstance(metadata, dict)
    return ["deletionTimestamp" in metadata, metadata.get("deletionGracePeriodSeconds")]


@promise
async def a_pod_goes_at_once_or_with_grace(world: World) -> Rows:
    rows: Rows = []
    version = (await world.pod("unbound"))["metadata"]["resourceVersion"]
    answer = await world.rest.delete(f"{world.pods}/unbound")
    rows.append(["unbound", answer.status, answer.body["kind"], *_marks(answer.body)])
    rows.append(["gone", (await world.rest.get(f"{world.pods}/unbound")).status])
    await world.pod("bound", {"nodeName": "n1"})
    answer = await world.rest.delete(f"{world.pods}/bound")
    rows.append(["bound", answer.status, *_marks(answer.body)])
    longer = await world.rest.delete(f"{world.pods}/bound", {"gracePeriodSeconds": 60})
    rows.append(["longer", longer.status, *_marks(longer.body)])
    shorter = await world.rest.delete(f"{world.pods}/bound", {"gracePeriodSeconds": 5})
    rows.append(["shorter", shorter.status, *_marks(shorter.body)])
    rows.append(["still there", (await world.rest.get(f"{world.pods}/bound")).status])
    rows.append(["with force", (await world.rest.delete(f"{world.pods}/bound", {"gracePeriodSeconds": 0})).status])
    rows.append(["gone", (await world.rest.get(f"{world.pods}/bound")).status])
    await world.pod("marker")
    async for event in world.rest.watch(f"{world.pods}?watch=1&resourceVersion={version}&timeoutSeconds=5"):
        metadata = event["object"]["metadata"]
        if metadata["name"] == "marker":
            break
        rows.append([event["type"], metadata["name"], *_marks(event["object"])])
    return rows


@promise
async def a_pod_that_is_over_goes_at_once(world: World) -> Rows:
    rows: Rows = []
    for phase in ("Succeeded", "Failed", "Running"):
        await world.pod(phase.lower(), {"nodeName": "n1"})
        await world.rest.patch(f"{world.pods}/{phase.lower()}/status", {"status": {"phase": phase}})
        answer = await world.rest.delete(f"{world.pods}/{phase.lower()}")
        rows.append([phase, answer.status, (await world.rest.get(f"{world.pods}/{phase.lower()}")).status])
    return rows


@promise
async def a_finalizer_holds_an_object_and_conditions_hold_a_deletion(world: World) -> Rows:
    rows: Rows = []
    made = await world.pod("p", finalizers=["example.test/hold"])
    other = {"preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}}
    rows.append(["another's uid", *said(await world.rest.delete(f"{world.pods}/p", other))])
    old = {"preconditions": {"resourceVersion": "1"}}
    rows.append(["another version", *said(await world.rest.delete(f"{world.pods}/p", old))])
    own = {"preconditions": {"uid": made["metadata"]["uid"]}}
    answer = await world.rest.delete(f"{world.pods}/p", own)
    rows.append(["own uid", answer.status, *_marks(answer.body)])
    again = await world.rest.delete(f"{world.pods}/p", {"gracePeriodSeconds": 0})
    rows.append(["again", again.status, *_marks(again.body)])
    freed = await world.rest.patch(f"{world.pods}/p", {"metadata": {"finalizers": None}})
    rows.append(["freed", freed.status, (await world.rest.get(f"{world.pods}/p")).status])
    rows.append(["not there", *said(await world.rest.delete(f"{world.pods}/p"))])
    return rows


@promise
async def events_are_written_counted_and_found(world: World) -> Rows:
    rows: Rows = []
    made = await world.pod("p")
    about = {"kind": "Pod", "name": "p", "namespace": world.namespace, "uid": made["metadata"]["uid"]}
    event = {
        "metadata": {"name": "p.1"},
        "involvedObject": about,
        "type": "Warning",
        "reason": "FailedScheduling",
        "message": "no room",
        "source": {"component": "cardshare"},
        "count": 1,
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
    }
    created = await world.rest.post(f"{world.core}/events", event)
    rows.append(["created", created.status, created.body["reportingComponent"], created.body["eventTime"]])
    rows.append(["again", *said(await world.rest.post(f"{world.core}/events", event))])
    patched = await world.rest.patch(f"{world.core}/events/p.1", {"count": 2, "message": "still no room"})
    rows.append(["counted", patched.status, patched.body["count"], patched.body["message"]])
    for selector in ("involvedObject.name=p", "reason=Other", "type=Warning,involvedObject.kind=Pod", "x=y"):
        answer = await world.rest.get(f"{world.core}/events?fieldSelector={selector}")
        rows.append([selector, answer.status, len(answer.body.get("items") or ())])
    return rows


@promise
async def nodes_are_patched_with_their_version(world: World) -> Rows:
    rows: Rows = []
    name = f"{world.namespace}-node"
    room = {"cpu": "4", "memory": "8Gi", "pods": "110", "volcano.sh/vgpu-number": "10"}
    made = await world.rest.made("/api/v1/nodes", {"metadata": {"name": name}, "status": {"allocatable": room}})
    try:
        rows.append(["created with", made["status"].get("allocatable"), made["spec"], made["metadata"].get("labels")])
        version = made["metadata"]["resourceVersion"]
        lock = {"metadata": {"resourceVersion": version, "annotations": {"volcano.sh/mutex.lock": "t,ns,p"}}}
        rows.append(["locked", (await world.rest.patch(f"/api/v1/nodes/{name}", lock)).status])
        rows.append(["locked again", *said(await world.rest.patch(f"/api/v1/nodes/{name}", lock))])
        status = {"status": {"allocatable": {"pods": "5"}, "capacity": {"pods": "5"}}}
        ignored = await world.rest.patch(f"/api/v1/nodes/{name}", status)
        rows.append(["on the object", ignored.status, ignored.body["status"]["allocatable"]["pods"]])
        written = await world.rest.patch(f"/api/v1/nodes/{name}/status", status)
        rows.append(["on its status", written.status, written.body["status"]["allocatable"]["pods"]])
        cordoned = await world.rest.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": True}})
        rows.append(["cordoned", cordoned.status, cordoned.body["spec"]])
    finally:
        await world.rest.delete(f"/api/v1/nodes/{name}")
    return rows


@promise
async def an_account_may_do_what_its_role_names(world: World) -> Rows:
    rows: Rows = []
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{world.namespace}"
    await world.rest.made(f"{world.core}/serviceaccounts", {"metadata": {"name": "reader"}})
    named = {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["mine"], "verbs": ["list", "get"]}
    made = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["mine"], "verbs": ["create", "patch"]}
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "create"]}, named, made]
    await world.rest.made(f"{rbac}/roles", {"metadata": {"name": "reader"}, "rules": rules})
    subject = {"kind": "ServiceAccount", "name": "reader", "namespace": world.namespace}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}
    binding = {"metadata": {"name": "reader"}, "roleRef": reference, "subjects": [subject]}
    await world.rest.made(f"{rbac}/rolebindings", binding)
    asked = await world.rest.post(f"{world.core}/serviceaccounts/reader/token", {"spec": {"expirationSeconds": 600}})
    rows.append(["token", asked.status, asked.body["kind"]])
    server = world.server
    async with connect(server.url, server.ca_file, asked.body["status"]["token"]) as reader:
        # The authorizer of a real server learns of new roles by a watch of its own.
        rows.append(["list", (await eventually(lambda: reader.get(world.pods), lambda a: a.status == 200)).status])
        rows.append(["all pods", *said(await reader.get("/api/v1/pods"))])
        rows.append(["secrets", *said(await reader.get(f"{world.core}/secrets"))])
        rows.append(["get", *said(await reader.get(f"{world.pods}/p"))])
        binding_path = f"{world.pods}/p/binding"
        target = {"metadata": {"name": "p"}, "target": {"name": "n1"}}
        rows.append(["bind", *said(await reader.post(binding_path, target))])
        maps = f"{world.core}/configmaps"
        rows.append(["a map by its name", (await reader.get(f"{maps}/mine")).status])
        rows.append(["another map", (await reader.get(f"{maps}/other")).status])
        rows.append(["maps selected by name", (await reader.get(f"{maps}?fieldSelector=metadata.name%3Dmine")).status])
        rows.append(["all maps", (await reader.get(maps)).status])
        # A creation by POST has no name that a rule could hold it to, and one by apply has.
        mine = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "mine"}}
        rows.append(["create by POST", (await reader.post(f"{world.core}/secrets", mine)).status])
        for name in ("other", "mine", "mine"):
            applied = {**mine, "metadata": {"name": name}}
            path = f"{world.core}/secrets/{name}?fieldManager=m"
            rows.append(["create by apply", name, (await reader.patch(path, applied, APPLY_PATCH)).status])
    async with connect(server.url, server.ca_file, "nonsense") as nobody:
        rows.append(["nobody", *said(await nobody.get(world.pods))])
    return rows


@promise
async def a_path_that_is_none_is_not_found(world: World) -> Rows:
    rows: Rows = []
    for path in ("/api/v1/no-such-things", "/apis/example.test/v1", f"{world.pods}/p/no-such-part", f"{world.pods}/p"):
        rows.append([path, (await world.rest.get(path)).status])
    rows.append(["a verb", (await world.rest.call("PUT", world.pods, {})).status])
    rows.append(["post to an object", (await world.rest.post(f"{world.pods}/p", {})).status])
    return rows
