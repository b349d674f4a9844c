"""A real API server that many scenarios use one after the other: the manifests are applied once, nothing runs yet.

The webhook's registrations are kept apart: a scenario of a `Rig` begins where admission is over, one of a `Stage`
registers them again. The policies of pods and Bindings bind nothing here, because scenarios assign cards as
administrators; that of Nodes denies device plugins what is not theirs.
"""

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sandbox.client import ApiClient, ApiStatusError
from sandbox.demo.processes import Processes, free_port
from sandbox.demo.product import apply
from sandbox.players import registry
from sandbox.players.vendors import VENDORS
from tests.support.servers.manifests import Json, Runner, built, daily, find, kubectl, reached_at, text_of
from tests.support.servers.realapi import RealApi
from tests.support.servers.restored import Kept, kept
from tests.support.servers.stage_realapi import CERTS_MORE, make_person

_REGISTRATIONS: Final = tuple(
    f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations/cardshare"
    for kind in ("mutating", "validating")
)


_BINDINGS: Final = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
_POLICIES: Final = tuple(f"{_BINDINGS}/{name}.cardshare.io" for name in ("pods", "bindings"))
_NODE_POLICY: Final = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/nodes.cardshare.io"
# What a real plugin tells its kubelet, which writes the Node.
_ADVERTISED: Final = "".join(
    f", 'system:serviceaccount:kube-system:{account}={key}'"
    for account, keys in {
        "volcano-device-plugin": ("volcano.sh/gpu-memory", "volcano.sh/vgpu-*"),
        "hami-ascend": ("huawei.com/Ascend*",),
        "hami-device-plugin": ("nvidia.com/gpu",),
        "ascend-device-plugin-sa-*": ("huawei.com/npu-core",),
        "cambricon-device-plugin": ("cambricon.com/mlu.smlu.*",),
        "gcushare-device-plugin": ("enflame.com/drs-gcu",),
        **{account: (VENDORS[kind].resource,) for kind, account in registry.PLUGIN_ACCOUNTS.items() if kind in VENDORS},
    }.items()
    for key in keys
)
_UNBOUND_WITHIN_S: Final = 60.0
_ASSIGNED: Final[Json] = {
    "metadata": {"name": "assigned", "annotations": {"volcano.sh/vgpu-ids-new": "x"}},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """The server; bound to no event loop.

    documents: as applied. volcano_name: those of the overlay that places the pods of Volcano's scheduler too, which the
    examples speak of. registrations: of the same overlay, with the certificates' authority. before: what each scenario
    leaves there again.
    """

    api: RealApi
    ca_pem: bytes
    documents: tuple[Json, ...]
    volcano_name: tuple[Json, ...]
    registrations: tuple[Json, ...]
    before: Kept

    def client(self) -> ApiClient:
        """An administrator's, to be opened."""
        return ApiClient(server=self.api.url, token=self.api.admin_token, ca_pem=self.ca_pem)


async def prepare(api: RealApi, folder: Path) -> Prepared:
    """Apply the manifests and make certificates; *folder* is for files of what makes them."""
    reviews = free_port()
    documents = reached_at(await built(api, "default"), reviews)
    volcano_name = reached_at(await built(api, "volcano-name"), reviews)
    ca_pem = await asyncio.to_thread(api.ca_file.read_bytes)
    await kubectl(api, "apply", "-f", "-", text=text_of(volcano_name))
    async with (
        Processes(api.logs, os.environ) as processes,
        ApiClient(server=api.url, token=api.admin_token, ca_pem=ca_pem) as admin,
    ):
        runner = Runner(api=api, admin=admin, processes=processes, folder=folder)
        await runner.finish("certs", daily(volcano_name), CERTS_MORE)
        registrations = [await admin.get(path) for path in _REGISTRATIONS]
        for path in (*_REGISTRATIONS, *_POLICIES):
            await admin.delete(path)
        await _deny_beyond_their_own(admin)
        await _unbound(admin)
        await apply(admin, [find(documents, "ConfigMap", "cardshare-settings")])
        # Rights reach the authorizer a moment after they were made; those who need them find them there.
        await apply(admin, registry.documents())
        await make_person(admin)
        before = await kept(admin)
    return Prepared(
        api=api,
        ca_pem=ca_pem,
        documents=documents,
        volcano_name=volcano_name,
        registrations=tuple(map(_as_written, registrations)),
        before=before,
    )


async def _deny_beyond_their_own(admin: ApiClient) -> None:
    """Device plugins are denied what is not theirs of Nodes; of resources the players tell the server themselves."""
    variables = (await admin.get(_NODE_POLICY))["spec"]["variables"]
    (keys,) = (one for one in variables if one["name"] == "pluginNodeKeys")
    keys["expression"] = f"{keys['expression'].rstrip().removesuffix(']')}{_ADVERTISED}]"
    await admin.patch(_NODE_POLICY, {"spec": {"variables": variables}})
    await admin.patch(f"{_BINDINGS}/nodes.cardshare.io", {"spec": {"validationActions": ["Deny", "Audit"]}})


async def _unbound(admin: ApiClient) -> None:
    """Wait until the API server judges by no policy any more, which it learns a moment after they went."""
    async with asyncio.timeout(_UNBOUND_WITHIN_S):
        while True:
            try:
                await admin.create("/api/v1/namespaces/default/pods", _ASSIGNED, {"dryRun": "All"})
            except ApiStatusError:
                await asyncio.sleep(0.05)
            else:
                return


def _as_written(found: Json) -> Json:
    """A stored object as its creator wrote it."""
    name = {"name": found["metadata"]["name"]}
    return {**found, "metadata": name}
