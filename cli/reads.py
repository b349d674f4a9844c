"""The source that commands read from: an API server, or a snapshot of one."""

from __future__ import annotations

from typing import Protocol

from kube.calls import Requester


class Reads(Requester, Protocol):
    """The part of `kube.transport.Transport` that the commands need."""

    @property
    def namespace(self) -> str:
        """Return the namespace of the kubeconfig, or ""."""
        ...
