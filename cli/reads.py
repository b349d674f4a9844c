"""What commands read from: an API server, or a snapshot of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from kube.exchange import Purpose, Response


class Reads(Protocol):
    """What of `kube.transport.Transport` the commands need."""

    @property
    def namespace(self) -> str:
        """The namespace of the kubeconfig, or ""."""
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
