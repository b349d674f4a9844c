"""Fetches the data for ``kubectl cards simulate``: reads the cluster as the controller does, and simulates a change."""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path
from typing import Final

from cli.cluster import empty_holdings
from cli.fits import UnusableFileError
from cli.options import Simulate
from cli.reads import Reads
from core.errors import quoted
from core.view.simulated import Simulated
from core.wire.changes import NO_FILE, Change

_STDIN: Final = "-"
_NO_SIMULATOR: Final = "this kubectl-cards contains no simulator; install the wheel with pip"


class UnreadError(Exception):
    """The cluster cannot be read; the text is one line with the reason."""


def change_of(options: Simulate, namespace: str) -> Change:
    """Return the change that the command line describes.

    Raises:
        UnusableFileError: the manifest is unreadable.
    """
    return Change(
        manifests=_text(options.file) if options.file else "",
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


def _text(file: str) -> str:
    try:
        return sys.stdin.read() if file == _STDIN else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise UnusableFileError(f"-f {quoted(file, 256)}: it cannot be read: {getattr(e, 'strerror', '') or e}") from e


async def fetch_simulated(reads: Reads, change: Change, wall_s: float | None) -> Simulated:
    """Read the cluster, make *change* in memory, and return what would happen.

    Args:
        reads: the cluster or a snapshot.
        change: what to change.
        wall_s: the time of a snapshot, Unix seconds; None: now.

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
        holdings = await empty_holdings(reads)
        ledger = holdings.ledger
        cluster, notes = await read(reads, ledger.tables, ledger.settings, wall_s=wall_s or time.time())
        return await simulate(cluster, change, (*holdings.notes, *notes))
    except UnreadableClusterError as e:
        raise UnreadError(str(e)) from e
    except UnusableChangeError as e:
        raise UnusableFileError(str(e)) from e
    finally:
        structlog.configure(**before)
