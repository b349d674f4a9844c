"""Plays the components that give volume claims their volumes: a CSI provisioner, and Kubernetes' volume controller.

A claim of a class with `WaitForFirstConsumer` is ignored until it has a node (annotation
`volume.kubernetes.io/selected-node`); its volume is then reachable only from that node. A volume that is reserved for a
claim is bound to it. Protection of used claims and volumes is not enforced: deleted ones are removed at once. Source:
Kubernetes documentation, "Persistent Volumes" and "Storage Classes"; external-provisioner's README.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from sandbox.client import WORLD_FAILED, ApiClient, PatchKind

Json = dict[str, Any]

NAME: Final = "sandbox.csi"
# The storageClassName of claims in examples.
CLASS: Final = "local-disks"
CLAIM: Final = "PersistentVolumeClaim"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
_CLAIMS: Final = "/api/v1/persistentvolumeclaims"
_VOLUMES: Final = "/api/v1/persistentvolumes"
_CLASSES: Final = "/apis/storage.k8s.io/v1/storageclasses"
_BOUND: Final = {"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"}
_LATER: Final = "WaitForFirstConsumer"
_PAUSE_S: Final = 0.1


class Mood(StrEnum):
    """The provisioner's behaviour: it creates volumes, does nothing, or gives up, which clears the selected node."""

    MAKES = "makes"
    SILENT = "silent"
    FAILS = "fails"


@dataclass(slots=True)
class Provisioner:
    """The player; *mood* may change while it runs."""

    api: ApiClient
    mood: Mood = Mood.MAKES

    async def run(self) -> None:
        """Serve claims until cancelled."""
        while True:
            # After a conflict or without a server, it is read again.
            with contextlib.suppress(*WORLD_FAILED):
                await self._look()
            await asyncio.sleep(_PAUSE_S)

    async def _look(self) -> None:
        claims, volumes = await self.api.list(_CLAIMS), await self.api.list(_VOLUMES)
        classes = {one["metadata"]["name"]: one for one in await self.api.list(_CLASSES)}
        for one in claims:
            path = _claim_path(one)
            if await self._let_go(path, one) or one["spec"].get("volumeName"):
                continue
            reserved = next((volume for volume in volumes if _is_for(volume, one)), None)
            if reserved is not None:
                await self._bind(path, one, reserved["metadata"]["name"])
            elif (found := classes.get(one["spec"].get("storageClassName") or "")) is not None:
                await self._serve(path, one, found)
        for volume in volumes:
            await self._let_go(f"{_VOLUMES}/{volume['metadata']['name']}", volume)
            if not volume["spec"].get("claimRef") and volume.get("status", {}).get("phase") != "Available":
                await self._phase(f"{_VOLUMES}/{volume['metadata']['name']}", {"phase": "Available"})

    async def _let_go(self, path: str, one: Mapping[str, Any]) -> bool:
        """Return whether *one* is being deleted; remove its finalizers."""
        meta = one["metadata"]
        if "deletionTimestamp" in meta and meta.get("finalizers"):
            await self.api.patch(path, {"metadata": {"finalizers": None}})
        return "deletionTimestamp" in meta

    async def _serve(self, path: str, claim: Mapping[str, Any], found: Mapping[str, Any]) -> None:
        node = claim["metadata"].get("annotations", {}).get(SELECTED_NODE, "")
        waits = found.get("volumeBindingMode") == _LATER
        if found["provisioner"] != NAME or self.mood is Mood.SILENT or (waits and not node):
            return
        if self.mood is Mood.FAILS:
            version = claim["metadata"]["resourceVersion"]
            gone = {"metadata": {"resourceVersion": version, "annotations": {SELECTED_NODE: None}}}
            await self.api.patch(path, gone)
            return
        name = f"pvc-{claim['metadata']['uid']}"
        await self.api.create(_VOLUMES, _volume(name, claim, node))
        await self._bind(path, claim, name)

    async def _bind(self, path: str, claim: Mapping[str, Any], name: str) -> None:
        spec = claim["spec"]
        await self.api.patch(path, {"metadata": {"annotations": _BOUND}, "spec": {"volumeName": name}})
        capacity = spec["resources"]["requests"]
        await self._phase(path, {"phase": "Bound", "accessModes": spec["accessModes"], "capacity": capacity})
        await self._phase(f"{_VOLUMES}/{name}", {"phase": "Bound"})

    async def _phase(self, path: str, status: Json) -> None:
        await self.api.patch(f"{path}/status", {"status": status}, PatchKind.MERGE)


def _claim_path(claim: Mapping[str, Any]) -> str:
    meta = claim["metadata"]
    return f"/api/v1/namespaces/{meta['namespace']}/persistentvolumeclaims/{meta['name']}"


def _is_for(volume: Mapping[str, Any], claim: Mapping[str, Any]) -> bool:
    ref, meta = volume["spec"].get("claimRef") or {}, claim["metadata"]
    same = ref.get("namespace") == meta["namespace"] and ref.get("name") == meta["name"]
    return bool(same and ref.get("uid", meta["uid"]) == meta["uid"])


def _volume(name: str, claim: Mapping[str, Any], node: str) -> Json:
    meta, spec = claim["metadata"], claim["spec"]
    ref = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": meta["namespace"],
        "name": meta["name"],
        "uid": meta["uid"],
    }
    near = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}]
    return {
        "metadata": {"name": name},
        "spec": {
            "capacity": spec["resources"]["requests"],
            "accessModes": spec["accessModes"],
            "claimRef": ref,
            "storageClassName": spec["storageClassName"],
            "csi": {"driver": NAME, "volumeHandle": name},
            **({"nodeAffinity": {"required": {"nodeSelectorTerms": near}}} if node else {}),
        },
    }


@asynccontextmanager
async def provided(client: ApiClient, manifests: Iterable[Mapping[str, Any]]) -> AsyncIterator[None]:
    """Provide volumes for claims of `CLASS` inside this context; do nothing if none of *manifests* is a claim."""
    if not any(manifest["kind"] == CLAIM for manifest in manifests):
        yield
        return
    spec = {"provisioner": NAME, "volumeBindingMode": _LATER}
    await client.ensure(_CLASSES, {"metadata": {"name": CLASS}, **spec})
    playing = asyncio.create_task(Provisioner(client).run(), name="provisioner")
    try:
        yield
    finally:
        playing.cancel()
