"""Which tests of `tests/integration` are played on a real API server too, and which are not and why.

A test is a scenario if it asks for a fixture of `OPENERS`; each of those is played again by
`tests/e2e/test_scenarios.py`, unless it stands in `ONLY_HERE`. How one is written: `tests.support.controller_rig`.
"""

import importlib
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final

Test = Callable[..., Any]

OPENERS: Final = frozenset({"rig", "staged"})
_ROOM: Final = Path(__file__).parents[1] / "integration"

# Modules ("test_x") and single tests ("test_x::test_y") that a real API server has no part in.
ONLY_HERE: Final[Mapping[str, str]] = {}


def modules() -> tuple[ModuleType, ...]:
    """The test modules of the room, by name."""
    return tuple(importlib.import_module(f"tests.integration.{path.stem}") for path in sorted(_ROOM.glob("test_*.py")))


def tests_of(module: ModuleType) -> Mapping[str, Test]:
    """The tests that *module* defines, by name."""
    found = inspect.getmembers(module, inspect.isfunction)
    return {name: test for name, test in found if name.startswith("test_") and test.__module__ == module.__name__}


def is_scenario(test: Test) -> bool:
    """Whether *test* has its cluster opened by a fixture."""
    return not OPENERS.isdisjoint(inspect.signature(test).parameters)


def reason(module: str, test: str) -> str:
    """Why a test is not played on a real API server, or ""."""
    name = module.rpartition(".")[2]
    return ONLY_HERE.get(name) or ONLY_HERE.get(f"{name}::{test}", "")


def replayed() -> dict[str, Test]:
    """The tests that are to be played on a real API server, by name."""
    return {
        name: test
        for module in modules()
        for name, test in tests_of(module).items()
        if is_scenario(test) and not reason(module.__name__, name)
    }
