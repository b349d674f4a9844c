"""Updates the gauges at each scrape."""

import asyncio
import time

from controller.metrics import show
from controller.process import Process
from controller.reporting import packing
from controller.watching.watches import age_s


def fill(process: Process) -> None:
    """Set all gauges to the current state."""
    metrics, scheduler = process.metrics, process.scheduler
    for stage, count in scheduler.cluster.queue.counts().items():
        metrics.pods.labels(stage.value).set(count)
    metrics.in_flight.set(scheduler.cluster.handoff.in_flight)
    metrics.ghosts.set(len(scheduler.cluster.handoff.unserved_pods))
    metrics.nodes.set(len(scheduler.cluster.ledger.states))
    metrics.stray_pods.set(len(scheduler.cluster.ledger.stray_pods()))
    metrics.tasks.set(len(asyncio.all_tasks()))
    remembered = scheduler.cluster.search.candidates.remembered
    metrics.vector_bytes.set(remembered.size_bytes)
    metrics.shapes.set(remembered.shapes)
    packing.show(metrics, scheduler.cluster.search.learning)
    metrics.leading.set(process.leads)
    metrics.name_given_up.set(bool(process.given_up))
    _fill_nodes(process)
    _fill_configuration(process)
    _fill_watches(process)
    if process.audit is not None:
        for fault, count in process.audit.counts().items():
            metrics.audit_findings.labels(fault.value).set(count)
    if process.shadow is not None:
        process.shadow.fill()


def _fill_nodes(process: Process) -> None:
    """Set the gauges of nodes that take no new pods, or only some."""
    metrics, scheduler, barring = process.metrics, process.scheduler, process.scheduler.reservations
    dialects, rests = scheduler.cluster.ledger.catalog.dialects, scheduler.cluster.handoff.cooldown
    aside = dict.fromkeys(dialects, 0)
    complained = {(name, one.dialect) for name, some in scheduler.nodes.complaints.items() for one in some}
    contradicted = {
        (name, dialect)
        for name in scheduler.cluster.ledger.aside
        for dialect in scheduler.cluster.ledger.states[name].offers
    }
    for _, dialect in complained | contradicted:
        aside[dialect] += 1
    for dialect, count in aside.items():
        metrics.nodes_set_aside.labels(dialect).set(count)
    kept = barring.keeping_free.kept
    metrics.nodes_kept_free.set(len(kept.nodes) if kept is not None else 0)
    metrics.nodes_claimed.set(len(frozenset().union(*(one.nodes for one in barring.nominations))))
    metrics.nodes_silent.set(len(scheduler.cluster.handoff.closed_nodes(time.monotonic())))
    for dialect in dialects:
        metrics.nodes_resting.labels(dialect).set(len(rests.resting(dialect)))
    for dialect, count in scheduler.nodes.flaps.counts(dialects).items():
        metrics.cards_unsteady.labels(dialect).set(count)
    for dialect, count in scheduler.cluster.ledger.claimed_cards().items():
        metrics.cards_claimed.labels(dialect).set(count)
    metrics.nodes_avoided.set(sum(1 for _ in rests.avoidances()))


def _fill_configuration(process: Process) -> None:
    metrics, active = process.metrics, process.active
    metrics.configuration_refused.set(bool(active.refused))
    metrics.settings_from_before.set(active.from_before)
    metrics.configuration_notes.set(len(active.notes))
    metrics.documents_forbidden.set(process.watches.forbidden)


def _fill_watches(process: Process) -> None:
    metrics, watches = process.metrics, process.watches
    for name, reflector in process.reflectors.items():
        show(metrics.watch_restarts.labels(name), reflector.counters.watch_restarts)
        show(metrics.lists.labels(name), reflector.counters.lists)
        metrics.watch_age_s.labels(name).set(age_s(reflector))
    for kind, read in (("nodes", watches.nodes_read), ("pods", watches.pods_read)):
        show(metrics.unreadable.labels(kind), read.salvaged)
