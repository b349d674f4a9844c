"""Who follows advice: a pod changed as the words of a remedy say."""

import re
from random import Random
from typing import Final

from core.model import Container, Pod
from tests.support.devices.selling import CORES, MEMORY, NUMBER, PERCENT

_CHIP: Final = re.compile(r"huawei\.com/Ascend[0-9A-Z-]+(?<!-memory)$")
_PART: Final = re.compile(r"(?:at most )?(\d+m?)(Mi| %)? ?(.*)")


def with_limits(one: Container, **changed: str | None) -> Container:
    limits = {key: text for key, text in {**one.limits, **changed}.items() if text is not None}
    return one._replace(limits=limits, requests=limits)


def lowered(pod: Pod, resource: str, most: int, unless: str = "", *, only: bool = False) -> Pod:
    """No container of *pod* asks for more than *most* of *resource*; *unless*: a figure that would hold over it.

    only: a container that asks for none of it stays as it is.
    """
    changed = []
    for container in pod.containers:
        one = container
        asked = one.limits.get(resource)
        if int(asked) > most if asked is not None else resource != "cpu" and not only:
            one = with_limits(one, **{resource: str(most), **({unless: None} if unless else {})})
        changed.append(one)
    return pod._replace(containers=tuple(changed))


def parted(pod: Pod, resource: str, most: int, chance: Random) -> Pod:
    """*most* of *resource*, parted among the containers of *pod* somehow, none of them left without or given more."""
    asked = [int(one.limits[resource]) for one in pod.containers]
    given = [1] * len(asked)
    while sum(given) < most:
        at = chance.choice([at for at, most_of_it in enumerate(asked) if given[at] < most_of_it])
        given[at] += min(asked[at] - given[at], max(1, (most - sum(given)) // len(asked)))
    containers = [with_limits(one, **{resource: str(part)}) for one, part in zip(pod.containers, given, strict=True)]
    return pod._replace(containers=tuple(containers))


def resources(pod: Pod) -> dict[str, str]:
    """What people call figures in the resources of *pod*: those of its cards' count, memory and cores."""
    keys = {key for one in pod.containers for key in one.limits}
    for key in keys:
        if _CHIP.match(key):
            return {"count": key, "memory": f"{key}-memory"}
        if key in (NUMBER, MEMORY, CORES, PERCENT):
            return {"count": NUMBER, "memory": MEMORY, "cores": CORES}
    if any(key.startswith("nvidia.com/gpumem") for key in keys):
        return {"count": "nvidia.com/gpu", "memory": "nvidia.com/gpumem", "cores": "nvidia.com/gpucores"}
    if "huawei.com/npu-core" in keys:
        return {"count": "huawei.com/npu-core", "cores": "huawei.com/npu-core"}
    if "volcano.sh/gpu-memory" in keys:
        return {"memory": "volcano.sh/gpu-memory"}
    return {"count": next(key for key in keys if "/" in key)}


def asking(pod: Pod, text: str, chance: Random) -> Pod:
    """*pod* after its figures were lowered as *text* says, the words after "ask for"."""
    known = resources(pod)
    for part in re.split(r", | and ", text):
        found = _PART.fullmatch(part)
        assert found is not None, text
        amount, unit, what = found.groups()
        if what == "cpu":
            pod = lowered(pod, "cpu", int(amount))
        elif what.endswith("in all"):
            pod = parted(pod, known["memory" if what.startswith("MiB") else "count"], int(amount), chance)
        elif re.match(r"(MiB|units?) of memory", what):
            percentage = {MEMORY: PERCENT, "nvidia.com/gpumem": "nvidia.com/gpumem-percentage"}
            pod = lowered(pod, known["memory"], int(amount), percentage.get(known["memory"], ""))
        elif unit == " %":
            pod = lowered(pod, known["cores"], int(amount), only=what.endswith("with cores"))
        elif re.match(r"(idle )?(cards?|GPUs?|AI cores?)\b", what):
            pod = lowered(pod, known["count"], int(amount))
        else:
            raise AssertionError(f"{what!r} in {text!r}")
    return pod


def wished(pod: Pod, key: str, text: str | None) -> Pod:
    notes = {one: value for one, value in pod.annotations.items() if one != key}
    return pod._replace(annotations=notes | ({key: text} if text is not None else {}))


def without(pod: Pod, *parts: str) -> Pod:
    """*pod* without those annotations whose keys have one of *parts*."""
    return pod._replace(annotations={k: v for k, v in pod.annotations.items() if not any(one in k for one in parts)})
