"""What kept a process from listening, in plain words: the flag, the address, why, and what to do."""

import errno
import os
import socket
from collections.abc import Mapping
from typing import Final

_REMEDIES: Final[Mapping[int, str]] = {
    errno.EADDRINUSE: "end what listens there, or choose another port",
    errno.EACCES: "choose a port above 1023, or give the process the right",
    errno.EADDRNOTAVAIL: "choose an address of this machine",
}


def cannot_listen(flag: str, address: object, error: OSError) -> str:
    """Why nobody can be served on *address*, which *flag* named."""
    if isinstance(error, socket.gaierror):
        return f"{flag}: cannot listen on {address}: there is no such host; choose an address of this machine"
    why = os.strerror(error.errno).lower() if error.errno else str(error)
    remedy = _REMEDIES.get(error.errno or 0, "choose another address")
    return f"{flag}: cannot listen on {address}: {why}; {remedy}"
