"""Fetches what the commands show: nodes, pods, events, and the device plugins' configuration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar
from urllib.parse import quote

import msgspec

from core.catalog import standard_catalog
from core.errors import ConfigError
from core.ledger import Ledger
from core.model import Pod
from core.settings import Settings, Tables
from core.wire.config_maps import decode_config_map
from core.wire.device_config import decode_device_config
from core.wire.nodes import decode_node
from core.wire.pods import decode_pod
from kube.calls import Calls
from kube.errors import ApiError, ApiNotFoundError
from kube.objects import page_decoder

_T = TypeVar("_T")
_PAGE: Final = "500"
_DEVICE_CONFIG_KEY: Final = "device-config.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """The cluster's cards, counted: *ledger* as promised by the API objects, *notes* on what could not be read."""

    ledger: Ledger
    notes: tuple[str, ...]


class EventObject(msgspec.Struct, frozen=True, rename="camel"):
    """A core/v1 Event as far as it is shown. Source: Kubernetes API reference, core/v1 Event."""

    reason: str = ""
    message: str | None = ""
    count: int | None = 1
    last_timestamp: str | None = ""


_EVENTS: Final = page_decoder(msgspec.json.Decoder(EventObject).decode)


async def fetch_holdings(calls: Calls) -> Holdings:
    """List nodes and bound pods and count who holds what.

    Raises:
        ApiError: a list is refused or does not come.
    """
    settings = Settings()
    tables, notes = await _fetch_tables(calls, settings)
    ledger = Ledger(standard_catalog(), tables, settings)
    for node in await _fetch_all(calls, "/api/v1/nodes", decode_node, {}):
        ledger.set_node(node)
    for pod in await _fetch_all(calls, "/api/v1/pods", decode_pod, {"fieldSelector": "spec.nodeName!="}):
        ledger.count(pod)
    strays = (f"pod {pod} is bound to node {node}, which does not exist" for node, pod in ledger.stray_pods())
    return Holdings(ledger=ledger, notes=(*notes, *strays))


async def fetch_pod(calls: Calls, namespace: str, name: str) -> Pod:
    """The pod.

    Raises:
        ApiNotFoundError: there is none of that name.
        ApiError: any other refusal.
    """
    return decode_pod(await calls.get_pod(namespace, name))


async def fetch_events(calls: Calls, namespace: str, name: str) -> tuple[EventObject, ...]:
    """The events about the pod, oldest first."""
    selector = f"involvedObject.kind=Pod,involvedObject.name={name}"
    path = f"/api/v1/namespaces/{quote(namespace)}/events"
    events = _EVENTS(await calls.get_raw(path, {"fieldSelector": selector})).items
    return tuple(sorted(events, key=lambda event: event.last_timestamp or ""))


async def _fetch_tables(calls: Calls, settings: Settings) -> tuple[Tables, list[str]]:
    """The device plugins' configuration, or its defaults with a note: figures may then be in another unit."""
    name, namespace = settings.device_config_name, settings.device_config_namespace
    try:
        found = decode_config_map(await calls.get_config_map(namespace, name))
        text = found.texts.get(_DEVICE_CONFIG_KEY, "")
        return Tables(vgpu=decode_device_config(text).vgpu) if text else Tables(), []
    except ApiNotFoundError:
        return Tables(), []
    except (ApiError, ConfigError) as e:
        if isinstance(e, ApiError) and not e.status:
            raise  # nobody answers: asking for the nodes would wait as long again
        return Tables(), [f"ConfigMap {namespace}/{name} is not used ({e}); resource names and units are the defaults"]


async def _fetch_all(calls: Calls, path: str, decode: Callable[[bytes], _T], params: dict[str, str]) -> list[_T]:
    decode_page = page_decoder(decode)
    items: list[_T] = []
    token = ""
    while True:
        more = {"continue": token} if token else {}
        page = decode_page(await calls.get_raw(path, {"limit": _PAGE, **params, **more}))
        items += page.items
        token = page.continue_token
        if not token:
            return items
