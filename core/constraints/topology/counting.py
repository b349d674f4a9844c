"""Which pods are on which nodes, and which nodes take further pods because of that.

For each set of pods that a waiting pod's terms select, pods are counted by node. A view counts them by domain: all
nodes with one value of a label. A change touches only the views that count it, and only the nodes of its domains. Until
the first question, only pods with anti-affinity are counted, so a cluster without such terms has no extra cost.
"""

from collections.abc import Iterable, Mapping, Set
from typing import Final, NamedTuple

from core.constraints.constraint import FULL, ChangeFollower, Constraint, Obstacle, ReadScope, Seats, add
from core.constraints.topology.peers import ANYWHERE, Labels, Peers, Rule, Seat, Who, evenly, meets, rules_of, who_of
from core.constraints.topology.preferred import Leaning, Preferred, preferred_of
from core.constraints.topology.views import Counter, Part, PeersView, parts_of
from core.model import NO_PEERS, NO_WISHES, NodeFacts, NodeName, Pod

# Limits of views, and of the nodes in all of them, at about 100 bytes for each node: 150 MB. A view of anti-affinity
# has only the nodes with such pods; a view of topology spread has all nodes.
_VIEWS_MAX: Final = 4096
_STANDING_MAX: Final = 1_500_000
# The same for preferences: 30 MB.
_LEANINGS_MAX: Final = 512
_LEANING_MAX: Final = 300_000
# The number of sets of labels for which matching rules are remembered.
_KEPT_OFF_MAX: Final = 4096


class _Set(NamedTuple):
    """Pods that match all of *whos*; if *staying*, without those that are being deleted."""

    whos: tuple[Who, ...]
    staying: bool


class _Alike:
    """Pods with the same namespace and labels."""

    __slots__ = ("by_node", "counters", "deleting", "labels", "namespace")

    def __init__(self, seat: Seat) -> None:
        self.namespace: Final = seat.namespace
        self.labels: Final = seat.labels
        self.deleting: Final = seat.deleting
        self.by_node: Final[dict[NodeName, int]] = {}
        self.counters: Final[list[Counter]] = []


class Topology(Seats[Seat]):
    """The pods of one ledger by their nodes, and the views of nodes that refuse or prefer pods because of them."""

    def __init__(self, *, views_max: int = _VIEWS_MAX) -> None:
        """Begin without pods and nodes; *views_max*: so many views are kept."""
        super().__init__()
        self._views_max: Final = views_max
        self._facts: Final[dict[NodeName, NodeFacts]] = {}
        # Labels of namespaces by name; None while they are unknown.
        self._namespaces: Mapping[str, Labels] | None = None
        # Rules of pods on nodes, and where these pods are; and rules by the namespace that they select ("": by labels).
        self._rules: Final[dict[Rule, Counter]] = {}
        self._rules_in: Final[dict[str, dict[Rule, None]]] = {}
        self._kept_off: Final[dict[tuple[str, int], tuple[Labels, frozenset[Rule]]]] = {}
        # Created at the first question: pods by namespace, counters, domains by key, and views.
        self._alike: dict[str, dict[object, _Alike]] | None = None
        self._counters: Final[dict[_Set, Counter]] = {}
        self._domains: Final[dict[str, dict[str, dict[NodeName, None]]]] = {}
        self._views: Final[dict[Peers, PeersView]] = {}
        self._leanings: Final[dict[Preferred, Leaning]] = {}
        self._stale: Final[dict[ChangeFollower, None]] = {}
        self._moved: Final[dict[PeersView, None]] = {}
        self._forgot = False

    def fork(self) -> "Topology":
        """Return the same pods and nodes, for trials; they are counted at the first question."""
        twin = Topology()
        twin.seats.update(self.seats)
        twin._facts.update(self._facts)
        twin._namespaces = self._namespaces
        for rule, counter in self._rules.items():
            if counter.by_node:
                twin._rules[rule] = copy = Counter()
                copy.by_node.update(counter.by_node)
        for namespace, rules in self._rules_in.items():
            twin._rules_in[namespace] = dict(rules)
        return twin

    # ------------------------------------------------------------------ what is there

    def set_node(self, facts: NodeFacts) -> None:
        """A node was added or changed."""
        before = self._facts.get(facts.name)
        if before is not facts:
            self._facts[facts.name] = facts
            self._place(facts.name, before, facts)

    def remove_node(self, name: NodeName) -> None:
        """A node was removed; its pods count in no domain."""
        before = self._facts.pop(name, None)
        if before is not None:
            self._place(name, before, None)

    def _place(self, name: NodeName, before: NodeFacts | None, after: NodeFacts | None) -> None:
        """Move *name* to its current domains, and have all views judge it again."""
        for key, by_value in self._domains.items():
            old = before.labels.get(key) if before is not None else None
            new = after.labels.get(key) if after is not None else None
            if old is not None and old != new:
                del by_value[old][name]
                if not by_value[old]:
                    del by_value[old]
            if new is not None and old != new:
                by_value.setdefault(new, {})[name] = None
        for view in (*self._views.values(), *self._leanings.values()):
            view.dirty[name] = None
            self._stale[view] = None

    def set_namespaces(self, labels: Mapping[str, Labels] | None) -> None:
        """Set the labels of all namespaces; None: they are unknown."""
        if labels == self._namespaces:
            return
        self._namespaces = labels
        counted = any(who.namespace_selector for some in self._counters for who in some.whos)
        if counted or any(rule.who.namespace_selector for rule in self._rules_in.get("", ())):
            self.forget()

    def put(self, pod: Pod, node: NodeName) -> None:
        """*pod* is on *node*, whether or not that exists."""
        apart = rules_of(pod) if pod.peers.anti_affinity else ()
        self.restore(pod.uid, Seat(node, pod.namespace, pod.labels, apart, pod.deleting))

    def _move(self, seat: Seat, by: int) -> None:
        for rule in seat.apart:
            self._move_rule(rule, seat.node, by)
        if self._alike is not None:
            alike = self._alike_to(self._alike, seat)
            add(alike.by_node, seat.node, by)
            for counter in alike.counters:
                self._count(counter, seat.node, by)
            if not alike.by_node:
                del self._alike[seat.namespace][_key(seat)]

    def _move_rule(self, rule: Rule, node: NodeName, by: int) -> None:
        counter = self._rules.get(rule)
        if counter is None:
            counter = self._rules[rule] = Counter()
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

    def _count(self, counter: Counter, node: NodeName, by: int) -> None:
        add(counter.by_node, node, by)
        self._soil(counter, node)

    def _soil(self, counter: Counter, node: NodeName) -> None:
        for view in counter.views:
            view.dirty[node] = None
            self._stale[view] = None

    # ------------------------------------------------------------------ asking

    def peers_of(self, pod: Pod) -> Peers | None:
        """Return what *pod* requires of other pods, and they of it, now; None if nothing."""
        kept_off = self._rules_against(pod) if self._rules_in else frozenset[Rule]()
        if pod.peers is NO_PEERS or pod.peers == NO_PEERS:
            return Peers(kept_off=kept_off) if kept_off else None
        terms = pod.peers
        near = tuple([who_of(term, pod, in_doubt=False) for term in terms.affinity])
        return Peers(
            near=near,
            near_keys=tuple(dict.fromkeys(term.topology_key for term in terms.affinity)),
            near_itself=bool(near) and all(self._is(pod.namespace, pod.labels, who) for who in near),
            apart=rules_of(pod),
            kept_off=kept_off,
            spread=tuple(evenly(pod, terms.spread)),
            constraints=pod.constraints if terms.spread else ANYWHERE,
        )

    def is_current(self, pod: Pod, peers: Peers | None) -> bool:
        """Return whether `peers_of` *pod* is still *peers*, as far as other pods change it."""
        if not self._rules_in:
            return peers is None or not peers.kept_off
        return self._rules_against(pod) == (peers.kept_off if peers is not None else frozenset())

    def _rules_against(self, pod: Pod) -> frozenset[Rule]:
        """Return the rules of pods on nodes that match *pod*."""
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

    def view(self, peers: Peers) -> PeersView:
        """Return the nodes that refuse pods with *peers* now; the same object as long as it is kept up."""
        view = self._views.pop(peers, None)
        if view is None:
            return self._new_view(peers)
        # The last one is the most recently used.
        self._views[peers] = view
        if view.dirty:
            self._refresh(view)
        return view

    def why(self, peers: Peers, name: NodeName) -> tuple[Obstacle, ...]:
        """Return why node *name* refuses pods with *peers*; () if it does not."""
        facts = self._facts.get(name)
        if facts is None:
            return ()
        view = self.view(peers)
        return tuple(dict.fromkeys(part.why(facts) for part in view.parts if name in part.refused))

    def refuses_new(self, peers: Peers, labels: Labels) -> bool:
        """Return whether a new node with *labels* and a name of its own might refuse pods with *peers*."""
        return any(part.refuses_new(labels) for part in self.view(peers).parts)

    def leaning(self, preferred: Preferred) -> Leaning:
        """Return how pods with *preferred* rate all nodes now; the same object as long as it is kept up."""
        leaning = self._leanings.pop(preferred, None) or self._new_leaning(preferred)
        # The last one is the most recently used.
        self._leanings[preferred] = leaning
        if leaning.dirty:
            self._stale.pop(leaning, None)
            leaning.refresh(self._facts, self._domains)
        return leaning

    def freed(self) -> Set[Peers] | None:
        """Return the peers for which a node has opened since the last call; None: perhaps for all."""
        if self._forgot:
            self._forgot = False
            return None
        for view in list(self._stale):
            if isinstance(view, PeersView):
                self._refresh(view)
        if not self._moved:
            return frozenset()
        found = {peers for peers, view in self._views.items() if view.opened}
        for view in self._moved:
            view.forget_changes()
        self._moved.clear()
        return found

    def forget(self) -> None:
        """Forget all counts; they are computed again at the next question."""
        self._alike = None
        self._forgot = self._forgot or bool(self._views)
        self._kept_off.clear()
        self._domains.clear()
        self._counters.clear()
        self._views.clear()
        self._leanings.clear()
        self._stale.clear()
        self._moved.clear()
        for rule, counter in list(self._rules.items()):
            counter.views.clear()
            if not counter.by_node:
                del self._rules[rule]

    # ------------------------------------------------------------------ keeping

    def _new_view(self, peers: Peers) -> PeersView:
        standing = sum([view.standing for view in self._views.values()])
        while self._views and (len(self._views) >= self._views_max or standing > _STANDING_MAX):
            view = self._views.pop(next(iter(self._views)))
            standing -= view.standing
            self._drop(view)
        if self._alike is None and (peers.near or peers.apart or peers.spread):
            self._count_all()
        parts = parts_of(peers, self._counter, lambda rule: self._rules.setdefault(rule, Counter()))
        for key in peers.keys:
            self._domain(key)
        view = self._views[peers] = PeersView(parts)
        for part in parts:
            part.counter.views[view] = None
        view.dirty = dict.fromkeys(self._facts)
        self._refresh(view)
        view.forget_changes()
        return view

    def _new_leaning(self, preferred: Preferred) -> Leaning:
        standing = sum([leaning.standing for leaning in self._leanings.values()])
        while self._leanings and (len(self._leanings) >= _LEANINGS_MAX or standing > _LEANING_MAX):
            oldest = self._leanings.pop(next(iter(self._leanings)))
            standing -= oldest.standing
            self._drop(oldest)
        if self._alike is None:
            self._count_all()
        for key in preferred.keys:
            self._domain(key)
        leaning = Leaning(preferred, lambda who, staying: self._counter((who,), staying))
        for part in leaning.parts:
            part.counter.views[leaning] = None
        leaning.dirty = dict.fromkeys(self._facts)
        return leaning

    def _drop(self, view: PeersView | Leaning) -> None:
        """Stop keeping *view* up, and all counters that nothing else uses."""
        self._stale.pop(view, None)
        if isinstance(view, PeersView):
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
        for seat in self.seats.values():
            add(self._alike_to(self._alike, seat).by_node, seat.node, 1)

    def _alike_to(self, alike: dict[str, dict[object, _Alike]], seat: Seat) -> _Alike:
        there = alike.setdefault(seat.namespace, {})
        key = _key(seat)
        found = there.get(key)
        if found is None:
            found = there[key] = _Alike(seat)
            found.counters.extend(counter for some, counter in self._counters.items() if self._are(found, some))
        return found

    def _counter(self, whos: tuple[Who, ...], staying: bool) -> Counter:
        some = _Set(whos, staying)
        counter = self._counters.get(some)
        if counter is None:
            counter = self._counters[some] = Counter()
            for there in (self._alike or {}).values():
                for alike in there.values():
                    if self._are(alike, some):
                        alike.counters.append(counter)
                        for node, count in alike.by_node.items():
                            add(counter.by_node, node, count)
        return counter

    def _domain(self, key: str) -> None:
        if key not in self._domains:
            by_value = self._domains[key] = {}
            for name, facts in self._facts.items():
                if key in facts.labels:
                    by_value.setdefault(facts.labels[key], {})[name] = None

    def _refresh(self, view: PeersView) -> None:
        self._stale.pop(view, None)
        dirty, view.dirty = view.dirty, {}
        for part in view.parts:
            for name in dirty:
                part.take(name, self._facts.get(name))
        for part in view.parts:
            for name in self._to_judge(part, dirty):
                facts = self._facts.get(name)
                refused = facts is not None and part.refuses(facts)
                if refused != (name in part.refused):
                    view.flip(name, part.refused, refused=refused)
                    self._moved[view] = None

    def _to_judge(self, part: Part, dirty: Mapping[NodeName, None]) -> Iterable[NodeName]:
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

    def _is(self, namespace: str, labels: Labels, who: Who) -> bool:
        """Return whether a pod of *namespace* with *labels* is one of *who*."""
        return self._is_in(namespace, who) and meets(labels, who.selector)

    def _is_in(self, namespace: str, who: Who) -> bool:
        if namespace in who.namespaces:
            return True
        asked = who.namespace_selector
        if not asked:
            return asked is not None
        known = self._namespaces.get(namespace) if self._namespaces is not None else None
        return who.in_doubt if known is None else meets(known, asked)


def _key(seat: Seat) -> object:
    return seat.deleting, frozenset(seat.labels.items())


def peers_constraint(topology: Topology) -> Constraint:
    """Return the constraint of inter-pod affinity and anti-affinity, and of topology spread, required or preferred."""
    return Constraint(
        name="pods",
        reads=ReadScope.PODS,
        signature=topology.peers_of,
        filter=lambda peers, facts, held: facts.name not in topology.view(peers).blocked,
        explain=lambda peers, facts, held: topology.why(peers, facts.name),
        tracker=topology,
        prefers=lambda pod, weights: preferred_of(pod, weights) if pod.wishes is not NO_WISHES else None,
        rate=lambda preferred, facts, weights: topology.leaning(preferred).points(weights, facts.labels),
        most=lambda preferred, weights: abs(weights.pod_affinity) * FULL if preferred.near else 0.0,
        rated=lambda preferred: topology.leaning(preferred).log,
    )
