"""The messages that kubelet and device plugins exchange, as bytes.

Source: Kubernetes, k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1/api.proto and podresources/v1/api.proto (v1.36).
Written by hand: of protobuf they need only strings and messages.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

VERSION: Final = "v1beta1"
REGISTER: Final = "/v1beta1.Registration/Register"
DEVICE_PLUGIN: Final = "v1beta1.DevicePlugin"
LIST_POD_RESOURCES: Final = "/v1.PodResourcesLister/List"
HEALTHY: Final = "Healthy"
UNHEALTHY: Final = "Unhealthy"
_VARINT: Final = 0
_BYTES: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Devices of one resource that one container has."""

    namespace: str
    pod: str
    resource: str
    device_ids: frozenset[str]


def register_request(endpoint: str, resource: str) -> bytes:
    """A plugin that serves *resource* on the socket *endpoint*, which is relative to kubelet's folder."""
    return _text(1, VERSION) + _text(2, endpoint) + _text(3, resource)


def device_list(health_by_id: Mapping[str, str]) -> bytes:
    """A ListAndWatchResponse."""
    return b"".join(_message(1, _text(1, one) + _text(2, health)) for one, health in health_by_id.items())


def allocate_request(body: bytes) -> tuple[tuple[str, ...], ...]:
    """The device ids that kubelet asks for, for each container of an AllocateRequest."""
    asks = (value for number, value in _fields(body) if number == 1)
    return tuple(tuple(one.decode() for number, one in _fields(ask) if number == 1) for ask in asks)


def allocate_response(envs: Sequence[Mapping[str, str]]) -> bytes:
    """An AllocateResponse with the environment of each container."""
    return b"".join(
        _message(1, b"".join(_message(1, _text(1, key) + _text(2, value)) for key, value in env.items()))
        for env in envs
    )


def pod_resources(body: bytes) -> tuple[Held, ...]:
    """What containers have, of a ListPodResourcesResponse; kubelet has an entry for each device."""
    found = []
    for pod in _all(body, 1):
        name, namespace = (_all(pod, number)[0].decode() for number in (1, 2))
        for container in _all(pod, 3):
            ids_by_resource: dict[str, set[str]] = {}
            for devices in _all(container, 2):
                ids = ids_by_resource.setdefault(_all(devices, 1)[0].decode(), set())
                ids.update(one.decode() for one in _all(devices, 2))
            for resource, ids in ids_by_resource.items():
                found.append(Held(namespace=namespace, pod=name, resource=resource, device_ids=frozenset(ids)))
    return tuple(found)


def _all(body: bytes, wanted: int) -> list[bytes]:
    return [value for number, value in _fields(body) if number == wanted]


def _fields(body: bytes) -> Iterator[tuple[int, bytes]]:
    """Number and content of each field that has a length; others are passed over."""
    at = 0
    while at < len(body):
        key, at = _read_varint(body, at)
        number, kind = key >> 3, key & 7
        size, at = _read_varint(body, at)
        if kind == _BYTES:
            yield number, body[at : at + size]
            at += size
        elif kind != _VARINT:
            raise ValueError(f"field {number} has wire type {kind}, which none of these messages has")


def _read_varint(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = body[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _text(number: int, text: str) -> bytes:
    return _message(number, text.encode())


def _message(number: int, body: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(body)) + body
