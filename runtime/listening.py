"""Addresses to listen on, and the message for a failure: the flag, the address, the reason and the remedy."""

import errno
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_REMEDIES: Final[Mapping[int, str]] = {
    errno.EADDRINUSE: "end what listens there, or choose another port",
    errno.EACCES: "choose a port above 1023, or give the process the right",
    errno.EADDRNOTAVAIL: "choose an address of this machine",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """An address to listen on; an empty host means every address of the machine."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def read_address(text: str) -> Address | None:
    """Parse host:port, [host]:port or :port; return None for anything else."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port[:6]) > 65_535:
        return None
    return Address(host=host.strip("[]"), port=int(port))


def bound(address: Address) -> socket.socket:
    """Return a socket that is bound to *address* but does not listen yet; no host means every address of the machine.

    Raises:
        OSError: the address is unavailable.
    """
    host, family = address.host, socket.AF_INET6 if ":" in address.host else socket.AF_INET
    if not host and socket.has_dualstack_ipv6():
        family = socket.AF_INET6
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setblocking(False)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1 if host else 0)
        found.bind((host or ("::" if family == socket.AF_INET6 else ""), address.port))
    except OSError:
        found.close()
        raise
    return found


def cannot_listen(flag: str, address: object, error: OSError) -> str:
    """Return why the process cannot listen on *address*, which *flag* named."""
    if isinstance(error, socket.gaierror):
        return f"{flag}: cannot listen on {address}: there is no such host; choose an address of this machine"
    why = os.strerror(error.errno).lower() if error.errno else str(error)
    remedy = _REMEDIES.get(error.errno or 0, "choose another address")
    return f"{flag}: cannot listen on {address}: {why}; {remedy}"
