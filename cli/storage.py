"""Tells a ledger which volumes and namespaces the cluster has, so that pods with volume claims can be judged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from cli.reads import Reads
from core.claims import StorageKind
from core.ledger import Ledger
from core.wire.namespaces import decode_namespace
from kube.errors import ApiError, ApiNotFoundError
from kube.listing import list_all
from kube.objects import page_decoder
from kube.storage import STORAGE

_NAMESPACES: Final = "/api/v1/namespaces"


async def read_storage(reads: Reads, ledger: Ledger) -> tuple[str, ...]:
    """Read all storage and namespaces into *ledger*, which counts no pods yet; notes on what may not be listed.

    Raises:
        ApiError: the server does not answer.
    """
    volumes, refused = ledger.volumes, list[str]()
    storage = volumes.storage
    sets: Mapping[StorageKind, Callable[[Any], object]] = {
        StorageKind.CLAIMS: storage.set_claim,
        StorageKind.VOLUMES: storage.set_volume,
        StorageKind.CLASSES: storage.set_class,
        StorageKind.NODES: volumes.set_limits,
        StorageKind.DRIVERS: storage.set_driver,
        StorageKind.CAPACITIES: storage.set_capacity,
        StorageKind.ATTACHMENTS: volumes.set_attachment,
    }
    for kind, (path, decode) in STORAGE.items():
        try:
            for one in (await list_all(reads, path, page_decoder(decode))).items:
                sets[kind](one)
        except ApiNotFoundError:
            pass  # a cluster that does not serve it has none
        except ApiError as e:
            if not e.status:
                raise
            refused.append(str(kind))
            continue
        del storage.unread[kind]
    try:
        found = (await list_all(reads, _NAMESPACES, page_decoder(decode_namespace))).items
        ledger.topology.set_namespaces({one.name: one.labels for one in found})
    except ApiError as e:
        if not e.status:
            raise
    return tuple(_notes(refused))


def _notes(refused: list[str]) -> Iterator[str]:
    if refused:
        yield f"you may not list {', '.join(refused)}; pods with volume claims are not judged"
