"""What the controller counts, in a registry of its own."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_LONG_SECONDS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)


class Metrics:
    """Counters and histograms that are written where things happen; gauges are filled when asked for."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry: Final = CollectorRegistry()
        self.decisions: Final = self._counter("decisions", "Times that a pod was decided on.")
        self.undefined_events: Final = self._counter(
            "undefined_events", "Times that a pod was not what it was thought to be, and read anew; please report them."
        )
        self.refusals: Final = self._counter(
            "refusals", "Pods that were told why they wait, or told another cause than before, by its code.", ("code",)
        )
        self.kueue_answers: Final = self._counter(
            "kueue_answers", "Answers to Kueue's admission checks, by what they say.", ("state",)
        )
        self.binds: Final = self._counter("binds", "Bindings sent, by what became of them.", ("outcome",))
        self.bind_s: Final = self._histogram("bind_seconds", "Seconds from sending a Binding to its answer.", _SECONDS)
        self.create_to_bound_s: Final = self._histogram(
            "create_to_bound_seconds", "Seconds from a pod's creation until it is seen bound.", _LONG_SECONDS
        )
        self.handoff_s: Final = self._histogram(
            "handoff_seconds", "Seconds from a Binding until the device plugin has served the pod.", _LONG_SECONDS
        )
        self.turn_wait_s: Final = self._histogram(
            "turn_wait_seconds",
            "Seconds that a pod with a place waited until the plugin there had served others, if it had to.",
            _LONG_SECONDS,
        )
        self.loop_lag_s: Final = self._histogram(
            "loop_lag_seconds", "By how much the event loop was late.", (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
        )
        self.loop_lag_max_s: Final = self._gauge("loop_lag_max_seconds", "The longest the event loop was ever late.")
        self.vector_bytes: Final = self._gauge(
            "vector_bytes",
            "Memory of what is kept of all nodes to find the best one; 384 MiB at most, if columns alone take less.",
        )
        self.shapes: Final = self._gauge(
            "shapes", "Shapes of pods of which it is known how good each node is; 4,096 at most."
        )
        self.packing_pods: Final = self._gauge(
            "packing_pods", "Pods that had asked when the tables of policy pack were last made; 0 under other policies."
        )
        self.packing_loss: Final = self._gauge(
            "packing_loss",
            "The part of a card that policy pack expects never to be sold where so many percent of it are free.",
            ("dialect", "card", "free_pct"),
        )
        self.tasks: Final = self._gauge("tasks", "Tasks of the event loop.")
        self.pods: Final = self._gauge("pending_pods", "Pending pods of ours, by what they wait for.", ("waiting_for",))
        self.nodes_set_aside: Final = self._gauge(
            "nodes_set_aside", "Nodes with device data that cannot be used, by protocol.", ("dialect",)
        )
        self.contradictions: Final = self._counter(
            "contradictions", "Times that a node was set aside because a placement there contradicted what is held."
        )
        self.nodes_silent: Final = self._gauge("nodes_silent", "Nodes whose device plugin does not answer.")
        self.nodes_kept_free: Final = self._gauge(
            "nodes_kept_free", "Nodes that are kept free for a pod or group that waits too long."
        )
        self.kept_free: Final = self._counter(
            "kept_free", "Times that nodes were kept free for a pod or group, by how it ended.", ("outcome",)
        )
        self.preemptions: Final = self._counter(
            "preemptions", "Times that room was made for a pod or group, by how it ended.", ("outcome",)
        )
        self.evictions: Final = self._counter(
            "evictions", "Pods that were asked to leave for others, by what became of it.", ("outcome",)
        )
        self.preemption_looked_at: Final = self._counter(
            "preemption_nodes_looked_at", "Nodes that were looked at for pods that could leave for others."
        )
        self.nodes_claimed: Final = self._gauge(
            "preemption_nodes", "Nodes on which room is being made for a pod or group."
        )
        self.in_flight: Final = self._gauge("handoff_in_flight", "Pods between their Binding and their devices.")
        self.ghosts: Final = self._gauge(
            "handoff_ghosts", "Pods that vanished before they were served, of which kubelet may still admit some."
        )
        self.turned_away: Final = self._counter(
            "pods_turned_away", "Pods that kubelet did not admit for want of their cards, by protocol.", ("dialect",)
        )
        self.cards_unsteady: Final = self._gauge(
            "cards_unsteady", "Cards that take nothing new because they become unhealthy again and again.", ("dialect",)
        )
        self.cards_claimed: Final = self._gauge(
            "cards_claimed", "Cards that take nothing new because pods use them through resource claims.", ("dialect",)
        )
        self.nodes_resting: Final = self._gauge(
            "nodes_resting", "Nodes that rest after a pod was turned away, or a plugin came back.", ("dialect",)
        )
        self.nodes_avoided: Final = self._gauge(
            "nodes_avoided", "Pairs of owner and node: its pods go elsewhere, for three in a row were turned away."
        )
        self.nodes: Final = self._gauge("nodes", "Nodes known.")
        self.assignments_changed: Final = self._counter(
            "assignments_changed", "Times that a bound pod was seen to say of its cards what it was not bound with."
        )
        self.stray_pods: Final = self._gauge("stray_pods", "Pods bound to nodes that do not exist.")
        self.audit_rounds: Final = self._counter("audit_rounds", "Times that all nodes were audited.")
        self.audit_repairs: Final = self._counter(
            "audit_repairs", "What the audit found to differ from the API server, and counted anew."
        )
        self.audit_findings: Final = self._gauge(
            "audit_findings", "What the audit found that must not be, and still is.", ("fault",)
        )
        self.api_errors: Final = self._counter("api_errors", "Calls that failed, by what they wanted.", ("call",))
        self.watch_restarts: Final = self._counter(
            "watch_restarts", "Times that a watch broke, or ended before its time.", ("kind",)
        )
        self.watch_age_s: Final = self._gauge(
            "watch_age_seconds", "Seconds since what is followed was last known to be complete.", ("kind",)
        )
        self.leading: Final = self._gauge("leading", "1 in the process that decides, 0 in one that stands by.")
        self.name_given_up: Final = self._gauge(
            "scheduler_name_given_up", "1 while pods that name another scheduler are left alone because it places them."
        )
        self.unreadable: Final = self._counter(
            "unreadable_objects", "Times that an object could not be read.", ("kind",)
        )
        self.lists: Final = self._counter("lists", "Full lists fetched.", ("kind",))
        self.configuration_refused: Final = self._gauge(
            "configuration_refused", "1 while an edit of the configuration is refused and the last good one in force."
        )
        self.settings_from_before: Final = self._gauge(
            "settings_from_before",
            "1 while settings are in force that an earlier process kept, the edited ones being refused.",
        )
        self.configuration_notes: Final = self._gauge(
            "configuration_notes", "Parts of the configuration in force that are unknown or have no effect here."
        )
        self.documents_forbidden: Final = self._gauge(
            "documents_forbidden", "Places of MindCluster's ConfigMaps that this process may not read."
        )
        self.shadow_rounds: Final = self._counter("shadow_rounds", "Times that a shadow judged the pods that wait.")
        self.shadow_pods: Final = self._gauge(
            "shadow_pods", "Pods that wait under another scheduler, by what a shadow would do with them.", ("verdict",)
        )
        self.shadow_needless: Final = self._gauge(
            "shadow_pods_without_need", "Pods that wait although a shadow has had a place for them for 30 s."
        )
        self.shadow_bindings: Final = self._counter(
            "shadow_bindings",
            "Bindings of another scheduler that a shadow saw, by how they compare with what it would have done.",
            ("outcome",),
        )
        self.events_dropped: Final = self._counter("events_dropped", "Events for users that were given up.")

    def _counter(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
        return Counter(f"cardshare_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
        return Gauge(f"cardshare_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"cardshare_{name}", text, buckets=buckets, registry=self.registry)


def show(counter: Counter, count: int) -> None:
    """Let *counter* say what somebody else counted, who may have begun anew at 0."""
    counter.reset()
    counter.inc(count)
