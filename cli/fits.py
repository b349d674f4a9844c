"""Fetches the data for ``kubectl cards fits``, and reads the manifest."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cli.cluster import fetch_holdings
from cli.options import Fits as Options
from cli.reads import Reads
from core.admission.asked_in import pods_of
from core.admission.rulebook import rulebook
from core.errors import ConfigError, InvalidRequestError
from core.ledger import Ledger
from core.model import Pod
from core.view.fits import Fits, Place, fits_pod, fits_wish
from core.wire.manifests import Unreadable, read_manifests
from core.wire.quotas import ResourceQuota, decode_quota
from kube.calls import namespace_path
from kube.errors import ApiForbiddenError
from kube.listing import list_all
from kube.objects import page_decoder

_STDIN: Final = "-"


class UnusableFileError(Exception):
    """The manifest is unusable: one line with the reason, after *line* if only a part of it is."""

    def __init__(self, problem: str, line: int = 0) -> None:
        super().__init__(f"line {line}: {problem}" if line else problem)
        self.problem: Final = problem
        self.line: Final = line


async def fetch_fits(transport: Reads, options: Options, namespace: str) -> Fits:
    """How many such pods fit now in *namespace*.

    Raises:
        ApiError: nodes or pods may not be listed, or the server does not answer.
        UnusableFileError: the manifest has no pod that requests cards.
    """
    holdings = await fetch_holdings(transport)
    ledger, notes = holdings.ledger, list(holdings.notes)
    quotas = await fetch_quotas(transport, namespace, notes)
    pods = [pod for pod in holdings.pods if pod.namespace == namespace]
    place = Place(ledger, namespace, quotas, pods)
    if options.wish is not None:
        return fits_wish(place, options.wish, notes)
    try:
        return fits_manifest(place, _read(options.file), notes)
    except UnusableFileError as e:
        where = f"{options.file}:{e.line}" if e.line else options.file
        raise UnusableFileError(f"{where}: {e.problem}") from e


def _read(file: str) -> str:
    try:
        return sys.stdin.read() if file == _STDIN else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise UnusableFileError(f"it cannot be read: {getattr(e, 'strerror', '') or e}") from e


async def fetch_quotas(transport: Reads, namespace: str, notes: list[str]) -> Sequence[ResourceQuota]:
    """The quotas of *namespace*; none if they may not be listed, which is added to *notes*.

    Raises:
        ApiError: the server does not answer.
    """
    try:
        path = f"{namespace_path(namespace)}/resourcequotas"
        return (await list_all(transport, path, page_decoder(decode_quota))).items
    except ApiForbiddenError:
        notes.append(quotas_unread(namespace))
        return ()


def quotas_unread(namespace: str) -> str:
    """Return the note that the caller may not see the quotas of *namespace*."""
    return f"you may not list ResourceQuotas in namespace {namespace}; they are not judged"


def fits_manifest(where: Place, text: str, notes: Sequence[str] = ()) -> Fits:
    """How many pods fit like the first in the manifest *text* that requests cards.

    Raises:
        UnusableFileError: the manifest has no such pod.
    """
    found = _asked_in(text, where.ledger, where.namespace)
    if len(found) > 1:
        notes = (*notes, f"the manifest has {len(found)} kinds of pods that ask for cards; only the first is counted")
    return fits_pod(where, found[0], notes)


def _asked_in(text: str, ledger: Ledger, namespace: str) -> list[Pod]:
    """Return the pods of *text* that request cards, at least one."""
    book = rulebook(ledger.settings, ledger.tables, ledger.catalog)
    found: list[Pod] = []
    for one in read_manifests(text):
        if isinstance(one, Unreadable):
            raise UnusableFileError(one.problem, one.line)
        try:
            found += pods_of(one, book, namespace)
        except (InvalidRequestError, ConfigError) as e:
            raise UnusableFileError(str(e), one.line) from e
    found = [one for one in found if ledger.catalog.request_of(one, ledger.tables, ledger.settings) is not None]
    if not found:
        raise UnusableFileError("no pod in it asks for cards")
    return found
