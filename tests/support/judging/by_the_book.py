"""Whether a node takes a pod, by Kubernetes' documentation alone: manifests in, every pod looked at, nothing kept.

Shares nothing with the product: what it reads are objects as the API server has them. Resources are not judged here.
Source: Kubernetes documentation, "Assigning Pods to Nodes", "Taints and Tolerations", "Pod Topology Spread
Constraints";
API reference of v1.36, LabelSelector, PodAffinityTerm, TopologySpreadConstraint, ContainerPort.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

Object = Mapping[str, Any]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")


class Cluster:
    """Nodes by name, pods by name (those on nodes), and the labels of namespaces.

    forgets_labels_of_namespaces: judge as kube-scheduler of v1.36 does: a namespaceSelector of the pod's own terms that
    meets no labels at all, as one with DoesNotExist or NotIn does, means every namespace.
    """

    def __init__(self, namespaces: Mapping[str, Mapping[str, str]]) -> None:
        self.nodes: dict[str, Object] = {}
        self.pods: dict[str, Object] = {}
        self.namespaces = namespaces
        self.forgets_labels_of_namespaces = False

    def there(self) -> Iterator[tuple[Object, Object]]:
        """Every pod that is on a node that exists and has not ended, with that node."""
        for pod in self.pods.values():
            node = self.nodes.get(pod["spec"].get("nodeName", ""))
            if node is not None and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
                yield pod, node

    def refusals(self, pod: Object, node: Object) -> list[str]:
        """Which rules refuse *pod* on *node*."""
        rules = {
            "node affinity": selects(pod, node),
            "taints": tolerates(pod, node, ("NoSchedule", "NoExecute")),
            "ports": self._ports_are_free(pod, node),
            "anti-affinity of others": not self._is_forbidden(pod, node),
            "anti-affinity": not self._is_beside(pod, node),
            "affinity": self._is_near(pod, node),
            "spread": self._is_even(pod, node),
        }
        return [name for name, holds in rules.items() if not holds]

    def points(self, pod: Object, node: Object) -> Points:
        """What preferences of *pod* make of *node*: see docs/decisions/0013."""
        affinity = pod["spec"].get("affinity", {})
        found = Points()
        wanted = [one for one in affinity.get("nodeAffinity", {}).get(PREFERRED, ()) if any(one["preference"].values())]
        if wanted:
            met = sum(one["weight"] for one in wanted if _is_met(one["preference"], node))
            found.node_affinity = Fraction(100 * met, sum(one["weight"] for one in wanted))
        near = [(1, one) for one in affinity.get("podAffinity", {}).get(PREFERRED, ())]
        near += [(-1, one) for one in affinity.get("podAntiAffinity", {}).get(PREFERRED, ())]
        if near:
            held = sum(sign * one["weight"] for sign, one in near if self._somebody(one["podAffinityTerm"], pod, node))
            found.pod_affinity = Fraction(100 * held, sum(one["weight"] for _, one in near))
        asked = [
            c for c in pod["spec"].get("topologySpreadConstraints", ()) if c["whenUnsatisfiable"] != "DoNotSchedule"
        ]
        for one in asked:
            domains = self._domains(one, asked, pod)
            value = labels(node).get(one["topologyKey"])
            here = 10**6 if value is None else Fraction(domains.get(value, 0), int(one["maxSkew"]))
            found.spread -= 100 * here
        found.taints = -100 * sum(
            not any(_covers(toleration, taint) for toleration in pod["spec"].get("tolerations", ()))
            for taint in node["spec"].get("taints", ())
            if taint["effect"] == "PreferNoSchedule"
        )
        return found

    def _somebody(self, term: Object, pod: Object, node: Object) -> bool:
        return any(
            self._means(term, pod, other) and in_one_domain(term["topologyKey"], node, where)
            for other, where in self.there()
        )

    # ------------------------------------------------------------------ other pods

    def _ports_are_free(self, pod: Object, node: Object) -> bool:
        held = [port for other, where in self.there() if where is node for port in ports(other)]
        return not any(
            (p1, n1) == (p2, n2) and (a1 == a2 or "0.0.0.0" in (a1, a2))
            for p1, a1, n1 in ports(pod)
            for p2, a2, n2 in held
        )

    def _is_forbidden(self, pod: Object, node: Object) -> bool:
        return any(
            self._means(term, other, pod) and in_one_domain(term["topologyKey"], node, where)
            for other, where in self.there()
            for term in terms(other, "podAntiAffinity")
        )

    def _is_beside(self, pod: Object, node: Object) -> bool:
        return any(
            self._means(term, pod, other, own=True) and in_one_domain(term["topologyKey"], node, where)
            for term in terms(pod, "podAntiAffinity")
            for other, where in self.there()
        )

    def _is_near(self, pod: Object, node: Object) -> bool:
        asked = terms(pod, "podAffinity")
        if not all(term["topologyKey"] in labels(node) for term in asked):
            return False
        friends = [
            where for other, where in self.there() if all(self._means(term, pod, other, own=True) for term in asked)
        ]
        if all(any(in_one_domain(term["topologyKey"], node, where) for where in friends) for term in asked):
            return True
        # The first of a series of pods with affinity to themselves.
        known = any(term["topologyKey"] in labels(where) for where in friends for term in asked)
        return not known and all(self._means(term, pod, pod, own=True) for term in asked)

    def _is_even(self, pod: Object, node: Object) -> bool:
        asked = [
            one
            for one in pod["spec"].get("topologySpreadConstraints", ())
            if one["whenUnsatisfiable"] == "DoNotSchedule"
        ]
        return all(self._is_even_by(one, asked, pod, node) for one in asked)

    def _is_even_by(self, one: Object, asked: Sequence[Object], pod: Object, node: Object) -> bool:
        key = one["topologyKey"]
        if key not in labels(node):
            return False
        domains = self._domains(one, asked, pod)
        fewest = 0 if len(domains) < (one.get("minDomains") or 1) else min(domains.values(), default=0)
        return domains.get(labels(node)[key], 0) + self._counts(one, pod, pod) - fewest <= int(one["maxSkew"])

    @staticmethod
    def _counts(one: Object, pod: Object, other: Object) -> bool:
        """Whether *other* is one of those that *one* of *pod* spreads, of whom an empty selector means none."""
        more = {name: labels(pod)[name] for name in one.get("matchLabelKeys", ()) if name in labels(pod)}
        same = other["metadata"]["namespace"] == pod["metadata"]["namespace"]
        alike = all(labels(other).get(k) == v for k, v in more.items())
        asked = bool(more) or any((one.get("labelSelector") or {}).values())
        return asked and same and alike and meets(labels(other), one.get("labelSelector"))

    def _domains(self, one: Object, asked: Sequence[Object], pod: Object) -> dict[str, int]:
        """The domains of the constraint *one*, which is one of *asked*, and how many of the pods each has."""
        key = one["topologyKey"]
        domains: dict[str, int] = {}
        for where in self.nodes.values():
            if not all(c["topologyKey"] in labels(where) for c in asked):
                continue
            if one.get("nodeAffinityPolicy", "Honor") == "Honor" and not selects(pod, where):
                continue
            if one.get("nodeTaintsPolicy", "Ignore") == "Honor" and not tolerates(
                pod, where, ("NoSchedule", "NoExecute")
            ):
                continue
            here = [other for other, its in self.there() if its is where and self._counts(one, pod, other)]
            here = [other for other in here if "deletionTimestamp" not in other["metadata"]]
            domains[labels(where)[key]] = domains.get(labels(where)[key], 0) + len(here)
        return domains

    def _means(self, term: Object, whose: Object, other: Object, *, own: bool = False) -> bool:
        """Whether *term* of the pod *whose*, the one that is judged if *own*, is about *other*."""
        namespace = other["metadata"]["namespace"]
        named, asked = term.get("namespaces") or [], term.get("namespaceSelector")
        if not named and asked is None:
            named = [whose["metadata"]["namespace"]]
        among = namespace in named or (asked is not None and meets(self.namespaces[namespace], asked))
        if own and self.forgets_labels_of_namespaces:
            among = among or (asked is not None and meets({}, asked))
        if not among or not meets(labels(other), term.get("labelSelector")):
            return False
        mine = labels(whose)
        alike = all(labels(other).get(k) == mine[k] for k in term.get("matchLabelKeys", ()) if k in mine)
        return alike and all(labels(other).get(k) != mine[k] for k in term.get("mismatchLabelKeys", ()) if k in mine)


@dataclass
class Points:
    """What the four kinds of preferences make of a node, before they are weighed."""

    node_affinity: Fraction = Fraction(0)
    pod_affinity: Fraction = Fraction(0)
    spread: Fraction = Fraction(0)
    taints: int = 0


def labels(one: Object) -> Mapping[str, str]:
    """The labels of an object."""
    return one["metadata"].get("labels") or {}


def terms(pod: Object, kind: str) -> Sequence[Object]:
    """The required terms of one kind of affinity to pods."""
    return tuple(pod["spec"].get("affinity", {}).get(kind, {}).get(REQUIRED, ()))


def ports(pod: Object) -> list[tuple[str, str, int]]:
    """The host ports that a pod takes while it runs."""
    running = [*pod["spec"]["containers"]]
    running += [one for one in pod["spec"].get("initContainers", ()) if one.get("restartPolicy") == "Always"]
    return [
        (port.get("protocol", "TCP"), port.get("hostIP") or "0.0.0.0", port["hostPort"])
        for one in running
        for port in one.get("ports", ())
        if port.get("hostPort")
    ]


def in_one_domain(key: str, one: Object, other: Object) -> bool:
    """Whether two nodes have the same value of a label that both have."""
    return key in labels(one) and key in labels(other) and labels(one)[key] == labels(other)[key]


def meets(found: Mapping[str, str], selector: Object | None) -> bool:
    """Whether labels meet a LabelSelector; none is met by nothing, an empty one by everything."""
    if selector is None:
        return False
    if any(found.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(expression(found, one) for one in selector.get("matchExpressions") or ())


def expression(found: Mapping[str, str], one: Object) -> bool:
    """Whether labels meet one expression."""
    key, values = one["key"], one.get("values") or []
    if not all(_LABEL_VALUE.fullmatch(value) for value in values):
        return False
    match one["operator"]:
        case "In":
            return found.get(key) in values
        case "NotIn":
            return found.get(key) not in values
        case "Exists":
            return key in found
        case "DoesNotExist":
            return key not in found
    try:
        have, limit = int(found[key]), int(values[0])
    except (KeyError, ValueError):
        return False
    return have > limit if one["operator"] == "Gt" else have < limit


def selects(pod: Object, node: Object) -> bool:
    """Whether node selector and required node affinity of *pod* let it onto *node*."""
    spec = pod["spec"]
    if any(labels(node).get(key) != value for key, value in spec.get("nodeSelector", {}).items()):
        return False
    required = spec.get("affinity", {}).get("nodeAffinity", {}).get(REQUIRED)
    if required is None:
        return True
    return any(
        (term.get("matchExpressions") or term.get("matchFields")) and _is_met(term, node)
        for term in required["nodeSelectorTerms"]
    )


def _is_met(term: Object, node: Object) -> bool:
    """Whether *node* meets all of a NodeSelectorTerm."""
    fields = {"metadata.name": node["metadata"]["name"]}
    return all(expression(labels(node), one) for one in term.get("matchExpressions", ())) and all(
        expression(fields, one) for one in term.get("matchFields", ())
    )


def tolerates(pod: Object, node: Object, effects: Sequence[str]) -> bool:
    """Whether *pod* tolerates all taints of *node* with one of *effects*."""
    return all(
        any(_covers(one, taint) for one in pod["spec"].get("tolerations", ()))
        for taint in node["spec"].get("taints", ())
        if taint["effect"] in effects
    )


def _covers(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return not toleration.get("key") or toleration["key"] == taint["key"]
    return bool(toleration.get("key") == taint["key"] and toleration.get("value", "") == taint.get("value", ""))
