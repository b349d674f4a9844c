"""What holds for every test: no loop left behind, no blocked loop in unit/, measurements only when asked for."""

import asyncio
import gc
import os
import signal
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator
from functools import cache
from pathlib import Path
from threading import current_thread, main_thread
from typing import Final
from zlib import crc32

import pytest
import yaml
from blockbuster import BlockBuster
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests.support.worlds.cases import PLAYED
from tests.support.worlds.cores import which_core

TESTS: Final = Path(__file__).parent
# Plays scenarios on a server with the manifests applied.
SCENARIOS: Final = "tests/e2e/test_scenarios.py"
# What files name whose tests ask for the server of e2e/ on which the product is installed.
_NAMES_INSTALLED: Final = ("Installed", "shared_stage")
_INSTALLED: Final = "e2e installed"
# In this order where nothing else counts: what may take a minute is not begun last, while other processes have ended.
# Half of the scenarios take one process half of the whole run.
_LONGEST_FIRST: Final = ("node", SCENARIOS, "e2e", "browser", "integration", "property", "unit")
# The cases that a test plays, by its name; a scenario plays them on a real API server too.
CASES: Final = defaultdict[str, list[int]](list)
for _number, _tests in PLAYED.items():
    for _name in _tests:
        CASES[_name].append(_number)
        CASES[_name.replace("::", "__").replace("integration/test_", "e2e/test_scenarios::")].append(_number)
ROOMS: Final = ("core", "runtime", "kube", "webhook", "controller", "certs", "cli", "sandbox")

# Up to Python 3.13, whoever asks for the current loop where none was ever set is given a new one, and nobody closes
# it: pytest-asyncio asks around every async test, and the collector warns in whichever test comes later, which
# with warnings as errors fails that one. Once it has been set to none, asking is an error that the plugin expects.
asyncio.set_event_loop(None)

# Tests read thousands of documents, which libyaml reads in a fraction of the time.
yaml.SafeLoader = yaml.CSafeLoader  # type: ignore[misc, assignment]

# A shell without job control starts what ends with `&` deaf to Ctrl-C, and so would be all that a test starts and
# interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The time of one example says more about the machine's other work than about us; what must be fast has its own test.
settings.register_profile("cardshare", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
# `.ci/run` draws the same cases for the same test.
settings.register_profile("ci", parent=settings.get_profile("cardshare"), derandomize=True)
settings.load_profile("cardshare")


class OneByOne(LoadScopeScheduling):  # type: ignore[misc]  # pytest-xdist tells no types
    """Hands tests to processes one by one; those that share a server or what a fixture of their file makes, to one.

    The scenarios of e2e/ are two halves, each with a server of its own: as one they would outlast everything else, as
    e2e/ would if its files that start servers of their own were not apart. What needs the product installed is one
    part, apart from the rest: its start takes 20 s of CPU, and while nobody asks it, a fifteenth of a core.

    pytest-xdist's own groups are by a mark that is lost on the way from pytest 9.
    """

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


def scope_of(nodeid: str) -> str:
    """What the test *nodeid* is handed out by: what it shares with others, or itself."""
    file, _, test = nodeid.partition("::")
    if file == SCENARIOS:
        played = f"tests/integration/{test.partition('__')[0]}.py"
        return _INSTALLED if _names_installed(played) else f"scenarios {crc32(nodeid.encode()) % 2}"
    return _shared(file) or nodeid


def rank_of(nodeid: str) -> int:
    """The place of the test *nodeid* among the others, which stay in the order of chance."""
    file = nodeid.partition("::")[0]
    room = file if file == SCENARIOS else file.split("/")[1] if file.startswith("tests/") else ""
    return _LONGEST_FIRST.index(room) if room in _LONGEST_FIRST else len(_LONGEST_FIRST)


@cache
def _shared(file: str) -> str:
    """What the tests of *file* share that other processes would make again, or ""."""
    _, room, *_ = file.split("/")
    text = (TESTS.parent / file).read_text(encoding="utf-8")
    if room == "node" or "RealApi(" in text:
        return file
    if room == "e2e":
        return _INSTALLED if _names_installed(file) else room
    if room == "browser":
        return room
    return file if 'scope="module"' in text else ""


@cache
def _names_installed(file: str) -> bool:
    text = (TESTS.parent / file).read_text(encoding="utf-8")
    return any(name in text for name in _NAMES_INSTALLED)


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a path that is not there: where tests run in several processes, pytest only says that there are none."""
    for arg in config.args:
        if not (config.invocation_params.dir / arg.partition("::")[0]).exists():
            raise pytest.UsageError(f"file or directory not found: {arg}")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without the garbage collector: nearly all that is made stays, and each process makes it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what plays a case, before pytest looks at marks: so `-m "case(number=22)"` finds it."""
    if isinstance(item, pytest.Function):
        file = item.nodeid.partition(".py::")[0].removeprefix("tests/")
        for number in CASES.get(f"{file}::{item.originalname.removeprefix('test_')}", ()):
            item.add_marker(pytest.mark.case(number=number))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> OneByOne:
    """Called where tests run in several processes."""
    return OneByOne(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what leans on core being interpreted, and begin what takes long before the rest.

    After a run on a compiled core, only what leans on core being interpreted is left of what that run has shown
    (`scripts/test --uncompiled`).
    """
    compiled = which_core() == "compiled"
    shown = tuple(os.environ.get("CARDSHARE_SHOWN_COMPILED", "").split())
    again = {item for item in items if item.nodeid.startswith(shown) and not item.get_closest_marker("interpreted")}
    if again:
        config.hook.pytest_deselected(items=[*again])
        items[:] = [item for item in items if item not in again]
    for item in items:
        leaning = item.get_closest_marker("interpreted")
        if leaning and compiled:
            item.add_marker(pytest.mark.skip(reason=leaning.kwargs["reason"]))
    items.sort(key=lambda item: rank_of(item.nodeid))


def pytest_collection_finish() -> None:
    """Take what was collected out of the garbage collector's sight: it stays to the end.

    A look at it takes a tenth of a second of CPU time, and would be held against the test in which it falls.
    """
    gc.freeze()


@pytest.fixture(autouse=True)
def _unblocked_loop(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test of unit/ in which code of ours blocks the loop; the mark `may_block` lifts it, with a reason."""
    of_unit = request.path.is_relative_to(TESTS / "unit")
    if not of_unit or request.node.get_closest_marker("may_block"):
        yield
        return
    net = _net()
    net.activate()
    yield
    net.deactivate()


@cache
def _net() -> BlockBuster:
    """Made once: it takes as long as many a test."""
    net = BlockBuster(list(ROOMS))
    for function in net.functions.values():
        function.can_block_predicate = _outside_main_thread(function.can_block_predicate)
    return net


def _outside_main_thread(may_block: Callable[..., bool]) -> Callable[..., bool]:
    """A worker thread may have a loop of its own just to block in it; blockbuster would judge that one too."""
    return lambda *args, **kwargs: current_thread() is not main_thread() or may_block(*args, **kwargs)
