"""Which new pods the API server would refuse because of ResourceQuotas: of pods, and of what they request."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from core import names, nodefit
from core.errors import InvalidRequestError
from core.model import Pod
from core.wire.quotas import ResourceQuota
from core.wire.reading import quantities

_REQUESTS: Final = "requests."
_LIMITS: Final = "limits."
_COUNT: Final = "count/pods"
_MIB: Final = 1 << 20


class NativeQuotas:
    """The quotas of one namespace, and what its pods use of them. Quotas with scopes are not judged.

    Attributes:
        notes: limits that are not judged.
    """

    def __init__(self, quotas: Iterable[ResourceQuota], pods: Iterable[Pod]) -> None:
        """Begin with the *pods* of the namespace."""
        self.notes: Final[list[str]] = []
        self._limits: Final[list[tuple[str, str, str, int]]] = []
        self._used: Final[Counter[str]] = Counter()
        for quota in quotas:
            self._read(quota)
        for pod in pods if self._limits else ():
            self._used.update(_amounts(pod))

    def _read(self, quota: ResourceQuota) -> None:
        written = dict(quota.others)
        native = {key: _amount(key, one) for key, one in written.items() if _resource(key)}
        unjudged = [key for key in written if key.startswith(_LIMITS) or native.get(key, 0) is None]
        if quota.scoped:
            unjudged = [*written, *quota.hard]
        if unjudged:
            what = f"ResourceQuota {quota.namespace}/{quota.name} limits {', '.join(sorted(unjudged))}"
            self.notes.append(f"{what}, which is not simulated; the API server may refuse pods because of it")
        if quota.scoped:
            return
        # No API server counts other keys of extended resources.
        extended = {key: most for key, most in quota.hard.items() if key.startswith(_REQUESTS)}
        self._limits.extend(
            (quota.name, key, _resource(key), most) for key, most in {**native, **extended}.items() if most is not None
        )

    def refusal(self, pod: Pod) -> str:
        """Count new *pod*, and return "", or return why the API server refuses it."""
        amounts = _amounts(pod)
        for name, key, resource, most in self._limits:
            used, asked = self._used[resource], amounts.get(resource, 0)
            if asked and used + asked > most:
                left = f"{_shown(resource, max(most - used, 0))} of {_shown(resource, most)} {key}"
                return f"the API server would refuse it: ResourceQuota {name} has {left} left"
        self._used.update(amounts)
        return ""


def _amounts(pod: Pod) -> Mapping[str, int]:
    try:
        return dict(nodefit.amounts_of(pod))
    except InvalidRequestError:
        return {names.PODS: 1}


def _amount(key: str, written: str) -> int | None:
    """Return the limit that is *written*; None if it is unreadable, as one beyond all figures is."""
    try:
        return quantities({key: written}, "spec.hard")[key]
    except InvalidRequestError:
        return None


def _resource(key: str) -> str:
    """Return the resource that *key* limits the requests of; "" for other keys."""
    if key == _COUNT:
        return names.PODS
    resource = key.removeprefix(_REQUESTS)
    is_counted = resource in names.NATIVE_RESOURCES or resource.startswith("hugepages-")
    return resource if is_counted or "/" in resource else ""


def _shown(resource: str, amount: int) -> str:
    if resource == names.CPU:
        return f"{amount / 1000:g}"
    return f"{amount // _MIB}Mi" if resource == names.MEMORY else str(amount)
