"""Fetches the data for ``kubectl cards fits``, and reads the manifest."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from cli.cluster import fetch_holdings
from cli.options import Fits as Options
from cli.reads import Reads
from core.admission.asked_in import pods_of
from core.admission.rulebook import rulebook
from core.errors import ConfigError, InvalidRequestError, quoted
from core.ledger import Ledger
from core.model import Pod
from core.view.fits import Fits, Place, fits_pod, fits_wish
from core.wire.manifests import Unreadable, read_manifests
from core.wire.quotas import ResourceQuota, decode_quota
from kube.calls import namespace_path
from kube.errors import ApiForbiddenError
from kube.listing import list_all
from kube.objects import page_decoder

_STDIN = "-"


class UnusableFileError(Exception):
    """The manifest is unusable; the text is one line with the reason."""


async def fetch_fits(transport: Reads, options: Options, namespace: str) -> Fits:
    """How many such pods fit now in *namespace*.

    Raises:
        ApiError: nodes or pods may not be listed, or the server does not answer.
        UnusableFileError: the manifest has no pod that requests cards.
    """
    holdings = await fetch_holdings(transport)
    ledger, notes = holdings.ledger, list(holdings.notes)
    quotas: Sequence[ResourceQuota] = ()
    try:
        path = f"{namespace_path(namespace)}/resourcequotas"
        quotas = (await list_all(transport, path, page_decoder(decode_quota))).items
    except ApiForbiddenError:
        notes.append(f"you may not list ResourceQuotas in namespace {namespace}; they are not judged")
    pods = [pod for pod in holdings.pods if pod.namespace == namespace]
    place = Place(ledger, namespace, quotas, pods)
    if options.wish is not None:
        return fits_wish(place, options.wish, notes)
    found = _asked_in(options.file, ledger, namespace)
    if len(found) > 1:
        notes.append(f"{options.file} has {len(found)} kinds of pods that ask for cards; only the first is counted")
    return fits_pod(place, found[0], notes)


def _asked_in(file: str, ledger: Ledger, namespace: str) -> list[Pod]:
    """Return the pods of *file* that request cards, at least one."""
    try:
        text = sys.stdin.read() if file == _STDIN else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise UnusableFileError(f"-f {quoted(file, 256)}: it cannot be read: {getattr(e, 'strerror', '') or e}") from e
    book = rulebook(ledger.settings, ledger.tables, ledger.catalog)
    found: list[Pod] = []
    for one in read_manifests(text):
        if isinstance(one, Unreadable):
            raise UnusableFileError(f"{file}:{one.line}: {one.problem}")
        try:
            found += pods_of(one, book, namespace)
        except (InvalidRequestError, ConfigError) as e:
            raise UnusableFileError(f"{file}:{one.line}: {e}") from e
    found = [one for one in found if ledger.catalog.request_of(one, ledger.tables, ledger.settings) is not None]
    if not found:
        raise UnusableFileError(f"{file}: no pod in it asks for cards")
    return found
