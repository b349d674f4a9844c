"""All objects of one kind at one version, in pages."""

from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeVar

from kube.exchange import Purpose, Response
from kube.objects import ListPage

_T = TypeVar("_T")

# 500 pods are decoded in less than 20 ms.
_PAGE: Final = 500


class Source(Protocol):
    """What of `kube.transport.Transport` is needed here."""

    async def request(
        self, verb: str, path: str, *, params: Mapping[str, str], deadline_s: float, purpose: Purpose
    ) -> Response:
        """See `Transport.request`."""
        ...


async def list_all(
    source: Source,
    path: str,
    decode: Callable[[bytes], ListPage[_T]],
    *,
    selectors: Mapping[str, str] | None = None,
    deadline_s: float = 30.0,
) -> ListPage[_T]:
    """Every object under *path*, as they all were at the version that is returned with them.

    Args:
        source: the transport.
        path: of the collection, such as `/api/v1/pods`.
        decode: one page.
        selectors: `labelSelector`, `fieldSelector`.
        deadline_s: for one page.

    Raises:
        ApiError: the API server does not answer, refuses, or forgot the version between two pages (410).
        UndecodableError: *decode* cannot read a page.
    """
    items: list[_T] = []
    params = {**(selectors or {}), "limit": str(_PAGE)}
    while True:
        answer = await source.request("GET", path, params=params, deadline_s=deadline_s, purpose=Purpose.CALLS)
        page = decode(answer.body)
        items.extend(page.items)
        if not page.continue_token:
            return ListPage(items=tuple(items), resource_version=page.resource_version)
        params["continue"] = page.continue_token
