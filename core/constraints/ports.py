"""Host ports: two pods of a node cannot use the same one on the same address.

Source: Kubernetes API reference, ContainerPort; kube-scheduler's plugin NodePorts.
"""

from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Final

from core.constraints.constraint import Constraint, Obstacle, ReadScope
from core.model import HostPort, NodeFacts
from core.units import listed

_EVERY_ADDRESS: Final = "0.0.0.0"  # noqa: S104  the address is only compared
# The number of listed host ports.
_NAMED_MAX: Final = 3

# The addresses on which a protocol's port is in use, sorted, once for each holder.
Ports = Mapping[tuple[str, int], tuple[str, ...]]


def reserve(held: Ports | None, more: Iterable[HostPort]) -> Ports:
    """Return *held* with *more* added."""
    found = dict(held or {})
    for protocol, address, port in more:
        there = (*found.get((protocol, port), ()), address or _EVERY_ADDRESS)
        found[protocol, port] = tuple(sorted(there))
    return found


def release(held: Ports, fewer: Iterable[HostPort]) -> Ports:
    """Return *held* without *fewer*, which must be among them."""
    found = dict(held)
    for protocol, address, port in fewer:
        left = list(found.pop((protocol, port)))
        left.remove(address or _EVERY_ADDRESS)
        if left:
            found[protocol, port] = tuple(left)
    return found


def in_use(wanted: Iterable[HostPort], held: Ports | None) -> tuple[HostPort, ...]:
    """Return the *wanted* ports that are *held* on the same address, or if either is for every address."""
    return tuple([one for one in wanted if _is_held(one, held)]) if held else ()


def _is_held(wanted: HostPort, held: Ports) -> bool:
    protocol, address, port = wanted
    addresses = held.get((protocol, port), ())
    if not addresses or not address or address == _EVERY_ADDRESS:
        return bool(addresses)
    return address in addresses or _EVERY_ADDRESS in addresses


def _filter(wanted: tuple[HostPort, ...], facts: NodeFacts, held: Ports | None) -> bool:
    return not in_use(wanted, held)


def _explain(wanted: tuple[HostPort, ...], facts: NodeFacts, held: Ports | None) -> Iterator[Obstacle]:
    found = in_use(wanted, held)
    if found:
        words = [f"{address + ':' if address else ''}{port}/{protocol}" for protocol, address, port in found]
        named = f"host port {listed(words, _NAMED_MAX)}"
        yield Obstacle(f"{named} in use", f"no pod there listens on {named}")


PORTS: Final = Constraint(
    name="ports",
    reads=ReadScope.USE,
    stated=attrgetter("host_ports"),
    signature=lambda pod: pod.host_ports or None,
    filter=_filter,
    explain=_explain,
    reserve=reserve,
    release=release,
)
