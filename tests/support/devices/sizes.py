"""How many things each container holds that can be reached from an object of ours: what grows with every life shows."""

from collections import Counter
from collections.abc import Sized
from typing import Any

_ROOMS = ("controller", "core", "kube", "runtime")
_PLAIN = (dict, list, tuple, set, frozenset)


def sizes(root: Any) -> dict[str, int]:
    """Attribute path -> size, of all containers; of what a container holds, some are looked into."""
    found: Counter[str] = Counter()
    seen: set[int] = set()
    left = [(root, type(root).__name__)]
    while left:
        one, path = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, Sized) and not isinstance(one, str | bytes):
            found[path] += len(one)
        if isinstance(one, _PLAIN):
            inner = one.values() if isinstance(one, dict) else one
            left += [(value, f"{path}[]") for value in list(inner)[:5]]
        elif type(one).__module__.startswith(_ROOMS):
            names = [*getattr(one, "__dict__", ())]
            names += [name for kind in type(one).__mro__ for name in getattr(kind, "__slots__", ())]
            left += [(getattr(one, name), f"{path}.{name}") for name in names if hasattr(one, name)]
    return dict(found)
