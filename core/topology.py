"""Where pods may be by where other pods are: required inter-pod affinity and anti-affinity, and topology spread.

Pods are counted by node, for each set of pods that a waiting pod's terms name; by domain (all nodes with one value of a
label) for each such pod in a view of its own. What changes touches only the views that count it, and in these only the
nodes of its domains. Until the first question nothing is counted but the pods whose own terms keep others off, so that
a cluster without such terms pays nothing. Source: Kubernetes documentation, "Assigning Pods to Nodes" and "Pod Topology
Spread Constraints".
"""

from collections.abc import Iterable, Iterator, Mapping, Set
from functools import lru_cache
from typing import Final, NamedTuple

from core import nodefit
from core.model import (
    NO_PEERS,
    NodeConstraints,
    NodeName,
    PeerTerm,
    Pod,
    PodUid,
    Requirement,
)
from core.nodefit import NodeFacts

_ANYWHERE: Final = NodeConstraints()
_HOSTNAME: Final = "kubernetes.io/hostname"
# So many views are kept, and so many nodes all told that stand in one, of which each takes about 100 bytes: 150 MB. A
# view of who keeps apart has those nodes alone that have such pods, one of who is spread has them all.
_VIEWS_MAX: Final = 4096
_STANDING_MAX: Final = 1_500_000
# For so many sets of labels it is remembered which rules mean them.
_KEPT_OFF_MAX: Final = 4096
_Labels = Mapping[str, str]
_Domain = tuple[str, str]


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
        constraints: NodeConstraints = _ANYWHERE,
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


class Obstacle(NamedTuple):
    """Why a node keeps a pod off for now, in constant words; and what is true of the node once it does no more."""

    key: str
    until: str


class Seat(NamedTuple):
    """One pod on a node, as far as others ask about it. apart: its own rules."""

    node: NodeName
    namespace: str
    labels: _Labels
    apart: tuple[Rule, ...]
    deleting: bool


class _Counter:
    """How many pods are on which node, and which views count them."""

    __slots__ = ("by_node", "views")

    def __init__(self) -> None:
        self.by_node: Final[dict[NodeName, int]] = {}
        self.views: Final[dict[_View, None]] = {}


class _Set(NamedTuple):
    """Pods that are all of *whos*; of those that are being deleted none, if *staying*."""

    whos: tuple[Who, ...]
    staying: bool


class _Alike:
    """Pods that nobody can tell apart but by their nodes."""

    __slots__ = ("by_node", "counters", "deleting", "labels", "namespace")

    def __init__(self, seat: Seat) -> None:
        self.namespace: Final = seat.namespace
        self.labels: Final = seat.labels
        self.deleting: Final = seat.deleting
        self.by_node: Final[dict[NodeName, int]] = {}
        self.counters: Final[list[_Counter]] = []


class _Part:
    """One thing that is asked of the domains of nodes, as a view keeps it up."""

    def __init__(self, counter: _Counter) -> None:
        self.counter: Final = counter
        self.refused: Final[set[NodeName]] = set()

    @property
    def standing(self) -> int:
        """How many nodes it keeps something of."""
        return len(self.counter.by_node) + len(self.refused)

    def take(self, name: NodeName, facts: NodeFacts | None) -> None:
        """Count what is on the node *name* as it is now; None: it is gone."""
        raise NotImplementedError

    def changed(self) -> Iterable[_Domain] | None:
        """The domains of which the verdict may have changed since this was last asked; None: any."""
        raise NotImplementedError

    def refuses(self, labels: _Labels) -> bool:
        """Whether it refuses a node with *labels*."""
        raise NotImplementedError

    def refuses_new(self, labels: _Labels) -> bool:
        """Whether it would refuse a new node with *labels*, and a name of its own."""
        return self.refuses(labels)

    def why(self, labels: _Labels) -> Obstacle:
        """Why it refuses a node with *labels*."""
        raise NotImplementedError


class _ByPresence(_Part):
    """What asks only whether anybody is in a domain; domains by each of *keys*."""

    def __init__(self, counter: _Counter, keys: tuple[str, ...]) -> None:
        super().__init__(counter)
        self.keys: Final = keys
        self.by_domain: Final[dict[_Domain, int]] = {}
        self._held: Final[dict[NodeName, tuple[tuple[_Domain, ...], int]]] = {}
        self._changed: set[_Domain] = set()

    def take(self, name: NodeName, facts: NodeFacts | None) -> None:
        domains, count = self._held.pop(name, ((), 0))
        for domain in domains:
            self._add(domain, -count)
        count = self.counter.by_node.get(name, 0)
        if facts is not None and count:
            domains = tuple([(key, facts.labels[key]) for key in self.keys if key in facts.labels])
            self._held[name] = domains, count
            for domain in domains:
                self._add(domain, count)

    def _add(self, domain: _Domain, count: int) -> None:
        before = self.by_domain.get(domain, 0)
        after = before + count
        if after:
            self.by_domain[domain] = after
        else:
            self.by_domain.pop(domain, None)
        if not before or not after:
            self._changed.add(domain)

    def changed(self) -> Iterable[_Domain] | None:
        changed, self._changed = self._changed, set()
        return changed


class _Apart(_ByPresence):
    """Nobody of some pods may be in the node's domain; *of_others*: it is they who ask for that."""

    def __init__(self, counter: _Counter, key: str, *, of_others: bool) -> None:
        super().__init__(counter, (key,))
        self._of_others: Final = of_others

    def refuses(self, labels: _Labels) -> bool:
        (key,) = self.keys
        return key in labels and (key, labels[key]) in self.by_domain

    def why(self, labels: _Labels) -> Obstacle:
        whose = "anti-affinity of another pod" if self._of_others else "pod anti-affinity"
        return Obstacle(f"{whose} by {self.keys[0]}", f"shares its {self.keys[0]} with no such pod")


class _Near(_ByPresence):
    """Somebody of some pods is to be in each of the node's domains; *itself*: the pod that asks may be the first."""

    def __init__(self, counter: _Counter, keys: tuple[str, ...], *, itself: bool) -> None:
        super().__init__(counter, keys)
        self._itself: Final = itself
        self._first = True

    def changed(self) -> Iterable[_Domain] | None:
        first = self._itself and not self.by_domain
        known, self._first = self._first, first
        changed = super().changed()
        return changed if known == first else None

    def refuses(self, labels: _Labels) -> bool:
        return not all(key in labels for key in self.keys) or self._is_lonely(labels)

    def refuses_new(self, labels: _Labels) -> bool:
        return not all(key in labels or key == _HOSTNAME for key in self.keys) or self._is_lonely(labels)

    def _is_lonely(self, labels: _Labels) -> bool:
        if self._itself and not self.by_domain:
            return False
        return not all((key, labels.get(key, "")) in self.by_domain for key in self.keys)

    def why(self, labels: _Labels) -> Obstacle:
        missing = next((key for key in self.keys if key not in labels), None)
        if missing is not None:
            return _no_label("pod affinity", missing)
        keys = ", ".join(self.keys)
        return Obstacle(f"pod affinity by {keys}", f"shares its {keys} with such a pod")


class _Spread(_Part):
    """No domain may have more of some pods than the one with fewest, by more than so many.

    Only nodes that have the labels of all constraints of the pod count, and its affinity and taints if it says so.
    """

    def __init__(self, counter: _Counter, asked: Evenly, keys: tuple[str, ...], constraints: NodeConstraints) -> None:
        super().__init__(counter)
        self._asked: Final = asked
        self._keys: Final = keys
        self._constraints: Final = constraints
        # By domain, how many nodes it has and how many pods are there; and how many domains have so many pods.
        self._nodes: Final[dict[str, int]] = {}
        self._pods: Final[dict[str, int]] = {}
        self._levels: Final[dict[int, int]] = {}
        self._held: Final[dict[NodeName, tuple[str, int]]] = {}
        self._changed: set[_Domain] = set()
        self._least = 0

    @property
    def standing(self) -> int:
        """All nodes that count, and those refused."""
        return len(self._held) + len(self.refused)

    def take(self, name: NodeName, facts: NodeFacts | None) -> None:
        before = self._held.get(name)
        after = None
        if facts is not None and self._counts(facts):
            after = facts.labels[self._asked.key], self.counter.by_node.get(name, 0)
        if before == after:
            return
        if before is not None:
            del self._held[name]
            self._add(before[0], -before[1], -1)
        if after is not None:
            self._held[name] = after
            self._add(after[0], after[1], 1)

    def _counts(self, facts: NodeFacts) -> bool:
        if not all(key in facts.labels for key in self._keys):
            return False
        if self._asked.by_affinity and nodefit.mismatch(self._constraints, facts) is not None:
            return False
        return not self._asked.by_taints or not any(
            taint.effect in nodefit.HARD_EFFECTS and not nodefit.tolerates(self._constraints.tolerations, taint)
            for taint in facts.taints
        )

    def _add(self, value: str, pods: int, nodes: int) -> None:
        there = self._nodes.get(value, 0)
        held = self._pods.get(value, 0)
        if there:
            self._level(held, -1)
        if there + nodes:
            self._nodes[value], self._pods[value] = there + nodes, held + pods
            self._level(held + pods, 1)
        else:
            self._nodes.pop(value, None)
            self._pods.pop(value, None)
        self._changed.add((self._asked.key, value))

    def _level(self, pods: int, domains: int) -> None:
        left = self._levels.get(pods, 0) + domains
        if left:
            self._levels[pods] = left
        else:
            self._levels.pop(pods, None)

    def _fewest(self) -> int:
        return 0 if len(self._nodes) < self._asked.min_domains else min(self._levels, default=0)

    def changed(self) -> Iterable[_Domain] | None:
        changed, self._changed = self._changed, set()
        known, self._least = self._least, self._fewest()
        return changed if known == self._least else None

    def refuses(self, labels: _Labels) -> bool:
        value = labels.get(self._asked.key)
        if value is None:
            return True
        return self._pods.get(value, 0) + self._asked.counts_itself - self._least > self._asked.max_skew

    def refuses_new(self, labels: _Labels) -> bool:
        value = labels.get(self._asked.key)
        if value is None:
            return self._asked.key != _HOSTNAME or self._asked.counts_itself > self._asked.max_skew
        least = self._least if value in self._nodes else 0
        return self._pods.get(value, 0) + self._asked.counts_itself - least > self._asked.max_skew

    def why(self, labels: _Labels) -> Obstacle:
        value = labels.get(self._asked.key)
        if value is None:
            return _no_label("topology spread", self._asked.key)
        at_most = self._asked.max_skew + self._least - self._asked.counts_itself
        until = f"shares its {self._asked.key} with at most {at_most} such pods"
        return Obstacle(f"topology spread by {self._asked.key}", until)


class _View:
    """What one `Peers` asks of all nodes: which of them it refuses, and by how many of its parts.

    dirty: nodes on which something changed. opened, shut: those that came to be let in, or refused, since the last time
    that somebody asked for it.
    """

    __slots__ = ("blocked", "dirty", "opened", "parts", "shut")

    def __init__(self, parts: tuple[_Part, ...]) -> None:
        self.parts: Final = parts
        self.blocked: Final[dict[NodeName, int]] = {}
        self.dirty: dict[NodeName, None] = {}
        self.opened: Final[set[NodeName]] = set()
        self.shut: Final[set[NodeName]] = set()

    @property
    def standing(self) -> int:
        """How many nodes stand in it, once for each of its parts."""
        return sum([part.standing for part in self.parts])

    def flip(self, name: NodeName, part: _Part, *, refused: bool) -> None:
        """*part* refuses the node *name* now, or does so no more."""
        count = self.blocked.get(name, 0)
        if refused:
            part.refused.add(name)
            self.blocked[name] = count + 1
            if not count:
                self._note(name, self.opened, self.shut)
            return
        part.refused.discard(name)
        if count > 1:
            self.blocked[name] = count - 1
        else:
            del self.blocked[name]
            self._note(name, self.shut, self.opened)

    @staticmethod
    def _note(name: NodeName, before: set[NodeName], now: set[NodeName]) -> None:
        if name in before:
            before.discard(name)
        else:
            now.add(name)


class Topology:
    """The pods of one ledger by where they are, and what that lets others do."""

    def __init__(self, *, views_max: int = _VIEWS_MAX) -> None:
        """Begin with nothing; *views_max*: of views so many are kept."""
        self._views_max: Final = views_max
        self._seats: Final[dict[PodUid, Seat]] = {}
        self._facts: Final[dict[NodeName, NodeFacts]] = {}
        # Labels of namespaces by name; None while they are not known.
        self._namespaces: Mapping[str, _Labels] | None = None
        # Rules of pods that are there, with where these are; and by namespace who is meant ("": found by labels).
        self._rules: Final[dict[Rule, _Counter]] = {}
        self._rules_in: Final[dict[str, dict[Rule, None]]] = {}
        self._kept_off: Final[dict[tuple[str, int], tuple[_Labels, frozenset[Rule]]]] = {}
        # Made at the first question: pods by namespace, those that are counted, domains by key, and views.
        self._alike: dict[str, dict[object, _Alike]] | None = None
        self._counters: Final[dict[_Set, _Counter]] = {}
        self._domains: Final[dict[str, dict[str, dict[NodeName, None]]]] = {}
        self._views: Final[dict[Peers, _View]] = {}
        self._stale: Final[dict[_View, None]] = {}
        self._moved: Final[dict[_View, None]] = {}
        self._forgot = False

    def fork(self) -> "Topology":
        """The same pods and nodes, for trying; counted when something is asked."""
        twin = Topology()
        twin._seats.update(self._seats)
        twin._facts.update(self._facts)
        twin._namespaces = self._namespaces
        for rule, counter in self._rules.items():
            if counter.by_node:
                twin._rules[rule] = copy = _Counter()
                copy.by_node.update(counter.by_node)
        for namespace, rules in self._rules_in.items():
            twin._rules_in[namespace] = dict(rules)
        return twin

    # ------------------------------------------------------------------ what is there

    def set_node(self, facts: NodeFacts) -> None:
        """A node appeared or changed."""
        before = self._facts.get(facts.name)
        if before is not facts:
            self._facts[facts.name] = facts
            self._place(facts.name, before, facts)

    def remove_node(self, name: NodeName) -> None:
        """A node is gone; its pods count nowhere."""
        before = self._facts.pop(name, None)
        if before is not None:
            self._place(name, before, None)

    def _place(self, name: NodeName, before: NodeFacts | None, after: NodeFacts | None) -> None:
        """Let *name* stand in the domains that are its now, and be looked at anew."""
        for key, by_value in self._domains.items():
            old = before.labels.get(key) if before is not None else None
            new = after.labels.get(key) if after is not None else None
            if old is not None and old != new:
                del by_value[old][name]
                if not by_value[old]:
                    del by_value[old]
            if new is not None and old != new:
                by_value.setdefault(new, {})[name] = None
        for view in self._views.values():
            view.dirty[name] = None
            self._stale[view] = None

    def set_namespaces(self, labels: Mapping[str, _Labels] | None) -> None:
        """The labels of all namespaces; None: they are not known."""
        if labels == self._namespaces:
            return
        self._namespaces = labels
        counted = any(who.namespace_selector for some in self._counters for who in some.whos)
        if counted or any(rule.who.namespace_selector for rule in self._rules_in.get("", ())):
            self.forget()

    def put(self, pod: Pod, node: NodeName) -> None:
        """*pod* is on *node*, whether that exists or not."""
        apart = rules_of(pod) if pod.peers.anti_affinity else ()
        self.restore(pod.uid, Seat(node, pod.namespace, pod.labels, apart, pod.deleting))

    def drop(self, uid: PodUid) -> None:
        """A pod is on no node."""
        self.restore(uid, None)

    def seat(self, uid: PodUid) -> Seat | None:
        """Where a pod is, to be restored."""
        return self._seats.get(uid)

    def restore(self, uid: PodUid, seat: Seat | None) -> None:
        """A pod is where it was when `seat` was asked; None: on no node."""
        before = self._seats.get(uid)
        if before == seat:
            return
        if before is not None:
            self._move(before, -1)
        if seat is None:
            self._seats.pop(uid, None)
        else:
            self._seats[uid] = seat
            self._move(seat, 1)

    def _move(self, seat: Seat, by: int) -> None:
        for rule in seat.apart:
            self._move_rule(rule, seat.node, by)
        if self._alike is not None:
            alike = self._alike_to(self._alike, seat)
            _count(alike.by_node, seat.node, by)
            for counter in alike.counters:
                self._count(counter, seat.node, by)
            if not alike.by_node:
                del self._alike[seat.namespace][_key(seat)]

    def _move_rule(self, rule: Rule, node: NodeName, by: int) -> None:
        counter = self._rules.get(rule)
        if counter is None:
            counter = self._rules[rule] = _Counter()
        was = bool(counter.by_node)
        self._count(counter, node, by)
        if was == bool(counter.by_node):
            return
        self._kept_off.clear()
        for namespace in ("",) if rule.who.namespace_selector is not None else rule.who.namespaces:
            rules = self._rules_in.setdefault(namespace, {})
            if by > 0:
                rules[rule] = None
            else:
                rules.pop(rule, None)
            if not rules:
                del self._rules_in[namespace]
        if not counter.by_node and not counter.views:
            del self._rules[rule]

    def _count(self, counter: _Counter, node: NodeName, by: int) -> None:
        _count(counter.by_node, node, by)
        for view in counter.views:
            view.dirty[node] = None
            self._stale[view] = None

    # ------------------------------------------------------------------ asking

    def peers_of(self, pod: Pod) -> Peers | None:
        """All that other pods decide of where *pod* may be, as they are now; None if nothing."""
        kept_off = self._rules_against(pod) if self._rules_in else frozenset[Rule]()
        if pod.peers is NO_PEERS or pod.peers == NO_PEERS:
            return Peers(kept_off=kept_off) if kept_off else None
        terms = pod.peers
        near = tuple([_who(term, pod, in_doubt=False) for term in terms.affinity])
        return Peers(
            near=near,
            near_keys=tuple(dict.fromkeys(term.topology_key for term in terms.affinity)),
            near_itself=bool(near) and all(self._is(pod.namespace, pod.labels, who) for who in near),
            apart=rules_of(pod),
            kept_off=kept_off,
            spread=tuple(self._evenly(pod)),
            constraints=pod.constraints if terms.spread else _ANYWHERE,
        )

    def is_current(self, pod: Pod, peers: Peers | None) -> bool:
        """Whether *peers*, which `peers_of` said of *pod*, are still what it says, as far as other pods change it."""
        if not self._rules_in:
            return peers is None or not peers.kept_off
        return self._rules_against(pod) == (peers.kept_off if peers is not None else frozenset())

    def _evenly(self, pod: Pod) -> Iterator[Evenly]:
        for one in pod.peers.spread:
            more = [
                Requirement(key=k, operator="In", values=(pod.labels[k],)) for k in one.label_keys if k in pod.labels
            ]
            selector = None if one.selector is None else tuple(dict.fromkeys((*one.selector, *more)))
            who = Who(frozenset((pod.namespace,)), selector)
            yield Evenly(
                who=who,
                key=one.topology_key,
                max_skew=one.max_skew,
                min_domains=one.min_domains,
                by_affinity=one.by_affinity,
                by_taints=one.by_taints,
                counts_itself=_meets(pod.labels, selector),
            )

    def _rules_against(self, pod: Pod) -> frozenset[Rule]:
        """The rules of pods that are there which mean *pod*."""
        key = pod.namespace, id(pod.labels)
        known = self._kept_off.get(key)
        if known is not None and known[0] is pod.labels:
            return known[1]
        rules = (*self._rules_in.get(pod.namespace, ()), *self._rules_in.get("", ()))
        found = frozenset([rule for rule in rules if self._is(pod.namespace, pod.labels, rule.who)])
        if len(self._kept_off) > _KEPT_OFF_MAX:
            self._kept_off.clear()
        self._kept_off[key] = pod.labels, found
        return found

    def passed_over(self, peers: Peers, others: Set[NodeName]) -> Set[NodeName]:
        """*others*, and the nodes that a pod with *peers* may not be on now."""
        blocked = self._view(peers).blocked.keys()
        return blocked | others if others else blocked

    def refuses(self, peers: Peers | None, name: NodeName, leaving_out: PodUid | None = None) -> bool:
        """Whether a pod with *peers* may not be on the node *name*; *leaving_out*: as if that pod were on no node."""
        if peers is None:
            return False
        seat = self.seat(leaving_out) if leaving_out is not None else None
        if leaving_out is None or seat is None:
            return name in self._view(peers).blocked
        self.drop(leaving_out)
        try:
            return name in self._view(peers).blocked
        finally:
            self.restore(leaving_out, seat)

    def why(self, peers: Peers | None, name: NodeName) -> tuple[Obstacle, ...]:
        """Why a pod with *peers* may not be on the node *name*; () if it may."""
        facts = self._facts.get(name)
        if peers is None or facts is None:
            return ()
        view = self._view(peers)
        return tuple(dict.fromkeys(part.why(facts.labels) for part in view.parts if name in part.refused))

    def refuses_new(self, peers: Peers | None, labels: _Labels) -> bool:
        """Whether a pod with *peers* might not be on a new node with *labels* and a name of its own."""
        return peers is not None and any(part.refuses_new(labels) for part in self._view(peers).parts)

    def freed(self) -> Set[Peers] | None:
        """For whom a node has come free by what other pods do, since this was last asked; None: perhaps for all."""
        if self._forgot:
            self._forgot = False
            return None
        for view in list(self._stale):
            self._refresh(view)
        if not self._moved:
            return frozenset()
        found = {peers for peers, view in self._views.items() if view.opened}
        for view in self._moved:
            view.opened.clear()
            view.shut.clear()
        self._moved.clear()
        return found

    def forget(self) -> None:
        """Forget all that was counted: it is counted anew when something is asked."""
        self._alike = None
        self._forgot = self._forgot or bool(self._views)
        self._kept_off.clear()
        self._domains.clear()
        self._counters.clear()
        self._views.clear()
        self._stale.clear()
        self._moved.clear()
        for rule, counter in list(self._rules.items()):
            counter.views.clear()
            if not counter.by_node:
                del self._rules[rule]

    # ------------------------------------------------------------------ keeping

    def _view(self, peers: Peers) -> _View:
        view = self._views.pop(peers, None)
        if view is None:
            return self._new_view(peers)
        # The last is the one that was asked last.
        self._views[peers] = view
        if view.dirty:
            self._refresh(view)
        return view

    def _new_view(self, peers: Peers) -> _View:
        standing = sum([view.standing for view in self._views.values()])
        while self._views and (len(self._views) >= self._views_max or standing > _STANDING_MAX):
            view = self._views.pop(next(iter(self._views)))
            standing -= view.standing
            self._drop(view)
        if self._alike is None:
            self._count_all()
        parts: list[_Part] = []
        if peers.near:
            parts.append(_Near(self._counter(_Set(peers.near, False)), peers.near_keys, itself=peers.near_itself))
        parts += [_Apart(self._counter(_Set((one.who,), False)), one.key, of_others=False) for one in peers.apart]
        parts += [_Apart(self._rules.setdefault(one, _Counter()), one.key, of_others=True) for one in peers.kept_off]
        keys = tuple(dict.fromkeys(one.key for one in peers.spread))
        parts += [_Spread(self._counter(_Set((one.who,), True)), one, keys, peers.constraints) for one in peers.spread]
        for key in (*peers.near_keys, *(rule.key for rule in (*peers.apart, *peers.kept_off)), *keys):
            self._domain(key)
        view = self._views[peers] = _View(tuple(parts))
        for part in parts:
            part.counter.views[view] = None
        view.dirty = dict.fromkeys(self._facts)
        self._refresh(view)
        view.opened.clear()
        view.shut.clear()
        return view

    def _drop(self, view: _View) -> None:
        """Keep *view* up no more, nor what nothing else counts."""
        self._stale.pop(view, None)
        self._moved.pop(view, None)
        for part in view.parts:
            part.counter.views.pop(view, None)
        unused = {some: counter for some, counter in self._counters.items() if not counter.views}
        for some in unused:
            del self._counters[some]
        for there in (self._alike or {}).values() if unused else ():
            for alike in there.values():
                alike.counters[:] = [counter for counter in alike.counters if counter.views]
        for rule in [rule for rule, counter in self._rules.items() if not (counter.views or counter.by_node)]:
            del self._rules[rule]

    def _count_all(self) -> None:
        self._alike = {}
        for seat in self._seats.values():
            _count(self._alike_to(self._alike, seat).by_node, seat.node, 1)

    def _alike_to(self, alike: dict[str, dict[object, _Alike]], seat: Seat) -> _Alike:
        there = alike.setdefault(seat.namespace, {})
        key = _key(seat)
        found = there.get(key)
        if found is None:
            found = there[key] = _Alike(seat)
            found.counters.extend(counter for some, counter in self._counters.items() if self._are(found, some))
        return found

    def _counter(self, some: _Set) -> _Counter:
        counter = self._counters.get(some)
        if counter is None:
            counter = self._counters[some] = _Counter()
            for there in (self._alike or {}).values():
                for alike in there.values():
                    if self._are(alike, some):
                        alike.counters.append(counter)
                        for node, count in alike.by_node.items():
                            _count(counter.by_node, node, count)
        return counter

    def _domain(self, key: str) -> None:
        if key not in self._domains:
            by_value = self._domains[key] = {}
            for name, facts in self._facts.items():
                if key in facts.labels:
                    by_value.setdefault(facts.labels[key], {})[name] = None

    def _refresh(self, view: _View) -> None:
        self._stale.pop(view, None)
        dirty, view.dirty = view.dirty, {}
        for part in view.parts:
            for name in dirty:
                part.take(name, self._facts.get(name))
        for part in view.parts:
            for name in self._to_judge(part, dirty):
                facts = self._facts.get(name)
                refused = facts is not None and part.refuses(facts.labels)
                if refused != (name in part.refused):
                    view.flip(name, part, refused=refused)
                    self._moved[view] = None

    def _to_judge(self, part: _Part, dirty: Mapping[NodeName, None]) -> Iterable[NodeName]:
        changed = part.changed()
        if changed is None:
            return self._facts.keys() | dirty.keys()
        found = set(dirty)
        for key, value in changed:
            found.update(self._domains[key].get(value, ()))
        return found

    def _are(self, alike: _Alike, some: _Set) -> bool:
        if some.staying and alike.deleting:
            return False
        return all(self._is(alike.namespace, alike.labels, who) for who in some.whos)

    def _is(self, namespace: str, labels: _Labels, who: Who) -> bool:
        """Whether a pod of *namespace* with *labels* is one of *who*."""
        return self._is_in(namespace, who) and _meets(labels, who.selector)

    def _is_in(self, namespace: str, who: Who) -> bool:
        if namespace in who.namespaces:
            return True
        asked = who.namespace_selector
        if not asked:
            return asked is not None
        known = self._namespaces.get(namespace) if self._namespaces is not None else None
        return who.in_doubt if known is None else _meets(known, asked)


def rules_of(pod: Pod) -> tuple[Rule, ...]:
    """What *pod* itself forbids: by which label of nodes, and whom."""
    return tuple([Rule(_who(term, pod, in_doubt=True), term.topology_key) for term in pod.peers.anti_affinity])


def _who(term: PeerTerm, pod: Pod, *, in_doubt: bool) -> Who:
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


def _no_label(what: str, key: str) -> Obstacle:
    return Obstacle(f"{what} (no label {key})", f"has the label {key}")


def _meets(labels: _Labels, selector: tuple[Requirement, ...] | None) -> bool:
    return selector is not None and all(nodefit.satisfies(labels, requirement) for requirement in selector)


def _key(seat: Seat) -> object:
    return seat.deleting, frozenset(seat.labels.items())


def _count(by_node: dict[NodeName, int], node: NodeName, by: int) -> None:
    left = by_node.get(node, 0) + by
    if left:
        by_node[node] = left
    else:
        by_node.pop(node, None)
