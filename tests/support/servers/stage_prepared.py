"""The scenarios' stage on a real API server: webhook and controller as their manifests have them, and the players."""

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sandbox.client import ApiClient
from sandbox.demo.play import KubectlUser
from sandbox.demo.processes import Processes, free_port
from sandbox.demo.product import NO_PROCESSES, apply
from sandbox.demo.stage import NODES, Stage
from sandbox.nodes.kubelet import KubeletSettings
from sandbox.players.volcano import install as install_volcano
from tests.support.servers.manifests import Runner, find, reached_at
from tests.support.servers.playing import playing
from tests.support.servers.prepared import Prepared
from tests.support.servers.restored import restored
from tests.support.servers.stage_realapi import PERSON, start_product
from tests.support.worlds.forking import forked


@asynccontextmanager
async def real_stage(
    prepared: Prepared,
    folder: Path,
    name: str,
    kubelet: KubeletSettings | None = None,
    nodes: Sequence[Mapping[str, Any]] = NODES,
    *,
    volcano: bool = False,
) -> AsyncIterator[Stage]:
    """The server with *nodes* and the product; all that is made there goes in the end. Logs go to folder *name*.

    volcano: whether Volcano's kinds are installed.
    """
    api = prepared.api
    async with (
        prepared.client() as admin,
        restored(admin, prepared.before),
        Processes(api.logs / name, os.environ, launch=forked) as processes,
        playing(admin, nodes, kubelet or KubeletSettings()) as (_, records),
    ):
        if volcano:
            await install_volcano(admin)
        runner = Runner(api=api, admin=admin, processes=processes, folder=folder)
        shipped = find(prepared.volcano_name, "ConfigMap", "cardshare-settings")
        settings = {**shipped, "data": {key: text + NO_PROCESSES for key, text in shipped["data"].items()}}
        reviews = free_port()
        await apply(admin, [settings, *reached_at(prepared.registrations, reviews)])
        product = await start_product(runner, prepared.volcano_name, reviews)
        token = await api.token_for(PERSON, "default")
        async with ApiClient(server=api.url, token=token, ca_pem=prepared.ca_pem, timeout_s=30) as client:
            yield Stage(
                url=api.url,
                admin=admin,
                records=records,
                product=product,
                person=KubectlUser(client),
                kubeconfig=api.write_kubeconfig(folder / "kubeconfig", token),
            )
