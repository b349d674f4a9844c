"""Conformance of MindCluster's dynamic vNPU: inventory, annotations, requests, placements, node scores, sequences.

Everything goes through a ledger that knows this dialect alone. Compared is the part of a record that follows the
documented rule for pods in flight (M-2 is upstream's own).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from core.catalog import Catalog
from core.dialects.mindcluster import keys
from core.dialects.mindcluster.chips import Chip
from core.dialects.mindcluster.dialect import DIALECT, MindCluster
from core.dialects.mindcluster.pods import Request, decode_assigned
from core.dialects.mindcluster.table import MindClusterTable
from core.dialects.mindcluster.templates import NULL, TEMPLATES
from core.explaining.explain import refused
from core.ledger import Ledger, Placement
from core.model import Node, NodeName, PodUid
from core.placing.decide import Found, Shape, node_policy, scan, shape_of
from core.port.handoff import Stamp
from core.settings import DialectName, Settings, Tables
from core.wire import mindcluster as wire
from tests.conform.mindcluster_scores import Fitting, scores
from tests.conform.records import Record, demand, node_of, pod_of, same

_DIALECT: Final = MindCluster()
_CATALOG: Final = Catalog((DIALECT,))
_SETTINGS: Final = Settings(dialects=frozenset({DialectName("mindcluster")}))
_POLICY: Final = node_policy(_SETTINGS)
_NO_PARTS: Final = frozenset({"PreSeparate", "UnHealthy"})


def check_node(record: Record) -> None:
    """``node``: the chips; more of them than upstream sees where ascend 3.1 or M-14 asks for that."""
    ledger = _ledger([record.input])
    ours = _chips(ledger, _name(record.input))
    if record.input.get("node_status") in _NO_PARTS:
        demand(not ours, "M-9: a node that NodeD reports as unhealthy is offered")
        return
    devices = record.input["device_list"]
    if not record.output["valid"] and keys.DEVICES in devices and "M-14" not in record.defects:
        demand(not ours, "a node that cannot be understood is offered")
        return
    expected = _expected_ids(record)
    same("chips", [one.fixed.id for one in ours], expected)
    recorded = {one["id"]: one for one in record.output["chips"]}
    for one in ours:
        if one.fixed.id in recorded:
            _same_chip(one, recorded[one.fixed.id])


def check_annotation(record: Record) -> None:
    """``annotation``: the value of ``huawei.com/npu-core``."""
    found, out = decode_assigned(record.input["value"]), record.output
    same("readable", bool(found.chips), "error" not in out)
    if not found.chips:
        return
    same("chips", list(found.chips), out["chip_ids"])
    same("whole card", found.share.template == "", out["whole_card"])
    if not out["whole_card"]:
        template = TEMPLATES.get(found.share.template)
        ours = None
        if template is not None:
            ours = {"cores": template.cores, "cpus": template.cpus, "dvpp": template.dvpp}
        same("resource", ours, out["resource"])


def check_requests(record: Record) -> None:
    """``requests``: AI cores, AI CPUs and template; what the plugin cannot serve is refused (M-4, M-5, ascend 3.4)."""
    given, out = record.input, record.output
    found = _DIALECT.request(pod_of(given["pod"]), Tables())
    if not isinstance(found, Request):
        if out["has_request"] and "error" not in out and found is not None and not record.defects:
            demand(_unservable(given["pod"]), f"refused: {found[0] if found else ''}")
        return
    demand(not record.reachable or out["has_request"], "a request is seen where there is none")
    demand(not _wrong_dvpp(given["pod"]), "M-5: DVPP with 1 or 2 AI cores is accepted")
    per_chip = int(given["node"]["metadata"]["labels"]["servertype"].split("-")[1])
    if found.choice is None and found.cores % per_chip:
        # Whole chips of another size than this node's: the node refuses them, not the request.
        demand(_found(_ledger([given]), given["pod"]) is None, "placed on chips of another size")
        return
    demand("error" not in out, "a label that cannot be read is accepted")
    if found.choice is not None:
        template = found.choice.template
        ours: dict[str, Any] = {"cores": template.cores, "cpus": template.cpus, "dvpp": template.dvpp}
        same("request", ours, {key: out[key] for key in ours})
        same("template", template.name, out.get("template"))
    elif "M-4" not in record.defects:
        demand(out["whole_card"], "whole chips are seen where upstream sees a slice")
        same("cores", (found.cores, NULL), (out["cores"], out["dvpp"]))
        same("cpus", found.cores // per_chip * 7, out["cpus"])


def check_place(record: Record) -> None:
    """``place``: one pod on one node with pods on it."""
    given = record.input
    ledger = _ledger([given])
    out = {**record.output, **record.output["with_documented_in_flight_rule"]}
    if given.get("node_status") not in _NO_PARTS:
        ours = _chips(ledger, _name(given))
        same("chips", [one.fixed.id for one in ours], [one["id"] for one in record.output["node_before"]["chips"]])
        for one, recorded in zip(ours, record.output["node_before"]["chips"], strict=True):
            _same_chip(one, recorded)
    found = _found(ledger, given["pod"])
    if given.get("node_status") in _NO_PARTS:
        demand(found is None, "M-9: a pod is placed on a node that NodeD reports as unhealthy")
        return
    if _wrong_dvpp(given["pod"]):
        # Not every such record is tagged M-5: another defect on it hides this one.
        demand(found is None, "M-5: DVPP with 1 or 2 AI cores is accepted")
        return
    if not out["has_request"]:
        demand(found is None, "a pod without the label is placed")
        return
    if out.get("npu_core") is None:
        demand(found is None, "placed where upstream finds no chip")
        return
    demand(found is not None, "refused where upstream places")
    if found is not None:
        same("npu_core", _text(found), out["npu_core"])
        same("downgraded", _downgraded(found, given["pod"]), out["downgraded"])


def check_node_score(record: Record) -> None:
    """``nodescore``: which nodes fit, upstream's scores over them, and that one-by-one scores choose the same."""
    given, out = record.input, record.output
    nodes = given["nodes"]
    ledger = _ledger(nodes)
    passing: list[Fitting] = []
    fitting: list[Fitting] = []
    for one in nodes:
        name, verdict = _name(one), out["filter"][_name(one)]
        # A message stands in place of the verdict where upstream refuses.
        passes = isinstance(verdict, Mapping) and verdict["passes"]
        found = _found(_ledger([one]), given["pod"])
        if not passes:
            demand(found is None or _wrong_dvpp(given["pod"]), f"{name} fits, upstream says {verdict}")
            continue
        judged = Fitting(_idle(ledger, name), name, verdict["downgraded"])
        same(f"{name} idle", judged.idle_cores, verdict["idle_cores"])
        passing.append(judged)
        if found is not None:
            same(f"{name} downgraded", _downgraded(found, given["pod"]), judged.downgraded)
            fitting.append(judged)
        elif not _wrong_dvpp(given["pod"]):
            demand(_chips_refuse(ledger, name, given["pod"]), f"{name} is refused though its chips have room (M-1)")
    same("scores", dict(scores(passing)), out["scores"])
    best = _found(ledger, given["pod"])
    same("some node fits", best is not None, bool(fitting))
    if best is not None:
        ours = scores(fitting)
        choices = {(one.idle_cores, one.downgraded) for one in fitting if ours[one.name] == max(ours.values())}
        chosen = next(one for one in fitting if one.name == best.node)
        demand((chosen.idle_cores, chosen.downgraded) in choices, f"chosen {best.node}, scores {dict(ours)}")


def check_sequence(record: Record) -> None:
    """``sequence``: pods come, are reported and go; every step goes on from the recorded outcome."""
    given = record.input
    live: dict[str, Mapping[str, Any]] = {}
    for op, step in zip(given["ops"], record.output["steps"], strict=True):
        if step.get("result") == "not placed":
            demand(op["name"] not in live, f"step {step['step']}: the recorded outcome was lost")
            continue
        match op["op"]:
            case "delete":
                live.pop(op["name"])
            case "writeback":
                _annotate(live, op["name"], {keys.REAL: step["ascend_real"]})
            case _:
                _check_allocation(given, live, op["pod"], step, record)
    ours = _chips(_ledger([{**given, "pods": list(live.values())}]), _name(given))
    for one, recorded in zip(ours, record.output["final_node"]["chips"], strict=True):
        _same_chip(one, recorded)


def _check_allocation(
    given: Mapping[str, Any],
    live: dict[str, Mapping[str, Any]],
    pod: Mapping[str, Any],
    step: Mapping[str, Any],
    record: Record,
) -> None:
    found = _found(_ledger([{**given, "pods": list(live.values())}]), pod)
    expected = step.get("npu_core")
    upstream_flight = given.get("in_flight_rule") != "documented"
    if upstream_flight and ("M-2" in record.defects or "M-2" in str(step.get("defect", ""))) and expected is None:
        # Upstream's own memory of pods in flight refuses what may be placed; the step's outcome stands.
        return
    same(f"step {step['step']} npu_core", None if found is None else _text(found), expected)
    if expected is not None and found is not None:
        same(f"step {step['step']} downgraded", _downgraded(found, pod), step["downgraded"])
        live[step["name"]] = pod
        _annotate(live, step["name"], {keys.ASSIGNED: expected})


def _annotate(live: dict[str, Mapping[str, Any]], name: str, annotations: Mapping[str, str]) -> None:
    meta = live[name]["metadata"]
    live[name] = {**live[name], "metadata": {**meta, "annotations": {**meta.get("annotations", {}), **annotations}}}


def _ledger(nodes: Sequence[Mapping[str, Any]]) -> Ledger:
    """The nodes of a record, with their pods counted."""
    tables = Tables(
        sections=(MindClusterTable(self_maintain_available_card=nodes[0].get("self_maintain_available_card", True)),)
    )
    ledger = Ledger(_CATALOG, tables, _SETTINGS)
    for one in nodes:
        ledger.set_node(_node(one))
        for at, pod in enumerate(one.get("pods", ())):
            read = pod_of(pod, _name(one))
            ledger.count(read._replace(uid=PodUid(f"{_name(one)}/{at}/{read.name}")))
    return ledger


def _node(given: Mapping[str, Any]) -> Node:
    documents = {wire.CLUSTER_DEVICES: json.dumps({"DeviceList": given["device_list"]})}
    if given.get("node_status") is not None:
        documents[wire.CLUSTER_NODE] = json.dumps({"NodeStatus": given["node_status"]})
    return replace(node_of(given["node"]), documents=documents)


def _name(given: Mapping[str, Any]) -> NodeName:
    return NodeName(given["node"]["metadata"]["name"])


def _chips(ledger: Ledger, name: NodeName) -> list[Chip]:
    """The chips as upstream lists them: neither unhealthy ones nor those that only their node's size implies."""
    offered = ledger.states[name].offers.get(DialectName("mindcluster"), ())
    return [one for one in offered if one.fixed.fault is None and (one.fixed.listed or one.shares)]


def _same_chip(ours: Chip, recorded: Mapping[str, Any]) -> None:
    segmented = any(share.template for share in ours.shares)
    figures = {
        "free_cores": ours.free_cores,
        "free_cpus": ours.free_cpus,
        "free_dvpp": ours.dvpp,
        "segmented": segmented,
        "unstable": ours.unstable,
    }
    same(f"chip {ours.fixed.id}", figures, {key: recorded[key] for key in figures})
    if segmented:
        groups = {real.rpartition("_")[2] for real in recorded["real"] if real.count("-") == 3 and "_" in real}
        same(f"chip {ours.fixed.id} vGroups", ours.vgroups, len(groups))


def _expected_ids(record: Record) -> list[int]:
    """Upstream's chips, and those that only the device list or a name of four fields tells of, less impossible ids."""
    given = record.input
    devices = given["device_list"]
    unhealthy = {keys.chip_of(name) for name in devices.get(f"{keys.DEVICES}-Unhealthy", "").split(",")}
    per_chip = int(given["node"]["metadata"]["labels"]["servertype"].split("-")[1])
    count = int(given["node"]["status"]["capacity"][keys.CORES]) // per_chip
    names: Iterable[str] = devices.get(keys.DEVICES, "").split(",")
    if given.get("self_maintain_available_card", True):
        text = given["node"]["metadata"]["annotations"].get(keys.BASE_DEVICES, "")
        names = [*names, *(json.loads(text) if text.startswith("{") else ())]
    told = {keys.chip_of(name) for name in names} - unhealthy
    recorded = {one["id"] for one in record.output["chips"]}
    return sorted(one for one in told | recorded if one is not None and one < count)


def _shape(ledger: Ledger, pod: Mapping[str, Any]) -> Shape | None:
    """What *pod* asks of chips; None if nothing, or if it may not be asked so."""
    found = shape_of(pod_of(pod), ledger)
    return found if isinstance(found, Shape) and found.dialect is not None else None


def _found(ledger: Ledger, pod: Mapping[str, Any]) -> Found | None:
    """Where *pod* goes; a promise can be kept and taken back, a refusal has reasons."""
    shape = _shape(ledger, pod)
    if shape is None:
        return None
    found = scan(ledger, _POLICY, shape)
    if found is None:
        demand(bool(refused(ledger, shape, _POLICY.cards).counts), "refused without a reason")
        return None
    before = ledger.states[found.node].offers
    placement = Placement(
        pod=PodUid("asked"),
        pod_key="asked",
        node=found.node,
        dialect=shape.dialect,
        assignment=found.placed.assignment,
        amounts=shape.taken,
    )
    ledger.reserve(placement)
    ledger.release(placement.pod)
    same("give_back undoes take", ledger.states[found.node].offers, before)
    return found


def _text(found: Found) -> str:
    stamp = Stamp(node=found.node, now_s=1, order=2)
    return _DIALECT.annotations(found.placed.assignment, stamp, Tables())[keys.ASSIGNED]


def _downgraded(found: Found, pod: Mapping[str, Any]) -> bool:
    asked = _DIALECT.request(pod_of(pod), Tables())
    choice = asked.choice if isinstance(asked, Request) else None
    return choice is not None and found.placed.assignment.share.template != choice.template.name


def _idle(ledger: Ledger, name: str) -> int:
    """Idle AI cores as upstream counts them: allocatable less what the node's pods ask for."""
    state = ledger.states[NodeName(name)]
    return state.facts.allocatable[keys.CORES] - state.used.get(keys.CORES, 0)


def _wrong_dvpp(pod: Mapping[str, Any]) -> bool:
    """Whether the pod asks for 1 or 2 AI cores with a DVPP that only 4 come with (M-5)."""
    asked = [
        found
        for one in pod["spec"]["containers"]
        if (found := one.get("resources", {}).get("requests", {}).get(keys.CORES, "0")) != "0"
    ]
    return bool(asked) and asked[0] in ("1", "2") and pod["metadata"].get("labels", {}).get(keys.DVPP) in ("yes", "no")


def _chips_refuse(ledger: Ledger, name: str, pod: Mapping[str, Any]) -> bool:
    """Whether no chip of the node can take what is asked for, which upstream's filter forgets (M-1)."""
    asked = _DIALECT.request(pod_of(pod), Tables())
    chips = _chips(ledger, NodeName(name))
    if not isinstance(asked, Request):
        return True
    if asked.choice is None:
        idle = [one for one in chips if one.free_cores == one.fixed.cores]
        return len(idle) * chips[0].fixed.cores < asked.cores
    template = asked.choice.downgraded or asked.choice.template
    room = [one for one in chips if one.free_cores >= template.cores and one.free_cpus >= template.cpus]
    return all(
        one.unstable
        or one.vgroups > 2
        or (template.dvpp == "yes" and one.dvpp != "yes")
        or (template.dvpp == "null" and one.dvpp == "no")
        for one in room
    )


def _unservable(pod: Mapping[str, Any]) -> bool:
    """Whether more than one container asks, or an init container does."""

    def asking(kind: str) -> int:
        found = pod["spec"].get(kind) or ()
        return sum(one.get("resources", {}).get("limits", {}).get(keys.CORES, "0") != "0" for one in found)

    return asking("containers") > 1 or asking("initContainers") > 0
