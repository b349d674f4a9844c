"""The parts of a container that rules read: variables of device plugins and runtimes, and mount paths of plugins.

All other variables and mounts of a pod under review are dropped.

Sources: what device plugins set and mount, nvidia 1.9, ascend 1.9, hami-vendors 3.2, 3.8 and 3.9; what container
runtimes read, the documents of NVIDIA's Container Toolkit and of Ascend Docker Runtime.
"""

from collections.abc import Sequence
from posixpath import basename, normpath
from typing import Final

NVIDIA_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"
ASCEND_DEVICES: Final = "ASCEND_VISIBLE_DEVICES"
# The value of both with which a container runtime exposes no device.
VOID: Final = "void"
TASK_PRIORITY: Final = "CUDA_TASK_PRIORITY"
CORE_POLICY: Final = "GPU_CORE_UTILIZATION_POLICY"
# The name of a container, for the plugin of Iluvatar's cards, which spells it so.
CONTAINER_NAME: Final = "SOL_CONTINER_NAME"
# Libraries that the dynamic linker loads first; profilers use them.
LOADED: Final = ("LD_AUDIT", "LD_PRELOAD")
NAMES: Final = frozenset(
    {"CUDA_DISABLE_CONTROL", "CUDA_OVERSUBSCRIBE", CONTAINER_NAME, CORE_POLICY, NVIDIA_DEVICES, TASK_PRIORITY, *LOADED}
)
# Those by which plugins of HAMi's other vendors limit a container: only pods with their cards must not set them.
_OF_VENDORS: Final = frozenset({"ENFLAME_VISIBLE_DEVICES", "HSA_CU_MASK", "TOPS_VISIBLE_DEVICES"})
_WATCHED: Final = NAMES | _OF_VENDORS
# Device plugins and runtimes read variables with these prefixes, and later versions read more of them.
_PREFIXES: Final = ("CUDA_DEVICE_", "ASCEND_", "NPU_", "HIP_DEVICE_MEMORY_LIMIT")

# NVIDIA's runtime reads the devices of a container from any mount whose path starts like this, with or without a slash
# (its container_config.go, getDevicesFromMounts).
_DEVICE_LISTS: Final = ("/run/nvidia-container-devices", "/var/run/nvidia-container-devices")
# Mount paths with which device plugins enforce a container's share.
_KEPT_PATHS: Final = (
    "/etc/ld.so.preload",
    "/etc/vdev",
    "/hami-shared-region",
    "/hami-vnpu-core",
    "/hami-vnpu-shmem",
    "/tmp/vgpu",  # noqa: S108 (a path within containers, which device plugins chose)
    "/tmp/vgpulock",  # noqa: S108
    "/usr/local/vgpu",
)
_BEGIN_KEPT: Final = (*_DEVICE_LISTS, *(f"{path}/" for path in _KEPT_PATHS))
# Every spelling of one of these paths contains its last name.
_KEPT_NAMES: Final = tuple(sorted({basename(path) for path in (*_DEVICE_LISTS, *_KEPT_PATHS)}))


def is_watched(name: str) -> bool:
    """Return whether a rule reads the value of the variable *name*."""
    return name in _WATCHED or name.startswith(_PREFIXES)


def may_be_watched(names: Sequence[str]) -> bool:
    """Return False only if no rule reads any of the variables *names*; much cheaper than checking each."""
    if not _WATCHED.isdisjoint(names):
        return True
    text = " ".join(names)
    first, second, third, fourth = _PREFIXES
    return first in text or second in text or third in text or fourth in text


def is_kept(path: str) -> bool:
    """Return whether a mount at *path* replaces or is below a mount of a device plugin, or lists devices."""
    path = absolute(path)
    return path in _KEPT_PATHS or path.startswith(_BEGIN_KEPT)


def may_be_kept(paths: Sequence[str]) -> bool:
    """Return False only if `is_kept` is false for each of *paths*; much cheaper than checking each."""
    text = " ".join(paths)
    for name in _KEPT_NAMES:  # noqa: SIM110 (any() would make a generator for each pod)
        if name in text:
            return True
    return False


def absolute(path: str) -> str:
    """Return *path* as kubelet interprets it: absolute and normalized."""
    if path.startswith("/") and not path.endswith("/") and "//" not in path and "/." not in path:
        return path  # nearly every path is written like this
    return normpath("/" + path.lstrip("/"))
