"""What a benchmark yields: one figure with its unit and the parameters it was taken under."""

import resource
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One figure."""

    metric: str
    value: float
    unit: str
    params: Mapping[str, object] = field(default_factory=dict)


def peak_rss_mib() -> float:
    """The largest resident size of this process so far, in MiB."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)


def quantile(ordered: list[float], part: float) -> float:
    """The value below which *part* of the ascending *ordered* lies."""
    return ordered[min(int(len(ordered) * part), len(ordered) - 1)]
