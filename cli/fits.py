"""``kubectl cards fits``: reads the manifest, counts how many pods fit, and formats the answer for a terminal."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from cli.cluster import Reads, fetch_holdings, list_objects
from cli.options import Fits as Options
from cli.text import NONE, aligned, noted
from core.admission.manifests import is_judged, judge, lacks_spec, pods_of
from core.admission.rulebook import rulebook
from core.errors import ConfigError, InvalidRequestError, escaped
from core.ledger import Ledger
from core.model import Pod
from core.port.cards import CardWish
from core.units import counted, listed
from core.view.fits import Fit, Fits, Place, fits_pod, fits_wish
from core.wire.manifests import Unreadable, read_manifests
from core.wire.policies import ResourceQuota, decode_quota
from kube.calls import namespace_path
from kube.errors import ApiForbiddenError

_STDIN: Final = "-"
# How many warnings about the manifest are shown if it requests no cards.
_SHOWN: Final = 3


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
    holdings = await fetch_holdings(transport, own_map=options.settings_map)
    ledger, notes = holdings.ledger, list(holdings.notes)
    quotas = await fetch_quotas(transport, namespace, notes)
    pods = [pod for pod in holdings.pods if pod.namespace == namespace]
    place = Place(ledger, namespace, quotas, pods)
    if options.wish is not None:
        return fits_wish(place, options.wish, notes)
    try:
        return fits_manifest(place, text_in(options.file), notes)
    except UnusableFileError as e:
        where = f"{options.file}:{e.line}" if e.line else options.file
        raise UnusableFileError(f"{where}: {e.problem}") from e


def text_in(file: str) -> str:
    """Return the text of a file, or of standard input.

    Raises:
        UnusableFileError: it cannot be read.
    """
    try:
        return sys.stdin.read() if file == _STDIN else Path(file).read_text(encoding="utf-8")
    except OSError as e:
        raise UnusableFileError(f"it cannot be read: {e.strerror or e}") from e
    except UnicodeDecodeError as e:
        raise UnusableFileError("it is not UTF-8 text") from e


async def fetch_quotas(transport: Reads, namespace: str, notes: list[str]) -> Sequence[ResourceQuota]:
    """The quotas of *namespace*; none if they may not be listed, which is added to *notes*.

    Raises:
        ApiError: the server does not answer.
    """
    try:
        path = f"{namespace_path(namespace)}/resourcequotas"
        return await list_objects(transport, path, decode_quota)
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
    told: list[str] = []
    others: dict[str, None] = {}
    for one in read_manifests(text):
        if isinstance(one, Unreadable):
            raise UnusableFileError(one.problem, one.line)
        kind = str(one.value.get("kind") or "")
        if lacks_spec(one):
            raise UnusableFileError(f"write the spec of this {kind}; it has none", one.line)
        if not is_judged(one):
            # The same kind of another API is another kind.
            named = f"{one.value.get('apiVersion') or ''} {kind}".strip()
            others[escaped(named[:127]) or "no kind"] = None
        told += (finding.text for finding in judge(one, "", book, namespace) if is_judged(one))
        try:
            found += pods_of(one, book, namespace)
        except (InvalidRequestError, ConfigError) as e:
            raise UnusableFileError(str(e), one.line) from e
    found = [one for one in found if ledger.catalog.request_of(one, ledger.tables, ledger.settings) is not None]
    if not found:
        # A warning may name the resource that a misspelt one should be.
        unread = f"kinds from which no pods are read: {listed([*others], _SHOWN)}" if others else ""
        raise UnusableFileError("; ".join(("no pod in it asks for cards", *told[:_SHOWN], *filter(None, (unread,)))))
    return found


_HEADER = ("PROTOCOL", "TYPE", "PODS", "NODES")
_NO_WAY = "no node offers cards that a pod could ask for in this way; see kubectl cards get"


def fits_table(found: Fits, wish: CardWish | None) -> str:
    """Format one line per form of request and card type, then the largest fit and what blocks the next pod.

    wish: the request; None for a manifest.
    """
    named = list(zip(_names(found.ways), found.ways, strict=True))
    rows = [row for name, one in named for row in _rows(name, one)]
    lines = [*aligned([_HEADER, *rows])] if rows else [_NO_WAY]
    lines += [escaped(line) for name, one in named for line in _told(name or "without cards", one, wish)]
    return noted(lines, found.notes)


def _names(ways: Sequence[Fit]) -> Iterator[str]:
    """Yield the protocol of each of *ways*, with the resource to ask for if several are of one protocol."""
    times = Counter(one.protocol for one in ways)
    for one in ways:
        yield f"{one.protocol} ({next(iter(one.limits), NONE)})" if times[one.protocol] > 1 else one.protocol


def _rows(name: str, one: Fit) -> Iterator[Sequence[str]]:
    for part in one.types:
        yield name or NONE, part.type or NONE, str(part.pods), str(part.nodes)
    if not one.types:
        yield name or NONE, NONE, "0", "0"


def _told(name: str, one: Fit, wish: CardWish | None) -> Iterator[str]:
    many = counted(one.pods, "pods")
    yield f"{name}: {'' if one.is_all else 'more than '}{many} {'fits' if one.pods == 1 else 'fit'}"
    if wish is not None:
        yield f"{name}: the largest pod that fits: {', or '.join(_largest(one, wish)) or 'none'}"
    if one.stops:
        yield f"{name}: the next pod does not fit: {' '.join(filter(None, (one.code, one.stops)))}"


def _largest(one: Fit, wish: CardWish) -> Iterator[str]:
    each = " on each" if wish.cards > 1 else ""
    if one.largest_memory_mib:
        yield f"{counted(wish.cards, 'cards')} with {one.largest_memory_mib} MiB{each}"
    if one.largest_cards and (one.largest_cards > wish.cards or not one.largest_memory_mib):
        each = " on each" if one.largest_cards > 1 else ""
        memory = f" with {wish.memory_mib} MiB{each}" if wish.memory_mib is not None else ""
        yield f"{counted(one.largest_cards, 'cards')}{memory}"
