"""Laws of admission: any bytes have an answer, patches apply to any pod, and twice is once."""

import json
from contextlib import suppress
from random import Random

import jsonpatch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.admission import defaulting
from core.admission.mutate import mutate, validate
from core.admission.rulebook import rulebook
from core.catalog import Asked, standard_catalog
from core.errors import InvalidRequestError
from core.settings import Settings, Tables
from core.wire.pods import decode_pod, pod_from_object
from core.wire.reviewed_pods import pod_of
from core.wire.reviews import decode_review
from tests.support.devices import vendors
from webhook.metrics import Metrics
from webhook.reviews import Path, Reviewer

BOOK = rulebook(Settings(), vendors.TABLES, standard_catalog())
# Whose words most pods have; `pods_of_vendors` have the others.
PLAIN = rulebook(Settings(), Tables(), standard_catalog())
FAST = settings(max_examples=150)

KEYS = st.one_of(
    st.sampled_from(sorted(PLAIN.preferences | PLAIN.protected)),
    st.sampled_from(["volcano.sh/gpu-unhealthy-ids", "huawei.com/AscendX", "a/b~c", "~", "/", "", "x y"]),
    st.text(max_size=12),
)
VALUES = st.one_of(
    st.sampled_from(["mig", "MIG ", "hami-core", "0", "0,2", "0,0", "A100", "A100,T4", "GPU-1", " ", ""]),
    st.text(max_size=20),
)
RESOURCES = st.one_of(st.sampled_from([*sorted(PLAIN.resources), "cpu", "memory"]), st.text(max_size=8))
QUANTITIES = st.one_of(
    st.sampled_from(["0", "1", "2", "50", "1k", "1e3", "1.5", "-1", "101", "8Gi", "007", "9223372036854775808"]),
    st.text(max_size=10),
)
AMOUNTS = st.dictionaries(RESOURCES, QUANTITIES, max_size=4)
RESOURCE_BLOCKS: st.SearchStrategy[object] = st.one_of(
    st.none(), st.just({}), st.fixed_dictionaries({}, optional={"limits": st.none() | AMOUNTS, "requests": AMOUNTS})
)
VARIABLES = st.sampled_from(["NVIDIA_VISIBLE_DEVICES", "ASCEND_VISIBLE_DEVICES", "CUDA_TASK_PRIORITY", "NPU_X", "A"])
ENV = st.lists(
    st.fixed_dictionaries(
        {"name": VARIABLES}, optional={"value": st.sampled_from(["", "void", "all", "1"]), "valueFrom": st.just({})}
    ),
    max_size=3,
)
PATHS = st.one_of(st.sampled_from(["/dev", "/dev/nvidia0", "/etc/ld.so.preload", "/data"]), st.text(max_size=8))
# By which a container might reach beyond its share; most ask for none of it.
REACH: dict[str, st.SearchStrategy[object]] = {
    "env": st.none() | ENV,
    "envFrom": st.lists(st.just({}), max_size=1),
    "volumeMounts": st.lists(st.fixed_dictionaries({"mountPath": PATHS}), max_size=2),
    "securityContext": st.fixed_dictionaries(
        {},
        optional={
            "privileged": st.booleans(),
            "capabilities": st.fixed_dictionaries({"add": st.lists(st.sampled_from(["ALL", "SYS_ADMIN", "KILL"]))}),
        },
    ),
}
CONTAINERS = st.lists(
    st.fixed_dictionaries({"name": st.text(max_size=4)}, optional={"resources": RESOURCE_BLOCKS, **REACH}), max_size=3
)
PLAIN_PODS = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {"name": st.just("p")},
            optional={
                "annotations": st.none() | st.dictionaries(KEYS, VALUES, max_size=5),
                "labels": st.none() | st.dictionaries(KEYS, VALUES, max_size=2),
            },
        ),
        "spec": st.fixed_dictionaries(
            {"containers": CONTAINERS},
            optional={
                "initContainers": CONTAINERS,
                "runtimeClassName": st.none() | st.sampled_from(["", "ascend"]),
                "schedulerName": st.sampled_from(["", "default-scheduler", "volcano", "cardshare"]),
                "nodeName": st.sampled_from(["", "a"]),
                "hostPID": st.booleans(),
                "volumes": st.lists(st.fixed_dictionaries({"hostPath": st.fixed_dictionaries({"path": PATHS})})),
            },
        ),
    }
)

FIGURES = st.sampled_from(
    ("0", "1", "2", "3", "4", "8", "16", "30", "100", "101", "24576", "-1", "0.5", "1k", "1536Mi", "0Mi", "2147483648")
)
WISHES = st.sampled_from(["a", "a,b", "online", "offline", "best-effort", "", "true", "mutex", "binpack", "x" * 70])


@st.composite
def pods_of_vendors(draw):
    """A pod for cards of one of HAMi's other vendors; what it asks for is often served."""
    port = draw(st.sampled_from(vendors.PORTS))
    named = port.named(vendors.TABLES)
    figures = st.just("1") | FIGURES
    limits = st.fixed_dictionaries({}, optional={key: figures for key in (named.cards, *named.parts) if key})

    def container(name):
        served = vendors.any_container(port.vendor, Random(draw(st.integers(0, 99))), name)
        found = dict(served.limits) if draw(st.booleans()) else draw(limits)
        asked = draw(st.sampled_from([None, dict(found), {key: draw(figures) for key in found}]))
        resources = {"limits": found} if asked is None else {"limits": found, "requests": asked}
        return {"name": name, "image": "i", "resources": resources}

    names = port.names(vendors.TABLES)
    keys = st.sampled_from(sorted(names.preferences | names.assignment_keys))
    most, before = draw(st.sampled_from([(1, 0), (1, 0), (2, 0), (1, 1)]))
    return {
        "metadata": {"name": "p", "annotations": draw(st.just({}) | st.dictionaries(keys, WISHES, max_size=2))},
        "spec": {
            "containers": [container(f"c{at}") for at in range(most)],
            "initContainers": [container(f"i{at}") for at in range(before)],
        },
    }


PODS = st.one_of(PLAIN_PODS, pods_of_vendors())


PLUGIN = "system:serviceaccount:kube-system:volcano-device-plugin"


def ask_as(user, old, new):
    """*new* as it is stored when *user* makes it of *old*."""
    text = json.loads(question("UPDATE", new, old))
    text["request"]["userInfo"] = {"username": user}
    verdict, patch = mutate(decode_review(json.dumps(text).encode()), BOOK)
    assert verdict.allowed
    return jsonpatch.apply_patch(new, json.loads(patch) if patch else [])


def question(operation, new, old=None):
    body = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "r",
            "kind": {"version": "v1", "kind": "Pod"},
            "operation": operation,
            "namespace": "n",
            "object": new,
            "oldObject": old,
        },
    }
    return json.dumps(body).encode()


def ask(operation, new, old=None):
    verdict, patch = mutate(decode_review(question(operation, new, old)), BOOK)
    return verdict, jsonpatch.apply_patch(new, json.loads(patch) if patch else [])


@FAST
@given(PODS)
def test_an_admitted_pod_is_answered_once(document):
    verdict, stored = ask("CREATE", document)
    if verdict.allowed:
        again, same = ask("CREATE", stored)
        assert again.allowed
        assert (again.edits, same) == ((), stored)


@FAST
@given(PODS)
def test_an_admitted_pod_is_one_that_the_controller_can_read(document):
    verdict, stored = ask("CREATE", document)
    if verdict.allowed:
        asked = BOOK.catalog.request_of(pod_from_object(stored), BOOK.tables, BOOK.settings)
        assert asked is None or isinstance(asked, Asked)


@FAST
@given(PODS)
def test_the_final_state_of_an_admitted_pod_is_accepted(document):
    verdict, stored = ask("CREATE", document)
    if verdict.allowed:
        final = validate(decode_review(question("CREATE", stored)), BOOK)
        assert final.allowed, final.message


@FAST
@given(PODS, PODS)
def test_the_final_state_of_an_admitted_change_is_accepted(old, new):
    verdict, stored = ask("UPDATE", new, old)
    if verdict.allowed:
        final = validate(decode_review(question("UPDATE", stored, old)), BOOK)
        assert final.allowed, final.message


@FAST
@given(PODS)
def test_what_the_webhook_reads_is_what_the_controller_reads(document):
    """The patch as our own value has it, and the object as the API server stores it, ask for the same."""
    review = decode_review(question("CREATE", document))
    verdict, stored = ask("CREATE", document)
    if verdict.allowed and verdict.edits:
        assert review.object is not None
        pod = pod_of(review.object, review.namespace)
        mended, _ = defaulting.complete(pod, BOOK)
        ours = BOOK.catalog.request_of(mended, BOOK.tables, BOOK.settings)
        if isinstance(ours, Asked):
            mended, _ = defaulting.complete_by_dialect(mended, ours, BOOK)
            ours = BOOK.catalog.request_of(mended, BOOK.tables, BOOK.settings)
        theirs = BOOK.catalog.request_of(pod_from_object(stored)._replace(namespace="n"), BOOK.tables, BOOK.settings)
        assert (ours is None) == (theirs is None)
        if isinstance(ours, Asked) and isinstance(theirs, Asked):
            assert ours == theirs


@FAST
@given(st.dictionaries(KEYS, VALUES, max_size=5), st.dictionaries(KEYS, VALUES, max_size=5))
def test_a_plugins_write_is_completed_at_most_once(old, new):
    before, after = ({"metadata": {"name": "p", "annotations": one}, "spec": {"containers": []}} for one in (old, new))
    first = ask_as(PLUGIN, before, after)
    assert ask_as(PLUGIN, before, first) == first


SEGMENTS = st.lists(st.integers(0, 3), min_size=1, max_size=6).map(
    lambda counts: ";".join("GPU-x,NVIDIA,5,0:" * count for count in counts)
)


@FAST
@given(SEGMENTS, st.sampled_from(["vgpu/1 ", "vgpu/2 ", ""]), SEGMENTS, st.booleans())
def test_rotation_shows_every_segment_once_and_then_ends(left, head, queue, touched):
    key, kept = "volcano.sh/devices-to-allocate", "cardshare.io/segment-queue"
    notes = {key: left, kept: head + queue}
    shown = []
    for _ in range(10):
        erased = {**notes, key: ";" * notes[key].count(";")}
        if touched:
            erased.pop(kept, None)
        old, new = (
            {"metadata": {"name": "p", "annotations": one}, "spec": {"containers": []}} for one in (notes, erased)
        )
        notes = ask_as(PLUGIN, old, new)["metadata"]["annotations"]
        if "," not in notes[key]:
            break
        shown.append(notes[key].rpartition(";")[2])
    expected = [piece for piece in queue.split(";") if piece] if head == "vgpu/1 " and not touched else []
    assert shown == (expected if "," in left else [])


@FAST
@given(PODS)
def test_no_new_pod_carries_an_assignment(document):
    verdict, stored = ask("CREATE", document)
    if verdict.allowed:
        assert not any(map(BOOK.is_protected, stored["metadata"].get("annotations") or {}))


@FAST
@given(pods_of_vendors())
def test_what_kubelet_and_schedulers_read_of_cards_is_the_same(document):
    verdict, stored = ask("CREATE", document)
    if verdict.allowed:
        for one in (*stored["spec"]["containers"], *stored["spec"]["initContainers"]):
            limits, requests = (
                {key: text for key, text in some.items() if key in BOOK.resources} for some in amounts(one)
            )
            assert limits == requests


@FAST
@given(PODS, PODS)
def test_a_change_never_changes_the_spec_but_back(old, new):
    verdict, stored = ask("UPDATE", new, old)
    if verdict.allowed:
        name = "schedulerName"
        assert stored["spec"].get(name) in {new["spec"].get(name), old["spec"].get(name)}
        before = {one["name"]: one for one in old["spec"]["containers"]}
        for found, sent in zip(stored["spec"]["containers"], new["spec"]["containers"], strict=True):
            assert found == sent or amounts(found) == amounts(before[found["name"]])


@FAST
@given(PODS, PODS)
def test_no_person_changes_an_assignment(old, new):
    verdict, stored = ask("UPDATE", new, old)
    if verdict.allowed:
        before, after = (one["metadata"].get("annotations") or {} for one in (old, stored))
        index = "volcano.sh/gpu-index"
        for key in {*before, *after} - {index}:
            if BOOK.is_protected(key):
                assert before.get(key) == after.get(key)


CARD_RESOURCES = st.sampled_from(["volcano.sh/gpu-memory", "volcano.sh/gpu-number", "volcano.sh/vgpu-number"])
SETTLED = st.one_of(
    st.tuples(st.just("a"), st.booleans()),
    st.tuples(st.sampled_from(["", "a"]), st.just(True)),
)


@FAST
@given(
    CARD_RESOURCES,
    SETTLED,
    st.dictionaries(KEYS, VALUES, max_size=4),
    st.dictionaries(KEYS, st.none() | VALUES, max_size=3),
    st.tuples(*[st.sets(st.sampled_from(["a/b", "c/d"]))] * 2),
)
def test_what_a_settled_pod_says_of_its_cards_stays_also_while_it_is_deleted(resource, settled, had, changes, held):
    node, deleting = settled
    meta = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleting else {}
    spec = {"nodeName": node, "containers": [{"name": "c", "resources": {"limits": {resource: "1"}}}]}
    wanted = {key: value for key, value in {**had, **changes}.items() if value is not None}
    old, new = (
        {"metadata": {"name": "p", **meta, "annotations": notes, "finalizers": sorted(kept)}, "spec": spec}
        for notes, kept in zip((had, wanted), held, strict=True)
    )
    verdict, stored = ask("UPDATE", new, old)
    if verdict.allowed:
        after = stored["metadata"]["annotations"]
        for key in {*had, *after}:
            if BOOK.is_protected(key) or (key in BOOK.preferences and key != "volcano.sh/vgpu-mode"):
                assert had.get(key) == after.get(key), key
    if deleting and held[0] - held[1]:
        assert verdict.allowed


# Kept over all examples: what it remembers of one must never answer another.
REVIEWER = Reviewer(BOOK, Metrics())
USERS = st.sampled_from(["alice", "system:node:a", PLUGIN])
# One of any type that stands somewhere in a pod: where it fits a change that rules could read, else no pod at all.
PIECES: st.SearchStrategy[object] = st.one_of(
    VALUES, QUANTITIES, VARIABLES, PATHS, AMOUNTS, ENV, RESOURCE_BLOCKS, st.booleans(), st.none(), st.just([{}])
)
NAMES_OF_FIELDS = st.one_of(
    KEYS,
    RESOURCES,
    st.sampled_from(
        (
            *("annotations", "labels", "namespace", "containers", "initContainers", "runtimeClassName"),
            *("schedulerName", "nodeName", "hostPID", "volumes", "restartPolicy", "resources", "limits", "requests"),
            *("env", "value", "valueFrom", "envFrom", "volumeMounts", "securityContext", "privileged"),
            "volcano.sh/task-index",
        )
    ),
)


def places(found, path=()):
    """Every mapping and list within *found*, by the way there."""
    yield path
    for key, inner in found.items() if isinstance(found, dict) else enumerate(found):
        if isinstance(inner, dict | list):
            yield from places(inner, (*path, key))


@st.composite
def changed(draw, document):
    """*document* with something put, put elsewhere or left out somewhere; mostly what is there already."""
    new = json.loads(json.dumps(document))
    found = new
    for key in draw(st.sampled_from(sorted(places(new), key=str))):
        found = found[key]
    if isinstance(found, list):
        if found and draw(st.booleans()):
            found.pop(draw(st.integers(0, len(found) - 1)))
        elif found:
            found.append(json.loads(json.dumps(found[draw(st.integers(0, len(found) - 1))])))
        return new
    key = draw(st.one_of(st.sampled_from(sorted(found)), NAMES_OF_FIELDS) if found else NAMES_OF_FIELDS)
    if key in found and draw(st.integers(0, 3)) == 0:
        del found[key]
    else:
        found[key] = draw(PIECES)
    return new


@st.composite
def families(draw):
    """A pod and others that are all but the same, each with who creates it and in which namespace."""
    first = draw(PODS)
    pods = [first]
    for _ in range(draw(st.integers(1, 4))):
        pods.append(draw(changed(draw(st.sampled_from(pods)))))
    return [(one, draw(USERS), draw(st.sampled_from(["n", "m"]))) for one in (*pods, first)]


def asked_by(user, namespace, document):
    text = json.loads(question("CREATE", document))
    text["request"].update(userInfo={"username": user}, namespace=namespace)
    return json.dumps(text).encode()


@FAST
@given(families())
def test_a_remembered_verdict_is_the_pods_own(family):
    """Each answer is that of a reviewer that has seen nothing before."""
    for document, user, namespace in family:
        text = asked_by(user, namespace, document)
        for path in Path:
            fresh = Reviewer(BOOK, Metrics()).answer(path, text)
            assert REVIEWER.answer(path, text) == fresh
            assert REVIEWER.answer(path, text) == fresh


@FAST
@given(PODS)
def test_an_unchanged_pod_is_always_admitted(document):
    verdict, stored = ask("UPDATE", document, document)
    assert verdict.allowed
    assert stored == document


@FAST
@given(st.one_of(st.binary(max_size=200), st.text(max_size=200).map(str.encode)))
def test_any_bytes_are_a_value_or_a_typed_error(text):
    for decode in (decode_review, decode_pod):
        with suppress(InvalidRequestError):
            decode(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["metadata", "spec", "annotations", "containers", "resources", "limits", "name"]), inner
        )
    ),
    max_leaves=12,
)


@FAST
@given(JSON, JSON, st.sampled_from(["CREATE", "UPDATE"]))
def test_any_object_has_a_verdict(new, old, operation):
    body = {
        "uid": "r",
        "kind": {"version": "v1", "kind": "Pod"},
        "operation": operation,
        "object": new,
        "oldObject": old,
    }
    text = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": body}).encode()
    response = json.loads(Reviewer(BOOK, Metrics()).answer(Path.MUTATE, text))["response"]
    assert response["uid"] == "r"
    assert response["allowed"] or response["status"]["message"]


def amounts(container):
    resources = container.get("resources") or {}
    return [resources.get("limits") or {}, resources.get("requests") or {}]
