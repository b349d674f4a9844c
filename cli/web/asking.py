"""Answers the form of the page that asks what would fit, a manifest or so much memory: one question at a time."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from functools import partial
from typing import Final

import msgspec
from aiohttp import web

from cli.fits import UnusableFileError, fetch_quotas, fits_manifest, quotas_unread
from cli.reads import Reads
from cli.web.feed import Feed
from core.port.cards import CardWish
from core.view.fits import Fits, Place, fits_wish

# Bytes.
MANIFEST_MAX: Final = 256 * 2**10
# Who may ask was decided before the manifest arrives, so a later one is not waited for.
_ARRIVES_S: Final = 10.0
_WHOLE: Final = re.compile(r"[1-9][0-9]{0,7}", re.ASCII)
_encode: Final = msgspec.json.Encoder().encode


class Asking:
    """Counts on copies of a feed's ledger, in another thread, so that the page stays live."""

    def __init__(self, transport: Reads) -> None:
        """Count within the quotas that *transport* shows."""
        self._transport: Final = transport
        self._counting: asyncio.Future[Fits] | None = None

    async def fits(self, request: web.Request, feed: Feed, namespace: str, *, sees_quotas: bool) -> web.Response:
        """Send how many pods fit into what *feed* has seen, within quotas of *namespace*.

        They are those of the manifest in the body, or with the query parameters memory (MiB) and cards, such pods. The
        answer has the form of ``kubectl cards fits -o json``.
        """
        try:
            async with asyncio.timeout(_ARRIVES_S):
                text, wish = (await request.read()).decode(), _wish(request.query)
        except TimeoutError:
            return _refused(408, f"the manifest did not arrive within {_ARRIVES_S:g} s; send it again")
        except web.HTTPRequestEntityTooLarge:
            return _refused(413, f"the manifest is too long; send at most {MANIFEST_MAX // 2**10} KiB")
        except UnicodeDecodeError:
            return _refused(400, "the manifest is not text in UTF-8")
        except UnusableFileError as e:
            return _refused(400, str(e))
        notes = [*feed.notes]
        if sees_quotas:
            quotas = await fetch_quotas(self._transport, namespace, notes)
        else:
            quotas = ()
            notes.append(quotas_unread(namespace))
        if self._counting is not None and not self._counting.done():
            return _refused(503, "another question is being answered; try again in some seconds")
        ledger = feed.ledger()
        if ledger is None:
            return _refused(403, "the cards are not known, because you may not list nodes or the page is not live yet")
        place = Place(ledger, namespace, quotas, feed.bound(namespace))
        count = (
            partial(fits_wish, place, wish, notes) if wish is not None else partial(fits_manifest, place, text, notes)
        )
        self._counting = asyncio.get_running_loop().run_in_executor(None, count)
        try:
            # The thread goes on if the browser hangs up; until it ends, no other question is taken.
            return web.Response(body=_encode(await asyncio.shield(self._counting)), content_type="application/json")
        except UnusableFileError as e:
            return _refused(400, str(e))


def _wish(query: Mapping[str, str]) -> CardWish | None:
    """Return the request in *query*, None if it has none.

    Raises:
        UnusableFileError: a figure is none.
    """
    given = {name: query[name] for name in ("memory", "cards") if query.get(name)}
    for name, text in given.items():
        if not _WHOLE.fullmatch(text):
            raise UnusableFileError(f"{name}: write a whole number from 1 to 99999999")
    if not given:
        return None
    return CardWish(int(given.get("cards", 1)), int(given["memory"]) if "memory" in given else None)


def _refused(status: int, why: str) -> web.Response:
    return web.Response(status=status, text=f"{why}\n")
