"""What a pod requires of other pods: inter-pod affinity and anti-affinity, and topology spread.

Values only; `counting` knows which pods exist. Source: Kubernetes documentation, "Assigning Pods to Nodes" and "Pod
Topology Spread Constraints"; kube-scheduler's plugins InterPodAffinity and PodTopologySpread.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from core import model
from core.model import NodeConstraints, NodeName, PeerTerm, Pod, Requirement, Spread

ANYWHERE: Final = NodeConstraints()
Labels = Mapping[str, str]


class Who(NamedTuple):
    """Pods of some namespaces that match a selector; None matches nothing.

    namespace_selector: selects further namespaces by their labels; None: none. in_doubt: whether it selects namespaces
    with unknown labels.
    """

    namespaces: frozenset[str]
    selector: tuple[Requirement, ...] | None
    namespace_selector: tuple[Requirement, ...] | None = None
    in_doubt: bool = False


class Rule(NamedTuple):
    """Pods that must not share a domain with another pod; a domain is all nodes with one value of the label *key*."""

    who: Who
    key: str


class Evenly(NamedTuple):
    """One spread constraint: how many more pods of *who* a domain may have than the domain with the fewest.

    counts_itself: the pod itself is one of *who*.
    """

    who: Who
    key: str
    max_skew: int
    min_domains: int
    by_affinity: bool
    by_taints: bool
    counts_itself: bool


class Peers:
    """What a pod requires of other pods, and they of it; equal values share a view. The hash is computed once.

    near: at least one such pod must be in the node's domain by each of *near_keys*; near_itself: the pod is one of
    them, and may be the first. apart: its own anti-affinity. kept_off: anti-affinity of pods on nodes that matches it.
    constraints: the pod's part that its spread constraints consider.
    """

    __slots__ = ("_hash", "apart", "constraints", "kept_off", "near", "near_itself", "near_keys", "spread")

    def __init__(
        self,
        *,
        near: tuple[Who, ...] = (),
        near_keys: tuple[str, ...] = (),
        near_itself: bool = False,
        apart: tuple[Rule, ...] = (),
        kept_off: frozenset[Rule] = frozenset(),
        spread: tuple[Evenly, ...] = (),
        constraints: NodeConstraints = ANYWHERE,
    ) -> None:
        self.near: Final = near
        self.near_keys: Final = near_keys
        self.near_itself: Final = near_itself
        self.apart: Final = apart
        self.kept_off: Final = kept_off
        self.spread: Final = spread
        self.constraints: Final = constraints
        self._hash = hash(self._all)

    @property
    def spread_keys(self) -> tuple[str, ...]:
        """The labels that a node must have to be counted by the spread constraints."""
        return tuple(dict.fromkeys([one.key for one in self.spread]))

    @property
    def keys(self) -> tuple[str, ...]:
        """All labels that define domains, perhaps with repetitions."""
        return (*self.near_keys, *[rule.key for rule in (*self.apart, *self.kept_off)], *self.spread_keys)

    @property
    def _all(self) -> tuple[object, ...]:
        return (
            self.near,
            self.near_keys,
            self.near_itself,
            self.apart,
            self.kept_off,
            self.spread,
            self.constraints,
        )

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Peers) and self._hash == other._hash and self._all == other._all)


class Seat(NamedTuple):
    """One pod on a node, as far as other pods ask about it. apart: its own anti-affinity."""

    node: NodeName
    namespace: str
    labels: Labels
    apart: tuple[Rule, ...]
    deleting: bool


def rules_of(pod: Pod) -> tuple[Rule, ...]:
    """Return the required anti-affinity of *pod*."""
    return tuple([Rule(who_of(term, pod, in_doubt=True), term.topology_key) for term in pod.peers.anti_affinity])


def who_of(term: PeerTerm, pod: Pod, *, in_doubt: bool) -> Who:
    """Return the pods that *term* of *pod* selects; *in_doubt*: as for `Who`."""
    values = tuple([(k, pod.labels[k]) for k in (*term.label_keys, *term.other_label_keys) if k in pod.labels])
    return _meant(
        term, "" if term.namespaces or term.namespace_selector is not None else pod.namespace, values, in_doubt
    )


# One value for all pods whose terms mean the same.
@lru_cache(maxsize=1 << 13)
def _meant(term: PeerTerm, namespace: str, values: tuple[tuple[str, str], ...], in_doubt: bool) -> Who:
    selector = term.selector
    if selector is not None:
        told, labels = {requirement.key for requirement in selector}, dict(values)
        # An API server that knows these fields has added them itself.
        for keys, operator in ((term.label_keys, "In"), (term.other_label_keys, "NotIn")):
            for key in keys:
                if key in labels and key not in told:
                    selector = (*selector, Requirement(key=key, operator=operator, values=(labels[key],)))
    return Who(
        frozenset(term.namespaces or (namespace,) * bool(namespace)), selector, term.namespace_selector, in_doubt
    )


def evenly(pod: Pod, constraints: Iterable[Spread]) -> Iterator[Evenly]:
    """Yield the spread *constraints* of *pod*."""
    for one in constraints:
        more = [Requirement(key=k, operator="In", values=(pod.labels[k],)) for k in one.label_keys if k in pod.labels]
        selector = None if one.selector is None else tuple(dict.fromkeys((*one.selector, *more)))
        # To kube-scheduler, an empty selector matches no pod, in spread constraints only (plugins/podtopologyspread).
        who = Who(frozenset((pod.namespace,)), selector or None)
        yield Evenly(
            who=who,
            key=one.topology_key,
            max_skew=one.max_skew,
            min_domains=one.min_domains,
            by_affinity=one.by_affinity,
            by_taints=one.by_taints,
            counts_itself=meets(pod.labels, selector),
        )


def meets(labels: Labels, selector: tuple[Requirement, ...] | None) -> bool:
    """Return whether *labels* match *selector*; None matches nothing."""
    return selector is not None and all(model.satisfies(labels, requirement) for requirement in selector)
