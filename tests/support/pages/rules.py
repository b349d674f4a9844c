"""The rules of admission as docs/operators tells them: the table, and what kubectl says of each example."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import yaml

from core.admission.budgets import Made, left
from core.admission.mutate import judge_at_once, judge_resize, mutate, unreadable
from core.admission.rulebook import Rulebook, rulebook
from core.admission.templates import judge_workload
from core.admission.verdict import Verdict
from core.catalog import standard_catalog
from core.configuration import OWN_MAP, Source, Text, decode, merge
from core.errors import InvalidRequestError
from core.groups import MIN_MEMBER
from core.inventory import Inventory, at_its_best
from core.model import Container, Node, NodeName, ReviewedPod
from core.names import VOLCANO_SCHEDULER_NAME
from core.wire.policies import ResourceQuota
from core.wire.reviewed_pods import PodObject
from core.wire.reviews import decode_review
from core.wire.templates import decode_workload

Json = dict[str, Any]

ROOT: Final = Path(__file__).parents[3]
FOLDER: Final = ROOT / "docs" / "operators"
SOURCE: Final = FOLDER / "admission-rules.yaml"
TABLE: Final = FOLDER / "admission-rules.md"
MESSAGES: Final = FOLDER / "admission-messages.md"
DEVICES: Final = ROOT / "sandbox" / "players" / "vgpu-device-config.yaml"
# What the examples of CS4xx are about.
NODES: Final[list[Json]] = [
    {"name": "t4-a", "plugin": {"kind": "vgpu", "model": "Tesla T4", "memory_mib": 15360, "count": 4}},
    {
        "name": "a100-a",
        "plugin": {"kind": "vgpu", "model": "NVIDIA A100-SXM4-40GB", "memory_mib": 40960, "count": 2, "mode": "mig"},
    },
    {"name": "v100-a", "plugin": {"kind": "vgpu", "model": "Tesla V100-SXM2-32GB", "memory_mib": 32768, "count": 8}},
]
_USER: Final = "dana"
_DONE: Final = ("denied", "changed", "warned")
_TEXTS: Final = ("settings", "scheduler", "devices", "bound", "then", "binding", "kubectl")
# What is put right without a word, and where.
SILENT: Final = {"CS112": 'container "main"', "CS118": "metadata.labels", "CS313": 'container "second"'}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule with its example. name: of its pod, and of its manifest's file."""

    name: str
    code: str
    rule: str
    done: str
    manifest: Json | None
    settings: str = ""
    scheduler: str = ""
    devices: str = ""
    bound: bool = False
    then: Mapping[str, str] = field(default_factory=dict)
    binding: Mapping[str, str] = field(default_factory=dict)
    kubectl: str = ""

    @property
    def documents(self) -> tuple[Json, ...]:
        """What the manifest's file holds."""
        found = (self.manifest,) if self.manifest is not None else ()
        return (*found, binding_of(self.name, self.binding)) if self.binding else found


def read_rules() -> tuple[Rule, ...]:
    """Every rule of the source, in its order."""
    return tuple(_rules(yaml.safe_load(SOURCE.read_text(encoding="utf-8"))))


def _rules(found: Sequence[Json]) -> Iterator[Rule]:
    seen: dict[str, int] = {}
    for one in found:
        code, done = one["code"], one["done"]
        assert done in _DONE, one
        seen[code] = seen.get(code, 0) + 1
        name = f"{code.lower()}-{seen[code]}" if seen[code] > 1 else code.lower()
        plain = {key: one[key] for key in _TEXTS if key in one}
        manifest = None if "kubectl" in one else _pod(name, one)
        yield Rule(name=name, code=code, rule=one["rule"], done=done, manifest=manifest, **plain)


def _pod(name: str, one: Json) -> Json:
    resources = {key: one[key] for key in ("limits", "requests") if key in one}
    main = {"name": "main", "image": "pause", "resources": resources, **one.get("container", {})}
    more = dict(one.get("more", {}))
    metadata = {"name": name} | {key: one[key] for key in ("labels", "annotations") if key in one}
    spec = {"containers": [main, *more.pop("containers", ())], **more}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def binding_of(name: str, annotations: Mapping[str, str]) -> Json:
    """A Binding of the pod *name* to one of the nodes, with *annotations*."""
    metadata: Json = {"name": name} | ({"annotations": dict(annotations)} if annotations else {})
    target = {"apiVersion": "v1", "kind": "Node", "name": "t4-a"}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}


def verdict_of(rule: Rule) -> Verdict:
    """What the core says of the rule's example."""
    if rule.manifest is None:
        return _without_manifest(rule)
    book = book_of(rule)
    if rule.binding:
        return _ask("CREATE", rule.documents[-1], None, book)[0]
    verdict, patch = _ask("CREATE", rule.manifest, None, book)
    if not rule.then:
        return verdict
    import jsonpatch

    stored = jsonpatch.apply_patch(rule.manifest, json.loads(patch) if patch else [])
    if rule.bound:
        stored["spec"]["nodeName"] = "t4-a"
    new = json.loads(json.dumps(stored))
    new["metadata"].setdefault("annotations", {}).update(rule.then)
    return _ask("UPDATE", new, stored, book)[0]


def book_of(rule: Rule) -> Rulebook:
    """The rulebook of the texts that are in force for *rule*, and of the cluster of the examples."""
    contents = {
        Source.OWN: rule.settings,
        Source.SCHEDULER_FILE: rule.scheduler,
        Source.DEVICE_FILE: devices_of(rule),
    }
    texts = [Text(source=source, config_map=OWN_MAP, content=content) for source, content in contents.items()]
    found = merge({text.source: decode(text, standard_catalog()) for text in texts}, standard_catalog())
    book = rulebook(found.settings, found.tables, standard_catalog())
    inventory = Inventory()
    for node in map(_node, NODES):
        offers, complaints = book.catalog.offers(at_its_best(node), book.tables, book.settings)
        inventory.put(node.name, offers, complaints, book.catalog.dialects)
    return book.with_stock(inventory.stock())


def devices_of(rule: Rule) -> str:
    """The device-config.yaml that is in force for *rule*."""
    return f"{DEVICES.read_text(encoding='utf-8')}\n{rule.devices}"


def _node(found: Json) -> Node:
    plugin = found["plugin"]
    register = "".join(
        f"GPU-{found['name']}-{i},10,{plugin['memory_mib']},NVIDIA-{plugin['model']},true,"
        f"{plugin.get('mode', 'hami-core')}:"
        for i in range(plugin["count"])
    )
    amounts = dict.fromkeys(("volcano.sh/vgpu-number", "volcano.sh/vgpu-memory", "volcano.sh/vgpu-cores"), "80")
    annotations = {"volcano.sh/node-vgpu-register": register}
    return Node(name=NodeName(found["name"]), annotations=annotations, capacity=amounts, allocatable=amounts)


def _ask(
    operation: str, new: Json, old: Json | None, book: Rulebook, user: Json | None = None
) -> tuple[Verdict, bytes]:
    request = {
        "uid": "r",
        "kind": {"group": "", "version": "v1", "kind": new["kind"]},
        "operation": operation,
        "namespace": "default",
        "userInfo": user or {"username": _USER},
        "object": new,
        "oldObject": old,
    }
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    review = decode_review(json.dumps(body).encode())
    return judge_at_once(review, book), mutate(review, book)[1]


def _under(scheduler: str, template: Json) -> Json:
    return {**template, "spec": {**template["spec"], "schedulerName": scheduler}}


_PLAIN: Final[Json] = {"spec": {"schedulerName": "default-scheduler", "containers": [{"name": "ps", "image": "pause"}]}}

_OF_WORKLOADS: Final[Mapping[str, Callable[[list[Json]], Json]]] = {
    "CS120": lambda tasks: {
        "metadata": {"annotations": {"volcano.sh/vgpu-mode": "mig"}},
        "spec": {"template": tasks[0]["template"]},
    },
    "CS221": lambda tasks: {"metadata": {}, "spec": {"minAvailable": 3, "tasks": tasks}},
    "CS223": lambda tasks: {
        "metadata": {},
        "spec": {"minAvailable": 4, "tasks": [*tasks, {**tasks[0], "dependsOn": {"name": ["a"]}}]},
    },
    "CS224": lambda tasks: {
        "metadata": {},
        "spec": {"schedulerName": "cardshare", "tasks": [*tasks, {"name": "ps", "template": _PLAIN}]},
    },
    "CS222": lambda tasks: {
        "kind": "Deployment",
        "metadata": {"annotations": {MIN_MEMBER: "4"}},
        "spec": {"replicas": 4, "template": _under(VOLCANO_SCHEDULER_NAME, tasks[0]["template"])},
    },
}


def _without_manifest(rule: Rule) -> Verdict:
    if rule.code == "CS100":
        return unreadable(InvalidRequestError("AdmissionReview request.object", "Expected `object`", "send the pod"))
    import msgspec

    if rule.code == "CS315":
        served = _pod("p", {"limits": {"volcano.sh/vgpu-number": "1"}, "more": {"nodeName": "t4-a"}})
        written = json.loads(json.dumps(served))
        written["metadata"].setdefault("annotations", {})["volcano.sh/bind-phase"] = "success"
        node = {"authentication.kubernetes.io/node-name": ["t4-b"]}
        user = {"username": "system:serviceaccount:kube-system:volcano-device-plugin", "extra": node}
        return _ask("UPDATE", written, served, book_of(rule), user)[0]
    if rule.code == "CS220":
        crowded = _pod("p", {"limits": {"volcano.sh/vgpu-number": "1"}, "more": {"containers": [{}] * 64}})
        return _ask("CREATE", crowded, None, book_of(rule))[0]
    if rule.code in _OF_WORKLOADS:
        template = _pod("p", {"limits": {"volcano.sh/vgpu-number": "1"}})
        body = _OF_WORKLOADS[rule.code]([{"replicas": 2, "template": template}])
        found = decode_workload(json.dumps({"request": {"object": body}}).encode())
        return judge_workload(found, "default", book_of(rule))
    if rule.code == "CS322":
        book = book_of(rule)
        assert book.stock is not None
        listing = book.with_stock(replace(book.stock, listed=frozenset({"volcano.sh/vgpu-memory"})))
        large = _pod("p", {"limits": {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "30000"}})
        return _ask("CREATE", large, None, listing)[0]
    if rule.code == "CS317":
        made = Made(ReviewedPod("team", containers=(Container("main", {"volcano.sh/vgpu-number": "1"}),)))
        quota = ResourceQuota("team", "team", {"requests.volcano.sh/vgpu-number": 4}, {})
        return Verdict(warnings=left([made], [quota], book_of(rule)))
    pods = [
        msgspec.convert(
            _pod("p", {"limits": {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": memory}}), PodObject
        )
        for memory in ("3000", "9000")
    ]
    return judge_resize(pods[0], pods[1], "default", book_of(rule))


# ---------------------------------------------------------------------- the table

_TITLE: Final = """# Rules of admission

Admission checks objects when they are applied. Codes are stable: they are in messages, in warnings and in the
metric `cardshare_webhook_findings_total`. CS1xx is about one value, CS2xx about values that contradict each other.
CS3xx protects cards and assignments, and shows budgets. CS4xx is about pods that no node of the cluster could ever
take.

*denied*: nothing is stored. *changed*: the rule changes the object, and a warning says so. *warned*: the object is
stored unchanged, with one warning about its final state. For CS4xx, the operator chooses by namespace: warned, denied
or nothing (`admission.never_fits` in [settings](../settings.md)).

The rules also cover the templates in Deployments, StatefulSets, DaemonSets, ReplicaSets, Jobs, CronJobs and Volcano
Jobs; the message then begins with the place of the template. [admission-messages.md](admission-messages.md) has the
output of kubectl for each example.

`scripts/rules` generates this page from `admission-rules.yaml`.

| code | rule | result | field of the example | found | what to do |
|---|---|---|---|---|---|
"""


def table(rules: Sequence[Rule]) -> str:
    """The page with the table."""
    return _TITLE + "".join(_row(rule, verdict_of(rule)) for rule in rules)


def _row(rule: Rule, verdict: Verdict) -> str:
    for violation in verdict.violations:
        if violation.code == rule.code:
            assert rule.done == "denied", rule
            return _cells(rule, violation.field, violation.found, violation.remedy)
    assert rule.done != "denied", (rule, verdict)
    warnings = [one.text for one in verdict.warnings if one.code == rule.code]
    if rule.code in SILENT:
        assert verdict.edits, rule
        return _cells(rule, SILENT[rule.code], "", "nothing; there is no warning")
    (text,) = warnings
    return _cells(rule, "", "", text)


def _cells(rule: Rule, place: str, found: str, remedy: str) -> str:
    cells = (rule.code, rule.rule, rule.done, place, found, remedy)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


# ---------------------------------------------------------------------- what kubectl says

_MESSAGES_TITLE: Final = """# What kubectl says

The output of kubectl for the example of each rule in [admission-rules.md](admission-rules.md). `scripts/rules`
generates it by a run against the sandbox, with the nodes `t4-a` (4 cards), `a100-a` (2 cards, in mode mig) and
`v100-a` (8 cards).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One command, and all that it wrote."""

    command: str
    text: str


def messages(rules: Sequence[Rule], said: Mapping[str, Sequence[Said]]) -> str:
    """The page of outputs."""
    return _MESSAGES_TITLE + "".join(_section(rule, said.get(rule.name, ())) for rule in rules)


def _section(rule: Rule, said: Sequence[Said]) -> str:
    head = f"\n## {rule.code} ({rule.done}): {rule.rule}\n\n"
    if rule.kubectl:
        return f"{head}No output: {rule.kubectl}.\n"
    under = "".join(
        f"With {name}:\n\n```yaml\n{text.rstrip()}\n```\n\n"
        for name, text in (
            ("`cardshare.yaml`", rule.settings),
            ("`volcano-scheduler.conf`", rule.scheduler),
            ("`device-config.yaml`, beside what ships", rule.devices),
        )
        if text
    )
    manifest = yaml.safe_dump_all(rule.documents, sort_keys=False, width=110).rstrip()
    shown = "\n".join(f"$ {one.command}\n{one.text.rstrip()}" for one in said)
    return f"{head}{under}```yaml\n{manifest}\n```\n\n```console\n{shown}\n```\n"


def codes_in_the_code() -> frozenset[str]:
    """Every code that core and webhook name."""
    found: set[str] = set()
    for room in ("core", "webhook"):
        for path in (ROOT / room).rglob("*.py"):
            found |= set(re.findall(r"\bCS[1-4][0-9]{2}\b", path.read_text(encoding="utf-8")))
    return frozenset(found)
