"""Puts the same pods to kube-scheduler and to the ledger, node by node, on one real API server; what they differ in.

A cluster of a few nodes and pods is made, and pods that wait are judged on each of its nodes: kube-scheduler by a copy
that asks for a resource which only that node has, the ledger by what the API server shows of the very same copy.

Run as ``python -m tests.support.judging.agreement``: see ``scripts/agree``.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from core.ledger import Ledger
from core.model import NodeName
from core.placing.decide import NodePolicy, Shape, better, shape_of
from core.settings import Policy, Settings, Tables
from core.waiting import Wait
from core.wire.nodes import node_from_object
from core.wire.pods import pod_from_object
from core.wire.storage import attachment_from_object, claim_from_object, csi_node_from_object, volume_from_object
from tests.support.devices.catalogs import catalog_of
from tests.support.devices.toy import Toy
from tests.support.judging import clusters
from tests.support.judging.by_the_book import Cluster
from tests.support.servers.realapi import RealApi
from tests.support.servers.realapi_binaries import RealApiUnavailable, find
from tests.support.servers.rest import Rest, connect

_NODES = 4
_THERE = 7
_WAITING = 4
_POLICY = NodePolicy(Policy.SPREAD, 1)
_ONLY = "example.com/only-"
_ASKED_AGAIN = 20
_PATIENCE_S = 60.0


class Difference(NamedTuple):
    """A node on which the two do not agree; ours: the ledger takes the pod. told: what kube-scheduler says."""

    ours: bool
    told: str
    book: list[str]
    node: Any
    pod: Any
    nodes: Any
    pods: Any
    storage: Any


class There(NamedTuple):
    """What the API server shows: nodes by name, pods that have one, and what there is of storage, by its kind."""

    nodes: dict[str, Any]
    pods: list[Any]
    storage: dict[str, list[Any]]


class Verdict(NamedTuple):
    """What kube-scheduler says of one pod on one node: whether it takes it, else why not; and the pod as stored."""

    taken: bool
    told: str
    pod: Any


class Agreement:
    """One API server with one kube-scheduler, asked again and again.

    Attributes:
        verdicts: on how many nodes kube-scheduler took the pod, and on how many it did not.
        refusals: what kube-scheduler said where it did not.
        explained: what was not agreed on for a reason that docs/operators/node-fit.md tells, by that reason.
    """

    def __init__(self, rest: Rest, seed: int) -> None:
        self.verdicts = {True: 0, False: 0}
        self.refusals: list[str] = []
        self.explained = Counter[str]()
        self._rest = rest
        self._chance = Random(seed)
        self._made = 0

    async def prepare(self) -> None:
        """Make the namespaces that pods are in, and claims for these."""
        for name, labels in clusters.NAMESPACES.items():
            await self._rest.made("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        for path, manifest in clusters.storage(self._chance):
            await self._rest.made(path, manifest)

    async def rounds(self, verdicts: int) -> AsyncIterator[Difference]:
        """Judge until there are so many verdicts; what was not agreed on."""
        while sum(self.verdicts.values()) < verdicts:
            async for difference in self._round():
                yield difference

    async def _round(self) -> AsyncIterator[Difference]:
        names = [f"n{number}" for number in range(_NODES)]
        for name in names:
            await self._rest.made("/api/v1/nodes", self._node(name))
        for path, manifest in clusters.attached(names, self._chance):
            await self._rest.made(path, manifest)
        for _ in range(_THERE):
            await self._add_there(self._chance.choice(names))
        there = await self._there()
        for _ in range(_WAITING):
            manifest = self._pod()
            for name in names:
                difference = await self._judge(manifest, name, there)
                if difference is not None:
                    yield difference
        for namespace in clusters.NAMESPACES:
            await self._rest.delete(f"/api/v1/namespaces/{namespace}/pods", {"gracePeriodSeconds": 0})
        for name in names:
            await self._rest.delete(f"/api/v1/nodes/{name}")
        for kind in ("csinodes", "volumeattachments"):
            await self._rest.delete(f"{clusters.STORAGE}/{kind}")

    def _node(self, name: str) -> dict[str, Any]:
        manifest = clusters.node(name, self._chance)
        allocatable = manifest["status"]["allocatable"]
        allocatable |= {f"{_ONLY}{name}": "1000", "cpu": "6", "memory": "6Gi"}
        manifest["status"]["capacity"] = allocatable
        if self._chance.random() < 0.6:
            manifest["status"]["declaredFeatures"] = ["RestartAllContainersOnContainerExits"]
        return manifest

    def _pod(self) -> dict[str, Any]:
        self._made += 1
        chance = self._chance
        manifest = clusters.with_features(clusters.with_claims(clusters.pod(f"p{self._made}", chance), chance), chance)
        spec = manifest["spec"]
        spec["schedulerName"] = "default-scheduler"
        (container,) = spec["containers"]
        if chance.random() < 0.5:
            container["resources"] = {"requests": {"cpu": str(chance.randint(1, 2))}}
        if chance.random() < 0.2:
            much = {"requests": {"cpu": str(chance.randint(1, 3))}}
            spec["initContainers"] = [{"name": "i", "image": "i", "resources": much}]
            if chance.random() < 0.5:
                spec["initContainers"][0]["restartPolicy"] = "Always"
        if chance.random() < 0.15:
            # No less than its containers ask together.
            spec["resources"] = {"requests": {"cpu": "5", "memory": f"{chance.randint(1, 4)}Gi"}}
        return manifest

    async def _add_there(self, node: str) -> None:
        manifest = self._pod()
        manifest["spec"]["nodeName"] = node
        path = _pods(manifest)
        await self._rest.made(path, manifest)
        if self._chance.random() < 0.15:
            await self._rest.delete(f"{path}/{manifest['metadata']['name']}", {"gracePeriodSeconds": 600})

    async def _judge(self, manifest: dict[str, Any], node: str, there: There) -> Difference | None:
        verdict = await self._ask(manifest, node)
        nodes, pods = there.nodes, there.pods
        ours = _ours(there, verdict.pod, node)
        for _ in range(_ASKED_AGAIN):
            if ours == verdict.taken:
                break
            # What went just before may not have reached kube-scheduler yet.
            verdict = await self._ask(manifest, node)
        self.verdicts[verdict.taken] += 1
        if not verdict.taken:
            self.refusals.append(verdict.told)
        if ours == verdict.taken:
            return None
        book = _book(nodes, pods).refusals(verdict.pod, nodes[node])
        as_it_errs = _book(nodes, pods)
        as_it_errs.forgets_labels_of_namespaces = True
        if ours == (not book) and verdict.taken == (not as_it_errs.refusals(verdict.pod, nodes[node])):
            self.explained["namespaceSelector"] += 1
            return None
        return Difference(ours, verdict.told, book, nodes[node], verdict.pod, nodes, pods, there.storage)

    async def _ask(self, manifest: dict[str, Any], node: str) -> Verdict:
        asked = copy.deepcopy(manifest)
        self._made += 1
        asked["metadata"]["name"] = f"q{self._made}"
        only = {f"{_ONLY}{node}": "1"}
        (container,) = asked["spec"]["containers"]
        resources = container.setdefault("resources", {})
        resources["limits"] = {**resources.get("limits", {}), **only}
        resources["requests"] = {**resources.get("requests", {}), **only}
        path = _pods(asked)
        stored = await self._rest.made(path, asked)
        path = f"{path}/{asked['metadata']['name']}"
        try:
            async with asyncio.timeout(_PATIENCE_S):
                return await self._verdict(path, stored)
        finally:
            await self._rest.delete(path, {"gracePeriodSeconds": 0})

    async def _verdict(self, path: str, stored: Any) -> Verdict:
        while True:
            found = (await self._rest.get(path)).body
            if found["spec"].get("nodeName"):
                return Verdict(True, "", stored)
            for one in found.get("status", {}).get("conditions", ()):
                if one["type"] == "PodScheduled" and one["status"] == "False":
                    return Verdict(False, one.get("message", ""), stored)
            await asyncio.sleep(0.01)

    async def _there(self) -> There:
        nodes = await self._listed("/api/v1/nodes")
        pods = await self._listed("/api/v1/pods")
        storage = {
            kind: await self._listed(f"/api/v1/{kind}") for kind in ("persistentvolumes", "persistentvolumeclaims")
        }
        for kind in ("csinodes", "volumeattachments"):
            storage[kind] = await self._listed(f"{clusters.STORAGE}/{kind}")
        pods = [one for one in pods if one["spec"].get("nodeName")]
        return There({one["metadata"]["name"]: one for one in nodes}, pods, storage)

    async def _listed(self, path: str) -> list[Any]:
        found: list[Any] = (await self._rest.get(path)).body["items"]
        return found


def _pods(manifest: dict[str, Any]) -> str:
    return f"/api/v1/namespaces/{manifest['metadata']['namespace']}/pods"


def _ours(there: There, asked: Any, node: str) -> bool:
    """Whether the ledger takes a pod on a node, from what the API server shows."""
    ledger = Ledger(catalog_of(Toy()), Tables(), Settings())
    ledger.topology.set_namespaces(clusters.NAMESPACES)
    _know_storage(ledger, there.storage)
    for one in there.nodes.values():
        ledger.set_node(node_from_object(one))
    for one in there.pods:
        ledger.count(pod_from_object(one))
    shape = shape_of(pod_from_object(asked), ledger)
    if isinstance(shape, Wait):
        return False
    if not isinstance(shape, Shape):
        raise TypeError(f"{asked} is no shape: {shape}")
    return better(ledger, _POLICY, shape, ledger.states[NodeName(node)], None) is not None


def _know_storage(ledger: Ledger, found: dict[str, list[Any]]) -> None:
    volumes = ledger.volumes
    volumes.storage.unread.clear()
    for one in found["persistentvolumes"]:
        volumes.storage.set_volume(volume_from_object(one))
    for one in found["persistentvolumeclaims"]:
        volumes.storage.set_claim(claim_from_object(one))
    for one in found["csinodes"]:
        volumes.set_limits(csi_node_from_object(one))
    for one in found["volumeattachments"]:
        volumes.set_attachment(attachment_from_object(one))


def _book(nodes: dict[str, Any], pods: list[Any]) -> Cluster:
    found = Cluster(clusters.NAMESPACES)
    found.nodes.update(nodes)
    found.pods.update({one["metadata"]["name"]: one for one in pods})
    return found


async def run(api: RealApi, verdicts: int, seed: int) -> tuple[Agreement, list[Difference]]:
    """Ask until there are so many verdicts; and on what the two do not agree without a reason that is known."""
    scheduler = await api.start_scheduler()
    try:
        async with connect(api.url, api.ca_file, api.admin_token) as rest:
            agreement = Agreement(rest, seed)
            await agreement.prepare()
            differences = [one async for one in agreement.rounds(verdicts)]
            return agreement, differences
    finally:
        await api.stop_child(scheduler)


async def _main(verdicts: int, seed: int) -> int:
    try:
        binaries = await asyncio.to_thread(find, os.environ)
    except RealApiUnavailable as e:
        sys.stderr.write(f"scripts/agree: SKIPPED: no real API server: {e.reason}\n")
        return 0
    with tempfile.TemporaryDirectory() as logs:
        async with RealApi(binaries, logs=Path(logs)) as api:
            agreement, differences = await run(api, verdicts, seed)
    for one in differences:
        sys.stdout.write(json.dumps(one._asdict()) + "\n")
    sys.stdout.write(
        f"{sum(agreement.verdicts.values())} verdicts: kube-scheduler took {agreement.verdicts[True]} and refused "
        f"{agreement.verdicts[False]}; {agreement.explained.total()} differ as docs/operators/node-fit.md tells "
        f"({dict(agreement.explained)}), {len(differences)} otherwise\n"
    )
    return 1 if differences else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="scripts/agree", description=__doc__)
    parser.add_argument("--verdicts", type=int, default=20_000, help="of a pod on a node (default 20000)")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    sys.exit(asyncio.run(_main(given.verdicts, given.seed)))
