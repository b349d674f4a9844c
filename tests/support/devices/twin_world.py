"""A cluster in which everything happens that sells a card twice elsewhere, and a twin that looks at every placement.

Pods of every protocol come, are bound here or by others, wait, are refused, finish and go. Plugins restart, fail, are
swapped, and take a changed configuration when they start again. Nodes vanish and return.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from core.catalog import standard_catalog
from core.dialects.ascend_hami.table import SHIPPED_CHIPS, AscendTable
from core.dialects.hami_vendors.table import VendorNames
from core.dialects.vgpu.table import VgpuTable
from core.errors import InvariantError
from core.ledger import Ledger, Placement
from core.model import Container, NodeName, Phase, Pod, PodUid
from core.names import MEMORY_UNIT
from core.placing.candidates import Candidates
from core.placing.decide import Shape, decide, node_policy, shape_of, still_fits
from core.port.handoff import Stamp
from core.settings import DialectName, Policy, Settings, Tables
from sandbox.players.registry import DEVICE_CONFIG
from tests.support.devices.texts import ALL_DIALECTS, device_tables
from tests.support.devices.twin import (
    ASCEND,
    GPU,
    GPU_MEMORY,
    GPU_NUMBER,
    HAMI,
    HAMI_CUTS,
    MEMORY,
    MIND,
    MIND_CUTS,
    NPU_CORE,
    NUMBER,
    NVIDIA,
    SHARE_HELD,
    SHARE_MEMORY,
    SHARES,
    SLICES,
    VGPU,
    WHOLE,
    Twin,
)
from tests.support.devices.twin_sites import Site, sites
from tests.support.devices.twin_vendors import PLAIN

Json = dict[str, Any]
_GEOMETRIES: Final = device_tables(DEVICE_CONFIG.read_text(encoding="utf-8")).of(VgpuTable).geometries
_MIND_LABELS: Final = {"ring-controller.atlas": "ascend-310P"}
_PREFIXES: Final = ("volcano.sh", "acme.example")
# More pods than these make the cluster full of what cannot go on.
_MOST: Final = 180
# What the plugin of MindCluster calls a slice of each template (ascend.md 1.7).
_REAL: Final = {
    "vir01": "1c",
    "vir02": "2c",
    "vir02_1c": "2c.1cpu",
    "vir04": "4c",
    "vir04_3c": "4c.3cpu",
    "vir04_3c_ndvpp": "4c.3cpu.ndvpp",
    "vir04_4c_dvpp": "4c.4cpu.dvpp",
}


@dataclass(frozen=True, slots=True)
class Config:
    """The device configuration, and what is switched on."""

    prefix: str = "volcano.sh"
    factor: int = 1
    chips: frozenset[str] = frozenset(chip.named.type for chip in SHIPPED_CHIPS)
    vendors: frozenset[str] = frozenset(PLAIN)
    dialects: frozenset[DialectName] = ALL_DIALECTS
    policy: Policy = Policy.BINPACK

    def tables(self) -> Tables:
        number, memory, cores = (f"{self.prefix}/vgpu-{what}" for what in ("number", "memory", "cores"))
        usual = VgpuTable().named
        named = usual._replace(cards=number, memory=memory, cores=cores, mib_per_unit=self.factor)
        return Tables(
            sections=(
                VgpuTable(named=named, geometries=_GEOMETRIES),
                AscendTable(chips=tuple(chip for chip in SHIPPED_CHIPS if chip.named.type in self.chips)),
                *[VendorNames(dialect=name) for name in sorted(self.vendors)],
            )
        )

    def settings(self) -> Settings:
        return Settings(policy=self.policy, dialects=self.dialects)

    def sold(self) -> frozenset[str]:
        """The names by which cards are asked for."""
        return frozenset(
            {f"{self.prefix}/vgpu-number", GPU_MEMORY, GPU_NUMBER, GPU, NPU_CORE}
            | {f"huawei.com/{word}" for word in self.chips}
            | {PLAIN[name].count for name in self.vendors}
        )


@dataclass(slots=True)
class Waiting:
    """A placement that waits its turn to be bound."""

    shape: Shape
    placement: Placement
    bound: Pod


class World:
    """The cluster's objects, the ledger that decides from them, and the twin that judges what was decided.

    Attributes:
        faults: what the twin found, in sentences.
        contradictions: errors of ours that concern a node.
        drifts: where a ledger that lived differs from one made of the objects.
        placed: placements by dialect.
        counts: everything else that happened, by name.
    """

    def __init__(self, seed: int | str) -> None:
        self.chance = random.Random(seed)
        self.sites = {one.name: one for one in sites()}
        self.config = Config()
        self.pods: dict[PodUid, Pod] = {}
        self.twin = Twin({name: one.machine for name, one in self.sites.items()})
        self.faults: list[str] = []
        self.contradictions: list[str] = []
        self.drifts: list[str] = []
        self.placed: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.waiting: dict[PodUid, Waiting] = {}
        # By how many MiB a unit a pod was served: what it holds does not change with the plugin's settings.
        self._factors: dict[PodUid, int] = {}
        self.unseen: list[PodUid] = []
        self.number = 0
        self.ledger = self._fresh()
        self.candidates = Candidates(self.ledger, node_policy(self.ledger.settings))
        self._operations: tuple[tuple[Callable[[], None], float], ...] = (
            (self.arrive, 40),
            (self.bind_foreign, 4),
            (self.see, 20),
            (self.finish, 12),
            (self.delete, 9),
            (self.report, 8),
            (self.begin, 6),
            (self.turn, 5),
            (self.restart_plugin, 2),
            (self.garble, 0.5),
            (self.swap, 1),
            (self.fails_a_card, 0.5),
            (self.renew_node, 0.5),
            (self.change_config, 0.5),
            (self.restart, 0.2),
        )
        self._weights = tuple(weight for _, weight in self._operations)

    # ------------------------------------------------------------------ what happens

    def step(self) -> None:
        """One operation."""
        ((operation, _),) = self.chance.choices(self._operations, self._weights)
        if len(self.pods) > _MOST:
            operation = self.finish
        self.counts[operation.__name__] += 1
        operation()

    def arrive(self) -> None:
        """A pod of ours asks, and is decided on."""
        pod = self._with_more(self._made(self._wish()))
        shape = shape_of(pod, self.ledger)
        # Without its section in the configuration, a vendor's resource is like any other of a node.
        if not isinstance(shape, Shape) or shape.dialect is None:
            self.counts["not asked so"] += 1
            return
        try:
            placement = decide(self.candidates, pod, shape)
            if placement is None:
                self.counts["refused"] += 1
                return
            self.ledger.reserve(placement)
        except InvariantError as error:
            self.contradictions.append(str(error))
            return
        bound = self._written(pod, placement)
        wrong = self._judge(bound)
        if wrong or self.chance.random() < 0.05:
            self.counts["binding refused"] += 1
            self.ledger.release(pod.uid)
            return
        self.placed[str(placement.dialect)] += 1
        self._hold(bound)
        if self.chance.random() < 0.2:
            self.waiting[pod.uid] = Waiting(shape, placement, bound)
        else:
            self._bind(bound)

    def turn(self) -> None:
        """A pod that waited gets its turn, if its node would still grant it."""
        if not self.waiting:
            return
        uid = self.chance.choice(tuple(self.waiting))
        one = self.waiting.pop(uid)
        if still_fits(self.ledger, one.shape, one.placement):
            bound = self._written(one.bound, one.placement)
            if not self._judge(bound):
                self._hold(bound)
                self._bind(bound)
                return
        self.ledger.release(uid)
        self._let_go(one.bound)

    def bind_foreign(self) -> None:
        """Somebody else binds a pod, as he likes, and writes what he likes."""
        site = self._site()
        running = sorted(site.running)
        # Where a register cannot be read, no scheduler binds by it.
        if not running or site.garbled:
            return
        chosen = [self.chance.choice(running)]
        if self.chance.random() < 0.15:
            rivals = next((one for one in (NVIDIA, ASCEND) if chosen[0] in one), frozenset(chosen))
            chosen.append(self.chance.choice(sorted(rivals)))
        limits: dict[str, str] = {}
        notes: dict[str, str] = {}
        labels: dict[str, str] = {}
        for plugin in dict.fromkeys(chosen):
            wanted, written = self._foreign(plugin, site)
            limits |= wanted
            notes |= written
            labels |= _MIND_LABELS if plugin == MIND else {}
        pod = self._made((limits, {}, labels))._replace(annotations=notes, node_name=site.name)
        self.pods[pod.uid] = pod
        self._hold(pod)
        self.ledger.count(pod)

    def see(self) -> None:
        """The watch shows a pod that was bound some time ago."""
        if self.unseen:
            uid = self.unseen.pop(self.chance.randrange(len(self.unseen)))
            if uid in self.pods:
                self.ledger.count(self.pods[uid])

    def report(self) -> None:
        """MindCluster's plugin tells of the chips that it gave to a pod."""
        for uid, pod in self.pods.items():
            text = pod.annotations.get(NPU_CORE, "")
            if text and "huawei.com/AscendReal" not in pod.annotations and uid not in self.unseen:
                chip, dash, template = text.partition("-")
                real = ",".join(f"Ascend310P-{at}" for at in text.split(","))
                if dash:
                    real = f"Ascend310P-{_REAL.get(template, template)}-100-{chip}_{self.chance.randrange(3)}"
                self._change(pod, annotations={**pod.annotations, "huawei.com/AscendReal": real}, phase=Phase.RUNNING)
                return

    def begin(self) -> None:
        """End the init containers of a pod."""
        for uid, pod in self.pods.items():
            if pod.init_containers and not pod.init_done and uid not in self.unseen:
                self.counts["init containers ended"] += 1
                self._change(pod, init_done=True, started=True, phase=Phase.RUNNING)
                return

    def finish(self) -> None:
        """A pod ends, and is deleted later."""
        if self.pods:
            pod = self.pods[self.chance.choice(tuple(self.pods))]
            self._change(pod, phase=Phase.SUCCEEDED)
            self._gone(pod)

    def delete(self) -> None:
        """A pod is being deleted, or its object goes."""
        if self.pods:
            pod = self.pods[self.chance.choice(tuple(self.pods))]
            if pod.deleting:
                self._gone(pod)
            else:
                self._change(pod, deleting=True)

    # ------------------------------------------------------------------ what changes under it

    def restart_plugin(self) -> None:
        """A plugin goes away, so that kubelet counts none of its devices, or returns with the configuration of now."""
        site = self._site()
        plugin = self.chance.choice(sorted(site.away or site.running) or [""])
        if plugin and plugin not in site.away and self.chance.random() < 0.7:
            site.away.add(plugin)
        elif plugin:
            site.start(plugin, self.config.factor, self.config.prefix)
        self._set(site)

    def garble(self) -> None:
        """A register cannot be read, or can again."""
        site = self._site()
        site.garbled = not site.garbled and self.chance.random() < 0.5
        self._set(site)

    def swap(self) -> None:
        """Other plugins sell the cards of a machine from now on."""
        site = self._site()
        if site.machine.gpus:
            ways = [{VGPU}, {WHOLE}, {MEMORY}, {NUMBER}, {VGPU, WHOLE}, {MEMORY, WHOLE}, {SHARES}, set[str]()]
        elif site.machine.vendor:
            ways = [{site.machine.vendor}, {site.machine.vendor}, set[str]()]
        else:
            ways = [{HAMI}, {MIND}, {HAMI, MIND}] if site.machine.word == "Ascend310P" else [{HAMI}]
        before, site.running = site.running, set(self.chance.choice(ways))
        for plugin in site.running - before:
            site.start(plugin, self.config.factor, self.config.prefix)
        site.away &= site.running
        if site.machine.model and VGPU in site.running and self.chance.random() < 0.3:
            site.mode = self.chance.choice(("hami-core", "mig"))
        site.garbled = False
        self._set(site)

    def fails_a_card(self) -> None:
        """A card becomes unhealthy, or all are well."""
        site = self._site()
        site.ill = set() if site.ill else {self.chance.randrange(2)}
        self._set(site)

    def renew_node(self) -> None:
        """A node's object is deleted, or made anew; its pods stay bound to its name."""
        gone = [one for one in self.sites.values() if not one.there]
        site = self.chance.choice(gone) if len(gone) > 1 else self._site()
        site.there = not site.there
        self._set(site)

    def change_config(self) -> None:
        """Somebody edits the configuration."""
        config, chance = self.config, self.chance
        match chance.randrange(6):
            case 0:
                config = replace(config, factor=chance.choice((1, 1, 10)))
            case 1:
                config = replace(config, prefix=chance.choice(_PREFIXES))
            case 5:
                config = replace(config, vendors=config.vendors ^ {chance.choice(sorted(PLAIN))})
            case 2:
                config = replace(config, chips=config.chips ^ {chance.choice(("Ascend310P", "Ascend910B3"))})
            case 3:
                off = chance.sample(sorted(ALL_DIALECTS), chance.choice((0, 0, 1, 2)))
                config = replace(config, dialects=ALL_DIALECTS - frozenset(off))
            case _:
                config = replace(config, policy=chance.choice((Policy.BINPACK, Policy.SPREAD, Policy.INDEX)))
        self.config = config
        self._drop_waiting()
        for _ in self.ledger.configure(config.tables(), config.settings()):
            pass
        self.candidates = Candidates(self.ledger, node_policy(self.ledger.settings))

    def restart(self) -> None:
        """Another controller takes over, and knows what the API server knows.

        Not while somebody else's pods are there that were counted in another unit: nothing says so of them.
        """
        if any(self._is_strange(one) for one in self.pods.values() if MEMORY_UNIT not in one.annotations):
            return
        self._drop_waiting()
        while self.unseen:
            self.see()
        lived, self.ledger = self.ledger, self._fresh()
        for name, state in lived.states.items():
            fresh = self.ledger.states[name]
            # Of a foreign pod it remembers under which configuration it was counted, and may be stricter for it.
            if state.offers != fresh.offers or fresh.closed.keys() - state.closed.keys():
                self.drifts.append(f"{name}: {state.offers} {state.closed}, and by its objects {fresh}")
        self.candidates = Candidates(self.ledger, node_policy(self.ledger.settings))

    def _is_strange(self, pod: Pod) -> bool:
        unit = self._factors[pod.uid]
        return "volcano.sh/vgpu-ids-new" in pod.annotations and (unit, unit) != (self._factor(pod), self.config.factor)

    # ------------------------------------------------------------------ parts

    def _site(self) -> Site:
        return self.sites[self.chance.choice(tuple(self.sites))]

    def _fresh(self) -> Ledger:
        ledger = Ledger(standard_catalog(), self.config.tables(), self.config.settings())
        for site in self.sites.values():
            if site.there:
                ledger.set_node(site.node())
        for pod in self.pods.values():
            ledger.count(pod)
        return ledger

    def _set(self, site: Site) -> None:
        if site.there:
            self.ledger.set_node(site.node())
        else:
            self.ledger.remove_node(NodeName(site.name))

    def _factor(self, pod: Pod) -> int:
        return self.sites[pod.node_name].factor

    def _judge(self, bound: Pod) -> list[str]:
        wrong = self.twin.judge(bound, self._factor(bound), self.config.sold())
        self.faults += wrong
        return wrong

    def _written(self, pod: Pod, placement: Placement) -> Pod:
        assert placement.dialect is not None
        dialect = self.ledger.catalog.dialects[placement.dialect]
        self.number += 1
        stamp = Stamp(node=placement.node, now_s=self.number, order=self.number)
        written = dialect.annotations(placement.assignment, stamp, self.ledger.tables)
        told = self.ledger.told_of(placement)
        return pod._replace(node_name=placement.node, annotations={**pod.annotations, **written, **told})

    def _bind(self, bound: Pod) -> None:
        self.pods[bound.uid] = bound
        self.unseen.append(bound.uid)

    def _change(self, pod: Pod, **fields: Any) -> None:
        changed = self.pods[pod.uid] = pod._replace(**fields)
        self.twin.put(changed, self._factors[pod.uid])
        if changed.finished:
            self.twin.take(pod.node_name, pod.uid)
        if pod.uid not in self.unseen:
            self.ledger.count(changed)

    def _hold(self, pod: Pod) -> None:
        """*pod* is promised to its node, or bound to it, and served by the plugin of now."""
        self._factors[pod.uid] = self._factor(pod)
        self.twin.put(pod, self._factor(pod))

    def _let_go(self, pod: Pod) -> None:
        self._factors.pop(pod.uid, None)
        self.twin.take(pod.node_name, pod.uid)

    def _gone(self, pod: Pod) -> None:
        del self.pods[pod.uid]
        if pod.uid in self.unseen:
            self.unseen.remove(pod.uid)
        self._let_go(pod)
        self.ledger.release(pod.uid)

    def _drop_waiting(self) -> None:
        for uid, one in self.waiting.items():
            self.ledger.release(uid)
            self._let_go(one.bound)
        self.waiting.clear()

    def _made(self, wanted: tuple[dict[str, str], dict[str, str], dict[str, str]]) -> Pod:
        self.number += 1
        limits, notes, labels = wanted
        name = f"pod-{self.number}"
        return Pod(
            uid=PodUid(name),
            namespace="default",
            name=name,
            annotations=notes,
            labels=labels,
            scheduler_name="cardshare",
            containers=(Container(name="c", limits=limits, requests=limits),),
        )

    def _with_more(self, pod: Pod) -> Pod:
        """At times, *pod* with more containers that ask alike: init containers, sidecars or others, in any order."""
        chance, asked = self.chance, pod.containers[0].limits
        if NPU_CORE in asked or chance.random() < 0.7:
            return pod
        # Of the others no init container gets a card (CS205).
        begins = GPU in asked or any(key.startswith("huawei.com/") for key in asked)
        amounts = {SHARE_MEMORY: (1000, 6000, 12000), GPU_MEMORY: (1000, 4000)}
        amounts |= {f"huawei.com/{word}-memory": tuple(cuts) for word, cuts in HAMI_CUTS.items()}

        def one(name: str, *, sidecar: bool = False) -> Container:
            limits = {key: str(chance.choice(amounts[key])) if key in amounts else text for key, text in asked.items()}
            if chance.random() < 0.25 or (name.startswith("i") and not begins):
                limits = {}
            return Container(name=name, limits=limits, requests=limits, sidecar=sidecar)

        inits = tuple(one(f"i{at}", sidecar=chance.random() < 0.4) for at in range(chance.choice((0, 1, 1, 2, 3))))
        more = tuple(one(f"m{at}") for at in range(chance.choice((0, 0, 1))))
        self.counts["of several containers"] += 1
        return pod._replace(init_containers=inits, containers=(*pod.containers, *more))

    def _wish(self) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
        """(limits, annotations, labels) of a random pod of a random protocol."""
        chance = self.chance
        some = (VGPU, VGPU, VGPU, VGPU, MEMORY, NUMBER, WHOLE, SHARES, SHARES, HAMI, HAMI, MIND, MIND)
        kind = chance.choice((*some, *PLAIN))
        notes: dict[str, str] = {}
        if kind == VGPU:
            prefix = self.config.prefix
            mib = chance.choice((1000, 3000, 6000, 12000, 15000, 20000, 40000, 70000)) // self.config.factor
            limits = {f"{prefix}/vgpu-number": chance.choice((1, 1, 1, 2)), f"{prefix}/vgpu-memory": mib}
            limits[f"{prefix}/vgpu-cores"] = chance.choice((0, 0, 10, 50, 100))
            notes = chance.choice(({}, {}, {"volcano.sh/vgpu-mode": "mig"}, {"volcano.sh/vgpu-mode": "hami-core"}))
        elif kind == MEMORY:
            limits = {GPU_MEMORY: chance.choice((1000, 4000, 9000))}
        elif kind == NUMBER:
            limits = {GPU_NUMBER: chance.choice((1, 2))}
        elif kind == WHOLE:
            limits = {GPU: chance.choice((1, 2))}
        elif kind in PLAIN:
            limits = PLAIN[kind].asked(chance)
        elif kind == SHARES:
            limits = {GPU: chance.choice((1, 1, 2)), SHARE_MEMORY: chance.choice((1000, 6000, 12000))}
            limits["nvidia.com/gpucores"] = chance.choice((0, 30, 60, 100))
        elif kind == HAMI:
            word = chance.choice(("Ascend310P", "Ascend310P", "Ascend910B3"))
            limits = {f"huawei.com/{word}": 1}
            if chance.random() < 0.8:
                limits[f"huawei.com/{word}-memory"] = chance.choice(sorted(HAMI_CUTS[word]))
        else:
            limits = {NPU_CORE: chance.choice((1, 2, 4, 8))}
        labels = {**_MIND_LABELS, "vnpu-level": chance.choice(("low", "high"))} if kind == MIND else {}
        return {key: str(value) for key, value in limits.items() if value}, dict(notes), labels

    def _foreign(self, plugin: str, site: Site) -> tuple[dict[str, str], dict[str, str]]:
        """(limits, annotations) of a pod that another scheduler binds."""
        chance, machine = self.chance, site.machine
        match plugin:
            case "vgpu":
                uuid, mib = chance.choice(machine.gpus)
                units = str(chance.choice((1000, 5000, mib // 2)) // site.factor)
                limits = {f"{site.prefix}/vgpu-number": "1", f"{site.prefix}/vgpu-memory": units}
                card = uuid
                if site.mode == "mig":
                    group = chance.choice(sorted(SLICES[machine.model]))
                    card = f"{uuid}[{group}-{chance.randrange(len(SLICES[machine.model][group]))}]"
                key, text = "volcano.sh/vgpu-ids-new", f"{card},NVIDIA,{units},0:"
                unreadable = f"{card},NVIDIA,many,0:"
            case "memory" | "number":
                amount = str(chance.choice((1000, 5000))) if plugin == MEMORY else "1"
                limits = {GPU_MEMORY if plugin == MEMORY else GPU_NUMBER: amount}
                key, text, unreadable = "volcano.sh/gpu-index", str(chance.randrange(len(machine.gpus))), "first"
            case "shares":
                uuid, mib = chance.choice(machine.gpus)
                units = str(chance.choice((1000, 5000, mib // 2)))
                limits = {GPU: "1", SHARE_MEMORY: units}
                key, text, unreadable = SHARE_HELD, f"{uuid},NVIDIA,{units},0:;", f"{uuid},NVIDIA,many,0:;"
            case "whole":
                return {GPU: str(chance.choice((1, 1, 2)))}, {}
            case "hami":
                uuid, word = chance.choice(machine.npus), machine.word
                mib = chance.choice(sorted(HAMI_CUTS[word]))
                limits = {f"huawei.com/{word}": "1", f"huawei.com/{word}-memory": str(mib)}
                key, text = f"hami.io/{word}-devices-allocated", f"{uuid},{word},{mib},0:;"
                unreadable = f"{uuid},{word},many,0:;"
            case vendor if vendor in PLAIN:
                sold, card = PLAIN[vendor], chance.choice(machine.cards)
                mib = sold.unit * chance.choice(sold.mibs)
                limits = {sold.count: "1"} | ({sold.memory: str(mib // sold.unit)} if sold.memory else {})
                key, text, unreadable = sold.held[0], sold.written(card, mib), f"{card},{sold.word},many,0:;"
            case _:
                template = chance.choice(sorted(MIND_CUTS))
                limits = {NPU_CORE: str(MIND_CUTS[template][0])}
                key, text, unreadable = NPU_CORE, f"{chance.randrange(len(machine.npus))}-{template}", "chip"
        how = chance.random()
        if how < 0.08:
            return limits, {}
        if how < 0.16:
            has_entries = plugin in (VGPU, HAMI, SHARES, *PLAIN)
            return limits, {key: chance.choice(("", ";;", ";", ":") if has_entries else ("",))}
        return limits, {key: unreadable if how < 0.22 else text}
