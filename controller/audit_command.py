"""``python -m controller audit``: what is wrong in a cluster, from the API server's objects alone.

Needs no running controller: the configuration is read as the controller reads it, a ledger is made of all nodes and
pods, and everything in it that must not be is printed, a line each.
"""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, TextIO

from controller.config import SCHEDULER_MAP, Config, parse
from controller.documents import PLACES, Documents
from controller.standing import CHIPS_MAP, Standing
from core import audit
from core.catalog import standard_catalog
from core.errors import ConfigError
from core.model import Node, Pod
from core.wire.config_maps import ConfigMap, decode_config_map
from core.wire.nodes import decode_node
from core.wire.pods import decode_pod
from kube.calls import Calls, namespace_path
from kube.credentials import choose_source, mistake_in
from kube.errors import ApiError, ApiForbiddenError, ApiNotFoundError, CredentialsError, UndecodableError
from kube.listing import list_all
from kube.objects import page_decoder
from kube.transport import Transport

CLEAN: Final = 0
FINDINGS: Final = 1
CANNOT_TELL: Final = 4


def run(argv: Sequence[str], environ: Mapping[str, str], out: TextIO = sys.stdout) -> int:
    """Audit once; the exit code: 0 where nothing is wrong, 1 with findings, 4 where the cluster cannot be read.

    Raises:
        ConfigError: with every problem of flags and files.
    """
    config = parse(argv, environ)
    mistake = mistake_in(kubeconfig=config.kubeconfig, environ=environ)
    if mistake:
        raise ConfigError([mistake])
    standing = Standing(config, lambda _: None)
    try:
        found, nodes, pods = asyncio.run(_findings(config, standing, environ))
    except (ApiError, CredentialsError, UndecodableError) as e:
        print(f"controller audit: the cluster cannot be read: {e}", file=sys.stderr)
        return CANNOT_TELL
    for one in found:
        print(f"{one.fault.value}: node {one.node}: {one.text}", file=out)
    print(f"{nodes} nodes, {pods} pods on them: {len(found)} findings", file=out)
    return FINDINGS if found else CLEAN


async def _findings(
    config: Config, standing: Standing, environ: Mapping[str, str]
) -> tuple[tuple[audit.Finding, ...], int, int]:
    source = choose_source(kubeconfig=config.kubeconfig, environ=environ)
    async with Transport(source, user_agent="cardshare-audit") as transport:
        calls = Calls(transport)
        standing.take_scheduler(await _config_map(calls, standing, *SCHEDULER_MAP))
        standing.take_chips(await _config_map(calls, standing, *CHIPS_MAP))
        settings = standing.settings
        where = settings.device_config_namespace, settings.device_config_name
        standing.take_devices(await _config_map(calls, standing, *where))
        documents = await _documents(transport, standing)
        nodes = (await list_all(transport, "/api/v1/nodes", page_decoder(decode_node))).items
        pods = (await list_all(transport, "/api/v1/pods", page_decoder(decode_pod))).items
    ours = standing.settings.scheduler_names
    ledger = audit.rebuilt(
        standard_catalog(),
        standing.tables,
        standing.settings,
        (_with_documents(node, documents) for node in nodes),
        pods,
    )
    foreign = {pod.uid for pod in pods if pod.scheduler_name not in ours}
    return audit.faults(ledger, foreign), len(nodes), sum(map(_holds, pods))


def _holds(pod: Pod) -> bool:
    return bool(pod.node_name) and not pod.finished


def _with_documents(node: Node, documents: Documents) -> Node:
    found = documents.of(node.name)
    return replace(node, documents=found) if found else node


async def _config_map(calls: Calls, standing: Standing, namespace: str, name: str) -> ConfigMap | None:
    """A ConfigMap, None where there is none, or where it may not be read or is not believed: so has the controller."""
    if not standing.believes(namespace):
        return None
    with suppress(ApiNotFoundError, ApiForbiddenError):
        return decode_config_map(await calls.get_config_map(namespace, name))
    return None


async def _documents(transport: Transport, standing: Standing) -> Documents:
    documents = Documents()
    for place in [one for one in PLACES if standing.believes(one.namespace)]:
        with suppress(ApiNotFoundError, ApiForbiddenError):
            page = await list_all(
                transport,
                f"{namespace_path(place.namespace)}/configmaps",
                page_decoder(decode_config_map),
                selectors={"labelSelector": place.selector},
            )
            documents.replace(place, page.items)
    return documents
