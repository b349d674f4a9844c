"""What of a container any rule looks at: variables that device plugins and runtimes read, paths that plugins mount at.

Everything else of its variables and mounts is not even kept of a pod under review.

Sources: what device plugins set and mount, nvidia 1.9 and ascend 1.9; what container runtimes read, the documents of
NVIDIA's Container Toolkit and of Ascend Docker Runtime.
"""

from collections.abc import Sequence
from posixpath import basename, normpath
from typing import Final

NVIDIA_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"
ASCEND_DEVICES: Final = "ASCEND_VISIBLE_DEVICES"
# As the value of both: a container runtime shows no device.
VOID: Final = "void"
TASK_PRIORITY: Final = "CUDA_TASK_PRIORITY"
CORE_POLICY: Final = "GPU_CORE_UTILIZATION_POLICY"
# What the dynamic linker loads first: of use to profilers.
LOADED: Final = ("LD_AUDIT", "LD_PRELOAD")
NAMES: Final = frozenset(
    {"CUDA_DISABLE_CONTROL", "CUDA_OVERSUBSCRIBE", CORE_POLICY, NVIDIA_DEVICES, TASK_PRIORITY, *LOADED}
)
# Device plugins and runtimes read what begins so, in later versions more than now.
_PREFIXES: Final = ("CUDA_DEVICE_", "ASCEND_", "NPU_")

# Where NVIDIA's runtime reads which devices a container gets: of any mount that begins so, slash or not (its
# container_config.go, getDevicesFromMounts).
_DEVICE_LISTS: Final = ("/run/nvidia-container-devices", "/var/run/nvidia-container-devices")
# Where device plugins mount what holds a container to its share.
_KEPT_PATHS: Final = (
    "/etc/ld.so.preload",
    "/hami-shared-region",
    "/hami-vnpu-core",
    "/hami-vnpu-shmem",
    "/tmp/vgpu",  # noqa: S108 (a path within containers, which device plugins chose)
    "/tmp/vgpulock",  # noqa: S108
    "/usr/local/vgpu",
)
_BEGIN_KEPT: Final = (*_DEVICE_LISTS, *(f"{path}/" for path in _KEPT_PATHS))
# However a path is written that means one of these, the last name of that one stands in it.
_KEPT_NAMES: Final = tuple(sorted({basename(path) for path in (*_DEVICE_LISTS, *_KEPT_PATHS)}))


def is_watched(name: str) -> bool:
    """Whether a rule reads the value of the variable *name*."""
    return name in NAMES or name.startswith(_PREFIXES)


def may_be_watched(names: Sequence[str]) -> bool:
    """False only if no rule reads the value of any of the variables *names*; a fraction of asking for each."""
    if not NAMES.isdisjoint(names):
        return True
    text = " ".join(names)
    first, second, third = _PREFIXES
    return first in text or second in text or third in text


def is_kept(path: str) -> bool:
    """Whether a mount at *path* stands in the place of what a device plugin mounts, or below it, or lists devices."""
    path = absolute(path)
    return path in _KEPT_PATHS or path.startswith(_BEGIN_KEPT)


def may_be_kept(paths: Sequence[str]) -> bool:
    """False only if `is_kept` says so of each of *paths*; a fraction of asking for each."""
    text = " ".join(paths)
    for name in _KEPT_NAMES:  # noqa: SIM110 (any() would make a generator for each pod)
        if name in text:
            return True
    return False


def absolute(path: str) -> str:
    """*path* as kubelet takes it: relative ones from the root, and the shortest of those that mean the same."""
    if path.startswith("/") and not path.endswith("/") and "//" not in path and "/." not in path:
        return path  # as nearly every one is written
    return normpath("/" + path.lstrip("/"))
