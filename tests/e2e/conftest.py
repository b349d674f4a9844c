"""Everything here runs against a real API server; the tests of one server run in one process."""

from typing import Final

import pytest

from tests.support.fixtures_realapi import (
    admin,
    installed,
    namespace,
    node,
    prepared,
    realapi,
    rig,
    shared_stage,
    staged,
)

__all__ = ["admin", "installed", "namespace", "node", "prepared", "realapi", "rig", "shared_stage", "staged"]

# Fixtures of the whole session, each with a server of its own.
SERVERS: Final = ("realapi", "installed", "prepared")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Group tests by the server that they ask for, so that of two test processes only one starts it."""
    for item in items:
        for name in set(SERVERS).intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.xdist_group(name))
