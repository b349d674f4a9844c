"""``python -m controller audit``: checks a cluster for faults, from the API server's objects alone.

No controller needs to run. The command reads the configuration as the controller does, builds a ledger of all nodes and
pods, and prints every violated invariant on a line.
"""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, TextIO

from controller.config import Config, parse
from controller.documents import Documents, places
from core import audit
from core.catalog import standard_catalog
from core.configuration import SCHEDULER_MAP, Source, believes, device_maps
from core.errors import ConfigError
from core.model import Node, Pod
from core.wire.config_maps import ConfigMap, decode_config_map
from core.wire.nodes import decode_node
from core.wire.pods import decode_pod
from kube.calls import namespace_path, page_decoder
from kube.configuration import text_of
from kube.credentials import choose_source, mistake_in
from kube.errors import ApiError, ApiForbiddenError, ApiNotFoundError, CredentialsError, UndecodableError
from kube.reflector import list_all
from kube.transport import Transport
from runtime.configuration import ActiveConfiguration

CLEAN: Final = 0
FINDINGS: Final = 1
CANNOT_TELL: Final = 4


def run(argv: Sequence[str], environ: Mapping[str, str], out: TextIO = sys.stdout) -> int:
    """Audit once; return 0 without findings, 1 with findings, 4 if the cluster cannot be read.

    Raises:
        ConfigError: lists every problem of flags and files.
    """
    config = parse(argv, environ)
    mistake = mistake_in(kubeconfig=config.kubeconfig, environ=environ)
    if mistake:
        raise ConfigError([mistake])
    active = ActiveConfiguration(
        config.files,
        standard_catalog(),
        scheduler_names=config.scheduler_names,
        hami_config=config.hami_config,
    )
    try:
        found, nodes, pods = asyncio.run(_findings(config, active, environ))
    except (ApiError, CredentialsError, UndecodableError) as e:
        print(f"controller audit: the cluster cannot be read: {e}", file=sys.stderr)
        return CANNOT_TELL
    for one in found:
        print(f"{one.fault.value}: node {one.node}: {one.text}", file=out)
    print(f"{nodes} nodes, {pods} pods on them: {len(found)} findings", file=out)
    return FINDINGS if found else CLEAN


async def _findings(
    config: Config, active: ActiveConfiguration, environ: Mapping[str, str]
) -> tuple[tuple[audit.AuditFinding, ...], int, int]:
    credentials = choose_source(kubeconfig=config.kubeconfig, environ=environ)
    async with Transport(credentials, user_agent="cardshare-audit") as transport:
        found = await _config_map(transport, config, SCHEDULER_MAP)
        active.take(active.decode(text_of(Source.SCHEDULER_MAP, SCHEDULER_MAP, found)))
        for source, name in device_maps(active.settings).items():
            if name:
                active.take(active.decode(text_of(source, name, await _config_map(transport, config, name))))
        documents = await _documents(transport, config)
        nodes = (await list_all(transport, "/api/v1/nodes", page_decoder(decode_node))).items
        pods = (await list_all(transport, "/api/v1/pods", page_decoder(decode_pod))).items
    ours = active.settings.scheduler_names
    ledger = audit.rebuilt(
        standard_catalog(),
        active.tables,
        active.settings,
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


async def _config_map(transport: Transport, config: Config, place: str) -> ConfigMap | None:
    """Return a ConfigMap; None if it is missing, unreadable or not trusted, as in the controller.

    It is listed by name, as the controller does, whose account has no other right to it.
    """
    namespace, _, name = place.partition("/")
    if not believes(namespace, config.trusted):
        return None
    with suppress(ApiNotFoundError, ApiForbiddenError):
        page = await list_all(
            transport,
            f"{namespace_path(namespace)}/configmaps",
            page_decoder(decode_config_map),
            selectors={"fieldSelector": f"metadata.name={name}"},
        )
        return next(iter(page.items), None)
    return None


async def _documents(transport: Transport, config: Config) -> Documents:
    documents = Documents(standard_catalog())
    for place in [one for one in places(standard_catalog()) if believes(one.namespace, config.trusted)]:
        with suppress(ApiNotFoundError, ApiForbiddenError):
            page = await list_all(
                transport,
                f"{namespace_path(place.namespace)}/configmaps",
                page_decoder(decode_config_map),
                selectors={"labelSelector": place.selector},
            )
            documents.replace(place, page.items)
    return documents
