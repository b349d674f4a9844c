"""Decides which clients may call, by the names in their certificates. TLS has already verified the certificates."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import structlog

from core.errors import quoted

_log: Final = structlog.get_logger()

_COMMON_NAME: Final = "commonName"
_DNS: Final = "DNS"
_TELL_S: Final = 60.0


class Clients:
    """Admits callers whose certificates carry one of *names*; without names, admits every caller."""

    def __init__(self, names: frozenset[str], clock: Callable[[], float]) -> None:
        self._names = names
        self._clock = clock
        self._told_s = -_TELL_S

    def why_not(self, certificate: Mapping[str, Any]) -> str:
        """Return why the owner of *certificate* (from `ssl.SSLSocket.getpeercert`) may not call, or "" if it may."""
        if not self._names:
            return ""
        found = names_in(certificate)
        if not found.isdisjoint(self._names):
            return ""
        shown = quoted(", ".join(sorted(found)), 256)
        now_s = self._clock()
        if now_s - self._told_s >= _TELL_S:
            self._told_s = now_s
            _log.warning("client refused", names=shown, wanted=", ".join(sorted(self._names)))
        return f"the client's certificate names {shown}, and no client of --client-name"


def names_in(certificate: Mapping[str, Any]) -> frozenset[str]:
    """Return the common names of a certificate's subject and its DNS alternative names."""
    common = [value for part in certificate.get("subject", ()) for kind, value in part if kind == _COMMON_NAME]
    return frozenset([*common, *(value for kind, value in certificate.get("subjectAltName", ()) if kind == _DNS)])
