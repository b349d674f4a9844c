"""Ways in which a container could exceed its share of cards: CS303, CS304, CS307 to CS310; possible ones: CS312, CS320.

All containers of a pod with cards are judged, because one without cards runs on a node whose devices and container
runtime serve every container that names them.

Sources: what device plugins set and mount, nvidia 1.9 and ascend 1.9; what container runtimes read, the documents of
NVIDIA's Container Toolkit and of Ascend Docker Runtime, which both take ``void`` for no device.
"""

import re
from collections.abc import Iterator
from typing import Final

from core.admission.rulebook import Rulebook
from core.admission.verdict import first_of
from core.errors import quoted
from core.model import NO_REACH, Container, ReviewedPod
from core.port.refusals import Violation
from core.warnings import AdmissionWarning
from core.watched import (
    ASCEND_DEVICES,
    CONTAINER_NAME,
    CORE_POLICY,
    LOADED,
    NAMES,
    NVIDIA_DEVICES,
    TASK_PRIORITY,
    VOID,
    absolute,
)

# The values, by variable, with which a container runtime gives a container no device.
NO_DEVICE: Final[dict[str, tuple[str, ...]]] = {NVIDIA_DEVICES: ("", VOID, "none"), ASCEND_DEVICES: ("", VOID)}
_ASCEND_PREFIX: Final = "huawei.com/"

_PRIORITIES: Final = ("0", "1")
# libvgpu always limits a container with force to its cores; it treats unknown values as its default.
_CORE_POLICIES: Final = ("default", "force")
# Watched variables that frameworks and CANN let users set: they select among a container's devices, or name files and
# logs.
_HARMLESS: Final = re.compile(
    "CUDA_DEVICE_(MAX_CONNECTIONS|ORDER|WAITS_ON_EXCEPTION)"
    "|ASCEND_(AICPU|AUTOML|CACHE|COREDUMP|CUSTOM|DRIVER|DUMP|ENGINE|GLOBAL|HOME|HOST|LATEST|LOG|MODULE|NNAE|OPP|PROCESS"
    "|SLOG|TENSOR|TOOLKIT|TRACE|WORK)(_[A-Z0-9_]*)?"
    "|ASCEND_(DEVICE_ID|LAUNCH_BLOCKING|MAX_OP_CACHE_SIZE|REMAIN_CACHE_SIZE_RATIO|RT_VISIBLE_DEVICES)"
    "|NPU_ASD_[A-Z_]*",
    re.ASCII,
)

_SET: Final = frozenset(
    {
        "ASCEND_RUNTIME_OPTIONS",
        ASCEND_DEVICES,
        "ASCEND_VNPU_SPECS",
        "NPU_GLOBAL_SHM_PATH",
        "NPU_LOCAL_SHM_PATH",
        "NPU_MEM_QUOTA",
        "NPU_PRIORITY",
    }
)

# With these, a process can create device files, or mount those of the node.
_CAPABILITIES: Final = frozenset({"ALL", "SYS_ADMIN"})

# Paths of nodes through which a container can access cards beyond its share: device files and what leads to them (/proc
# has the root directory of every process, /sys the memory of PCI devices and the cgroups that restrict device files),
# paths that device plugins share with containers, and the sockets of components that allocate cards.
NODES_PATHS: Final = (
    "/dev/char",
    "/dev/dri",
    "/proc",
    "/run/containerd",
    "/run/cri-dockerd.sock",
    "/run/crio",
    "/run/docker.sock",
    "/run/nvidia",
    "/sys",
    "/tmp/vgpu",  # noqa: S108 (a path of nodes, which device plugins chose)
    "/tmp/vgpulock",  # noqa: S108
    "/usr/local/hami-shared-region",
    "/usr/local/hami-vnpu-core",
    "/usr/local/vgpu",
    "/var/lib/kubelet",
    "/var/run/containerd",
    "/var/run/cri-dockerd.sock",
    "/var/run/crio",
    "/var/run/docker.sock",
    "/var/run/nvidia",
)
# Prefixes of device files.
_DEVICE_FILES: Final = ("/dev/nvidia", "/dev/davinci", "/dev/vdavinci", "/dev/hisi_hdc", "/dev/devmm_svm")
_DEVICES: Final = re.compile(
    "|".join([*map(re.escape, _DEVICE_FILES), *(f"{re.escape(path)}(/|$)" for path in NODES_PATHS)]), re.ASCII
)
# The directories that contain one of them, at any depth.
_DEVICE_FOLDERS: Final = frozenset(
    {path[:end] or "/" for path in (*NODES_PATHS, *_DEVICE_FILES) for end, letter in enumerate(path) if letter == "/"}
)


def beyond_share(pod: ReviewedPod, rules: Rulebook) -> tuple[Violation, ...]:
    """Return how *pod*, which requests cards, could exceed its share."""
    found = [one for container in (*pod.init_containers, *pod.containers) for one in escaping(container, pod, rules)]
    if pod.host_pid:
        found += allowed((_host_pid(),), pod, rules)
    if pod.host_paths:
        found += allowed(devices(pod), pod, rules)
    return tuple(found)


def escaping(container: Container, pod: ReviewedPod, rules: Rulebook) -> tuple[Violation, ...]:
    """Return how *container* of *pod* could exceed its share, unless the settings allow it."""
    if container.reach is NO_REACH:
        return ()  # as for nearly every container
    found = (*privileged(container), *capable(container), *evading(container, pod, rules), *covering(container))
    return allowed(found, pod, rules)


def allowed(
    found: tuple[Violation, ...] | Iterator[Violation], pod: ReviewedPod, rules: Rulebook
) -> tuple[Violation, ...]:
    """Return the violations in *found* that the settings do not allow in the pod's namespace."""
    settings = rules.settings.admission
    return tuple([one for one in found if not settings.allows(one.code, pod.namespace)])


def privileged(container: Container) -> Iterator[Violation]:
    """CS303: a privileged container can access every card of its node."""
    if container.reach.privileged:
        yield Violation(
            code="CS303",
            field=f'container "{container.name}": securityContext.privileged',
            found="'true'",
            remedy="leave it out; a privileged container sees every card of its node, not only its share",
        )


def capable(container: Container) -> Iterator[Violation]:
    """CS307: capabilities with which a container can access every device of its node."""
    found = [n for n in dict.fromkeys(container.reach.capabilities) if n.upper().removeprefix("CAP_") in _CAPABILITIES]
    yield from first_of(
        found,
        lambda name: Violation(
            code="CS307",
            field=f'container "{container.name}": securityContext.capabilities.add',
            found=quoted(name),
            remedy="leave it out; it gives a container access to every card of its node, not only its share",
        ),
    )


def evading(container: Container, pod: ReviewedPod, rules: Rulebook) -> Iterator[Violation]:
    """CS304: variables that override those of the device plugin, or by which a runtime allocates devices.

    For pods of another scheduler, the policy for cores is allowed, because HAMi's webhook sets it in all their
    containers.
    """
    found = [
        name
        for name, value in dict.fromkeys(container.reach.env)
        if not _is_harmless(name, value, container, pod, rules)
    ]
    if CORE_POLICY in found and rules.is_left_to_others(pod):
        found.remove(CORE_POLICY)
    yield from first_of(
        found,
        lambda name: Violation(
            code="CS304",
            field=f'container "{container.name}": env',
            found=quoted(name),
            remedy=_remedy(name, container, rules),
        ),
    )


def covering(container: Container) -> tuple[Violation, ...]:
    """CS310: mounts that replace what enforces a container's share, or that select devices."""
    return first_of(
        tuple(dict.fromkeys(container.reach.mounts)),
        lambda path: Violation(
            code="CS310",
            field=f'container "{container.name}": volumeMounts',
            found=quoted(path),
            remedy="mount it elsewhere; the device plugin mounts files of the share there",
        ),
    )


def devices(pod: ReviewedPod) -> Iterator[Violation]:
    """CS309: volumes that expose device files of the node."""
    yield from first_of(
        [path for path in dict.fromkeys(pod.host_paths) if _shows_devices(absolute(path))],
        lambda path: Violation(
            code="CS309",
            field="volumes: hostPath",
            found=quoted(path),
            remedy="leave it out; the device plugin shows a container the devices of its share",
        ),
    )


def _shows_devices(path: str) -> bool:
    return path in _DEVICE_FOLDERS or _DEVICES.match(path) is not None


def _host_pid() -> Violation:
    return Violation(
        code="CS308",
        field="spec.hostPID",
        found="'true'",
        remedy="leave it out; the pod could access the processes of other pods on its cards",
    )


def unseen(pod: ReviewedPod) -> AdmissionWarning | None:
    """CS312: variables from other objects may override a limit, and are invisible at admission."""
    named = [one.name for one in (*pod.init_containers, *pod.containers) if one.reach.env_from]
    if not named:
        return None
    listed = ", ".join(f'"{name}"' for name in named[:_NAMED_MAX]) + (" and others" if len(named) > _NAMED_MAX else "")
    return AdmissionWarning(
        "CS312",
        f"envFrom of {listed}: make sure that it sets no variable of device plugins or container runtimes, such as "
        f"{NVIDIA_DEVICES}; cardshare cannot read it",
    )


_NAMED_MAX: Final = 3


def loading(pod: ReviewedPod, rules: Rulebook) -> AdmissionWarning | None:
    """CS320: libraries that are loaded before the one that limits a share could replace it."""
    settings = rules.settings.admission
    for one in (*pod.init_containers, *pod.containers):
        for name, _ in one.reach.env:
            if name in LOADED and not settings.allows_variable(name):
                return AdmissionWarning(
                    "CS320",
                    f'container "{one.name}": env {name}: leave it out, or make sure that its libraries do not '
                    "intercept CUDA calls; they load before the library that limits the container to its share",
                )
    return None


def _is_harmless(name: str, value: str | None, container: Container, pod: ReviewedPod, rules: Rulebook) -> bool:
    if rules.settings.admission.allows_variable(name):
        return True
    if (kind := _of_vendor(name, rules)) or name in LOADED:
        return not _limits(kind, pod, rules)
    if _HARMLESS.fullmatch(name):
        return True
    if name == CORE_POLICY:
        return value is not None and value.lower() in _CORE_POLICIES
    if name == CONTAINER_NAME:
        return value == container.name
    if name == TASK_PRIORITY:
        return value in _PRIORITIES
    return value in NO_DEVICE.get(name, ()) and not _gives(name, container, rules)


def _of_vendor(name: str, rules: Rulebook) -> str:
    """Return which of the variables of `Rulebook` *name* is, also with something behind it; "" for none."""
    return next((one for one in rules.variables if name == one or name.startswith(f"{one}_")), "")


def _limits(name: str, pod: ReviewedPod, rules: Rulebook) -> bool:
    """Return whether the device plugin of cards of *pod* limits containers by the variable *name*."""
    resources = rules.variables.get(name, frozenset())
    return any(
        not resources.isdisjoint((*one.limits, *one.requests)) for one in (*pod.containers, *pod.init_containers)
    )


def _gives(name: str, container: Container, rules: Rulebook) -> bool:
    """Return whether the device plugin sets the variable *name* for this container."""
    asked = rules.resources.intersection((*container.limits, *container.requests))
    return any(key.startswith(_ASCEND_PREFIX) is (name == ASCEND_DEVICES) for key in asked)


def _remedy(name: str, container: Container, rules: Rulebook) -> str:
    if name == TASK_PRIORITY:
        return "write '0' (high) or '1' (low) as its value"
    if name == CORE_POLICY:
        return "write 'force' or 'default', or leave it out; other values remove the limit on cores"
    if name in NO_DEVICE and not _gives(name, container, rules):
        return f"leave it out, or write '{VOID}'; this container asks for none of these cards"
    if name in NAMES or name in _SET or name.startswith("CUDA_DEVICE_") or _of_vendor(name, rules):
        return "leave it out; the device plugin sets it for the share"
    return (
        "leave it out: device plugins and container runtimes read such names; the cluster's operator can allow "
        "it (admission.allow_variables)"
    )
