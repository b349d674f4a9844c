"""Devices that kubelet lists individually in a pod's status since Kubernetes 1.36 (gate ResourceHealthStatus).

A device plugin that sells memory has one device for each unit. A pod with too many has a status that exceeds etcd's
limit: its containers run, but it stays Pending and can be deleted only by force.
"""

import re
from collections.abc import Iterable
from typing import Final

from core.errors import InvalidRequestError
from core.model import Node, Pod, ReviewedPod
from core.units import parse_count

# Measured with v1.36.1: 23,000 succeed and 24,000 fail, at 66 bytes each of etcd's limit of 1.5 MiB.
DEVICES_MAX: Final = 23_000
_SINCE: Final = (1, 36)
_VERSION: Final = re.compile(r"v(\d{1,4})\.(\d{1,4})\b", re.ASCII)


def listed_on(node: Node, resources: Iterable[str]) -> frozenset[str]:
    """Return the *resources* whose devices the kubelet of *node* lists, unless its operator disabled that."""
    found = _VERSION.match(node.kubelet_version)
    if found is None or (int(found[1]), int(found[2])) < _SINCE:
        return frozenset()
    return frozenset(resource for resource in resources if resource in node.allocatable)


def device_count(pod: Pod | ReviewedPod, listed: Iterable[str]) -> int:
    """Return how many devices of the resources *listed* the containers of *pod* get together."""
    resources = tuple(listed)
    return sum(amount_or_zero(one.amount(resource)) for one in pod.containers for resource in resources)


def amount_or_zero(text: str | None) -> int:
    """Return the number of devices in *text*; 0 if it is not a quantity."""
    try:
        return parse_count(text, "") if text else 0
    except InvalidRequestError:
        return 0
