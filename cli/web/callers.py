"""Who may see what of the page's data: a protocol, and its errors.

Two servers share the page: `cli.web.local` asks for a key and shows what the user's kubeconfig may read;
`cli.web.reviewed` asks the API server about each caller's token.
"""

from __future__ import annotations

from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from aiohttp import web

from cli.web.feed import Sees
from kube.calls import Access


class RefusedError(Exception):
    """The call is answered with *status* and a line of text; *is_login*: the page asks for a token then."""

    def __init__(self, status: int, text: str, *, is_login: bool = False) -> None:
        super().__init__(text)
        self.status = status
        self.is_login = is_login


class Callers(Protocol):
    """Knows who calls; each method raises `RefusedError` for who may not."""

    async def admit(self, request: web.Request) -> None:
        """Refuse a call before it is looked at.

        Raises:
            ApiError: the API server does not answer.
        """
        ...

    async def sees(self, request: web.Request) -> Sees:
        """Return what the caller may see.

        Raises:
            ApiError: the API server does not answer.
        """
        ...

    async def may(self, request: web.Request, access: Access) -> bool:
        """Return whether the caller has one right, as far as this is known before the data is read.

        Raises:
            ApiError: the API server does not answer.
        """
        ...

    def streaming(self, request: web.Request) -> AbstractAsyncContextManager[None]:
        """Count a stream of the caller while it is open.

        Raises:
            ApiError: the API server does not answer.
        """
        ...

    async def while_seen(self, request: web.Request, sees: Sees, sending: Coroutine[Any, Any, None]) -> None:
        """Run *sending* until it ends, or until the caller may not see *sees* any more."""
        ...

    def trouble(self, error: Exception) -> str:
        """Return what to answer if the cluster could not be read because of *error*."""
        ...
