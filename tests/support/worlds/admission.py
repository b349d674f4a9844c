"""Admission as the API server sees it: a review in, a pod out, applied by a library that is not ours."""

import json
from typing import Any

import jsonpatch

from core.admission.mutate import mutate
from core.admission.rulebook import rulebook
from core.catalog import standard_catalog
from core.settings import Settings, Tables
from core.wire.reviews import decode_review

BOOK = rulebook(Settings(), Tables(), standard_catalog())
USER = "alice"
CONTROLLER = "system:serviceaccount:cardshare-system:cardshare-controller"
PLUGIN = "system:serviceaccount:kube-system:volcano-device-plugin"

VGPU = {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "3000"}
BOTH = {"limits": VGPU, "requests": VGPU}
MODE = "volcano.sh/vgpu-mode"
INDEX = "volcano.sh/gpu-index"
WISH = "cardshare.io/gpu-index"


def pod(
    limits=None, *, annotations=None, requests=None, node="", scheduler="default-scheduler", container=None, **meta
):
    resources = {}
    if limits is not None:
        resources["limits"] = dict(limits)
    if requests is not None:
        resources["requests"] = dict(requests)
    found: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "n", "uid": "u", **meta},
        "spec": {
            "schedulerName": scheduler,
            "containers": [{"name": "main", "image": "i", "resources": resources, **(container or {})}],
        },
    }
    if annotations is not None:
        found["metadata"]["annotations"] = dict(annotations)
    if node:
        found["spec"]["nodeName"] = node
    return found


class Answer:
    def __init__(self, verdict, patch, document):
        self.allowed = verdict.allowed
        self.message = verdict.message
        self.warnings = [str(one) for one in verdict.warnings]
        self.patch = json.loads(patch) if patch else []
        self.pod = jsonpatch.apply_patch(document, self.patch)

    @property
    def annotations(self):
        return self.pod["metadata"].get("annotations", {})

    @property
    def resources(self):
        return self.pod["spec"]["containers"][0]["resources"]

    @property
    def codes(self):
        return [one.split(" ")[0] for one in self.message.split("; ") if one.startswith("CS")]


def question(operation, new, old=None, user=USER, **fields):
    body = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "r1",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "operation": operation,
            "namespace": "n",
            "userInfo": {"username": user},
            "object": new,
            "oldObject": old,
            **fields,
        },
    }
    return json.dumps(body).encode()


def ask(operation, new, old=None, user=USER, book=BOOK, **fields):
    verdict, patch = mutate(decode_review(question(operation, new, old, user, **fields)), book)
    return Answer(verdict, patch, new)


def create(new, **fields):
    answer = ask("CREATE", new, **fields)
    if answer.allowed:
        again = ask("CREATE", answer.pod, **fields)
        assert again.patch == [], "asked again, there is nothing left to do"
    return answer


def update(old, new, **fields):
    return ask("UPDATE", new, old, **fields)


def stored(limits=VGPU, *, node="", annotations=None):
    """A pod as it is stored after its creation."""
    found = create(pod(limits, annotations=annotations)).pod
    return on_node(found, node) if node else found


def on_node(document, node):
    return {**document, "spec": {**document["spec"], "nodeName": node}}


def changed(document, **annotations):
    """*document* with annotations set by key (None = removed)."""
    found = {**document["metadata"].get("annotations", {})}
    for key, value in annotations.items():
        found.pop(key, None)
        if value is not None:
            found[key] = value
    return {**document, "metadata": {**document["metadata"], "annotations": found}}
