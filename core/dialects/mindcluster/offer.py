"""What a node offers under MindCluster: from labels, resources, an annotation and ConfigMaps to chips.

Source: protocol reference, ascend 3.1 with its required improvements, M-7, M-9, M-14, 10.1, 10.2.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from core.dialects.mindcluster import keys
from core.dialects.mindcluster.chips import Chip, Fixed, chip
from core.dialects.mindcluster.table import MindClusterTable
from core.dialects.mindcluster.templates import CHIP_CPUS
from core.errors import InvalidRequestError, quoted
from core.model import Node
from core.port.cards import Offer
from core.port.refusals import Complaint, Reason
from core.settings import DialectName, Tables
from core.units import parse_count
from core.wire import mindcluster as wire

NAME: Final = DialectName("mindcluster")
# No machine has more chips; a capacity beyond it is a mistake that would cost work.
_MAX_CHIPS: Final = 1024
# A list names chips and slices of them; a longer one is not read.
_MAX_NAMES: Final = 512
_MAX_CORES: Final = _MAX_CHIPS * max(CHIP_CPUS)


class NodeDataError(ValueError):
    """A node's data cannot be used: field says where, the text what is wrong and what to do."""

    def __init__(self, field: str, problem: str) -> None:
        self.field = field
        super().__init__(problem)


def offer(node: Node, tables: Tables) -> Offer[Chip] | Complaint | None:
    """The chips of *node*; None if its plugin does not offer AI cores."""
    if keys.CORES not in node.capacity:
        return None
    try:
        cores = _cores_per_chip(node.labels)
        count = _chip_count(node, cores)
        if not count:
            return None
        _check_status(node, tables)
        listed, unhealthy, strange = _chip_ids(node, tables, count)
    except NodeDataError as error:
        return Complaint(dialect=NAME, field=error.field, problem=str(error))
    except InvalidRequestError as unread:
        return Complaint(dialect=NAME, field=unread.field, problem=f"found {unread.found}; {unread.remedy}")
    told = (
        f"the node says that it has {count} chips, so this one is left out; compare its capacity of {keys.CORES} with "
        "its list of devices"
    )
    fixed = [
        Fixed(at, cores, CHIP_CPUS[cores], Reason.UNHEALTHY if at in unhealthy else None, at in listed)
        for at in range(count)
    ]
    return Offer(
        cards=tuple(map(chip, fixed)),
        complaints=tuple([Complaint(dialect=NAME, field=f"NPU {at}", problem=told) for at in sorted(strange)]),
    )


def _cores_per_chip(labels: Mapping[str, str]) -> int:
    accelerator = labels.get(keys.ACCELERATOR, "")
    if accelerator.split("-")[1:2] != [keys.CHIP_KIND]:
        remedy = f"label the node huawei-{keys.CHIP_KIND}, the one chip whose slices are known"
        raise NodeDataError(f"label {keys.ACCELERATOR}", f"found {quoted(accelerator)}; {remedy}")
    text = labels.get(keys.SERVER_TYPE, "")
    cores = {str(known): known for known in CHIP_CPUS}.get("".join(text.split("-")[1:2]), 0)
    if not cores:
        known = " or ".join([f"{keys.CHIP_KIND}-{known}" for known in CHIP_CPUS])
        problem = f"found {quoted(text)}; its second part must be the AI cores of a chip, {known}"
        raise NodeDataError(f"label {keys.SERVER_TYPE}", problem)
    if keys.CHIP_NAME not in labels:
        raise NodeDataError(f"label {keys.CHIP_NAME}", "it is missing; see whether the node's device plugin runs")
    return cores


def _chip_count(node: Node, cores: int) -> int:
    field = f"capacity {keys.CORES}"
    total = parse_count(node.capacity[keys.CORES], field, _MAX_CORES)
    if total % cores:
        problem = f"{total} AI cores are no whole number of chips of {cores}; correct label {keys.SERVER_TYPE}"
        raise NodeDataError(field, problem)
    return total // cores


def _check_status(node: Node, tables: Tables) -> None:
    status = wire.node_status(node.documents, from_cluster=tables.of(MindClusterTable).use_cluster_info_manager)
    if status in keys.BAD_STATES:
        raise NodeDataError("NodeStatus", f"NodeD reports the node as {status}; see its faults and wait, or repair it")


def _chip_ids(node: Node, tables: Tables, count: int) -> tuple[frozenset[int], frozenset[int], frozenset[int]]:
    """(chips that are there, those of them that are unhealthy, ids beyond the node's number of chips)."""
    table = tables.of(MindClusterTable)
    found = wire.device_list(node.documents, from_cluster=table.use_cluster_info_manager)
    base, devices = _base_ids(node), found or {}
    if found is None and node.allocatable.get(keys.CORES) != node.capacity[keys.CORES]:
        raise NodeDataError(
            "device list",
            "some AI cores are not allocatable, and no ConfigMap says which chips are unhealthy; "
            "see whether ClusterD and the node's device plugin run",
        )
    free = _listed(devices.get(keys.DEVICES, ""), keys.DEVICES)
    # MDP's list holds free whole chips only; it is all there is where baseDeviceInfos cannot be used.
    seen = base | free if table.self_maintain_available_card or not devices else free
    if not seen:
        raise NodeDataError(
            "annotation baseDeviceInfos", "neither it nor the device list names a chip; see the node's device plugin"
        )
    unhealthy = frozenset().union(
        *(_listed(devices.get(key, ""), key) for key in keys.ILL_DEVICES),
        _listed(node.documents.get(wire.SEPARATED, ""), wire.SEPARATED),
    )
    known = frozenset(range(count))
    return seen & known, unhealthy & known, seen - known


def _base_ids(node: Node) -> frozenset[int]:
    text = node.annotations.get(keys.BASE_DEVICES)
    try:
        found = wire.decode_base_names(text) if text is not None else ()
    except InvalidRequestError:
        # The device list then says what there is (M-14).
        return frozenset()
    return _ids(found, f"annotation {keys.BASE_DEVICES}")


def _listed(text: str, field: str) -> frozenset[int]:
    return _ids(text.split(",", _MAX_NAMES), field)


def _ids(device_names: Sequence[str], field: str) -> frozenset[int]:
    if len(device_names) > _MAX_NAMES:
        raise NodeDataError(field, f"it names more than {_MAX_NAMES} devices; no longer list is read")
    found = [keys.chip_of(name) for name in device_names]
    return frozenset([one for one in found if one is not None])
