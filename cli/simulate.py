"""``kubectl cards simulate``: reads the cluster as the controller does, and formats what a change would do."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import Final

from cli.cluster import Reads, empty_holdings
from cli.fits import UnusableFileError, text_in
from cli.options import Simulate
from cli.text import NONE, aligned
from core.configuration import OWN_MAP
from core.errors import escaped, quoted
from core.units import counted
from core.view.simulated import Outcome, Simulated, SimulatedKind, SimulatedPod
from core.waiting import cause_of
from core.wire.changes import NO_FILE, Change

_NO_SIMULATOR: Final = "this kubectl-cards contains no simulator; install the wheel with pip"


class UnreadError(Exception):
    """The cluster cannot be read; the text is one line with the reason."""


def change_of(options: Simulate, namespace: str) -> Change:
    """Return the change that the command line describes.

    Raises:
        UnusableFileError: the manifest is unreadable.
    """
    try:
        manifests = text_in(options.file) if options.file else ""
    except UnusableFileError as e:
        raise UnusableFileError(f"-f {quoted(options.file, 256)}: {e}") from e
    return Change(
        manifests=manifests,
        file=options.file or NO_FILE,
        namespace=namespace,
        requests=options.requests,
        add_nodes=options.add_nodes,
        like=options.like,
        drain=options.drain,
        remove=options.remove,
        repartition=options.repartition,
        policy=options.policy,
    )


async def fetch_simulated(reads: Reads, change: Change, wall_s: float | None, own_map: str = OWN_MAP) -> Simulated:
    """Read the cluster, make *change* in memory, and return what would happen.

    Args:
        reads: the cluster or a snapshot.
        change: what to change.
        wall_s: the time of a snapshot, Unix seconds; None: now.
        own_map: the ConfigMap of cardshare's own settings, NAMESPACE/NAME.

    Raises:
        ApiError: the server does not answer.
        UnreadError: the cluster cannot be read.
        UnusableFileError: the change cannot be made.
    """
    try:
        # The only code of the controller that a command runs: the same decisions, in memory. The single file does not
        # contain it, nor the libraries that it needs.
        import structlog  # noqa: PLC0415

        from controller.simulating.changes import UnusableChangeError  # noqa: PLC0415
        from controller.simulating.reading import UnreadableClusterError, read  # noqa: PLC0415
        from controller.simulating.simulate import simulate  # noqa: PLC0415
    except ImportError as e:
        raise UnusableFileError(_NO_SIMULATOR) from e
    before = structlog.get_config()
    # Notes report what cannot be read; the controller's log is not for users.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        holdings = await empty_holdings(reads, own_map)
        ledger = holdings.ledger
        cluster, notes = await read(reads, ledger.tables, ledger.settings, wall_s=wall_s or time.time())
        return await simulate(cluster, change, (*holdings.notes, *notes))
    except UnreadableClusterError as e:
        raise UnreadError(str(e)) from e
    except UnusableChangeError as e:
        raise UnusableFileError(str(e)) from e
    finally:
        structlog.configure(**before)


_PODS = ("POD", "BECAUSE", "BEFORE", "OUTCOME", "NODE", "CARDS OR REASON")
_KINDS = ("PROTOCOL", "TYPE", "CARDS", "FREE", "STRANDED")
_UNKNOWN = "unknown"


def simulated_table(found: Simulated) -> str:
    """Format one line per affected pod, one per type of cards, and who would lose."""
    lines = [*aligned([_PODS, *map(_pod, found.pods)])] if found.pods else ["no pod would be placed or moved"]
    if found.kinds:
        lines += ["", *aligned([_KINDS, *map(_kind, found.kinds)])]
    return "\n".join([*lines, *(escaped(line) for line in _told(found))])


def _pod(one: SimulatedPod) -> Sequence[str]:
    return one.pod, one.because, one.before or NONE, one.outcome, one.node or NONE, _why(one) or NONE


def _why(one: SimulatedPod) -> str:
    if one.outcome == Outcome.ENDED:
        told = "nothing creates it again"
    elif one.outcome == Outcome.WAITS:
        cause = cause_of(one.code)
        # The remedy for all waits of a cause names nothing; the text does.
        is_own = bool(one.change) and (cause is None or one.change != cause.value.remedy)
        told = " ".join(filter(None, (one.code, one.change if is_own else one.text)))
    else:
        told = ", ".join(f"{part.card} ({part.share})" for part in one.cards)
    return f"evicted for {one.evicted_for}; {told}" if one.evicted_for else told


def _kind(one: SimulatedKind) -> Sequence[str]:
    return (
        one.protocol,
        one.type or NONE,
        _both(one.cards_before, one.cards_after),
        _both(one.free_before, one.free_after, one.unit),
        _both(one.stranded_before, one.stranded_after, one.unit),
    )


def _both(before: int | None, after: int | None, unit: str = "") -> str:
    was, now = (_UNKNOWN if one is None else str(one) for one in (before, after))
    amount = was if was == now else f"{was} -> {now}"
    return f"{amount} {unit}".rstrip() if amount != _UNKNOWN else amount


def _told(found: Simulated) -> Iterator[str]:
    if found.losing:
        yield f"{counted(found.losing, 'pods')} that {'runs' if found.losing == 1 else 'run'} now would not run"
    else:
        yield "every pod that runs now would run"
    if found.waiting:
        yield f"{counted(found.waiting, 'other pods')} would still wait"
    yield from (f"note: {note}" for note in found.notes)
