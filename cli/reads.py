"""The source that commands read: an API server, or a snapshot of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from kube.exchange import Purpose, Response


class Reads(Protocol):
    """The part of `kube.transport.Transport` that the commands need."""

    @property
    def namespace(self) -> str:
        """Return the namespace of the kubeconfig, or ""."""
        ...

    async def request(
        self,
        verb: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        deadline_s: float | None = None,
        purpose: Purpose = Purpose.CALLS,
        wait_out_pause: bool = True,
    ) -> Response:
        """See `Transport.request`."""
        ...
