"""Pods as somebody makes them who wants more cards than a share, and what such a pod would still reach as it is stored.

The judge knows nothing of the rules: it is written from docs/operators/security.md and the protocol reference (what
plugins write and read, nvidia 1.5 and 1.9, ascend 1.6 to 1.9), and takes a pod as kubelet, device plugins and container
runtimes do.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

Json = dict[str, Any]

CARDS = (
    "volcano.sh/vgpu-number",
    "volcano.sh/vgpu-memory",
    "volcano.sh/vgpu-cores",
    "volcano.sh/vgpu-memory-percentage",
    "volcano.sh/gpu-memory",
    "volcano.sh/gpu-number",
    "huawei.com/npu-core",
    "huawei.com/Ascend910B4",
    "huawei.com/Ascend910B4-1-memory",
    "huawei.com/Ascend310P",
)
# nvidia 1.5 (written by S or P), ascend 1.6, 1.7; chip models that nobody knows yet too.
ASSIGNMENTS = (
    "volcano.sh/vgpu-node",
    "volcano.sh/vgpu-time",
    "volcano.sh/vgpu-ids-new",
    "volcano.sh/devices-to-allocate",
    "volcano.sh/bind-time",
    "volcano.sh/bind-phase",
    "volcano.sh/gpu-index",
    "volcano.sh/predicate-time",
    "volcano.sh/gpu-assigned",
    "predicate-time",
    "hami.io/vgpu-node",
    "hami.io/vgpu-time",
    "hami.io/bind-time",
    "hami.io/bind-phase",
    "hami.io/*-devices-to-allocate",
    "hami.io/*-devices-allocated",
    "huawei.com/Ascend*",
    "huawei.com/npu-core",
    "huawei.com/kltDev",
    "cardshare.io/segment-queue",
    "cardshare.io/memory-unit",
)
# What plugins set and runtimes and libvgpu read (1.9 of both).
VARIABLES = (
    "NVIDIA_VISIBLE_DEVICES",
    "CUDA_DEVICE_MEMORY_LIMIT*",
    "CUDA_DEVICE_SM_LIMIT",
    "CUDA_DEVICE_MEMORY_SHARED_CACHE",
    "CUDA_OVERSUBSCRIBE",
    "CUDA_DISABLE_CONTROL",
    "GPU_CORE_UTILIZATION_POLICY",
    "ASCEND_VISIBLE_DEVICES",
    "ASCEND_VNPU_SPECS",
    "ASCEND_RUNTIME_OPTIONS",
    "NPU_MEM_QUOTA",
    "NPU_PRIORITY",
    "NPU_GLOBAL_SHM_PATH",
    "NPU_LOCAL_SHM_PATH",
)
NO_DEVICE = ("", "void", "none")
# Where plugins mount what holds a container to its share (1.9 of both); a runtime reads devices from mounts that begin
# as the last two do.
KEPT = (
    "/etc/ld.so.preload",
    "/usr/local/vgpu",
    "/tmp/vgpu",
    "/tmp/vgpulock",
    "/hami-vnpu-core",
    "/hami-shared-region",
    "/hami-vnpu-shmem",
)
LISTS = ("/var/run/nvidia-container-devices", "/run/nvidia-container-devices")
# Of a node: device files, and what leads to them or to who gives them out.
NODES = (
    "/dev/nvidia0",
    "/dev/nvidiactl",
    "/dev/davinci3",
    "/dev/davinci_manager",
    "/dev/vdavinci105",
    "/dev/hisi_hdc",
    "/dev/devmm_svm",
    "/dev/dri/card0",
    "/dev/char/195:0",
    "/proc/1/root",
    "/sys/fs/cgroup",
    "/var/lib/kubelet/device-plugins/kubelet.sock",
    "/run/containerd/containerd.sock",
    "/var/run/docker.sock",
    "/run/crio/crio.sock",
    "/usr/local/vgpu/containers",
    "/tmp/vgpulock",
)
HARMLESS = ("example.com/a", "volcano.sh/vgpu-mode", "nvidia.com/use-gputype", "prometheus.io/scrape")


def walked(path: str) -> tuple[str, ...]:
    """The names that lead to *path* from the root, as a file system takes them."""
    there: list[str] = []
    for name in path.split("/"):
        if name == "..":
            there = there[:-1]
        elif name not in {"", "."}:
            there.append(name)
    return tuple(there)


def is_assignment(key: str) -> bool:
    """Whether *key* is one that schedulers and device plugins write on pods."""
    return any(fnmatch.fnmatchcase(key, one) for one in ASSIGNMENTS)


def harm(pod: Json) -> Iterator[str]:
    """What *pod*, as it is stored, would reach that it was not given, each once in words; nothing of a harmless one."""
    for key in pod["metadata"].get("annotations") or {}:
        if is_assignment(key):
            yield f"assignment {key}"
    spec = pod["spec"]
    containers = [*spec["containers"], *(spec.get("initContainers") or ())]
    if not any(_cards_of(one) for one in containers):
        return
    if spec.get("nodeName"):
        yield "node"
    if spec.get("hostPID"):
        yield "hostPID"
    for volume in spec.get("volumes") or ():
        path = walked((volume.get("hostPath") or {}).get("path") or "nothing")
        if "hostPath" in volume and any(walked(one)[: len(path)] == path for one in NODES):
            yield f"hostPath {volume['hostPath']}"
    for container in containers:
        yield from _harm_by(container)


def _cards_of(container: Json) -> set[str]:
    resources = container.get("resources") or {}
    # Of none, kubelet asks no plugin for any (S21).
    return {
        key for part in resources.values() for key, amount in (part or {}).items() if key in CARDS and amount != "0"
    }


def _harm_by(container: Json) -> Iterator[str]:
    security = container.get("securityContext") or {}
    if security.get("privileged"):
        yield "privileged"
    added = {name.upper().removeprefix("CAP_") for name in (security.get("capabilities") or {}).get("add") or ()}
    if added & {"ALL", "SYS_ADMIN"}:
        yield f"capabilities {added}"
    nvidia = any(not key.startswith("huawei.com/") for key in _cards_of(container))
    ascend = any(key.startswith("huawei.com/") for key in _cards_of(container))
    for one in container.get("env") or ():
        name, value = one["name"], one.get("value", "") if "valueFrom" not in one else "whatever it is"
        hides = (name, nvidia) == ("NVIDIA_VISIBLE_DEVICES", False) or (name, ascend) == (
            "ASCEND_VISIBLE_DEVICES",
            False,
        )
        if any(fnmatch.fnmatchcase(name, known) for known in VARIABLES) and not (hides and value in NO_DEVICE):
            yield f"variable {name}={value}"
        if name == "CUDA_TASK_PRIORITY" and value not in {"0", "1"}:
            yield f"variable {name}={value}"
    for mount in container.get("volumeMounts") or ():
        path = walked(mount["mountPath"])
        if any(path[: len(walked(one))] == walked(one) for one in KEPT) or f"/{'/'.join(path)}".startswith(LISTS):
            yield f"mount {mount['mountPath']}"


def _spelled(path: str) -> st.SearchStrategy[str]:
    """*path* in the ways in which it could be written."""
    return st.sampled_from(
        [path, path + "/", "/" + path, path.replace("/", "//", 1), f"/x/..{path}", f"/.{path}", f"{path}/.", path[1:]]
    )


PATHS = st.one_of(
    st.sampled_from([*KEPT, *NODES, *(f"{one}{tail}" for one in LISTS for tail in ("/all", "all", ""))]).flatmap(
        _spelled
    ),
    st.sampled_from([*KEPT, *NODES]).map(lambda path: path.rpartition("/")[0] or "/"),
    st.sampled_from(["/data", "/etc/ld.so.conf", "/tmp", "/usr/local", "/dev/shm", "/var/log", "/mnt/models"]),
)
AMOUNTS = st.dictionaries(
    st.sampled_from([*CARDS, "cpu", "memory"]), st.sampled_from(["1", "2", "0", "4096"]), max_size=2
)
HOST_PATHS: st.SearchStrategy[Json] = PATHS.map(lambda path: {"hostPath": {"path": path}})
OTHER_VOLUMES: st.SearchStrategy[Json] = st.sampled_from(
    [
        {"emptyDir": {}},
        {"configMap": {"name": "c", "items": [{"key": "k", "path": "ld.so.preload"}]}},
        {"projected": {"sources": [{"configMap": {"name": "c"}}, {"downwardAPI": {}}]}},
        {"downwardAPI": {"items": []}},
        {"secret": {"secretName": "s"}},
        {"hostPath": {"path": "/dev/null"}},
    ]
)
SOURCES = HOST_PATHS | OTHER_VOLUMES
VALUES: st.SearchStrategy[Json] = st.sampled_from(
    [
        {},
        {"value": "all"},
        {"value": "void"},
        {"value": "none"},
        {"value": ""},
        {"value": "0"},
        {"value": "2"},
        {"value": "$(OTHER)"},
        {"valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
        {"valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['a']"}}},
    ]
)
NAMES = st.sampled_from([*VARIABLES, "CUDA_TASK_PRIORITY", "RANK", "CUDA_VISIBLE_DEVICES"]).map(
    lambda name: name.replace("*", "_0")
)
SECURITY = st.fixed_dictionaries(
    {},
    optional={
        "privileged": st.booleans(),
        "capabilities": st.fixed_dictionaries(
            {
                "add": st.lists(
                    st.sampled_from(["SYS_ADMIN", "CAP_SYS_ADMIN", "sys_admin", "ALL", "all", "NET_RAW"]), max_size=2
                )
            }
        ),
    },
)
_EDGE = st.booleans()


def assignment_keys() -> st.SearchStrategy[str]:
    """Annotations that assign cards, of chips that nobody knows too."""
    return st.sampled_from(ASSIGNMENTS).map(lambda key: key.replace("*", "X9"))


KEYS = assignment_keys() | st.sampled_from(HARMLESS)


@st.composite
def pods(draw: st.DrawFn) -> Json:
    """Pods of which a good part asks for cards, and of which most try one or two ways of getting at more."""
    sources = draw(st.lists(SOURCES, max_size=2))
    volumes = [{"name": f"v{i}", **one} for i, one in enumerate(sources)]

    def container(name: str) -> Json:
        amounts = draw(AMOUNTS)
        found: Json = {"name": name, "image": "i", "resources": {"limits": amounts, "requests": amounts}}
        if draw(_EDGE):
            found["env"] = [{"name": draw(NAMES), **draw(VALUES)} for _ in range(draw(st.integers(0, 2)))]
        if draw(_EDGE) and volumes:
            part: Json = {"subPath": "ld.so.preload"} if draw(_EDGE) else {}
            paths = draw(st.lists(PATHS, unique=True, max_size=2))
            mounts = [
                {"name": one["name"], "mountPath": path, **part} for one, path in zip(volumes, paths, strict=False)
            ]
            found["volumeMounts"] = mounts
        if draw(st.integers(0, 3)) == 0:
            found["securityContext"] = draw(SECURITY)
        return found

    keys = st.sampled_from([*ASSIGNMENTS, *HARMLESS]).map(lambda key: key.replace("*", "X9"))
    metadata: Json = {
        "annotations": draw(st.dictionaries(keys, st.sampled_from(["", "0", "mig", "GPU-0"]), max_size=2))
    }
    metadata["generateName" if draw(_EDGE) else "name"] = "p"
    spec: Json = {"containers": [container(f"c{i}") for i in range(draw(st.integers(1, 2)))], "volumes": volumes}
    if draw(_EDGE):
        spec["initContainers"] = [{**container("i"), **({"restartPolicy": "Always"} if draw(_EDGE) else {})}]
    if draw(st.integers(0, 7)) == 0:
        spec["hostPID"] = True
    if draw(st.integers(0, 7)) == 0:
        spec["nodeName"] = "a"
    if draw(_EDGE):
        spec["schedulerName"] = draw(st.sampled_from(["default-scheduler", "cardshare", "volcano", "mine"]))
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
