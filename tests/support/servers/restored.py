"""Puts an API server back in order: what was made meanwhile goes, ConfigMaps and Leases are as they were.

Namespaces are finished here too, which is a controller's work that nobody does on a bare server.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Set
from contextlib import asynccontextmanager
from typing import Any, Final

from sandbox.client import ApiClient, ApiStatusError

Json = Mapping[str, Any]
# Objects by their paths, by group and plural.
Kept = Mapping[tuple[str, str], Mapping[str, Json]]

_RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
_ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
_CONFIG_MAPS: Final = ("/api/v1", "configmaps")
_LEASES: Final = ("/apis/coordination.k8s.io/v1", "leases")
_NAMESPACES: Final = ("/api/v1", "namespaces")
_LAST_REGISTRATIONS: Final = (_ADMISSION, "validatingwebhookconfigurations")
_DEFINITIONS: Final = ("/apis/apiextensions.k8s.io/v1", "customresourcedefinitions")
_KINDS: Final = (
    (_ADMISSION, "mutatingwebhookconfigurations"),
    _LAST_REGISTRATIONS,
    *(("/apis/apps/v1", plural) for plural in ("deployments", "statefulsets", "daemonsets")),
    *(("/apis/batch/v1", plural) for plural in ("jobs", "cronjobs")),
    ("/api/v1", "pods"),
    ("/api/v1", "nodes"),
    ("/api/v1", "events"),
    ("/api/v1", "serviceaccounts"),
    ("/api/v1", "secrets"),
    ("/api/v1", "resourcequotas"),
    _LEASES,
    *((_RBAC, plural) for plural in ("rolebindings", "roles", "clusterrolebindings", "clusterroles")),
    ("/apis/node.k8s.io/v1", "runtimeclasses"),
    ("/apis/scheduling.k8s.io/v1", "priorityclasses"),
    _DEFINITIONS,
    _CONFIG_MAPS,
    # In the end: what is in one outlives it otherwise, and is there again in the next of that name.
    _NAMESPACES,
)
# What is restored of objects that stay, too. A Lease whose holder was killed would keep the next one waiting; the
# server's own are renewed all the time.
_TOLD: Final[Mapping[tuple[str, str], Callable[[Json], Any]]] = {
    _CONFIG_MAPS: lambda one: one.get("data"),
    _LEASES: lambda one: one.get("spec", {}).get("holderIdentity") or "",
}
# What scenarios leave alone, and installations do not.
_OF_INSTALLATIONS: Final = (
    (_ADMISSION, "validatingadmissionpolicybindings"),
    (_ADMISSION, "validatingadmissionpolicies"),
    ("/api/v1", "services"),
    ("/apis/policy/v1", "poddisruptionbudgets"),
    ("/apis/apps/v1", "replicasets"),
)
_AT_ONCE: Final = 16
_UNREGISTERED_WITHIN_S: Final = 60.0
_GONE_WITHIN_S: Final = 60.0
_ASKS: Final = {
    "metadata": {"generateName": "asks-"},
    "spec": {
        "containers": [{"name": "c", "image": "i", "resources": {"limits": {"volcano.sh/vgpu-number": "1"}}}],
    },
}


@asynccontextmanager
async def finishing_namespaces(admin: ApiClient) -> AsyncIterator[None]:
    """Empty and finish each namespace that somebody deletes meanwhile."""
    listed = await admin.get(_path(_NAMESPACES))
    finishing = asyncio.create_task(
        _finish_all(admin, listed["metadata"]["resourceVersion"]), name="namespace controller"
    )
    try:
        yield
    finally:
        finishing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await finishing


async def _finish_all(admin: ApiClient, version: str) -> None:
    async for event in admin.watch(_path(_NAMESPACES), resource_version=version):
        if event.type == "MODIFIED" and event.object["metadata"].get("deletionTimestamp"):
            name = event.object["metadata"]["name"]
            for kind in _KINDS:
                inside = {path for path in await _objects(admin, kind) if f"/namespaces/{name}/" in path}
                await _remove_all(admin, kind, inside)
            await _finish(admin, name)


async def _finish(admin: ApiClient, name: str) -> None:
    await admin.update(f"{_path(_NAMESPACES)}/{name}/finalize", {"metadata": {"name": name}, "spec": {}})


async def kept(admin: ApiClient, *, installs: bool = False) -> Kept:
    """Return the objects that exist now; *installs*: also of the kinds that installations alone make."""
    kinds = (*_OF_INSTALLATIONS, *_KINDS) if installs else _KINDS
    return {kind: await _objects(admin, kind) for kind in kinds}


@asynccontextmanager
async def restored(admin: ApiClient, before: Kept) -> AsyncIterator[None]:
    """Restore at the end what was there *before*; what changes the server itself has to have ended by then."""
    try:
        yield
    finally:
        for kind, objects in before.items():
            await _restore(admin, kind, objects)


async def everything(admin: ApiClient) -> Set[str]:
    """The paths of all objects of the kinds that the product and its tests make."""
    return {path for objects in (await kept(admin, installs=True)).values() for path in objects}


def _path(kind: tuple[str, str], namespace: str = "") -> str:
    root, plural = kind
    return f"{root}/namespaces/{namespace}/{plural}" if namespace else f"{root}/{plural}"


async def _objects(admin: ApiClient, kind: tuple[str, str]) -> dict[str, Json]:
    """The objects of a kind by their paths."""
    found: dict[str, Json] = {}
    for one in await admin.list(_path(kind)):
        where = _path(kind, one["metadata"].get("namespace", ""))
        found[f"{where}/{one['metadata']['name']}"] = one
    return found


async def _restore(admin: ApiClient, kind: tuple[str, str], before: Mapping[str, Json]) -> None:
    now = await _objects(admin, kind)
    made = now.keys() - before.keys()
    for path in made:
        # Whom a test made wait for somebody would stay for all that follow, were that test to fail.
        if now[path]["metadata"].get("finalizers"):
            await _let_go(admin, path)
    await _remove_all(admin, kind, made)
    if made and kind == _LAST_REGISTRATIONS:
        await _unregistered(admin)
    if made and kind == _DEFINITIONS:
        await _undefined(admin, made)
    told = _TOLD.get(kind)
    if told is not None:
        for path, one in before.items():
            if told(now[path]) != told(one):
                # It may be another of that name by now.
                await admin.update(path, {**one, "metadata": now[path]["metadata"]})


async def _remove_all(admin: ApiClient, kind: tuple[str, str], paths: Set[str]) -> None:
    limit = asyncio.Semaphore(_AT_ONCE)

    async def remove(path: str) -> None:
        async with limit:
            await _remove(admin, path, is_namespace=kind == _NAMESPACES)

    async with asyncio.TaskGroup() as tasks:
        for path in paths:
            tasks.create_task(remove(path), name=path)


async def _remove(admin: ApiClient, path: str, *, is_namespace: bool) -> None:
    try:
        await admin.delete(path, grace_s=0)
        if is_namespace:
            await _finish(admin, path.rpartition("/")[2])
    except ApiStatusError as e:
        if e.status != 404:
            raise


async def _let_go(admin: ApiClient, path: str) -> None:
    try:
        await admin.patch(path, {"metadata": {"finalizers": None}})
    except ApiStatusError as e:
        if e.status != 404:
            raise


async def _undefined(admin: ApiClient, paths: Set[str]) -> None:
    """Wait until definitions are gone: until then the server serves their kinds, with objects that it still removes."""
    async with asyncio.timeout(_GONE_WITHIN_S):
        while not paths.isdisjoint(await _objects(admin, _DEFINITIONS)):  # noqa: ASYNC110 (a server tells nobody)
            await asyncio.sleep(0.05)


async def _unregistered(admin: ApiClient) -> None:
    """Wait until the API server calls the webhook no more, which it learns a moment after the registrations went."""
    async with asyncio.timeout(_UNREGISTERED_WITHIN_S):
        while True:
            try:
                await admin.create("/api/v1/namespaces/default/pods", _ASKS, {"dryRun": "All"})
            except ApiStatusError as e:
                if "failed calling webhook" not in e.message:
                    raise
            else:
                return
            await asyncio.sleep(0.05)
