"""One run: a crowd, faults for some minutes, calm, and what must hold then."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from controller import audit_command
from core.settings import Tables
from sandbox.players.registry import DEVICE_CONFIG
from tests.chaos.crowd import Crowd
from tests.chaos.faults import Faults
from tests.chaos.observer import Observer
from tests.chaos.plan import Kind, plan
from tests.chaos.services import Service
from tests.chaos.world import World, world
from tests.support.devices import vendors
from tests.support.devices.mixed import would_fit
from tests.support.devices.texts import device_tables
from tests.support.worlds.controller_rig import PODS

TABLES: Final = Tables(
    sections=(*device_tables(DEVICE_CONFIG.read_text(encoding="utf-8")).sections, *vendors.TABLES.sections)
)
# What fits is bound within so many seconds of calm.
BOUND_WITHIN_S: Final = 90.0
_READY_WITHIN_S: Final = 120.0
_GROWS_BY: Final = 1.3
_GROWS_MIB: Final = 16.0
_GROWS_FILES: Final = 64
_GROWS_TASKS: Final = 32
_THINNED: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Invariant:
    """Something that must hold: broken lists what broke it."""

    name: str
    broken: Sequence[str]
    note: str = ""


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What came of a run."""

    faults: Counter[Kind] = field(default_factory=Counter)
    counts: dict[str, int] = field(default_factory=dict)
    invariants: list[Invariant] = field(default_factory=list)
    growth: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What to run: seconds of faults, pods a second at the average, nodes; timing: flags of the lease.

    preemption_wait_s: how long freed capacity is reserved; 0: no pod is evicted for another.
    """

    seconds: float
    seed: int
    nodes: int = 200
    pods_per_s: float = 4.0
    real: bool = False
    timing: tuple[str, ...] = ()
    preemption_wait_s: int = 0


async def run(wanted: Wanted, folder: Path) -> Outcome:
    """Carry it out; logs and files go to *folder*."""
    async with world(
        folder,
        nodes=wanted.nodes,
        real=wanted.real,
        timing=wanted.timing,
        preemption_wait_s=wanted.preemption_wait_s,
    ) as cluster:
        observer = Observer(cluster.rig.client, TABLES)
        await observer.learn_nodes()
        faults, crowd = Faults(cluster), Crowd(cluster, wanted.seed, wanted.pods_per_s)
        async with _beside(observer.run()):
            async with _beside(crowd.run()):
                await faults.play(list(plan(wanted.seed, wanted.seconds)))
            waiting = [one for one in await cluster.rig.client.list(PODS) if not one["spec"].get("nodeName")]
            outcome = Outcome(faults=faults.done)
            await _calm(cluster, crowd)
            forgotten = await _forgotten(cluster)
            findings, text = await asyncio.to_thread(_audit, cluster)
            evictions = await observer.evictions()
        services = [*cluster.controllers, *cluster.webhooks]
    outcome.counts = {
        "pods created": crowd.made,
        "pods placed": len(observer.placed),
        "pods waiting when calm began": len(waiting),
        "changes of pods seen": observer.events,
        "pods evicted for others": len(evictions),
        "times that history was lost to the observer": observer.relists,
        "admission calls that met a killed or stopped webhook": crowd.met_faults,
        **{f"pods turned away: {reason}": count for reason, count in observer.turned_away.items()},
        **{f"starts of {one.name}": one.lives for one in services},
    }
    outcome.invariants = [
        Invariant(name="overcommits", broken=list(observer.overcommits)),
        Invariant(name="double bindings", broken=observer.double),
        Invariant(name="pods forgotten", broken=forgotten),
        Invariant(name="evictions of pods of no lower priority", broken=observer.wronged(evictions)),
        Invariant(name="admission calls lost by us", broken=crowd.lost),
        Invariant(name="findings of the audit", broken=findings, note=text),
        Invariant(name="processes that failed by themselves", broken=[text for one in services for text in one.wrong]),
        Invariant(name="memory, files or tasks that grew", broken=_grown(services, outcome.growth)),
    ]
    return outcome


@asynccontextmanager
async def _beside(work: Any) -> AsyncIterator[None]:
    """Have *work* go on meanwhile; what it raises ends the run."""
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(work)
        yield
        task.cancel()


async def _calm(cluster: World, crowd: Crowd) -> None:
    """Nothing goes wrong any more, everything runs, one controller leads, and there is room again."""
    await cluster.write_settings("")
    for one in (*cluster.controllers, *cluster.webhooks):
        if not await one.until_ready(_READY_WITHIN_S):
            one.wrong.append(
                f"{one.name} was not ready within {_READY_WITHIN_S:.0f} s of calm: {await one.get('/readyz')}"
            )
    if not await _is_led(cluster):
        cluster.controllers[0].wrong.append(f"no controller led within {BOUND_WITHIN_S:.0f} s of calm")
    await crowd.thin_out(_THINNED)


async def _is_led(cluster: World) -> bool:
    """Whether one of the controllers decides, now or soon: a lease may still have to run out."""
    end_s = asyncio.get_running_loop().time() + BOUND_WITHIN_S
    while asyncio.get_running_loop().time() < end_s:
        for one in cluster.controllers:
            if "\ncardshare_leading 1.0\n" in (await one.get("/metrics"))[1]:
                return True
        await asyncio.sleep(0.2)
    return False


async def _forgotten(cluster: World) -> list[str]:
    """Pods that wait although a node has room for them, at the end of the time in which they are to be bound."""
    end_s = asyncio.get_running_loop().time() + BOUND_WITHIN_S
    waiting: list[str] = []
    while asyncio.get_running_loop().time() < end_s:
        client = cluster.rig.client
        nodes, pods = await client.list("/api/v1/nodes"), await client.list(PODS)
        maps = await client.list("/api/v1/configmaps")
        fitting = await asyncio.to_thread(would_fit, nodes, pods, maps, TABLES)
        by_name = {one["metadata"]["name"]: one for one in pods}
        waiting = [f"{name}: {_condition(by_name[name])}" for name in fitting]
        if not fitting:
            return []
        await asyncio.sleep(1.0)
    return waiting


def _condition(pod: dict[str, Any]) -> str:
    told = [one for one in pod["status"].get("conditions", ()) if one["type"] == "PodScheduled"]
    return f"{told[0].get('reason')}: {told[0].get('message')}" if told else "no condition"


def _audit(cluster: World) -> tuple[list[str], str]:
    """What the product's own audit finds, from API objects alone."""
    kubeconfig = cluster.rig.write_admins_kubeconfig()
    out = (cluster.rig.folder / "audit.txt").open("w+", encoding="utf-8")
    with out:
        audit_command.run(("--kubeconfig", str(kubeconfig), "--trust-namespaces", "kube-system,mindx-dl"), {}, out)
        out.seek(0)
        *found, last = out.read().splitlines()
    return found, last


def _grown(services: Sequence[Service], lines: list[str]) -> list[str]:
    broken = []
    for one in services:
        for warm, end in one.grown():
            text = (
                f"{one.name}: {warm.rss_mib:.0f} -> {end.rss_mib:.0f} MiB, {warm.files} -> {end.files} files, "
                f"{warm.tasks} -> {end.tasks} tasks"
            )
            lines.append(text)
            if (
                end.rss_mib > warm.rss_mib * _GROWS_BY + _GROWS_MIB
                or end.files > warm.files + _GROWS_FILES
                or end.tasks > warm.tasks + _GROWS_TASKS
            ):
                broken.append(text)
    return broken
