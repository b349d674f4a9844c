"""Reads and writes the Secrets of certificates through the API server."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import quote

import msgspec

from certs.files import CA_FILE, CA_KEY_FILE, CERT_FILE, KEY_FILE
from certs.pair import StoredPem
from core.wire.objects import ObjectMeta
from kube.calls import MERGE_PATCH, Body
from kube.errors import ApiNotFoundError, UndecodableError

_MANAGER: Final = "cardshare-certs"


class ClusterCalls(Protocol):
    """The part of `kube.calls.Calls` that certificates need."""

    async def get_raw(self, path: str, params: Mapping[str, str] | None = None) -> bytes:
        """See `Calls.get_raw`."""
        ...

    async def apply(self, path: str, value: Body, *, manager: str) -> bytes:
        """See `Calls.apply`."""
        ...

    async def patch(self, path: str, changes: Body, *, content_type: str = MERGE_PATCH, dry_run: bool = False) -> bytes:
        """See `Calls.patch`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSecret:
    """A Secret as read: its name, content and resourceVersion."""

    name: str
    stored: StoredPem
    version: str


class _Secret(msgspec.Struct, frozen=True, rename="camel"):
    metadata: ObjectMeta
    data: dict[str, str] | None = None


_decoder: Final = msgspec.json.Decoder(_Secret)


async def fetch(calls: ClusterCalls, namespace: str, name: str) -> FoundSecret:
    """Return the Secret; create an empty one if it does not exist.

    It is created by an apply: then the right to create is limited to the Secret's name, and a Secret that another
    process created in the meantime stays.

    Raises:
        ApiError: the API server refuses or does not answer.
        UndecodableError: the object has an unexpected form.
    """
    path = _path(namespace, name)
    try:
        answer = await calls.get_raw(path)
    except ApiNotFoundError:
        labels = {"app.kubernetes.io/managed-by": "cardshare"}
        metadata = {"name": name, "namespace": namespace, "labels": labels}
        empty = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}
        answer = await calls.apply(path, empty, manager=_MANAGER)
    try:
        secret = _decoder.decode(answer)
    except msgspec.MsgspecError as e:
        raise UndecodableError(f"Secret {namespace}/{name} cannot be read: {e}") from None
    complaints: list[str] = []
    data = secret.data or {}
    stored = StoredPem(
        cert_pem=_decoded(data, CERT_FILE, complaints),
        key_pem=_decoded(data, KEY_FILE, complaints),
        ca_pem=_decoded(data, CA_FILE, complaints),
        ca_key_pem=_decoded(data, CA_KEY_FILE, []),
        complaints=tuple(complaints),
    )
    return FoundSecret(name=name, stored=stored, version=secret.metadata.resource_version or "")


async def store(calls: ClusterCalls, namespace: str, found: FoundSecret, wanted: StoredPem) -> None:
    """Write the parts of *wanted* and remove its missing parts, only in the version that was read.

    Two concurrent renewals must not each leave half of a pair.

    Raises:
        ApiError: the API server refuses (409 if the Secret changed in the meantime) or does not answer.
    """
    parts = (
        (CERT_FILE, found.stored.cert_pem, wanted.cert_pem),
        (KEY_FILE, found.stored.key_pem, wanted.key_pem),
        (CA_FILE, found.stored.ca_pem, wanted.ca_pem),
        (CA_KEY_FILE, found.stored.ca_key_pem, wanted.ca_key_pem),
    )
    data = {name: base64.b64encode(new).decode() if new else None for name, old, new in parts if new or old}
    changes = {"metadata": {"resourceVersion": found.version}, "data": data}
    await calls.patch(_path(namespace, found.name), changes, content_type=MERGE_PATCH)


def _decoded(data: Mapping[str, str], name: str, complaints: list[str]) -> bytes:
    try:
        return base64.b64decode(data.get(name, ""), validate=True)
    except (binascii.Error, ValueError):
        complaints.append(f"{name} is no base64")
        return b""


def _path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/secrets/{quote(name, safe='')}"
