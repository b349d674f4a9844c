"""What a pod asks of the pods around it: required inter-pod affinity and anti-affinity, and topology spread.

Values only; `counting` knows which pods there are. Source: Kubernetes documentation, "Assigning Pods to Nodes" and "Pod
Topology Spread Constraints".
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from core import nodefit
from core.model import NodeConstraints, NodeName, PeerTerm, Pod, Requirement, Spread

ANYWHERE: Final = NodeConstraints()
Labels = Mapping[str, str]


class Who(NamedTuple):
    """Some pods: those of some namespaces that meet a selector; None meets nothing.

    namespace_selector: what labels of further namespaces meet; None: no others. in_doubt: whether those are among them
    of which the labels are not known.
    """

    namespaces: frozenset[str]
    selector: tuple[Requirement, ...] | None
    namespace_selector: tuple[Requirement, ...] | None = None
    in_doubt: bool = False


class Rule(NamedTuple):
    """Pods that are not to be in one domain with another; domains are by the label *key* of nodes."""

    who: Who
    key: str


class Evenly(NamedTuple):
    """One spread constraint: how many more of *who* a domain may have than the one with fewest.

    counts_itself: the pod that asks is one of *who*.
    """

    who: Who
    key: str
    max_skew: int
    min_domains: int
    by_affinity: bool
    by_taints: bool
    counts_itself: bool


class Peers:
    """All that other pods decide of where a pod may be; equal ones share their views. The hash is made once.

    near: of whom one at least is to be in its domains by each of *near_keys*; near_itself: the pod is one of them, and
    may be the first. apart: its own rules. kept_off: rules of pods that are there, which it is meant by. constraints:
    what of the pod spread constraints look at.
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
        """The labels that a node is to have for the spread constraints to count it."""
        return tuple(dict.fromkeys([one.key for one in self.spread]))

    @property
    def keys(self) -> tuple[str, ...]:
        """All labels by which domains are asked about, some perhaps twice."""
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
    """One pod on a node, as far as others ask about it. apart: its own rules."""

    node: NodeName
    namespace: str
    labels: Labels
    apart: tuple[Rule, ...]
    deleting: bool


def rules_of(pod: Pod) -> tuple[Rule, ...]:
    """What *pod* itself forbids: by which label of nodes, and whom."""
    return tuple([Rule(who_of(term, pod, in_doubt=True), term.topology_key) for term in pod.peers.anti_affinity])


def who_of(term: PeerTerm, pod: Pod, *, in_doubt: bool) -> Who:
    """Whom *term* of *pod* means; *in_doubt*: as `Who` has it."""
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
        # The API server adds these by itself where it knows them.
        for keys, operator in ((term.label_keys, "In"), (term.other_label_keys, "NotIn")):
            for key in keys:
                if key in labels and key not in told:
                    selector = (*selector, Requirement(key=key, operator=operator, values=(labels[key],)))
    return Who(
        frozenset(term.namespaces or (namespace,) * bool(namespace)), selector, term.namespace_selector, in_doubt
    )


def evenly(pod: Pod, constraints: Iterable[Spread]) -> Iterator[Evenly]:
    """The spread *constraints* of *pod*."""
    for one in constraints:
        more = [Requirement(key=k, operator="In", values=(pod.labels[k],)) for k in one.label_keys if k in pod.labels]
        selector = None if one.selector is None else tuple(dict.fromkeys((*one.selector, *more)))
        # An empty selector means nobody to kube-scheduler, in spread constraints alone (plugins/podtopologyspread).
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
    """Whether *labels* meet *selector*; None meets nothing."""
    return selector is not None and all(nodefit.satisfies(labels, requirement) for requirement in selector)
