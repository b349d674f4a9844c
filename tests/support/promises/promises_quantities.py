"""Promises of quantities: how they are stored, and which are none."""

from collections.abc import Mapping
from typing import Final

from tests.support.promises.promises import Rows, World, pod, promise

_QUANTITIES: Final = (
    *("1", "1024", "1e3", "+1", "1E", "1Ki", "9223372036854775808", "1e308", "1.10", "0.5Gi", "1024.000Mi", "1000k"),
    *("1n", " 1", "-0", "0", "1.5", "500m", "-1", "", "x", "1e", "0x10", "1_000", "inf", "1Kx", "1k", "1M", "1500m"),
)


@promise
async def quantities_are_stored_as_measured(world: World) -> Rows:
    rows: Rows = []
    for resource in ("example.com/x", "memory"):
        for text in _QUANTITIES:
            container = {"name": "c", "image": "i", "resources": {"limits": {resource: text}}}
            answer = await world.rest.post(f"{world.pods}?dryRun=All", pod("p", {"containers": [container]}))
            if answer.status >= 400:
                rows.append([resource, text, answer.status])
                continue
            stored = answer.body["spec"]["containers"][0]["resources"]
            rows.append([resource, text, answer.status, stored["limits"], stored["requests"]])
    return rows


_LONG_QUANTITIES: Final[Mapping[str, str]] = {
    "5000 digits": "7" * 5000,
    "5000 zeros": "0" * 5000,
    "zeros before": "0" * 5000 + "7",
    "zeros behind the point": "7." + "0" * 5000,
    "5000 digits behind the point": "0." + "3" * 5000,
    "zeros, then a digit behind the point": "0." + "0" * 5000 + "3",
    "5000 digits and a sign": "-" + "7" * 5000,
    "5000 digits, binary": "7" * 5000 + "Mi",
    "5000 digits, decimal": "7" * 5000 + "M",
    "5000 digits, thousandths": "7" * 5000 + "m",
    "1000 digits": "7" * 1000,
    "1000 zeros behind": "7" + "0" * 1000,
    "999 zeros behind": "7" + "0" * 999,
    "1000 exa": "1000E",
    "a million exbi": "1048576Ei",
    "beyond int64": "18446744073709551617",
    "beyond int64, thousandths": "18446744073709551617000m",
    "exponent of 21": "7e21",
    "exponent of 22": "7e22",
    "exponent of 401": "1e401",
    "exponent of 9999": "1e9999",
    "exponent of -9999": "1e-9999",
    "exponent of -401": "1e-401",
    "exponent of 5000 digits": "1e" + "7" * 5000,
    "exponent of zeros": "1e" + "0" * 5000 + "3",
}

# As counts a real server refuses them, because it forgets how they were written only after it has judged them.
_LONG_MEMORY: Final[Mapping[str, str]] = {
    "18 zeros behind": "7" + "0" * 18,
    "20 zeros behind": "7" + "0" * 20,
    "24 zeros behind": "7" + "0" * 24,
}


@promise
async def quantities_may_be_very_long(world: World) -> Rows:
    rows: Rows = []
    for resource, texts in (("example.com/x", _LONG_QUANTITIES), ("memory", {**_LONG_QUANTITIES, **_LONG_MEMORY})):
        for title, text in texts.items():
            container = {"name": "c", "image": "i", "resources": {"limits": {resource: text}}}
            answer = await world.rest.post(f"{world.pods}?dryRun=All", pod("p", {"containers": [container]}))
            if answer.status >= 400:
                rows.append([resource, title, answer.status, answer.body.get("reason", "")])
                continue
            stored = answer.body["spec"]["containers"][0]["resources"]["limits"][resource]
            rows.append([resource, title, answer.status, len(stored), stored[:12], stored[-12:]])
    return rows
