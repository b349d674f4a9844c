"""The words of MindCluster's protocol: resources, labels, annotations, device names (ascend 1.2 to 1.7, 1.10)."""

from typing import Final, NamedTuple

from core.units import parse_int64

CORES: Final = "huawei.com/npu-core"
VENDOR: Final = "huawei.com/"

ACCELERATOR: Final = "accelerator"
SERVER_TYPE: Final = "servertype"
CHIP_NAME: Final = "node.kubernetes.io/npu.chip.name"
CHIP_KIND: Final = "Ascend310P"
BASE_DEVICES: Final = "baseDeviceInfos"
DEVICES: Final = "huawei.com/Ascend310P"
ILL_DEVICES: Final = ("huawei.com/Ascend310P-Unhealthy", "huawei.com/Ascend310P-Recovering")
BAD_STATES: Final = ("PreSeparate", "UnHealthy")

CONTROLLER: Final = "ring-controller.atlas"
CONTROLLER_310P: Final = "ascend-310P"
LEVEL: Final = "vnpu-level"
DVPP: Final = "vnpu-dvpp"

ASSIGNED: Final = "huawei.com/npu-core"
PREDICATE_TIME: Final = "predicate-time"
REAL: Final = "huawei.com/AscendReal"
KUBELET_DEVICES: Final = "huawei.com/kltDev"
ASSIGNMENT_KEYS: Final = frozenset({ASSIGNED, PREDICATE_TIME, REAL, KUBELET_DEVICES})
# What the plugin writes over predicate-time when it has served a pod.
SERVED: Final = "18446744073709551615"


class Device(NamedTuple):
    """A device name of the plugin: type "" = a whole chip; vgroup -1 = not told."""

    chip: int
    type: str
    vgroup: int


def decode_device(name: str) -> Device | None:
    """Read ``Ascend310P-<chip>`` or ``Ascend310P-<type>-<vNPU>-<chip>``, the latter with ``_<vGroup>`` or without."""
    fields = name.split("-")
    if len(fields) not in (2, 4):
        return None
    text, _, group = fields[-1].partition("_")
    chip = whole(text)
    if chip is None:
        return None
    vgroup = whole(group) if len(fields) == 4 else None
    return Device(chip, fields[1] if len(fields) == 4 else "", -1 if vgroup is None else vgroup)


def chip_of(name: str) -> int | None:
    """The chip that a device name of either form speaks of; None if it is no device name."""
    device = decode_device(name.strip())
    return None if device is None else device.chip


def whole(text: str) -> int | None:
    """Go's strconv.Atoi for what is not negative."""
    found = parse_int64(text)
    return found if found is not None and found >= 0 else None
