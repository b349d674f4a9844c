"""What an API server does with objects, written from Kubernetes' documents and from nothing of ours.

Every request is executed at one instant, whenever it arrives. Objects are JSON; a write that changes nothing is not
written. Source: facts 2.1 and 2.2, measured on kube-apiserver v1.36; Kubernetes API conventions.
"""

import json
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote

import msgspec

Json = dict[str, Any]
_encode = msgspec.json.encode
_HISTORY = 2000
_LISTS_OF_TYPES = ("conditions",)


class Answer(NamedTuple):
    """Status and body of an answer; obj: the object in it."""

    status: int
    body: bytes
    obj: Json | None = None


class RefusedError(Exception):
    """A meta/v1 Status that is no success."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        body = {"kind": "Status", "status": "Failure", "code": status, "reason": reason, "message": message}
        self.answer = Answer(status, _encode(body))


class Target(NamedTuple):
    """What a path names; namespace and name may be ""."""

    resource: str
    namespace: str
    name: str
    sub: str

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Event(NamedTuple):
    """One change, as watches show it."""

    version: int
    kind: str
    key: str
    line: bytes


def target(path: str) -> Target:
    """Read *path*, from the root."""
    parts = [unquote(part) for part in path.strip("/").split("/")]
    group, parts = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 2:
        namespace, parts = parts[1], parts[2:]
    parts += [""] * (3 - len(parts))
    # Three groups have this resource.
    resource = f"{parts[0]}.{group}" if parts[0] == "podgroups" else parts[0]
    return Target(resource, namespace, parts[1], parts[2])


class Api:
    """The objects, and all changes of late.

    objects: by resource, then by key. revision: of the last write. listeners: called with every change, after it was
    made, as (resource, event, object). gated: pods that somebody tried to bind in spite of their scheduling gates.
    writes: how often controllers asked for each, whatever came of it.
    """

    def __init__(self, now_text: Callable[[], str]) -> None:
        self.objects: dict[str, dict[str, Json]] = defaultdict(dict)
        self.revision = 100
        self.listeners: list[Callable[[str, Event, Json], None]] = []
        self.gated: list[str] = []
        self.writes: Counter[str] = Counter()
        # Called with what a controller changed of a Workload: before, and after.
        self.on_workload: Callable[[Json, Json], None] = lambda before, after: None
        # Called with a pod before it is evicted, and raises what refuses it; and when it was, with its key.
        self.may_evict: Callable[[Json], None] = lambda pod: None
        self.on_evicted: Callable[[str, Json], None] = lambda key, pod: None
        # Called with each write that controllers ask for, and raises what refuses it.
        self.may: Callable[[str, Target, Json], None] = lambda verb, what, given: None
        self._texts: dict[str, dict[str, bytes]] = defaultdict(dict)
        self._history: dict[str, deque[Event]] = defaultdict(lambda: deque(maxlen=_HISTORY))
        self._compacted = self.revision
        self._now_text = now_text
        self._uids = 0

    # ------------------------------------------------------------------ requests

    def request(self, verb: str, path: str, body: bytes | None, content_type: str = "") -> Answer:
        """Execute one request; *path* with its query."""
        plain, _, query = path.partition("?")
        what = target(plain)
        if verb != "GET" and what.resource not in ("events", "leases"):
            self.writes[f"{verb} {plain}"] += 1
        try:
            if verb == "GET":
                return self.get(what) if what.name else self._list(what, dict(parse_qsl(query)))
            given = json.loads(body) if body else {}
            self.may(verb, what, given)
            if verb == "POST":
                return self._post(what, given, is_dry="dryRun=" in query)
            if verb == "PATCH":
                return self._patch(what, given, content_type)
            if verb == "DELETE":
                return self.delete(what, given)
            raise RefusedError(405, "MethodNotAllowed", verb)
        except RefusedError as e:
            return e.answer

    def get(self, what: Target) -> Answer:
        obj = self._there(what)
        return Answer(200, self._texts[what.resource][what.key], obj)

    def _there(self, what: Target) -> Json:
        obj = self.objects[what.resource].get(what.key)
        if obj is None:
            raise RefusedError(404, "NotFound", f'{what.resource} "{what.name}" not found')
        return obj

    def _list(self, what: Target, query: Mapping[str, str]) -> Answer:
        wanted = dict(term.split("=") for term in query.get("fieldSelector", "").split(",") if term)
        texts = [
            self._texts[what.resource][key]
            for key, obj in sorted(self.objects[what.resource].items())
            if (not what.namespace or key.startswith(what.namespace + "/")) and _selects(obj, wanted)
        ]
        limit = int(query.get("limit", 0))
        if limit == 1:
            texts = texts[:1]  # whoever asks for one wants the version of the list
        head = b'{"kind":"List","metadata":{"resourceVersion":"%d"},"items":[' % self.revision
        return Answer(200, head + b",".join(texts) + b"]}")

    def _post(self, what: Target, given: Json, *, is_dry: bool) -> Answer:
        if what.sub == "binding":
            return self._bind(what, given)
        if what.sub == "eviction":
            options = given.get("deleteOptions", {})
            pod = self._there(what._replace(sub=""))
            self._may_delete(pod, options)
            self.may_evict(pod)
            if is_dry:
                return Answer(201, b'{"kind":"Status","status":"Success"}')
            if not pod["metadata"].get("deletionTimestamp"):
                self.on_evicted(what.key, pod)
            return self.delete(what._replace(sub=""), options)
        if what.resource == "events":
            # They are told to people; nobody here reads them.
            return Answer(201, b'{"kind":"Event","metadata":{"resourceVersion":"1","name":"e"}}')
        what = what._replace(name=given["metadata"]["name"])
        if what.key in self.objects[what.resource]:
            raise RefusedError(409, "AlreadyExists", f'{what.resource} "{what.name}" already exists')
        return self._answer(201, what, self.create(what.resource, given, what.namespace))

    def create(self, resource: str, obj: Json, namespace: str = "") -> Json:
        """Store a new object."""
        self._uids += 1
        meta = {"uid": f"u{self._uids}", "creationTimestamp": self._now_text(), **obj["metadata"]}
        if namespace:
            meta["namespace"] = namespace
        key = f"{namespace}/{meta['name']}" if namespace else meta["name"]
        new = {**deepcopy(obj), "metadata": meta}
        self._store(resource, key, new, "ADDED")
        return new

    def _bind(self, what: Target, given: Json) -> Answer:
        pod, meta = self._there(what), given["metadata"]
        self._precondition(pod, meta)
        if pod["metadata"].get("deletionTimestamp"):
            raise RefusedError(409, "Conflict", f"pod {what.name} is being deleted, cannot be assigned to a host")
        if pod["spec"].get("schedulingGates"):
            self.gated.append(what.key)
            raise RefusedError(409, "Conflict", f"pod {what.name} has non-empty .spec.schedulingGates")
        if pod["spec"].get("nodeName"):
            node = pod["spec"]["nodeName"]
            raise RefusedError(409, "Conflict", f"pod {what.name} is already assigned to node {node!r}")
        new = deepcopy(pod)
        new["spec"]["nodeName"] = given["target"]["name"]
        new["metadata"]["annotations"] = {**pod["metadata"].get("annotations", {}), **meta.get("annotations", {})}
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": self._now_text()}
        new["status"]["conditions"] = _merged_list(new["status"].get("conditions", []), [scheduled])
        self._store(what.resource, what.key, new, "MODIFIED")
        return Answer(201, b'{"kind":"Status","status":"Success"}')

    @staticmethod
    def _precondition(obj: Json, meta: Mapping[str, Any]) -> None:
        mine = obj["metadata"]
        if meta.get("uid", mine["uid"]) != mine["uid"]:
            raise RefusedError(409, "Conflict", f"Precondition failed: UID in precondition: {meta['uid']}")
        if meta.get("resourceVersion", mine["resourceVersion"]) != mine["resourceVersion"]:
            raise RefusedError(409, "Conflict", "the object has been modified; please apply your changes to the latest")

    @staticmethod
    def _may_delete(obj: Json, options: Json) -> None:
        asked, there = options.get("preconditions", {}).get("uid"), obj["metadata"]["uid"]
        if asked not in (None, there):
            why = f"the UID in the precondition ({asked}) does not match the UID in record ({there})"
            raise RefusedError(409, "Conflict", why)

    def _patch(self, what: Target, given: Json, content_type: str) -> Answer:
        if what.resource == "events":
            return Answer(200, b'{"kind":"Event","metadata":{"resourceVersion":"1","name":"e"}}')
        obj = self._there(what)
        self._precondition(obj, given.get("metadata", {}))
        changes = {key: value for key, value in given.items() if key not in ("apiVersion", "kind")}
        changes["metadata"] = {
            key: value for key, value in given.get("metadata", {}).items() if key in ("annotations", "labels")
        }
        if what.resource == "podgroups.scheduling.volcano.sh":
            pass  # has no status of its own path (groups 1.1)
        elif what.sub == "status":
            changes = {key: value for key, value in changes.items() if key in ("status", "metadata")}
        else:
            changes.pop("status", None)
        new = _merged(obj, changes, by_type="strategic" in content_type)
        if new != obj:
            self._store(what.resource, what.key, new, "MODIFIED")
            if what.resource == "workloads":
                self.on_workload(obj, new)
        return self._answer(200, what, self.objects[what.resource][what.key])

    def write(self, resource: str, key: str, changes: Json, *, version: str = "") -> Json:
        """A strategic merge patch by whoever; *version*: only of that one.

        Raises:
            RefusedError: 404 or 409.
        """
        obj = self.objects[resource].get(key)
        if obj is None:
            raise RefusedError(404, "NotFound", f"{resource} {key} not found")
        if version:
            self._precondition(obj, {"resourceVersion": version})
        new = _merged(obj, changes, by_type=True)
        if new != obj:
            self._store(resource, key, new, "MODIFIED")
        return self.objects[resource][key]

    def delete(self, what: Target, options: Json) -> Answer:
        """Delete: a pod on a node only marks itself, unless by force, and so does whatever has finalizers."""
        obj = self._there(what)
        self._may_delete(obj, options)
        grace_s = options.get("gracePeriodSeconds", obj.get("spec", {}).get("terminationGracePeriodSeconds", 30))
        bound = what.resource == "pods" and obj["spec"].get("nodeName")
        if bound and grace_s and obj["status"].get("phase") not in ("Succeeded", "Failed"):
            if not obj["metadata"].get("deletionTimestamp"):
                new = deepcopy(obj)
                new["metadata"]["deletionTimestamp"] = self._now_text()
                new["metadata"]["deletionGracePeriodSeconds"] = grace_s
                self._store(what.resource, what.key, new, "MODIFIED")
        elif obj["metadata"].get("finalizers"):
            new = deepcopy(obj)
            new["metadata"].setdefault("deletionTimestamp", self._now_text())
            new["metadata"]["deletionGracePeriodSeconds"] = 0
            if new != obj:
                self._store(what.resource, what.key, new, "MODIFIED")
        else:
            self._store(what.resource, what.key, deepcopy(obj), "DELETED")
        return Answer(200, b'{"kind":"Status","status":"Success"}')

    def _answer(self, status: int, what: Target, obj: Json) -> Answer:
        return Answer(status, self._texts[what.resource][what.key], obj)

    # ------------------------------------------------------------------ changes

    def _store(self, resource: str, key: str, obj: Json, kind: str) -> None:
        self.revision += 1
        # A change of other parts shares its metadata with what was there before, which a backup may still hold.
        obj["metadata"] = {**obj["metadata"], "resourceVersion": str(self.revision)}
        # By this a client knows that the API server answered, and not a proxy before it.
        obj.setdefault("kind", resource.removesuffix("s").capitalize())
        text = _encode(obj)
        if kind == "DELETED":
            del self.objects[resource][key], self._texts[resource][key]
        else:
            self.objects[resource][key], self._texts[resource][key] = obj, text
        event = Event(self.revision, kind, key, b'{"type":"%s","object":%s}\n' % (kind.encode(), text))
        self._history[resource].append(event)
        for listener in self.listeners:
            listener(resource, event, obj)

    def since(self, resource: str, version: int) -> Iterator[Event]:
        """What changed after *version*.

        Raises:
            RefusedError: 410, what came right after it is forgotten.
        """
        events = self._history[resource]
        if version < self._compacted or (len(events) == _HISTORY and version < events[0].version):
            raise RefusedError(410, "Expired", "too old resource version")
        return (event for event in events if event.version > version)

    def compact(self) -> None:
        """Forget all changes up to now."""
        self._compacted = self.revision

    # ------------------------------------------------------------------ backups

    def snapshot(self) -> Any:
        """A backup of etcd. Objects are never changed in place."""
        return self.revision, {resource: dict(found) for resource, found in self.objects.items()}

    def restore(self, backup: Any, *, bump: bool) -> None:
        """Go back to *backup*; with *bump*, revisions go on from where they were, as etcdutl does it if asked."""
        revision, found = backup
        if not bump:
            self.revision = revision
        self.objects = defaultdict(dict, {resource: dict(objects) for resource, objects in found.items()})
        self._texts = defaultdict(dict)
        for resource, objects in self.objects.items():
            self._texts[resource] = {key: _encode(obj) for key, obj in objects.items()}
        self._history.clear()
        self._compacted = self.revision


def _selects(obj: Json, wanted: Mapping[str, str]) -> bool:
    for path, value in wanted.items():
        found: Any = obj
        for part in path.split("."):
            found = (found or {}).get(part)
        if (found or "") != value:
            return False
    return True


def _merged(old: Any, new: Any, *, by_type: bool) -> Any:
    if not isinstance(old, dict) or not isinstance(new, dict):
        return deepcopy(new)
    result = dict(old)
    for key, value in new.items():
        if value is None:
            result.pop(key, None)
        elif by_type and key in _LISTS_OF_TYPES:
            result[key] = _merged_list(old.get(key, []), value)
        else:
            result[key] = _merged(old.get(key, {}), value, by_type=by_type)
    return result


def _merged_list(old: list[Json], new: list[Json]) -> list[Json]:
    """Conditions, each replacing fields of the one of its type."""
    found = {one["type"]: one for one in old}
    for one in new:
        found[one["type"]] = {**found.get(one["type"], {}), **one}
    return list(found.values())
