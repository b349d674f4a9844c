"""ResourceClaims and ResourceSlices: from the API server's JSON to allocated devices and their nodes.

Source: Kubernetes API reference, resource.k8s.io/v1.
"""

import sys
from typing import Final

import msgspec

from core.claims import Device, Pool, ResourceClaim, ResourceSlice
from core.model import NodeName
from core.wire import reading
from core.wire.objects import NamedMeta, Terms

# Device attributes that identify a card: its own id, and the id of the card that it is a part of. Source:
# dra-driver-nvidia-gpu, deviceinfo.go; HAMi's k8s-dra-driver, hami_core.go.
_IDS: Final = ("uuid", "parentUUID")
_NAME: Final = "metadata.name"


class _Result(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    driver: str = ""
    pool: str = ""
    device: str = ""
    # Access for monitoring devices that others use; it excludes no one.
    admin_access: bool | None = None


class _Results(msgspec.Struct, frozen=True, gc=False):
    results: tuple[_Result, ...] | None = None


class _Allocation(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    devices: _Results | None = None
    node_selector: Terms | None = None


class _ClaimStatus(msgspec.Struct, frozen=True, gc=False):
    allocation: _Allocation | None = None


class _ClaimObject(msgspec.Struct, frozen=True, gc=False):
    metadata: NamedMeta
    status: _ClaimStatus | None = None


def _claim(found: _ClaimObject) -> ResourceClaim:
    key = found.metadata.key
    allocation = found.status.allocation if found.status else None
    if allocation is None or allocation.devices is None:
        return ResourceClaim(key)
    devices = [
        (Pool(sys.intern(one.driver), sys.intern(one.pool)), one.device)
        for one in allocation.devices.results or ()
        if not one.admin_access
    ]
    return ResourceClaim(key, tuple(devices), _named(allocation.node_selector))


def _named(selector: Terms | None) -> tuple[NodeName, ...]:
    """Return the nodes that *selector* names."""
    terms = (selector.node_selector_terms if selector else None) or ()
    return tuple(
        dict.fromkeys(
            NodeName(sys.intern(value))
            for term in terms
            for field in term.match_fields or ()
            if (field.key, field.operator) == (_NAME, "In")
            for value in field.values or ()
        )
    )


decode_resource_claim: Final = reading.reader("ResourceClaim", _ClaimObject, _claim)
resource_claim_from_object: Final = reading.converter("ResourceClaim", _ClaimObject, _claim)


class _Attribute(msgspec.Struct, frozen=True, gc=False):
    string: str | None = None


class _Device(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    name: str = ""
    attributes: dict[str, _Attribute] | None = None
    node_name: str | None = ""


class _Pool(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    generation: int = 0


class _SliceSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    driver: str = ""
    pool: _Pool = _Pool()
    node_name: str | None = ""
    devices: tuple[_Device, ...] | None = None


class _SliceObject(msgspec.Struct, frozen=True, gc=False):
    metadata: NamedMeta
    spec: _SliceSpec = _SliceSpec()


def _slice(found: _SliceObject) -> ResourceSlice:
    spec = found.spec
    return ResourceSlice(
        name=found.metadata.name,
        pool=Pool(sys.intern(spec.driver), sys.intern(spec.pool.name)),
        generation=spec.pool.generation,
        devices={one.name: _device(one, spec) for one in spec.devices or ()},
    )


def _device(found: _Device, spec: _SliceSpec) -> Device:
    # A name without a domain is the driver's own.
    attributes = {key.removeprefix(f"{spec.driver}/"): one.string for key, one in (found.attributes or {}).items()}
    ids = frozenset([value for key in _IDS if (value := attributes.get(key))])
    return Device(NodeName(sys.intern(found.node_name or spec.node_name or "")), ids)


decode_resource_slice: Final = reading.reader("ResourceSlice", _SliceObject, _slice)
resource_slice_from_object: Final = reading.converter("ResourceSlice", _SliceObject, _slice)
