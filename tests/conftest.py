"""What holds for every test: no loop left behind, no blocked loop in unit/, measurements only when asked for."""

import asyncio
import gc
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import current_thread, main_thread
from typing import Final
from zlib import crc32

import pytest
from blockbuster import BlockBuster
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests.support.worlds.cases import PLAYED
from tests.support.worlds.cores import which_core

TESTS: Final = Path(__file__).parent
ROOMS: Final = ("core", "runtime", "kube", "webhook", "controller", "certs", "cli", "sandbox")

# Up to Python 3.13, whoever asks for the current loop where none was ever set is given a new one, and nobody closes
# it: pytest-asyncio asks around every async test, and the collector warns in whichever test comes later, which
# with warnings as errors fails that one. Once it has been set to none, asking is an error that the plugin expects.
asyncio.set_event_loop(None)

# A shell without job control starts what ends with `&` deaf to Ctrl-C, and so would be all that a test starts and
# interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The time of one example says more about the machine's other work than about us; what must be fast has its own test.
settings.register_profile("cardshare", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
# Whether a change is let in must not hang on the cases drawn that day: `.ci/run` draws the same for the same test.
settings.register_profile("ci", parent=settings.get_profile("cardshare"), derandomize=True)
settings.load_profile("cardshare")


class OneByOne(LoadScopeScheduling):  # type: ignore[misc]  # pytest-xdist tells no types
    """Hands tests to processes one by one; those that share a server, which are a room or a file of node/, to one.

    The scenarios of e2e/ are two halves, each with a server of its own: as one they would outlast everything else.

    pytest-xdist's own groups are by a mark that is lost on the way from pytest 9.
    """

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith("tests/node/"):
            return nodeid.partition("::")[0]
        if nodeid.startswith("tests/e2e/test_scenarios.py"):
            return f"scenarios {crc32(nodeid.encode()) % 2}"
        return next((room for room in ("e2e", "browser") if nodeid.startswith(f"tests/{room}/")), nodeid)


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a path that is not there: where tests run in several processes, pytest only says that there are none."""
    for arg in config.args:
        if not (config.invocation_params.dir / arg.partition("::")[0]).exists():
            raise pytest.UsageError(f"file or directory not found: {arg}")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> OneByOne:
    """Called where tests run in several processes."""
    return OneByOne(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what plays a case, so that `-m "case(number=22)"` finds it; skip what leans on core being interpreted."""
    compiled = which_core() == "compiled"
    for item in items:
        leaning = item.get_closest_marker("interpreted")
        if leaning and compiled:
            item.add_marker(pytest.mark.skip(reason=leaning.kwargs["reason"]))
        if isinstance(item, pytest.Function) and item.path.is_relative_to(TESTS):
            file = item.path.relative_to(TESTS).with_suffix("").as_posix()
            name = f"{file}::{item.originalname.removeprefix('test_')}"
            for number in (number for number, tests in PLAYED.items() if name in tests):
                item.add_marker(pytest.mark.case(number=number))


def pytest_collection_finish() -> None:
    """Take what was collected out of the garbage collector's sight: it stays to the end.

    A look at it takes a tenth of a second of CPU time, and would be held against the test in which it falls.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _unblocked_loop(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test of unit/ in which code of ours blocks the loop; the mark `may_block` lifts it, with a reason."""
    of_unit = request.path.is_relative_to(TESTS / "unit")
    if not of_unit or request.node.get_closest_marker("may_block"):
        yield
        return
    net = BlockBuster(list(ROOMS))
    for function in net.functions.values():
        function.can_block_predicate = _outside_main_thread(function.can_block_predicate)
    net.activate()
    yield
    net.deactivate()


def _outside_main_thread(may_block: Callable[..., bool]) -> Callable[..., bool]:
    """A worker thread may have a loop of its own just to block in it; blockbuster would judge that one too."""
    return lambda *args, **kwargs: current_thread() is not main_thread() or may_block(*args, **kwargs)
