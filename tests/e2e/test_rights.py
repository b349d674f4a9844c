"""The rights that deploy/ gives are those that are used, by account, verb, resource, namespace and name.

What is used stands in the audit log of a real API server on which the scenarios named here were played; nothing is
exempt. A right that none of them uses goes, or gets a scenario that needs it.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from core.names import CERTIFICATES_KEPT
from sandbox.client import ApiClient
from sandbox.demo.processes import Processes, Running
from sandbox.demo.product import NAMESPACE
from tests.e2e import test_native_groups
from tests.integration import test_failing_plugins
from tests.support.servers import request_log
from tests.support.servers.fixtures_realapi import binaries_or_skip, logs_folder
from tests.support.servers.manifests import Json, Runner, find
from tests.support.servers.native_groups import groups_of
from tests.support.servers.prepared import Prepared, prepare
from tests.support.servers.realapi import RealApi
from tests.support.servers.stage_prepared import real_stage
from tests.support.servers.stage_realapi import CERTS_MORE
from tests.support.worlds.controller_rig import NODES, OpensRig, pod, share
from tests.support.worlds.ending import ending_with_audit
from tests.support.worlds.rig_realapi import real_rig
from tests.support.worlds.scenarios import of_rights

ACCOUNTS: Final = ("cardshare-certs", "cardshare-controller", "cardshare-webhook")
SECRETS: Final = f"/api/v1/namespaces/{NAMESPACE}/secrets"
KEPT: Final = ("cardshare-ca", "cardshare-webhook-tls", "cardshare-controller-tls")
KEEPER: Final = f"/api/v1/namespaces/{NAMESPACE}/pods/cardshare-certs-keeper-0"
LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/volcano-system/leases"
PODGROUP: Final[Json] = {"kind": "PodGroup", "listKind": "PodGroupList", "plural": "podgroups", "singular": "podgroup"}
OPEN: Final[Json] = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
COSCHEDULING: Final[Json] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "podgroups.scheduling.x-k8s.io",
        "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/scheduler-plugins/pull/50"},
    },
    "spec": {
        "group": "scheduling.x-k8s.io",
        "names": PODGROUP,
        "scope": "Namespaced",
        "versions": [{"name": "v1alpha1", "served": True, "storage": True, "schema": OPEN}],
    },
}


class Right(NamedTuple):
    """One right, or one use of it; resource with its subresource. "" for a namespace or a name: all of them."""

    account: str
    verb: str
    group: str
    resource: str
    namespace: str
    name: str

    def covers(self, use: "Right") -> bool:
        return self[:4] == use[:4] and self.namespace in {"", use.namespace} and self.name in {"", use.name}


def granted(documents: Sequence[Json]) -> Iterator[Right]:
    """What the roles bound to our accounts grant, right by right."""
    for binding in documents:
        for subject in binding.get("subjects", ()):
            where, reference = binding["metadata"].get("namespace", ""), binding["roleRef"]
            (role,) = (
                one
                for one in documents
                if (one["kind"], one["metadata"]["name"]) == (reference["kind"], reference["name"])
                and one["metadata"].get("namespace", where) == where
            )
            for rule in role["rules"]:
                for group in rule.get("apiGroups", ()):
                    for resource in rule["resources"]:
                        for verb in rule["verbs"]:
                            for name in rule.get("resourceNames", ("",)):
                                yield Right(subject["name"], verb, group, resource, where, name)


def used(logs: Path) -> Iterator[Right]:
    """What our accounts did; who makes an object by an apply has created it too."""
    for one in request_log.read(logs):
        if one.agent.startswith("cardshare") and one.status not in {401, 403}:
            for verb in (one.verb, *(["create"] if (one.verb, one.status) == ("patch", 201) else ())):
                yield Right(one.account, verb, one.group, one.resource, one.namespace, one.name)


async def hold_volcanos_lease(rig: OpensRig) -> None:
    """The name of Volcano's scheduler is ours, and so is its Lease."""
    async with rig(nodes=()) as world:
        await world.ensure("/api/v1/namespaces", "volcano-system")
        await world.ensure(LEASES, "volcano")
        await world.controller("--scheduler-name", "volcano")

        async def held() -> bool:
            return bool((await world.client.get(f"{LEASES}/volcano")).get("spec", {}).get("holderIdentity"))

        await world.until(held)


async def tell_again(rig: OpensRig) -> None:
    """A pod waits for one cause, for another, and for the first again, of which a former process has told."""
    node = "/api/v1/nodes/t4-a"
    async with rig(nodes=NODES[:1]) as world:
        first = await world.controller()
        await world.add(pod("large", share(99_999)))
        before = await world.waits("large", "MiB")
        await world.client.patch(node, {"spec": {"unschedulable": True}})
        await world.waits("large", "unschedulable")
        await world.processes.stop(first)
        await world.controller(name="second")
        await world.client.patch(node, {"spec": {"unschedulable": None}})
        await world.waits("large", before["message"])

        async def counted() -> bool:
            events = await world.client.list("/api/v1/namespaces/default/events")
            # An API server that starts slowly tells there of a ServiceCIDR without a name.
            return any(one["involvedObject"].get("name") == "large" and one["count"] > 1 for one in events)

        await world.until(counted)


async def place_a_group_of_kubernetes(rig: OpensRig) -> None:
    """A group of Kubernetes' own is told that it has its places; Coscheduling's kind is installed beside it."""
    async with rig(nodes=NODES[:1]) as world:
        await world.apply([COSCHEDULING])
        await world.controller()
        await test_native_groups.test_members_wait_for_their_group_and_it_is_told_that_they_have_their_places(world)


async def pod_turned_away(staged: Any) -> None:
    """A pod that its plugin did not serve is cleared of what could still be served."""
    node, resource = test_failing_plugins.VGPU, "vgpu-memory"
    play = test_failing_plugins.test_the_next_pod_gets_its_own_share_after_a_failed_call
    await play(staged, node, resource, "CUDA_DEVICE_MEMORY_LIMIT_0", "9001m")


PLAYED: Final[Sequence[Callable[..., Awaitable[None]]]] = (
    hold_volcanos_lease,
    tell_again,
    place_a_group_of_kubernetes,
    pod_turned_away,
    *of_rights(),
)


async def heal(prepared: Prepared, folder: Path) -> None:
    """Delete each Secret under the keeper of certificates, which tells by its pod's condition how it goes."""
    workload = find(prepared.documents, "Deployment", "cardshare-certs-keeper")
    async with prepared.client() as admin, Processes(prepared.api.logs / "keeper", {}) as processes:
        runner = Runner(api=prepared.api, admin=admin, processes=processes, folder=folder)
        keeper, _ = await runner.start("keeper", workload, CERTS_MORE)
        await _until_said(keeper, "cardshare-controller-tls: good")
        for name in KEPT:
            await admin.delete(f"{SECRETS}/{name}")
            await _until_said(keeper, f"{name}: was missing")
        async with asyncio.timeout(90):
            while not await _is_told(admin):  # noqa: ASYNC110 (the cluster tells nobody)
                await asyncio.sleep(0.1)


async def _is_told(admin: ApiClient) -> bool:
    conditions = (await admin.get(KEEPER)).get("status", {}).get("conditions", ())
    # No registration is here that could trust the authority.
    return any((one["type"], one["reason"]) == (CERTIFICATES_KEPT, "Untrusted") for one in conditions)


async def _until_said(running: Running, text: str) -> None:
    async with asyncio.timeout(90):
        while text not in running.log_tail():
            assert running.process.returncode is None, running.log_tail()
            await asyncio.sleep(0.1)


async def test_every_right_is_used_and_nothing_beyond_them(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory):
    logs = logs_folder("rights", tmp_path_factory)
    logs.mkdir(parents=True, exist_ok=True)
    binaries = binaries_or_skip()
    arguments = (*request_log.write_policy(logs), *groups_of(binaries.kube_apiserver).arguments)
    async with RealApi(binaries, logs=logs, apiserver_args=arguments) as api:
        prepared = await prepare(api, tmp_path)
        for at, play in enumerate(PLAYED):
            folder = tmp_path / str(at)
            folder.mkdir()
            openers = {
                "rig": ending_with_audit(partial(real_rig, prepared, folder, play.__name__)),
                "staged": ending_with_audit(partial(real_stage, prepared, folder, play.__name__)),
            }
            await play(**{name: openers[name] for name in inspect.signature(play).parameters})
        await heal(prepared, tmp_path)
    rights = {one for one in granted(prepared.volcano_name) if one.account in ACCOUNTS}
    uses = set(used(logs))
    assert sorted(one for one in rights if not any(one.covers(use) for use in uses)) == []
    assert sorted(use for use in uses if not any(one.covers(use) for one in rights)) == []
