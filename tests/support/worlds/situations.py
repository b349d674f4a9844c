"""A situation from the field, written down as a folder, judged by the core alone: configuration, nodes, pods.

``settings.yaml``, ``conf.yaml``, ``vgpu.yaml`` and ``hami.yaml`` are the texts of cardshare's settings, Volcano's
scheduler, its vGPU plugin and HAMi; ``nodes.yaml``, ``bound.yaml`` and ``pods.yaml`` objects, and ``names`` the
schedulers that are ours. Pods go one after the other through admission and placing; who is placed holds its cards.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import jsonpatch
import yaml

from core.admission.mutate import mutate, validate
from core.admission.rulebook import rulebook
from core.catalog import standard_catalog
from core.configuration import SCHEDULER_MAP, Source, Text, decode, device_map, hami_map, merge
from core.explaining import explain
from core.ledger import Ledger
from core.placing.decide import node_policy, shape_of, try_decide
from core.port.handoff import Stamp
from core.settings import Settings
from core.waiting import Wait
from core.wire.nodes import node_from_object
from core.wire.pods import pod_from_object
from core.wire.reviews import decode_review

Json = dict[str, Any]

_TEXTS: Final = {
    "settings.yaml": (Source.OWN, "cardshare-system/cardshare-settings"),
    "conf.yaml": (Source.SCHEDULER_MAP, SCHEDULER_MAP),
    "vgpu.yaml": (Source.DEVICE_MAP, device_map(Settings())),
    "hami.yaml": (Source.CHIPS_MAP, hami_map(Settings())),
}
_HAS: Final = {"cpu": "64", "memory": "512Gi", "pods": "110", "ephemeral-storage": "1Ti"}
_CATALOG: Final = standard_catalog()


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a pod: denied why, or *object* as it is stored and, where it is ours, its node or why it waits."""

    object: Json = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    denied: str = ""
    node: str = ""
    annotations: Json = field(default_factory=dict)
    waits: str = ""

    def limits(self, container: int = 0) -> Json:
        """The limits of a container as stored."""
        found: Json = self.object["spec"]["containers"][container]["resources"]["limits"]
        return found

    def variables(self, container: int = 0) -> dict[str, str]:
        """The variables of a container as stored."""
        return {one["name"]: one["value"] for one in self.object["spec"]["containers"][container].get("env", ())}


class Situation:
    """Attributes: problems, notes: of the configuration; complaints: of nodes; pods: outcomes by name."""

    def __init__(self, folder: Path) -> None:
        """Play the situation in *folder*."""
        parts = {}
        for name, (source, place) in _TEXTS.items():
            if (folder / name).exists():
                text = Text(source=source, config_map=place, content=(folder / name).read_text(encoding="utf-8"))
                parts[source] = decode(text, _CATALOG)
        names = (folder / "names").read_text().split() if (folder / "names").exists() else ["cardshare", "volcano"]
        self.problems = [problem for one in parts.values() for problem in one.problems]
        self._conf = merge({key: one for key, one in parts.items() if not one.problems}, _CATALOG, tuple(names))
        self.notes = self._conf.notes
        self._book = rulebook(self._conf.settings, self._conf.tables, _CATALOG)
        self._ledger = Ledger(_CATALOG, self._conf.tables, self._conf.settings)
        self.complaints = [one for node in _objects(folder / "nodes.yaml") for one in self._add(node)]
        for at, one in enumerate(_objects(folder / "bound.yaml")):
            self._ledger.count(pod_from_object(_pod(one, f"bound-{at}")))
        self.pods = {
            one["metadata"]["name"]: self._play(_pod(one, str(at)))
            for at, one in enumerate(_objects(folder / "pods.yaml"))
        }
        assert not [one for node in self._ledger.states for one in self._ledger.overcommitted(node)]

    def _add(self, found: Json) -> list[str]:
        name, status = found["metadata"]["name"], found.setdefault("status", {})
        found["metadata"] = {"uid": f"n-{name}", "resourceVersion": "1", "annotations": {}, **found["metadata"]}
        found["metadata"]["labels"] = {"kubernetes.io/hostname": name, **found["metadata"].get("labels", {})}
        status["allocatable"] = {key: str(one) for key, one in {**_HAS, **status.get("allocatable", {})}.items()}
        status.setdefault("capacity", status["allocatable"])
        status.setdefault("conditions", [{"type": "Ready", "status": "True"}])
        node = node_from_object({"spec": {}, **found})
        self._ledger.set_node(node)
        return [one.problem for one in _CATALOG.offers(node, self._conf.tables, self._conf.settings)[1]]

    def _play(self, found: Json) -> Outcome:
        verdict, patch = mutate(_review(found), self._book)
        if patch and verdict.allowed:
            found = jsonpatch.apply_patch(found, json.loads(patch))
        final = validate(_review(found), self._book) if verdict.allowed else verdict
        warnings = tuple(map(str, dict.fromkeys((*verdict.warnings, *final.warnings))))
        if not final.allowed:
            return Outcome(denied=final.message, warnings=warnings)
        if found["spec"]["schedulerName"] not in self._conf.settings.scheduler_names:
            return Outcome(object=found, warnings=warnings)
        node, annotations, waits = self._place(found)
        return Outcome(object=found, warnings=warnings, node=node, annotations=annotations, waits=waits)

    def _place(self, found: Json) -> tuple[str, Json, str]:
        pod = pod_from_object(found)
        shape = shape_of(pod, self._ledger)
        if isinstance(shape, Wait):
            return "", {}, shape.text
        placement = try_decide(self._ledger, node_policy(self._conf.settings), pod, shape)
        if placement is None:
            refused = explain.refused(self._ledger, shape, self._conf.settings.policy)
            return "", {}, explain.wait(refused).text
        self._ledger.reserve(placement)
        if placement.dialect is None:
            return placement.node, {}, ""
        stamp = Stamp(node=placement.node, now_s=7, order=7)
        port = _CATALOG.dialects[placement.dialect]
        return placement.node, dict(port.annotations(placement.assignment, stamp, self._conf.tables)), ""


def _objects(path: Path) -> list[Json]:
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [one for one in yaml.safe_load_all(text) if one]


def _pod(found: Json, name: str) -> Json:
    """*found* as an API server would have it before admission."""
    metadata = {"name": name, "namespace": "default", "uid": f"u-{name}", "resourceVersion": "5", **found["metadata"]}
    spec = {"schedulerName": "default-scheduler", **found["spec"]}
    for one in (*spec.get("containers", ()), *spec.get("initContainers", ())):
        given = one.get("resources", {})
        limits = {key: str(amount) for key, amount in (given.get("limits") or {}).items()}
        requests = {key: str(amount) for key, amount in (given.get("requests") or {}).items()}
        one["resources"] = {"limits": limits, "requests": {**limits, **requests}}
    metadata.setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
    return {"status": {"phase": "Pending"}, **found, "metadata": metadata, "spec": spec}


def _review(found: Json) -> Any:
    request = {
        "uid": "r",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": found["metadata"]["namespace"],
        "operation": "CREATE",
        "userInfo": {"username": "dana", "groups": ["system:authenticated"]},
        "object": found,
        "dryRun": False,
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return decode_review(json.dumps(review).encode())
