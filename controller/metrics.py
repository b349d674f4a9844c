"""The controller's metrics, in a registry of their own, and the series of cards."""

from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

from core.errors import escaped
from core.ledger import Ledger
from core.model import NodeName
from core.node_state import Holding, NodeState
from core.port.cards import Series
from core.port.spec import AnySpec

_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_LONG_SECONDS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\""})
# Device plugins write the ids; real ones have 40 characters, but a register could hold one of a megabyte.
_LABEL_MAX: Final = 128


class Metrics:
    """Counters and histograms are updated as things happen; gauges are filled at each scrape."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry: Final = CollectorRegistry()
        self.decisions: Final = self._counter("decisions", "Decisions about a pod.")
        self.undefined_events: Final = self._counter(
            "undefined_events", "Pods found in an unexpected state and read again; please report them."
        )
        self.refusals: Final = self._counter(
            "refusals", "Reports to a pod of why it waits, at first and at each new cause, by code.", ("code",)
        )
        self.kueue_answers: Final = self._counter(
            "kueue_answers", "Answers to Kueue's admission checks, by what they say.", ("state",)
        )
        self.binds: Final = self._counter("binds", "Bindings sent, by outcome.", ("outcome",))
        # An alert compares its rate with 0, also of a controller that has bound nothing yet.
        self.binds.labels("bound")
        self.bind_s: Final = self._histogram("bind_seconds", "Seconds from sending a Binding to its answer.", _SECONDS)
        self.create_to_bound_s: Final = self._histogram(
            "create_to_bound_seconds", "Seconds from a pod's creation until the watch shows it bound.", _LONG_SECONDS
        )
        self.handoff_s: Final = self._histogram(
            "handoff_seconds", "Seconds from a Binding until the device plugin has served the pod.", _LONG_SECONDS
        )
        self.turn_wait_s: Final = self._histogram(
            "turn_wait_seconds",
            "Seconds that a placed pod waited until the device plugin had served others.",
            _LONG_SECONDS,
        )
        self.loop_lag_s: Final = self._histogram(
            "loop_lag_seconds", "Lateness of the event loop.", (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
        )
        self.loop_lag_max_s: Final = self._gauge("loop_lag_max_seconds", "Maximum lateness of the event loop.")
        self.vector_bytes: Final = self._gauge(
            "vector_bytes",
            "Memory of the index that finds the best node; 384 MiB at most, if its columns take less.",
        )
        self.shapes: Final = self._gauge("shapes", "Shapes of pods with scores for each node; 4,096 at most.")
        self.packing_pods: Final = self._gauge(
            "packing_pods", "Pods counted in the present tables of policy pack; 0 under other policies."
        )
        self.packing_loss: Final = self._gauge(
            "packing_loss",
            "The part of a card that policy pack expects to stay unused, by the free percentage of the card.",
            ("dialect", "card", "free_pct"),
        )
        self.tasks: Final = self._gauge("tasks", "Tasks of the event loop.")
        self.pods: Final = self._gauge(
            "pending_pods", "Pending pods of cardshare's schedulers, by what they wait for.", ("waiting_for",)
        )
        self.nodes_set_aside: Final = self._gauge(
            "nodes_set_aside", "Nodes with invalid device data, by protocol.", ("dialect",)
        )
        self.contradictions: Final = self._counter(
            "contradictions", "Nodes set aside because a placement contradicted the ledger."
        )
        self.nodes_silent: Final = self._gauge("nodes_silent", "Nodes whose device plugin does not answer.")
        self.nodes_kept_free: Final = self._gauge(
            "nodes_kept_free", "Nodes kept free for a pod or group that waits too long."
        )
        self.kept_free: Final = self._counter(
            "kept_free", "Times that nodes were kept free for a pod or group, by outcome.", ("outcome",)
        )
        self.preemptions: Final = self._counter(
            "preemptions", "Preemptions for a pod or group, by outcome.", ("outcome",)
        )
        self.evictions: Final = self._counter("evictions", "Evictions of pods for others, by outcome.", ("outcome",))
        self.preemption_looked_at: Final = self._counter("preemption_nodes_looked_at", "Nodes searched for victims.")
        self.nodes_claimed: Final = self._gauge("preemption_nodes", "Nodes with a preemption in progress.")
        self.in_flight: Final = self._gauge("handoff_in_flight", "Pods between their Binding and their devices.")
        self.ghosts: Final = self._gauge(
            "handoff_ghosts", "Pods that vanished before they were served, and that kubelet may still admit."
        )
        self.turned_away: Final = self._counter(
            "pods_turned_away", "Pods that kubelet rejected because of their cards, by protocol.", ("dialect",)
        )
        self.cards_unsteady: Final = self._gauge(
            "cards_unsteady", "Cards closed because they repeatedly become unhealthy.", ("dialect",)
        )
        self.cards_claimed: Final = self._gauge(
            "cards_claimed", "Cards closed because pods use them through resource claims.", ("dialect",)
        )
        self.nodes_resting: Final = self._gauge(
            "nodes_resting", "Nodes that rest after a rejected pod or a restart of the plugin.", ("dialect",)
        )
        self.nodes_avoided: Final = self._gauge(
            "nodes_avoided", "Pairs of owner and node: the node rejected three pods in a row, so the next go elsewhere."
        )
        self.nodes: Final = self._gauge("nodes", "Nodes known.")
        self.assignments_changed: Final = self._counter(
            "assignments_changed", "Bound pods found with another assignment than they were bound with."
        )
        self.stray_pods: Final = self._gauge("stray_pods", "Pods bound to nodes that do not exist.")
        self.audit_rounds: Final = self._counter("audit_rounds", "Audit rounds over all nodes.")
        self.audit_repairs: Final = self._counter(
            "audit_repairs", "Differences from the API server that the audit found and repaired."
        )
        self.audit_findings: Final = self._gauge("audit_findings", "Open findings of the audit.", ("fault",))
        self.api_errors: Final = self._counter("api_errors", "Failed calls, by kind of call.", ("call",))
        self.watch_restarts: Final = self._counter("watch_restarts", "Watches that broke or ended early.", ("kind",))
        self.watch_age_s: Final = self._gauge(
            "watch_age_seconds",
            "Seconds since the watched objects were last known to be complete; missing for ConfigMaps that "
            "`cardshare_documents_forbidden` counts.",
            ("kind",),
        )
        self.leading: Final = self._gauge("leading", "1 in the leader, 0 in a process that stands by.")
        self.name_given_up: Final = self._gauge(
            "scheduler_name_given_up", "1 while a scheduler name is given up because another scheduler places its pods."
        )
        self.unreadable: Final = self._counter("unreadable_objects", "Objects that could not be read.", ("kind",))
        self.lists: Final = self._counter("lists", "Full lists fetched.", ("kind",))
        self.configuration_refused: Final = self._gauge(
            "configuration_refused",
            "1 while an edit of the configuration is rejected and the last good one is in force.",
        )
        self.settings_from_before: Final = self._gauge(
            "settings_from_before",
            "1 while settings of an earlier process are in force, because the edited ones are rejected.",
        )
        self.configuration_notes: Final = self._gauge(
            "configuration_notes", "Parts of the configuration in force that are unknown or have no effect here."
        )
        self.documents_forbidden: Final = self._gauge(
            "documents_forbidden", "MindCluster's ConfigMap locations that this process may not read."
        )
        self.shadow_rounds: Final = self._counter("shadow_rounds", "Rounds in which a shadow judged the waiting pods.")
        self.shadow_pods: Final = self._gauge(
            "shadow_pods", "Waiting pods of another scheduler, by the shadow's verdict.", ("verdict",)
        )
        self.shadow_needless: Final = self._gauge(
            "shadow_pods_without_need", "Pods that wait although a shadow has had a place for them for 30 s."
        )
        self.shadow_bindings: Final = self._counter(
            "shadow_bindings",
            "Bindings of another scheduler, compared with the shadow's decision.",
            ("outcome",),
        )
        self.events_dropped: Final = self._counter("events_dropped", "Events that were dropped.")

    def _counter(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
        return Counter(f"cardshare_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
        return Gauge(f"cardshare_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"cardshare_{name}", text, buckets=buckets, registry=self.registry)


def show(counter: Counter, count: int) -> None:
    """Set *counter* to *count*, which is kept elsewhere and may have restarted at 0."""
    counter.reset()
    counter.inc(count)


def card_series(ledger: Ledger, *, per_pod: bool) -> Iterator[str]:
    """Yield the series in Prometheus' text format, each piece for one node and one metric name.

    They are of the dialects (`core.port.spec.Metrics`). A large cluster has 100,000 of them, so they are written as
    text in slices and not kept as objects.
    """
    states = tuple(ledger.states.values())
    for spec in ledger.catalog.specs:
        for at, one in enumerate(spec.metrics.of_cards):
            yield _head(one)
            for state in states:
                yield _of_cards(one, at, state, spec)
        for at, one in enumerate(spec.metrics.of_pods if per_pod else ()):
            yield _head(one)
            for state in states:
                held = [of for of in ledger.holders(state.facts.name).values() if of.dialect == spec.name]
                yield _of_pods(one, at, state.facts.name, held, spec)


def _head(one: Series) -> str:
    return f"# HELP {one.name} {one.text}\n# TYPE {one.name} gauge\n"


def _of_cards(one: Series, at: int, state: NodeState, spec: AnySpec) -> str:
    label, where = one.labels
    node = _escaped(state.facts.name)
    cards = [spec.metrics.card(card) for card in reversed(state.offers.get(spec.name, ()))]
    # Prometheus allows one series per set of labels, so a card that is listed twice has one.
    told = {_escaped(card): figures[at] for card, figures in cards}
    return "".join(
        f'{one.name}{{{label}="{card}",{where}="{node}"}} {figure}\n' for card, figure in reversed(told.items())
    )


def _of_pods(one: Series, at: int, on: NodeName, held: Iterable[Holding], spec: AnySpec) -> str:
    label, where = one.labels
    node = _escaped(on)
    lines = []
    for holding in held:
        if holding.assignment is None:
            continue
        sums: dict[str, int] = {}
        for card, figures in spec.metrics.pod(holding.assignment):
            told = _escaped(card)
            sums[told] = sums.get(told, 0) + figures[at]
        pod = _pod_labels(one, holding.key)
        lines += [f'{one.name}{{{label}="{card}",{where}="{node}",{pod}}} {figure}\n' for card, figure in sums.items()]
    return "".join(lines)


def _pod_labels(one: Series, key: str) -> str:
    """Return the labels for the pod *key*, namespace/name."""
    values = (key,) if len(one.pod_labels) == 1 else key.split("/", 1)
    return ",".join(f'{label}="{_escaped(value)}"' for label, value in zip(one.pod_labels, values, strict=True))


def _escaped(text: str) -> str:
    """Return *text* as a label value: one line of printable characters, with limited length."""
    return escaped(text if len(text) <= _LABEL_MAX else f"{text[:_LABEL_MAX]}…").translate(_ESCAPES)
