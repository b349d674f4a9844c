"""The CA bundles of webhook configurations: reads, checks and completes them."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from urllib.parse import quote, urlsplit

import msgspec

from certs.pair import merged_bundle
from certs.secrets import ClusterCalls
from kube.calls import JSON_PATCH
from kube.errors import ApiNotFoundError, UndecodableError

_CONFIGURATIONS: Final = "/apis/admissionregistration.k8s.io/v1"
_KINDS: Final = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")


@dataclass(frozen=True, slots=True, kw_only=True)
class Callee:
    """Identifies the webhook entries that call this webhook.

    namespace, service: the Service that entries name; service is "" if they use only URLs. hosts: the hosts of such
    URLs.
    """

    namespace: str
    service: str
    hosts: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trusted:
    """The result of `trust`. patched: changed configurations by kind and name; problems: failures by configuration."""

    patched: tuple[str, ...]
    problems: dict[str, str]


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class _Service(msgspec.Struct, frozen=True):
    namespace: str = ""
    name: str = ""


class _ClientConfig(msgspec.Struct, frozen=True, rename="camel"):
    service: _Service | None = None
    url: str = ""
    ca_bundle: str = ""


class _Webhook(msgspec.Struct, frozen=True, rename="camel"):
    client_config: _ClientConfig


class _Configuration(msgspec.Struct, frozen=True, rename="camel"):
    metadata: _Metadata
    webhooks: tuple[_Webhook, ...] | None = None


_decoder: Final = msgspec.json.Decoder(_Configuration)


async def trust(calls: ClusterCalls, names: tuple[str, ...], callee: Callee, ca_pem: bytes, now: datetime) -> Trusted:
    """Add *ca_pem* to the bundles of all entries in *names* that call *callee*.

    Raises:
        ApiError: the API server refuses or does not answer.
        UndecodableError: a configuration has an unexpected form.
    """
    patched: list[str] = []
    problems: dict[str, str] = {}
    for name in names:
        found = [await _fetch(calls, f"{kind}/{quote(name, safe='')}") for kind in _KINDS]
        entries = [webhook for one in found if one for webhook in one.webhooks or ()]
        if not any(found):
            problems[name] = f"webhook configuration {name}: there is none of that name; create it, then run this again"
        elif not any(_calls(webhook, callee) for webhook in entries):
            named = f"Service {callee.namespace}/{callee.service}" if callee.service else "a URL of ours"
            problems[name] = f"webhook configuration {name}: no entry names {named}; correct --service or its entries"
        for kind, configuration in zip(_KINDS, found, strict=True):
            changes = _changes(configuration, callee, ca_pem, now) if configuration else []
            if changes:
                path = f"{_CONFIGURATIONS}/{kind}/{quote(name, safe='')}"
                await calls.patch(path, msgspec.json.encode(changes), content_type=JSON_PATCH)
                patched.append(f"{kind}/{name}")
    return Trusted(patched=tuple(patched), problems=problems)


async def _fetch(calls: ClusterCalls, name: str) -> _Configuration | None:
    try:
        answer = await calls.get_raw(f"{_CONFIGURATIONS}/{name}")
    except ApiNotFoundError:
        return None
    try:
        return _decoder.decode(answer)
    except msgspec.MsgspecError as e:
        raise UndecodableError(f"{name} cannot be read: {e}") from e


def _changes(configuration: _Configuration, callee: Callee, ca_pem: bytes, now: datetime) -> list[dict[str, str]]:
    changes: list[dict[str, str]] = []
    for index, webhook in enumerate(configuration.webhooks or ()):
        if not _calls(webhook, callee):
            continue
        try:
            current = base64.b64decode(webhook.client_config.ca_bundle, validate=True)
        except (binascii.Error, ValueError):
            current = b""
        bundle = merged_bundle(ca_pem, current, now)
        if bundle != current:
            path = f"/webhooks/{index}/clientConfig/caBundle"
            changes.append({"op": "add", "path": path, "value": base64.b64encode(bundle).decode()})
    if not changes:
        return []
    # The index is correct only in the version that was read.
    version = configuration.metadata.resource_version
    return [{"op": "test", "path": "/metadata/resourceVersion", "value": version}, *changes]


def _calls(webhook: _Webhook, callee: Callee) -> bool:
    config = webhook.client_config
    if config.service is not None:
        return (config.service.namespace, config.service.name) == (callee.namespace, callee.service)
    try:
        host = urlsplit(config.url).hostname or ""
    except ValueError:
        return False
    return host in callee.hosts
